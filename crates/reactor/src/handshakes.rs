//! Handshakes of accepted connections, on threads beside the one that accepts. A handshake costs as
//! much as hundreds of queries: fifty clients that reconnect at once would stop a loop for
//! milliseconds. A loop gets a connection only with its session ready.
//!
//! A client may be silent, or send one byte a second. So each thread waits for all its handshakes
//! together, and their number and their time are bounded, also for each address. Beyond the number
//! the oldest one of the address with the most goes. Addresses take turns, so that a client that
//! begins many handshakes delays its own.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::driver::{clock, socket};
use crate::placement::{Parcel, Placement};
use crate::service::Accepted;
use crate::session::{Session, SessionFault, SessionInfo};
use crate::sync::{Arc, Mutex, Wake};
use crate::tunnel::Arrival;

/// Events taken by one wait.
const EVENTS_MAX: usize = 4096;
/// Steps between two waits. Events that are left are reported again.
const STEPS_MAX: usize = 16;
/// Part of the connections of a thread that one address may have.
const SHARE: usize = 4;
/// Stands for the queue of accepted connections in an event's data.
const WAKE: u64 = u64::MAX;
/// Leading bytes by which [`Security::admit`] decides.
const HEAD_BYTES: usize = 16;
/// Most bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Wait for room when every mailbox is full.
const FULL_WAIT_NS: u64 = 1_000_000;

/// Fault of a connection that makes room for another.
const TOO_MANY: SessionFault =
    SessionFault("too many handshakes are going on, of which this was the oldest");

/// Decision about a connection.
pub enum Admission {
    /// It goes to its loop as it is.
    Plain,
    /// This session does its handshake first.
    Session(Box<dyn Session>),
    /// It gets these bytes and is closed.
    Refused(Vec<u8>),
}

/// The encryption of listeners. Its calls come from the threads that do handshakes, and must not
/// block.
pub trait Security: Send + Sync {
    /// Decides about a connection by its leading bytes: at least one.
    fn admit(&self, origin: &Accepted, head: &[u8]) -> Admission;

    /// A connection's handshake has ended, or nothing has come of the connection in time.
    fn handshake_ended(&self, origin: &Accepted, outcome: Result<&SessionInfo, SessionFault>);
}

/// Bounds on handshakes.
#[derive(Copy, Clone, Debug)]
pub struct HandshakeLimits {
    /// Number of threads.
    pub threads: usize,
    /// Most connections whose handshake has not ended, a quarter of them from one address. Beyond
    /// that, the oldest one of the address with the most makes room for the next. A quarter more
    /// may wait for a thread that is busy.
    pub pending_max: usize,
    /// Time from the accept to the end of the handshake.
    pub time_max: Duration,
}

impl HandshakeLimits {
    /// Most sockets that the threads hold.
    pub fn sockets_max(&self) -> usize {
        self.pending_max + self.pending_max.div_ceil(SHARE)
    }
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        HandshakeLimits { threads: 1, pending_max: 4096, time_max: Duration::from_secs(10) }
    }
}

/// Queue of one thread.
struct Queue {
    accepted: Mutex<VecDeque<(OwnedFd, Accepted)>>,
    bound: usize,
    wake: Wake,
    stop: AtomicBool,
}

/// The threads, as the accepting thread sees them.
pub(crate) struct Handshakes {
    security: std::sync::Arc<dyn Security>,
    queues: Vec<Arc<Queue>>,
    next: usize,
}

/// The running threads. Dropping it stops them.
#[derive(Default)]
pub(crate) struct HandshakeThreads {
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

impl Handshakes {
    /// Starts the threads.
    pub(crate) fn start<M: Send + 'static>(
        security: &std::sync::Arc<dyn Security>,
        limits: HandshakeLimits,
        placement: &std::sync::Arc<Placement<M>>,
    ) -> io::Result<(Handshakes, HandshakeThreads)> {
        let mut running = HandshakeThreads::default();
        let count = limits.threads.max(1);
        let bound = limits.pending_max.div_ceil(count).max(1);
        for number in 0..count {
            let queue = Arc::new(Queue {
                accepted: Mutex::new(VecDeque::new()),
                bound,
                wake: Wake::new()?,
                stop: AtomicBool::new(false),
            });
            let mut worker = Worker::new(security.clone(), placement.clone(), queue.clone())?;
            worker.time_max = limits.time_max;
            let span = tracing::Span::current();
            let run = move || span.in_scope(|| worker.run());
            let thread =
                std::thread::Builder::new().name(format!("handshakes-{number}")).spawn(run)?;
            running.queues.push(queue);
            running.threads.push(thread);
        }
        let (security, queues) = (security.clone(), running.queues.clone());
        Ok((Handshakes { security, queues, next: 0 }, running))
    }

    /// Gives an accepted connection to the next thread. While a thread stands still, the oldest
    /// connection in its queue makes room.
    pub(crate) fn begin(&mut self, socket: OwnedFd, origin: Accepted) {
        let queue = &self.queues[self.next];
        self.next = (self.next + 1) % self.queues.len();
        let mut accepted = queue.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest =
            if accepted.len() < queue.bound.div_ceil(SHARE) { None } else { accepted.pop_front() };
        accepted.push_back((socket, origin));
        drop(accepted);
        queue.wake.ring();
        if let Some((_, origin)) = oldest {
            self.security.handshake_ended(&origin, Err(TOO_MANY));
        }
    }
}

impl HandshakeThreads {
    /// True if a thread has ended without being stopped: it has panicked.
    pub(crate) fn has_died(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops the threads, and their handshakes with them. False if one had died before.
    pub(crate) fn end(&mut self) -> bool {
        for queue in &self.queues {
            queue.stop.store(true, Ordering::Release);
            queue.wake.ring();
        }
        let died = self.threads.drain(..).filter_map(|thread| thread.join().err()).count();
        died == 0
    }
}

impl Drop for HandshakeThreads {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection without a session that is ready.
struct Pending {
    socket: OwnedFd,
    origin: Accepted,
    stage: Stage,
    /// Events that epoll reports.
    interest: EventFlags,
}

enum Stage {
    /// Nothing has arrived.
    Silent,
    /// The handshake goes on.
    Handshake(Box<Handshake>),
    /// The connection is refused: the rest of what it is told, and whether the end is told too.
    Refused { unsent: Vec<u8>, ended: bool },
}

struct Handshake {
    session: Box<dyn Session>,
    /// Start of an incomplete record.
    partial: Vec<u8>,
    plain: Vec<u8>,
    unsent: Vec<u8>,
}

/// Result of a step of a connection.
enum Step {
    /// More has to arrive, or to be taken.
    Waits,
    /// It goes to a loop.
    Ready,
    /// It is over.
    Gone,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    pending: Option<Pending>,
}

/// One thread.
struct Worker<M> {
    security: std::sync::Arc<dyn Security>,
    placement: std::sync::Arc<Placement<M>>,
    queue: Arc<Queue>,
    epoll: OwnedFd,
    time_max: Duration,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Every connection by its age, with its deadline. Those that are gone stay until their turn.
    order: VecDeque<(u32, u32, Instant)>,
    /// Connections of each address, the oldest first.
    of_address: HashMap<IpAddr, VecDeque<u32>>,
    /// Number of events of each address in the present wait, and all events with their turns.
    counts: HashMap<IpAddr, u32>,
    turns: Vec<(u32, u64, EventFlags)>,
    buffer: Vec<u8>,
}

impl<M> Worker<M> {
    fn new(
        security: std::sync::Arc<dyn Security>,
        placement: std::sync::Arc<Placement<M>>,
        queue: Arc<Queue>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &queue.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Worker {
            security,
            placement,
            queue,
            epoll,
            time_max: HandshakeLimits::default().time_max,
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            of_address: HashMap::new(),
            counts: HashMap::new(),
            turns: Vec::new(),
            buffer: Vec::with_capacity(READ_BYTES),
        })
    }

    fn run(&mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.queue.stop.load(Ordering::Acquire) {
            events.clear();
            let timeout = self.order.front().map(|(_, _, until)| {
                let left = until.saturating_duration_since(Instant::now());
                // Rounded up: a wait that ends just before the deadline would spin.
                clock::timespec(left.as_nanos() as u64 + 1_000_000)
            });
            let spare = rustix::buffer::spare_capacity(&mut events);
            if let Err(error) = epoll::wait(&self.epoll, spare, timeout.as_ref())
                && error != Errno::INTR
            {
                tracing::error!(%error, "handshakes cannot be waited for");
                clock::sleep_ns(FULL_WAIT_NS);
            }
            if events.iter().any(|event| { event.data }.u64() == WAKE) {
                self.take_accepted();
            }
            self.take_turns(&events);
            for position in 0..self.turns.len().min(STEPS_MAX) {
                let (_, data, flags) = self.turns[position];
                self.proceed(data, flags);
            }
            self.give_up_late();
        }
    }

    /// Brings the events of connections into an order in which addresses take turns.
    fn take_turns(&mut self, events: &[Event]) {
        self.turns.clear();
        self.counts.clear();
        for Event { flags, data } in events.iter().copied() {
            if let Some(address) = self.address(data.u64()) {
                let turn = self.counts.entry(address).or_insert(0);
                self.turns.push((*turn, data.u64(), flags));
                *turn += 1;
            }
        }
        self.turns.sort_by_key(|(turn, ..)| *turn);
    }

    /// Address of the connection of an event, unless it is gone.
    fn address(&self, data: u64) -> Option<IpAddr> {
        let slot = self.slots.get(data as u32 as usize)?;
        let pending = slot.pending.as_ref().filter(|_| slot.generation == (data >> 32) as u32)?;
        Some(pending.origin.peer.ip())
    }

    fn take_accepted(&mut self) {
        self.queue.wake.quiet();
        let accepted = std::mem::take(
            &mut *self.queue.accepted.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for (socket, origin) in accepted {
            let address = origin.peer.ip();
            let count = self.of_address.get(&address).map_or(0, VecDeque::len);
            if count >= self.queue.bound.div_ceil(SHARE) {
                self.give_up_oldest(address);
            } else if self.slots.len() - self.free.len() >= self.queue.bound {
                let most = self.of_address.iter().max_by_key(|(_, pending)| pending.len());
                if let Some((&address, _)) = most {
                    self.give_up_oldest(address);
                }
            }
            self.insert(socket, origin);
        }
    }

    fn insert(&mut self, socket: OwnedFd, origin: Accepted) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let data = EventData::new_u64(u64::from(slot.generation) << 32 | u64::from(index));
        if epoll::add(&self.epoll, &socket, data, EventFlags::IN).is_err() {
            // Out of kernel memory or of watches: the connection cannot be served.
            self.free.push(index);
            return;
        }
        slot.pending =
            Some(Pending { socket, origin, stage: Stage::Silent, interest: EventFlags::IN });
        self.order.push_back((index, slot.generation, Instant::now() + self.time_max));
        self.of_address.entry(origin.peer.ip()).or_default().push_back(index);
    }

    /// Takes a connection out.
    fn remove(&mut self, index: u32) -> Option<Pending> {
        let slot = self.slots.get_mut(index as usize)?;
        let pending = slot.pending.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        if let Entry::Occupied(mut entry) = self.of_address.entry(pending.origin.peer.ip()) {
            let of_address = entry.get_mut();
            // The oldest ones go first, as a rule.
            if let Some(position) = of_address.iter().position(|other| *other == index) {
                of_address.remove(position);
            }
            if of_address.is_empty() {
                entry.remove();
            }
        }
        Some(pending)
    }

    fn give_up_late(&mut self) {
        let now = Instant::now();
        while let Some(&(index, generation, until)) = self.order.front() {
            let is_gone = self.slots[index as usize].generation != generation;
            if !is_gone && until > now {
                return;
            }
            self.order.pop_front();
            if !is_gone {
                self.give_up(index, SessionFault("the handshake took too long"));
            }
        }
    }

    fn give_up_oldest(&mut self, address: IpAddr) {
        if let Some(&index) = self.of_address.get(&address).and_then(VecDeque::front) {
            self.give_up(index, TOO_MANY);
        }
    }

    fn give_up(&mut self, index: u32, fault: SessionFault) {
        if let Some(pending) = self.remove(index)
            && !matches!(pending.stage, Stage::Refused { .. })
        {
            self.security.handshake_ended(&pending.origin, Err(fault));
        }
    }

    /// Acts on an event of a connection.
    fn proceed(&mut self, data: u64, flags: EventFlags) {
        let (index, generation) = (data as u32, (data >> 32) as u32);
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if slot.generation != generation {
            return;
        }
        let Some(pending) = &mut slot.pending else { return };
        let is_readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        match pending.step(is_readable, &*self.security, &mut self.buffer) {
            Step::Waits => self.watch(index, data),
            Step::Gone => drop(self.remove(index)),
            Step::Ready => {
                if let Some(pending) = self.remove(index) {
                    self.hand_over(pending);
                }
            }
        }
    }

    /// Has epoll report the events that the connection waits for.
    fn watch(&mut self, index: u32, data: u64) {
        let Some(pending) = &mut self.slots[index as usize].pending else { return };
        let interest = pending.interest();
        if std::mem::replace(&mut pending.interest, interest) != interest {
            let data = EventData::new_u64(data);
            if epoll::modify(&self.epoll, &pending.socket, data, interest).is_err() {
                drop(self.remove(index));
            }
        }
    }

    /// Hands a connection to a loop. Waits while all their mailboxes are full.
    fn hand_over(&self, pending: Pending) {
        let Pending { socket, origin, stage, .. } = pending;
        // The socket lives on elsewhere, and its events must not come here.
        let _ = epoll::delete(&self.epoll, &socket);
        let arrival = match stage {
            Stage::Handshake(handshake) => {
                let Handshake { session, partial, plain, .. } = *handshake;
                self.security.handshake_ended(&origin, Ok(session.info()));
                Some(Box::new(Arrival { session, partial, plain }))
            }
            _ => None,
        };
        let mut parcel: Parcel = (socket, arrival);
        while let Err(back) = self.placement.offer(parcel, origin) {
            if self.queue.stop.load(Ordering::Acquire) || self.placement.is_closed() {
                return;
            }
            parcel = back;
            clock::sleep_ns(FULL_WAIT_NS);
        }
    }
}

impl Pending {
    /// Events that the connection waits for. One whose handshake is done but not sent reads no
    /// more: that is up to its loop.
    fn interest(&self) -> EventFlags {
        let (reads, writes) = match &self.stage {
            Stage::Silent => (true, false),
            Stage::Handshake(handshake) => {
                (handshake.session.is_handshaking(), !handshake.unsent.is_empty())
            }
            Stage::Refused { unsent, .. } => (unsent.is_empty(), !unsent.is_empty()),
        };
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, reads);
        interest.set(EventFlags::OUT, writes);
        interest
    }

    /// Does what can be done now. Reads at most once, so that all connections have their turn.
    fn step(&mut self, is_readable: bool, security: &dyn Security, buffer: &mut Vec<u8>) -> Step {
        if let Stage::Silent = self.stage {
            let mut head = [0; HEAD_BYTES];
            let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
            let count = match recv(&self.socket, &mut head, flags) {
                Ok((_, count @ 1..)) => count.min(HEAD_BYTES),
                Err(Errno::AGAIN | Errno::INTR) => return Step::Waits,
                // The peer closed without a byte, as a balancer's probe does.
                Ok(_) | Err(_) => return Step::Gone,
            };
            match security.admit(&self.origin, &head[..count]) {
                Admission::Plain => return Step::Ready,
                Admission::Refused(unsent) => {
                    self.stage = Stage::Refused { unsent, ended: false };
                }
                Admission::Session(session) => {
                    self.stage = Stage::Handshake(Box::new(Handshake {
                        session,
                        partial: Vec::new(),
                        plain: Vec::new(),
                        unsent: Vec::new(),
                    }));
                }
            }
        }
        match &mut self.stage {
            Stage::Silent => Step::Waits,
            Stage::Refused { unsent, ended } => end(&self.socket, unsent, ended, buffer),
            Stage::Handshake(handshake) => {
                match handshake.step(&self.socket, is_readable, buffer) {
                    Ok(step) => step,
                    Err(fault) => {
                        security.handshake_ended(&self.origin, Err(fault));
                        let mut unsent = std::mem::take(&mut handshake.unsent);
                        handshake.session.take_pending(&mut unsent);
                        let mut ended = false;
                        let step = end(&self.socket, &mut unsent, &mut ended, buffer);
                        self.stage = Stage::Refused { unsent, ended };
                        step
                    }
                }
            }
        }
    }
}

impl Handshake {
    fn step(
        &mut self,
        socket: &OwnedFd,
        is_readable: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<Step, SessionFault> {
        if is_readable && self.session.is_handshaking() {
            buffer.clear();
            buffer.append(&mut self.partial);
            buffer.reserve(READ_BYTES);
            match socket::receive_behind(socket, buffer, READ_BYTES) {
                Ok(0) => return Err(SessionFault("the client closed during the handshake")),
                Ok(_) => {
                    let opened = self.session.open(buffer, &mut self.plain)?;
                    self.partial.extend_from_slice(&buffer[opened.consumed..]);
                    if opened.ended {
                        return Err(SessionFault("the client closed during the handshake"));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.partial.extend_from_slice(buffer);
                }
                Err(_) => return Err(SessionFault("the client reset the connection")),
            }
        }
        self.session.take_pending(&mut self.unsent);
        if send(socket, &mut self.unsent).is_err() {
            return Err(SessionFault("the client reset the connection"));
        }
        let is_ready = !self.session.is_handshaking() && self.unsent.is_empty();
        Ok(if is_ready { Step::Ready } else { Step::Waits })
    }
}

/// Sends as much as the socket takes.
fn send(socket: &OwnedFd, unsent: &mut Vec<u8>) -> rustix::io::Result<()> {
    while !unsent.is_empty() {
        match socket::send(socket, unsent) {
            Ok(count) => drop(unsent.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends a connection so that its peer reads the last bytes: sends them, ends the stream, and waits
/// for the peer to close. A socket that is closed with unread bytes would send a reset, which
/// overtakes them.
fn end(socket: &OwnedFd, unsent: &mut Vec<u8>, ended: &mut bool, buffer: &mut Vec<u8>) -> Step {
    if send(socket, unsent).is_err() {
        return Step::Gone;
    }
    if !unsent.is_empty() {
        return Step::Waits;
    }
    if !std::mem::replace(ended, true) {
        let _ = rustix::net::shutdown(socket.as_fd(), rustix::net::Shutdown::Write);
    }
    buffer.clear();
    match socket::receive_behind(socket, buffer, READ_BYTES) {
        Ok(1..) => Step::Waits,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Waits,
        Ok(0) | Err(_) => Step::Gone,
    }
}
