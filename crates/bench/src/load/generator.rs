//! The state and the phases of a load's run. The work per query is in [`traffic`](super::traffic).

use hdrhistogram::Histogram;
use shunt_reactor::Io;

use crate::{
    load::{
        arrivals::Queues,
        growth::Growth,
        keys::Keys,
        mix::{Mix, Operation},
        options::LoadOptions,
        pace::Pace,
        result::{LoadCounts, OperationLatency, Round, new_histogram},
        ring::RingView,
        routes::Routes,
        session::{Session, SessionRest, Slot, Step},
        template::{Shape, Statement, Template},
        timers::{TIMER_PHASE, TIMER_STALL},
    },
    random::Random,
};

/// Phase of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Connections are being made.
    Connecting,
    /// Each key is being written once.
    Populating,
    /// Load that is not measured yet.
    WarmUp,
    /// This round is being measured.
    Round(u32),
    /// No more queries are sent; the last answers are outstanding.
    Draining,
    /// The run is over.
    Done,
}

/// A moment that the observer learns of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mark {
    /// The connections are ready and nothing was sent yet.
    Ready,
    /// A round begins.
    RoundStart(u32),
    /// A round ends.
    RoundEnd(u32),
}

/// Time after which missing answers are given up. Proxies and nodes have deadlines, so an answer
/// would have come by then.
const DRAIN_NS: u64 = 15_000_000_000;
/// Time without any answer after which the run fails.
const STALL_NS: u64 = 10_000_000_000;
/// Errors allowed while all keys are written, besides one for each key. Each is followed by another
/// attempt.
const POPULATING_ERRORS: u64 = 1000;
/// Time after which missing connections are given up.
const CONNECTING_NS: u64 = 60_000_000_000;

type RoundReader = Box<dyn FnMut(&Round)>;

pub(super) struct Generator {
    pub(super) options: LoadOptions,
    pub(super) phase: Phase,
    pub(super) counts: LoadCounts,
    pub(super) rounds: Vec<Round>,
    pub(super) failure: Option<String>,
    pub(super) shape: Shape,
    /// Statements to prepare, in this order.
    pub(super) prepares: Vec<Statement>,
    /// Ids and EXECUTE bodies of the statements, by [`Statement::index`].
    pub(super) statements: Vec<Option<(Vec<u8>, Template)>>,
    /// True once the table exists and the ring is known as far as needed.
    pub(super) gate_open: bool,
    /// True if connections may be waiting for the gate.
    pub(super) gate_opens: bool,
    /// The part of the ring read so far.
    pub(super) ring: RingView,
    /// Nodes of the keys, if the load is token-aware.
    pub(super) routes: Option<Routes>,
    /// Buffer for the body of a request.
    pub(super) body: Vec<u8>,
    observer: Box<dyn FnMut(Mark)>,
    /// Called with each round when the round is over.
    pub(super) reader: Option<RoundReader>,
    pub(super) keys: Keys,
    pub(super) growth: Growth,
    pub(super) mix: Mix,
    /// Last known balance of the account of each stream id (transfers by lightweight transactions).
    pub(super) balances: Vec<i32>,
    /// By stream id, true if the client was told that it holds its account as a lock.
    pub(super) holds: Vec<bool>,
    /// Share of reads, if all other operations are updates of one column and any connection will
    /// do.
    pub(super) plain_reads: Option<f64>,
    pub(super) random: Random,
    pub(super) pace: Option<Pace>,
    pub(super) armed_ns: u64,
    pub(super) queues: Queues,
    unfinished: Vec<u32>,
    fresh: Vec<u32>,
    ready: u32,
    pub(super) in_flight: u64,
    pub(super) populated: u64,
    /// Keys that still have to be written, because the write failed or had no answer.
    pub(super) unwritten: Vec<u64>,
    started_ns: u64,
    /// Begin of the warm-up.
    load_began_ns: u64,
    round_from: (u64, LoadCounts, u64),
    /// The last round, and the counts at its end, while its last answers are outstanding.
    closing: Option<(Round, LoadCounts)>,
    /// Latencies count for queries from this time on. In a closed loop, queries in flight while the
    /// observer worked are left out. In an open loop, a query that was due in one round and is
    /// answered in the next counts in the next, and a query that was due in the last round counts
    /// in the last: leaving out slow ones would be coordinated omission.
    pub(super) measured_from_ns: u64,
    /// By [`Operation`].
    pub(super) latencies: [Histogram<u64>; Operation::COUNT],
    answered_at_last_look: u64,
    /// Times at which the timers of phase and stall are due. Earlier timers are left over from
    /// another load on the same loop.
    phase_ends_ns: u64,
    /// True if the round's time starts with the next turn.
    round_begins: bool,
    look_due_ns: u64,
}

impl Generator {
    pub(super) fn new(options: LoadOptions, observer: Box<dyn FnMut(Mark)>) -> Self {
        let mix = options.mix();
        let prepares = prepares(&options, &mix);
        let plain = mix.is_plain()
            && options.columns == 1
            && !options.token_aware
            && options.locks.is_none();
        let in_flight = options.connections as usize * options.outstanding as usize;
        Self {
            shape: options.shape(),
            statements: vec![
                None;
                prepares
                    .iter()
                    .map(|statement| statement.index() + 1)
                    .max()
                    .unwrap_or(0)
            ],
            prepares,
            gate_open: options.create.is_none() && !options.token_aware,
            gate_opens: false,
            ring: RingView::default(),
            routes: None,
            growth: Growth::new(options.keys, in_flight),
            plain_reads: plain.then(|| mix.share(Operation::Read)),
            mix,
            holds: vec![false; if options.transfers.is_some() { in_flight } else { 0 }],
            balances: vec![0; if options.transfers.is_some() { in_flight } else { 0 }],
            queues: Queues::new(options.targets.len()),
            keys: Keys::new(options.keys, options.distribution),
            random: Random::new(options.seed),
            options,
            phase: Phase::Connecting,
            counts: LoadCounts::default(),
            rounds: Vec::new(),
            failure: None,
            body: Vec::new(),
            observer,
            reader: None,
            pace: None,
            armed_ns: 0,
            unfinished: Vec::new(),
            fresh: Vec::new(),
            ready: 0,
            in_flight: 0,
            populated: 0,
            unwritten: Vec::new(),
            started_ns: 0,
            load_began_ns: 0,
            round_from: (0, LoadCounts::default(), 0),
            closing: None,
            measured_from_ns: u64::MAX,
            latencies: [(); Operation::COUNT].map(|()| new_histogram()),
            answered_at_last_look: 0,
            phase_ends_ns: 0,
            round_begins: false,
            look_due_ns: 0,
        }
    }

    pub(super) fn started(&mut self, io: &mut Io) {
        self.started_ns = io.now_ns();
        self.look_again(io);
    }

    pub(super) fn fail(&mut self, io: &mut Io, why: String) {
        self.failure.get_or_insert(why);
        self.finish(io);
    }

    fn finish(&mut self, io: &mut Io) {
        if let Some((mut round, at_its_end)) = self.closing.take() {
            round.counts.add_faults(&self.counts.since(&at_its_end));
            round.counts.queries_lost += self.in_flight;
            self.report(round);
        }
        self.phase = Phase::Done;
        if self.options.stops_loop {
            io.stop();
        }
    }

    pub(super) fn note_unfinished(&mut self, rest: &mut SessionRest) {
        if rest.output.is_segmented() && !rest.unfinished {
            rest.unfinished = true;
            self.unfinished.push(rest.index as u32);
        }
    }

    pub(super) fn session_ready(&mut self, rest: &SessionRest) {
        self.ready += 1;
        self.fresh.push(rest.index as u32);
    }

    /// Handles the loss of a ready connection, with the queries in its slots.
    pub(super) fn session_lost(&mut self, slots: &[Slot]) {
        let mut in_flight = 0;
        for slot in slots.iter().filter(|slot| slot.intended_ns != 0) {
            in_flight += 1;
            if slot.operation == Operation::Insert {
                self.growth.failed(slot.key);
            }
            if self.phase == Phase::Populating {
                self.unwritten.push(slot.key);
            }
        }
        self.ready -= 1;
        self.in_flight -= in_flight;
        self.counts.connections_lost += 1;
        self.counts.queries_lost += in_flight;
    }

    pub(super) fn turn_ended(&mut self, io: &mut Io, sessions: &mut [Session]) {
        if self.phase == Phase::Connecting {
            self.while_connecting(io, sessions);
        } else if !self.fresh.is_empty() {
            self.start_fresh(io, sessions);
        }
        self.next_phase_if_over(io, sessions);
        self.keys.passed(io.now_ns().saturating_sub(self.load_began_ns));
        self.send_arrivals(io, sessions);
        while let Some(index) = self.unfinished.pop() {
            if let Some(session) = sessions.get_mut(index as usize) {
                session.rest.unfinished = false;
                session.rest.output.finish(io.output(session.rest.conn));
            }
        }
    }

    fn while_connecting(&mut self, io: &mut Io, sessions: &mut [Session]) {
        if std::mem::take(&mut self.gate_opens) {
            for session in sessions.iter_mut().filter(|session| session.rest.step == Step::Gate) {
                self.start_preparing(io, &mut session.rest);
            }
        }
        if self.ready == self.options.connections {
            (self.observer)(Mark::Ready);
            self.enter(io, if self.options.populate { Phase::Populating } else { Phase::WarmUp });
            self.start_fresh(io, sessions);
        }
    }

    /// Starts the stream ids of connections that have just become ready.
    fn start_fresh(&mut self, io: &mut Io, sessions: &mut [Session]) {
        if self.options.idle {
            self.fresh.clear();
            return;
        }
        let now_ns = io.now_ns();
        // Stream by stream instead of connection by connection, so that few queries spread over all
        // connections.
        for stream in 0..self.options.outstanding {
            for position in 0..self.fresh.len() {
                let rest = &mut sessions[self.fresh[position] as usize].rest;
                if rest.step == Step::Ready {
                    self.send_next(io, rest, stream as u16, now_ns);
                }
            }
        }
        self.fresh.clear();
    }

    fn next_phase_if_over(&mut self, io: &mut Io, sessions: &mut [Session]) {
        match self.phase {
            Phase::Populating
                if self.counts.errors_total() > self.options.keys + POPULATING_ERRORS =>
            {
                self.fail(io, "too many errors while the keys were written".into());
            }
            Phase::Populating if self.is_populated() => {
                self.fresh = (0..sessions.len() as u32).collect();
                self.enter(io, Phase::WarmUp);
                self.start_fresh(io, sessions);
            }
            Phase::Draining if self.in_flight == 0 => self.finish(io),
            _ => {}
        }
    }

    fn is_populated(&self) -> bool {
        self.populated == self.options.keys && self.unwritten.is_empty() && self.in_flight == 0
    }

    fn enter(&mut self, io: &mut Io, phase: Phase) {
        self.phase = phase;
        let now_ns = io.now_ns();
        let lasts_ns = match phase {
            Phase::WarmUp => {
                self.load_began_ns = now_ns;
                let seed = self.options.seed.wrapping_add(1);
                self.pace = self.options.rate.map(|rate| Pace::new(rate, now_ns, seed));
                self.options.warm_up_ns
            }
            Phase::Round(number) => {
                (self.observer)(Mark::RoundStart(number));
                for latency in self.latencies.iter_mut().filter(|latency| !latency.is_empty()) {
                    latency.reset();
                }
                self.count_arrivals();
                self.round_from = (now_ns, self.counts.clone(), io.counters().turns);
                // The observer's work took time that the clock of this turn does not include.
                self.round_begins = true;
                0
            }
            Phase::Draining => DRAIN_NS,
            _ => return,
        };
        self.phase_ends_ns = now_ns + lasts_ns;
        io.set_timer(self.phase_ends_ns, TIMER_PHASE);
    }

    pub(super) fn phase_timer(&mut self, io: &mut Io) {
        if io.now_ns() < self.phase_ends_ns {
            return;
        }
        if std::mem::take(&mut self.round_begins) {
            self.round_from.0 = io.now_ns();
            if self.pace.is_none() || self.measured_from_ns == u64::MAX {
                self.measured_from_ns = io.now_ns();
            }
            self.phase_ends_ns = io.now_ns() + self.options.duration_ns;
            io.set_timer(self.phase_ends_ns, TIMER_PHASE);
            return;
        }
        match self.phase {
            Phase::WarmUp => self.enter(io, Phase::Round(0)),
            Phase::Round(number) => {
                let round = self.close_round(io, number);
                if number + 1 < self.options.rounds {
                    self.report(round);
                    self.enter(io, Phase::Round(number + 1));
                } else {
                    self.closing = Some((round, self.counts.clone()));
                    self.enter(io, Phase::Draining);
                }
            }
            Phase::Draining => self.finish(io),
            _ => {}
        }
    }

    /// Ends a round; its latencies may still change.
    fn close_round(&mut self, io: &mut Io, number: u32) -> Round {
        (self.observer)(Mark::RoundEnd(number));
        if self.pace.is_none() {
            self.measured_from_ns = u64::MAX;
        }
        self.count_arrivals();
        let (start_ns, counts, turns) = &self.round_from;
        let (wall_ns, turns) = (io.now_ns() - start_ns, io.counters().turns - turns);
        let counts = self.counts.since(counts);
        Round {
            number,
            wall_ns,
            counts,
            latency: new_histogram(),
            turns,
            applied_so_far: 0,
            in_doubt_so_far: 0,
        }
    }

    /// Reports a round with the latencies recorded up to now.
    fn report(&mut self, mut round: Round) {
        let operations: Vec<_> = match (self.options.transfers, self.options.locks) {
            (Some(_), _) => vec![Operation::Transfer],
            (None, Some(_)) => vec![Operation::Acquire, Operation::Release],
            (None, None) => self.mix.operations().collect(),
        };
        for operation in operations {
            let own = &self.latencies[operation as usize];
            round.latency += own;
            round.counts.operations.push(OperationLatency { operation, latency: own.clone() });
        }
        if round.counts.operations.len() < 2 {
            round.counts.operations.clear();
        }
        round.applied_so_far = self.counts.applied;
        round.in_doubt_so_far = self.counts.errors_total() + self.counts.queries_lost;
        if let Some(reader) = &mut self.reader {
            reader(&round);
        }
        self.rounds.push(round);
    }

    fn count_arrivals(&mut self) {
        if let Some(pace) = &self.pace {
            self.counts.shed = pace.shed;
            self.counts.waiting = (pace.waiting() + self.queues.held_total) as u64;
        }
    }

    fn look_again(&mut self, io: &mut Io) {
        self.look_due_ns = io.now_ns() + STALL_NS;
        io.set_timer(self.look_due_ns, TIMER_STALL);
    }

    /// Checks for progress from time to time.
    pub(super) fn stall_timer(&mut self, io: &mut Io) {
        if io.now_ns() < self.look_due_ns || self.phase == Phase::Done {
            return;
        }
        let still = self.counts.answered == self.answered_at_last_look && !self.options.idle;
        if still && matches!(self.phase, Phase::Populating | Phase::WarmUp | Phase::Round(_)) {
            let waited_for = self.in_flight;
            self.fail(io, format!("no answer for 10 s ({waited_for} queries in flight)"));
            return;
        }
        if self.phase == Phase::Connecting && io.now_ns() - self.started_ns > CONNECTING_NS {
            self.fail(io, "connecting took more than a minute".into());
            return;
        }
        self.answered_at_last_look = self.counts.answered;
        self.look_again(io);
    }
}

/// Returns the statements that a load needs, in the order in which they are prepared.
fn prepares(options: &LoadOptions, mix: &Mix) -> Vec<Statement> {
    if options.transfers.is_some() {
        return vec![Statement::TRANSFER];
    }
    if options.locks.is_some() {
        return vec![Statement::ACQUIRE, Statement::RELEASE];
    }
    let mut statements = vec![Statement::INSERT, Statement::SELECT];
    for (operation, statement) in
        [(Operation::Scan, Statement::SCAN), (Operation::Multiget, Statement::MULTIGET)]
    {
        if mix.share(operation) > 0.0 {
            statements.push(statement);
        }
    }
    if options.columns > 1
        && mix.share(Operation::Update) + mix.share(Operation::ReadModifyWrite) > 0.0
    {
        statements.extend((0..options.columns).map(Statement::update_of));
    }
    statements
}
