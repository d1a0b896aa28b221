//! A simulated client: it tries, waits for, renews and releases locks through any proxy, one
//! request at a time, and reports the answers to the [`super::witness`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

use shunt_reactor::sim::{MILLISECOND, Random, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::{Answer, Handshake};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, encode, error_code};

use super::statements::{Asked, lock_of, text};
use super::witness::{Belief, Lock, Own, Witness};

const VERSION: u8 = 4;
const CONNECT: u64 = 1;
const ACT: u64 = 2;
/// A fence with which no lock was ever granted.
const NO_FENCE: i64 = 1;
/// The first of the keys of timers that check for answers.
const PATIENCE: u64 = 10;

pub enum ClientMail {
    /// Act without orders from now on, or no longer.
    Act(bool),
    /// Take each of these locks, by rows and in memory, and release them.
    Sweep,
    /// Lose the connection, and the requests with it.
    Leave,
    /// Faults have ended: requests are never given up.
    Peace,
}

#[derive(Clone, Debug)]
struct Sent {
    lock: Lock,
    asked: Asked,
    sent_ns: u64,
    stream: i16,
}

/// One client.
pub struct LockClient {
    number: usize,
    proxies: Vec<SocketAddr>,
    at: usize,
    locks: usize,
    /// True if it gives requests up, loses its connection, and batches.
    rough: bool,
    random: Random,
    witness: Rc<RefCell<Witness>>,
    conn: Option<ConnId>,
    cql: shunt_testing::Client,
    sent: Option<Sent>,
    next_stream: i16,
    acts: bool,
    act_due: bool,
    /// Locks still to take and release.
    sweep: Vec<Lock>,
    /// End of the time in which an abandoned request may still run.
    tainted_until_ns: BTreeMap<Lock, u64>,
    /// End of holds by the proxy's count, which starts at the grant: the client may hold a lock
    /// that it no longer relies on.
    held_until_ns: BTreeMap<Lock, u64>,
    /// The fence of the last hold that it released, or asked to.
    released: BTreeMap<Lock, i64>,
    /// Locks that it certainly does not hold.
    free: BTreeSet<Lock>,
}

impl LockClient {
    pub fn new(
        number: usize,
        proxies: Vec<SocketAddr>,
        locks: usize,
        rough: bool,
        seed: u64,
        witness: Rc<RefCell<Witness>>,
    ) -> LockClient {
        let mut random = Random::new(seed ^ (number as u64 + 1) << 32);
        LockClient {
            number,
            at: random.index(proxies.len()),
            proxies,
            locks,
            rough,
            random,
            witness,
            conn: None,
            cql: unopened(),
            sent: None,
            next_stream: 0,
            acts: true,
            act_due: false,
            sweep: Vec::new(),
            tainted_until_ns: BTreeMap::new(),
            held_until_ns: BTreeMap::new(),
            released: BTreeMap::new(),
            free: BTreeSet::new(),
        }
    }

    /// True if it has nothing to do and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.sent.is_none() && self.sweep.is_empty()
    }

    pub fn show(&self) -> String {
        format!(
            "client {}: at {:?} {:?} sweep {:?}",
            self.number, self.proxies[self.at], self.sent, self.sweep
        )
    }

    /// The time is always the same: an earlier request that runs late must not shorten a hold.
    fn ttl_ms(&self) -> u64 {
        1_000 * (1 + self.number as u64 % 3)
    }

    fn owner(&self) -> String {
        format!("c{}", self.number)
    }

    fn act_later(&mut self, io: &mut Io, after_ns: u64) {
        if !std::mem::replace(&mut self.act_due, true) {
            io.set_timer(io.now_ns() + after_ns, ACT);
        }
    }

    fn act(&mut self, io: &mut Io) {
        self.act_due = false;
        if !self.cql.is_ready() || self.sent.is_some() {
            return;
        }
        if let Some(lock) = self.sweep.last().copied() {
            let asked = match self.witness.borrow().belief(lock, self.number, io.now_ns()) {
                Some(belief) => Asked::Release { fence: belief.fence },
                None => Asked::Acquire { shared: false, ttl_ms: self.ttl_ms() },
            };
            self.ask(io, lock, asked, 0);
        } else if self.acts {
            let lock = self.draw_lock();
            let (asked, wait_ms) = self.draw(io.now_ns(), lock);
            self.ask(io, lock, asked, wait_ms);
        }
    }

    fn draw_lock(&mut self) -> Lock {
        Lock { fast: self.random.chance(0.5), number: self.random.index(self.locks) }
    }

    fn draw(&mut self, now_ns: u64, lock: Lock) -> (Asked, u64) {
        let ttl_ms = self.ttl_ms();
        if self.random.below(20) == 0 {
            return (Asked::Look, 0);
        }
        let holds = self.witness.borrow().belief(lock, self.number, now_ns);
        match (holds, self.random.below(10)) {
            (Some(Belief { fence, .. }), 0..4) => (Asked::Release { fence }, 0),
            (Some(Belief { fence, shared, .. }), 4..7) => {
                (Asked::Renew { shared, ttl_ms, fence }, 0)
            }
            (Some(belief), _) => (Asked::Acquire { shared: belief.shared, ttl_ms }, 0),
            (None, 0) => (Asked::Release { fence: NO_FENCE }, 0),
            (None, 1) if self.rough => {
                let locks: BTreeSet<Lock> =
                    (0..2 + self.random.index(2)).map(|_| self.draw_lock()).collect();
                let locks: Vec<Lock> =
                    locks.into_iter().filter(|other| other.fast == lock.fast).collect();
                match locks.len() {
                    0..2 => (Asked::Acquire { shared: false, ttl_ms }, 0),
                    _ => (Asked::Batch { ttl_ms, locks }, 0),
                }
            }
            (None, _) => {
                let wait_ms = if self.random.chance(0.4) {
                    self.random.below((ttl_ms - 1_000).min(1_500))
                } else {
                    0
                };
                (Asked::Acquire { shared: self.random.chance(0.4), ttl_ms }, wait_ms)
            }
        }
    }

    fn ask(&mut self, io: &mut Io, lock: Lock, asked: Asked, wait_ms: u64) {
        let Some(conn) = self.conn else { return };
        // Shared modes exist on shared locks only; for other locks both kinds of tables work.
        let text = text(lock, &asked, wait_ms, &self.owner(), self.random.chance(0.5));
        self.next_stream = (self.next_stream + 1) % 30_000;
        let stream = self.next_stream;
        if let Asked::Release { fence } = asked {
            // Whatever the outcome, it may not hold the lock by this fence from here on.
            self.witness.borrow_mut().forget(lock, self.number);
            // A release that can release nothing says nothing about an earlier one that is still on
            // its way.
            if fence != NO_FENCE {
                self.released.insert(lock, fence);
            }
        }
        let mut body = Vec::new();
        encode::query_simple(&mut body, VERSION, &text, Consistency::ONE);
        let out = io.output(conn);
        self.cql.push(out, Header::request(VERSION, stream, opcode::QUERY), &body);
        self.cql.finish(out);
        self.sent = Some(Sent { lock, asked, sent_ns: io.now_ns(), stream });
        if self.rough {
            let patience_ns = match self.random.below(20) {
                0 => self.random.below(30 * MILLISECOND),
                1 | 2 if wait_ms > 0 => self.random.below(wait_ms * MILLISECOND),
                _ => 2 * SECOND + self.random.below(3 * SECOND),
            };
            io.set_timer(io.now_ns() + patience_ns, PATIENCE + stream as u64);
        }
    }

    fn answered(&mut self, io: &mut Io, answer: &Answer) {
        let now_ns = io.now_ns();
        let sent = self.sent.take().filter(|sent| sent.stream == answer.stream());
        let Some(sent) = sent else {
            let what =
                format!("client {} was answered what it had not asked: {answer:?}", self.number);
            return self.witness.borrow_mut().violate(now_ns, &what);
        };
        self.witness.borrow_mut().answers += 1;
        match answer.opcode() {
            opcode::ERROR => self.refused(io, &sent, answer),
            _ => self.told(now_ns, &sent, answer),
        }
        let pause_ns = if self.random.chance(0.4) {
            self.random.below(500 * MILLISECOND)
        } else {
            15 * MILLISECOND
        };
        self.act_later(io, MILLISECOND + pause_ns);
    }

    fn refused(&mut self, io: &mut Io, sent: &Sent, answer: &Answer) {
        let (code, text) = answer.error();
        match code {
            error_code::IS_BOOTSTRAPPING => {
                if self.random.chance(0.7) {
                    let after_ns = self.random.below(50 * MILLISECOND);
                    self.reset(io, after_ns);
                }
            }
            // It holds the lock in another mode, by a request that it had given up.
            error_code::INVALID if text.contains("other mode") => {}
            error_code::WRITE_TIMEOUT => {
                self.witness.borrow_mut().in_doubt += 1;
                self.taint(io.now_ns(), sent);
            }
            error_code::READ_TIMEOUT | error_code::OVERLOADED => {}
            _ => self
                .witness
                .borrow_mut()
                .violate(io.now_ns(), &format!("{code:#x} {text}: {sent:?}")),
        }
    }

    /// Marks the locks of a request that may run later, or has.
    fn taint(&mut self, now_ns: u64, sent: &Sent) {
        let locks = match &sent.asked {
            Asked::Look => return,
            Asked::Batch { locks, .. } => locks.clone(),
            _ => vec![sent.lock],
        };
        for lock in locks {
            self.free.remove(&lock);
            self.tainted_until_ns.insert(lock, now_ns + 60 * SECOND);
        }
    }

    fn told(&mut self, now_ns: u64, sent: &Sent, answer: &Answer) {
        let rows = answer.encoded_rows();
        let names: Vec<&str> = rows.metadata.columns().map(|column| column.name).collect();
        let values = answer.rows();
        let get = |row: usize, name: &str| {
            let place = names.iter().position(|known| *known == name)?;
            values.get(row)?.get(place).cloned().flatten()
        };
        let number = |row: usize, name: &str| shunt_testing::number(get(row, name).as_ref());
        if matches!(sent.asked, Asked::Look) {
            return;
        }
        let owner = self.owner().into_bytes();
        for row in 0..values.len() {
            let applied = get(row, "[applied]").is_some_and(|value| value == [1]);
            let lock = get(row, "name").map_or(sent.lock, |text| lock_of(&text));
            let is_own = get(row, "owner").is_some_and(|other| other == owner);
            let fence = number(row, "fence").unwrap_or(0);
            let shared = match (&sent.asked, get(row, "mode")) {
                (_, Some(mode)) => mode == b"S",
                (Asked::Acquire { shared, .. }, None) => *shared,
                _ => false,
            };
            let left_ms = number(row, "ttl_ms").unwrap_or(0).max(0) as u64;
            let own = Own {
                client: self.number,
                lock,
                shared,
                fence,
                is_new: false,
                sent_ns: sent.sent_ns,
                now_ns,
                ttl_ms: left_ms,
            };
            match (&sent.asked, applied, is_own) {
                (Asked::Acquire { ttl_ms, .. } | Asked::Batch { ttl_ms, .. }, true, true) => {
                    self.free.remove(&lock);
                    self.held_until_ns.insert(lock, now_ns + *ttl_ms * MILLISECOND);
                    self.witness.borrow_mut().own(Own { is_new: true, ttl_ms: *ttl_ms, ..own });
                }
                (Asked::Renew { ttl_ms, .. }, true, true) => {
                    self.held_until_ns.insert(lock, now_ns + *ttl_ms * MILLISECOND);
                    self.witness.borrow_mut().own(Own { ttl_ms: *ttl_ms, ..own });
                }
                (Asked::Acquire { .. } | Asked::Batch { .. }, false, true) => {
                    self.check_not_free(now_ns, lock, sent);
                    // A release that was given up may still be on its way.
                    if self.released.get(&lock) != Some(&fence) {
                        self.witness.borrow_mut().own(own);
                    }
                }
                (
                    Asked::Acquire { .. } | Asked::Batch { .. } | Asked::Renew { .. },
                    false,
                    false,
                ) => {
                    self.lost(now_ns, lock, sent, answer);
                }
                (Asked::Release { fence }, _, _) => {
                    if *fence != NO_FENCE {
                        self.is_free(now_ns, lock);
                    }
                    self.sweep.pop_if(|swept| *swept == lock);
                }
                (asked, ..) => {
                    let what = format!("{asked:?} was answered by {:?}: {sent:?}", answer.rows());
                    self.witness.borrow_mut().violate(now_ns, &what);
                }
            }
        }
        if let Asked::Batch { locks, .. } = &sent.asked
            && get(0, "[applied]").is_none_or(|value| value != [1])
        {
            // The client holds none of those that it did not hold before.
            for lock in locks.clone() {
                let may_hold =
                    self.held_until_ns.get(&lock).is_some_and(|until_ns| *until_ns >= now_ns);
                if !may_hold && self.witness.borrow().belief(lock, self.number, now_ns).is_none() {
                    self.is_free(now_ns, lock);
                }
            }
        }
    }

    /// Notes that it does not hold a lock, and that no pending request can change that.
    fn is_free(&mut self, now_ns: u64, lock: Lock) {
        if self.tainted_until_ns.get(&lock).is_none_or(|until_ns| *until_ns < now_ns) {
            self.free.insert(lock);
        }
    }

    fn check_not_free(&mut self, now_ns: u64, lock: Lock, sent: &Sent) {
        // The release of a durable lock may be forgotten when its proxy dies: then its time has to
        // expire. And if clocks are too far apart two proxies may keep a lock at the same time, and
        // one of them does not hear of the release.
        if self.free.remove(&lock) && lock.fast && self.witness.borrow().exclusion {
            let what =
                format!("client {} holds what it had released or never got: {sent:?}", self.number);
            self.witness.borrow_mut().violate(now_ns, &what);
        }
    }

    /// Handles a refused grant or renewal.
    fn lost(&mut self, now_ns: u64, lock: Lock, sent: &Sent, answer: &Answer) {
        let mut witness = self.witness.borrow_mut();
        // Locks in memory are forgotten with their proxy, and granted to nobody before their time.
        if let Some(belief) =
            witness.belief(lock, self.number, now_ns).filter(|_| witness.exclusion && !lock.fast)
        {
            let what =
                format!("client {} lost {belief:?}: {sent:?} {:?}", self.number, answer.rows());
            witness.violate(now_ns, &what);
        }
        drop(witness);
        self.is_free(now_ns, lock);
    }

    /// Handles a lost connection: the outcome of its requests is unknown.
    fn reset(&mut self, io: &mut Io, after_ns: u64) {
        if let Some(conn) = self.conn.take() {
            io.abort(conn);
        }
        self.cql = unopened();
        if let Some(sent) = self.sent.take() {
            self.taint(io.now_ns(), &sent);
        }
        if self.proxies.len() > 1 && self.random.chance(0.8) {
            self.at =
                (self.at + 1 + self.random.index(self.proxies.len() - 1)) % self.proxies.len();
        }
        io.set_timer(io.now_ns() + MILLISECOND + after_ns, CONNECT);
    }
}

fn unopened() -> shunt_testing::Client {
    shunt_testing::Client::new(Handshake::new(VERSION))
}

impl Service for LockClient {
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
            key => {
                let stream = (key - PATIENCE) as i16;
                if self.rough && self.sent.as_ref().is_some_and(|sent| sent.stream == stream) {
                    self.reset(io, 0);
                }
            }
        }
    }

    fn mail(&mut self, io: &mut Io, mail: ClientMail) {
        match mail {
            ClientMail::Act(acts) => self.acts = acts,
            ClientMail::Sweep => {
                let both = |number| [false, true].map(|fast| Lock { fast, number });
                self.sweep = (0..self.locks).flat_map(both).collect();
            }
            ClientMail::Leave => self.reset(io, 0),
            ClientMail::Peace => self.rough = false,
        }
        self.act_later(io, MILLISECOND);
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}
