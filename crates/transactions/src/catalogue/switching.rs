//! How a table comes to have the mode `conditional`, and to lose it; and how it loses `full`.
//!
//! With this mode the proxies decide conditional statements, without it nodes do: never both, for
//! neither sees what the other has in mind. So between the two the table is held: its row says
//! `opening:..` or `closing:..`, every proxy that has read this refuses writes to the table, and
//! whoever owns its keyspace's shard gives it the next mode when that has been so for [`HOLD_NS`],
//! by its own clock. By then every proxy has read it, and what they had sent before has an outcome.
//!
//! With `full` clients are told of writes that are not made yet, as all who read wait for them.
//! Without it they are read from nodes. So a table that is to lose `full` is held as well
//! (`leaving:..`), for reads too, and for as long as its owner has anything to write to it.
//!
//! With `unsafe` and `mixed_reads` clients may be told that a transaction is done whose writes are
//! in its record alone. A table that is to have no transactions any more is held (`closing:..`)
//! until its owner has made them all.
//!
//! A core goes by the modes that it knows for [`KNOWN_NS`]: one that cannot read them decides
//! nothing by rows in memory after that.
//!
//! This must never: have a proxy decide while another sends such statements to nodes; take one
//! change for another, however they follow on each other; have somebody read from nodes what others
//! were told is written, and is not; leave a table without a mode while a write of a transaction on
//! it is to be made.

use std::collections::HashMap;

use shunt_language::transaction::mode::TransactionalMode;

use crate::SECOND_NS;

/// How long a table is held.
pub const HOLD_NS: u64 = 15 * SECOND_NS;
/// How long modes count after they were asked for.
pub const KNOWN_NS: u64 = 6 * SECOND_NS;

/// Between two looks.
pub const EVERY_NS: u64 = 2 * SECOND_NS;
/// After a table has come to have another mode other proxies may go by the former one for so long.
pub const SETTLES_NS: u64 = KNOWN_NS + 2 * EVERY_NS;

const OPENING: &str = "opening:";
const CLOSING: &str = "closing:";
const LEAVING: &str = "leaving:";

/// What the row of a table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Mode(TransactionalMode),
    /// It is held, and will be `conditional`.
    Opening,
    /// It is held, and will be this.
    Closing(TransactionalMode),
    /// It is held, was `full`, and will be this: nobody reads it from nodes either.
    Leaving(TransactionalMode),
    /// A later version's.
    Unknown,
}

impl Told {
    pub fn read(text: &str) -> Told {
        let to = |prefix: &str| {
            let (mode, _) = text.strip_prefix(prefix)?.split_once(':')?;
            TransactionalMode::named(mode)
        };
        match TransactionalMode::named(text) {
            Some(mode) => Told::Mode(mode),
            None if text.starts_with(OPENING) => Told::Opening,
            None => to(CLOSING)
                .map(Told::Closing)
                .or(to(LEAVING).map(Told::Leaving))
                .unwrap_or(Told::Unknown),
        }
    }

    /// What it will be when it is held no more.
    pub fn next(self) -> Option<TransactionalMode> {
        match self {
            Told::Opening => Some(TransactionalMode::Conditional),
            Told::Closing(mode) | Told::Leaving(mode) => Some(mode),
            Told::Mode(_) | Told::Unknown => None,
        }
    }
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It says so already.
    Same,
    Set(String),
    Unset,
}

/// What the row of a table is to say, of which it says `current`, if there is one, so that the
/// table has this mode in the end. `stamp`: no other change has it.
pub fn next(current: Option<&str>, mode: TransactionalMode, stamp: u64) -> Next {
    let told = current.map_or(Told::Mode(TransactionalMode::Off), Told::read);
    let conditional = TransactionalMode::Conditional;
    match told {
        Told::Mode(now) if now == mode => Next::Same,
        Told::Opening if mode == conditional => Next::Same,
        Told::Leaving(next) | Told::Closing(next) if next == mode => Next::Same,
        Told::Leaving(_) | Told::Mode(TransactionalMode::Full) => {
            Next::Set(format!("{LEAVING}{}:{stamp:x}", mode.name()))
        }
        Told::Mode(now) if !has_transactions(now) && now != conditional && mode != conditional => {
            plain(mode)
        }
        Told::Mode(_) | Told::Unknown
            if has_transactions(mode) && told != Told::Mode(conditional) =>
        {
            plain(mode)
        }
        // From one held state to another it is held anew.
        _ if mode == conditional => Next::Set(format!("{OPENING}{stamp:x}")),
        _ => Next::Set(format!("{CLOSING}{}:{stamp:x}", mode.name())),
    }
}

/// True of a mode with which transactions write to a table. If they do no more, what they have
/// written is made first.
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
    seen: HashMap<Name, OneHeld>,
}

/// A table that is held.
#[derive(Debug)]
struct OneHeld {
    /// What its row says.
    said: Box<str>,
    /// Since when that has been seen.
    since_ns: u64,
    /// A timestamp that nothing which was ever decided on it is above; known once it has been held
    /// for long enough.
    last_us: Option<i64>,
}

impl Held {
    /// What all rows say now; those are told that have said the same for long enough.
    pub fn see<'r>(
        &mut self,
        rows: impl Iterator<Item = (&'r str, &'r str, &'r str)>,
        now_ns: u64,
    ) -> Vec<(Name, Box<str>)> {
        let mut before = std::mem::take(&mut self.seen);
        let mut due = Vec::new();
        for (keyspace, table, text) in rows.filter(|(_, _, text)| Told::read(text).next().is_some())
        {
            let name: Name = (keyspace.into(), table.into());
            let known = before.remove(&name).filter(|one| *one.said == *text);
            let one = known.unwrap_or_else(|| OneHeld {
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

    /// A timestamp that nothing which was ever decided on this table is above: that of its shard,
    /// when it is asked for first.
    pub fn last_us(&mut self, keyspace: &str, table: &str, of_shard_us: i64) -> i64 {
        let name: Name = (keyspace.into(), table.into());
        self.seen.get_mut(&name).map_or(of_shard_us, |one| *one.last_us.get_or_insert(of_shard_us))
    }
}

/// Tables with the mode `full`, as a core has seen them.
#[derive(Debug)]
pub struct Full {
    /// How long that takes. A simulation in which no mode changes has it at 0.
    pub settles_ns: u64,
    /// By keyspace and name, since when each look has found it so.
    since_ns: HashMap<Box<str>, HashMap<Box<str>, u64>>,
}

impl Default for Full {
    fn default() -> Self {
        Self { settles_ns: SETTLES_NS, since_ns: HashMap::new() }
    }
}

impl Full {
    /// What all rows say now, as it was asked for then. `is_gap`: nobody has looked for so long
    /// that it may have been otherwise meanwhile.
    pub fn see(&mut self, tables: &[(&str, &str)], is_gap: bool, asked_ns: u64) {
        let before = std::mem::take(&mut self.since_ns);
        for (keyspace, table) in tables {
            let known =
                before.get(*keyspace).and_then(|tables| tables.get(*table)).filter(|_| !is_gap);
            let since_ns = known.copied().unwrap_or(asked_ns);
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
        assert_eq!(Told::read("closing:off:4").next(), Some(TransactionalMode::Off));
        assert_eq!(Told::read("opening:4").next(), Some(CONDITIONAL));
        for text in ["closing:off", "closing:later's:4", "opened"] {
            assert_eq!(Told::read(text), Told::Unknown, "{text}");
        }
        assert_eq!(
            (plain(TransactionalMode::Off), plain(CONDITIONAL)),
            (Next::Unset, set("conditional"))
        );
    }

    #[test]
    fn what_other_tables_have_had_since_holds_up_no_table() {
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
