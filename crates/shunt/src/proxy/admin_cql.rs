//! The listener of the admin tables, on the control thread.

use std::net::TcpListener;
use std::sync::Arc;

use shunt_admin::Pages;
use shunt_admin_cql::{AdminCql, Listener};
use shunt_proxy::config::{Config, Listen, ListenAddress};
use shunt_reactor::UnixListener;
use tracing::error;

use crate::admin;
use crate::exit::Failure;

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
            admin::listen_on_path("--admin-cql", path).map(|listener| Some(Bound::Unix(listener)))
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
            (admin::for_runtime(&listener).map(Listener::Unix), Some(listener))
        }
    };
    match listener {
        Ok(listener) => AdminCql::new(pages).serve(listener).await,
        Err(error) => error!(%error, "the admin tables cannot be served"),
    }
}
