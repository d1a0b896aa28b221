//! One multiget: its keys without duplicates, and their states.

use std::collections::HashMap;
use std::ops::Range;

use shunt_wire::netmc::{
    DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, KEYS_MAX, Op, key_bytes, request_bytes,
};

use crate::limits;
use crate::place::Places;

/// State of a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// No answer yet.
    Wanted,
    /// No answer yet; requested over TCP.
    Fetching,
    /// The key has no value.
    Nothing,
    /// The key would need TCP, which this client does not use.
    NotKnown,
    /// Range of its value in `values`.
    Value(Range<usize>),
}

impl State {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, State::Wanted | State::Fetching)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    bytes: Range<usize>,
    pub(super) server: u8,
    /// Index of its part.
    part: u8,
    /// Index of its group, if it has one.
    pub(super) group: u16,
    pub(super) state: State,
}

/// Keys of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) server: u8,
    /// Keys without an answer.
    pub(super) left: u16,
}

/// Keys of one server that fit one request.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) server: u8,
    pub(super) keys: Vec<u16>,
    pub(super) attempts: u8,
    pub(super) in_flight: bool,
    /// Id of the request that a coordinator should answer it with.
    pub(super) coordinated: Option<u32>,
    /// The switch should send it to its server.
    pub(super) is_switched: bool,
}

/// A multiget.
#[derive(Clone, Debug)]
pub(super) struct Multiget {
    pub(super) user: u64,
    pub(super) op: Op,
    pub(super) keys: Vec<Key>,
    key_bytes: Vec<u8>,
    /// Index in `keys` of each requested key.
    order: Vec<u16>,
    values: Vec<u8>,
    /// Keys without an answer.
    pub(super) left: usize,
    pub(super) parts: Vec<Part>,
    pub(super) groups: Vec<Group>,
    /// Ranges of groups that first go out in one request.
    pub(super) batches: Vec<Range<u16>>,
    pub(super) ids: Vec<u32>,
}

impl Multiget {
    pub(super) fn new<'k>(
        user: u64,
        op: Op,
        asked: impl ExactSizeIterator<Item = &'k [u8]>,
        places: &Places,
    ) -> Self {
        let mut positions: HashMap<&[u8], u16> = HashMap::with_capacity(asked.len());
        let (mut keys, mut key_bytes, mut order) =
            (Vec::new(), Vec::new(), Vec::with_capacity(asked.len()));
        let (mut parts, mut part_of): (Vec<Part>, _) = (Vec::new(), [0; limits::SERVERS_MAX]);
        for key in asked {
            let position = *positions.entry(key).or_insert_with(|| {
                let start = key_bytes.len();
                key_bytes.extend_from_slice(key);
                let server = places.server(key) as u8;
                let bytes = start..key_bytes.len();
                let part = &mut part_of[usize::from(server)];
                // The initial index is 0, which may be another server's part.
                if parts.get(usize::from(*part)).is_none_or(|part| part.server != server) {
                    *part = parts.len() as u8;
                    parts.push(Part { server, left: 0 });
                }
                let part = *part;
                parts[usize::from(part)].left += 1;
                keys.push(Key { bytes, server, part, group: u16::MAX, state: State::Wanted });
                (keys.len() - 1) as u16
            });
            order.push(position);
        }
        let (left, values) = (keys.len(), Vec::new());
        let (groups, batches, ids) = (Vec::new(), Vec::new(), Vec::new());
        Self { user, op, keys, key_bytes, order, values, left, parts, groups, batches, ids }
    }

    pub(super) fn key(&self, position: u16) -> &[u8] {
        self.keys.get(usize::from(position)).map_or(&[], |key| &self.key_bytes[key.bytes.clone()])
    }

    /// True if the key is too long for a datagram.
    pub(super) fn is_too_long(&self, position: u16) -> bool {
        self.key(position).len() > KEY_BYTES_MAX
    }

    /// Groups the wanted keys, and batches the groups. Grouping before cutting gives each server as
    /// few requests as possible.
    pub(super) fn group(&mut self) {
        let mut positions: Vec<u16> = (0..self.keys.len() as u16).collect();
        positions.retain(|position| self.keys[usize::from(*position)].state == State::Wanted);
        positions.sort_by_key(|position| self.keys[usize::from(*position)].server);
        let mut bytes = 0;
        for position in positions {
            let (server, size) =
                (self.keys[usize::from(position)].server, key_bytes(self.key(position)));
            match self.groups.last_mut() {
                Some(group)
                    if group.server == server
                        && group.keys.len() < KEYS_MAX
                        && request_bytes(1, bytes + size) <= DATAGRAM_BYTES_MAX =>
                {
                    group.keys.push(position);
                    bytes += size;
                }
                _ => {
                    self.groups.push(Group {
                        server,
                        keys: vec![position],
                        attempts: 0,
                        in_flight: false,
                        coordinated: None,
                        is_switched: false,
                    });
                    bytes = size;
                }
            }
            self.keys[usize::from(position)].group = (self.groups.len() - 1) as u16;
        }
        self.batch();
    }

    fn batch(&mut self) {
        let mut start = 0;
        while start < self.groups.len() {
            let (mut end, mut keys, mut bytes) = (start, 0, 0);
            while let Some(group) = self.groups.get(end) {
                let more: usize =
                    group.keys.iter().map(|position| key_bytes(self.key(*position))).sum();
                let is_twice = end > start && self.groups[end - 1].server == group.server;
                let fits = keys + group.keys.len() <= KEYS_MAX
                    && request_bytes(end - start + 1, bytes + more) <= DATAGRAM_BYTES_MAX;
                if end > start && (is_twice || !fits) {
                    break;
                }
                (keys, bytes, end) = (keys + group.keys.len(), bytes + more, end + 1);
            }
            self.batches.push(start as u16..end as u16);
            start = end;
        }
    }

    /// Takes an answer; returns the server's part, or `None` for a repeated answer.
    pub(super) fn answer(&mut self, position: u16, value: Option<&[u8]>) -> Option<Part> {
        let key = self.keys.get_mut(usize::from(position)).filter(|key| key.state.is_open())?;
        key.state = match value {
            None => State::Nothing,
            Some(value) => {
                let start = self.values.len();
                self.values.extend_from_slice(value);
                State::Value(start..self.values.len())
            }
        };
        self.left -= 1;
        let part = &mut self.parts[usize::from(key.part)];
        part.left -= 1;
        Some(*part)
    }

    /// Ends a key without an answer.
    pub(super) fn give_up(&mut self, position: u16) {
        if let Some(key) =
            self.keys.get_mut(usize::from(position)).filter(|key| key.state.is_open())
        {
            key.state = State::NotKnown;
            self.left -= 1;
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Bytes of values so far.
    pub(super) fn gathered(&self) -> usize {
        self.values.len()
    }

    /// True if the values exceed the limit of an answer, and no more should be gathered.
    pub(super) fn is_too_large(&self) -> bool {
        self.values.len() > limits::COMMAND_BYTES_MAX
    }

    /// True if datagrams can bring nothing more for a group.
    pub(super) fn is_over(&self, group: &Group) -> bool {
        group.keys.iter().all(|position| self.keys[usize::from(*position)].state != State::Wanted)
    }

    pub(super) fn into_values(self) -> Values {
        let states = self.keys.into_iter().map(|key| key.state).collect();
        Values { op: self.op, order: self.order, states, bytes: self.values }
    }
}

/// Values of a multiget.
#[derive(Clone, Debug)]
pub struct Values {
    /// Operation of the request.
    pub op: Op,
    order: Vec<u16>,
    states: Vec<State>,
    bytes: Vec<u8>,
}

impl Values {
    /// Value of each requested key, in order; `None` if it has none.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        self.states().map(|state| match state {
            State::Value(range) => Some(&self.bytes[range.clone()]),
            _ => None,
        })
    }

    /// For each requested key, whether its answer is known; unknown ones need TCP.
    pub(crate) fn known(&self) -> impl Iterator<Item = bool> {
        self.states().map(|state| *state != State::NotKnown)
    }

    fn states(&self) -> impl ExactSizeIterator<Item = &State> {
        self.order.iter().map(|position| &self.states[usize::from(*position)])
    }
}
