//! The run of a load: its state and its phases. What happens per query is in
//! [`traffic`](super::traffic).

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

/// Where a run is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Connections are being made.
    Connecting,
    /// Every key is being written once.
    Populating,
    /// Load, not measured yet.
    WarmUp,
    /// This round is being measured.
    Round(u32),
    /// No more queries; the last answers are waited for.
    Draining,
    /// Over.
    Done,
}

/// A moment that the observer is told of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mark {
    /// All connections are ready; nothing was sent yet.
    Ready,
    /// A round begins.
    RoundStart(u32),
    /// A round ends.
    RoundEnd(u32),
}

/// Answers still missing after this time are given up: proxies and nodes have deadlines, and would
/// have answered.
const DRAIN_NS: u64 = 15_000_000_000;
/// Without any answer for this long the run has failed.
const STALL_NS: u64 = 10_000_000_000;
/// While the keys are written an error is followed by another attempt, up to one for each key and
/// so many more.
const POPULATING_ERRORS: u64 = 1000;
/// Connections still missing after this time will not come.
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
    /// Id and EXECUTE of the statements, by [`Statement::index`].
    pub(super) statements: Vec<Option<(Vec<u8>, Template)>>,
    /// The table is there and the ring is known, as far as wanted.
    pub(super) gate_open: bool,
    /// Connections may be waiting for that.
    pub(super) gate_opens: bool,
    /// The ring as it is being read.
    pub(super) ring: RingView,
    /// Token-aware: where keys belong.
    pub(super) routes: Option<Routes>,
    /// Body of a request being made.
    pub(super) body: Vec<u8>,
    observer: Box<dyn FnMut(Mark)>,
    /// Told of each round when it is over.
    pub(super) reader: Option<RoundReader>,
    pub(super) keys: Keys,
    pub(super) growth: Growth,
    pub(super) mix: Mix,
    /// By stream id, what its account was last heard to have (transfers by lightweight
    /// transactions).
    pub(super) balances: Vec<i32>,
    /// Likewise, that its account is a lock which it was told to hold.
    pub(super) holds: Vec<bool>,
    /// Share of reads, if all else are updates of one column and any connection will do.
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
    /// Keys that are still to be written: the answer was an error, or there was none.
    pub(super) unwritten: Vec<u64>,
    started_ns: u64,
    /// When the warm-up began.
    load_began_ns: u64,
    round_from: (u64, LoadCounts, u64),
    /// The last round, and the counts at its end, while its last answers are waited for.
    closing: Option<(Round, LoadCounts)>,
    /// Latencies count for queries from here on. In a closed loop those in flight while the
    /// observer worked are left out; in an open one a query that was due in one round and is
    /// answered in the next counts there, and what was due in the last counts in the last: leaving
    /// slow ones out would be coordinated omission.
    pub(super) measured_from_ns: u64,
    /// By [`Operation`].
    pub(super) latencies: [Histogram<u64>; Operation::COUNT],
    answered_at_last_look: u64,
    /// When the timers of phase and standstill are due; earlier ones are left over from another
    /// load on the same loop.
    phase_ends_ns: u64,
    /// The round's time starts with the next turn.
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

    /// A connection that was ready is lost with the queries in its slots.
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

    /// Fills the stream ids of connections that have just become ready.
    fn start_fresh(&mut self, io: &mut Io, sessions: &mut [Session]) {
        if self.options.idle {
            self.fresh.clear();
            return;
        }
        let now_ns = io.now_ns();
        // Stream by stream and not connection by connection, so that few queries spread over all
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
                self.fail(
                    io,
                    "more answers than keys were errors while the keys were written".into(),
                );
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
                // The observer took time that the clock of this turn does not know of.
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

    /// The end of a round, all but its latencies.
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

    /// A round is over with the latencies there are now.
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

    /// Looks from time to time whether anything still moves.
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

/// The statements that a load needs, in the order in which they are prepared.
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
