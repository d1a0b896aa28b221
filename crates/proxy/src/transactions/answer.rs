//! Outcomes of transactions as the results and errors that clients get.

use std::sync::Arc;

use shunt_locks::Ticket;
use shunt_transactions::guard::idempotency;
use shunt_transactions::plan::{ColumnSpec, Plan};
use shunt_transactions::request::{self, Head, Summary};
use shunt_transactions::{NotExecuted, Outcome};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::encode_result::{self, Column, PreparedSpec, RowsWriter, native};
use shunt_wire::cql::message::{ErrorMessage, encode, put, split_response_prefix};
use shunt_wire::cql::statement;

use super::conditional;
use super::intake::client;
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::locks::reply::Verdict;
use crate::prepared::PreparedStatement;
use crate::retry::failure;
use crate::transactions::job::{Failure, Job};

/// Payload key that says whether a transaction has written: 1, or 0.
const APPLIED: &str = "shunt-applied";
/// Error text for a transaction whose outcome is unknown.
const IN_DOUBT: &str = "Shunt: the outcome of this transaction is unknown; it may be committed";

fn columns(shown: &[ColumnSpec]) -> Vec<Column<'_>> {
    shown.iter().map(|column| (&*column.name, &*column.type_option)).collect()
}

/// Encodes the answer to an outcome.
pub(super) fn encode(
    out: &mut Vec<u8>,
    version: u8,
    job: &Job,
    outcome: Outcome,
) -> Result<Head, Failure> {
    let observed = job.conditional.as_ref().and_then(|state| state.observed.as_ref());
    if let Some((head, body)) = observed.and_then(|observed| observed.told.as_ref()) {
        // The node's answer counts, whatever the outcome here.
        out.extend_from_slice(body);
        return Ok(*head);
    }
    match outcome {
        Outcome::NotExecuted(why) => return Err(not_executed(why).into()),
        // The conditions did not hold, but another owner may have changed the row since.
        Outcome::InDoubt
            if !job.is_observed
                && job.conditional.as_ref().is_some_and(|state| state.is_refused) =>
        {
            return Err(not_executed(NotExecuted::Late).into());
        }
        Outcome::InDoubt => {
            failure::in_doubt(IN_DOUBT).put(out, version);
            return Ok((opcode::ERROR, 0));
        }
        // Writes to the fleet's own rows do not show in the answer.
        Outcome::Committed { .. } | Outcome::Read { .. } => {}
    }
    if let Some(state) = &job.conditional {
        out.extend(conditional::answer(state));
        return Ok((opcode::RESULT, 0));
    }
    if let Some(told) = &job.told {
        let (head, body) = repeat_answer(version, told);
        out.extend(body);
        return Ok(head);
    }
    let head = begin(out, version, !job.writes.is_empty());
    out.extend(result(job)?);
    Ok(head)
}

/// Begins a result.
fn begin(out: &mut Vec<u8>, version: u8, applied: bool) -> Head {
    if version < 4 {
        return (opcode::RESULT, 0);
    }
    put::bytes_map(out, [(APPLIED, Some(&[u8::from(applied)][..]))]);
    (opcode::RESULT, flag::CUSTOM_PAYLOAD)
}

/// The answer to a repeated transaction.
pub(super) fn repeat_answer(version: u8, known: &idempotency::KeptOutcome) -> (Head, Vec<u8>) {
    let mut out = Vec::new();
    let head = begin(&mut out, version, known.applied);
    out.extend_from_slice(&known.body);
    (head, out)
}

/// The result of a transaction, which is the same in all protocol versions.
pub(super) fn result(job: &Job) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let (plan, returned, selected) = job.parts();
    let Some(plan) = plan else {
        return Err(Fault::overloaded("Shunt: this transaction has no plan").into());
    };
    if let Some(selected) = selected {
        out.extend_from_slice(selected);
    } else if let Some(returned) = returned {
        let (keyspace, table) = plan.names();
        let mut writer = RowsWriter::new(&mut out, keyspace, table, &columns(&plan.columns));
        for value in returned {
            writer.value(value.as_deref());
        }
        writer.finish();
    } else {
        encode::void(&mut out);
    }
    Ok(out)
}

/// Answers that a request may have been carried out, or may be yet.
pub(super) fn tell_in_doubt(core: &mut Core, ticket: Ticket, why: &str) {
    let mut body = Vec::new();
    failure::in_doubt(why).put(&mut body, client::version_of(core, ticket));
    core.fleet.transactions.tell(ticket, (opcode::ERROR, 0), body);
}

/// Delivers the answer of the proxy that owns a keyspace to a client of this one, without parts
/// that the client's protocol version lacks.
pub(crate) fn forwarded(core: &mut Core, ticket: Ticket, header: &Header, body: &[u8]) {
    let version = client::version_of(core, ticket);
    let mut out = Vec::new();
    let mut flags = 0;
    let Ok((prefix, rest)) = split_response_prefix(header.flags, body) else {
        return of_verdict(core, ticket, Verdict::InDoubt);
    };
    if header.opcode == opcode::ERROR {
        match ErrorMessage::decode(header.version, rest) {
            Ok(error) => error.put(&mut out, version),
            Err(_) => return of_verdict(core, ticket, Verdict::InDoubt),
        }
    } else {
        if version >= 4
            && let Some(payload) = prefix.custom_payload
        {
            flags = flag::CUSTOM_PAYLOAD;
            put::bytes_map(&mut out, payload.iter());
        }
        out.extend_from_slice(rest);
    }
    core.fleet.transactions.tell(ticket, (header.opcode, flags), out);
}

/// Answers for a proxy that owns a keyspace and has not answered.
pub(crate) fn of_verdict(core: &mut Core, ticket: Ticket, verdict: Verdict) {
    match verdict {
        Verdict::InDoubt => {
            tell_in_doubt(core, ticket, IN_DOUBT);
        }
        Verdict::Quota(_) => {
            let fault = Fault::overloaded(
                "Shunt: too many requests are waiting for other proxies; nothing was written, ask again",
            );
            core.fleet.transactions.fail(ticket, &fault.into());
        }
        _ => core.fleet.transactions.fail(ticket, &not_executed(NotExecuted::Elsewhere).into()),
    }
}

/// The error for a transaction that was not executed. Its code makes drivers do the right thing: go
/// to the next host where another may serve the transaction, and otherwise tell the application.
fn not_executed(why: NotExecuted) -> Fault {
    let unserved = |why: &'static str| Fault::new(FaultKind::Unserved, why);
    match why {
        NotExecuted::Elsewhere => unserved(
            "Shunt: another proxy owns this keyspace's transactions, or none does yet; nothing was written, ask the next host",
        ),
        NotExecuted::LeaseOver => unserved(
            "Shunt: this proxy cannot commit now, since it did not reach a quorum of the ring in time; nothing was written",
        ),
        NotExecuted::NotOpen => unserved(
            "Shunt: recovery of this keyspace's transactions is still running; nothing was written, ask again",
        ),
        NotExecuted::Store => unserved(
            "Shunt: the record of this transaction could not be sent to a node; nothing was written, ask again",
        ),
        NotExecuted::Locked => Fault::overloaded(
            "Shunt: other transactions held the same partitions for too long; nothing was written, ask again",
        ),
        NotExecuted::Late => Fault::overloaded(
            "Shunt: this transaction's rows were not read in time; nothing was written, ask again",
        ),
        NotExecuted::Many => Fault::overloaded(
            "Shunt: too many transactions are under way; nothing was written, ask again",
        ),
        NotExecuted::Partitions => {
            Fault::invalid("Shunt: this transaction has too many partitions, or none")
        }
    }
}

/// Answers PREPARE of a text, with the plan of the text without its guard.
pub(super) fn prepared(core: &mut Core, ticket: Ticket, text: &str, plan: &Arc<Plan>) {
    let known = match Summary::parse(text, Some(&plan.draft.outline.keyspace)) {
        Ok(known) => known,
        Err(refusal) => return core.fleet.transactions.fail(ticket, &Fault::from(refusal).into()),
    };
    let mut bind = columns(&plan.markers);
    for (index, name, is_fence) in known.guards.iter().flat_map(|guards| guards.gone()) {
        bind.insert(
            usize::from(index).min(bind.len()),
            (name, if is_fence { native::BIGINT } else { native::TEXT }),
        );
    }
    let id = request::id_of(text, &known.keyspace);
    let version = client::version_of(core, ticket);
    let keyspace = Some(&*known.keyspace).filter(|name| !name.is_empty());
    let learned = PreparedStatement::opaque(&id, text, &statement::classify(text), keyspace);
    let learned = learned.of_transaction(known.clone());
    let account = client::account_of(core, ticket);
    core.router.prepared.learn(account, learned);
    let (keyspace, table) = plan.names();
    let mut body = Vec::new();
    let spec = PreparedSpec {
        id: &id,
        result_metadata_id: &id,
        keyspace,
        table,
        bind: &bind,
        partition_key: &[],
        result: &columns(&plan.columns),
    };
    encode_result::prepared(&mut body, version, &spec);
    core.fleet.transactions.tell(ticket, (opcode::RESULT, 0), body);
}
