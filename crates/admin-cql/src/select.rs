//! `SELECT`: its plan, and the rows that it chooses among those of its table.

use std::cmp::Ordering;

use shunt_language::ast::{self, Comparison, OrderingBy, Relation, SelectClause, Selector, Term};
use shunt_language::terms::{self, Bindings, Prepared, Scope, Value};
use shunt_language::values::{compare, split};
use shunt_language::{CqlType, ast::NativeType};

use crate::fault::Fault;
use crate::limits::{ANSWER_BYTES_MAX, CONDITIONS_MAX, ORDER_MAX, SELECTED_MAX, VALUES_MAX};
use crate::plan;
use crate::tables::Table;

/// A row: the values of the table's columns.
pub(crate) type Row = Vec<Option<Vec<u8>>>;

/// A `SELECT` of a table.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) table: &'static Table,
    conditions: Vec<Condition>,
    /// Columns to order by; true: in descending order.
    order: Vec<(usize, bool)>,
    limit: Option<Prepared>,
    outputs: Vec<Output>,
    /// Types of the table's columns.
    types: Vec<CqlType>,
}

/// A column of the result.
#[derive(Debug)]
struct Output {
    name: String,
    /// Position in the table; `None`: the number of rows.
    column: Option<usize>,
}

/// A condition on a column.
#[derive(Debug)]
struct Condition {
    column: usize,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Compare(Comparison, Prepared),
    In(Vec<Prepared>),
    /// One list for all values.
    InList(Prepared),
    NotNull,
}

/// A condition with its values.
enum Bound {
    Compare(Comparison, Vec<u8>),
    /// In ascending order, each once.
    In(Vec<Vec<u8>>),
    NotNull,
}

/// The rows of a result, from which its pages are cut.
pub(crate) struct Selection<'s> {
    outputs: &'s [Output],
    rows: Vec<Row>,
    /// The value of `count(*)`.
    count: [u8; 8],
}

/// Plans a `SELECT`.
///
/// # Errors
/// A name is unknown, a term does not fit, or a clause is not offered.
pub(crate) fn plan_select(
    select: &ast::Select,
    session: Option<&str>,
    scope: &mut Scope<'_>,
) -> Result<Select, Fault> {
    for (is_there, clause) in [
        (select.json, "SELECT JSON"),
        (select.distinct, "DISTINCT"),
        (!select.group_by.is_empty(), "GROUP BY"),
        (select.per_partition_limit.is_some(), "PER PARTITION LIMIT"),
    ] {
        if is_there {
            return Err(Fault::invalid(format!("{clause} is not offered at the admin address")));
        }
    }
    let table = plan::table(&select.table, session)?;
    let types: Vec<CqlType> = (0..table.columns.len())
        .map(|position| table.cql_type(position))
        .collect::<Result<_, _>>()?;
    let outputs = match &select.clause {
        SelectClause::All => all_outputs(table),
        SelectClause::Items(items) => {
            at_most(items.len(), SELECTED_MAX, "selected columns")?;
            items.iter().map(|item| output(item, table)).collect::<Result<_, _>>()?
        }
    };
    let conditions = plan_conditions(&select.relations, table, &types, scope)?;
    at_most(select.order_by.len(), ORDER_MAX, "columns of ORDER BY")?;
    let order = select.order_by.iter().map(|ordering| match &ordering.by {
        OrderingBy::Column(name) => Ok((table.position(name)?, ordering.descending)),
        OrderingBy::NearestNeighbours(..) => Err(Fault::invalid("ANN OF is not offered here")),
    });
    let order = order.collect::<Result<_, Fault>>()?;
    let limit = select.limit.as_ref();
    let int = CqlType::Native(NativeType::Int);
    let limit = limit.map(|term| terms::prepare(term, "[limit]", &int, scope)).transpose()?;
    Ok(Select { table, conditions, order, limit, outputs, types })
}

fn all_outputs(table: &Table) -> Vec<Output> {
    let columns = table.columns.iter().enumerate();
    let of = |(position, column): (usize, &crate::tables::Column)| Output {
        name: column.name.to_owned(),
        column: Some(position),
    };
    columns.map(of).collect()
}

fn output(item: &ast::SelectedItem, table: &Table) -> Result<Output, Fault> {
    let (name, column) = match &item.selector {
        Selector::Column(name) => (name.clone(), Some(table.position(name)?)),
        Selector::CountRows => ("count".to_owned(), None),
        _ => {
            return Err(Fault::invalid(
                "only columns and count(*) can be selected at the admin address",
            ));
        }
    };
    Ok(Output { name: item.alias.clone().unwrap_or(name), column })
}

fn plan_conditions(
    relations: &[Relation],
    table: &Table,
    types: &[CqlType],
    scope: &mut Scope<'_>,
) -> Result<Vec<Condition>, Fault> {
    at_most(relations.len(), CONDITIONS_MAX, "conditions")?;
    let mut conditions = Vec::new();
    for relation in relations {
        let name = match relation {
            Relation::Column { column, .. }
            | Relation::In { column, .. }
            | Relation::InMarker { column, .. }
            | Relation::IsNotNull(column) => column,
            _ => {
                return Err(Fault::invalid(
                    "a condition at the admin address compares one column: \
                     =, !=, <, <=, >, >=, IN or IS NOT NULL",
                ));
            }
        };
        let column = table.position(name)?;
        let cql_type = types.get(column).ok_or_else(|| Fault::server("a column has no type"))?;
        let test = match relation {
            Relation::Column { comparison, value, .. } => {
                if comparison.of(Ordering::Equal).is_none() {
                    let why = "LIKE and CONTAINS are not offered at the admin address";
                    return Err(Fault::invalid(why));
                }
                Test::Compare(*comparison, terms::prepare(value, name, cql_type, scope)?)
            }
            Relation::In { values, .. } => {
                at_most(values.len(), VALUES_MAX, "values of IN")?;
                let values = values.iter().map(|term| terms::prepare(term, name, cql_type, scope));
                Test::In(values.collect::<Result<_, _>>()?)
            }
            Relation::InMarker { marker, .. } => {
                let list = CqlType::list(cql_type.clone());
                let name = format!("in({name})");
                Test::InList(terms::prepare(&Term::Marker(*marker), &name, &list, scope)?)
            }
            _ => Test::NotNull,
        };
        conditions.push(Condition { column, test });
    }
    Ok(conditions)
}

pub(crate) fn at_most(count: usize, max: usize, what: &str) -> Result<(), Fault> {
    if count <= max {
        return Ok(());
    }
    Err(Fault::invalid(format!("a statement at the admin address has at most {max} {what}")))
}

impl Select {
    /// Columns of the result: names, and types as text.
    pub(crate) fn columns(&self) -> Vec<(String, CqlType)> {
        let of = |output: &Output| {
            let cql_type = output.column.and_then(|column| self.types.get(column)).cloned();
            (output.name.clone(), cql_type.unwrap_or(CqlType::Native(NativeType::Bigint)))
        };
        self.outputs.iter().map(of).collect()
    }

    /// Types of the table's columns.
    pub(crate) fn types(&self) -> &[CqlType] {
        &self.types
    }

    /// The rows of the result.
    ///
    /// # Errors
    /// A bind value is not of its type, or is null or missing.
    pub(crate) fn result(
        &self,
        mut rows: Vec<Row>,
        bindings: &dyn Bindings,
    ) -> Result<Selection<'_>, Fault> {
        for condition in &self.conditions {
            let name = self.table.columns.get(condition.column).map_or("", |column| column.name);
            let Some(cql_type) = self.types.get(condition.column) else { continue };
            let bound = condition.test.bind(name, cql_type, bindings)?;
            rows.retain(|row| bound.holds(cql_type, cell(row, condition.column)));
        }
        if !self.order.is_empty() {
            rows.sort_by(|one, other| self.in_order(one, other));
        }
        let limit = self.limit.as_ref().map(|limit| limit_of(limit, bindings)).transpose()?;
        let is_counted = self.outputs.iter().any(|output| output.column.is_none());
        let count = (rows.len() as i64).to_be_bytes();
        if is_counted {
            // As in Cassandra: one row, with the first row's values of other columns.
            rows.truncate(1);
            rows.resize(1, vec![None; self.types.len()]);
        }
        rows.truncate(limit.unwrap_or(usize::MAX));
        Ok(Selection { outputs: &self.outputs, rows, count })
    }

    /// The order of two rows; null comes before all values.
    fn in_order(&self, one: &Row, other: &Row) -> Ordering {
        let by = |(column, descending): &(usize, bool)| {
            let order = match (cell(one, *column), cell(other, *column)) {
                (Some(one), Some(other)) => {
                    let cql_type = self.types.get(*column);
                    cql_type.map_or(Ordering::Equal, |cql_type| compare(cql_type, one, other))
                }
                (one, other) => one.is_some().cmp(&other.is_some()),
            };
            if *descending { order.reverse() } else { order }
        };
        self.order.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl Selection<'_> {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows from `start` that one answer has room for, `rows_max` at most.
    ///
    /// # Errors
    /// The first row alone is too long.
    pub(crate) fn page(&self, start: usize, rows_max: usize) -> Result<&[Row], Fault> {
        let rest = self.rows.get(start..).unwrap_or_default();
        let page = rest.get(..rows_max).unwrap_or(rest);
        let mut bytes = 0;
        for (index, row) in page.iter().enumerate() {
            // Four bytes are the length of each.
            bytes += self.values(row).map(|value| 4 + value.map_or(0, <[u8]>::len)).sum::<usize>();
            if bytes > ANSWER_BYTES_MAX && index == 0 {
                return Err(Fault::invalid(format!(
                    "a row with these columns has {bytes} bytes, and an answer at the admin address \
                     at most {ANSWER_BYTES_MAX}: select fewer columns"
                )));
            }
            if bytes > ANSWER_BYTES_MAX {
                return Ok(page.get(..index).unwrap_or_default());
            }
        }
        Ok(page)
    }

    /// Values of the selected columns in a row.
    pub(crate) fn values<'r>(&'r self, row: &'r Row) -> impl Iterator<Item = Option<&'r [u8]>> {
        self.outputs.iter().map(move |output| match output.column {
            Some(column) => cell(row, column),
            None => Some(&self.count[..]),
        })
    }
}

fn cell(row: &Row, column: usize) -> Option<&[u8]> {
    row.get(column).and_then(Option::as_deref)
}

fn limit_of(limit: &Prepared, bindings: &dyn Bindings) -> Result<usize, Fault> {
    let bytes = match limit.evaluate(bindings)? {
        Value::Unset => return Ok(usize::MAX),
        value => value.into_bytes().unwrap_or_default(),
    };
    let number = bytes.first_chunk::<4>().map(|bytes| i32::from_be_bytes(*bytes));
    match number {
        Some(number) if number > 0 => Ok(number as usize),
        _ => Err(Fault::invalid("LIMIT must be strictly positive")),
    }
}

/// The value of a term that must have one.
pub(crate) fn known_value(
    term: &Prepared,
    name: &str,
    bindings: &dyn Bindings,
) -> Result<Vec<u8>, Fault> {
    match term.evaluate(bindings)? {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Null => Err(Fault::invalid(format!("Unsupported null value for column {name}"))),
        Value::Unset => Err(Fault::invalid(format!("Unsupported unset value for column {name}"))),
    }
}

impl Test {
    fn bind(
        &self,
        name: &str,
        cql_type: &CqlType,
        bindings: &dyn Bindings,
    ) -> Result<Bound, Fault> {
        Ok(match self {
            Test::Compare(comparison, term) => {
                Bound::Compare(*comparison, known_value(term, name, bindings)?)
            }
            Test::In(terms) => {
                let values = terms.iter().map(|term| known_value(term, name, bindings));
                Bound::among(values.collect::<Result<_, _>>()?, cql_type)
            }
            Test::InList(term) => {
                let list = known_value(term, name, bindings)?;
                let values = split::collection("list", &list)?;
                at_most(values.len(), VALUES_MAX, "values of IN")?;
                Bound::among(values.into_iter().map(<[u8]>::to_vec).collect(), cql_type)
            }
            Test::NotNull => Bound::NotNull,
        })
    }
}

impl Bound {
    /// Makes the condition that a value is one of these. It keeps them in order, because a table
    /// may have many rows to compare with them.
    fn among(values: Vec<Vec<u8>>, cql_type: &CqlType) -> Bound {
        let mut wanted: Vec<Vec<u8>> = Vec::with_capacity(values.len());
        for value in values {
            if let Err(place) = wanted.binary_search_by(|one| compare(cql_type, one, &value)) {
                wanted.insert(place, value);
            }
        }
        Bound::In(wanted)
    }

    /// True if a value meets the condition; null meets none.
    fn holds(&self, cql_type: &CqlType, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return false };
        match self {
            Bound::Compare(comparison, wanted) => {
                comparison.of(compare(cql_type, value, wanted)).unwrap_or(false)
            }
            Bound::In(wanted) => {
                wanted.binary_search_by(|one| compare(cql_type, one, value)).is_ok()
            }
            Bound::NotNull => true,
        }
    }
}
