//! Options of a loop at its start, and the choice of the driver.

use std::fmt;
use std::net::UdpSocket;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::datagrams::AT_ONCE_MAX;
use crate::moving::{FrozenLimits, Intake, Mover};

/// Settings of one loop.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Most bytes taken from one connection by one read.
    pub receive_buffer_bytes: usize,
    /// Bound on accepted connections; more are closed at once, unless one that is closing can make
    /// room. Outgoing ones do not count: they are the service's own.
    pub connections_max: usize,
    /// Bound on the memory of accepted connections that are closing: the service has forgotten
    /// them, and their last output is being sent. Beyond it the oldest are reset.
    pub closing_bytes_max: usize,
    /// Most bytes of idle buffers kept for reuse.
    pub pool_bytes_max: usize,
    /// Time in which a connection that the service closed must send its output and be closed by the
    /// peer.
    pub linger_ns: u64,
    /// Counter that goes down by one when an accepted connection is gone. Give the same counter to
    /// the acceptor's [`CoreSlot`](crate::CoreSlot), which counts it up, and the load is right
    /// without the service's help.
    pub load: Option<Arc<AtomicUsize>>,
    /// Socket for datagrams, bound with [`bind_datagrams`](crate::bind_datagrams); epoll only.
    pub datagrams: Option<Arc<UdpSocket>>,
    /// Messages of datagrams per system call, at most 32.
    pub datagrams_at_once: usize,
    /// Whether datagrams of one size for one peer leave as one message, which the kernel or the
    /// network card cuts. A program of the kernel at the way out sees the uncut message.
    pub datagrams_in_groups: bool,
    /// Means to take connections out of the loop and put them into it.
    pub mover: Mover,
    /// Bounds on the queues of a connection that is taken out.
    pub frozen_limits: FrozenLimits,
    /// Buffers of restored connections in the kernel.
    pub restored_intake: Intake,
}

impl Default for LoopOptions {
    fn default() -> Self {
        LoopOptions {
            receive_buffer_bytes: 128 << 10,
            connections_max: 1 << 16,
            closing_bytes_max: 64 << 20,
            pool_bytes_max: 64 << 20,
            linger_ns: 5_000_000_000,
            load: None,
            datagrams: None,
            datagrams_at_once: AT_ONCE_MAX,
            datagrams_in_groups: false,
            mover: Mover::None,
            frozen_limits: FrozenLimits::default(),
            restored_intake: Intake::default(),
        }
    }
}

/// Choice of the driver that moves the bytes.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum IoChoice {
    /// The loop decides: epoll, because both drivers cost the same per query in every measurement
    /// so far, and epoll needs less kernel memory and works where containers forbid io_uring.
    #[default]
    Auto,
    /// epoll, level-triggered.
    Epoll,
    /// io_uring; [`run`](crate::run) fails if the kernel does not offer it.
    Uring,
}

impl IoChoice {
    /// Name of the driver this choice leads to, as in metrics.
    pub fn driver_name(self) -> &'static str {
        match self {
            IoChoice::Auto | IoChoice::Epoll => "epoll",
            IoChoice::Uring => "uring",
        }
    }
}

impl fmt::Display for IoChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoChoice::Auto => "auto",
            IoChoice::Epoll => "epoll",
            IoChoice::Uring => "uring",
        })
    }
}

impl FromStr for IoChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(IoChoice::Auto),
            "epoll" => Ok(IoChoice::Epoll),
            "uring" | "io_uring" => Ok(IoChoice::Uring),
            other => Err(format!("unknown I/O driver '{other}' (auto, epoll or uring)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_reads_back_what_it_prints() {
        for choice in [IoChoice::Auto, IoChoice::Epoll, IoChoice::Uring] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert!("kqueue".parse::<IoChoice>().is_err());
    }
}
