//! Hot keys: the partitions that queries read and write most, for the admin pages.
//!
//! Routing computes the key of a query anyway. One query in `hot_keys_sample`, at random distances,
//! shows its key to the sketch of its table ([`sketch`]), and all others only count down. A table
//! has a sketch for reads and one for writes, of this window and of the last one. All of that has a
//! fixed size: whatever clients send, nothing is allocated but the names of a few tables
//! ([`tables`]).
//!
//! Keys are values of clients. The page shows them only if `log_values` says so, and tokens
//! otherwise.

pub mod sketch;
pub mod tables;

use shunt_topology::Token;
use tokio::sync::mpsc;

use crate::client::account::Account;
use crate::limits;
use crate::plan::Work;
use tables::{TableKeys, Tables};

/// The hot keys of one core, for the admin pages.
#[derive(Debug)]
pub struct CoreHotKeys {
    /// Number of the core.
    pub core: usize,
    /// One of so many queries is in a sketch; 0: none.
    pub sample: u32,
    /// Nanoseconds since the last window began.
    pub window_ns: u64,
    /// The tables, in no order.
    pub tables: Vec<TableKeys>,
    /// Samples that a table without a place has at most.
    pub missed_max: u32,
}

/// The owner of a core's sketches.
pub(crate) struct HotKeys {
    sample: u32,
    /// Queries until the next one in a sketch.
    left: u64,
    /// State of the generator of distances; never 0.
    seed: u64,
    tables: Tables,
    /// Begin of the present window and of the last one, nanoseconds.
    begun_ns: [u64; 2],
}

impl HotKeys {
    pub(crate) fn new(sample: u32, seed: u64) -> Self {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut keys = Self { sample, left: 0, seed, tables: Tables::default(), begun_ns: [0; 2] };
        keys.set_sample(sample, 0);
        keys
    }

    /// Takes a new option. Another rate begins new windows; at 0 nanoseconds the next tick does.
    pub(crate) fn set_sample(&mut self, sample: u32, now_ns: u64) {
        if sample != self.sample {
            // The counts of two rates do not add up.
            self.tables = Tables::default();
            self.begun_ns = [now_ns; 2];
        }
        self.sample = sample;
        self.left = self.distance();
    }

    /// Counts a query; true if its key belongs into a sketch.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// The distance to the next query in a sketch: `sample` in the mean, random so that no pattern
    /// of clients hides from it.
    fn distance(&mut self) -> u64 {
        if self.sample == 0 {
            return u64::MAX;
        }
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        1 + self.seed % (2 * u64::from(self.sample) - 1)
    }

    /// Adds the key of the query of this account that was due. `is_table`: compares a keyspace and
    /// a name with its table's; `name`: makes the two.
    #[cold]
    pub(crate) fn add(
        &mut self,
        account: Account,
        (work, token, key): (Work, Token, &[u8]),
        is_table: impl Fn(&str, &str) -> bool,
        name: impl FnOnce() -> (Box<str>, Box<str>),
    ) {
        let Some(table) = self.tables.find(account, is_table, name) else { return };
        match work {
            Work::Read => table.reads[0].add(token.0, key),
            Work::Write => table.writes[0].add(token.0, key),
            Work::Schema | Work::Other => {}
        }
    }

    /// Sets the distance to the next query in a sketch.
    #[cold]
    pub(crate) fn go_on(&mut self) {
        self.left = self.distance();
    }

    /// Begins a tick, and a new window if it is time.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.tables.begin_tick();
        if self.begun_ns[0] == 0 {
            self.begun_ns = [now_ns; 2];
        }
        if now_ns.saturating_sub(self.begun_ns[0]) < limits::HOT_KEY_WINDOW_NS {
            return;
        }
        self.begun_ns = [now_ns, self.begun_ns[0]];
        self.tables.begin_window();
    }

    /// Answers the admin pages.
    pub(crate) fn report(&self, core: usize, now_ns: u64, answer: &mpsc::Sender<CoreHotKeys>) {
        let window_ns = now_ns.saturating_sub(self.begun_ns[1]);
        let (sample, tables) = (self.sample, self.tables.all().to_vec());
        let missed_max = self.tables.missed_max();
        // The requester has gone, or has room for the answer of each core.
        let _ = answer.try_send(CoreHotKeys { core, sample, window_ns, tables, missed_max });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(keys: &mut HotKeys, table: &str, key: &str) {
        let token = Token(key.bytes().fold(7, |sum, byte| sum * 31 + i64::from(byte)));
        let is_table = |_: &str, name: &str| name == table;
        let name = || ("shop".into(), table.into());
        keys.add(Account::default(), (Work::Read, token, key.as_bytes()), is_table, name);
    }

    #[test]
    fn one_query_in_so_many_is_due_and_none_if_off() {
        for sample in [1, 2, 64, 1_000] {
            let mut keys = HotKeys::new(sample, 7);
            let mut due = 0;
            for _ in 0..1_000_000 {
                if keys.is_due() {
                    due += 1;
                    keys.go_on();
                }
            }
            let expected = 1_000_000 / sample;
            assert!(expected.abs_diff(due) * 10 <= expected, "{sample}: {due}");
        }
        let mut keys = HotKeys::new(0, 7);
        assert!((0..1_000_000).all(|_| !keys.is_due()));
    }

    #[test]
    fn a_window_shows_until_the_next_but_one() {
        let mut keys = HotKeys::new(1, 7);
        keys.tick(limits::HOT_KEY_WINDOW_NS);
        add(&mut keys, "t", "k");
        keys.tick(2 * limits::HOT_KEY_WINDOW_NS - 1);
        assert_eq!(keys.tables.all()[0].reads[0].samples(), 1);
        keys.tick(2 * limits::HOT_KEY_WINDOW_NS);
        let reads = &keys.tables.all()[0].reads;
        assert_eq!((reads[0].samples(), reads[1].samples()), (0, 1));
        keys.tick(3 * limits::HOT_KEY_WINDOW_NS);
        assert_eq!(keys.tables.all()[0].reads[1].samples(), 0);
    }

    #[test]
    fn another_rate_begins_a_new_window() {
        let mut keys = HotKeys::new(1, 7);
        keys.tick(limits::HOT_KEY_WINDOW_NS);
        add(&mut keys, "t", "k");
        keys.set_sample(2, limits::HOT_KEY_WINDOW_NS + 5);
        let (answer, mut answers) = mpsc::channel(1);
        keys.report(0, limits::HOT_KEY_WINDOW_NS + 8, &answer);
        let told = answers.try_recv().expect("an answer");
        assert_eq!((told.window_ns, told.sample, told.tables.len()), (3, 2, 0));
    }
}
