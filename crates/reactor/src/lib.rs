//! The event loop under Shunt's data path: one thread per core, nothing shared between loops.
//!
//! ```text
//!            Service (sans-IO: bytes in -> bytes out)
//!               ^ callbacks        | output(), connect(), close(), ...
//!               |                  v
//!            Io: connection table, buffer pool, timers, sent log
//!               ^ what happened    | dirty outputs, commands
//!               |                  v
//!            driver: epoll | uring | sim
//! ```
//!
//! A turn of the loop: wait for events, read the clock once, hand over everything that arrived,
//! then mail, timers and other due work, [`Service::turn_ended`], and one write for each connection
//! that got output. All that one turn produced for a connection leaves in one write; that is where
//! aggregation comes from.
//!
//! A connection can also leave its loop and go on in another one, on this host or elsewhere: see
//! [`moving`].
//!
//! A loop may have one socket for datagrams as well ([`bind_datagrams`], [`Io::send_datagram`],
//! [`Service::datagram`]); a simulated host has none.
//!
//! In steady state a turn allocates nothing: buffers come from a pool, lists keep their capacity.

mod acceptor;
mod buffer;
mod client_address;
mod closing;
mod connection;
mod datagrams;
mod driver;
mod encryption;
mod engine;
mod fd_limit;
mod handshakes;
mod heap;
mod host_shares;
mod inherited;
mod input;
mod io;
mod mailbox;
mod moves;
pub mod moving;
mod options;
mod output;
mod peers;
mod pending;
mod placement;
mod run;
mod sent_log;
mod service;
mod session;
mod sync;
mod timer;
mod tunnel;
mod unix_listener;

pub use acceptor::{Acceptor, Listener, limit_receive, listen, listen_unix};
pub use client_address::{ClientAddress, ClientHost};
pub use datagrams::bind_datagrams;
pub use driver::clock::now_ns as boot_clock_ns;
pub use driver::sim;
pub use driver::uring::probe_uring;
pub use fd_limit::raise_fd_limit;
pub use handshakes::{Admission, HandshakeLimits, Security};
pub use host_shares::{Full, HostShares};
pub use inherited::inherited_listeners;
pub use input::KeptInput;
pub use io::{Counters, Io};
pub use mailbox::{Inbox, Mailer, mailbox};
pub use options::{IoChoice, LoopOptions};
pub use peers::Peers;
pub use placement::CoreSlot;
pub use run::run;
pub use sent_log::SentLog;
pub use service::{Accepted, CloseReason, ConnId, Service};
pub use session::{NameKind, Opened, PeerName, Session, SessionFault, SessionInfo};
pub use unix_listener::{UNIX_PATH_BYTES_MAX, UnixAccess, UnixListener};
