//! State of a client, and the start and end of a multiget.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;

use shunt_wire::netmc::{KEYS_MAX as REQUEST_KEYS_MAX, Op};
use slab::Slab;

use super::gather::{Multiget, Values};
use crate::limits;
use crate::mode::Mode;
use crate::place::{self, Places, SLOTS};

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Shims in the order of their servers, which determines the placement of keys.
    pub shims: Vec<SocketAddr>,
    /// Place at which requests are split.
    pub mode: Mode,
    /// Time limit of a multiget.
    pub deadline_ns: u64,
    /// Time without an answer after which a group is repeated; it doubles each time.
    pub resend_ns: u64,
    /// Seed of the first id and of the step between ids.
    pub seed: u64,
}

/// Identifies a multiget of a client; a stale ticket identifies none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd, Ord)]
pub struct Ticket {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Event for the driver of the client. `user` is the value given at the start of the multiget.
#[derive(Debug)]
pub enum Event {
    /// Each key has an answer.
    Done {
        /// Value given at the start.
        user: u64,
        /// The values.
        values: Values,
    },
    /// The multiget failed.
    Failed {
        /// Value given at the start.
        user: u64,
        /// Cause of the failure.
        failure: Failure,
    },
    /// Fetch these keys over TCP, then call [`Client::fetched`] or [`Client::fetch_failed`].
    Fetch {
        /// The multiget.
        ticket: Ticket,
        /// [`Op::Get`] if an error of the server is the answer.
        op: Op,
        /// Number of the server.
        server: usize,
        /// Positions for [`Client::key`].
        keys: Vec<u16>,
    },
}

/// Cause of a multiget's failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// A server has not answered by the deadline.
    Deadline {
        /// Number of the server.
        server: usize,
    },
    /// Others filled the window until the deadline, and some keys were never sent.
    NotSent,
    /// The values exceed the limit of an answer.
    TooLarge,
    /// A server refused, or could not be reached over TCP either.
    Server {
        /// Number of the server.
        server: usize,
        /// Message of the server.
        text: String,
    },
}

/// Reason why a multiget was not started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// The multiget has too many keys.
    TooManyKeys,
    /// The limit on multigets is reached.
    Busy,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::TooManyKeys => {
                write!(f, "a multiget has at most {} keys: ask in several", limits::KEYS_MAX)
            }
            Refused::Busy => {
                write!(
                    f,
                    "{} multigets are under way, which is the limit: try again",
                    limits::MULTIGETS_MAX
                )
            }
        }
    }
}

/// Counts of a client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Multigets started.
    pub begun: u64,
    /// Multigets with an answer for each key.
    pub done: u64,
    /// Multigets that failed.
    pub failed: u64,
    /// Multigets refused.
    pub refused: u64,
    /// Multigets abandoned by their users.
    pub abandoned: u64,
    /// Datagrams sent, including repetitions.
    pub sent: u64,
    /// Groups repeated.
    pub repeated: u64,
    /// Keys fetched over TCP because there was no answer, or the server was silent before.
    pub fell_back: u64,
    /// Keys fetched over TCP because the value or key was too long, or the shim asked for it; all
    /// keys with [`Mode::Tcp`].
    pub over_tcp: u64,
    /// Items for keys that had an answer.
    pub duplicates: u64,
    /// Datagrams that are not replies.
    pub malformed: u64,
    /// Replies to requests that are no longer under way.
    pub late: u64,
    /// Replies from an address other than that of the keys' server, or with other keys.
    pub foreign: u64,
    /// Requests given to a coordinator.
    pub coordinated: u64,
    /// Requests that their coordinator did not answer in time.
    pub uncoordinated: u64,
    /// Requests given to a switch.
    pub switched: u64,
    /// Parts of these without an answer in time.
    pub unswitched: u64,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) ticket: Ticket,
    pub(super) op: Op,
    pub(super) keys: [u16; REQUEST_KEYS_MAX],
    pub(super) count: u8,
    /// Server whose shim answers for all of them, if one does.
    pub(super) coordinator: Option<u8>,
    /// The outcome of the coordinator is already counted.
    pub(super) is_settled: bool,
    /// A switch should split it.
    pub(super) is_switched: bool,
}

/// State of a server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) shim: SocketAddr,
    /// The server recently left datagrams, or parts of groups, unanswered.
    pub(super) is_silent: bool,
    /// Consecutive groups of which it answered only a part, so that the rest went over TCP.
    pub(super) halves: u8,
    /// Time of the next datagram to a silent server.
    pub(super) probe_at_ns: u64,
    /// Groups under way to it.
    pub(super) in_flight: usize,
    /// Multigets with unanswered keys of it.
    pub(super) multigets: usize,
    /// Requests that wait until it has fewer under way; they go before all other waiting ones.
    pub(super) waiting: VecDeque<(Ticket, u16)>,
    /// Consecutive requests that it failed to coordinate, or parts that the switch failed to bring
    /// to it.
    pub(super) misses: u8,
    /// Time of the next trial.
    pub(super) tried_at_ns: u64,
}

impl Server {
    fn new(shim: SocketAddr) -> Self {
        Self {
            shim,
            is_silent: false,
            halves: 0,
            probe_at_ns: 0,
            in_flight: 0,
            multigets: 0,
            waiting: VecDeque::new(),
            misses: 0,
            tried_at_ns: 0,
        }
    }
}

/// Steps that a test leaves out.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weakened {
    pub(crate) no_source: bool,
    pub(crate) no_key: bool,
    pub(crate) not_once: bool,
    pub(crate) no_window: bool,
    pub(crate) no_deadline: bool,
    pub(crate) no_fallback: bool,
    pub(crate) ids_stay: bool,
    pub(crate) all_again: bool,
}

/// True if a test leaves this step out; never in the product.
macro_rules! leaves_out {
    ($client:expr, $step:ident) => {{
        #[cfg(test)]
        let left_out = $client.weakened.$step;
        #[cfg(not(test))]
        let left_out = false;
        left_out
    }};
}
pub(super) use leaves_out;

/// The client's side of multigets, for one event loop.
#[derive(Debug)]
pub struct Client {
    pub(super) options: ClientOptions,
    /// The driver can fetch over TCP; if false, keys that need it end without an answer.
    pub(super) has_tcp: bool,
    pub(super) servers: Vec<Server>,
    /// Digest of the servers' shims.
    pub(super) list: u32,
    places: Places,
    pub(super) multigets: Slab<Multiget>,
    generations: Vec<u32>,
    pub(super) ids: HashMap<u32, Sent>,
    pub(super) next_id: u32,
    pub(super) id_step: u32,
    /// Requests that wait for room in the window: multiget and batch.
    pub(super) waiting: VecDeque<(Ticket, u16)>,
    pub(super) in_flight: usize,
    /// Groups of all multigets.
    pub(super) alive_groups: usize,
    /// Times at which to check groups; `u16::MAX` is the deadline.
    pub(super) due: BinaryHeap<Reverse<(u64, Ticket, u16)>>,
    pub(super) events: VecDeque<Event>,
    pub(super) counts: Counts,
    /// Buffers for requests and parts.
    pub(super) whole: Vec<u8>,
    pub(super) part: Vec<u8>,
    #[cfg(test)]
    pub(crate) weakened: Weakened,
}

impl Client {
    /// Creates a client without multigets.
    ///
    /// # Panics
    /// The number of servers is 0 or above [`limits::SERVERS_MAX`].
    pub fn new(options: ClientOptions) -> Self {
        assert!(!options.shims.is_empty() && options.shims.len() <= limits::SERVERS_MAX);
        Self {
            servers: options.shims.iter().map(|shim| Server::new(*shim)).collect(),
            list: place::list_digest(&options.shims),
            places: Places::Equal(options.shims.len()),
            next_id: options.seed as u32,
            // An odd step visits all ids before one repeats.
            id_step: (options.seed >> 32) as u32 | 1,
            options,
            has_tcp: true,
            multigets: Slab::new(),
            generations: Vec::new(),
            ids: HashMap::new(),
            waiting: VecDeque::new(),
            in_flight: 0,
            alive_groups: 0,
            due: BinaryHeap::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
            whole: Vec::new(),
            part: Vec::new(),
            #[cfg(test)]
            weakened: Weakened::default(),
        }
    }

    /// Creates a client that never uses TCP: keys that need it are reported as unknown, see
    /// [`Values`].
    pub(crate) fn without_tcp(options: ClientOptions) -> Self {
        Self { has_tcp: false, ..Self::new(options) }
    }

    /// Starts a multiget; [`Event`]s report on it under `user`. Calls `out` with each datagram and
    /// its receiver.
    ///
    /// # Errors
    /// The multiget has too many keys, or too many are under way.
    pub fn begin<'k>(
        &mut self,
        now_ns: u64,
        user: u64,
        op: Op,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        out: &mut dyn FnMut(SocketAddr, &[u8]),
    ) -> Result<(), Refused> {
        let refused = if keys.len() > limits::KEYS_MAX {
            Some(Refused::TooManyKeys)
        } else {
            (self.multigets.len() >= limits::MULTIGETS_MAX).then_some(Refused::Busy)
        };
        if let Some(refused) = refused {
            self.counts.refused += 1;
            return Err(refused);
        }
        self.counts.begun += 1;
        let multiget = Multiget::new(user, op, keys, &self.places);
        multiget
            .parts
            .iter()
            .for_each(|part| self.servers[usize::from(part.server)].multigets += 1);
        let entry = self.multigets.vacant_entry();
        let slot = entry.key();
        entry.insert(multiget);
        if self.generations.len() <= slot {
            self.generations.resize(slot + 1, 0);
        }
        let ticket = Ticket { slot: slot as u32, generation: self.generations[slot] };
        self.throw_out();
        self.due.push(Reverse((now_ns.saturating_add(self.options.deadline_ns), ticket, u16::MAX)));
        self.plan(now_ns, ticket);
        self.pump(now_ns, out);
        self.finish_if_done(ticket);
        Ok(())
    }

    /// Placement of keys on servers.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Sets the placement of keys; false if it is unchanged. Multigets under way keep the old one.
    pub(crate) fn set_places(&mut self, places: Places) -> bool {
        let is_new = self.places != places;
        self.places = places;
        is_new
    }

    /// Moves a slot to this server; false if it is already there.
    pub(crate) fn place_slot(&mut self, slot: usize, server: usize) -> bool {
        if let Places::Equal(servers) = self.places {
            self.places =
                Places::Slots((0..SLOTS).map(|slot| (slot * servers / SLOTS) as u8).collect());
        }
        match &mut self.places {
            Places::Slots(places) => {
                std::mem::replace(&mut places[slot], server as u8) != server as u8
            }
            Places::Equal(_) => false,
        }
    }

    /// Adds a server with this shim. The caller ensures that there are not too many.
    pub(crate) fn add_server(&mut self, shim: SocketAddr) {
        assert!(self.servers.len() < limits::SERVERS_MAX);
        self.servers.push(Server::new(shim));
        let shims: Vec<SocketAddr> = self.servers.iter().map(|server| server.shim).collect();
        self.list = place::list_digest(&shims);
    }

    /// The multiget of a ticket.
    pub(super) fn get(&self, ticket: Ticket) -> Option<&Multiget> {
        let is_current = self.generations.get(ticket.slot as usize) == Some(&ticket.generation);
        self.multigets.get(ticket.slot as usize).filter(|_| is_current)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Multiget> {
        let is_current = self.generations.get(ticket.slot as usize) == Some(&ticket.generation);
        self.multigets.get_mut(ticket.slot as usize).filter(|_| is_current)
    }

    /// Removes a multiget with all references to it.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Multiget> {
        self.get(ticket)?;
        let multiget = self.multigets.remove(ticket.slot as usize);
        self.alive_groups -= multiget.groups.len();
        for part in multiget.parts.iter().filter(|part| part.left > 0) {
            self.servers[usize::from(part.server)].multigets -= 1;
        }
        let generation = &mut self.generations[ticket.slot as usize];
        *generation = generation.wrapping_add(1);
        if !leaves_out!(self, ids_stay) {
            for id in &multiget.ids {
                self.ids.remove(id);
            }
        }
        for group in multiget.groups.iter().filter(|group| group.in_flight) {
            self.servers[usize::from(group.server)].in_flight -= 1;
            self.in_flight -= 1;
        }
        Some(multiget)
    }

    pub(super) fn finish_if_done(&mut self, ticket: Ticket) {
        if self.get(ticket).is_some_and(Multiget::is_done)
            && let Some(multiget) = self.remove(ticket)
        {
            self.counts.done += 1;
            self.events
                .push_back(Event::Done { user: multiget.user, values: multiget.into_values() });
        }
    }

    /// Drops the multigets of these users; no event reports on them.
    pub fn abandon(
        &mut self,
        now_ns: u64,
        users: &HashSet<u64>,
        out: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        let theirs = self.multigets.iter().filter(|(_, multiget)| users.contains(&multiget.user));
        let ticket = |slot: usize| Ticket { slot: slot as u32, generation: self.generations[slot] };
        for ticket in theirs.map(|(slot, _)| ticket(slot)).collect::<Vec<_>>() {
            self.counts.abandoned += 1;
            self.remove(ticket);
        }
        self.pump(now_ns, out);
    }

    /// For each multiget under way its user and the bytes of its values.
    pub(crate) fn gathered(&self) -> impl Iterator<Item = (u64, usize)> {
        self.multigets.iter().map(|(_, multiget)| (multiget.user, multiget.gathered()))
    }

    /// The key at a position of [`Event::Fetch`]; `None` if its multiget is over.
    pub fn key(&self, ticket: Ticket, position: u16) -> Option<&[u8]> {
        self.get(ticket).map(|multiget| multiget.key(position))
    }

    /// Takes the next event, if there is one.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of multigets under way.
    pub fn under_way(&self) -> usize {
        self.multigets.len()
    }

    /// Multigets with unanswered keys of this server.
    pub fn multigets_at(&self, server: usize) -> usize {
        self.servers.get(server).map_or(0, |server| server.multigets)
    }

    /// True if a server is asked over TCP without trying datagrams first.
    pub(crate) fn is_asked_over_tcp(&self, server: usize) -> bool {
        self.options.mode == Mode::Tcp
            || self.servers.get(server).is_some_and(|server| server.is_silent)
    }

    /// Groups under way, and requests that wait for room.
    pub fn groups(&self) -> (usize, usize) {
        (
            self.in_flight,
            self.waiting.len()
                + self.servers.iter().map(|server| server.waiting.len()).sum::<usize>(),
        )
    }

    #[cfg(test)]
    pub(crate) fn dues(&self) -> usize {
        self.due.len()
    }

    #[cfg(test)]
    pub(crate) fn ids(&self) -> usize {
        self.ids.len()
    }

    #[cfg(test)]
    pub(crate) fn asks_for_what_it_has(&self, id: u32) -> bool {
        let Some((sent, multiget)) =
            self.ids.get(&id).and_then(|sent| Some((sent, self.get(sent.ticket)?)))
        else {
            return false;
        };
        let keys = &sent.keys[..usize::from(sent.count)];
        keys.iter().any(|position| !multiget.keys[usize::from(*position)].state.is_open())
    }

    #[cfg(test)]
    pub(crate) fn any_id(&self) -> Option<u32> {
        self.ids.keys().min().copied()
    }

    /// Servers that do not answer datagrams.
    pub fn silent(&self) -> impl Iterator<Item = usize> {
        self.servers
            .iter()
            .enumerate()
            .filter(|(_, server)| server.is_silent)
            .map(|(index, _)| index)
    }
}
