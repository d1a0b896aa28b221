//! The requests that may be sent a second time when the outcome of the first is unknown.
//!
//! A node that was given up may have executed a request, or may do so much later: a paused node has
//! it in its buffers, and goes on as if no time had passed. So a request never goes to another node
//! unless a second execution, at whatever time after the answer, has no effect beyond that of the
//! first. `wire::cql::statement` defines that for a statement; this module adds the conditions that
//! only the message, the session and the schema show.
//!
//! Only lost requests are judged, and then by their bytes and the present schema: an answered query
//! pays nothing for it, and a table that was altered since a statement was prepared is seen in its
//! present form.

use std::sync::Arc;

use shunt_topology::RoutingTable;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::split_request_prefix;
use shunt_wire::cql::message::{
    Batch, BatchKind, BatchStatement, Execute, Prepare, Query, Value, Values,
};
use shunt_wire::cql::statement::{Bind, Cells, Identifier, Repeatable, Setting, repeatable};
use shunt_wire::error::DecodeError;

use crate::link::Pending;
use crate::plan::Work;
use crate::router::Router;

/// The schema and the values of a statement.
#[derive(Debug)]
struct Given<'a> {
    routing: &'a RoutingTable,
    /// Keyspace of unqualified names.
    keyspace: Option<&'a str>,
    values: &'a Values<'a>,
}

impl Setting for Given<'_> {
    fn table(&self, keyspace: Option<&Identifier<'_>>, table: &Identifier<'_>) -> Option<&Cells> {
        let keyspace = keyspace.copied().or_else(|| self.keyspace.map(Identifier::exact))?;
        self.routing.resolve_table(&keyspace, table).map(|table| &table.cells)
    }

    fn has_value(&self, marker: &Bind<'_>) -> bool {
        matches!(marker.of(self.values), Some(Value::Bytes(_)))
    }
}

/// True if a request may go to another node, whatever the first did or will do with it.
pub(crate) fn may_repeat(router: &mut Router, pending: &Pending, body: &[u8]) -> bool {
    // A request that was sent could be read then; one that cannot be read now is not repeated.
    judge_request(router, pending, body).unwrap_or(false)
}

fn judge_request(router: &mut Router, pending: &Pending, body: &[u8]) -> Result<bool, DecodeError> {
    let Some(pool) = router.pools.get(pending.pool) else { return Ok(false) };
    let (version, session) = (pool.key.version, pool.key.keyspace.clone());
    let (_, body) = split_request_prefix(pending.flags, body)?;
    let Some(routing) = router.cluster.as_ref().map(|cluster| Arc::clone(&cluster.routing)) else {
        return Ok(false);
    };
    let judge = |text: &str, keyspace: Option<&str>, values: &Values<'_>| {
        repeatable(text, &Given { routing: &routing, keyspace, values })
    };
    let (verdict, timestamp) = match pending.opcode {
        opcode::PREPARE => (Prepare::decode(version, body).map(|_| Repeatable::Always)?, None),
        opcode::QUERY => {
            let query = Query::decode(version, body)?;
            let keyspace = query.params.keyspace.or(session.as_deref());
            (judge(query.text, keyspace, &query.params.values), query.params.timestamp)
        }
        opcode::EXECUTE => {
            let execute = Execute::decode(version, body)?;
            let Some(statement) = router.prepared.statement(execute.id) else { return Ok(false) };
            // No more is known of a statement whose text is too long to keep.
            let Some(text) = statement.text.as_deref() else {
                return Ok(statement.work == Work::Read);
            };
            let verdict = judge(text, statement.keyspace.as_deref(), &execute.params.values);
            (verdict, execute.params.timestamp)
        }
        opcode::BATCH => {
            let batch = Batch::decode(version, body)?;
            let keyspace = batch.params.keyspace.or(session.as_deref());
            let verdicts = batch.children().map(|child| match child.statement {
                BatchStatement::Text(text) => judge(text, keyspace, &child.values),
                BatchStatement::Prepared(id) => {
                    let known = router.prepared.statement(id);
                    let text = known
                        .as_ref()
                        .and_then(|known| known.text.as_deref().map(|text| (text, known)));
                    text.map_or(Repeatable::Never, |(text, known)| {
                        judge(text, known.keyspace.as_deref(), &child.values)
                    })
                }
            });
            let counter = batch.kind == BatchKind::Counter;
            let best = if counter { Repeatable::Never } else { Repeatable::Always };
            // The worst statement of a batch decides.
            (verdicts.fold(best, Ord::min), batch.params.timestamp)
        }
        _ => (Repeatable::Never, None),
    };
    Ok(match verdict {
        Repeatable::Never => false,
        // The least number stands for no timestamp.
        Repeatable::WithTimestamp => timestamp.is_some_and(|timestamp| timestamp != i64::MIN),
        Repeatable::Always => true,
    })
}
