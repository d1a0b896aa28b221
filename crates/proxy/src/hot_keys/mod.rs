//! Hot keys: the partitions that queries read and write most, for the admin pages.
//!
//! Routing computes the key of a query anyway. One query in `hot_keys_sample`, at random distances,
//! shows its key to the sketch of its table ([`sketch`]), and all others only count down. A table
//! has a sketch for reads and one for writes, of this window and of the last one. All of that has a
//! fixed size: whatever clients send, nothing is allocated but the names of a few tables.
//!
//! Keys are values of clients. The page shows them only if `log_values` says so, and tokens
//! otherwise.

pub mod sketch;

use shunt_topology::Token;
use tokio::sync::mpsc;

use crate::limits;
use crate::plan::Work;
use sketch::Sketch;

/// The keys of one table.
#[derive(Clone, Debug)]
pub struct TableKeys {
    /// The table's keyspace.
    pub keyspace: Box<str>,
    /// The table's name.
    pub table: Box<str>,
    /// Reads of the present window and of the last one.
    pub reads: [Sketch; 2],
    /// Writes of the same.
    pub writes: [Sketch; 2],
}

impl TableKeys {
    fn is_unused(&self) -> bool {
        self.reads.iter().chain(&self.writes).all(|sketch| sketch.samples() == 0)
    }
}

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
}

/// The owner of a core's sketches.
pub(crate) struct HotKeys {
    sample: u32,
    /// Queries until the next one in a sketch.
    left: u64,
    /// State of the generator of distances; never 0.
    seed: u64,
    tables: Vec<TableKeys>,
    /// Begin of the present window and of the last one, nanoseconds.
    begun_ns: [u64; 2],
}

impl HotKeys {
    pub(crate) fn new(sample: u32, seed: u64) -> Self {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut keys = Self { sample, left: 0, seed, tables: Vec::new(), begun_ns: [0; 2] };
        keys.set_sample(sample, 0);
        keys
    }

    /// Takes a new option. Another rate begins new windows; at 0 nanoseconds the next tick does.
    pub(crate) fn set_sample(&mut self, sample: u32, now_ns: u64) {
        if sample != self.sample {
            // The counts of two rates do not add up.
            self.tables.clear();
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

    /// Adds the key of the query that was due. `is_table`: compares a keyspace and a name with its
    /// table's; `name`: makes the two.
    #[cold]
    pub(crate) fn add(
        &mut self,
        (work, token, key): (Work, Token, &[u8]),
        is_table: impl Fn(&str, &str) -> bool,
        name: impl FnOnce() -> (Box<str>, Box<str>),
    ) {
        let mut tables = self.tables.iter();
        let place = tables.position(|table| is_table(&table.keyspace, &table.table));
        let Some(place) = place.or_else(|| self.place_for(name)) else { return };
        let Some(table) = self.tables.get_mut(place) else { return };
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

    /// A place for a new table, if there is room or a table without queries.
    fn place_for(&mut self, name: impl FnOnce() -> (Box<str>, Box<str>)) -> Option<usize> {
        let place = match self.tables.len() {
            length if length < limits::HOT_KEY_TABLES_MAX => length,
            _ => self.tables.iter().position(TableKeys::is_unused)?,
        };
        let (keyspace, table) = name();
        if keyspace.len().max(table.len()) > limits::KEYSPACE_NAME_BYTES_MAX {
            return None;
        }
        let keys =
            TableKeys { keyspace, table, reads: Default::default(), writes: Default::default() };
        match self.tables.get_mut(place) {
            Some(unused) => *unused = keys,
            None => self.tables.push(keys),
        }
        Some(place)
    }

    /// Begins a new window, if it is time.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        if self.begun_ns[0] == 0 {
            self.begun_ns = [now_ns; 2];
        }
        if now_ns.saturating_sub(self.begun_ns[0]) < limits::HOT_KEY_WINDOW_NS {
            return;
        }
        self.begun_ns = [now_ns, self.begun_ns[0]];
        for table in &mut self.tables {
            for sketches in [&mut table.reads, &mut table.writes] {
                sketches.swap(0, 1);
                sketches[0].clear();
            }
        }
    }

    /// Answers the admin pages.
    pub(crate) fn report(&self, core: usize, now_ns: u64, answer: &mpsc::Sender<CoreHotKeys>) {
        let window_ns = now_ns.saturating_sub(self.begun_ns[1]);
        let (sample, tables) = (self.sample, self.tables.clone());
        // The requester has gone, or has room for the answer of each core.
        let _ = answer.try_send(CoreHotKeys { core, sample, window_ns, tables });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(keys: &mut HotKeys, table: &str, key: &str) {
        let token = Token(key.bytes().fold(7, |sum, byte| sum * 31 + i64::from(byte)));
        let is_table = |_: &str, name: &str| name == table;
        keys.add((Work::Read, token, key.as_bytes()), is_table, || ("shop".into(), table.into()));
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
    fn tables_are_bounded_and_unused_ones_make_room() {
        let mut keys = HotKeys::new(1, 7);
        let second = limits::HOT_KEY_WINDOW_NS;
        (0..10_000).for_each(|number| add(&mut keys, &format!("t{number}"), "k"));
        assert_eq!(keys.tables.len(), limits::HOT_KEY_TABLES_MAX);
        assert!(!keys.tables.iter().any(|table| &*table.table == "t9999"));
        (1..4).for_each(|window| keys.tick(window * second));
        add(&mut keys, "t9999", "k");
        assert_eq!(keys.tables.len(), limits::HOT_KEY_TABLES_MAX);
        assert!(keys.tables.iter().any(|table| &*table.table == "t9999"));
    }

    #[test]
    fn a_window_shows_until_the_next_but_one() {
        let mut keys = HotKeys::new(1, 7);
        keys.tick(limits::HOT_KEY_WINDOW_NS);
        add(&mut keys, "t", "k");
        keys.tick(2 * limits::HOT_KEY_WINDOW_NS - 1);
        assert_eq!(keys.tables[0].reads[0].samples(), 1);
        keys.tick(2 * limits::HOT_KEY_WINDOW_NS);
        let reads = &keys.tables[0].reads;
        assert_eq!((reads[0].samples(), reads[1].samples()), (0, 1));
        keys.tick(3 * limits::HOT_KEY_WINDOW_NS);
        assert!(keys.tables[0].is_unused());
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
