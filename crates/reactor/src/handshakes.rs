//! Handshakes of accepted connections, on threads beside the one that accepts. A handshake costs as
//! much as hundreds of queries: fifty clients that reconnect at once would stop a loop for
//! milliseconds. A loop gets a connection only with its session ready.
//!
//! A client may be silent, or send one byte a second. So each thread waits for all its handshakes
//! together, and their number and their time are bounded, also for each client: an IPv4 address,
//! or the 64 bits of an IPv6 address that name a network. Beyond the number the oldest one goes, of
//! the client with the most if that has many. Up to sixteen clients take turns, so that one that
//! begins many handshakes delays its own.
//!
//! A connection of a balancer counts for no client until its header names one. Headers cost little,
//! so the threads read all that have arrived before they go on with handshakes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::client_address::{ClientAddress, ClientHost};
use crate::driver::clock;
use crate::pending::{Handshake, Pending, READ_BYTES, Stage, Step};
use crate::placement::{Parcel, Placement};
use crate::service::Accepted;
use crate::session::{Session, SessionFault, SessionInfo};
use crate::sync::{Arc, Mutex, Wake};
use crate::tunnel::Arrival;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;

/// Events taken by one wait.
const EVENTS_MAX: usize = 4096;
/// Steps between two waits. Events that are left are reported again.
const STEPS_MAX: usize = 16;
/// Part of the connections of a thread that one client may have.
const SHARE: usize = 4;
/// Part of the connections of a thread from which on a client has many.
const MANY: usize = 16;
/// Stands for the queue of accepted connections in an event's data.
const WAKE: u64 = u64::MAX;
/// Wait for room when every mailbox is full.
const FULL_WAIT_NS: u64 = 1_000_000;

/// Fault of a connection that makes room for another.
const TOO_MANY: SessionFault =
    SessionFault("too many handshakes at a time; this one was the oldest");

/// Fault of a connection whose events the kernel does not report: it has no memory or no watches.
const UNWATCHABLE: SessionFault = SessionFault("this host has no resources for the connection");

/// Decision about a connection.
pub enum Admission {
    /// The connection goes to its loop as it is.
    Plain,
    /// This session does its handshake first.
    Session(Box<dyn Session>),
    /// The client gets these bytes and the connection is closed.
    Refused(Vec<u8>),
}

/// The rules of listeners for new connections. Calls come from the thread that accepts and from
/// those that do handshakes, and must not block.
pub trait Security: Send + Sync {
    /// True if a balancer's header must stand in front of this connection.
    fn expects_header(&self, _origin: &Accepted) -> bool {
        false
    }

    /// Reads the header in front of a connection: its length and the client that it names. `None`:
    /// it is incomplete, and all of these bytes belong to it. A header has less than 1024 bytes.
    ///
    /// # Errors
    /// The bytes begin with no header.
    fn read_header(
        &self,
        _origin: &Accepted,
        _bytes: &[u8],
    ) -> Result<Option<(usize, ClientAddress)>, SessionFault> {
        Err(SessionFault("begins with a header that is not expected"))
    }

    /// Refuses a connection without the header that it must have. Returns the bytes that its other
    /// end gets; `head` is what it has sent, as far as it was read.
    fn refuse_header(&self, _origin: &Accepted, _fault: SessionFault, _head: &[u8]) -> Vec<u8> {
        Vec::new()
    }

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
    /// Time from the start of a handshake, once a thread has taken its connection, to its end.
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
            let stage = first_stage(&*self.security, &origin);
            tell_given_up(&*self.security, &origin, &stage, TOO_MANY);
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

/// The client whose share a connection uses; `None` while its header has not named one.
type Client = Option<ClientHost>;

#[derive(Default)]
struct Slot {
    generation: u32,
    client: Client,
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
    /// Connections of each client, the oldest first.
    of_client: HashMap<Client, VecDeque<u32>>,
    /// Number of events of each client in the present wait, and all events with their turns.
    counts: HashMap<ClientHost, u32>,
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
            of_client: HashMap::new(),
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
            self.read_headers(&events);
            self.take_turns(&events);
            for position in 0..self.turns.len().min(STEPS_MAX) {
                let (_, data, flags) = self.turns[position];
                self.proceed(data, flags);
            }
            self.give_up_late();
        }
    }

    /// Goes on with connections whose client is not known.
    fn read_headers(&mut self, events: &[Event]) {
        for Event { flags, data } in events.iter().copied() {
            if self.client(data.u64()) == Some(None) {
                self.proceed(data.u64(), flags);
            }
        }
    }

    /// Brings the events of the others into an order in which clients take turns.
    fn take_turns(&mut self, events: &[Event]) {
        self.turns.clear();
        self.counts.clear();
        for Event { flags, data } in events.iter().copied() {
            if let Some(Some(client)) = self.client(data.u64()) {
                let turn = self.counts.entry(client).or_insert(0);
                self.turns.push((*turn, data.u64(), flags));
                *turn += 1;
            }
        }
        self.turns.sort_by_key(|(turn, ..)| *turn);
    }

    /// Client of the connection of an event, unless it is gone.
    fn client(&self, data: u64) -> Option<Client> {
        let slot = self.slots.get(data as u32 as usize)?;
        let is_there = slot.pending.is_some() && slot.generation == (data >> 32) as u32;
        is_there.then_some(slot.client)
    }

    fn take_accepted(&mut self) {
        self.queue.wake.quiet();
        let accepted = std::mem::take(
            &mut *self.queue.accepted.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for (socket, origin) in accepted {
            let stage = first_stage(&*self.security, &origin);
            let client = matches!(stage, Stage::Silent).then(|| origin.peer.counted_host());
            let bound = self.queue.bound;
            if self.has_its_share(client) {
                self.give_up_oldest(Some(client));
            } else if self.slots.len() - self.free.len() >= bound {
                let most = self.of_client.iter().max_by_key(|(_, pending)| pending.len());
                let most = most.filter(|(_, pending)| pending.len() > bound.div_ceil(MANY));
                self.give_up_oldest(most.map(|(client, _)| *client));
            }
            let pending = Pending { socket, origin, stage, interest: EventFlags::IN };
            self.insert(pending, client);
        }
    }

    /// True if a client has as many connections as it may.
    fn has_its_share(&self, client: Client) -> bool {
        let count = self.of_client.get(&client).map_or(0, VecDeque::len);
        client.is_some() && count >= self.queue.bound.div_ceil(SHARE)
    }

    fn insert(&mut self, pending: Pending, client: Client) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let data = EventData::new_u64(u64::from(slot.generation) << 32 | u64::from(index));
        if epoll::add(&self.epoll, &pending.socket, data, EventFlags::IN).is_err() {
            self.free.push(index);
            let Pending { origin, stage, .. } = &pending;
            return tell_given_up(&*self.security, origin, stage, UNWATCHABLE);
        }
        (slot.client, slot.pending) = (client, Some(pending));
        self.order.push_back((index, slot.generation, Instant::now() + self.time_max));
        self.of_client.entry(client).or_default().push_back(index);
    }

    /// Takes a connection out.
    fn remove(&mut self, index: u32) -> Option<Pending> {
        let slot = self.slots.get_mut(index as usize)?;
        let pending = slot.pending.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        let client = slot.client;
        self.leave(client, index);
        Some(pending)
    }

    /// Takes a connection from those of a client.
    fn leave(&mut self, client: Client, index: u32) {
        if let Entry::Occupied(mut entry) = self.of_client.entry(client) {
            // The oldest ones go first, as a rule.
            if let Some(position) = entry.get().iter().position(|other| *other == index) {
                entry.get_mut().remove(position);
            }
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// Counts a connection for its client, if its header has just been read.
    fn name(&mut self, index: u32) {
        let Slot { client: known @ None, pending: Some(pending), .. } =
            &mut self.slots[index as usize]
        else {
            return;
        };
        if matches!(pending.stage, Stage::Header(_)) {
            return;
        }
        let client = Some(pending.origin.peer.counted_host());
        *known = client;
        self.leave(None, index);
        if self.has_its_share(client) {
            self.give_up_oldest(Some(client));
        }
        self.of_client.entry(client).or_default().push_back(index);
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

    /// Gives up the oldest connection of a client, or of all.
    fn give_up_oldest(&mut self, client: Option<Client>) {
        let oldest = match client {
            Some(client) => self.of_client.get(&client).and_then(VecDeque::front).copied(),
            None => self.oldest(),
        };
        if let Some(index) = oldest {
            self.give_up(index, TOO_MANY);
        }
    }

    /// The oldest connection of all. Forgets older ones that are gone.
    fn oldest(&mut self) -> Option<u32> {
        while let Some(&(index, generation, _)) = self.order.front() {
            if self.slots[index as usize].generation == generation {
                return Some(index);
            }
            self.order.pop_front();
        }
        None
    }

    fn give_up(&mut self, index: u32, fault: SessionFault) {
        if let Some(Pending { origin, stage, .. }) = self.remove(index) {
            tell_given_up(&*self.security, &origin, &stage, fault);
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
            Step::Waits => {
                self.name(index);
                self.watch(index, data);
            }
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
                self.give_up(index, UNWATCHABLE);
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
                let Handshake { session, partial, plain, ended, .. } = *handshake;
                self.security.handshake_ended(&origin, Ok(session.info()));
                Some(Box::new(Arrival { session, partial, plain, ended }))
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

/// The stage of a connection of which no byte has been read.
fn first_stage(security: &dyn Security, origin: &Accepted) -> Stage {
    if security.expects_header(origin) { Stage::Header(Vec::new()) } else { Stage::Silent }
}

/// Tells of a connection that is given up at a stage. A refused one has been told of before.
fn tell_given_up(security: &dyn Security, origin: &Accepted, stage: &Stage, fault: SessionFault) {
    match stage {
        Stage::Refused { .. } => {}
        Stage::Header(header) => drop(security.refuse_header(origin, fault, header)),
        Stage::Silent | Stage::Handshake(_) => security.handshake_ended(origin, Err(fault)),
    }
}
