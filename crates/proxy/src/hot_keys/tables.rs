//! The tables of which a core keeps hot keys, and who gets a place among them.
//!
//! While there is room, the first to come gets a place. After that, a new table replaces the one
//! with the fewest samples and takes over its count: the Space-Saving algorithm again, over tables.
//! A table with more than its share of all samples therefore keeps its place, whatever clients
//! query beside it, and a table that becomes hot gets one. A client that walks over many tables
//! raises the count that all of them share: replacements are limited in a tick, for one account and
//! in all, so that this count stays low.
//!
//! This must never:
//! - replace a table by one while another has fewer samples;
//! - lose samples without a trace: the error of a table tells how many it may have had before.

use shunt_reactor::HostShares;

use super::sketch::Sketch;
use crate::client::account::Account;
use crate::limits;

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
    /// Samples of the tables that it replaced, in the same windows: its own had the same number at
    /// most while it had a place before.
    inherited: [u32; 2],
    /// Samples that it may have had without a place, in the same windows.
    refused: [u32; 2],
}

impl TableKeys {
    fn new((keyspace, table): Name) -> Self {
        let (reads, writes) = Default::default();
        Self { keyspace, table, reads, writes, inherited: [0; 2], refused: [0; 2] }
    }

    /// Samples by which its place counts.
    fn count(&self) -> u32 {
        let sketches = self.reads.iter().chain(&self.writes);
        let samples = sketches.map(Sketch::samples).chain(self.inherited);
        samples.fold(0, u32::saturating_add)
    }

    /// Samples of both windows that it may have had before it got its place.
    pub fn missed_max(&self) -> u32 {
        let parts = self.inherited.iter().chain(&self.refused);
        parts.fold(0, |sum, part| sum.saturating_add(*part))
    }

    fn turn(&mut self) {
        for sketches in [&mut self.reads, &mut self.writes] {
            sketches.swap(0, 1);
            sketches[0].clear();
        }
        for counts in [&mut self.inherited, &mut self.refused] {
            *counts = [0, counts[0]];
        }
    }
}

/// Keyspace and name of a table.
pub(super) type Name = (Box<str>, Box<str>);

/// The tables of one core.
#[derive(Default)]
pub(super) struct Tables {
    tables: Vec<TableKeys>,
    /// Replacements of this tick.
    replacements: HostShares<Account>,
    /// Samples of tables without a place, in the present window and the last one.
    refused: [u32; 2],
}

impl Tables {
    /// The keys of a table, which gets a place if it has none and may have one. `is_table`:
    /// compares a keyspace and a name with its own; `name`: makes the two.
    pub(super) fn find(
        &mut self,
        account: Account,
        is_table: impl Fn(&str, &str) -> bool,
        name: impl FnOnce() -> Name,
    ) -> Option<&mut TableKeys> {
        let mut tables = self.tables.iter();
        let place = tables.position(|table| is_table(&table.keyspace, &table.table));
        let place = place.or_else(|| self.place_for(account, name));
        if place.is_none() {
            self.refused[0] = self.refused[0].saturating_add(1);
        }
        self.tables.get_mut(place?)
    }

    /// A place for a new table.
    fn place_for(&mut self, account: Account, name: impl FnOnce() -> Name) -> Option<usize> {
        let place = match self.tables.len() {
            length if length < limits::HOT_KEY_TABLES_MAX => length,
            _ => {
                let counts = self.tables.iter().map(TableKeys::count).enumerate();
                let (place, count) = counts.min_by_key(|(_, count)| *count)?;
                if count > 0 && !self.may_replace(account) {
                    return None;
                }
                place
            }
        };
        let name = name();
        if name.0.len().max(name.1.len()) > limits::KEYSPACE_NAME_BYTES_MAX {
            return None;
        }
        let mut keys = TableKeys { refused: self.refused, ..TableKeys::new(name) };
        match self.tables.get_mut(place) {
            Some(least) => {
                keys.inherited[0] = least.count();
                *least = keys;
            }
            None => self.tables.push(keys),
        }
        Some(place)
    }

    fn may_replace(&mut self, account: Account) -> bool {
        let most = limits::HOT_KEY_REPLACEMENTS_TICK_MAX;
        let most_of_account = limits::HOT_KEY_REPLACEMENTS_OF_ACCOUNT_TICK_MAX;
        self.replacements.take(account, most, most_of_account).is_ok()
    }

    /// Samples of both windows that a table without a place has at most.
    pub(super) fn missed_max(&self) -> u32 {
        let least = match self.tables.len() {
            limits::HOT_KEY_TABLES_MAX => self.tables.iter().map(TableKeys::count).min(),
            _ => None,
        };
        self.refused.iter().fold(least.unwrap_or(0), |sum, part| sum.saturating_add(*part))
    }

    /// Begins a tick.
    pub(super) fn begin_tick(&mut self) {
        self.replacements.clear();
    }

    /// Begins a window.
    pub(super) fn begin_window(&mut self) {
        self.tables.iter_mut().for_each(TableKeys::turn);
        self.refused = [0, self.refused[0]];
    }

    /// All tables, in no order.
    pub(super) fn all(&self) -> &[TableKeys] {
        &self.tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one read of a key of a table; false if the table has no place.
    fn add(tables: &mut Tables, role: &str, table: &str) -> bool {
        let is_table = |_: &str, name: &str| name == table;
        let name = || ("shop".into(), table.into());
        let found = tables.find(Account::of_identity(role), is_table, name);
        found.map(|keys| keys.reads[0].add(7, b"key")).is_some()
    }

    fn find<'t>(tables: &'t Tables, table: &str) -> Option<&'t TableKeys> {
        tables.all().iter().find(|keys| &*keys.table == table)
    }

    /// Walks over 10,000 tables under this role, 100 in each tick; `other` is a query at changing
    /// places among them.
    fn walk(tables: &mut Tables, role: &str, ticks: u32, other: impl Fn(&mut Tables)) {
        for tick in 0..ticks {
            tables.begin_tick();
            for step in 0..100 {
                if step == (50 + 37 * tick) % 100 {
                    other(tables);
                }
                add(tables, role, &format!("walk {}", (100 * tick + step) % 10_000));
            }
        }
    }

    #[test]
    fn a_table_that_becomes_hot_gets_a_place_among_32_others() {
        let mut tables = Tables::default();
        for _ in 0..10 {
            (0..limits::HOT_KEY_TABLES_MAX).for_each(|number| {
                add(&mut tables, "shop", &format!("first {number}"));
            });
        }
        (0..100).for_each(|_| {
            add(&mut tables, "shop", "late");
        });
        let late = find(&tables, "late").expect("it is the hottest table");
        assert_eq!((late.reads[0].samples(), late.missed_max()), (100, 10));
        assert_eq!(tables.all().len(), limits::HOT_KEY_TABLES_MAX);
    }

    #[test]
    fn a_walk_over_many_tables_pushes_out_no_hot_table() {
        for role in ["shop", "walker"] {
            let mut tables = Tables::default();
            // Of 101 queries one is of this table.
            walk(&mut tables, role, 200, |tables| {
                add(tables, "shop", "hot");
            });
            let hot = find(&tables, "hot").expect("it is hot");
            let seen = hot.reads[0].samples();
            assert!(seen + hot.missed_max() >= 200, "{role}: {seen} {}", hot.missed_max());
            assert!(seen > 150, "{role}: {seen}");
        }
    }

    /// The limit of replacements bounds the samples with which a table is safe from others.
    #[test]
    fn a_table_of_a_few_queries_in_a_second_keeps_its_place_in_a_walk_of_two_windows() {
        let mut tables = Tables::default();
        let ticks = (limits::HOT_KEY_WINDOW_NS / limits::TICK_NS) as u32;
        (0..64).for_each(|_| {
            add(&mut tables, "shop", "warm");
        });
        walk(&mut tables, "walker", 2 * ticks, |_| {});
        let warm = find(&tables, "warm").expect("more samples than the walk gives to a table");
        assert_eq!((warm.reads[0].samples(), warm.missed_max()), (64, 0));
    }

    #[test]
    fn a_walker_leaves_replacements_to_other_accounts() {
        let mut tables = Tables::default();
        walk(&mut tables, "walker", 1, |_| {});
        tables.begin_tick();
        let walked = (0..1_000).filter(|step| add(&mut tables, "walker", &format!("{step}")));
        assert_eq!(walked.count(), limits::HOT_KEY_REPLACEMENTS_OF_ACCOUNT_TICK_MAX);
        assert!(add(&mut tables, "shop", "new"));
        let mut of_role = |role: u32| add(&mut tables, &role.to_string(), &format!("t{role}"));
        let others = (0..1_000).filter(|role| of_role(*role)).count();
        let of_walker = limits::HOT_KEY_REPLACEMENTS_OF_ACCOUNT_TICK_MAX;
        assert_eq!(others + 1 + of_walker, limits::HOT_KEY_REPLACEMENTS_TICK_MAX);
    }

    #[test]
    fn samples_without_a_place_are_an_error_until_their_windows_are_over() {
        let mut tables = Tables::default();
        walk(&mut tables, "walker", 1, |_| {});
        let least = tables.all().iter().map(TableKeys::count).min().expect("tables");
        let refused = tables.refused[0];
        assert!(refused > 0 && tables.missed_max() == refused + least);
        tables.begin_tick();
        assert!(add(&mut tables, "shop", "new"));
        assert_eq!(find(&tables, "new").map(TableKeys::missed_max), Some(refused + least));
        tables.begin_window();
        assert_eq!(find(&tables, "new").map(TableKeys::missed_max), Some(refused + least));
        tables.begin_window();
        assert_eq!(find(&tables, "new").map(TableKeys::missed_max), Some(0));
        assert_eq!(tables.missed_max(), 0);
        let unused = (0..limits::HOT_KEY_TABLES_MAX)
            .filter(|number| add(&mut tables, "walker", &format!("again {number}")));
        assert_eq!(unused.count(), limits::HOT_KEY_TABLES_MAX, "unused tables make room at once");
    }
}
