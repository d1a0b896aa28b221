//! Listening sockets that the service manager has opened. They outlive the process: a client that
//! connects between two processes waits for the next one.
//!
//! A socket belongs to the option that has its address. This module must never:
//! - *leave a socket without a server*: if no option has its address, the process says so and ends;
//! - *bind an address again* that has a socket.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exit::{Exit, Failure};

/// Sockets that no option has taken yet.
static WAITING: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

fn waiting() -> MutexGuard<'static, Vec<TcpListener>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the sockets over from the service manager.
///
/// # Errors
/// One of them is not a listening TCP socket.
pub(crate) fn adopt() -> Result<(), Failure> {
    let sockets = shunt_reactor::inherited_listeners().map_err(|error| Failure {
        exit: Exit::Configuration,
        message: format!(
            "the sockets of the service manager cannot be used: {error}; the socket unit needs ListenStream= with an \
             address and a port, and Accept=no"
        ),
    })?;
    waiting().extend(sockets);
    Ok(())
}

/// Returns the service manager's socket at this address, if there is one.
pub(crate) fn take(address: SocketAddr) -> Option<TcpListener> {
    let mut waiting = waiting();
    let index = waiting.iter().position(|own| own.local_addr().is_ok_and(|own| own == address))?;
    Some(waiting.swap_remove(index))
}

/// Makes sure that options have taken all sockets.
///
/// # Errors
/// No option has taken a socket.
pub(crate) fn refuse_others() -> Result<(), Failure> {
    let left: Vec<String> = waiting()
        .drain(..)
        .filter_map(|own| own.local_addr().ok())
        .map(|address| address.to_string())
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(Failure {
        exit: Exit::Configuration,
        message: format!(
            "the service manager passes a socket at {}, where no option listens; give `listen` (--listen) the address \
             of ListenStream= in the socket unit, or the other way round",
            left.join(", ")
        ),
    })
}
