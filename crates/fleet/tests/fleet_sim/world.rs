//! Hosts, their clocks, the network to the store, and faults.

use std::collections::HashSet;

use shunt_fleet::schema::FORMAT;
use shunt_fleet::{
    Config, End, Event, Incarnation, Member, Outcome, Output, Phase, Refusal, SHARDS, Shard,
    Statement, StatementId, Step,
};

use crate::cores::Cores;
use crate::store::Store;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const LEASE_MS: i32 = 6000;
const MAX_TTL_MS: i32 = 8000;
/// Time at which faults end.
const FAULTS_UNTIL_NS: u64 = 90 * SECOND;
/// Time by which all hosts have had the new version once.
const UPGRADED_UNTIL_NS: u64 = 70 * SECOND;
/// Longest delay of a statement in doubt.
const LATE_MAX_NS: u64 = 9 * SECOND;
/// Simulated time from the last fault until all shards are served again: late statements, two
/// leases at clocks a tenth off, and their consequences.
const SETTLED_WITHIN_NS: u64 = LATE_MAX_NS + 40 * SECOND;

/// Settings of a run.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) drift_ppm: u64,
    /// Clocks differ by as much as allowed.
    pub(crate) extreme: bool,
    /// Two owners at one moment are a violation.
    pub(crate) exclusive: bool,
    pub(crate) left_out: Option<Step>,
    /// Hosts get a version with one more format, at different times, and some go back to the old
    /// one for a while.
    pub(crate) upgrade: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { drift_ppm: 9_900, extreme: false, exclusive: true, left_out: None, upgrade: false }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

struct Host {
    rate_ppm: u64,
    boot_offset_ns: u64,
    wall_offset_us: i64,
    member: Option<Member>,
    incarnation: Incarnation,
    cores: Cores,
    /// End of the host's pause.
    paused_until_ns: u64,
    /// Time until which its statements are lost.
    cut_until_ns: u64,
    starts_at_ns: u64,
    wakes_at_ns: u64,
    proves_death: bool,
    /// Newest format that its version knows.
    knows: i32,
    upgraded_at_ns: u64,
    /// Start and end of its return to the old version.
    back: Option<(u64, u64)>,
}

impl Host {
    /// Newest format of the version that the host should run.
    fn wanted_format(&self, real_ns: u64) -> i32 {
        let is_back =
            self.back.is_some_and(|(from_ns, until_ns)| (from_ns..until_ns).contains(&real_ns));
        if real_ns < self.upgraded_at_ns || is_back { FORMAT } else { FORMAT + 1 }
    }

    fn now_ns(&self, real_ns: u64) -> u64 {
        self.boot_offset_ns + (u128::from(real_ns) * u128::from(self.rate_ppm) / 1_000_000) as u64
    }

    fn wall_us(&self, real_ns: u64) -> i64 {
        1_700_000_000_000_000 + self.wall_offset_us + (real_ns / 1000) as i64
    }
}

enum Happens {
    /// A statement reaches the store; its outcome goes back, or is lost.
    Applied {
        host: usize,
        incarnation: Incarnation,
        id: StatementId,
        statement: Statement,
        answer: bool,
    },
    Answered {
        host: usize,
        incarnation: Incarnation,
        id: StatementId,
        outcome: Outcome,
    },
    Drained {
        host: usize,
        incarnation: Incarnation,
        shard: Shard,
        number: u64,
    },
}

pub(crate) struct World {
    settings: Settings,
    random: Random,
    real_ns: u64,
    hosts: Vec<Host>,
    pub(crate) store: Store,
    pending: Vec<(u64, Happens)>,
    incarnations: u64,
    last_token: [i64; SHARDS],
    tokens: HashSet<(Shard, i64)>,
    /// Host that granted the last memory lock, and its latest end, in real time.
    memory: [(usize, u64); SHARDS],
    pub(crate) grants: u64,
    pub(crate) statements: u64,
    pub(crate) declared_dead: u64,
    pub(crate) told_to_leave: u64,
    pub(crate) raised: u64,
    /// Members refused for the format of the rows.
    pub(crate) refused: u64,
    violation: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, settings: Settings) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let count = 1 + random.below(5);
        let mut hosts = (0..if settings.extreme { count.max(2) } else { count })
            .map(|number| {
                let drift = settings.drift_ppm;
                let rate_ppm = match settings.extreme {
                    true => {
                        1_000_000 + if number % 2 == 0 { drift } else { 0 }
                            - if number % 2 == 1 { drift } else { 0 }
                    }
                    false => 1_000_000 - drift + random.below(2 * drift + 1),
                };
                Host {
                    rate_ppm,
                    boot_offset_ns: random.below(1000 * SECOND),
                    wall_offset_us: random.below(200_000) as i64,
                    member: None,
                    incarnation: Incarnation([0; 16]),
                    cores: Cores::new(),
                    paused_until_ns: 0,
                    cut_until_ns: 0,
                    starts_at_ns: random.below(15 * SECOND),
                    wakes_at_ns: 0,
                    proves_death: false,
                    knows: FORMAT,
                    upgraded_at_ns: u64::MAX,
                    back: None,
                }
            })
            .collect::<Vec<_>>();
        if settings.upgrade {
            for host in &mut hosts {
                host.upgraded_at_ns = random.below(UPGRADED_UNTIL_NS);
                let back_ns = UPGRADED_UNTIL_NS + random.below(FAULTS_UNTIL_NS - UPGRADED_UNTIL_NS);
                host.back = random.one_in(3).then_some((back_ns, FAULTS_UNTIL_NS));
            }
        }
        Self {
            settings,
            random,
            real_ns: SECOND,
            hosts,
            store: Store::new(LEASE_MS, MAX_TTL_MS),
            pending: Vec::new(),
            incarnations: 0,
            last_token: [0; SHARDS],
            tokens: HashSet::new(),
            memory: [(usize::MAX, 0); SHARDS],
            grants: 0,
            statements: 0,
            declared_dead: 0,
            told_to_leave: 0,
            raised: 0,
            refused: 0,
            violation: None,
        }
    }

    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    pub(crate) fn minutes(&self) -> u64 {
        self.real_ns / (60 * SECOND)
    }

    /// Runs to the end; returns the violation, if any.
    pub(crate) fn run(&mut self) -> Option<String> {
        while self.real_ns < FAULTS_UNTIL_NS + SETTLED_WITHIN_NS && self.violation.is_none() {
            self.step();
        }
        // A shard that is moving in order is briefly not served.
        let mut dark = self.dark();
        for _ in 0..2000 {
            if dark.is_none() || self.violation.is_some() || self.settings.left_out.is_some() {
                break;
            }
            self.step();
            dark = self.dark();
        }
        if self.settings.left_out.is_none() && self.violation.is_none() {
            let format = self.store.fleet.format;
            let is_old = self.settings.upgrade && format == FORMAT;
            self.violation =
                dark.or(is_old.then(|| format!("the rows still have format {format}")));
        }
        self.violation.take()
    }

    /// Describes the shards that are not served.
    fn dark(&self) -> Option<String> {
        let owned: usize = self
            .hosts
            .iter()
            .filter(|host| host.member.is_some())
            .map(|host| host.cores.owned())
            .sum();
        let served = |shard: Shard| {
            self.hosts.iter().any(|host| host.cores.serves(shard, host.now_ns(self.real_ns)))
        };
        let dark = (0..SHARDS as Shard).filter(|shard| !served(*shard)).count();
        (dark > 0 || owned != SHARDS)
            .then(|| format!("{dark} shards are not served in the end, {owned} owned"))
    }

    fn step(&mut self) {
        self.real_ns += 1 + self.random.below(30 * MS);
        if self.real_ns < FAULTS_UNTIL_NS {
            self.something_goes_wrong();
        }
        let (due, later) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|(at_ns, _)| *at_ns <= self.real_ns);
        self.pending = later;
        let mut due: Vec<(u64, Happens)> = due;
        due.sort_by_key(|(at_ns, _)| *at_ns);
        for (_, happens) in due {
            self.happen(happens);
        }
        for host in 0..self.hosts.len() {
            self.run_host(host);
        }
    }

    fn something_goes_wrong(&mut self) {
        let host = self.random.below(self.hosts.len() as u64) as usize;
        let fault = self.random.below(4000);
        let (now_ns, real_ns) = (self.hosts[host].now_ns(self.real_ns), self.real_ns);
        let wall_us = self.hosts[host].wall_us(real_ns);
        let length_ns = self.random.below(12 * SECOND);
        match fault {
            0..=5 => {
                let state = &mut self.hosts[host];
                state.member = None;
                state.cores = Cores::new();
                state.starts_at_ns = real_ns + length_ns;
                state.proves_death = fault < 3;
            }
            6..=13 => self.hosts[host].paused_until_ns = real_ns + length_ns,
            14..=21 => self.hosts[host].cut_until_ns = real_ns + length_ns,
            22..=25 => self.hosts[host].wall_offset_us += 3_600_000_000,
            26..=29 => self.hosts[host].wall_offset_us -= 3_600_000_000,
            30..=34 if self.hosts[host].paused_until_ns <= real_ns => {
                self.with_member(host, |member, out| member.drain(now_ns, wall_us, out));
            }
            37..=41 => {
                self.store.apply(&Statement::TellToLeave(self.hosts[host].incarnation));
            }
            35..=36 => self.hosts.iter_mut().for_each(|host| {
                host.member = None;
                host.cores = Cores::new();
                host.starts_at_ns = real_ns + length_ns / 10;
                host.proves_death = false;
            }),
            _ => {}
        }
    }

    fn run_host(&mut self, index: usize) {
        let real_ns = self.real_ns;
        let host = &mut self.hosts[index];
        let knows = host.wanted_format(real_ns);
        if knows != host.knows {
            (host.knows, host.member, host.cores) = (knows, None, Cores::new());
            host.starts_at_ns = real_ns + SECOND;
        }
        let host = &self.hosts[index];
        if host.paused_until_ns > real_ns {
            return;
        }
        let (now_ns, wall_us) = (host.now_ns(real_ns), host.wall_us(real_ns));
        if host.member.is_none() && real_ns >= host.starts_at_ns {
            self.start(index, now_ns, wall_us);
        } else if host.member.is_some() && now_ns >= host.wakes_at_ns {
            self.with_member(index, |member, out| member.tick(now_ns, wall_us, out));
        }
        for _ in 0..2 {
            self.grant(index, now_ns, wall_us);
        }
    }

    fn start(&mut self, index: usize, now_ns: u64, wall_us: i64) {
        self.incarnations += 1;
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&self.incarnations.to_be_bytes());
        let mut config = Config::new("sim", &format!("10.0.0.{index}:9042"));
        (config.lease_ms, config.max_ttl_ms) = (LEASE_MS, MAX_TTL_MS);
        let host = &mut self.hosts[index];
        config.formats = FORMAT..=host.knows;
        if std::mem::take(&mut host.proves_death) {
            config.own_dead = vec![host.incarnation];
        }
        host.incarnation = Incarnation(bytes);
        let mut member = Member::new(config, host.incarnation).unwrap();
        if let Some(step) = self.settings.left_out {
            member.leave_out(step);
        }
        host.member = Some(member);
        self.with_member(index, |member, out| member.start(now_ns, wall_us, out));
    }

    fn grant(&mut self, index: usize, now_ns: u64, wall_us: i64) {
        let shard = self.random.below(SHARDS as u64) as Shard;
        let ttl_ns = MAX_TTL_MS as u64 * MS;
        let Some((token, memory)) = self.hosts[index].cores.grant(shard, now_ns, wall_us, ttl_ns)
        else {
            return;
        };
        self.grants += 1;
        let (knows, format) = (self.hosts[index].knows, self.store.fleet.format);
        if knows < format {
            self.violate(format!(
                "a grant by a version that knows format {knows}, while the rows have {format}"
            ));
        }
        if let Some(member) = &mut self.hosts[index].member {
            member.granted_up_to(token);
        }
        let real_ns = self.real_ns;
        let serves = |(other, host): (usize, &Host)| {
            other != index && host.cores.serves(shard, host.now_ns(real_ns))
        };
        // A paused host grants nothing until it resumes, and checks its clock then.
        let both = self
            .hosts
            .iter()
            .enumerate()
            .filter(|(_, host)| host.paused_until_ns <= real_ns)
            .any(serves);
        if both && self.settings.exclusive {
            self.violate(format!("two owners of shard {shard}"));
        }
        if !self.tokens.insert((shard, token)) {
            self.violate(format!("token {token} of shard {shard} twice"));
        }
        // Of two owners at one moment, the former grants lower tokens than its successor.
        let last = std::mem::replace(&mut self.last_token[usize::from(shard)], token);
        if token <= last && self.settings.exclusive {
            self.violate(format!("token {token} of shard {shard} after {last}"));
        }
        let (holder, until_ns) = self.memory[usize::from(shard)];
        if memory {
            if holder != index && until_ns > real_ns && self.settings.exclusive {
                self.violate(format!(
                    "a lock in memory of shard {shard} while another's may be held"
                ));
            }
            // A client measures the time by its own clock, from before its request: never longer
            // than this.
            self.memory[usize::from(shard)] = (index, real_ns + ttl_ns);
        }
    }

    fn happen(&mut self, happens: Happens) {
        match happens {
            Happens::Applied { host, incarnation, id, statement, answer } => {
                let outcome = self.store.apply(&statement);
                if answer {
                    let at_ns = self.real_ns + self.random.below(20 * MS);
                    self.pending.push((
                        at_ns,
                        Happens::Answered { host, incarnation, id, outcome: outcome.clone() },
                    ));
                    if self.random.one_in(50) {
                        let again_ns = at_ns + self.random.below(3 * SECOND);
                        self.pending
                            .push((again_ns, Happens::Answered { host, incarnation, id, outcome }));
                    }
                }
            }
            Happens::Answered { host, incarnation, id, outcome } => {
                let state = &self.hosts[host];
                if state.incarnation != incarnation || state.member.is_none() {
                    return;
                }
                if state.paused_until_ns > self.real_ns {
                    let at_ns = state.paused_until_ns;
                    self.pending
                        .push((at_ns, Happens::Answered { host, incarnation, id, outcome }));
                    return;
                }
                let (now_ns, wall_us) = (state.now_ns(self.real_ns), state.wall_us(self.real_ns));
                self.with_member(host, |member, out| {
                    member.outcome(id, outcome, now_ns, wall_us, out)
                });
            }
            Happens::Drained { host, incarnation, shard, number } => {
                let state = &self.hosts[host];
                if state.incarnation != incarnation {
                    return;
                }
                if state.paused_until_ns > self.real_ns {
                    let at_ns = state.paused_until_ns;
                    self.pending
                        .push((at_ns, Happens::Drained { host, incarnation, shard, number }));
                    return;
                }
                let (now_ns, wall_us) = (state.now_ns(self.real_ns), state.wall_us(self.real_ns));
                let (last_us, empty) = state.cores.drained(shard, now_ns);
                self.with_member(host, |member, out| {
                    member.drained(shard, number, last_us, empty, now_ns, wall_us, out)
                });
            }
        }
    }

    /// Calls a member, and carries out its outputs.
    fn with_member(&mut self, index: usize, act: impl FnOnce(&mut Member, &mut Vec<Output>)) {
        let mut outputs = Vec::new();
        let Some(member) = &mut self.hosts[index].member else { return };
        act(member, &mut outputs);
        self.hosts[index].wakes_at_ns = member.next_wakeup_ns();
        for output in outputs {
            self.carry_out(index, output);
        }
    }

    fn carry_out(&mut self, index: usize, output: Output) {
        let incarnation = self.hosts[index].incarnation;
        match output {
            Output::Send { id, statement, .. } => self.send(index, id, statement),
            Output::Lease(lease) => self.hosts[index].cores.lease(lease),
            Output::Gain(gain) => self.hosts[index].cores.gain(&gain),
            Output::Drain { shard, number } => {
                self.hosts[index].cores.open(shard, false);
                let at_ns = self.real_ns + self.random.below(200 * MS);
                self.pending
                    .push((at_ns, Happens::Drained { host: index, incarnation, shard, number }));
            }
            Output::Resume(shard) => self.hosts[index].cores.open(shard, true),
            Output::Lost { shard, .. } => self.hosts[index].cores.lose(shard),
            Output::Event(Event::DeclaredDead { .. }) => self.declared_dead += 1,
            Output::ToldToLeave => self.told_to_leave += 1,
            Output::Event(Event::FormatRaised(_)) => self.raised += 1,
            Output::Ended(end) => {
                self.refused += u64::from(matches!(end, End::Refused(Refusal::Format { .. })));
                let host = &mut self.hosts[index];
                assert!(
                    host.member
                        .as_ref()
                        .is_some_and(|member| member.status().phase == Phase::Ended)
                );
                host.member = None;
                host.cores = Cores::new();
                host.starts_at_ns = self.real_ns + SECOND;
                host.proves_death = matches!(end, End::Dead | End::Left);
            }
            _ => {}
        }
    }

    fn send(&mut self, host: usize, id: StatementId, statement: Statement) {
        self.statements += 1;
        let incarnation = self.hosts[host].incarnation;
        let fair = self.real_ns >= FAULTS_UNTIL_NS;
        let cut = self.hosts[host].cut_until_ns > self.real_ns;
        let (late, delay_ns) = match self.random.below(40) {
            // Its sender does not know its fate: carried out soon, much later, or never.
            0..=3 if !fair => (
                true,
                self.random.below(if self.random.0.is_multiple_of(2) {
                    LATE_MAX_NS
                } else {
                    SECOND
                }),
            ),
            _ => (
                false,
                self.random.below(if self.random.0.is_multiple_of(8) { 900 * MS } else { 30 * MS }),
            ),
        };
        if cut || late && self.random.one_in(3) {
            return;
        }
        let answer = !late || self.random.one_in(2);
        self.pending.push((
            self.real_ns + delay_ns,
            Happens::Applied { host, incarnation, id, statement, answer },
        ));
    }

    fn violate(&mut self, what: String) {
        let seconds = self.real_ns / SECOND;
        self.violation.get_or_insert(format!("after {seconds} s: {what}"));
    }
}
