//! Tables whose statements the proxies decide, whatever the text says: those with the mode
//! `mixed_reads`, `full` or `conditional`, or on their way to or from it; and writes to tables that
//! have a rule.
//!
//! A core is given the modes when it first hears of the ring, with the time of the question for
//! them ([`InitialModes`]), and reads them again every two seconds. It keeps the last modes while
//! they cannot be read, and trusts them for
//! [`MODES_TRUSTED_NS`](super::switching::MODES_TRUSTED_NS) ([`Trust`]).

use std::collections::{BTreeSet, HashMap};

use shunt_fleet::schema::{LOCKS_KEYSPACE, META_KEYSPACE};
use shunt_language::ast::{self, QualifiedName};
use shunt_language::transaction::{self, mode::TransactionalMode};
use shunt_wire::cql::statement::{self, Identifier, Kind, Statement};

use crate::catalogue::alteration;
use crate::catalogue::mentions::Mentions;
use crate::catalogue::rules::Rules;
use crate::catalogue::switching::{INITIAL_AGE_MAX_NS, TableState};

/// The statement that reads all modes.
pub const QUESTION: &str =
    "SELECT keyspace_name, table_name, mode FROM shunt_meta.transactional WHERE enabled = true";

/// The keyspaces whose statements go by the modes and rules that a core knows. In all others any
/// table may have another mode, or a rule, by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Every keyspace.
    #[default]
    Full,
    /// Keyspaces in which no table had a mode or a rule when these were last read.
    OnlyUnusedKeyspaces,
    /// None: this process was paused, or began without a quorum.
    Nothing,
}

/// Modes by keyspace and table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableModes {
    routed: HashMap<Box<str>, HashMap<Box<str>, Routing>>,
    /// Keyspaces with a table of the mode `unsafe`, which routes nothing.
    with_unsafe: BTreeSet<Box<str>>,
    /// A table has the mode `observe`.
    has_observed: bool,
    /// Locks that writes to a table must name; such writes are transactions.
    pub rules: Rules,
    /// Statements of keyspaces beyond it go to no node until the modes are known.
    pub trust: Trust,
}

/// Modes and rules that the control plane read for cores that begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialModes {
    /// The modes and rules.
    pub modes: TableModes,
    /// Time on the cores' clock before the first question for them was sent.
    pub asked_ns: u64,
}

/// The reason why a core does not serve tables by the modes that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No quorum has told them.
    NoQuorum,
    /// Tables may have got other modes since the control plane asked, or the core has missed the
    /// answer.
    Old,
}

impl InitialModes {
    /// The doubt of a core that takes in these modes at this time.
    pub fn doubt(&self, now_ns: u64) -> Option<Doubt> {
        if self.modes.are_in_doubt() {
            return Some(Doubt::NoQuorum);
        }
        let age_ns = now_ns.saturating_sub(self.asked_ns);
        (age_ns > INITIAL_AGE_MAX_NS).then_some(Doubt::Old)
    }
}

/// The way in which statements on a table are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By this mode.
    Mode(TransactionalMode),
    /// Writes are refused until every proxy knows the next mode.
    Held,
    /// Reads and writes are refused until then.
    HeldForAll,
}

impl Routing {
    /// True if nodes are not asked for rows.
    fn takes_reads(self) -> bool {
        matches!(self, Routing::Mode(TransactionalMode::Full) | Routing::HeldForAll)
    }
}

const OBSERVED: Routing = Routing::Mode(TransactionalMode::Observe);

/// Access of a statement to its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads rows.
    Read,
    /// Writes rows.
    Write,
    /// Truncates the table.
    Truncate,
    /// Gives the table options that a table with a mode cannot have.
    Alter,
    /// Adds a column that a table with the mode `conditional` or `observe` cannot have.
    AddColumn,
}

impl Access {
    /// The access of a statement with this text.
    #[inline]
    pub fn of_text(kind: Kind, text: &str) -> Access {
        match kind {
            Kind::Ddl if alteration::adds_unfit_column(text) => Access::AddColumn,
            kind => Access::of(kind),
        }
    }

    /// The access of a kind of statement, whatever its text.
    #[inline]
    pub fn of(kind: Kind) -> Access {
        match kind {
            Kind::Select => Access::Read,
            Kind::Truncate => Access::Truncate,
            Kind::Ddl => Access::Alter,
            _ => Access::Write,
        }
    }
}

/// Keyspaces of nodes, up to Cassandra 6. Users may have other keyspaces whose names begin like
/// these.
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
    ![LOCKS_KEYSPACE, META_KEYSPACE].contains(&keyspace) && !OF_NODES.contains(&keyspace)
}

/// A table as a prepared statement names it: the keyspace, if it is known, and the name.
pub type TableName = (Option<Box<str>>, Box<str>);

impl TableModes {
    /// Adds a table with the mode in its row. Modes that route nothing to the proxies are left out.
    pub fn add(&mut self, keyspace: &str, table: &str, mode: &str) {
        // Rows for other keyspaces can only have been written past the proxies.
        if !may_have_modes(keyspace) {
            return;
        }
        let routing = match TableState::parse(mode) {
            TableState::Mode(TransactionalMode::Off) => return,
            TableState::Mode(TransactionalMode::Unsafe) => {
                self.with_unsafe.insert(keyspace.into());
                return;
            }
            TableState::Mode(mode) => Routing::Mode(mode),
            TableState::Opening | TableState::Closing(_) => Routing::Held,
            TableState::Leaving(_) => Routing::HeldForAll,
            // A later version's mode must not be bypassed: the statement becomes a transaction, and
            // is refused there.
            TableState::Unknown => Routing::Mode(TransactionalMode::Full),
        };
        self.has_observed |= routing == OBSERVED;
        self.routed.entry(keyspace.into()).or_default().insert(table.into(), routing);
    }

    /// The way in which statements on a table are decided; none if nodes decide them.
    pub fn routing(&self, keyspace: &str, table: &str) -> Option<Routing> {
        self.routed.get(keyspace)?.get(table).copied()
    }

    /// True if a plan on this table that was made with the other modes may not be used with these.
    /// A table of the mode `unsafe` counts as its keyspace.
    pub fn differs_on(&self, other: &TableModes, keyspace: &str, table: &str) -> bool {
        self.routing(keyspace, table) != other.routing(keyspace, table)
            || self.with_unsafe.contains(keyspace) != other.with_unsafe.contains(keyspace)
    }

    /// Tables that exactly one of the two decides by rows in memory, by keyspace and name.
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

    /// True if every table that is observed was observed before.
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

    /// Marks modes that were read without a quorum.
    pub fn set_in_doubt(&mut self) {
        self.trust = Trust::Nothing;
    }

    /// True if the modes of some keyspace, or of all, are unknown.
    #[inline]
    pub fn are_in_doubt(&self) -> bool {
        self.trust != Trust::Full
    }

    /// True if a table of any keyspace has a mode other than `off`, or a rule.
    pub fn has_use(&self) -> bool {
        !self.routed.is_empty() || !self.with_unsafe.is_empty() || !self.rules.is_empty()
    }

    /// True of a keyspace whose tables may have another mode, or a rule, than is known here.
    fn is_doubted(&self, keyspace: &str) -> bool {
        let is_used = || {
            self.routed.contains_key(keyspace)
                || self.with_unsafe.contains(keyspace)
                || self.rules.has_keyspace(keyspace)
        };
        match self.trust {
            Trust::Full => false,
            Trust::OnlyUnusedKeyspaces => may_have_modes(keyspace) && is_used(),
            Trust::Nothing => may_have_modes(keyspace),
        }
    }

    /// Takes over the modes that were read before this core began. A core that was paused since
    /// goes on waiting.
    pub fn begin_with(&mut self, read: TableModes) {
        let trust = self.trust.max(read.trust);
        *self = TableModes { trust, ..read };
    }

    /// True if only the text makes a statement a transaction.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.routed.is_empty() && self.rules.is_empty() && !self.are_in_doubt()
    }

    /// True if a table has the mode `observe`.
    #[inline]
    pub fn has_observed(&self) -> bool {
        self.has_observed
    }

    /// True of a table with the mode `observe`.
    pub fn is_observed(&self, keyspace: &str, table: &str) -> bool {
        self.routing(keyspace, table) == Some(OBSERVED)
    }

    /// True if all these tables' statements may go to nodes. No tables means that they are unknown.
    pub fn leaves_to_nodes(&self, tables: Option<&[TableName]>) -> bool {
        if self.trust == Trust::Nothing {
            return false;
        }
        let is_left = |routing: &Routing| *routing == OBSERVED;
        let Some(tables) = tables else {
            return !self.are_in_doubt()
                && self.rules.is_empty()
                && self.routed.values().flat_map(HashMap::values).all(is_left);
        };
        tables.iter().all(|(keyspace, table)| {
            let Some(keyspace) = keyspace.as_deref() else { return false };
            let has_rules =
                may_have_modes(keyspace) && !self.rules.for_table(keyspace, table).is_empty();
            !has_rules
                && !self.is_doubted(keyspace)
                && self.routing(keyspace, table).as_ref().is_none_or(is_left)
        })
    }

    fn takes(&self, keyspace: &str, table: &str, access: Access) -> bool {
        if self.is_doubted(keyspace) {
            return true;
        }
        if !matches!(access, Access::Read | Access::AddColumn)
            && may_have_modes(keyspace)
            && !self.rules.for_table(keyspace, table).is_empty()
        {
            return true;
        }
        let Some(routing) = self.routing(keyspace, table) else { return false };
        match access {
            Access::Read => routing.takes_reads(),
            Access::Write | Access::Alter => true,
            Access::Truncate | Access::AddColumn => match routing {
                Routing::Held | Routing::HeldForAll => true,
                Routing::Mode(mode) => mode.is_by_statement(),
            },
        }
    }

    /// True if a text may name one of these tables. Applies to a batch that is too long to be a
    /// transaction or to be parsed for each client: it is refused rather than let past. While the
    /// modes are unknown, every such batch waits.
    #[cold]
    pub fn may_be_in(&self, text: &str) -> bool {
        if self.are_in_doubt() {
            return true;
        }
        let routed = self.routed.values().flatten().filter(|(_, routing)| **routing != OBSERVED);
        let names: Mentions<'_> =
            routed.map(|(name, _)| &**name).chain(self.rules.tables()).collect();
        names.may_be_in(text)
    }

    /// True of a statement on one of these tables, or on tables that nobody can name: the latter is
    /// read as a transaction, and refused.
    #[cold]
    pub fn take_any(&self, tables: Option<&[TableName]>, access: Access) -> bool {
        let has_full =
            || self.routed.values().flat_map(HashMap::values).any(|routing| routing.takes_reads());
        let Some(tables) = tables else {
            return access != Access::Read || self.are_in_doubt() || has_full();
        };
        tables.iter().any(|(keyspace, table)| {
            keyspace.as_deref().is_some_and(|keyspace| self.takes(keyspace, table, access))
        })
    }
}

/// The tables that a text reads or writes, or gives options or columns that a table with a mode
/// cannot have; none if it cannot be parsed. `session` is the keyspace of names without one.
pub fn tables_of(
    parsed: &Statement<'_>,
    text: &str,
    session: Option<&str>,
) -> Option<Vec<TableName>> {
    match (parsed.kind, &parsed.table) {
        (
            Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate,
            Some(table),
        ) => {
            let keyspace =
                parsed.keyspace.as_ref().map(Identifier::to_string).or(session.map(str::to_owned));
            Some(vec![(keyspace.map(Into::into), table.to_string().into())])
        }
        // Only the head of the text was read, and the table's name comes behind it. The statement
        // of a table without a mode must not become a transaction: it would lose its timestamp.
        (Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate, None)
            if text.len() > statement::TEXT_BYTES_MAX =>
        {
            let whole = statement::classify_whole(text);
            whole.table.as_ref().and_then(|_| tables_of(&whole, text, session))
        }
        (Kind::Ddl, _) => alteration::altered_tables(text, session),
        // A longer batch is no transaction.
        (Kind::Batch, _) if text.len() > transaction::TEXT_BYTES_MAX => None,
        // Classification shows only the first statement of a batch, and some statements need to be
        // parsed whole.
        (
            Kind::Select
            | Kind::Insert
            | Kind::Update
            | Kind::Delete
            | Kind::Truncate
            | Kind::Batch,
            _,
        ) => parse_tables(text, session),
        _ => Some(Vec::new()),
    }
}

fn parse_tables(text: &str, session: Option<&str>) -> Option<Vec<TableName>> {
    let named = |table: &QualifiedName| -> TableName {
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
mod tests;
