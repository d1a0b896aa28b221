//! The admin interface's listener, and the error for an address that cannot be bound.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use shunt_admin::{Access, Pages};
use shunt_proxy::config::HttpAddress;
use tracing::error;

use crate::exit::{Exit, Failure};
use crate::supervise::threads;
use crate::systemd::sockets;

/// The listener of the admin pages, and who may ask there.
pub(crate) type Bound = (TcpListener, Access);

/// Binds the admin interface.
pub(crate) fn bind(admin: HttpAddress) -> Result<Bound, Failure> {
    let access = Access { names: admin.names, ..Access::default() };
    Ok((listen("--admin", admin.listen)?, access))
}

/// The scheme of an address of pages.
pub(crate) fn scheme(has_tls: bool) -> &'static str {
    if has_tls { "https" } else { "http" }
}

/// Binds an HTTP interface; `flag` is its option.
pub(crate) fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    let bind = || {
        if let Some(socket) = sockets::take(address) {
            return Ok(socket);
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|error| cannot_listen(flag, address, &error))
}

/// Serves the pages on a separate thread. Calls `ended` with the reason if the thread panics.
pub(crate) fn start(
    listener: TcpListener,
    pages: Arc<Pages>,
    ended: impl FnOnce(Option<String>) + Send + 'static,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal("the admin runtime could not be created", error))?;
    let work = move || {
        runtime.block_on(serve(listener, pages));
        Ok(())
    };
    threads::spawn("admin", work, ended)
        .map_err(|error| Failure::internal("the admin thread could not be started", error))
}

/// Serves the pages until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, pages: Arc<Pages>) {
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => pages.serve(listener).await,
        Err(error) => error!(%error, "the admin interface cannot be served"),
    }
}

/// Builds the error for an address that cannot be bound: why, and what to do.
pub(crate) fn cannot_listen(flag: &str, address: SocketAddr, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; another process has it: stop that process or choose another address"
        }
        std::io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
        std::io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need a privilege (CAP_NET_BIND_SERVICE)"
        }
        _ => "",
    };
    Failure {
        exit: Exit::CannotListen,
        message: format!("cannot listen on {address} ({flag}): {error}{advice}"),
    }
}
