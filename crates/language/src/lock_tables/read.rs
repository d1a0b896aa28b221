//! Parses text to a [`Statement`].

use super::{
    COLUMNS_MAX, ColumnType, Form, KEYSPACE, NAME_BYTES_MAX, Selected, Single, Source, Statement,
    Table, may_be_together, schema,
};
use crate::ast::{
    self, Attributes, ColumnCondition, Comparison, Conditions, Delete, Insert, LiteralKind,
    Mutation, Operation, QualifiedName, Relation, Select, SelectClause, Selector, Term, Update,
};
use crate::error::InvalidRequest;

/// Returns the lock table with this name, if there is one; `keyspace` is the session's, for names
/// without one.
pub fn find_table(name: &QualifiedName, keyspace: Option<&str>) -> Option<Table> {
    if name.keyspace.as_deref().or(keyspace) != Some(KEYSPACE) {
        return None;
    }
    Table::ALL.into_iter().find(|table| table.name() == name.name)
}

/// Parses a text. Returns `None` for statements on other tables. `keyspace` is the session's.
///
/// # Errors
/// The text is on one of the tables but has none of their forms, or would change the tables or
/// their keyspace.
pub fn parse(text: &str, keyspace: Option<&str>) -> Result<Option<Statement>, InvalidRequest> {
    // A node refuses invalid CQL in its own words.
    let Ok(parsed) = crate::parse(text) else { return Ok(None) };
    of_parsed(parsed, keyspace)
}

/// Does what [`parse`] does, for a statement that is parsed already.
///
/// # Errors
/// The same as those of [`parse`].
pub fn of_parsed(
    parsed: ast::Parsed,
    keyspace: Option<&str>,
) -> Result<Option<Statement>, InvalidRequest> {
    let singles = match &parsed.statement {
        ast::Statement::Select(select) => match find_table(&select.table, keyspace) {
            Some(table) => vec![read_select(table, select)?],
            None => return Ok(None),
        },
        ast::Statement::Mutation(mutation) => match find_table(mutation.table(), keyspace) {
            Some(table) => vec![read_mutation(table, mutation)?],
            None => return Ok(None),
        },
        ast::Statement::Batch(batch) => match read_batch(batch, keyspace)? {
            Some(singles) => singles,
            None => return Ok(None),
        },
        ast::Statement::Truncate(name) if find_table(name, keyspace).is_some() => {
            return Err(refuse(
                "the tables of shunt have no rows to TRUNCATE; release locks by DELETE",
            ));
        }
        ast::Statement::Schema(change) => {
            return schema::refusal(change, keyspace).map_or(Ok(None), Err);
        }
        _ => return Ok(None),
    };
    let markers = parsed.markers.into_iter().map(|name| name.map(String::into_boxed_str)).collect();
    let statement = Statement { singles, markers };
    if statement.singles.len() > 1 || matches!(parsed.statement, ast::Statement::Batch(_)) {
        may_be_together(std::iter::once(&statement))?;
    }
    Ok(Some(statement))
}

fn refuse(why: impl Into<String>) -> InvalidRequest {
    InvalidRequest::new(why)
}

fn read_batch(
    batch: &ast::Batch,
    keyspace: Option<&str>,
) -> Result<Option<Vec<Single>>, InvalidRequest> {
    let tables: Vec<_> =
        batch.mutations.iter().map(|mutation| find_table(mutation.table(), keyspace)).collect();
    if tables.iter().all(Option::is_none) {
        return Ok(None);
    }
    if batch.attributes != Attributes::default() || batch.kind == ast::BatchKind::Counter {
        return Err(refuse(
            "a batch on the tables of shunt is BEGIN BATCH without COUNTER and USING",
        ));
    }
    let singles = batch.mutations.iter().zip(tables).map(|(mutation, table)| match table {
        Some(table) => read_mutation(table, mutation),
        None => {
            Err(refuse("a batch on the tables of shunt cannot have statements on other tables"))
        }
    });
    singles.collect::<Result<_, _>>().map(Some)
}

fn read_mutation(table: Table, mutation: &Mutation) -> Result<Single, InvalidRequest> {
    if table == Table::LockQueue {
        return Err(refuse("shunt.lock_queue is read only"));
    }
    if mutation.attributes().timestamp.is_some() {
        return Err(refuse("statements on the tables of shunt have no USING TIMESTAMP"));
    }
    let form = match mutation {
        Mutation::Insert(insert) => read_insert(table, insert),
        Mutation::Update(update) => read_update(table, update),
        Mutation::Delete(delete) => read_delete(table, delete),
        Mutation::InsertJson(_) => Err(refuse("the tables of shunt take no INSERT JSON")),
    }?;
    Ok(Single { table, form })
}

fn read_insert(table: Table, insert: &Insert) -> Result<Form, InvalidRequest> {
    let (mode, columns) =
        if table.is_shared() { (", mode", "name, owner, mode") } else { ("", "name, owner") };
    let form = || {
        let table = table.name();
        let marks = if mode.is_empty() { "?, ?" } else { "?, ?, ?" };
        refuse(format!(
            "a lock is acquired by INSERT INTO shunt.{table} ({columns}) VALUES ({marks}) IF NOT EXISTS USING TTL ?, \
             with wait_ms among the columns to wait for it"
        ))
    };
    if !insert.if_not_exists || insert.columns.len() != insert.values.len() {
        return Err(form());
    }
    let mut found = Found::default();
    for (column, value) in insert.columns.iter().zip(&insert.values) {
        let of_type = match column.as_str() {
            "name" | "owner" => ColumnType::Text,
            "mode" if table.is_shared() => ColumnType::Text,
            "wait_ms" => ColumnType::Int,
            _ => return Err(form()),
        };
        found.put(column, source(value, of_type, column)?)?;
    }
    let ttl = insert.attributes.time_to_live.as_ref().ok_or_else(form)?;
    let mode = if table.is_shared() { Some(found.take("mode").ok_or_else(form)?) } else { None };
    Ok(Form::Acquire {
        name: found.take("name").ok_or_else(form)?,
        owner: found.take("owner").ok_or_else(form)?,
        mode,
        wait_ms: found.take("wait_ms"),
        ttl: source(ttl, ColumnType::Int, "[ttl]")?,
    })
}

fn read_update(table: Table, update: &Update) -> Result<Form, InvalidRequest> {
    let form = || {
        refuse(match table.is_shared() {
            false => format!(
                "a lock is renewed by UPDATE shunt.{} USING TTL ? SET owner = ? WHERE name = ? IF owner = ? [AND fence = ?]",
                table.name()
            ),
            true => format!(
                "a lock is renewed by UPDATE shunt.{} USING TTL ? SET mode = ? WHERE name = ? AND owner = ? \
                 IF EXISTS, or IF fence = ?",
                table.name()
            ),
        })
    };
    let ttl = update.attributes.time_to_live.as_ref().ok_or_else(form)?;
    let set = if table.is_shared() { "mode" } else { "owner" };
    let [assignment] = &update.assignments[..] else { return Err(form()) };
    let Operation::Set(value) = &assignment.operation else { return Err(form()) };
    if assignment.column != set {
        return Err(form());
    }
    let assigned = source(value, ColumnType::Text, set)?;
    let mut key = read_key(table, &update.relations, table.is_shared()).ok_or_else(form)??;
    let mut conditions = read_conditions(&update.conditions, set).ok_or_else(form)??;
    let name = key.take("name").ok_or_else(form)?;
    let (mut owners, mut modes) = (Vec::new(), Vec::new());
    if table.is_shared() {
        owners.push(key.take("owner").ok_or_else(form)?);
        modes.push(assigned);
        modes.extend(conditions.take("mode"));
    } else {
        owners.push(assigned);
        owners.push(conditions.take("owner").ok_or_else(form)?);
    }
    Ok(Form::Renew {
        name,
        owners,
        modes,
        fence: conditions.take("fence"),
        ttl: source(ttl, ColumnType::Int, "[ttl]")?,
    })
}

fn read_delete(table: Table, delete: &Delete) -> Result<Form, InvalidRequest> {
    let form = || {
        refuse(match table.is_shared() {
            false => format!(
                "a lock is released by DELETE FROM shunt.{} WHERE name = ? IF owner = ? [AND fence = ?]: only who holds it can",
                table.name()
            ),
            true => format!(
                "a lock is released by DELETE FROM shunt.{} WHERE name = ? AND owner = ? IF EXISTS, or IF fence = ?",
                table.name()
            ),
        })
    };
    if !delete.deletions.is_empty() {
        return Err(form());
    }
    let mut key = read_key(table, &delete.relations, table.is_shared()).ok_or_else(form)??;
    let allowed = if table.is_shared() { "" } else { "owner" };
    let mut conditions = read_conditions(&delete.conditions, allowed).ok_or_else(form)??;
    let owner = if table.is_shared() { key.take("owner") } else { conditions.take("owner") };
    Ok(Form::Release {
        name: key.take("name").ok_or_else(form)?,
        owner: owner.ok_or_else(form)?,
        fence: conditions.take("fence"),
    })
}

fn read_select(table: Table, select: &Select) -> Result<Single, InvalidRequest> {
    let unwanted = [
        (select.json, "JSON"),
        (select.distinct, "DISTINCT"),
        (!select.group_by.is_empty(), "GROUP BY"),
        (!select.order_by.is_empty(), "ORDER BY"),
        (select.per_partition_limit.is_some(), "PER PARTITION LIMIT"),
        (select.allow_filtering, "ALLOW FILTERING"),
    ];
    if let Some((_, what)) = unwanted.iter().find(|(is_there, _)| *is_there) {
        return Err(refuse(format!("a SELECT from the tables of shunt has no {what}")));
    }
    let columns = read_columns(table, &select.clause)?;
    let limit =
        select.limit.as_ref().map(|limit| source(limit, ColumnType::Int, "[limit]")).transpose()?;
    let is_exclusive = matches!(table, Table::Locks | Table::FastLocks);
    if select.relations.is_empty() && is_exclusive {
        return Ok(Single { table, form: Form::Longest { columns, limit } });
    }
    let form = || {
        let (more, also) = match table {
            Table::LockQueue => (" [AND fast = ?]", ""),
            _ if table.is_shared() => (" [AND owner = ?]", ""),
            _ => ("", ", and without WHERE those of this proxy, the longest queues first"),
        };
        refuse(format!(
            "SELECT .. FROM shunt.{} WHERE name = ?{more} shows one lock at a time{also}",
            table.name()
        ))
    };
    let mut key = read_key(table, &select.relations, true).ok_or_else(form)??;
    let name = key.take("name").ok_or_else(form)?;
    let form = match table {
        Table::LockQueue => Form::Queue { name, fast: key.take("fast"), columns, limit },
        _ => Form::Look { name, owner: key.take("owner"), columns, limit },
    };
    Ok(Single { table, form })
}

fn read_columns(table: Table, clause: &SelectClause) -> Result<Vec<Selected>, InvalidRequest> {
    let all = table.columns();
    let SelectClause::Items(items) = clause else {
        let every = all
            .iter()
            .enumerate()
            .map(|(column, (name, _))| Selected { shown: Box::from(*name), column });
        return Ok(every.collect());
    };
    if items.len() > COLUMNS_MAX {
        let count = items.len();
        return Err(refuse(format!(
            "a SELECT from the tables of shunt has {count} columns; the limit is {COLUMNS_MAX}"
        )));
    }
    let read = items.iter().map(|item| {
        let Selector::Column(name) = &item.selector else {
            return Err(refuse(
                "a SELECT from the tables of shunt has columns, and no functions or terms",
            ));
        };
        let column = all.iter().position(|(known, _)| known == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            refuse(format!(
                "shunt.{} has no column {name}: it has {}",
                table.name(),
                names.join(", ")
            ))
        })?;
        Ok(Selected { shown: item.alias.as_deref().unwrap_or(name).into(), column })
    });
    read.collect()
}

/// Values by the names of their columns, each once.
#[derive(Default)]
struct Found(Vec<(String, Source)>);

impl Found {
    fn put(&mut self, column: &str, source: Source) -> Result<(), InvalidRequest> {
        if self.0.iter().any(|(known, _)| known == column) {
            return Err(refuse(format!("{column} is there twice")));
        }
        self.0.push((column.to_owned(), source));
        Ok(())
    }

    fn take(&mut self, column: &str) -> Option<Source> {
        let place = self.0.iter().position(|(known, _)| known == column)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// Values of WHERE; `None` if it contains anything else.
fn read_key(
    table: Table,
    relations: &[Relation],
    with_more: bool,
) -> Option<Result<Found, InvalidRequest>> {
    let mut found = Found::default();
    for relation in relations {
        let Relation::Column { column, comparison: Comparison::Equal, value } = relation else {
            return None;
        };
        let of_type = match column.as_str() {
            "name" => ColumnType::Text,
            "owner" if table.is_shared() && with_more => ColumnType::Text,
            "fast" if table == Table::LockQueue => ColumnType::Boolean,
            _ => return None,
        };
        if let Err(error) =
            source(value, of_type, column).and_then(|source| found.put(column, source))
        {
            return Some(Err(error));
        }
    }
    Some(Ok(found))
}

/// Values of IF: of `fence`, and of the column `also`. IF EXISTS has none, and is for tables whose
/// key includes the owner. `None` if the clause contains anything else.
fn read_conditions(conditions: &Conditions, also: &str) -> Option<Result<Found, InvalidRequest>> {
    let mut found = Found::default();
    let all = match conditions {
        Conditions::None => return None,
        Conditions::Exists if also == "owner" => return None,
        Conditions::Exists => return Some(Ok(found)),
        Conditions::All(all) => all,
    };
    for condition in all {
        let ColumnCondition {
            column,
            element: None,
            field: None,
            comparison: Some(Comparison::Equal),
            values,
            ..
        } = condition
        else {
            return None;
        };
        let [value] = &values[..] else { return None };
        let of_type = match column.as_str() {
            "fence" => ColumnType::BigInt,
            column if column == also => ColumnType::Text,
            _ => return None,
        };
        if let Err(error) =
            source(value, of_type, column).and_then(|source| found.put(column, source))
        {
            return Some(Err(error));
        }
    }
    Some(Ok(found))
}

/// A marker, or a literal of this type.
fn source(term: &Term, of_type: ColumnType, column: &str) -> Result<Source, InvalidRequest> {
    let wrong = || {
        refuse(format!("the value of {column} is neither a bind marker nor a {}", of_type.name()))
    };
    let literal = match term {
        Term::Marker(index) => return Ok(Source::Marker(*index)),
        Term::Literal(literal) => literal,
        _ => return Err(wrong()),
    };
    // The longest value of any column; a longer one would occupy memory as long as the statement is
    // prepared.
    if literal.text.len() > NAME_BYTES_MAX {
        return Err(refuse(format!(
            "{column} has {} bytes: at most {NAME_BYTES_MAX} are allowed",
            literal.text.len()
        )));
    }
    let bytes = match (of_type, literal.kind) {
        (ColumnType::Text, LiteralKind::String) => literal.text.clone().into_bytes(),
        (ColumnType::Int, LiteralKind::Integer) => {
            literal.text.parse::<i32>().map_err(|_| wrong())?.to_be_bytes().to_vec()
        }
        (ColumnType::BigInt, LiteralKind::Integer) => {
            literal.text.parse::<i64>().map_err(|_| wrong())?.to_be_bytes().to_vec()
        }
        (ColumnType::Boolean, LiteralKind::Boolean) => {
            vec![u8::from(literal.text.eq_ignore_ascii_case("true"))]
        }
        _ => return Err(wrong()),
    };
    Ok(Source::Literal(bytes.into_boxed_slice()))
}
