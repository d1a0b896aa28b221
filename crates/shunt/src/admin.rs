//! The admin interface's listener, and the error for an address that cannot be bound.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener as SystemUnixListener;
use std::path::Path;
use std::sync::Arc;

use shunt_admin::{Access, Listeners, Pages};
use shunt_proxy::config::AdminAddress;
use shunt_reactor::{UnixAccess, UnixListener, listen_unix};
use tracing::error;

use crate::exit::{Exit, Failure};
use crate::print;
use crate::supervise::threads;
use crate::systemd::sockets;

/// Permissions of the Unix sockets for operators: their owner alone.
const UNIX_MODE: u32 = 0o600;

/// The sockets of the admin pages, and who may ask there.
pub(crate) type Bound = (Sockets, Access);

/// Bound sockets of the admin pages.
#[derive(Debug)]
pub(crate) struct Sockets {
    tcp: Option<TcpListener>,
    unix: Option<UnixListener>,
}

impl Sockets {
    /// The address with a port, as bound.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }
}

/// The file of the pages' Unix socket, if they have one. The thread of the pages does not end
/// before the process, so another thread holds this.
#[must_use = "the file is removed when this is dropped"]
pub(crate) struct SocketFile {
    _socket: Option<UnixListener>,
}

/// Binds the admin interface.
pub(crate) fn bind(admin: AdminAddress) -> Result<Bound, Failure> {
    let AdminAddress { http, unix } = admin;
    let tcp = http.as_ref().map(|http| listen("--admin", http.listen)).transpose()?;
    let unix = unix.map(|path| listen_on_path("--admin", &path)).transpose()?;
    let names = http.map(|http| http.names).unwrap_or_default();
    Ok((Sockets { tcp, unix }, Access { names, ..Access::default() }))
}

/// Opens a Unix socket for operators; `flag` is its option. Dropping it removes its file.
pub(crate) fn listen_on_path(flag: &str, path: &Path) -> Result<UnixListener, Failure> {
    let access = UnixAccess { mode: UNIX_MODE, user: None, group: None };
    listen_unix(path, access, ([127, 0, 0, 1], 0).into()).map_err(|error| Failure {
        exit: Exit::CannotListen,
        message: format!("cannot listen on unix:{} ({flag}): {error}", path.display()),
    })
}

/// The same socket for a runtime. The file goes with `listener`, which must be kept.
pub(crate) fn for_runtime(listener: &UnixListener) -> io::Result<tokio::net::UnixListener> {
    let own = SystemUnixListener::from(listener.as_fd().try_clone_to_owned()?);
    own.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(own)
}

/// Prints the Unix socket of the pages, if they have one.
pub(crate) fn announce_unix(admin: Option<&AdminAddress>) {
    if let Some(path) = admin.and_then(|admin| admin.unix.as_ref()) {
        print(&format!("admin pages for commands on unix:{}\n", path.display()));
    }
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
    sockets: Sockets,
    pages: Arc<Pages>,
    ended: impl FnOnce(Option<String>) + Send + 'static,
) -> Result<SocketFile, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal("the admin runtime could not be created", error))?;
    let Sockets { tcp, unix } = sockets;
    let listeners = {
        let _entered = runtime.enter();
        open(tcp, unix.as_ref())
    };
    let listeners = listeners
        .map_err(|error| Failure::internal("the admin interface cannot be served", error))?;
    let work = move || {
        runtime.block_on(pages.serve(listeners));
        Ok(())
    };
    threads::spawn("admin", work, ended)
        .map_err(|error| Failure::internal("the admin thread could not be started", error))?;
    Ok(SocketFile { _socket: unix })
}

/// Serves the pages until the runtime ends.
pub(crate) async fn serve(sockets: Sockets, pages: Arc<Pages>) {
    let Sockets { tcp, unix } = sockets;
    match open(tcp, unix.as_ref()) {
        Ok(listeners) => pages.serve(listeners).await,
        Err(error) => error!(%error, "the admin interface cannot be served"),
    }
}

/// Opens the sockets for the runtime that the caller runs in.
fn open(tcp: Option<TcpListener>, unix: Option<&UnixListener>) -> io::Result<Listeners> {
    let tcp = tcp.map(tokio::net::TcpListener::from_std).transpose()?;
    Ok(Listeners { tcp, unix: unix.map(for_runtime).transpose()? })
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Dispatchers, agents, sidecars and nodes have a thread for the pages that never ends.
    #[test]
    fn the_file_of_the_unix_socket_goes_although_the_pages_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        let admin = AdminAddress { http: None, unix: Some(path.clone()) };
        let (sockets, access) = bind(admin).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, UNIX_MODE);
        let pages = Pages::with_access("1", Vec::new(), access);
        let file = start(sockets, pages, |_| ()).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        drop(file);
        assert!(!path.exists());
    }
}
