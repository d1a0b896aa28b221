//! Carries statements out, and encodes their results.

use std::net::IpAddr;

use shunt_admin::Pages;
use shunt_language::CqlType;
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::encode_result::RowsWriter;
use shunt_wire::cql::message::{encode, metadata_flag, put};

use crate::bindings::Bound;
use crate::describe;
use crate::fault::Fault;
use crate::limits::ROWS_MAX;
use crate::plan::{Action, Plan};
use crate::rows::{self, Found};
use crate::schema::Identity;
use crate::select::{Select, Selection};

/// Offsets in the body of a RESULT with rows.
const FLAGS_AT: usize = 4;
const PAGING_STATE_AT: usize = 12;

/// A response: the fields of its header, and its body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A response without flags.
    pub(crate) fn plain(opcode: u8, body: Vec<u8>) -> Answer {
        Answer { opcode, flags: 0, body }
    }
}

/// The form of the result that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) version: u8,
    pub(crate) skips_metadata: bool,
    pub(crate) page_size: Option<i32>,
    pub(crate) paging_state: Option<&'a [u8]>,
}

/// The state of a client that statements see.
#[derive(Debug)]
pub(crate) struct Session {
    /// Keyspace of USE.
    pub(crate) keyspace: Option<String>,
    pub(crate) identity: Identity,
    pub(crate) from: IpAddr,
}

/// Carries out a statement for a client that uses `keyspace`.
///
/// # Errors
/// The statement has no meaning with these values, or was refused.
pub(crate) async fn run(
    plan: &Plan,
    bound: &Bound,
    form: Form<'_>,
    pages: &Pages,
    session: &mut Session,
) -> Result<Answer, Fault> {
    let mut body = Vec::new();
    match &plan.action {
        Action::Select(select) => {
            let types = select.types();
            let found = rows::read(select.table, types, pages, &session.identity).await?;
            let Found { rows, warnings } = found;
            let rows = select.result(rows, bound)?;
            put_page(select, &rows, form, &mut body)?;
            return Ok(with_warnings(body, &warnings, form.version));
        }
        Action::Change(change) => {
            let told = change.make(pages, bound, session.from).await?;
            encode::void(&mut body);
            return Ok(with_warnings(body, &told, form.version));
        }
        Action::Use(keyspace) => {
            encode::set_keyspace(&mut body, keyspace);
            session.keyspace = Some(keyspace.clone());
        }
        Action::Describe(wanted) => {
            describe::answer(wanted, session.keyspace.as_deref(), &mut body)?;
        }
    }
    Ok(Answer::plain(opcode::RESULT, body))
}

/// A RESULT with warnings, which v3 does not have.
fn with_warnings(result: Vec<u8>, warnings: &[String], version: u8) -> Answer {
    if warnings.is_empty() || version < 4 {
        return Answer::plain(opcode::RESULT, result);
    }
    let mut body = Vec::new();
    put::string_list(&mut body, warnings.iter().map(String::as_str));
    body.extend_from_slice(&result);
    Answer { opcode: opcode::RESULT, flags: flag::WARNING, body }
}

/// The types of columns as `[option]`s.
pub(crate) fn type_options(columns: &[(String, CqlType)], version: u8) -> Vec<Vec<u8>> {
    let option = |(_, cql_type): &(String, CqlType)| {
        let mut option = Vec::new();
        cql_type.write_option(version, &mut option);
        option
    };
    columns.iter().map(option).collect()
}

/// Appends the page of rows that a client asks for. Pages of one result are read anew each: rows
/// may have changed in between.
fn put_page(
    select: &Select,
    rows: &Selection<'_>,
    form: Form<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let start = match form.paging_state {
        None | Some([]) => 0,
        Some(state) => {
            let state = <[u8; 4]>::try_from(state)
                .map_err(|_| Fault::protocol("Invalid value for the paging state"))?;
            u32::from_be_bytes(state) as usize
        }
    };
    let size = form.page_size.filter(|size| *size > 0).map_or(ROWS_MAX, |size| size as usize);
    let page = rows.page(start, size.min(ROWS_MAX))?;
    let columns = select.columns();
    let options = type_options(&columns, form.version);
    let named: Vec<_> =
        columns.iter().zip(&options).map(|((name, _), option)| (&**name, &**option)).collect();
    let mut writer = if form.skips_metadata {
        RowsWriter::without_metadata(out, columns.len())
    } else {
        RowsWriter::new(out, select.table.keyspace, select.table.name, &named)
    };
    for value in page.iter().flat_map(|row| rows.values(row)) {
        writer.value(value);
    }
    writer.finish();
    let end = start.saturating_add(page.len());
    if end < rows.len()
        && let Some(flags) = out.get_mut(FLAGS_AT + 3)
    {
        *flags |= metadata_flag::HAS_MORE_PAGES as u8;
        let mut state = Vec::new();
        put::bytes(&mut state, Some(&(end as u32).to_be_bytes()));
        out.splice(PAGING_STATE_AT..PAGING_STATE_AT, state);
    }
    Ok(())
}
