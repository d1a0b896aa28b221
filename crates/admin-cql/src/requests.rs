//! Requests of clients that have logged in.

use std::sync::Arc;

use shunt_admin::Pages;
use shunt_language::CqlType;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{self, Column, PreparedSpec};
use shunt_wire::cql::message::{
    ErrorDetails, ErrorMessage, Execute, Prepare, Query, QueryParams, Register, encode, error_code,
    split_request_prefix,
};

use crate::bindings::Bound;
use crate::execute::{self, Answer, Form, Session, type_options};
use crate::fault::Fault;
use crate::plan::{self, Action, Plan};
use crate::prepared::Store;
use crate::schema::CQL_VERSION;

/// Answers a request.
///
/// # Errors
/// The request has no meaning, or was refused.
pub(crate) async fn answer(
    header: Header,
    body: &[u8],
    (pages, store): (&Pages, &Store),
    session: &mut Session,
) -> Result<Answer, Fault> {
    let (_, body) = split_request_prefix(header.flags, body)?;
    let version = header.version;
    match header.opcode {
        opcode::OPTIONS => Ok(supported()),
        opcode::REGISTER => {
            // Events never come: the tables are fixed, and there is one host.
            Register::decode(body)?;
            Ok(Answer::plain(opcode::READY, Vec::new()))
        }
        opcode::QUERY => {
            let Query { text, params } = Query::decode(version, body)?;
            let plan = plan::read(text, params.keyspace.or(session.keyspace.as_deref()))?;
            let bound = Bound::new(&plan.markers, &params.values)?;
            execute::run(&plan, &bound, form(version, &params), pages, session).await
        }
        opcode::PREPARE => {
            let Prepare { text, keyspace } = Prepare::decode(version, body)?;
            let keyspace = keyspace.or(session.keyspace.as_deref());
            let plan = Arc::new(plan::read(text, keyspace)?);
            let id = store.keep(text, keyspace, &plan);
            Ok(prepared(&id, &plan, version))
        }
        opcode::EXECUTE => {
            let Execute { id, params, .. } = Execute::decode(version, body)?;
            let Some(plan) = store.get(id) else { return Ok(unprepared(id, version)) };
            let bound = Bound::new(&plan.markers, &params.values)?;
            execute::run(&plan, &bound, form(version, &params), pages, session).await
        }
        opcode::BATCH => Err(Fault::invalid("BATCH is not offered at the admin address")),
        other => {
            let name = opcode::name(other).unwrap_or("an unknown opcode");
            Err(Fault::protocol(format!("unexpected {name} ({other:#x})")))
        }
    }
}

/// SUPPORTED. Bodies are never compressed: answers are short, and the listener has one thread.
pub(crate) fn supported() -> Answer {
    let mut body = Vec::new();
    let options = [
        ("COMPRESSION", &[][..]),
        ("CQL_VERSION", &[CQL_VERSION]),
        ("PROTOCOL_VERSIONS", &["3/v3", "4/v4", "5/v5"]),
    ];
    encode::supported(
        &mut body,
        options.map(|(name, values): (&str, &[&str])| (name, values.iter().copied())),
    );
    Answer::plain(opcode::SUPPORTED, body)
}

fn form<'a>(version: u8, params: &QueryParams<'a>) -> Form<'a> {
    Form {
        version,
        skips_metadata: params.skips_metadata(),
        page_size: params.page_size,
        paging_state: params.paging_state,
    }
}

fn prepared(id: &[u8], plan: &Plan, version: u8) -> Answer {
    let result = match &plan.action {
        Action::Select(select) => select.columns(),
        _ => Vec::new(),
    };
    let markers: Vec<_> =
        plan.markers.iter().map(|marker| (marker.name.clone(), marker.cql_type.clone())).collect();
    let (result_options, bind_options) =
        (type_options(&result, version), type_options(&markers, version));
    let (result, bind) = (named(&result, &result_options), named(&markers, &bind_options));
    let (keyspace, table) = match &plan.action {
        Action::Select(select) => (select.table.keyspace, select.table.name),
        _ => (crate::tables::KEYSPACE, "settings"),
    };
    let spec = PreparedSpec {
        id,
        // The columns follow from the text, as the id does.
        result_metadata_id: id,
        keyspace,
        table,
        bind: &bind,
        partition_key: &[],
        result: &result,
    };
    let mut body = Vec::new();
    encode_result::prepared(&mut body, version, &spec);
    Answer::plain(opcode::RESULT, body)
}

fn named<'a>(columns: &'a [(String, CqlType)], options: &'a [Vec<u8>]) -> Vec<Column<'a>> {
    columns.iter().zip(options).map(|((name, _), option)| (&**name, &**option)).collect()
}

fn unprepared(id: &[u8], version: u8) -> Answer {
    let message = "this statement is not prepared here: prepare it again";
    let details = ErrorDetails::Unprepared { id };
    let error = ErrorMessage { code: error_code::UNPREPARED, message, details };
    let mut body = Vec::new();
    encode::error_with(&mut body, version, &error);
    Answer::plain(opcode::ERROR, body)
}
