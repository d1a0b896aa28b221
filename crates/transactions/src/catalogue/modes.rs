//! Which tables' statements are decided by the proxies whatever their text says: those of which the
//! mode is `mixed_reads`, `full` or `conditional`, or on its way to or from that; and writes to
//! those that have a rule.
//!
//! A core knows them from when it first knows the ring, and reads them again every two seconds.
//! What it knows is kept while they cannot be read.

use std::collections::HashMap;

use shunt_fleet::schema::{FACADE_KEYSPACE, META_KEYSPACE};
use shunt_language::ast::{self, QualifiedName};
use shunt_language::transaction::mode::TransactionalMode;
use shunt_wire::cql::statement::{self, Identifier, Kind, Statement};

use crate::catalogue::mentions::Mentions;
use crate::catalogue::rules::Rules;
use crate::catalogue::switching::Told;

/// What is asked.
pub const QUESTION: &str = "SELECT keyspace_name, table_name, mode FROM shunt_meta.transactional";

/// Tables by keyspace and name, with their modes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableModes {
    routed: HashMap<Box<str>, HashMap<Box<str>, Routing>>,
    /// One of them has the mode `observe`.
    has_observed: bool,
    /// Which locks writes to a table have to name: all are transactions.
    pub rules: Rules,
    /// This process stood still, or began without a quorum's word. Any table may have another mode,
    /// and no statement on a table goes to a node before the modes are known.
    pub is_behind: bool,
}

/// What becomes of statements on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Those of this mode.
    Mode(TransactionalMode),
    /// Writes are refused, until all proxies know the next mode.
    Held,
    /// And reads.
    HeldForAll,
}

impl Routing {
    /// True if nodes are not asked for rows.
    fn takes_reads(self) -> bool {
        matches!(self, Routing::Mode(TransactionalMode::Full) | Routing::HeldForAll)
    }
}

const OBSERVED: Routing = Routing::Mode(TransactionalMode::Observe);

/// What a statement does with its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Truncate,
}

impl Access {
    pub fn of(kind: Kind) -> Access {
        match kind {
            Kind::Select => Access::Read,
            Kind::Truncate => Access::Truncate,
            _ => Access::Write,
        }
    }
}

/// Keyspaces of nodes, Cassandra 6 included. Users may have others whose names begin as these do.
const OF_NODES: [&str; 10] = [
    "system",
    "system_schema",
    "system_auth",
    "system_distributed",
    "system_traces",
    "system_views",
    "system_virtual_schema",
    "system_cluster_metadata",
    "system_accord",
    "system_accord_debug",
];

/// True of a keyspace whose tables may take part in transactions.
pub fn may_have_modes(keyspace: &str) -> bool {
    ![FACADE_KEYSPACE, META_KEYSPACE].contains(&keyspace) && !OF_NODES.contains(&keyspace)
}

/// A table as a prepared statement names it: its keyspace, if one is known, and its name.
pub type Named = (Option<Box<str>>, Box<str>);

impl TableModes {
    /// Takes one in, as its row says. One of a mode that sends nothing here, or of a later
    /// version's, is not.
    pub fn add(&mut self, keyspace: &str, table: &str, mode: &str) {
        // Rows for others can only have been written past the proxies.
        if !may_have_modes(keyspace) {
            return;
        }
        let routing = match Told::read(mode) {
            Told::Mode(TransactionalMode::Off | TransactionalMode::Unsafe) => return,
            Told::Mode(mode) => Routing::Mode(mode),
            Told::Opening | Told::Closing(_) => Routing::Held,
            Told::Leaving(_) => Routing::HeldForAll,
            // What a later version means by a mode of its own must not go past it: it is refused
            // here, where it becomes a transaction.
            Told::Unknown => Routing::Mode(TransactionalMode::Full),
        };
        self.has_observed |= routing == OBSERVED;
        self.routed.entry(keyspace.into()).or_default().insert(table.into(), routing);
    }

    /// What becomes of statements on a table; none: they are nobody's business here.
    pub fn routing(&self, keyspace: &str, table: &str) -> Option<Routing> {
        self.routed.get(keyspace)?.get(table).copied()
    }

    /// The tables that are decided by rows in memory either here or there, by keyspace and name.
    pub fn decided_otherwise<'m>(&'m self, other: &'m TableModes) -> Vec<(&'m str, &'m str)> {
        let here = self.decided().filter(|table| !other.decides(*table));
        here.chain(other.decided().filter(|table| !self.decides(*table))).collect()
    }

    fn decided(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self
            .routed
            .iter()
            .flat_map(|(keyspace, tables)| tables.keys().map(move |table| (&**keyspace, &**table)));
        all.filter(|table| self.decides(*table))
    }

    fn decides(&self, (keyspace, table): (&str, &str)) -> bool {
        self.routing(keyspace, table) == Some(Routing::Mode(TransactionalMode::Conditional))
    }

    /// True if every table of these that is observed was so before.
    pub fn observes_no_more_than(&self, before: &TableModes) -> bool {
        let mut tables = self
            .routed
            .iter()
            .flat_map(|(keyspace, tables)| tables.iter().map(move |one| (keyspace, one)));
        !self.has_observed
            || tables.all(|(keyspace, (table, routing))| {
                *routing != OBSERVED || before.is_observed(keyspace, table)
            })
    }

    /// Says of what was read before this core began that no quorum has said so.
    pub fn set_in_doubt(&mut self) {
        self.is_behind = true;
    }

    /// True if no statement on a table is sent to nodes, for its mode is not known.
    pub fn are_in_doubt(&self) -> bool {
        self.is_behind
    }

    /// What was read before this core began; who has stood still since goes on waiting.
    pub fn begin_with(&mut self, read: TableModes) {
        let is_behind = self.is_behind || read.is_behind;
        *self = TableModes { is_behind, ..read };
    }

    /// True if no statement is a transaction but by its text.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.routed.is_empty() && self.rules.is_empty() && !self.is_behind
    }

    /// True if nodes decide what is asked of one of them, and the proxies would have.
    pub fn has_observed(&self) -> bool {
        self.has_observed
    }

    /// True of such a table.
    pub fn is_observed(&self, keyspace: &str, table: &str) -> bool {
        self.routing(keyspace, table) == Some(OBSERVED)
    }

    /// True of tables whose statements may go to nodes, whatever the proxies think of them. None:
    /// nobody knows which.
    pub fn leaves_to_nodes(&self, tables: Option<&[Named]>) -> bool {
        if self.is_behind {
            return false;
        }
        let is_left = |routing: &Routing| *routing == OBSERVED;
        let Some(tables) = tables else {
            return self.rules.is_empty()
                && self.routed.values().flat_map(HashMap::values).all(is_left);
        };
        tables.iter().all(|(keyspace, table)| {
            let Some(keyspace) = keyspace.as_deref() else { return false };
            let has_rules = may_have_modes(keyspace) && !self.rules.of(keyspace, table).is_empty();
            !has_rules && self.routing(keyspace, table).as_ref().is_none_or(is_left)
        })
    }

    fn takes(&self, keyspace: &str, table: &str, access: Access) -> bool {
        if self.is_behind && may_have_modes(keyspace) {
            return true;
        }
        if access != Access::Read
            && may_have_modes(keyspace)
            && !self.rules.of(keyspace, table).is_empty()
        {
            return true;
        }
        let Some(routing) = self.routing(keyspace, table) else { return false };
        match access {
            Access::Read => routing.takes_reads(),
            Access::Write => true,
            Access::Truncate => match routing {
                Routing::Held | Routing::HeldForAll => true,
                Routing::Mode(mode) => mode.is_by_statement(),
            },
        }
    }

    /// True if the name of one of these tables is in a text. Of a batch that is too long to be a
    /// transaction, and to be read for every client that sends one: it is refused rather than let
    /// past. So is one that comes while nobody knows which tables those are: it waits.
    #[cold]
    pub fn may_be_in(&self, text: &str) -> bool {
        if self.is_behind {
            return true;
        }
        let routed = self.routed.values().flatten().filter(|(_, routing)| **routing != OBSERVED);
        let names: Mentions<'_> =
            routed.map(|(name, _)| &**name).chain(self.rules.tables()).collect();
        names.may_be_in(text)
    }

    /// True of a statement on one of these tables, and of one of which nobody can say which it is
    /// on: it is read as a transaction, and refused.
    #[cold]
    pub fn take_any(&self, tables: Option<&[Named]>, access: Access) -> bool {
        let has_full =
            || self.routed.values().flat_map(HashMap::values).any(|routing| routing.takes_reads());
        let Some(tables) = tables else {
            return access != Access::Read || self.is_behind || has_full();
        };
        tables.iter().any(|(keyspace, table)| {
            keyspace.as_deref().is_some_and(|keyspace| self.takes(keyspace, table, access))
        })
    }
}

/// The tables that a text reads or writes; none: it reads or writes rows, and cannot be read.
/// `session`: the keyspace of names without one.
pub fn tables_of(parsed: &Statement<'_>, text: &str, session: Option<&str>) -> Option<Vec<Named>> {
    match (parsed.kind, &parsed.table) {
        (
            Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate,
            Some(table),
        ) => {
            let keyspace =
                parsed.keyspace.as_ref().map(Identifier::to_string).or(session.map(str::to_owned));
            Some(vec![(keyspace.map(Into::into), table.to_string().into())])
        }
        // Its table comes late, and all before it is not worth reading.
        (Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate, None)
            if text.len() > statement::TEXT_BYTES_MAX =>
        {
            None
        }
        // Of a batch only its first statement is known from looking at it; and some statements have
        // to be read as a whole.
        (
            Kind::Select
            | Kind::Insert
            | Kind::Update
            | Kind::Delete
            | Kind::Truncate
            | Kind::Batch,
            _,
        ) => read(text, session),
        _ => Some(Vec::new()),
    }
}

fn read(text: &str, session: Option<&str>) -> Option<Vec<Named>> {
    let named = |table: &QualifiedName| -> Named {
        (table.keyspace.as_deref().or(session).map(Into::into), table.name.as_str().into())
    };
    match shunt_language::parse(text).ok()?.statement {
        ast::Statement::Batch(batch) => {
            Some(batch.mutations.iter().map(|one| named(one.table())).collect())
        }
        ast::Statement::Mutation(mutation) => Some(vec![named(mutation.table())]),
        ast::Statement::Select(select) => Some(vec![named(&select.table)]),
        ast::Statement::Truncate(table) => Some(vec![named(&table)]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::statement::classify;

    use super::*;

    /// Only the head of a long text is read. What it hides is taken, and what it shows goes by its
    /// table.
    #[test]
    fn no_long_text_hides_a_table_with_a_mode() {
        let mut modes = TableModes::default();
        modes.add("ks", "full", "full");
        let padding = " ".repeat(statement::TEXT_BYTES_MAX);
        for (text, is_taken) in [
            ("INSERT INTO full (k) VALUES (1); /* {} */", true),
            ("INSERT INTO ks./* {} */full (k) VALUES (1)", true),
            ("UPDATE {} other SET v = 1 WHERE k = 1", true),
            ("SELECT {} a FROM full WHERE k = 1", true),
            ("TRUNCATE full {}", true),
            ("INSERT INTO other (k) VALUES (1); /* {} */", false),
            ("SELECT a FROM other WHERE k = 1 {} LIMIT 1", false),
        ] {
            let text = text.replace("{}", &padding);
            let parsed = classify(&text);
            let tables = tables_of(&parsed, &text, Some("ks"));
            assert_eq!(
                modes.take_any(tables.as_deref(), Access::of(parsed.kind)),
                is_taken,
                "{}",
                text.replace("  ", "")
            );
        }
    }

    #[test]
    fn statements_on_tables_with_a_mode_are_taken() {
        let mut modes = TableModes::default();
        for (table, mode) in [
            ("mixed", "mixed_reads"),
            ("full", "full"),
            ("bare", "unsafe"),
            ("later", "later's"),
            ("leases", "conditional"),
            ("watched", "observe"),
            ("opened", "opening:1"),
            ("closed", "closing:unsafe:2"),
            ("left", "leaving:unsafe:2"),
        ] {
            modes.add("ks", table, mode);
            modes.add("system", "local", mode);
        }
        let takes = |text: &str, session: Option<&str>| {
            let parsed = classify(text);
            modes.take_any(tables_of(&parsed, text, session).as_deref(), Access::of(parsed.kind))
        };
        for (text, session, taken) in [
            ("INSERT INTO ks.mixed (k) VALUES (1)", None, true),
            ("UPDATE mixed SET a = 1 WHERE k = 1", Some("ks"), true),
            ("DELETE FROM \"ks\".MIXED WHERE k = 1", Some("other"), true),
            ("UPDATE mixed SET a = 1 WHERE k = 1", Some("other"), false),
            ("UPDATE mixed SET a = 1 WHERE k = 1", None, false),
            ("SELECT * FROM mixed WHERE k = 1", Some("ks"), false),
            ("SELECT * FROM full WHERE k = 1", Some("ks"), true),
            ("SELECT * FROM ks.full", None, true),
            ("INSERT INTO ks.bare (k) VALUES (1)", None, false),
            ("INSERT INTO ks.later (k) VALUES (1)", None, true),
            ("DELETE m[(int)blobAsInt(0x01)] FROM ks.mixed WHERE k = 1", None, true),
            ("DELETE m[(int) :x] FROM ks.bare WHERE k = 1", None, false),
            ("SELECT * FROM system.local", None, false),
            (
                "BEGIN BATCH INSERT INTO ks.bare (k) VALUES (1) INSERT INTO mixed (k) VALUES (1) APPLY BATCH",
                Some("ks"),
                true,
            ),
            ("BEGIN BATCH INSERT INTO ks.bare (k) VALUES (1) APPLY BATCH", Some("ks"), false),
            ("TRUNCATE ks.mixed", None, false),
            ("TRUNCATE full", Some("ks"), false),
            ("TRUNCATE TABLE leases", Some("ks"), true),
            ("TRUNCATE ks.closed", None, true),
            ("SELECT * FROM ks.leases", None, false),
            ("UPDATE ks.leases SET owner = ? WHERE name = ? IF owner = ?", None, true),
            ("UPDATE ks.opened SET owner = ? WHERE name = ?", None, true),
            ("SELECT * FROM ks.opened", None, false),
            ("SELECT * FROM ks.left", None, true),
            ("INSERT INTO ks.left (k) VALUES (1)", None, true),
            ("TRUNCATE ks.left", None, true),
            ("DELETE FROM ks.closed WHERE name = ?", None, true),
            ("UPDATE ks.watched SET owner = ? WHERE name = ? IF owner = ?", None, true),
            ("INSERT INTO watched (name) VALUES (?)", Some("ks"), true),
            ("TRUNCATE ks.watched", None, true),
            ("SELECT * FROM ks.watched", None, false),
        ] {
            assert_eq!(takes(text, session), taken, "{text}");
        }
        let deep = format!(
            "BEGIN BATCH UPDATE ks.bare SET v = 1{} WHERE k = 1 APPLY BATCH",
            " + 1".repeat(60)
        );
        assert!(shunt_language::parse(&deep).is_err() && takes(&deep, None));
        assert!(
            modes.may_be_in("BEGIN BATCH insert into KS.MIXED")
                && !modes.may_be_in("INSERT INTO ks.bare")
        );
        assert!(!modes.is_empty() && TableModes::default().is_empty());
        let behind = TableModes { is_behind: true, ..TableModes::default() };
        let named = |keyspace: &str| [(Some(Box::from(keyspace)), Box::from("t"))];
        for access in [Access::Read, Access::Write, Access::Truncate] {
            assert!(
                behind.take_any(Some(&named("ks")), access)
                    && !behind.take_any(Some(&named("system")), access)
            );
        }
        assert!(!behind.is_empty() && !behind.leaves_to_nodes(None));
        assert_eq!(modes.decided_otherwise(&modes.clone()), []);
        assert_eq!(TableModes::default().decided_otherwise(&modes), [("ks", "leases")]);
        assert_eq!(modes.decided_otherwise(&TableModes::default()), [("ks", "leases")]);
    }

    #[test]
    fn tables_that_are_observed_are_left_to_nodes() {
        let mut modes = TableModes::default();
        let named = |table: &str| -> Named { (Some("ks".into()), table.into()) };
        modes.add("ks", "bare", "unsafe");
        assert!(!modes.has_observed());
        modes.add("ks", "watched", "observe");
        let before = TableModes::default();
        assert!(!modes.observes_no_more_than(&before) && before.observes_no_more_than(&modes));
        assert!(modes.observes_no_more_than(&modes));
        assert!(
            modes.has_observed()
                && modes.is_observed("ks", "watched")
                && !modes.is_observed("other", "watched")
        );
        assert!(
            modes.leaves_to_nodes(None)
                && modes.leaves_to_nodes(Some(&[named("watched"), named("bare")]))
        );
        assert!(
            !modes.leaves_to_nodes(Some(&[(None, "watched".into())])),
            "nobody knows which it is"
        );
        assert!(!modes.may_be_in("BEGIN BATCH INSERT INTO ks.watched"));
        for (table, mode) in [
            ("leases", "conditional"),
            ("later", "later's"),
            ("opened", "opening:1"),
            ("full", "full"),
        ] {
            let mut modes = modes.clone();
            modes.add("ks", table, mode);
            assert!(
                !modes.leaves_to_nodes(None)
                    && !modes.leaves_to_nodes(Some(&[named("watched"), named(table)])),
                "{mode}"
            );
            assert!(modes.leaves_to_nodes(Some(&[named("watched")])));
        }
        let row = crate::catalogue::rules::Row {
            table_name: "ks.watched",
            lock: Some("l"),
            is_fast: false,
            mode: Some("require"),
        };
        assert!(modes.rules.add(&row) && !modes.leaves_to_nodes(Some(&[named("watched")])));
        assert!(!modes.leaves_to_nodes(None));
    }

    #[test]
    fn writes_to_tables_with_a_rule_are_taken_whatever_the_mode() {
        let mut modes = TableModes::default();
        assert!(modes.is_empty());
        for table_name in
            ["ks.Ruled", "shunt_meta.lock", "systematic.ruled", "system_auth.roles", "none"]
        {
            let row = crate::catalogue::rules::Row {
                table_name,
                lock: Some("l"),
                is_fast: false,
                mode: Some("require"),
            };
            assert_eq!(modes.rules.add(&row), table_name != "none");
        }
        assert!(!modes.is_empty());
        let takes = |text: &str| {
            let parsed = classify(text);
            modes.take_any(tables_of(&parsed, text, Some("ks")).as_deref(), Access::of(parsed.kind))
        };
        for (text, taken) in [
            ("INSERT INTO ruled (k) VALUES (1)", true),
            ("UPDATE ks.RULED SET a = 1 WHERE k = 1 IF EXISTS", true),
            ("TRUNCATE ks.ruled", true),
            (
                "BEGIN BATCH INSERT INTO bare (k) VALUES (1) INSERT INTO ruled (k) VALUES (1) APPLY BATCH",
                true,
            ),
            ("SELECT * FROM ruled WHERE k = 1", false),
            ("INSERT INTO bare (k) VALUES (1)", false),
            ("INSERT INTO other.ruled (k) VALUES (1)", false),
            ("UPDATE shunt_meta.lock SET a = 1 WHERE k = 1", false),
            ("UPDATE systematic.ruled SET a = 1 WHERE k = 1", true),
            ("INSERT INTO system_auth.roles (role) VALUES ('a')", false),
        ] {
            assert_eq!(takes(text), taken, "{text}");
        }
        assert!(
            modes.may_be_in("BEGIN BATCH insert into KS.RULED")
                && !modes.may_be_in("INSERT INTO ks.bare")
        );
        assert!(modes.take_any(None, Access::Write) && !modes.take_any(None, Access::Read));
    }

    /// To miss one would let a write past what a transaction holds.
    #[test]
    fn a_table_is_found_in_a_text_however_it_is_written() {
        let mut modes = TableModes::default();
        for table in ["mixed", "Quoted", "_low", "9th", "n\u{e4}me"] {
            modes.add("ks", table, "mixed_reads");
        }
        for text in [
            "INSERT INTO ks.mixed(k) VALUES (1)",
            "INSERT INTO ks.MiXeD (k) VALUES (1)",
            "INSERT INTO KS .\tmixed(k) VALUES (1)",
            "INSERT INTO \"ks\".\"mixed\"(k) VALUES (1)",
            "INSERT INTO\"mixed\"(k) VALUES (1)",
            "INSERT INTO ks./* */mixed/* */(k) VALUES (1)",
            "INSERT INTO --\nmixed--\n(k) VALUES (1)",
            "INSERT INTO //\rmixed//\r(k) VALUES (1)",
            "UPDATE mixed",
            "UPDATE ks.\"Quoted\" SET v = 1 WHERE k = 1",
            "DELETE FROM ks.\"_low\" WHERE k = 1",
            "DELETE FROM ks.\"9th\" WHERE k = 1",
            "DELETE FROM ks.\"n\u{e4}me\" WHERE k = 1",
            "DELETE FROM \"a\"\"b\".mixed WHERE k = 1",
            "INSERT INTO bare (k) VALUES ('''') UPDATE mixed SET v = 1 WHERE k = 'x'",
            "INSERT INTO bare (k) VALUES ($$'$$)UPDATE \u{e4}mixed",
        ] {
            assert!(modes.may_be_in(text), "{text}");
        }
        assert!(!modes.may_be_in("INSERT INTO ks.bare (k) VALUES (1)") && !modes.may_be_in(""));
    }

    /// Each of these names looked for in the whole of this text would be more than a hundred
    /// billion steps.
    #[test]
    fn ten_thousand_tables_are_looked_for_in_the_longest_text_at_once() {
        let mut modes = TableModes::default();
        for number in 0..10_000 {
            modes.add("ks", &format!("tabletabletable{number}"), "mixed_reads");
        }
        let text = "tabletable ".repeat((16 << 20) / 11);
        assert!(!modes.may_be_in(&text));
        assert!(modes.may_be_in(&format!("{text} tabletabletable9999")));
    }
}
