//! Use of secondary indexes in a SELECT, by the rules of Cassandra 5.0 (`StatementRestrictions`):
//! whether the statement uses an index, and whether it needs ALLOW FILTERING anyway.

use std::collections::BTreeMap;

use shunt_language::ast::Comparison;
use shunt_language::error::InvalidRequest;

use crate::schema::index::{Condition, Index};
use crate::schema::{ColumnKind, Table};
use crate::statement::restrictions::{
    Filter, OneOf, PartitionRestriction, Restrictions, Test, invalid,
};

/// Conditions on each column, by position in the table.
type Conditions = BTreeMap<usize, Vec<Condition>>;

/// Restrictions of a statement, by kind of column.
#[derive(Default)]
struct Kinds {
    key: Conditions,
    clustering: Conditions,
    values: Conditions,
}

/// Use of indexes by a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IndexUse {
    /// An index supports one of the statement's restrictions.
    pub(super) is_queriable: bool,
    /// The statement finds its rows by an index.
    pub(super) is_used: bool,
    /// No index, and no group of combinable indexes, answers all conditions on the rows.
    pub(super) needs_filtering: bool,
}

impl IndexUse {
    /// Determines how a statement uses the indexes of its table.
    ///
    /// # Errors
    /// Restrictions that no index supports.
    pub(super) fn new(
        table: &Table,
        restrictions: &Restrictions,
    ) -> Result<IndexUse, InvalidRequest> {
        if table.indexes.is_empty() {
            return Ok(IndexUse::default());
        }
        let kinds = Kinds::new(table, restrictions);
        let groups = groups(table);
        let supported = |restricted: (&usize, &Vec<Condition>)| {
            groups.iter().any(|group| supports(table, group, restricted, false))
        };
        let any = |all: &Conditions| all.iter().any(supported);
        if !any(&kinds.key) && !any(&kinds.clustering) && !any(&kinds.values) {
            return Ok(IndexUse::default());
        }
        let mut tested: Vec<(&usize, &Vec<Condition>)> = Vec::new();
        let mut is_used = matches!(restrictions.partition, PartitionRestriction::All);
        if is_used {
            tested.extend(&kinds.key);
        }
        is_used |= restrictions
            .filters
            .iter()
            .any(|filter| table.columns[filter.column].kind == ColumnKind::Clustering);
        is_used |= !restrictions.has_keys() && any(&kinds.clustering);
        if is_used {
            tested.extend(&kinds.clustering);
            let clustering = &restrictions.clustering;
            if clustering.lower.iter().chain(&clustering.upper).any(|bound| bound.values.len() > 1)
            {
                return invalid("Multi-column slice restrictions cannot be used for filtering.");
            }
        }
        is_used |= !kinds.values.is_empty();
        tested.extend(&kinds.values);
        if is_used
            && let PartitionRestriction::Keys(keys) = &restrictions.partition
            && keys.iter().any(OneOf::is_in)
        {
            return invalid(
                "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
            );
        }
        let answers =
            |group: &Vec<&Index>| tested.iter().all(|tested| supports(table, group, *tested, true));
        Ok(IndexUse { is_queriable: true, is_used, needs_filtering: !groups.iter().any(answers) })
    }
}

/// Combinable indexes: all storage-attached ones, and each of the others alone.
fn groups(table: &Table) -> Vec<Vec<&Index>> {
    let (attached, others): (Vec<&Index>, Vec<&Index>) =
        table.indexes.iter().partition(|index| index.is_storage_attached());
    let mut groups: Vec<Vec<&Index>> = others.into_iter().map(|index| vec![index]).collect();
    groups.push(attached);
    groups
}

/// True if one of these indexes supports one condition of a restriction, which is enough in
/// Cassandra. With `alone` no filter helps the index: then only a storage-attached index answers
/// several conditions on elements of a collection.
fn supports(
    table: &Table,
    group: &[&Index],
    restricted: (&usize, &Vec<Condition>),
    alone: bool,
) -> bool {
    let (position, conditions) = restricted;
    let column = &table.columns[*position];
    let is_element = |condition: &&Condition| {
        matches!(condition, Condition::Contains | Condition::ContainsKey | Condition::Entry)
    };
    let several = conditions.iter().filter(is_element).count() > 1;
    group.iter().any(|index| {
        let supported = conditions.iter().any(|condition| index.supports(column, *condition));
        supported && !(alone && several && !index.is_storage_attached())
    })
}

impl Kinds {
    fn new(table: &Table, restrictions: &Restrictions) -> Kinds {
        let mut kinds = Kinds::default();
        if let PartitionRestriction::Keys(keys) = &restrictions.partition {
            keys.iter()
                .enumerate()
                .for_each(|(position, key)| add(&mut kinds.key, position, equality(key.is_in())));
        }
        let clustering = &restrictions.clustering;
        let start = table.partition_key_len;
        for (index, one_of) in clustering.equal.iter().enumerate() {
            add(&mut kinds.clustering, start + index, equality(one_of.is_in()));
        }
        if let Some((types, values)) = &clustering.tuples {
            let first = start + clustering.equal.len();
            (first..first + types.len()).for_each(|position| {
                add(&mut kinds.clustering, position, equality(values.is_in()))
            });
        }
        for bound in clustering.lower.iter().chain(&clustering.upper) {
            let first = start + bound.first;
            (first..first + bound.values.len())
                .for_each(|position| add(&mut kinds.clustering, position, Condition::Range));
        }
        for filter in &restrictions.filters {
            let kind = match table.columns[filter.column].kind {
                ColumnKind::PartitionKey => &mut kinds.key,
                ColumnKind::Clustering => &mut kinds.clustering,
                ColumnKind::Static | ColumnKind::Regular => &mut kinds.values,
            };
            add(kind, filter.column, condition(filter));
        }
        kinds
    }
}

fn add(kind: &mut Conditions, column: usize, condition: Condition) {
    kind.entry(column).or_default().push(condition);
}

fn equality(is_in: bool) -> Condition {
    if is_in { Condition::In } else { Condition::Equal }
}

fn condition(filter: &Filter) -> Condition {
    match &filter.test {
        Test::OneOf(one_of) => equality(one_of.is_in()),
        Test::Compare(Comparison::Contains, _) => Condition::Contains,
        Test::Compare(Comparison::ContainsKey, _) => Condition::ContainsKey,
        Test::Compare(Comparison::Equal, _) if filter.element.is_some() => Condition::Entry,
        Test::Compare(Comparison::Equal, _) => Condition::Equal,
        Test::Compare(..) => Condition::Range,
    }
}
