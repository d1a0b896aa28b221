//! A simulated client: it asks for transactions through any proxy, several at a time, as texts and
//! prepared, and reports the answers to the [`super::history`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use shunt_reactor::sim::{MILLISECOND, Random, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::{Answer, Handshake, number};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, QueryParams, Value, ValueList, encode, error_code};

use super::super::client::ClientMail;
use super::super::witness::Witness;
use super::history::{Ending, Found, History};
use super::spec::{KEYSPACES, RowOf, Spec};

const CONNECT: u64 = 1;
const ACT: u64 = 2;
/// The first of the keys of timers that check for answers.
const PATIENCE: u64 = 10;
const PAYLOAD: &str = "shunt-applied";

/// Settings of all clients of a run.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// True if they give requests up, and lose their connections.
    pub rough: bool,
    /// True if they ask only for shifts.
    pub shifts_only: bool,
    /// True if they ask only for leases.
    pub leases_only: bool,
    /// True if the rates of proxies' clocks differ by much, so that one's writes may be in
    /// another's future.
    pub wrong_clocks: bool,
}

#[derive(Clone, Copy, Debug)]
enum Look {
    Keyspace(usize),
    Lease(RowOf),
}

/// One client.
pub struct Transactor {
    number: usize,
    proxies: Vec<SocketAddr>,
    at: usize,
    version: u8,
    kind: Kind,
    /// Bound on its requests at a time.
    most: usize,
    /// Approximate pause between two of them.
    pause_ns: u64,
    random: Random,
    history: Rc<RefCell<History>>,
    witness: Rc<RefCell<Witness>>,
    conn: Option<ConnId>,
    cql: shunt_testing::Client,
    /// Texts that it prepares on its connections; empty if it prepares nothing.
    texts: Vec<String>,
    /// Numbers of its requests, by stream.
    asked: BTreeMap<i16, i64>,
    next_stream: i16,
    acts: bool,
    act_due: bool,
    /// Pending reads: all of a keyspace, or a lease.
    looks: Vec<Look>,
    /// Leases as it has last seen them.
    leases: BTreeMap<RowOf, Found>,
    /// Number of prepared requests.
    pub executed: u64,
}

impl Transactor {
    pub fn new(
        number: usize,
        proxies: Vec<SocketAddr>,
        kind: Kind,
        seed: u64,
        history: Rc<RefCell<History>>,
        witness: Rc<RefCell<Witness>>,
    ) -> Transactor {
        let mut random = Random::new(seed ^ (number as u64 + 1) << 24);
        let version = if random.below(4) == 0 { 3 } else { 4 };
        let mut client = Transactor {
            number,
            at: random.index(proxies.len()),
            proxies,
            version,
            kind,
            most: 1 + random.index(4),
            pause_ns: (1 + random.below(30)) * MILLISECOND,
            texts: match random.chance(0.7) {
                // Nodes of the simulation speak only version 4.
                true if version == 4 => [Spec::prepared(), Spec::prepared_of_leases()].concat(),
                true => Spec::prepared(),
                false => Vec::new(),
            },
            random,
            history,
            witness,
            conn: None,
            cql: shunt_testing::Client::new(Handshake::new(version)),
            asked: BTreeMap::new(),
            next_stream: 0,
            acts: true,
            act_due: false,
            looks: Vec::new(),
            leases: BTreeMap::new(),
            executed: 0,
        };
        client.cql = client.unopened();
        client
    }

    /// True if it has nothing to do and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.looks.is_empty()
    }

    pub fn show(&self) -> String {
        let Transactor { number, asked, looks, .. } = self;
        format!(
            "transactor {number}: at {:?} {:?} {asked:?} looks {looks:?}",
            self.proxies[self.at],
            self.cql.step()
        )
    }

    fn unopened(&self) -> shunt_testing::Client {
        shunt_testing::Client::new(Handshake {
            statements: self.texts.clone(),
            ..Handshake::new(self.version)
        })
    }

    fn violate(&self, now_ns: u64, what: &str) {
        self.witness.borrow_mut().violate(now_ns, what);
    }

    fn act_later(&mut self, io: &mut Io, after_ns: u64) {
        if !std::mem::replace(&mut self.act_due, true) {
            io.set_timer(io.now_ns() + after_ns, ACT);
        }
    }

    fn act(&mut self, io: &mut Io) {
        self.act_due = false;
        if !self.cql.is_ready() {
            return;
        }
        if let Some(look) = self.looks.last().copied() {
            if self.asked.is_empty() {
                let spec = match look {
                    Look::Keyspace(keyspace) => {
                        Spec { reads: RowOf::all(keyspace).collect(), ..Spec::empty(keyspace) }
                    }
                    // This version does not exist: the answer has the present one.
                    Look::Lease(lease) => {
                        Spec::lease(lease, Found { version: -1, writer: -1, value: -1 }, Some(0))
                    }
                };
                self.ask(io, spec);
            }
            return;
        }
        if self.acts {
            if self.asked.len() < self.most {
                let is_lease =
                    self.kind.leases_only || !self.kind.shifts_only && self.random.chance(0.3);
                let mut spec = match is_lease {
                    true => self.lease(),
                    false => Spec::drawn(&mut self.random, self.kind.shifts_only),
                };
                // Version 3 does not say whether it has written.
                spec.returns |= self.version < 4 && !spec.conditions.is_empty();
                spec.returns |= spec.is_plain();
                self.ask(io, spec);
            }
            let pause_ns = if self.random.chance(0.1) { 10 * self.pause_ns } else { self.pause_ns };
            let after_ns = MILLISECOND + self.random.below(pause_ns);
            self.act_later(io, after_ns);
        }
    }

    fn lease(&mut self) -> Spec {
        let leases: Vec<RowOf> = RowOf::leases().collect();
        let lease = leases[self.random.index(leases.len())];
        let first = Found { version: 0, writer: 0, value: lease.value_at_first() };
        let known = self.leases.get(&lease).copied().unwrap_or(first);
        let holder = self.random.chance(0.5).then(|| self.random.below(1_000) as i64);
        Spec::lease(lease, known, holder)
    }

    fn ask(&mut self, io: &mut Io, spec: Spec) {
        let Some(conn) = self.conn else { return };
        let writer = self.history.borrow_mut().ask(io.now_ns(), spec.clone());
        let has_markers = self.random.chance(0.8);
        let (text, values) = spec.text(writer, has_markers);
        let place = self.texts.iter().position(|prepared| *prepared == text);
        let statement = place.and_then(|place| self.cql.statements().get(place));
        let mut list = ValueList::positional(self.version);
        for value in &values {
            list.push(Value::Bytes(value));
        }
        let params =
            QueryParams { values: list.values(), ..QueryParams::simple(Consistency::QUORUM) };
        let mut body = Vec::new();
        let op = match statement {
            Some(statement) => {
                encode::execute(&mut body, self.version, &statement.id, None, &params);
                self.executed += 1;
                opcode::EXECUTE
            }
            None => {
                encode::query(&mut body, self.version, &text, &params);
                opcode::QUERY
            }
        };
        self.next_stream = (self.next_stream + 1) % 30_000;
        let stream = self.next_stream;
        let out = io.output(conn);
        self.cql.push(out, Header::request(self.version, stream, op), &body);
        self.cql.finish(out);
        self.asked.insert(stream, writer);
        if self.kind.rough {
            let patience_ns = match self.random.below(60) {
                0 => self.random.below(20 * MILLISECOND),
                _ => 1_500 * MILLISECOND + self.random.below(3 * SECOND),
            };
            io.set_timer(io.now_ns() + patience_ns, PATIENCE + stream as u64);
        }
    }

    fn answered(&mut self, io: &mut Io, answer: &Answer) {
        let now_ns = io.now_ns();
        let Some(writer) = self.asked.remove(&answer.stream()) else {
            let what = format!(
                "transactor {} was answered what it had not asked: {answer:?}",
                self.number
            );
            return self.violate(now_ns, &what);
        };
        self.witness.borrow_mut().answers += 1;
        let ending = match answer.opcode() {
            opcode::ERROR => self.refused(io, writer, answer),
            _ => self.done(writer, answer),
        };
        let is_done = matches!(ending, Ending::Done { .. });
        self.learn(writer, &ending);
        let wrong = self.history.borrow_mut().end(writer, now_ns, ending);
        if let Some(wrong) = wrong {
            self.violate(now_ns, &wrong);
        }
        if is_done {
            self.looks.pop();
        }
        let after_ns = if is_done { MILLISECOND } else { 20 * MILLISECOND };
        self.act_later(io, after_ns);
    }

    /// Notes a lease from an answer: a client relies on the last one.
    fn learn(&mut self, writer: i64, ending: &Ending) {
        let history = self.history.borrow();
        let spec = &history.of(writer).spec;
        let (Some(expects), Some(value), Some((lease, _))) =
            (spec.expects, spec.holder(), spec.writes.first())
        else {
            return;
        };
        if let Ending::Done { found, applied } = ending {
            let now = Found { version: expects.version + 1, writer, value };
            self.leases.insert(*lease, if *applied == Some(true) { now } else { found[0] });
        }
    }

    fn refused(&mut self, io: &mut Io, writer: i64, answer: &Answer) -> Ending {
        let (code, text) = answer.error();
        match code {
            error_code::WRITE_TIMEOUT => Ending::InDoubt,
            error_code::OVERLOADED => Ending::NotDone,
            error_code::INVALID
                if self.kind.wrong_clocks && text.contains("which is in the future") =>
            {
                Ending::NotDone
            }
            error_code::IS_BOOTSTRAPPING => {
                if self.random.chance(0.5) {
                    // Its other requests are in doubt then.
                    io.set_timer(io.now_ns() + MILLISECOND, PATIENCE - 1);
                }
                Ending::NotDone
            }
            _ => {
                let what = format!("{code:#x} {text}: {:?}", self.history.borrow().of(writer));
                self.violate(io.now_ns(), &what);
                Ending::InDoubt
            }
        }
    }

    fn done(&self, writer: i64, answer: &Answer) -> Ending {
        let history = self.history.borrow();
        let spec = &history.of(writer).spec;
        let payload = answer.prefix().custom_payload;
        let applied =
            payload.and_then(|payload| payload.iter().find(|(key, _)| *key == PAYLOAD)?.1);
        let applied = applied.map(|value| value == [1]);
        let rows = answer.rows();
        if let Some(expects) = spec.expects {
            let row = &rows[0];
            let is_applied = row[0].as_deref() == Some(&[1]);
            let found = match is_applied {
                true => expects,
                false => {
                    let [version, writer, value] =
                        [1, 2, 3].map(|place| number(row[place].as_ref()).unwrap_or(i64::MIN));
                    Found { version, writer, value }
                }
            };
            return Ending::Done { found: vec![found], applied: Some(is_applied) };
        }
        let value = |place: usize| number(rows.first().and_then(|row| row.get(place)?.as_ref()));
        let found = (0..spec.reads.len()).filter(|_| spec.returns).map(|read| {
            let places =
                if spec.is_plain() { [1, 2, 0] } else { [3 * read, 3 * read + 1, 3 * read + 2] };
            let [version, writer, value] = places.map(|place| value(place).unwrap_or(i64::MIN));
            Found { version, writer, value }
        });
        Ending::Done { found: found.collect(), applied }
    }

    /// Handles a lost connection: the outcome of its requests is unknown.
    fn reset(&mut self, io: &mut Io, after_ns: u64) {
        if let Some(conn) = self.conn.take() {
            io.abort(conn);
        }
        self.cql = self.unopened();
        for writer in std::mem::take(&mut self.asked).into_values() {
            let wrong = self.history.borrow_mut().end(writer, io.now_ns(), Ending::InDoubt);
            if let Some(wrong) = wrong {
                self.violate(io.now_ns(), &wrong);
            }
        }
        if self.proxies.len() > 1 && self.random.chance(0.8) {
            self.at =
                (self.at + 1 + self.random.index(self.proxies.len() - 1)) % self.proxies.len();
        }
        io.set_timer(io.now_ns() + MILLISECOND + after_ns, CONNECT);
    }
}

impl Service for Transactor {
    type Mail = ClientMail;

    fn started(&mut self, io: &mut Io) {
        io.set_timer(io.now_ns() + self.random.below(100 * MILLISECOND), CONNECT);
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {
        unreachable!("clients do not listen");
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.cql.start(io.output(conn));
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut out = Vec::new();
        let used = self.cql.receive(data, &mut out).expect("what a proxy sends is well-formed");
        io.output(conn).extend_from_slice(&out);
        if self.cql.refusal().is_some() {
            self.reset(io, 200 * MILLISECOND);
            return used;
        }
        if self.cql.is_ready() {
            self.act_later(io, MILLISECOND);
        }
        while self.conn == Some(conn)
            && let Some(answer) = self.cql.next_answer()
        {
            self.answered(io, &answer);
        }
        used
    }

    fn closed(&mut self, io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        self.conn = None;
        let after_ns = self.random.below(300 * MILLISECOND);
        self.reset(io, after_ns);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, key: u64) {
        match key {
            CONNECT => {
                if self.conn.is_none() {
                    self.conn = Some(io.connect(self.proxies[self.at], SECOND));
                }
            }
            ACT => self.act(io),
            key if key == PATIENCE - 1 => self.reset(io, 10 * MILLISECOND),
            key => {
                if self.kind.rough && self.asked.contains_key(&((key - PATIENCE) as i16)) {
                    self.reset(io, 0);
                }
            }
        }
    }

    fn mail(&mut self, io: &mut Io, mail: ClientMail) {
        match mail {
            ClientMail::Act(acts) => self.acts = acts,
            ClientMail::Sweep => {
                let leases = RowOf::leases().map(Look::Lease);
                self.looks = (0..KEYSPACES.len()).map(Look::Keyspace).chain(leases).collect();
            }
            ClientMail::Leave => self.reset(io, 0),
            ClientMail::Peace => self.kind.rough = false,
        }
        self.act_later(io, MILLISECOND);
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}
