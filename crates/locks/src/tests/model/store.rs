//! Three replicas of the rows of one lock. The last write wins on each; writes reach replicas at
//! any time, in any order, or never.
//!
//! A write that has reached a replica shows only when the replica is read, or in that it may be
//! acknowledged. So its arrival is no event: a read of a replica or an acknowledgement decides
//! which of the writes sent have arrived. A replica with a newer row has the same row whether or
//! not an older write has reached it.
//!
//! One replica can stand for three: every quorum shows rows that a quorum has acknowledged or that
//! were read from one; it may show rows that were sent. A test below compares both. Three are
//! needed where a reading asks only one, or where its two answers are of different moments.

/// The exclusive row, and one for each client that shares the lock.
pub(super) const SLOTS: usize = 1 + super::state::CLIENTS_MAX;

/// A row as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Version {
    /// Its timestamp; 0 without a row.
    pub(super) at: i32,
    /// Number of the holding client plus one; 0 without a holder.
    pub(super) owner: u8,
    pub(super) token: i32,
    pub(super) ttl_ms: u32,
}

/// Rows of one lock.
pub(super) type Rows = [Version; SLOTS];

/// A write that some replica may not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sent {
    pub(super) slot: u8,
    pub(super) version: Version,
    /// Times that it was sent; 2 means more than once.
    pub(super) times: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) replicas: Vec<Rows>,
    /// Ordered by slot and timestamp.
    pub(super) sent: Vec<Sent>,
}

impl Store {
    /// Creates a store with this many replicas.
    pub(super) fn new(replicas: usize) -> Self {
        Self { replicas: vec![Rows::default(); replicas], sent: Vec::new() }
    }

    /// Sends a write. An error if another row has its timestamp: a replica would mix columns of
    /// both.
    pub(super) fn send(&mut self, slot: u8, version: Version) -> Result<(), String> {
        let here = self.replicas.iter().map(|rows| rows[usize::from(slot)]);
        let sent = self.sent.iter().filter(|sent| sent.slot == slot).map(|sent| sent.version);
        if let Some(other) =
            here.chain(sent).find(|other| other.at == version.at && *other != version)
        {
            return Err(format!("two rows of one timestamp: {other:?} and {version:?}"));
        }
        match self.sent.iter_mut().find(|sent| sent.slot == slot && sent.version == version) {
            Some(sent) => sent.times = 2,
            None => self.sent.push(Sent { slot, version, times: 1 }),
        }
        self.settle();
        Ok(())
    }

    /// Marks a write as not sent; false if it was.
    pub(super) fn unsend(&mut self, slot: u8, at: i32) -> bool {
        let is_it = |sent: &Sent| sent.slot == slot && sent.version.at == at;
        let reached = self.replicas.iter().any(|rows| rows[usize::from(slot)].at == at);
        let Some(place) = self.sent.iter().position(is_it) else { return false };
        if reached || self.sent[place].times > 1 {
            return false;
        }
        self.sent.remove(place);
        true
    }

    /// Brings a write to all replicas except `without`; a single replica stands for all.
    pub(super) fn reach(&mut self, slot: u8, at: i32, without: usize) {
        let Some(sent) =
            self.sent.iter().find(|sent| sent.slot == slot && sent.version.at == at).copied()
        else {
            return;
        };
        let is_one = self.replicas.len() == 1;
        for (_, rows) in self
            .replicas
            .iter_mut()
            .enumerate()
            .filter(|(replica, _)| is_one || *replica != without)
        {
            let row = &mut rows[usize::from(slot)];
            *row = (*row).max(sent.version);
        }
        self.settle();
    }

    /// Number of ways in which writes may have arrived at a replica.
    pub(super) fn arrivals(&self, replica: usize) -> u32 {
        (0..SLOTS).map(|slot| self.newer(replica, slot).count() as u32 + 1).product()
    }

    /// Delivers writes to a replica, in one of these ways.
    pub(super) fn arrive(&mut self, replica: usize, mut way: u32) {
        for slot in 0..SLOTS {
            let ways = self.newer(replica, slot).count() as u32 + 1;
            if let Some(version) =
                (way % ways).checked_sub(1).and_then(|n| self.newer(replica, slot).nth(n as usize))
            {
                self.replicas[replica][slot] = version;
            }
            way /= ways;
        }
        self.settle();
    }

    fn newer(&self, replica: usize, slot: usize) -> impl Iterator<Item = Version> {
        let row = self.replicas[replica][slot];
        let sent = self
            .sent
            .iter()
            .filter(move |sent| usize::from(sent.slot) == slot && sent.version.at > row.at);
        sent.map(|sent| sent.version)
    }

    /// Updates a replica with the result of a read.
    pub(super) fn repair(&mut self, replica: usize, found: &Rows) {
        for (row, found) in self.replicas[replica].iter_mut().zip(found) {
            *row = (*row).max(*found);
        }
        self.settle();
    }

    /// Forgets writes that can no longer change any replica.
    fn settle(&mut self) {
        let Self { replicas, sent } = self;
        sent.retain(|sent| {
            replicas.iter().any(|rows| rows[usize::from(sent.slot)].at < sent.version.at)
        });
        sent.sort_unstable();
    }
}

/// The newer of each pair of rows.
pub(super) fn merged(one: &Rows, other: &Rows) -> Rows {
    std::array::from_fn(|slot| one[slot].max(other[slot]))
}

mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Step {
        Send(i32),
        Acknowledge(i32),
        Read,
    }

    /// Every possible result of reads, over all ways in which writes may have arrived.
    fn found(store: &Store, steps: &[Step], before: &mut Vec<i32>, out: &mut BTreeSet<Vec<i32>>) {
        let Some((step, rest)) = steps.split_first() else {
            out.insert(before.clone());
            return;
        };
        let count = store.replicas.len();
        match *step {
            Step::Send(at) => {
                let mut after = store.clone();
                after.send(0, Version { at, ..Version::default() }).expect("each is sent once");
                found(&after, rest, before, out);
            }
            Step::Acknowledge(at) => {
                for without in 0..count {
                    let mut after = store.clone();
                    after.reach(0, at, without);
                    found(&after, rest, before, out);
                }
            }
            Step::Read => {
                for (first, second) in
                    (0..count).flat_map(|first| (0..count).map(move |second| (first, second)))
                {
                    if count > 1 && first >= second {
                        continue;
                    }
                    for way in 0..store.arrivals(first) {
                        let mut one = store.clone();
                        one.arrive(first, way);
                        for way in 0..one.arrivals(second) {
                            let mut both = one.clone();
                            both.arrive(second, way);
                            let rows = merged(&both.replicas[first], &both.replicas[second]);
                            both.repair(first, &rows);
                            both.repair(second, &rows);
                            before.push(rows[0].at);
                            found(&both, rest, before, out);
                            before.pop();
                        }
                    }
                }
            }
        }
    }

    /// Calls `each` with all orders of up to `left` steps in which a write is sent once, and then
    /// perhaps acknowledged once.
    fn all_orders(steps: &mut Vec<Step>, left: usize, each: &mut impl FnMut(&[Step])) {
        each(steps);
        if left == 0 {
            return;
        }
        let writes = [2, 1, 3].into_iter().flat_map(|at| [Step::Send(at), Step::Acknowledge(at)]);
        for step in writes.chain([Step::Read]) {
            let is_sent = |at| steps.contains(&Step::Send(at));
            let may = match step {
                Step::Send(at) => !is_sent(at),
                Step::Acknowledge(at) => is_sent(at) && !steps.contains(&step),
                Step::Read => true,
            };
            if may {
                steps.push(step);
                all_orders(steps, left - 1, each);
                steps.pop();
            }
        }
    }

    #[test]
    fn one_replica_shows_what_a_quorum_of_three_shows() {
        let mut orders = 0;
        all_orders(&mut Vec::new(), 5, &mut |steps| {
            let mut of = [1, 3].map(|count| {
                let mut out = BTreeSet::new();
                found(&Store::new(count), steps, &mut Vec::new(), &mut out);
                out
            });
            orders += 1;
            let [one, three] = &mut of;
            assert_eq!(one, three, "{steps:?}");
        });
        assert!(orders > 400, "{orders} orders");
    }
}
