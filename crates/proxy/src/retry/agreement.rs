//! Answers to schema changes, held until the nodes agree.
//!
//! The client's next query may go to another node, and must find the new schema there. A driver
//! would wait for that itself, but it sees only proxies, and these always agree with one another.
//! The cores know a new table before the answer goes out.

use shunt_reactor::Io;
use shunt_wire::cql::message::{ResultMessage, split_response_prefix};

use crate::control::state::{ControlRequest, TableName};
use crate::core::Core;
use crate::ids::{LinkKey, Ticket};
use crate::limits;
use crate::link::Pending;
use crate::metrics::Outcome;
use crate::reply::{self, Answer};
use crate::retry::AwaitingAgreement;

/// Holds the answer to a schema change until the nodes agree, see above.
pub(crate) fn hold(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    pending: &Pending,
    answer: &Answer<'_>,
    body: &[u8],
) {
    let rest = split_response_prefix(answer.flags & !1, body).map_or(&[][..], |(_, rest)| rest);
    let change = match ResultMessage::decode(4, rest) {
        Ok(ResultMessage::SchemaChange(change)) => Some(change),
        _ => None,
    };
    let table = change.and_then(|change| match (change.change, change.target, change.name) {
        ("CREATED", "TABLE", Some(table)) => TableName::new(change.keyspace, table).map(Box::new),
        _ => None,
    });
    let link = core.links.get(key);
    let account = link.and_then(|link| core.router.pools.get(link.pool)).map(|pool| pool.account);
    let account = account.unwrap_or_default();
    let has_room = core.retries.awaiting.has_room(account, answer.body.len());
    let node = link.map(|link| link.node);
    let Some(node) = node.filter(|_| change.is_some() && has_room) else {
        if change.is_some() {
            core.fleet.transactions.note_schema_change(io.now_ns());
        }
        reply::pass_on(core, io, pending, answer, Outcome::Ok);
        return;
    };
    let held = AwaitingAgreement {
        pending: *pending,
        account,
        flags: answer.flags,
        opcode: answer.opcode,
        body: answer.body.to_vec(),
        deadline_ns: io.now_ns() + limits::SCHEMA_AGREEMENT_NS,
    };
    let ticket = core.retries.next_ticket();
    core.retries.awaiting.insert(ticket, held);
    let (core_index, ticket_number) = (core.context.index, ticket.0.into());
    let request = ControlRequest::AwaitSchemaAgreement {
        node,
        core: core_index,
        ticket: ticket_number,
        table,
    };
    if core.context.control.try_send(request).is_err() {
        agreed(core, io, ticket);
    }
}

/// Passes the answer on, because the nodes agree or will not.
pub(crate) fn agreed(core: &mut Core, io: &mut Io, ticket: Ticket) {
    let Some(held) = core.retries.awaiting.remove(ticket) else { return };
    core.fleet.transactions.note_schema_change(io.now_ns());
    let answer = Answer {
        stream: held.pending.stream,
        flags: held.flags,
        opcode: held.opcode,
        body: &held.body,
    };
    reply::pass_on(core, io, &held.pending, &answer, Outcome::Ok);
}

/// Passes on answers that have waited long enough, whether the nodes agree or not.
pub(crate) fn expire(core: &mut Core, io: &mut Io) {
    for ticket in core.retries.awaiting.late(io.now_ns()) {
        agreed(core, io, ticket);
    }
}
