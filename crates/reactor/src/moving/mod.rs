//! Connections that leave one loop and go on in another, on the same host or on a different one,
//! without their peer noticing.
//!
//! [`Io::freeze`](crate::Io::freeze) takes a connection out of its loop: the result is a
//! [`Frozen`], plain data that can be sent anywhere. [`Io::restore`](crate::Io::restore) makes a
//! connection of it again. The loop's [`Mover`] chooses the means:
//!
//! ```text
//!  Mover::Kernel   TCP_REPAIR: the socket is read out, closed without a packet, and recreated.
//!                  Needs CAP_NET_ADMIN.
//!  Mover::Twin     the descriptor itself goes through a Unix socket, between processes of one
//!                  host. Needs nothing.
//!  (simulation)    the simulated network moves the end of its wire; always available there.
//! ```
//!
//! Sequence numbers count modulo 2^32, as in TCP. At any time `receive_sequence + unread.len()` is
//! the next byte expected from the peer, and `send_sequence + unacknowledged.len()` the next byte
//! to send: code that takes bytes from the front of a queue must advance its sequence number, as
//! [`Frozen::take_unread`] does.

mod frozen;
pub(crate) mod kernel;
mod limits;
mod repair;
mod twin;

pub use frozen::{Frozen, FrozenLimits, Intake, NotFrozen, TcpState, Window};
pub use twin::Twin;

use std::io;
use std::os::fd::OwnedFd;

use crate::options::LoopOptions;

/// Means to freeze and restore the connections of a loop. The simulation moves all of them,
/// whatever this says.
#[derive(Clone, Debug, Default)]
pub enum Mover {
    /// Unsupported: [`NotFrozen::Unsupported`].
    #[default]
    None,
    /// By TCP_REPAIR, to any host. After a call of [`Io::freeze`](crate::Io::freeze) no packet of
    /// the connection may reach this host's kernel any more: it would answer with a reset.
    Kernel,
    /// By passing the descriptor to any process of this host that uses the same depot. Queues stay
    /// in the kernel.
    Twin(Twin),
}

impl Mover {
    /// Takes a connection out of its socket, which can then be closed without a packet. After an
    /// error the connection goes on.
    pub(crate) fn freeze(&self, socket: &OwnedFd, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
        match self {
            Mover::None => Err(NotFrozen::Unsupported),
            Mover::Kernel => kernel::freeze(socket, room),
            Mover::Twin(twin) => twin.freeze(socket),
        }
    }

    /// Makes a socket of a connection. Bytes that are not in the socket stay in `frozen`.
    pub(crate) fn restore(
        &self,
        frozen: &mut Frozen,
        intake: Intake,
    ) -> Result<OwnedFd, io::ErrorKind> {
        match self {
            Mover::None => Err(io::ErrorKind::Unsupported),
            Mover::Kernel => kernel::restore(frozen, intake),
            Mover::Twin(twin) => {
                let socket = twin.restore(frozen)?;
                let limited = intake
                    .bytes
                    .map_or(Ok(()), |bytes| crate::driver::socket::limit_receive(&socket, bytes));
                let held =
                    if intake.promises_no_more { repair::promise_no_more(&socket) } else { Ok(()) };
                limited.and(held).map_err(|error| error.kind())?;
                Ok(socket)
            }
        }
    }
}

/// Bytes of a connection in the kernel that its peer has not acknowledged, with its end; 0 for a
/// broken one.
pub(crate) fn unacknowledged(socket: &OwnedFd) -> usize {
    let bytes = repair::send_queue_bytes(socket).map_or(0, |(all, _)| all);
    // A reset leaves the count as it was.
    let is_over = bytes > 0 && repair::info(socket).is_ok_and(|info| info.is_closed());
    if is_over { 0 } else { bytes }
}

/// The part of a loop's state that concerns moving.
#[derive(Debug)]
pub(crate) struct Moves {
    pub(crate) mover: Mover,
    pub(crate) limits: FrozenLimits,
    pub(crate) intake: Intake,
    /// Connections to restore at the end of the turn, with their slots.
    pub(crate) waiting: Vec<(u32, Frozen)>,
}

impl Moves {
    pub(crate) fn new(options: &LoopOptions) -> Moves {
        let (mover, limits) = (options.mover.clone(), options.frozen_limits);
        Moves { mover, limits, intake: options.restored_intake, waiting: Vec::new() }
    }

    /// A socket for a frozen connection.
    pub(crate) fn restore(&self, frozen: &mut Frozen) -> Result<OwnedFd, io::ErrorKind> {
        self.mover.restore(frozen, self.intake)
    }
}
