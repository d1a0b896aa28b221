//! The part of the rules that depends on the statement alone: which of them a statement matches,
//! whoever sends it.
//!
//! A core asks once for each prepared statement, and once for each text that it has not seen
//! lately. A statement on a system table matches no rule, and one on the proxy's own tables only
//! the rules that name their keyspace.

use shunt_topology::RoutingTable;
use shunt_transactions::catalogue::modes::TableName;
use shunt_wire::cql::statement::{
    Identifier, Kind, Part, Statement, TEXT_BYTES_MAX, classify, outline, redact,
};
use shunt_wire::printable::printable_to;

use super::keyspaces::{OWN_KEYSPACES, SYSTEM_KEYSPACES};
use super::kinds::KindSet;
use super::set::RuleSet;
use crate::config::{Rule, RuleMatch};
use crate::limits;
use crate::prepared::PreparedStatement;

/// Tables of a statement.
#[derive(Clone, Copy)]
enum Tables<'a> {
    None,
    One(Identifier<'a>),
    /// Those in a batch or a transaction.
    Text(&'a str),
    Known(&'a [TableName]),
}

/// A statement as rules see it.
pub(super) struct Subject<'a> {
    kinds: KindSet,
    keyspace: Option<Identifier<'a>>,
    tables: Tables<'a>,
    /// The text, if it is read for its clauses and its digest.
    text: Option<&'a str>,
    kind: Kind,
    /// True if it has more tables than are read.
    has_more_tables: bool,
}

impl<'a> Subject<'a> {
    /// A text; `session`: the keyspace of its unqualified names.
    pub(super) fn of_text(text: &'a str, session: Option<&'a str>) -> Subject<'a> {
        let parsed = classify(text);
        let Statement { kind, table, .. } = parsed;
        let is_whole = text.len() <= TEXT_BYTES_MAX;
        // A longer text counts as conditional whether or not it is.
        let is_conditional = is_whole && (parsed.conditional || hides_condition(kind, text));
        let own = KindSet::of(kind, table.is_some(), is_conditional);
        let tables = match kind {
            Kind::Batch | Kind::Transaction if is_whole => Tables::Text(text),
            Kind::Use | Kind::Ddl => Tables::None,
            _ => table.map_or(Tables::None, Tables::One),
        };
        let has_more_tables = match tables {
            Tables::Text(text) => tables_in(text).nth(limits::RULE_TABLES_READ_MAX).is_some(),
            _ => !is_whole && matches!(kind, Kind::Batch | Kind::Transaction),
        };
        let is_known = is_whole && !has_more_tables;
        let unknown = if is_known { KindSet::NONE } else { KindSet::UNKNOWN };
        let keyspace = parsed.keyspace.filter(|_| kind != Kind::Batch && kind != Kind::Use);
        Subject {
            kinds: own.with(unknown),
            keyspace: keyspace.or(session.map(Identifier::exact)),
            tables,
            text: Some(text).filter(|_| is_whole),
            kind,
            has_more_tables,
        }
    }

    /// A prepared statement.
    pub(super) fn of_prepared(statement: &'a PreparedStatement) -> Subject<'a> {
        let session = statement.keyspace.as_deref();
        if let Some(text) = statement.text.as_deref() {
            return Subject::of_text(text, session);
        }
        let tables = statement.tables.as_deref();
        let kinds = KindSet::of(statement.kind, tables.is_some(), false);
        Subject {
            kinds: kinds.with(KindSet::UNKNOWN),
            keyspace: session.map(Identifier::exact),
            tables: tables.map_or(Tables::None, Tables::Known),
            text: None,
            kind: statement.kind,
            has_more_tables: tables.is_none(),
        }
    }

    /// A statement of which nothing is known.
    pub(super) fn unknown() -> Subject<'static> {
        Subject {
            kinds: KindSet::UNKNOWN,
            keyspace: None,
            tables: Tables::None,
            text: None,
            kind: Kind::Other,
            has_more_tables: true,
        }
    }

    /// True if it is a conditional write.
    pub(super) fn is_conditional(&self) -> bool {
        self.kinds.meets(KindSet::LWT)
    }

    /// The same statement as a member of a BATCH.
    pub(super) fn in_batch(self) -> Subject<'a> {
        Subject { kinds: self.kinds.with(KindSet::BATCH), ..self }
    }

    /// Shows each table, with its keyspace and the kinds of the statement on it.
    fn each_table(&self, mut see: impl FnMut(KindSet, Option<Identifier<'_>>, Identifier<'_>)) {
        match self.tables {
            Tables::None => {}
            Tables::One(table) => see(self.kinds, self.keyspace, table),
            Tables::Text(text) => {
                for (verb, keyspace, table) in tables_in(text).take(limits::RULE_TABLES_READ_MAX) {
                    let own = KindSet::of(verb, true, false);
                    see(self.kinds.with(own), keyspace.or(self.keyspace), table);
                }
            }
            Tables::Known(tables) => {
                for (keyspace, table) in tables {
                    let keyspace = keyspace.as_deref().map(Identifier::exact);
                    see(self.kinds, keyspace, Identifier::exact(table));
                }
            }
        }
    }

    /// The rules whose tables and kinds fit. An exception must fit each table.
    fn by_tables(&self, rules: &[Rule]) -> RuleSet {
        let (mut fitting, mut missing, mut has_table) = (RuleSet::EMPTY, RuleSet::EMPTY, false);
        let fits_kind = |rule: &Rule, kinds| {
            let wanted = rule.matches.kind;
            wanted.is_empty() || wanted.meets(kinds)
        };
        self.each_table(|kinds, keyspace, table| {
            has_table = true;
            let owner = owner_of(keyspace.as_ref());
            for (place, rule) in rules.iter().enumerate() {
                let fits = fits_kind(rule, kinds)
                    && owner.admits(&rule.matches)
                    && fits_table(&rule.matches, keyspace.as_ref(), &table);
                if fits { fitting.insert(place) } else { missing.insert(place) }
            }
        });
        for (place, rule) in rules.iter().enumerate() {
            let names_table = !rule.matches.keyspace.is_empty() || !rule.matches.table.is_empty();
            if !has_table && !names_table && fits_kind(rule, self.kinds) {
                fitting.insert(place);
            }
            // The statements on the other tables may have another kind.
            if self.has_more_tables && (names_table || !rule.matches.kind.is_empty()) {
                missing.insert(place);
            }
        }
        fitting.without(missing.both(exceptions(rules)))
    }

    /// What a SELECT reads.
    fn reach(&self, routing: Option<&RoutingTable>) -> Reach {
        let (Kind::Select, Some(text)) = (self.kind, self.text) else { return Reach::default() };
        let known = match (routing, self.keyspace, self.tables) {
            (Some(routing), Some(keyspace), Tables::One(table)) => {
                routing.resolve_table(&keyspace, &table)
            }
            _ => None,
        };
        let (mut has_limit, mut restricted, mut found) = (false, false, 0u64);
        let mut reach = Reach::default();
        for part in outline(text) {
            match part {
                Part::Limit => has_limit = true,
                Part::AllowFiltering => reach.allows_filtering = true,
                Part::Restricted(column) => {
                    restricted = true;
                    let mut key = known.iter().flat_map(|table| &table.partition_key);
                    if let Some(place) = key.position(|known| column.matches(&known.name)) {
                        found |= 1u64.checked_shl(place as u32).unwrap_or(0);
                    }
                }
                Part::Table(..) | Part::Condition => {}
            }
        }
        let names_partition = match known {
            Some(table) => found.count_ones() as usize >= table.partition_key.len().min(64),
            None => restricted,
        };
        reach.is_unbounded = !has_limit && !names_partition;
        reach
    }

    /// The statement without its values, as the page of digests shows it.
    fn digest(&self) -> Option<String> {
        let most = limits::DIGEST_TEXT_BYTES_MAX;
        self.text.map(|text| printable_to(&redact(text, most), most))
    }
}

/// True of a write with a condition, also of one that routing does not understand up to there.
fn hides_condition(kind: Kind, text: &str) -> bool {
    matches!(kind, Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch)
        && outline(text).any(|part| matches!(part, Part::Condition))
}

/// The tables in a text, with the verb and the keyspace before each.
fn tables_in(text: &str) -> impl Iterator<Item = (Kind, Option<Identifier<'_>>, Identifier<'_>)> {
    outline(text).filter_map(|part| match part {
        Part::Table(verb, keyspace, table) => Some((verb, keyspace, table)),
        _ => None,
    })
}

/// The rules that exempt statements from later ones.
pub(super) fn exceptions(rules: &[Rule]) -> RuleSet {
    let mut found = RuleSet::EMPTY;
    let places = rules.iter().enumerate().filter(|(_, rule)| rule.is_exception());
    places.for_each(|(place, _)| found.insert(place));
    found
}

/// The reach of a SELECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    /// It names no partition, and has no limit.
    is_unbounded: bool,
    allows_filtering: bool,
}

/// The owner of a table, by its keyspace. Found once for all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableOwner {
    Cassandra,
    /// Shunt; the keyspace.
    Shunt(&'static str),
    Application,
}

impl TableOwner {
    /// True if the rule may be on a table of this owner.
    fn admits(self, rule: &RuleMatch) -> bool {
        match self {
            TableOwner::Cassandra => false,
            TableOwner::Shunt(keyspace) => rule.names_keyspace(keyspace),
            TableOwner::Application => true,
        }
    }
}

fn owner_of(keyspace: Option<&Identifier<'_>>) -> TableOwner {
    let is_in = |name: &str| keyspace.is_some_and(|keyspace| keyspace.matches(name));
    if SYSTEM_KEYSPACES.into_iter().any(is_in) {
        return TableOwner::Cassandra;
    }
    let own = OWN_KEYSPACES.into_iter().find(|name| is_in(name));
    own.map_or(TableOwner::Application, TableOwner::Shunt)
}

/// True if a rule is on this table, or on any.
fn fits_table(rule: &RuleMatch, keyspace: Option<&Identifier<'_>>, table: &Identifier<'_>) -> bool {
    let is_in = |name: &str| keyspace.is_some_and(|keyspace| keyspace.matches(name));
    let fits = |(of, name): &(Option<String>, String)| {
        table.matches(name) && of.as_deref().is_none_or(is_in)
    };
    (rule.keyspace.is_empty() || rule.keyspace.iter().any(|name| is_in(name)))
        && (rule.table.is_empty() || rule.table.iter().any(fits))
}

/// The rules that a statement matches, whoever sends it.
#[cold]
pub(super) fn matching(
    rules: &[Rule],
    subject: &Subject<'_>,
    routing: Option<&RoutingTable>,
) -> RuleSet {
    let (mut reach, mut digest) = (None, None);
    let mut matching = RuleSet::EMPTY;
    for place in subject.by_tables(rules).places() {
        let RuleMatch { unbounded, allow_filtering, digest: digests, .. } = &rules[place].matches;
        if *unbounded || *allow_filtering {
            let reach: &Reach = reach.get_or_insert_with(|| subject.reach(routing));
            if *unbounded && !reach.is_unbounded || *allow_filtering && !reach.allows_filtering {
                continue;
            }
        }
        if !digests.is_empty() {
            let digest: &Option<String> = digest.get_or_insert_with(|| subject.digest());
            if !digests.iter().any(|known| Some(known) == digest.as_ref()) {
                continue;
            }
        }
        matching.insert(place);
    }
    matching
}

#[cfg(test)]
mod tests;
