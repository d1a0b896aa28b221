//! Collects relations into restrictions one by one.

use std::ops::Range;
use std::sync::Arc;

use shunt_language::ast::{Comparison, NativeType, Relation, Term};
use shunt_language::error::InvalidRequest;
use shunt_language::terms::{Prepared, Scope, prepare};
use shunt_language::types::CqlType;

use super::repetition::Repetition;
use super::{
    Bound, ClusteringRestriction, Filter, OneOf, Operand, PartitionRestriction, Restrictions, Test,
    TupleIn, column_of, invalid,
};
use crate::schema::{Column, ColumnKind, Table};

/// Relations on one column so far.
#[derive(Default)]
struct Collected {
    equal: Option<OneOf>,
    lower: Option<(Operand, bool)>,
    upper: Option<(Operand, bool)>,
    repetition: Repetition,
}

/// Relations on several clustering columns at once.
#[derive(Default)]
struct Tuples {
    one_of: Option<(usize, Arc<[CqlType]>, TupleIn)>,
    lower: Option<Bound>,
    upper: Option<Bound>,
}

/// Relations collected so far.
pub(super) struct Collector<'t, 's, 'a> {
    table: &'t Table,
    scope: &'s mut Scope<'a>,
    columns: Vec<Collected>,
    token: Collected,
    tuples: Tuples,
    filters: Vec<Filter>,
}

impl<'t, 's, 'a> Collector<'t, 's, 'a> {
    pub(super) fn new(table: &'t Table, scope: &'s mut Scope<'a>) -> Self {
        let columns = table.columns.iter().map(|_| Collected::default()).collect();
        Self {
            table,
            scope,
            columns,
            token: Collected::default(),
            tuples: Tuples::default(),
            filters: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, relation: &Relation) -> Result<(), InvalidRequest> {
        match relation {
            Relation::Column { column, comparison, value } => {
                self.add_column(column, *comparison, value)
            }
            Relation::In { column, values } => {
                let (_, found) = column_of(self.table, column)?;
                let (name, cql_type) = (&found.name, &found.cql_type);
                let values = values.iter().map(|value| prepare(value, name, cql_type, self.scope));
                let values = values.collect::<Result<_, _>>()?;
                self.add_in(column, OneOf::In(values))
            }
            Relation::InMarker { column, marker } => {
                let (_, found) = column_of(self.table, column)?;
                let list = CqlType::list(found.cql_type.clone());
                let list = prepare(
                    &Term::Marker(*marker),
                    &format!("in({})", found.name),
                    &list,
                    self.scope,
                )?;
                self.add_in(column, OneOf::InList(list))
            }
            Relation::IsNotNull(column) => {
                invalid(format!("Unsupported restriction: {column} IS NOT NULL"))
            }
            Relation::Element { column, key, comparison, value } => {
                let (position, found) = column_of(self.table, column)?;
                let CqlType::Map { key: key_type, value: value_type, .. } = &found.cql_type else {
                    return invalid(format!("Column {column} cannot be used as a map"));
                };
                if !found.is_multi_cell() {
                    return invalid(format!(
                        "Map-entry equality predicates on frozen map column {column} are not supported"
                    ));
                }
                if *comparison == Comparison::NotEqual {
                    return invalid(format!("Unsupported '!=' relation: {column}[?] != ?"));
                }
                if *comparison != Comparison::Equal {
                    return invalid("Only EQ relations are supported on map entries");
                }
                let key = prepare(key, &format!("key({column})"), key_type, self.scope)?;
                let value = prepare(value, &format!("value({column})"), value_type, self.scope)?;
                self.add_filter(
                    position,
                    Some(key),
                    Test::Compare(*comparison, Operand::Term(value)),
                )
            }
            Relation::Token { columns, comparison, value } => {
                self.add_token(columns, *comparison, value)
            }
            Relation::Tuple { columns, comparison, value } => {
                self.add_tuple(columns, *comparison, value)
            }
            // As in Cassandra, an IN of one value is an equality.
            Relation::TupleIn { columns, values } if let [only] = &values[..] => {
                self.add_tuple(columns, Comparison::Equal, only)
            }
            Relation::TupleIn { columns, values } => {
                let (first, types) = self.run_of(columns)?;
                let values = values.iter().map(|value| self.tuple_term(value, columns, &types));
                let values = TupleIn::Terms(values.collect::<Result<_, _>>()?);
                self.add_tuple_in(columns, first, types, values)
            }
            Relation::TupleInMarker { columns, marker } => {
                let (first, types) = self.run_of(columns)?;
                let list = CqlType::list(CqlType::Tuple(Arc::clone(&types)));
                let list =
                    prepare(&Term::Marker(*marker), &tuple_name("in", columns), &list, self.scope)?;
                self.add_tuple_in(columns, first, types, TupleIn::List(list))
            }
            Relation::Custom { index, .. } => refuse_expression(self.table, &index.name),
        }
    }

    fn add_column(
        &mut self,
        column: &str,
        comparison: Comparison,
        value: &Term,
    ) -> Result<(), InvalidRequest> {
        let (position, found) = column_of(self.table, column)?;
        if matches!(comparison, Comparison::NotEqual) {
            return invalid(format!("Unsupported '!=' relation: {column} != ?"));
        }
        if matches!(comparison, Comparison::Like) {
            let message = format!(
                "LIKE restriction is only supported on properly indexed columns. {column} LIKE ? is not valid."
            );
            return invalid(message);
        }
        let receiver = compared_type(found, comparison)?;
        let operand = Operand::Term(prepare(
            value,
            &compared_name(found, comparison),
            &receiver,
            self.scope,
        )?);
        if !found.is_primary_key()
            || matches!(comparison, Comparison::Contains | Comparison::ContainsKey)
        {
            return self.add_filter(position, None, Test::Compare(comparison, operand));
        }
        collect(&mut self.columns[position], &found.name, comparison, operand)
    }

    /// Adds a condition tested on rows.
    fn add_filter(
        &mut self,
        position: usize,
        element: Option<Prepared>,
        test: Test,
    ) -> Result<(), InvalidRequest> {
        let column = &self.table.columns[position];
        if !column.is_primary_key() {
            self.columns[position].repetition.add(column, element.is_some(), &test)?;
        }
        self.filters.push(Filter { column: position, element, test });
        Ok(())
    }

    fn add_in(&mut self, name: &str, values: OneOf) -> Result<(), InvalidRequest> {
        let (position, column) = column_of(self.table, name)?;
        if !column.is_primary_key() {
            return self.add_filter(position, None, Test::OneOf(values));
        }
        let collected = &mut self.columns[position];
        collected.check_alone(name)?;
        collected.equal = Some(values);
        Ok(())
    }

    fn add_token(
        &mut self,
        columns: &[String],
        comparison: Comparison,
        value: &Term,
    ) -> Result<(), InvalidRequest> {
        let key = self.table.partition_key();
        if columns.len() != key.len()
            || columns.iter().zip(key).any(|(name, column)| *name != column.name)
        {
            let expected: Vec<&str> = key.iter().map(|column| column.name.as_str()).collect();
            return invalid(format!(
                "The token function arguments must be in the partition key order: {}",
                expected.join(", ")
            ));
        }
        let token = prepare(
            value,
            "partition key token",
            &CqlType::Native(NativeType::Bigint),
            self.scope,
        )?;
        collect(&mut self.token, "token", comparison, Operand::Term(token))
    }

    /// Consecutive clustering columns: the position of the first, and their types.
    fn run_of(&self, names: &[String]) -> Result<(usize, Arc<[CqlType]>), InvalidRequest> {
        let clustering = self.table.clustering();
        let mut first = None;
        for (index, name) in names.iter().enumerate() {
            let (_, column) = column_of(self.table, name)?;
            if column.kind != ColumnKind::Clustering {
                return invalid(format!(
                    "Multi-column relations can only be applied to clustering columns but was applied to: {name}"
                ));
            }
            let start = *first.get_or_insert(column.position);
            if column.position != start + index || start + index >= clustering.len() {
                return invalid(format!(
                    "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: ({})",
                    names.join(", ")
                ));
            }
        }
        let Some(first) = first else { return invalid("a relation needs a column") };
        let types =
            clustering[first..first + names.len()].iter().map(|column| column.cql_type.clone());
        Ok((first, types.collect()))
    }

    fn add_tuple(
        &mut self,
        names: &[String],
        comparison: Comparison,
        value: &Term,
    ) -> Result<(), InvalidRequest> {
        let (first, types) = self.run_of(names)?;
        let values: Vec<Operand> = match value {
            Term::Tuple(terms) if terms.len() == names.len() => {
                let terms = terms.iter().zip(names).zip(&*types);
                let terms =
                    terms.map(|((term, name), cql_type)| prepare(term, name, cql_type, self.scope));
                terms.map(|term| term.map(Operand::Term)).collect::<Result<_, _>>()?
            }
            Term::Tuple(terms) => {
                return invalid(format!(
                    "Expected {} elements in value tuple, but got {}",
                    names.len(),
                    terms.len()
                ));
            }
            other => {
                let tuple = CqlType::Tuple(Arc::clone(&types));
                let tuple = prepare(other, &tuple_name("", names), &tuple, self.scope)?;
                let part = |index| Operand::Part {
                    tuple: tuple.clone(),
                    types: Arc::clone(&types),
                    index,
                };
                (0..names.len()).map(part).collect()
            }
        };
        let inclusive = matches!(comparison, Comparison::LessOrEqual | Comparison::GreaterOrEqual);
        let bound = Bound { first, values, inclusive };
        match comparison {
            Comparison::Equal => {
                for (index, value) in bound.values.into_iter().enumerate() {
                    let position = self.table.partition_key_len + first + index;
                    collect(&mut self.columns[position], &names[index], Comparison::Equal, value)?;
                }
                Ok(())
            }
            Comparison::Greater | Comparison::GreaterOrEqual => {
                set_once(&mut self.tuples.lower, bound, names)
            }
            Comparison::Less | Comparison::LessOrEqual => {
                set_once(&mut self.tuples.upper, bound, names)
            }
            _ => invalid("Unsupported comparison of several columns"),
        }
    }

    /// One tuple of `(a, b) IN (..)`. In a literal tuple each part is for its column.
    fn tuple_term(
        &mut self,
        term: &Term,
        names: &[String],
        types: &Arc<[CqlType]>,
    ) -> Result<Prepared, InvalidRequest> {
        let cql_type = CqlType::Tuple(Arc::clone(types));
        match term {
            Term::Tuple(terms) if terms.len() == names.len() => {
                let terms = terms.iter().zip(names).zip(&**types);
                let parts =
                    terms.map(|((term, name), cql_type)| prepare(term, name, cql_type, self.scope));
                Ok(Prepared::Composite { cql_type, parts: parts.collect::<Result<_, _>>()? })
            }
            Term::Tuple(terms) => invalid(format!(
                "Expected {} elements in value tuple, but got {}",
                names.len(),
                terms.len()
            )),
            other => prepare(other, &tuple_name("", names), &cql_type, self.scope),
        }
    }

    fn add_tuple_in(
        &mut self,
        names: &[String],
        first: usize,
        types: Arc<[CqlType]>,
        values: TupleIn,
    ) -> Result<(), InvalidRequest> {
        if self.tuples.one_of.is_some() {
            return invalid(format!(
                "({}) cannot be restricted by more than one relation if it includes a IN",
                names.join(", ")
            ));
        }
        self.tuples.one_of = Some((first, types, values));
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Restrictions, InvalidRequest> {
        let partition = self.partition()?;
        let clustering = self.clustering()?;
        Ok(Restrictions { partition, clustering, filters: self.filters })
    }

    fn partition(&mut self) -> Result<PartitionRestriction, InvalidRequest> {
        let key = self.table.partition_key();
        for filter in &self.filters {
            if let Some(Collected { equal: Some(_), .. }) = self.columns.get(filter.column) {
                let name = &self.table.columns[filter.column].name;
                return invalid(format!(
                    "{name} cannot be restricted by more than one relation if it includes an Equal"
                ));
            }
        }
        let columns = &mut self.columns[..key.len()];
        let by_token =
            self.token.equal.is_some() || self.token.lower.is_some() || self.token.upper.is_some();
        let restricted = columns.iter().filter(|column| column.is_restricted()).count();
        if by_token {
            if restricted > 0 {
                return invalid(
                    "Columns cannot be restricted by both a normal relation and a token relation",
                );
            }
            return self.token_range();
        }
        let sliced = columns.iter().any(|column| column.lower.is_some() || column.upper.is_some());
        if restricted == key.len() && !sliced {
            let values = columns.iter_mut().filter_map(|column| column.equal.take()).collect();
            return Ok(PartitionRestriction::Keys(values));
        }
        // Part of a key is only a filter.
        self.filter_columns(0..self.table.partition_key_len);
        Ok(PartitionRestriction::All)
    }

    fn token_range(&mut self) -> Result<PartitionRestriction, InvalidRequest> {
        let term = |bound: Option<(Operand, bool)>| match bound {
            Some((Operand::Term(term), inclusive)) => Some((term, inclusive)),
            _ => None,
        };
        match self.token.equal.take() {
            Some(OneOf::Equal(Operand::Term(value))) => Ok(PartitionRestriction::Token {
                lower: Some((value.clone(), true)),
                upper: Some((value, true)),
            }),
            Some(_) => invalid("IN is not supported with the token function"),
            None => Ok(PartitionRestriction::Token {
                lower: term(self.token.lower.take()),
                upper: term(self.token.upper.take()),
            }),
        }
    }

    fn clustering(&mut self) -> Result<ClusteringRestriction, InvalidRequest> {
        let start = self.table.partition_key_len;
        let count = self.table.clustering_len;
        let mut found = ClusteringRestriction::default();
        let mut next = 0;
        while let Some(one_of) =
            (next < count).then(|| self.columns[start + next].equal.take()).flatten()
        {
            found.equal.push(one_of);
            next += 1;
        }
        if let Some((first, types, values)) = self.tuples.one_of.take() {
            if first != next {
                return self.skipped(next, first);
            }
            found.tuples = Some((types, values));
        } else if self.tuples.lower.is_some() || self.tuples.upper.is_some() {
            (found.lower, found.upper) = (self.tuples.lower.take(), self.tuples.upper.take());
            let first = found
                .lower
                .iter()
                .chain(&found.upper)
                .map(|bound| bound.first)
                .min()
                .unwrap_or(next);
            if first != next {
                return self.skipped(next, first);
            }
        } else if next < count {
            let column = &mut self.columns[start + next];
            let bound = |(value, inclusive)| Bound { first: next, values: vec![value], inclusive };
            found.lower = column.lower.take().map(bound);
            found.upper = column.upper.take().map(bound);
        }
        // Behind a gap or a slice, including tuples.
        self.filter_columns(start + next..start + count);
        Ok(found)
    }

    fn skipped<T>(&self, missing: usize, used: usize) -> Result<T, InvalidRequest> {
        let name = |index: usize| {
            self.table.clustering().get(index).map_or("", |column| column.name.as_str())
        };
        invalid(format!(
            "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
            name(used),
            name(missing)
        ))
    }

    /// Turns restrictions that do not find rows into filters, tested row by row.
    fn filter_columns(&mut self, positions: Range<usize>) {
        for position in positions {
            let column = std::mem::take(&mut self.columns[position]);
            let mut push =
                |test| self.filters.push(Filter { column: position, element: None, test });
            if let Some(one_of) = column.equal {
                push(Test::OneOf(one_of));
            }
            if let Some((value, inclusive)) = column.lower {
                let comparison =
                    if inclusive { Comparison::GreaterOrEqual } else { Comparison::Greater };
                push(Test::Compare(comparison, value));
            }
            if let Some((value, inclusive)) = column.upper {
                let comparison = if inclusive { Comparison::LessOrEqual } else { Comparison::Less };
                push(Test::Compare(comparison, value));
            }
        }
    }
}

/// Refuses `expr(index, value)`: no supported index class has such expressions.
fn refuse_expression<T>(table: &Table, name: &str) -> Result<T, InvalidRequest> {
    match table.indexes.iter().find(|index| index.name == name) {
        Some(index) if index.is_storage_attached() => {
            invalid(format!("Index {name} does not support custom expressions"))
        }
        Some(_) => invalid(format!(
            "Only CUSTOM indexes may be used in custom index expressions, {name} is not valid"
        )),
        None => {
            let Table { keyspace, name: table, .. } = table;
            invalid(format!(
                "Invalid index expression, index {name} not found for {keyspace}.{table}"
            ))
        }
    }
}

/// Type of the value compared with a column.
fn compared_type(column: &Column, comparison: Comparison) -> Result<CqlType, InvalidRequest> {
    let name = &column.name;
    match (comparison, &column.cql_type) {
        (Comparison::Contains, CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            Ok(CqlType::clone(element))
        }
        (Comparison::Contains, CqlType::Map { value, .. }) => Ok(CqlType::clone(value)),
        (Comparison::Contains, _) => {
            invalid(format!("Cannot use CONTAINS on non-collection column {name}"))
        }
        (Comparison::ContainsKey, CqlType::Map { key, .. }) => Ok(CqlType::clone(key)),
        (Comparison::ContainsKey, _) => {
            invalid(format!("Cannot use CONTAINS KEY on non-map column {name}"))
        }
        (_, cql_type) if cql_type.references_duration() && comparison != Comparison::Equal => {
            invalid("Slice restrictions are not supported on duration columns")
        }
        (_, cql_type) => Ok(cql_type.clone()),
    }
}

/// Name of a marker in the metadata.
fn compared_name(column: &Column, comparison: Comparison) -> String {
    match comparison {
        Comparison::Contains => format!("value({})", column.name),
        Comparison::ContainsKey => format!("key({})", column.name),
        _ => column.name.clone(),
    }
}

fn tuple_name(prefix: &str, names: &[String]) -> String {
    format!("{prefix}({})", names.join(","))
}

impl Collected {
    /// Refuses an equality or IN beside other relations on the column.
    fn check_alone(&self, name: &str) -> Result<(), InvalidRequest> {
        let one_only = "cannot be restricted by more than one relation if it includes";
        match &self.equal {
            Some(one_of) if one_of.is_in() => invalid(format!("{name} {one_only} a IN")),
            Some(_) => invalid(format!("{name} {one_only} an Equal")),
            None if self.is_restricted() => invalid(format!(
                "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
            )),
            None => Ok(()),
        }
    }

    fn is_restricted(&self) -> bool {
        self.equal.is_some() || self.lower.is_some() || self.upper.is_some()
    }
}

fn set_once(
    place: &mut Option<Bound>,
    bound: Bound,
    names: &[String],
) -> Result<(), InvalidRequest> {
    if place.is_some() {
        return invalid(format!(
            "More than one restriction was found for the same bound on {}",
            names.join(", ")
        ));
    }
    *place = Some(bound);
    Ok(())
}

/// Adds one comparison to a column's restrictions.
fn collect(
    collected: &mut Collected,
    name: &str,
    comparison: Comparison,
    value: Operand,
) -> Result<(), InvalidRequest> {
    let twice = |end: &str| {
        invalid(format!("More than one restriction was found for the {end} bound on {name}"))
    };
    match comparison {
        _ if collected.equal.is_some() => collected.check_alone(name),
        Comparison::Equal => {
            collected.check_alone(name)?;
            collected.equal = Some(OneOf::Equal(value));
            Ok(())
        }
        Comparison::Greater | Comparison::GreaterOrEqual if collected.lower.is_some() => {
            twice("start")
        }
        Comparison::Less | Comparison::LessOrEqual if collected.upper.is_some() => twice("end"),
        Comparison::Greater | Comparison::GreaterOrEqual => {
            collected.lower = Some((value, comparison == Comparison::GreaterOrEqual));
            Ok(())
        }
        Comparison::Less | Comparison::LessOrEqual => {
            collected.upper = Some((value, comparison == Comparison::LessOrEqual));
            Ok(())
        }
        _ => invalid(format!("Unsupported relation on {name}")),
    }
}
