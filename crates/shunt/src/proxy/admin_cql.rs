//! The listener of the admin tables, on the control thread.

use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener as SystemUnixListener;
use std::sync::Arc;

use shunt_admin::Pages;
use shunt_admin_cql::{AdminCql, Listener};
use shunt_proxy::config::{Config, Listen, ListenAddress};
use shunt_reactor::{UnixAccess, UnixListener, listen_unix};
use tracing::error;

use crate::admin;
use crate::exit::{Exit, Failure};

/// Permissions of the socket: its owner alone.
const MODE: u32 = 0o600;

/// A bound listener.
pub(super) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Binds the address, if there is one.
pub(super) fn bind(config: &Config) -> Result<Option<Bound>, Failure> {
    match &config.admin_cql {
        None => Ok(None),
        Some(ListenAddress::Tcp(Listen(address))) => {
            admin::listen("--admin-cql", *address).map(|listener| Some(Bound::Tcp(listener)))
        }
        Some(ListenAddress::Unix(path)) => {
            let access = UnixAccess { mode: MODE, user: None, group: None };
            let local = ([127, 0, 0, 1], 0).into();
            let listener = listen_unix(path, access, local).map_err(|error| Failure {
                exit: Exit::CannotListen,
                message: format!("cannot listen on unix:{} (--admin-cql): {error}", path.display()),
            })?;
            Ok(Some(Bound::Unix(listener)))
        }
    }
}

impl Bound {
    /// The address as an operator would write it.
    pub(super) fn shown(&self, config: &Config) -> Option<String> {
        match self {
            Bound::Tcp(listener) => Some(listener.local_addr().ok()?.to_string()),
            Bound::Unix(_) => match config.admin_cql.as_ref()? {
                ListenAddress::Unix(path) => Some(format!("unix:{}", path.display())),
                ListenAddress::Tcp(_) => None,
            },
        }
    }
}

/// Serves the tables until the runtime ends.
pub(super) async fn serve(bound: Bound, pages: Arc<Pages>) {
    // The file of a socket goes with its listener.
    let (listener, _kept) = match bound {
        Bound::Tcp(listener) => {
            (tokio::net::TcpListener::from_std(listener).map(Listener::Tcp), None)
        }
        Bound::Unix(listener) => {
            let opened = listener.as_fd().try_clone_to_owned().map(SystemUnixListener::from);
            let opened = opened.and_then(|own| own.set_nonblocking(true).map(|()| own));
            let opened = opened.and_then(tokio::net::UnixListener::from_std);
            (opened.map(Listener::Unix), Some(listener))
        }
    };
    match listener {
        Ok(listener) => AdminCql::new(pages).serve(listener).await,
        Err(error) => error!(%error, "the admin tables cannot be served"),
    }
}
