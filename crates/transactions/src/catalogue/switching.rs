//! The way in which a table gets the mode `conditional` and loses it, and how it loses `full`.
//!
//! With `conditional` the proxies decide conditional statements, without it nodes do: never both,
//! for neither sees what the other is deciding. Between the two the table is held: its row says
//! `opening:..` or `closing:..`, every proxy that has read this refuses writes to the table, and
//! the owner of the keyspace's shard sets the next mode after [`HOLD_NS`] by its own clock. By then
//! every proxy has read the row, and statements sent before have an outcome, unless a node stands
//! still with one (docs/conditional.md asks the operator to change modes while all nodes answer).
//!
//! With `full` clients are told of writes before they are made, because all readers wait for them.
//! Without it they read from nodes. A table that is to lose `full` is therefore held for reads too
//! (`leaving:..`), for as long as its owner has anything to write to it.
//!
//! With `unsafe` and `mixed_reads` clients may be told of a commit whose writes exist in the record
//! alone. A table that leaves transactions is held (`closing:..`) until its owner has made all
//! writes.
//!
//! A core trusts the modes that it knows for [`MODES_TRUSTED_NS`] from the question on. After that,
//! a core that cannot read them decides nothing by rows in memory, and sends no statement to nodes
//! on a keyspace in which a table had a mode or a rule.
//!
//! This must never: have a proxy decide while another sends such statements to nodes; take one
//! change for another, in whatever order they follow; have a client read from nodes where others
//! were told of writes that are not made; leave a table without a mode while a transaction's write
//! to it is outstanding.

use std::collections::HashMap;

use shunt_language::transaction::mode::TransactionalMode;

use crate::SECOND_NS;

/// Time for which a table is held.
pub const HOLD_NS: u64 = 15 * SECOND_NS;
/// Time for which modes count after they were asked for.
pub const MODES_TRUSTED_NS: u64 = 6 * SECOND_NS;

/// Interval between two reads of the modes.
pub const EVERY_NS: u64 = 2 * SECOND_NS;
/// Time within which a core notices that modes are too old, also if the process was paused for as
/// long as is not noticed.
const NOTICE_NS: u64 = 2 * SECOND_NS;
/// Time for which other proxies may still go by a table's former mode.
pub const SETTLES_NS: u64 = MODES_TRUSTED_NS + 2 * EVERY_NS;
/// Age up to which a core serves by modes that it did not read itself. A core that runs has as old
/// ones just before it reads them again.
pub const INITIAL_AGE_MAX_NS: u64 = EVERY_NS;

// A core reads modes itself soon after it begins. Until it has, no other proxy may count on it.
const _: () =
    assert!(INITIAL_AGE_MAX_NS + 2 * EVERY_NS <= MODES_TRUSTED_NS && SETTLES_NS < HOLD_NS);
// A tenth is more than clocks' rates differ by.
const _: () = assert!((MODES_TRUSTED_NS + NOTICE_NS) / 10 * 11 < SETTLES_NS);

const OPENING: &str = "opening:";
const CLOSING: &str = "closing:";
const LEAVING: &str = "leaving:";

/// The state in a table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// The table has this mode.
    Mode(TransactionalMode),
    /// The table is held, and becomes `conditional`.
    Opening,
    /// The table is held, and gets this mode.
    Closing(TransactionalMode),
    /// The table was `full`, is held for reads too, and gets this mode.
    Leaving(TransactionalMode),
    /// A state of a later version.
    Unknown,
}

impl TableState {
    /// Parses the text of a row.
    pub fn parse(text: &str) -> TableState {
        let to = |prefix: &str| {
            let (mode, _) = text.strip_prefix(prefix)?.split_once(':')?;
            TransactionalMode::named(mode)
        };
        match TransactionalMode::named(text) {
            Some(mode) => TableState::Mode(mode),
            None if text.starts_with(OPENING) => TableState::Opening,
            None => to(CLOSING)
                .map(TableState::Closing)
                .or(to(LEAVING).map(TableState::Leaving))
                .unwrap_or(TableState::Unknown),
        }
    }

    /// The mode that a held table gets.
    pub fn next(self) -> Option<TransactionalMode> {
        match self {
            TableState::Opening => Some(TransactionalMode::Conditional),
            TableState::Closing(mode) | TableState::Leaving(mode) => Some(mode),
            TableState::Mode(_) | TableState::Unknown => None,
        }
    }
}

/// The next content of a table's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The row stays as it is.
    Same,
    /// The row gets this text.
    Set(String),
    /// The row is deleted.
    Unset,
}

/// The content that a row must get so that the table ends up with this mode. `current` is the row's
/// text, if there is one; `stamp` is unique to this change.
pub fn next(current: Option<&str>, mode: TransactionalMode, stamp: u64) -> Next {
    let told = current.map_or(TableState::Mode(TransactionalMode::Off), TableState::parse);
    let conditional = TransactionalMode::Conditional;
    match told {
        TableState::Mode(now) if now == mode => Next::Same,
        TableState::Opening if mode == conditional => Next::Same,
        TableState::Leaving(next) | TableState::Closing(next) if next == mode => Next::Same,
        TableState::Leaving(_) | TableState::Mode(TransactionalMode::Full) => {
            Next::Set(format!("{LEAVING}{}:{stamp:x}", mode.name()))
        }
        TableState::Mode(now)
            if !has_transactions(now) && now != conditional && mode != conditional =>
        {
            plain(mode)
        }
        TableState::Mode(_) | TableState::Unknown
            if has_transactions(mode) && told != TableState::Mode(conditional) =>
        {
            plain(mode)
        }
        // From one held state to another, the table is held again from the start.
        _ if mode == conditional => Next::Set(format!("{OPENING}{stamp:x}")),
        _ => Next::Set(format!("{CLOSING}{}:{stamp:x}", mode.name())),
    }
}

/// True of a mode in which transactions write to a table. Their writes are made before the mode
/// ends.
fn has_transactions(mode: TransactionalMode) -> bool {
    mode != TransactionalMode::Off && !mode.is_by_statement()
}

/// The row of a mode.
pub fn plain(mode: TransactionalMode) -> Next {
    match mode {
        TransactionalMode::Off => Next::Unset,
        mode => Next::Set(mode.name().to_owned()),
    }
}

/// A table by its keyspace and name.
pub type Name = (Box<str>, Box<str>);

/// Tables that are held, as a core has seen them.
#[derive(Debug, Default)]
pub struct Held {
    seen: HashMap<Name, HeldTable>,
}

/// A table that is held.
#[derive(Debug)]
struct HeldTable {
    /// The text of its row.
    said: Box<str>,
    /// Time at which this text was first seen.
    since_ns: u64,
    /// Upper bound of the timestamps that were ever decided on the table, once it has been held for
    /// long enough.
    last_us: Option<i64>,
}

impl Held {
    /// Takes in the text of all rows, and returns those held for long enough.
    pub fn see<'r>(
        &mut self,
        rows: impl Iterator<Item = (&'r str, &'r str, &'r str)>,
        now_ns: u64,
    ) -> Vec<(Name, Box<str>)> {
        let mut before = std::mem::take(&mut self.seen);
        let mut due = Vec::new();
        for (keyspace, table, text) in
            rows.filter(|(_, _, text)| TableState::parse(text).next().is_some())
        {
            let name: Name = (keyspace.into(), table.into());
            let known = before.remove(&name).filter(|one| *one.said == *text);
            let one = known.unwrap_or_else(|| HeldTable {
                said: text.into(),
                since_ns: now_ns,
                last_us: None,
            });
            if now_ns.saturating_sub(one.since_ns) >= HOLD_NS {
                due.push((name.clone(), text.into()));
            }
            self.seen.insert(name, one);
        }
        due
    }

    /// Upper bound of the timestamps decided on this table: that of its shard when this is first
    /// called.
    pub fn last_us(&mut self, keyspace: &str, table: &str, of_shard_us: i64) -> i64 {
        let name: Name = (keyspace.into(), table.into());
        self.seen.get_mut(&name).map_or(of_shard_us, |one| *one.last_us.get_or_insert(of_shard_us))
    }
}

/// Tables with the mode `full`, as a core has seen them.
#[derive(Debug)]
pub struct Full {
    /// Time for which other proxies may go by another mode. A simulation without changes of modes
    /// sets it to 0.
    pub settles_ns: u64,
    /// Time at which each table was first seen with the mode in an unbroken series of reads, by
    /// keyspace and name.
    since_ns: HashMap<Box<str>, HashMap<Box<str>, u64>>,
}

impl Default for Full {
    fn default() -> Self {
        Self { settles_ns: SETTLES_NS, since_ns: HashMap::new() }
    }
}

impl Full {
    /// Takes in all tables with the mode, as a node's answer has them at `now_ns`. Another proxy
    /// may have asked just before the mode was set, and that was perhaps just before this answer.
    /// `is_gap` says that the reads were interrupted for so long that a table may have had another
    /// mode in between.
    pub fn see(&mut self, tables: &[(&str, &str)], is_gap: bool, now_ns: u64) {
        let before = std::mem::take(&mut self.since_ns);
        for (keyspace, table) in tables {
            let known =
                before.get(*keyspace).and_then(|tables| tables.get(*table)).filter(|_| !is_gap);
            let since_ns = known.copied().unwrap_or(now_ns);
            self.since_ns.entry((*keyspace).into()).or_default().insert((*table).into(), since_ns);
        }
    }

    /// True of a table that has had this mode for so long that no proxy goes by another.
    pub fn is_known_to_all(&self, keyspace: &str, table: &str, now_ns: u64) -> bool {
        let since_ns = self.since_ns.get(keyspace).and_then(|tables| tables.get(table));
        since_ns.is_some_and(|since_ns| now_ns.saturating_sub(*since_ns) >= self.settles_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONDITIONAL: TransactionalMode = TransactionalMode::Conditional;

    #[test]
    fn a_table_is_full_for_all_when_it_was_seen_so_for_long_enough_without_a_gap() {
        let mut full = Full::default();
        full.see(&[("ks", "t")], true, 5);
        assert!(
            !full.is_known_to_all("ks", "t", 4 + SETTLES_NS)
                && full.is_known_to_all("ks", "t", 5 + SETTLES_NS)
        );
        full.see(&[("ks", "t"), ("ks", "other")], false, 7);
        assert!(
            full.is_known_to_all("ks", "t", 5 + SETTLES_NS)
                && !full.is_known_to_all("ks", "other", 5 + SETTLES_NS)
        );
        full.see(&[("ks", "other")], false, 8);
        full.see(&[("ks", "t"), ("ks", "other")], false, 9);
        assert!(
            !full.is_known_to_all("ks", "t", 8 + SETTLES_NS)
                && full.is_known_to_all("ks", "other", 8 + SETTLES_NS)
        );
        full.see(&[("ks", "other")], true, 20);
        assert!(!full.is_known_to_all("ks", "other", 19 + SETTLES_NS));
    }

    #[test]
    fn a_table_is_held_between_the_nodes_and_the_proxies() {
        let set = |text: &str| Next::Set(text.to_owned());
        for (current, mode, wanted) in [
            (None, CONDITIONAL, set("opening:5")),
            (None, TransactionalMode::Off, Next::Same),
            (None, TransactionalMode::Unsafe, set("unsafe")),
            (Some("unsafe"), TransactionalMode::Off, set("closing:off:5")),
            (Some("mixed_reads"), TransactionalMode::Off, set("closing:off:5")),
            (Some("mixed_reads"), TransactionalMode::Observe, set("closing:observe:5")),
            (Some("mixed_reads"), TransactionalMode::Unsafe, set("unsafe")),
            (Some("unsafe"), CONDITIONAL, set("opening:5")),
            (Some("observe"), TransactionalMode::Off, Next::Unset),
            (Some("observe"), TransactionalMode::Unsafe, set("unsafe")),
            (Some("full"), CONDITIONAL, set("leaving:conditional:5")),
            (Some("full"), TransactionalMode::Unsafe, set("leaving:unsafe:5")),
            (Some("full"), TransactionalMode::Off, set("leaving:off:5")),
            (Some("leaving:off:4"), TransactionalMode::Off, Next::Same),
            (Some("leaving:off:4"), TransactionalMode::Full, set("leaving:full:5")),
            (Some("leaving:off:4"), CONDITIONAL, set("leaving:conditional:5")),
            (Some("unsafe"), TransactionalMode::Full, set("full")),
            (Some("full"), TransactionalMode::Full, Next::Same),
            (Some("later's"), CONDITIONAL, set("opening:5")),
            (Some("later's"), TransactionalMode::Full, set("full")),
            (Some("later's"), TransactionalMode::Off, set("closing:off:5")),
            (Some("conditional"), CONDITIONAL, Next::Same),
            (Some("conditional"), TransactionalMode::Off, set("closing:off:5")),
            (Some("conditional"), TransactionalMode::Full, set("closing:full:5")),
            (Some("opening:4"), CONDITIONAL, Next::Same),
            (Some("opening:4"), TransactionalMode::Off, set("closing:off:5")),
            (Some("closing:off:4"), TransactionalMode::Off, Next::Same),
            (Some("closing:off:4"), CONDITIONAL, set("opening:5")),
            (Some("closing:off:4"), TransactionalMode::Full, set("closing:full:5")),
        ] {
            assert_eq!(next(current, mode, 5), wanted, "{current:?} {mode:?}");
        }
        assert_eq!(TableState::parse("closing:off:4").next(), Some(TransactionalMode::Off));
        assert_eq!(TableState::parse("opening:4").next(), Some(CONDITIONAL));
        for text in ["closing:off", "closing:later's:4", "opened"] {
            assert_eq!(TableState::parse(text), TableState::Unknown, "{text}");
        }
        assert_eq!(
            (plain(TransactionalMode::Off), plain(CONDITIONAL)),
            (Next::Unset, set("conditional"))
        );
    }

    #[test]
    fn a_table_does_not_wait_for_later_changes_of_others() {
        let mut held = Held::default();
        let rows = |text: &'static str| [("ks", "t", text)].into_iter();
        held.see(rows("opening:1"), 0);
        assert_eq!((held.last_us("ks", "t", 7), held.last_us("ks", "t", 9)), (7, 7));
        held.see(rows("opening:1"), 1);
        assert_eq!(held.last_us("ks", "t", 9), 7);
        held.see(rows("opening:2"), 2);
        assert_eq!(held.last_us("ks", "t", 9), 9, "it was another's in between, perhaps");
    }

    #[test]
    fn a_table_is_held_for_as_long_as_all_need_to_know() {
        let mut held = Held::default();
        let rows = |text: &'static str| [("ks", "t", text), ("ks", "u", "conditional")].into_iter();
        assert_eq!(held.see(rows("opening:1"), 0), []);
        assert_eq!(held.see(rows("opening:1"), HOLD_NS - 1), []);
        let name = || ("ks".into(), "t".into());
        assert_eq!(held.see(rows("opening:1"), HOLD_NS), [(name(), "opening:1".into())]);
        // Another change begins anew, as does one that was not seen in between.
        assert_eq!(held.see(rows("opening:2"), HOLD_NS + 1), []);
        assert_eq!(held.see(rows("unsafe"), HOLD_NS + 2), []);
        assert_eq!(held.see(rows("opening:2"), 2 * HOLD_NS + 1), []);
        assert_eq!(held.see(rows("opening:2"), 3 * HOLD_NS + 1), [(name(), "opening:2".into())]);
    }
}
