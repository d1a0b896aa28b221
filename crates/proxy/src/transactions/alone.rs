//! A statement that is no transaction by its text, and is carried out as one that is it alone:
//! because of what its client asks besides ([`super::besides`]), or because of its table's mode
//! ([`super::routed`]).

use std::sync::Arc;

use shunt_language::transaction::{self, Returned, STATEMENTS_MAX, TEXT_BYTES_MAX};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    Batch, BatchKind, BatchStatement, Execute, Query, QueryParams, ValueList, Values,
};

use super::observe;
use crate::core::Core;
use crate::fault::Fault;
use crate::prepared::PreparedStatement;
use shunt_transactions::request::{AsSent, Known};

/// Reads a QUERY, EXECUTE or BATCH, and hands on what it is with its values. `session`: the
/// keyspace of its connection.
pub(super) fn read(
    core: &mut Core,
    session: Option<&str>,
    header: &Header,
    body: &[u8],
    take: impl FnOnce(&mut Core, &Arc<Known>, Values<'_>, AsSent) -> Result<(), Fault>,
) -> Result<(), Fault> {
    match header.opcode {
        opcode::EXECUTE => {
            let execute = Execute::decode(header.version, body)?;
            check_page(&execute.params)?;
            let statement = core.router.prepared.statement(execute.id).ok_or_else(unknown)?;
            let known = match statement.transaction.get() {
                Some(known) => Arc::clone(known),
                None => {
                    let known = Arc::new(observe::known(
                        core,
                        text_of(&statement)?,
                        statement.keyspace.as_deref(),
                    )?);
                    Arc::clone(statement.transaction.get_or_init(|| known))
                }
            };
            take(core, &known, execute.params.values, AsSent::of(&execute.params))
        }
        opcode::BATCH => {
            let batch = Batch::decode(header.version, body)?;
            let keyspace = batch.params.keyspace.or(session);
            let (text, values) = join(core, keyspace, header.version, &batch)?;
            take(
                core,
                &Arc::new(Known::read(&text, keyspace)?),
                values.values(),
                AsSent::of(&batch.params),
            )
        }
        _ => {
            let query = Query::decode(header.version, body)?;
            check_page(&query.params)?;
            let known = observe::known(core, query.text, query.params.keyspace.or(session))?;
            take(core, &Arc::new(known), query.params.values, AsSent::of(&query.params))
        }
    }
}

fn unknown() -> Fault {
    Fault::invalid("Shunt: this statement is not known any more; prepare it again")
}

fn text_of(statement: &PreparedStatement) -> Result<&str, Fault> {
    let text = statement.text.as_deref();
    text.ok_or_else(|| {
        Fault::invalid("Shunt: this prepared statement is too long to be carried out as a transaction; send it as text")
    })
}

/// What a transaction reads is one page.
fn check_page(params: &QueryParams<'_>) -> Result<(), Fault> {
    match params.paging_state {
        Some(_) => Err(Fault::invalid(
            "Shunt: a SELECT that is a transaction has one page, and this asks for a later one",
        )),
        None => Ok(()),
    }
}

/// The statements of a batch as one text, and their values in a row. Each is read by itself, and
/// takes its own values: what a node refuses as a batch must not be carried out because it makes
/// sense as one text.
fn join(
    core: &mut Core,
    keyspace: Option<&str>,
    version: u8,
    batch: &Batch<'_>,
) -> Result<(String, ValueList), Fault> {
    if batch.kind == BatchKind::Counter {
        return Err(Fault::invalid("Shunt: counters take part in no transactions"));
    }
    if batch.len() > STATEMENTS_MAX {
        let statements = batch.len();
        return Err(Fault::invalid(format!(
            "Shunt: a batch that is a transaction has {statements} statements: {STATEMENTS_MAX} are the most"
        )));
    }
    let (mut text, mut values) = ("BEGIN BATCH".to_owned(), ValueList::positional(version));
    for child in batch.children() {
        text.push('\n');
        let given = child.values.len();
        match child.statement {
            BatchStatement::Text(one) => add(&mut text, one, given)?,
            BatchStatement::Prepared(id) => {
                let statement = core.router.prepared.statement(id).ok_or_else(unknown)?;
                if !statement.names_keyspace && statement.keyspace.as_deref() != keyspace {
                    let (prepared, now) = (
                        statement.keyspace.as_deref().unwrap_or("none"),
                        keyspace.unwrap_or("none"),
                    );
                    return Err(Fault::invalid(format!(
                        "Shunt: a statement of this batch was prepared in keyspace {prepared}, and the batch is in {now}: name the keyspace in \
                         its text"
                    )));
                }
                add(&mut text, text_of(&statement)?, given)?;
            }
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(Fault::invalid(format!(
                "Shunt: the statements of a batch that is a transaction have {TEXT_BYTES_MAX} bytes at most"
            )));
        }
        text.push(';');
        child.values.iter().for_each(|(_, value)| _ = values.push(value));
    }
    text.push_str("\nAPPLY BATCH");
    Ok((text, values))
}

/// Adds one statement, without what is around it.
fn add(text: &mut String, one: &str, given: usize) -> Result<(), Fault> {
    let alone = transaction::parse_alone(one)?;
    let (Returned::Nothing, [inner]) = (&alone.returned, &alone.statements[..]) else {
        return Err(Fault::invalid(
            "Shunt: a statement of a batch is one INSERT, UPDATE or DELETE",
        ));
    };
    let markers = alone.markers.len();
    if given != markers {
        return Err(Fault::invalid(format!(
            "there were {markers} markers(?) in CQL but {given} bound variables"
        )));
    }
    text.push_str(one.get(inner.range.clone()).unwrap_or_default());
    Ok(())
}
