//! Rows of a table: those of its page, as CQL values.

use serde_json::Value as Page;
use shunt_admin::Pages;
use shunt_language::CqlType;
use shunt_language::values::json::{Json, from_json};
use tokio::task::yield_now;

use crate::cores::core_list;
use crate::fault::Fault;
use crate::schema::{self, Identity};
use crate::select::Row;
use crate::tables::{Source, Table};

/// Rows that are read before other tasks have a turn.
const ROWS_IN_A_ROW: usize = 64;

/// Rows, and warnings about them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) rows: Vec<Row>,
    pub(crate) warnings: Vec<String>,
}

/// Reads the rows of a table with columns of these types.
///
/// # Errors
/// The process has no such page.
pub(crate) async fn read(
    table: &Table,
    types: &[CqlType],
    pages: &Pages,
    identity: &Identity,
) -> Result<Found, Fault> {
    let (name, place, others) = match table.source {
        Source::Own => {
            let rows = schema::rows(table, pages.version(), identity);
            let rows = rows.iter().map(|row| cells(table, types, row)).collect();
            return Ok(Found { rows, warnings: Vec::new() });
        }
        Source::Page(name, place) => (name, place, None),
        Source::PageWithOthers(name, place, others, count) => (name, place, Some((others, count))),
    };
    let page = pages.content(name).await;
    let page = page.ok_or_else(|| Fault::invalid(format!("this process has no page /{name}")))?;
    let mut rows: Vec<Row> = Vec::new();
    for row in listed(&page, place) {
        // The thread has other work, and each page of a result reads all rows.
        if rows.len() % ROWS_IN_A_ROW == ROWS_IN_A_ROW - 1 {
            yield_now().await;
        }
        rows.push(cells(table, types, row));
    }
    if let Some((place, count)) = others {
        let sums = listed(&page, place)
            .filter(|row| row.pointer(count).and_then(Page::as_u64).is_some_and(|sum| sum > 0));
        rows.extend(sums.map(|row| {
            let mut row = row.clone();
            row["others"] = true.into();
            cells(table, types, &row)
        }));
    }
    Ok(Found { rows, warnings: warnings(&page, place) })
}

/// The rows at a place of a page: the elements of a list, or one object.
fn listed<'p>(page: &'p Page, place: &str) -> impl Iterator<Item = &'p Page> + use<'p> {
    let found = page.pointer(place).filter(|found| !found.is_null());
    let (list, one) = match found.and_then(Page::as_array) {
        Some(list) => (&list[..], None),
        None => (&[][..], found),
    };
    list.iter().chain(one)
}

/// The page's own warnings about these rows, and one for cores that have not answered it.
fn warnings(page: &Page, place: &str) -> Vec<String> {
    let beside = place.rsplit_once('/').map_or("", |(parent, _)| parent);
    let missing = page.pointer(&format!("{beside}/cores_missing")).and_then(Page::as_array);
    let missing = missing.filter(|cores| !cores.is_empty());
    let warning = missing.map(|cores| {
        let has = if cores.len() == 1 { "has" } else { "have" };
        format!("rows are missing: {} {has} not answered in time", core_list(cores))
    });
    let own = page.pointer(&format!("{beside}/warnings")).and_then(Page::as_array);
    let own = own.into_iter().flatten().filter_map(Page::as_str).map(str::to_owned);
    own.chain(warning).collect()
}

/// The values of a row. A value that is not of its type is null; a test rules that out.
fn cells(table: &Table, types: &[CqlType], row: &Page) -> Row {
    let cell = |(column, cql_type): (&crate::tables::Column, &CqlType)| {
        let value = column.value(row)?;
        let json = tree(&value);
        let value = from_json(cql_type, &json, 0);
        debug_assert!(value.is_ok(), "{}: {json:?} is no {cql_type}", column.name);
        value.ok().flatten()
    };
    table.columns.iter().zip(types).map(cell).collect()
}

/// Converts JSON into the form that the language crate uses.
fn tree(page: &Page) -> Json {
    match page {
        Page::Null => Json::Null,
        Page::Bool(value) => Json::Boolean(*value),
        Page::Number(number) => Json::Number(number.to_string()),
        Page::String(text) => Json::String(text.clone()),
        Page::Array(elements) => Json::Array(elements.iter().map(tree).collect()),
        Page::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| (key.clone(), tree(value)));
            Json::Object(entries.collect())
        }
    }
}
