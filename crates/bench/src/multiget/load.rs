//! The load itself, a service on one loop.

use std::net::SocketAddr;

use shunt_multiget::{
    client::{Client, ClientOptions, Counts, Event, Values},
    mode::Mode,
    place,
};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::{
    netmc::Op,
    resp::{Value, value, values},
};

use super::{
    args::{MultigetArgs, Way},
    draw::{Draw, is_value, push_key, write_value},
    links::{Expected, Link},
    report::{Round, Sample, Tally},
};
use crate::load::pace::Pace;

const MS: u64 = 1_000_000;
/// Timers.
const PHASE: u64 = 1;
const DUE: u64 = 2;
const ARRIVAL: u64 = 3;
/// Writes under way per server while all keys are written.
const FILLING_MAX: usize = 256;

/// Phase of the run.
#[derive(Debug)]
enum Phase {
    Connecting,
    /// Keys before this one are written or being written.
    Filling(u32),
    WarmUp,
    Measuring {
        round: u32,
        began_ns: u64,
        begin: Box<Sample>,
    },
}

/// An operation, or a free place for one.
#[derive(Debug, Default)]
struct Ask {
    intended_ns: u64,
    is_write: bool,
    keys: Vec<u32>,
    bytes: Vec<u8>,
    /// With `--way tcp`: the number of values to come, and the values so far, as an application
    /// would keep them.
    left: usize,
    values: Vec<u8>,
}

/// Load on one event loop.
pub(super) struct Load {
    args: MultigetArgs,
    draw: Draw,
    client: Option<Client>,
    links: Vec<Link>,
    asks: Vec<Ask>,
    free: Vec<usize>,
    /// Keys of the operation that is being split, by server.
    split: Vec<Vec<u16>>,
    value: Vec<u8>,
    pace: Option<Pace>,
    /// The time for which the timer is set.
    armed_ns: Option<u64>,
    arrival_ns: u64,
    phase: Phase,
    tally: Tally,
    wrong: u64,
    failure: Option<String>,
    reader: Box<dyn FnMut(&Round)>,
}

impl Load {
    /// Creates a load that begins when its loop starts; `reader` is called with each round when the
    /// round is over.
    pub(super) fn new(args: MultigetArgs, reader: Box<dyn FnMut(&Round)>) -> Self {
        let mode = match (args.way, args.switch) {
            (Way::Tcp, _) => None,
            (Way::Coordinator, _) => Some(Mode::Coordinator),
            (Way::Netmc, Some(switch)) => Some(Mode::Netmc { switch }),
            (Way::Cli | Way::Netmc, _) => Some(Mode::Cli),
        };
        let client = mode.map(|mode| {
            Client::new(ClientOptions {
                shims: args.shims.clone(),
                mode,
                deadline_ns: args.timeout_ms * MS,
                resend_ns: args.resend_ms * MS,
                // Two runs in a row must not use the same ids.
                seed: args.seed ^ u64::from(std::process::id()) << 32,
            })
        });
        Self {
            draw: Draw::new(args.size, args.keys, args.distribution, args.seed),
            client,
            links: args.servers.iter().map(|server| Link::new(*server)).collect(),
            asks: (0..args.outstanding).map(|_| Ask::default()).collect(),
            free: (0..args.outstanding as usize).collect(),
            split: vec![Vec::new(); args.servers.len()],
            value: vec![b'v'; args.value_bytes as usize],
            pace: None,
            armed_ns: None,
            arrival_ns: 0,
            phase: Phase::Connecting,
            tally: Tally::new(),
            wrong: 0,
            failure: None,
            reader,
            args,
        }
    }

    /// Returns the reason why the run was given up, if it was.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// True if every value belonged to its key.
    pub(super) fn is_sound(&self) -> bool {
        self.wrong == 0
    }

    fn fail(&mut self, io: &mut Io, why: String) {
        self.failure.get_or_insert(why);
        io.stop();
    }

    fn begin_all(&mut self, io: &mut Io) {
        if !matches!(self.phase, Phase::WarmUp | Phase::Measuring { .. }) {
            return;
        }
        let now_ns = io.now_ns();
        if let Some(pace) = &mut self.pace {
            let next_ns = pace.advance(now_ns);
            if self.arrival_ns <= now_ns || next_ns < self.arrival_ns {
                self.arrival_ns = next_ns;
                io.set_timer(next_ns, ARRIVAL);
            }
        }
        while !self.free.is_empty() {
            let intended_ns = match &mut self.pace {
                None => now_ns,
                Some(pace) => match pace.take() {
                    Some(intended_ns) => intended_ns,
                    None => break,
                },
            };
            if let Some(ask) = self.free.pop() {
                self.begin(io, ask, intended_ns);
            }
        }
        self.carry_out(io);
    }

    fn begin(&mut self, io: &mut Io, index: usize, intended_ns: u64) {
        let Self { draw, asks, args, client, links, value, .. } = self;
        let (ask, key_bytes) = (&mut asks[index], usize::from(args.key_bytes));
        (ask.intended_ns, ask.is_write) = (intended_ns, draw.is_write(args.writes));
        ask.bytes.clear();
        if ask.is_write {
            let key = draw.key();
            push_key(key, key_bytes, &mut ask.bytes);
            write_value(key, value);
            let server = place::server(&ask.bytes, links.len());
            return links[server].set(io, &ask.bytes, value, Expected::Written(index));
        }
        draw.multiget(&mut ask.keys);
        ask.keys.iter().for_each(|key| push_key(*key, key_bytes, &mut ask.bytes));
        let Some(client) = client else { return self.ask_each(io, index) };
        let keys = ask.bytes.chunks_exact(key_bytes);
        let begun = client.begin(io.now_ns(), index as u64, Op::MultiGet, keys, &mut |to, data| {
            io.send_datagram(to, data)
        });
        if let Err(refused) = begun {
            self.fail(io, format!("a multiget was refused: {refused}"));
        }
    }

    /// Asks each server for its part of the keys.
    fn ask_each(&mut self, io: &mut Io, index: usize) {
        let Self { asks, args, links, split, .. } = self;
        let (ask, key_bytes) = (&mut asks[index], usize::from(args.key_bytes));
        ask.values.clear();
        ask.left = ask.keys.len();
        for (key, position) in ask.bytes.chunks_exact(key_bytes).zip(0..) {
            split[place::server(key, links.len())].push(position);
        }
        for (link, positions) in links.iter_mut().zip(split) {
            if positions.is_empty() {
                continue;
            }
            let key =
                |position: &u16| &ask.bytes[usize::from(*position) * key_bytes..][..key_bytes];
            link.multiget(io, positions.iter().map(key), Expected::Part(index, positions.len()));
            link.positions.extend(positions.drain(..));
        }
    }

    fn over(&mut self, now_ns: u64, index: usize) {
        let ask = &self.asks[index];
        if ask.is_write {
            self.tally.writes += 1;
        } else {
            self.tally.multigets += 1;
            self.tally.keys += ask.keys.len() as u64;
            let _ = self.tally.latency.record(now_ns.saturating_sub(ask.intended_ns).max(1));
        }
        self.free.push(index);
    }

    /// Executes the actions of the library's client until none is left.
    fn carry_out(&mut self, io: &mut Io) {
        let now_ns = io.now_ns();
        while let Some(event) = self.client.as_mut().and_then(Client::event) {
            match event {
                Event::Done { user, values } => self.done(now_ns, user as usize, &values),
                Event::Failed { user, failure: _ } => {
                    self.tally.failed += 1;
                    self.over(now_ns, user as usize);
                }
                Event::Fetch { ticket, server, keys, .. } => {
                    let Some(client) = &self.client else { return };
                    // If the operation is over, the values are no longer needed.
                    let bytes: Option<Vec<&[u8]>> =
                        keys.iter().map(|position| client.key(ticket, *position)).collect();
                    let Some(bytes) = bytes else { continue };
                    self.links[server].multiget(
                        io,
                        bytes.into_iter(),
                        Expected::Fetched(ticket, keys),
                    );
                }
            }
        }
        let Some(due_ns) = self.client.as_ref().and_then(Client::due_at_ns) else { return };
        if self.armed_ns.is_none_or(|armed_ns| due_ns < armed_ns) {
            self.armed_ns = Some(due_ns);
            io.set_timer(due_ns, DUE);
        }
    }

    fn done(&mut self, now_ns: u64, index: usize, values: &Values) {
        let (ask, bytes) = (&self.asks[index], self.args.value_bytes as usize);
        let is_right =
            |key: u32, value: Option<&[u8]>| value.is_some_and(|value| is_value(key, bytes, value));
        let wrong =
            ask.keys.iter().zip(values.iter()).filter(|pair| !is_right(*pair.0, pair.1)).count();
        self.count_wrong(wrong as u64);
        self.over(now_ns, index);
    }

    fn count_wrong(&mut self, wrong: u64) {
        self.tally.wrong += wrong;
        self.wrong += wrong;
    }

    /// Handles an answer of a server; an error says why it is invalid.
    fn answer(&mut self, io: &mut Io, link: usize, answer: &[u8]) -> Result<(), String> {
        let server = self.links[link].server;
        let expected =
            self.links[link].expected.pop_front().ok_or("has sent an answer to no request")?;
        if let Some((Value::Error(text), _)) = value(answer) {
            return Err(format!("has answered {}", String::from_utf8_lossy(text)));
        }
        let odd =
            || format!("has answered with another number of values than {server} was asked for");
        match expected {
            Expected::Filled => self.fill(io),
            Expected::Written(index) => self.over(io.now_ns(), index),
            Expected::Part(index, count) => {
                let (_, values) =
                    values(answer).filter(|(found, _)| *found == count).ok_or_else(odd)?;
                self.part(io.now_ns(), link, index, values);
            }
            Expected::Fetched(ticket, keys) => {
                let (_, values) =
                    values(answer).filter(|(found, _)| *found == keys.len()).ok_or_else(odd)?;
                for (position, value) in keys.iter().zip(values) {
                    let value = if let Value::Bulk(value) = value { Some(value) } else { None };
                    self.client
                        .iter_mut()
                        .for_each(|client| client.fetched(ticket, *position, value));
                }
            }
        }
        Ok(())
    }

    fn part<'v>(
        &mut self,
        now_ns: u64,
        link: usize,
        index: usize,
        values: impl Iterator<Item = Value<'v>>,
    ) {
        let bytes = self.args.value_bytes as usize;
        let (ask, positions) = (&mut self.asks[index], &mut self.links[link].positions);
        let mut wrong = 0;
        for value in values {
            let key = positions
                .pop_front()
                .and_then(|position| ask.keys.get(usize::from(position)).copied());
            let is_right = match (value, key) {
                (Value::Bulk(value), Some(key)) => {
                    ask.values.extend_from_slice(value);
                    is_value(key, bytes, value)
                }
                _ => false,
            };
            wrong += u64::from(!is_right);
            ask.left = ask.left.saturating_sub(1);
        }
        let is_over = ask.left == 0;
        self.count_wrong(wrong);
        if is_over {
            self.over(now_ns, index);
        }
    }

    /// Writes further keys; begins the warm-up once all are written.
    fn fill(&mut self, io: &mut Io) {
        let Phase::Filling(mut next) = self.phase else { return };
        while next < self.args.keys {
            let mut key = Vec::with_capacity(usize::from(self.args.key_bytes));
            push_key(next, usize::from(self.args.key_bytes), &mut key);
            let link = &mut self.links[place::server(&key, self.split.len())];
            if link.expected.len() >= FILLING_MAX {
                break;
            }
            write_value(next, &mut self.value);
            link.set(io, &key, &self.value, Expected::Filled);
            next += 1;
        }
        self.phase = Phase::Filling(next);
        if next == self.args.keys && self.links.iter().all(|link| link.expected.is_empty()) {
            self.warm_up(io);
        }
    }

    fn warm_up(&mut self, io: &mut Io) {
        self.phase = Phase::WarmUp;
        let now_ns = io.now_ns();
        self.pace = self.args.rate.map(|rate| Pace::new(rate, now_ns, self.args.seed));
        io.set_timer(now_ns + (self.args.warm_up * 1e9) as u64, PHASE);
    }

    fn sample(&self) -> Sample {
        let counts = self.client.as_ref().map_or(Counts::default(), Client::counts);
        Sample::take(&self.args.pids, self.args.interface.as_deref(), counts)
    }

    /// Ends the warm-up or a round.
    fn next_phase(&mut self, io: &mut Io) {
        let (sample, now_ns) = (self.sample(), io.read_clock_ns());
        let next = match &self.phase {
            Phase::Measuring { round, began_ns, begin } => {
                let mut found = Round::new(
                    *round,
                    now_ns.saturating_sub(*began_ns),
                    &self.tally,
                    begin,
                    &sample,
                );
                if let Some(pace) = &self.pace {
                    (found.shed, found.waiting) = (pace.shed, pace.waiting());
                }
                (self.reader)(&found);
                round + 1
            }
            _ => 0,
        };
        if next == self.args.rounds {
            return io.stop();
        }
        self.tally = Tally::new();
        self.phase = Phase::Measuring { round: next, began_ns: now_ns, begin: Box::new(sample) };
        io.set_timer(now_ns + (self.args.duration * 1e9) as u64, PHASE);
    }

    fn link_of(&self, conn: ConnId) -> Option<usize> {
        self.links.iter().position(|link| link.conn == Some(conn))
    }
}

impl Service for Load {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.links.iter_mut().for_each(|link| _ = link.connect(io));
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _origin: &Accepted) {
        io.abort(conn); // a load generator accepts no connections
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        if let Some(link) = self.link_of(conn) {
            self.links[link].is_up = true;
        }
        if matches!(self.phase, Phase::Connecting) && self.links.iter().all(|link| link.is_up) {
            if self.args.populate {
                self.phase = Phase::Filling(0);
                self.fill(io);
            } else {
                self.warm_up(io);
            }
        }
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Some(link) = self.link_of(conn) else { return data.len() };
        let mut at = 0;
        let why = loop {
            match self.links[link].scanner.find(&data[at..]) {
                Ok(Some(length)) => match self.answer(io, link, &data[at..at + length]) {
                    Ok(()) => at += length,
                    Err(why) => break why,
                },
                Ok(None) => return at,
                Err(error) => break format!("has answered what is not RESP: {error}"),
            }
        };
        let server = self.links[link].server;
        self.fail(io, format!("{server} {why}"));
        data.len()
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        if let Some(link) = self.link_of(conn) {
            let server = self.links[link].server;
            self.fail(
                io,
                format!(
                    "the connection to {server} is gone ({reason:?}): is a server there, and does it take connections?"
                ),
            );
        }
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn datagram(&mut self, io: &mut Io, from: SocketAddr, data: &[u8]) {
        let now_ns = io.now_ns();
        if let Some(client) = &mut self.client {
            client.datagram(now_ns, from, data, &mut |to, data| io.send_datagram(to, data));
        }
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        match key {
            PHASE => self.next_phase(io),
            DUE if self.armed_ns.is_none_or(|armed_ns| armed_ns <= io.now_ns()) => {
                self.armed_ns = None;
                let now_ns = io.now_ns();
                if let Some(client) = &mut self.client {
                    client.look(now_ns, &mut |to, data| io.send_datagram(to, data));
                }
            }
            _ => {}
        }
    }

    fn mail(&mut self, _io: &mut Io, (): ()) {}

    fn turn_ended(&mut self, io: &mut Io) {
        self.carry_out(io);
        self.begin_all(io);
    }
}
