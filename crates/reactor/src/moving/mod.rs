//! Connections that leave one loop and go on in another, on the same host or on a different one,
//! without their peer noticing.
//!
//! [`Io::freeze`](crate::Io::freeze) takes a connection out of its loop: what is left of it is a
//! [`Frozen`], plain data that can be sent anywhere. [`Io::restore`](crate::Io::restore) makes a
//! connection of it again. Which means are used is the loop's [`Mover`]:
//!
//! ```text
//!  Mover::Kernel   TCP_REPAIR: the socket is read out, closed without a packet, and made anew. Needs CAP_NET_ADMIN.
//!  Mover::Twin     the descriptor itself goes through a Unix socket, between processes of one host. Needs nothing.
//!  (simulation)    the simulated network moves the end of its wire; always available there.
//! ```
//!
//! Sequence numbers count as TCP does, modulo 2^32. At any time `receive_sequence + unread.len()`
//! is the next byte that is expected from the peer, and `send_sequence + unacknowledged.len()` the
//! next byte to be sent: whoever takes bytes from the front of a queue must advance its sequence
//! number, as [`Frozen::take_unread`] does.

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

/// How the connections of a loop are frozen and restored. In the simulation all can be, whatever
/// this says.
#[derive(Clone, Debug, Default)]
pub enum Mover {
    /// Not at all: [`NotFrozen::Unsupported`].
    #[default]
    None,
    /// By TCP_REPAIR, to any host. No packet of the connection may reach this host's kernel any
    /// more once [`Io::freeze`](crate::Io::freeze) was called: it would answer with a reset.
    Kernel,
    /// By passing the descriptor on, to any process of this host that uses the same depot. Queues
    /// stay in the kernel.
    Twin(Twin),
}

impl Mover {
    /// Takes a connection out of its socket, which can be closed without a word after that. After
    /// an error it goes on.
    pub(crate) fn freeze(&self, socket: &OwnedFd, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
        match self {
            Mover::None => Err(NotFrozen::Unsupported),
            Mover::Kernel => kernel::freeze(socket, room),
            Mover::Twin(twin) => twin.freeze(socket),
        }
    }

    /// Makes a socket of a connection. What is not in the socket stays in `frozen`.
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

/// Bytes that the kernel has of a connection and its peer has not acknowledged; none of one that is
/// broken.
pub(crate) fn unacknowledged(socket: &OwnedFd) -> usize {
    repair::send_queue_bytes(socket).map_or(0, |(all, _)| all)
}

/// The part of a loop's state that has to do with moving.
#[derive(Debug)]
pub(crate) struct Moves {
    pub(crate) mover: Mover,
    pub(crate) limits: FrozenLimits,
    pub(crate) intake: Intake,
    /// What is to be restored at the end of the turn, with the slot it belongs to.
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
