//! The loop as a service sees it. This code touches no socket: operations change the connection
//! table, mark outputs dirty and queue commands; the driver acts on these at the end of the turn
//! (`engine.rs` is its side of this struct).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::buffer::Pool;
use crate::closing::Closing;
use crate::connection::{Connection, State};
use crate::datagrams::Datagrams;
use crate::engine::{Command, Outcome};
use crate::moving::Moves;
use crate::options::LoopOptions;
use crate::sent_log::{NONE, Place, SentLog};
use crate::service::{Accepted, ConnId};
use crate::timer::{Due, Timers};

/// Size beyond which the scratch buffer for output to dead connections is freed.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// Counters of a loop since its start.
#[derive(Copy, Clone, Default, Debug, Eq, PartialEq)]
pub struct Counters {
    /// Turns of the loop.
    pub turns: u64,
    /// Waits for events (system calls).
    pub waits: u64,
    /// Reads that brought bytes.
    pub reads: u64,
    /// Writes from which the kernel took bytes.
    pub writes: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes the kernel took.
    pub bytes_out: u64,
    /// Connections taken over from the acceptor.
    pub accepts: u64,
    /// Accepted connections closed at once because their number had reached its bound.
    pub refused: u64,
    /// Accepted connections reset as they were closing, because all such connections held too much
    /// memory, or a new one needed the place.
    pub closing_resets: u64,
    /// Outgoing connections established.
    pub connects: u64,
}

impl Counters {
    /// Counts a read that brought bytes.
    #[inline]
    pub(crate) fn count_read(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes_in += bytes as u64;
    }
}

/// The clocks of a simulated host at this moment, which may be later than the start of its turn.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SimulatedClock {
    pub(crate) boot_ns: u64,
    /// Lead of the wall clock over the other.
    pub(crate) wall_offset_us: i64,
}

/// The connection table, buffers, timers and counters of one loop.
pub struct Io {
    pub(crate) now_ns: u64,
    /// Clocks of a simulated host; `None`: those of the machine.
    pub(crate) simulated: Option<SimulatedClock>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) free: Vec<u32>,
    /// Indices of connections with output to flush at the end of the turn.
    pub(crate) dirty: Vec<u32>,
    /// Commands for the driver, in order.
    pub(crate) commands: Vec<Command>,
    /// Resumed connections with kept bytes to present.
    pub(crate) resumed: Vec<u32>,
    /// Connections to check for `drained` after the flush.
    pub(crate) notify_check: Vec<u32>,
    /// Connections for which `drained` is due.
    pub(crate) drained: Vec<ConnId>,
    /// Events outside a callback, to report later.
    pub(crate) outcomes: Vec<(ConnId, Outcome)>,
    pub(crate) moves: Moves,
    /// Accepted connections that do their handshake within the loop, with their origins.
    pub(crate) securing: Vec<(ConnId, Accepted)>,
    pub(crate) timers: Timers,
    pub(crate) datagrams: Datagrams,
    pub(crate) pool: Pool,
    /// Buffer of every read, except those of large messages.
    pub(crate) receive_buffer: Vec<u8>,
    pub(crate) receive_bytes_max: usize,
    /// Content of the records that one read brought.
    pub(crate) plain_buffer: Vec<u8>,
    scratch: Vec<u8>,
    pub(crate) counters: Counters,
    pub(crate) window_ns: u64,
    pub(crate) stopping: bool,
    pub(crate) linger_ns: u64,
    pub(crate) connections_max: usize,
    pub(crate) closing: Closing,
    /// Number of slots of accepted connections, which `connections_max` bounds.
    pub(crate) accepted: usize,
    pub(crate) load: Option<Arc<AtomicUsize>>,
    pub(crate) driver_name: &'static str,
}

impl Io {
    /// Nanoseconds of a clock that never goes back and counts time in suspension (CLOCK_BOOTTIME),
    /// read once per turn.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The same clock, read anew: for callers that must know that this thread was not stopped since
    /// the turn began.
    #[inline]
    pub fn read_clock_ns(&self) -> u64 {
        self.simulated.map_or_else(crate::driver::clock::now_ns, |clock| clock.boot_ns)
    }

    /// Microseconds of the wall clock since 1970; it may jump either way.
    #[inline]
    pub fn wall_us(&self) -> i64 {
        match self.simulated {
            None => crate::driver::clock::wall_us(),
            Some(clock) => (clock.boot_ns / 1_000) as i64 + clock.wall_offset_us,
        }
    }

    /// Starts a connection; [`connected`](crate::Service::connected) or
    /// [`closed`](crate::Service::closed) follows in a later turn, at most `timeout_ns` later.
    /// Earlier output is sent once it is connected.
    pub fn connect(&mut self, to: SocketAddr, timeout_ns: u64) -> ConnId {
        let index = self.allocate(State::Connecting);
        let conn = self.id(index);
        self.timers.set(self.now_ns.saturating_add(timeout_ns), Due::Connection(conn));
        self.commands.push(Command::Connect { index, to });
        conn
    }

    /// Sends the remaining output, then closes. Nothing more is read, and no callback follows.
    /// [`LoopOptions::linger_ns`] bounds the flush, and the wait for the peer to close its side.
    pub fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.get_mut(conn) else {
            return;
        };
        match connection.state {
            State::Connecting | State::Securing => self.abort(conn),
            State::Open => self.start_closing(conn.index),
            // The connection is restored first, and then closed.
            State::Restoring => self.retire(conn.index),
            // No socket here could tell the peer.
            State::Parked => self.abort(conn),
            _ => {}
        }
    }

    /// Closes at the end of this turn without sending the unsent bytes; the peer sees a reset. No
    /// callback follows.
    pub fn abort(&mut self, conn: ConnId) {
        let Some(connection) = self.get_mut(conn) else {
            return;
        };
        if matches!(
            connection.state,
            State::Connecting | State::Securing | State::Open | State::Restoring | State::Parked
        ) {
            self.retire(conn.index);
            self.finish(conn.index, true);
        }
    }

    /// True if the id still names a connection (connecting, being restored, or open).
    #[inline]
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.get(conn).is_some()
    }

    /// Number of connections, including those that still flush after a close.
    #[inline]
    pub fn connections(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// The buffer that leaves in one write at the end of the turn. Append only. A dead connection
    /// gives a scratch buffer that is discarded.
    #[inline]
    pub fn output(&mut self, conn: ConnId) -> &mut Vec<u8> {
        match self.connections.get_mut(conn.index as usize) {
            Some(connection) if connection.generation == conn.generation => {
                if !connection.dirty {
                    connection.dirty = true;
                    self.dirty.push(conn.index);
                    if connection.output.capacity() == 0 {
                        connection.output = self.pool.take(connection.output_expected);
                    }
                }
                &mut connection.output
            }
            _ => emptied(&mut self.scratch),
        }
    }

    /// Sets whether output stays in [`output`](Io::output) over the end of the turn, until a call
    /// with `false`. A closed connection sends it all the same.
    #[inline]
    pub fn hold(&mut self, conn: ConnId, held: bool) {
        let Some(connection) = self.get_mut(conn) else {
            return;
        };
        if std::mem::replace(&mut connection.held, held) && !held {
            self.mark_dirty(conn.index);
        }
    }

    /// Bytes written by the service and not yet taken by the kernel, the current buffer included.
    #[inline]
    pub fn backlog(&self, conn: ConnId) -> usize {
        self.get(conn).map_or(0, Connection::backlog)
    }

    /// Memory of a connection's output, in bytes: at least [`backlog`](Io::backlog), because a
    /// buffer counts as a whole until most of it is sent.
    pub fn output_memory(&self, conn: ConnId) -> usize {
        self.get(conn).map_or(0, Connection::output_memory)
    }

    /// Memory of the output of accepted connections that are closing, in bytes.
    pub fn closing_bytes(&self) -> usize {
        self.closing.bytes
    }

    /// Requests one [`drained`](crate::Service::drained) once the backlog is at most `below` bytes,
    /// in this turn or a later one. Another request before it came replaces the mark.
    pub fn notify_drained(&mut self, conn: ConnId, below: usize) {
        let Some(connection) = self.get_mut(conn) else {
            return;
        };
        connection.notify_below = below;
        if !connection.notify {
            connection.notify = true;
            self.notify_check.push(conn.index);
        }
    }

    /// Stops presenting and reading. A reset seen while paused is reported at once, an end of
    /// stream after the resume.
    #[inline]
    pub fn pause_reading(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn) {
            connection.paused = true;
        }
    }

    /// Reads again; kept bytes are presented in this turn or the next even if nothing new arrives.
    pub fn resume_reading(&mut self, conn: ConnId) {
        let Some(connection) = self.get_mut(conn) else {
            return;
        };
        if std::mem::replace(&mut connection.paused, false) && !connection.resumed {
            connection.resumed = true;
            self.resumed.push(conn.index);
        }
    }

    /// Makes the end of the peer's stream end nothing from now on: only
    /// [`has_ended`](Io::has_ended) reports it, because a peer that has no more to send may still
    /// be listening.
    pub fn keep_end(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn) {
            connection.keeps_end = true;
        }
    }

    /// Ends this side's direction of the stream and keeps the connection, whose output must all be
    /// with the kernel. Until the peer has acknowledged the end,
    /// [`ask_unacknowledged`](Io::ask_unacknowledged) counts it as one byte more. A socket that is
    /// broken counts 0, and no other event tells: the caller asks, and closes the connection.
    pub fn end_output(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn)
            && connection.state == State::Open
        {
            debug_assert_eq!(connection.backlog(), 0, "the end would overtake output");
            connection.output_ended = true;
            self.commands.push(Command::Shutdown { index: conn.index });
        }
    }

    /// True if the end of the peer's stream was seen, and [kept](Io::keep_end).
    #[inline]
    pub fn has_ended(&self, conn: ConnId) -> bool {
        self.get(conn).is_some_and(|connection| connection.end_kept)
    }

    /// True if reading is paused.
    #[inline]
    pub fn is_paused(&self, conn: ConnId) -> bool {
        self.get(conn).is_some_and(|connection| connection.paused)
    }

    /// Bytes received, presented (or held back by a pause) and not consumed.
    #[inline]
    pub fn unread(&self, conn: ConnId) -> usize {
        self.get(conn).map_or(0, Connection::unread)
    }

    /// Calls [`timer`](crate::Service::timer) with `key` once the clock has reached `at_ns`. Timers
    /// cannot be cancelled: services ignore keys that mean nothing any more.
    #[inline]
    pub fn set_timer(&mut self, at_ns: u64, key: u64) {
        self.timers.set(at_ns, Due::Service(key));
    }

    /// Sends a datagram at the end of this turn. It may be lost on its way, and is if the kernel
    /// has no room for it.
    #[inline]
    pub fn send_datagram(&mut self, to: SocketAddr, bytes: &[u8]) {
        self.datagrams.push(to, bytes);
    }

    /// Datagrams that could not be sent, for lack of room or of a route.
    pub fn datagrams_dropped(&self) -> u64 {
        self.datagrams.dropped
    }

    /// Delays every turn that events start by this long, so that more of them are handled together;
    /// 0 switches it off. At saturation the loop batches by itself and a window gains nothing.
    #[inline]
    pub fn set_window_ns(&mut self, window_ns: u64) {
        self.window_ns = window_ns;
    }

    /// Makes the loop return after this turn's flush. Connections are closed as they are: a service
    /// that wants its last bytes delivered closes them first and waits for
    /// [`connections`](Io::connections) to fall.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Counters of the loop so far.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Writes to this connection from which the kernel took bytes.
    #[inline]
    pub fn writes_of(&self, conn: ConnId) -> u64 {
        self.get(conn).map_or(0, |connection| connection.writes)
    }

    /// Name of the driver: `epoll`, `uring` or `sim`.
    pub fn driver_name(&self) -> &'static str {
        self.driver_name
    }

    /// Switches the sent log of a connection on.
    pub fn keep_sent(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn) {
            connection.log.get_or_insert_default();
        }
    }

    /// Keeps the present output buffer after it is sent: counts one up for that buffer and returns
    /// its sequence number. The bytes keep the position in [`output`](Io::output) that they had
    /// when they were appended. Without a sent log, or on a dead connection, the returned number
    /// names nothing.
    #[inline]
    pub fn retain(&mut self, conn: ConnId) -> u32 {
        match self.get_mut(conn).and_then(|connection| connection.log.as_mut()) {
            Some(log) => log.retain(),
            None => NONE,
        }
    }

    /// Counts one down; at 0, and when sent completely, the buffer goes back to the pool.
    #[inline]
    pub fn release(&mut self, conn: ConnId, sequence: u32) {
        let Some(log) = self.get_mut(conn).and_then(|connection| connection.log.as_mut()) else {
            return;
        };
        if let Some(buffer) = log.release(sequence) {
            self.pool.put(buffer);
        }
    }

    /// The whole buffer, whether sent, being sent or still filling; empty if no buffer has this
    /// number.
    pub fn sent(&self, conn: ConnId, sequence: u32) -> &[u8] {
        let Some(connection) = self.get(conn) else {
            return &[];
        };
        let Some(log) = &connection.log else {
            return &[];
        };
        match log.place(sequence) {
            Place::Filling => &connection.output,
            Place::Sending => match &connection.tunnel {
                None => &connection.sending,
                Some(tunnel) => tunnel.plain(),
            },
            Place::Kept(bytes) => bytes,
            Place::Nowhere => &[],
        }
    }

    /// Memory of buffers that were sent completely and are still retained, in bytes.
    #[inline]
    pub fn retained_bytes(&self, conn: ConnId) -> usize {
        self.get(conn).and_then(|connection| connection.log.as_ref()).map_or(0, |log| log.bytes())
    }

    /// Memory of idle buffers, in bytes; at most [`LoopOptions::pool_bytes_max`], and it shrinks
    /// while the load does not need it.
    pub fn idle_buffer_bytes(&self) -> usize {
        self.pool.bytes()
    }

    /// Takes all retained buffers out, for use inside [`closed`](crate::Service::closed). None of
    /// the unsent bytes will be sent after that, retained or not: the stream would have a gap.
    pub fn take_sent_log(&mut self, conn: ConnId) -> SentLog {
        let Some(connection) = self.get_mut(conn) else { return SentLog::default() };
        let Some(log) = connection.log.as_mut() else { return SentLog::default() };
        let log = std::mem::take(&mut **log);
        connection.log_taken = true;
        let output = std::mem::take(&mut connection.output);
        let sending = if let Some(tunnel) = &mut connection.tunnel {
            tunnel.take_plain()
        } else if connection.kernel_reads {
            // Rare: the connection ended while a blocked send was in the kernel's hands. The
            // original must stay.
            connection.sending.clone()
        } else {
            connection.sent = 0;
            std::mem::take(&mut connection.sending)
        };
        log.into_log(output, sending)
    }

    #[inline]
    pub(crate) fn get(&self, conn: ConnId) -> Option<&Connection> {
        self.connections
            .get(conn.index as usize)
            .filter(|connection| connection.generation == conn.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections
            .get_mut(conn.index as usize)
            .filter(|connection| connection.generation == conn.generation)
    }

    pub(crate) fn new(options: &LoopOptions, driver_name: &'static str) -> Io {
        let receive_bytes_max = options.receive_buffer_bytes.max(4096);
        Io {
            now_ns: 0,
            simulated: None,
            connections: Vec::new(),
            free: Vec::new(),
            dirty: Vec::with_capacity(1024),
            commands: Vec::with_capacity(64),
            resumed: Vec::with_capacity(64),
            notify_check: Vec::with_capacity(64),
            drained: Vec::with_capacity(64),
            outcomes: Vec::with_capacity(64),
            moves: Moves::new(options),
            securing: Vec::new(),
            timers: Timers::default(),
            datagrams: Datagrams::new(
                options.datagrams.clone(),
                options.datagrams_at_once,
                options.datagrams_in_groups,
            ),
            pool: Pool::new(options.pool_bytes_max),
            receive_buffer: Vec::with_capacity(receive_bytes_max + crate::engine::KEPT_COPY_MAX),
            receive_bytes_max,
            plain_buffer: Vec::new(),
            scratch: Vec::new(),
            counters: Counters::default(),
            window_ns: 0,
            stopping: false,
            linger_ns: options.linger_ns,
            connections_max: options.connections_max,
            closing: Closing::new(options.closing_bytes_max),
            accepted: 0,
            load: options.load.clone(),
            driver_name,
        }
    }
}

#[cold]
fn emptied(scratch: &mut Vec<u8>) -> &mut Vec<u8> {
    scratch.clear();
    scratch.shrink_to(SCRATCH_BYTES_MAX);
    scratch
}
