//! The shard's log is opened by whoever has gained it: statements on its row, and on the logs of
//! former owners.

use super::*;

#[derive(Default)]
pub(super) struct Wanted {
    is_row: bool,
    changes: Vec<Change>,
    lows: Vec<Generation>,
    pages: Vec<Place>,
    appends: Vec<Place>,
    applies: Vec<(Place, u16)>,
    forgotten: Vec<Place>,
    deletes: Vec<Mutation>,
}

impl OpeningEffects for Wanted {
    fn read_row(&mut self, _shard: u8) {
        self.is_row = true;
    }
    fn claim(&mut self, _shard: u8, row: Option<Row>, _claim: Claim) {
        self.changes.push(Change::Claim(row));
    }
    fn read_low(&mut self, _shard: u8, generation: Generation) {
        self.lows.push(generation);
    }
    fn read(&mut self, _shard: u8, from: Place) {
        self.pages.push(from);
    }
    fn append(&mut self, _shard: u8, place: Place) {
        self.appends.push(place);
    }
    fn apply(&mut self, _shard: u8, place: Place, write: u16) {
        self.applies.push((place, write));
    }
    fn forget(&mut self, _shard: u8, place: Place) {
        self.forgotten.push(place);
    }
    fn seal(&mut self, _shard: u8, claimed: Generation, _claim: Claim) {
        self.changes.push(Change::Seal(claimed));
    }
    fn delete_bucket(&mut self, _shard: u8, generation: Generation, bucket: u64) {
        self.deletes.push(Mutation::DeleteBucket(generation, bucket, 0));
    }
    fn delete_low(&mut self, _shard: u8, generation: Generation) {
        self.deletes.push(Mutation::DeleteLow(generation));
    }
}

impl World {
    /// The shard is its own, as far as this host knows.
    pub(super) fn gain(&mut self, host: usize, member: usize, epoch: u64, floor_us: i64) {
        let at = &mut self.hosts[host];
        if at.member != member || at.gaining != Some(epoch) {
            return;
        }
        at.gaining = None;
        self.lose(host);
        self.claims += 1;
        let (claim, mut wanted) = (Claim(self.claims), Wanted::default());
        let opening = Opening::begin(0, claim, &mut wanted);
        let at = &mut self.hosts[host];
        at.engine.gain(0, floor_us, claim);
        at.gained = Some(epoch);
        at.opening = Some(opening);
        self.want(host, claim, wanted);
    }

    /// True if a process stands still now.
    pub(super) fn stalls(&mut self, host: usize, often: u64) -> bool {
        let is_stalled = self.temper.stalls && !self.is_quiet && self.random.one_in(often);
        if is_stalled {
            let for_ms = if self.random.one_in(2) {
                self.random.below(500)
            } else {
                self.random.below(4_000)
            };
            self.hosts[host].stopped_until_ms = self.now_ms + for_ms;
        }
        is_stalled
    }

    /// An opening goes on.
    pub(super) fn open(&mut self, host: usize, step: impl FnOnce(&mut Opening, &mut Wanted)) {
        let Some(mut opening) = self.hosts[host].opening.take() else { return };
        let mut wanted = Wanted::default();
        step(&mut opening, &mut wanted);
        let (claim, opened) = (opening.claim(), opening.opened());
        if opened.is_none() {
            self.hosts[host].opening = Some(opening);
        }
        self.want(host, claim, wanted);
        if let Some(opened) = opened {
            self.serve(host, opened);
        }
    }

    fn serve(&mut self, host: usize, opened: Opened) {
        let mut said = Said::default();
        if self.hosts[host].engine.open_shard(opened, &mut said) {
            self.closed = self.closed.max(Generation(opened.generation.0 - 1));
            self.seen.opened += 1;
        }
        self.carry_out(host, said);
    }

    pub(super) fn hear(&mut self, host: usize, now: Now, claim: Claim, heard: Heard) {
        if self.hosts[host].opening.as_ref().is_none_or(|opening| opening.claim() != claim) {
            return;
        }
        // The worst moments to stand still are those at which it has read, and has done nothing
        // yet.
        let often = if matches!(heard, Heard::Low(..) | Heard::Page(..)) { 5 } else { 20 };
        if self.stalls(host, often) {
            return self.later(host, 0, At::Opening(claim, heard));
        }
        let holds = self.hosts[host].engine.holds(now, 0);
        let around = self.weak.around;
        match heard {
            Heard::Row(row) => {
                let row = if self.random.one_in(10) { Err(Failed) } else { row };
                let holds = holds || around == Some(Around::LeaseAtRow);
                self.open(host, |opening, wanted| opening.row_read(now, row, holds, wanted));
            }
            Heard::Changed(change, outcome) => {
                self.seen.unknown += usize::from(outcome == Conditional::Unknown);
                self.open(host, |opening, wanted| match change {
                    Change::Claim(_) => opening.claimed(now, outcome, wanted),
                    Change::Seal(_) => opening.sealed(now, outcome, wanted),
                });
            }
            Heard::Low(generation, low) => {
                let low = if self.random.one_in(10) { Err(Failed) } else { low };
                self.open(host, |opening, wanted| opening.low_read(now, generation, low, wanted));
            }
            Heard::PageFailed(from) => {
                self.open(host, |opening, wanted| {
                    opening.page_read(now, from, Err(Failed), wanted)
                });
            }
            Heard::Page(from, records) => self.page(host, now, from, records),
            Heard::Rewritten(place, written) => {
                let holds = holds || around == Some(Around::LeaseInRecovery);
                self.open(host, |opening, wanted| {
                    opening.appended(now, place, written, holds, wanted)
                });
            }
            Heard::Redone(place, write, written) => {
                self.open(host, |opening, wanted| {
                    opening.applied(now, place, write, Ok(written), wanted)
                });
            }
        }
    }

    fn page(&mut self, host: usize, now: Now, from: Place, records: BTreeMap<Position, Writes>) {
        let is_last = records.len() <= PAGE;
        let mut found = Vec::new();
        for (position, writes) in records.into_iter().take(PAGE) {
            let timestamp_us = writes.first().map_or(0, |(_, value)| value.timestamp_us);
            found.push(FoundRecord { position, timestamp_us, writes: writes.len() as u16 });
            self.hosts[host].redo.insert(Place { generation: from.generation, position }, writes);
        }
        self.seen.found += found.len();
        let page = Page { records: &found, is_last };
        self.open(host, |opening, wanted| opening.page_read(now, from, Ok(page), wanted));
    }

    fn want(&mut self, host: usize, claim: Claim, wanted: Wanted) {
        let (process, around) = (self.hosts[host].process, self.weak.around);
        let heard = |heard| At::Opening(claim, heard);
        if wanted.is_row {
            let after_ms = self.delay();
            self.at(after_ms, Event::RowAt(host, process, claim));
        }
        for generation in wanted.lows {
            let (after_ms, left) = (self.delay(), self.quorum());
            self.at(after_ms, Event::LowAt { host, process, claim, generation, left, found: None });
        }
        for from in wanted.pages {
            let (after_ms, left) = (self.delay(), self.quorum());
            match self.random.below(10) {
                _ if around == Some(Around::Recovery) => {
                    self.later(host, after_ms, heard(Heard::Page(from, BTreeMap::new())))
                }
                0 => self.later(host, after_ms, heard(Heard::PageFailed(from))),
                _ => {
                    let found = replicas::Log::default();
                    self.at(after_ms, Event::PageAt { host, process, claim, from, left, found });
                }
            }
        }
        for place in wanted.appends {
            let written_us = self.now(host).wall_us;
            let (after_ms, written) = match around {
                Some(Around::Rewriting) => (0, Written::Acknowledged),
                _ => self.write(Mutation::Record(
                    place,
                    written_us,
                    self.hosts[host].redo[&place].clone(),
                )),
            };
            self.later(host, after_ms, heard(Heard::Rewritten(place, written)));
        }
        for (place, write) in wanted.applies {
            let writes = self.hosts[host].redo[&place].clone();
            let (key, value) = writes[usize::from(write)];
            self.begin_writes(place, writes);
            let (after_ms, written) = self.write(Mutation::Register(key, value));
            self.later(host, after_ms, heard(Heard::Redone(place, write, written)));
        }
        for place in wanted.forgotten {
            self.hosts[host].redo.remove(&place);
        }
        for delete in wanted.deletes.into_iter().filter(|_| around != Some(Around::Seal)) {
            self.seen.deleted += 1;
            let deleted_us = self.now(host).wall_us;
            self.write(match delete {
                Mutation::DeleteBucket(generation, bucket, _) => {
                    Mutation::DeleteBucket(generation, bucket, deleted_us)
                }
                other => other,
            });
        }
        for change in wanted.changes {
            self.change(host, claim, change);
        }
    }

    /// A conditional statement is executed once, at some time or never, and who asked for it may
    /// not hear what has become of it.
    fn change(&mut self, host: usize, claim: Claim, change: Change) {
        let process = self.hosts[host].process;
        let unknown = At::Opening(claim, Heard::Changed(change, Conditional::Unknown));
        if let (Some(Around::Seal), Change::Seal(_)) = (self.weak.around, change) {
            return self.later(
                host,
                1,
                At::Opening(claim, Heard::Changed(change, Conditional::Applied)),
            );
        }
        if self.random.one_in(16) {
            return self.later(host, TIMEOUT_MS, unknown);
        }
        let is_late = self.random.one_in(6);
        let after_ms = if is_late { self.random.below(LATE_MS / 2) } else { self.delay() };
        let answer_ms = self.delay();
        let is_heard = after_ms + answer_ms < TIMEOUT_MS && !self.random.one_in(16);
        self.at(
            after_ms,
            Event::ChangeAt(host, process, claim, change, is_heard.then_some(answer_ms)),
        );
        if !is_heard {
            self.later(host, TIMEOUT_MS, unknown);
        }
        if let (Some(Around::SealBeforeService), Change::Seal(generation)) =
            (self.weak.around, change)
        {
            self.serve(
                host,
                Opened { shard: 0, claim, generation, last_timestamp_us: self.floor_us },
            );
        }
    }

    pub(super) fn change_row(&mut self, claim: Claim, change: Change) -> Conditional {
        let around = self.weak.around;
        match (change, &mut self.row) {
            (Change::Claim(None), row @ None) => {
                *row = Some(Row { generation: Generation(1), claim, sealed: Generation(0) });
                self.seen.claims += 1;
            }
            (Change::Claim(Some(read)), Some(row))
                if around == Some(Around::RowOfClaim)
                    || row.generation == read.generation
                        && (row.sealed == read.sealed || around == Some(Around::SealedOfClaim)) =>
            {
                (row.generation, row.claim) = (Generation(read.generation.0 + 1), claim);
                self.seen.claims += 1;
            }
            (Change::Seal(claimed), Some(row))
                if (row.generation, row.claim) == (claimed, claim)
                    || around == Some(Around::ClaimOfSeal) =>
            {
                row.sealed = Generation(claimed.0 - 1);
                self.look_at_seal(Generation(claimed.0 - 1));
            }
            (Change::Claim(_), _) => {
                self.seen.claims_refused += 1;
                return Conditional::Refused;
            }
            (Change::Seal(_), _) => {
                self.seen.seals_refused += 1;
                return Conditional::Refused;
            }
        }
        Conditional::Applied
    }
}
