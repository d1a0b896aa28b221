//! The thread of locks over HTTP. It is a client of the proxy, so it shares nothing with the cores
//! and does not delay the control plane.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use shunt_admin::Part;
use shunt_locks_http::{LocksHttp, Order};
use shunt_proxy::config::Config;
use shunt_proxy::tls::OutgoingTls;
use shunt_tls::Sessions;
use shunt_tls_upkeep::ServerTls;
use tokio::sync::watch;

use crate::exit::Failure;
use crate::supervise::threads;

/// Starts the thread. Calls `ended` when the thread ends, with the reason if it should not have.
/// Returns the channel for orders, and the thread's admin view. `proxy` is the address where this
/// proxy listens for clients, with the TLS of its fleet if that is on; the listener of locks comes
/// with its own.
pub(super) fn start(
    (listener, served_tls): (TcpListener, Option<Arc<ServerTls>>),
    (proxy, tls): (SocketAddr, Option<Arc<OutgoingTls>>),
    config: watch::Receiver<Arc<Config>>,
    ended: impl FnOnce(Option<String>) + Send + 'static,
) -> Result<(watch::Sender<Order>, Arc<dyn Part>), Failure> {
    let failed =
        |error| Failure::internal("the runtime of locks over HTTP could not be created", error);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(failed)?
    };
    let (orders, order) = watch::channel(Order::Serve);
    let http =
        LocksHttp::new((proxy, tls), served_tls.map(|tls| tls as Arc<dyn Sessions>), config, order);
    let part = Arc::clone(&http) as Arc<dyn Part>;
    let work = move || {
        runtime.block_on(http.serve(listener));
        Ok(())
    };
    threads::spawn("locks-http", work, ended).map_err(|error| {
        Failure::internal("the thread of locks over HTTP could not be started", error)
    })?;
    Ok((orders, part))
}
