//! Statements that are transactions of one statement: because of a guard or key
//! ([`shunt_transactions::guard`]), or because of their table's mode
//! ([`shunt_transactions::catalogue::modes`]).

use std::sync::Arc;

use shunt_language::transaction::{self, Returned, STATEMENTS_MAX, TEXT_BYTES_MAX};
use shunt_transactions::catalogue::modes::Access;
use shunt_transactions::request::{QueryOptions, Summary};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    Batch, BatchKind, BatchStatement, Execute, Query, QueryParams, ValueList, Values,
};

use crate::core::Core;
use crate::fault::Fault;
use crate::prepared::PreparedStatement;
use crate::transactions::{modes, observation};

/// Reads a QUERY, EXECUTE or BATCH, and passes its summary and values on. `session` is the
/// connection's keyspace.
pub(crate) fn read_statement(
    core: &mut Core,
    session: Option<&str>,
    header: &Header,
    body: &[u8],
    take: impl FnOnce(&mut Core, &Arc<Summary>, Values<'_>, QueryOptions) -> Result<(), Fault>,
) -> Result<(), Fault> {
    match header.opcode {
        opcode::EXECUTE => {
            let execute = Execute::decode(header.version, body)?;
            check_page(&execute.params)?;
            let statement = core.router.prepared.statement(execute.id).ok_or_else(unprepared)?;
            if matches!(statement.access, Access::Alter | Access::AddColumn) {
                return Err(modes::alteration_fault(text_of(&statement)?));
            }
            let known = match statement.transaction.get() {
                Some(known) => Arc::clone(known),
                None => {
                    let known = Arc::new(observation::summarise(
                        core,
                        text_of(&statement)?,
                        statement.keyspace.as_deref(),
                    )?);
                    Arc::clone(statement.transaction.get_or_init(|| known))
                }
            };
            take(core, &known, execute.params.values, QueryOptions::from_params(&execute.params))
        }
        opcode::BATCH => {
            let batch = Batch::decode(header.version, body)?;
            let keyspace = batch.params.keyspace.or(session);
            let (text, values) = join(core, keyspace, header.version, &batch)?;
            take(
                core,
                &Arc::new(Summary::parse(&text, keyspace)?),
                values.values(),
                QueryOptions::from_params(&batch.params),
            )
        }
        _ => {
            let query = Query::decode(header.version, body)?;
            check_page(&query.params)?;
            let known =
                observation::summarise(core, query.text, query.params.keyspace.or(session))?;
            take(
                core,
                &Arc::new(known),
                query.params.values,
                QueryOptions::from_params(&query.params),
            )
        }
    }
}

fn unprepared() -> Fault {
    Fault::invalid("Shunt: this prepared statement is no longer known; prepare it again")
}

fn text_of(statement: &PreparedStatement) -> Result<&str, Fault> {
    let text = statement.text.as_deref();
    text.ok_or_else(|| {
        Fault::invalid(
            "Shunt: this prepared statement is too long for a transaction; send it as text",
        )
    })
}

/// Refuses later pages: a transaction's read is one page.
fn check_page(params: &QueryParams<'_>) -> Result<(), Fault> {
    match params.paging_state {
        Some(_) => Err(Fault::invalid(
            "Shunt: a transactional SELECT returns one page; paging is not supported",
        )),
        None => Ok(()),
    }
}

/// Joins the statements of a batch into one text, and their values into one list. Each statement is
/// parsed by itself and takes its own values, so that a batch which nodes would refuse is not
/// carried out because it makes sense as one text.
fn join(
    core: &mut Core,
    keyspace: Option<&str>,
    version: u8,
    batch: &Batch<'_>,
) -> Result<(String, ValueList), Fault> {
    if batch.kind == BatchKind::Counter {
        return Err(Fault::invalid("Shunt: transactions do not support counters"));
    }
    if batch.len() > STATEMENTS_MAX {
        let statements = batch.len();
        return Err(Fault::invalid(format!(
            "Shunt: this batch is a transaction and has {statements} statements; {STATEMENTS_MAX} are allowed"
        )));
    }
    let (mut text, mut values) = ("BEGIN BATCH".to_owned(), ValueList::positional(version));
    for child in batch.children() {
        text.push('\n');
        let given = child.values.len();
        match child.statement {
            BatchStatement::Text(one) => append(&mut text, one, given)?,
            BatchStatement::Prepared(id) => {
                let statement = core.router.prepared.statement(id).ok_or_else(unprepared)?;
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
                append(&mut text, text_of(&statement)?, given)?;
            }
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(Fault::invalid(format!(
                "Shunt: this batch is a transaction; its statements may have {TEXT_BYTES_MAX} bytes at most"
            )));
        }
        text.push(';');
        child.values.iter().for_each(|(_, value)| _ = values.push(value));
    }
    text.push_str("\nAPPLY BATCH");
    Ok((text, values))
}

/// Appends one statement without its surroundings.
fn append(text: &mut String, one: &str, given: usize) -> Result<(), Fault> {
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
