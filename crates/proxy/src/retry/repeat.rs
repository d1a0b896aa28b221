//! Which requests may be sent a second time when nobody knows what became of the first.
//!
//! A node that is given up may have carried out what it was sent, or may do so much later: one that
//! stood still has it in its buffers, and goes on as if no time had passed. So a request is never
//! sent to another node unless a second execution, at whatever time after the answer, leaves
//! nothing that one alone would not. What a statement must be like for that, `wire::cql::statement`
//! says; here is added what only the message, the session and the schema tell.
//!
//! Asked only of requests that were lost, and then of their bytes and the schema as it is now: a
//! query that is answered pays nothing for it, and a table that was altered since a statement was
//! prepared is seen as it is.

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

/// The schema and the values that a statement comes with.
#[derive(Debug)]
struct Given<'a> {
    routing: &'a RoutingTable,
    /// The keyspace of unqualified names.
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

/// True if a request that a node was sent may be sent to another, whatever the first did or will do
/// with it.
pub(crate) fn may_repeat(router: &mut Router, pending: &Pending, body: &[u8]) -> bool {
    // What cannot be read now could be read when it was sent; if not, it is not repeated.
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
            // Of one whose text is too long to be kept no more is known than this.
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
            // A batch is as bad as its worst statement.
            (verdicts.fold(best, Ord::min), batch.params.timestamp)
        }
        _ => (Repeatable::Never, None),
    };
    Ok(match verdict {
        Repeatable::Never => false,
        // The least number stands for none.
        Repeatable::WithTimestamp => timestamp.is_some_and(|timestamp| timestamp != i64::MIN),
        Repeatable::Always => true,
    })
}
