//! The answer to PREPARE: the statement is remembered for all cores, and prepared on the other nodes ahead of need.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{Batch, BatchStatement, ExecuteRouting, Prepare, ResultMessage};
use shunt_wire::cql::message::{result_kind, split_request_prefix, split_response_prefix};
use shunt_wire::cql::statement;

use crate::core::Core;
use crate::disaggregate::Answer;
use crate::metrics::Outcome;
use crate::node::{Pending, Purpose};
use crate::prepared::{ID_BYTES, PreparedStatement, Shape};
use crate::repair::SentOf;
use crate::route::Plan;

impl Core {
    /// A node prepared a client's statement: remember it, tell the client, and prepare it on the other nodes too, if it is
    /// new or its text is not kept. Hundreds of sessions prepare the same statements; a node that has forgotten one is repaired when it says so.
    pub(crate) fn learn_prepared(
        &mut self,
        io: &mut Io,
        key: u32,
        pending: &Pending,
        answer: &Answer<'_>,
        body: &[u8],
    ) {
        let new = self.remember_statement(io, key, pending, answer, body);
        self.deliver(io, pending.recipient(), answer, Outcome::Ok);
        if let Some(request) = new {
            self.spread(io, key, &request, pending);
        }
    }

    /// A request names a statement that nobody prepared here. UNPREPARED makes drivers prepare it and ask again.
    #[cold]
    pub(crate) fn ask_to_prepare(&mut self, io: &mut Io, slot: u32, header: &Header, plan: &Plan, body: &[u8]) {
        self.metrics.queries.of(plan.kind).add(1);
        self.metrics.outcomes.of(Outcome::Intercepted).add(1);
        let Some(id) = self.unknown_id(header, body) else { return };
        let why = "Shunt: this statement was not prepared here, or so long ago that it is forgotten; prepare it";
        let answer = Self::unprepared(header.version, id, why);
        self.reply(io, slot, 0, opcode::ERROR, header.stream, &answer);
    }

    /// The first id in a request that is not known. If another core has learnt it meanwhile, the first at all: to prepare
    /// that again does no harm.
    fn unknown_id<'a>(&mut self, header: &Header, body: &'a [u8]) -> Option<&'a [u8]> {
        let (_, body) = split_request_prefix(header.flags, body).ok()?;
        if header.opcode == opcode::EXECUTE {
            return Some(ExecuteRouting::decode(header.version, body).ok()?.id);
        }
        let batch = Batch::decode(header.version, body).ok()?;
        let ids = batch.children().filter_map(|child| match child.statement {
            BatchStatement::Prepared(id) => Some(id),
            BatchStatement::Text(_) => None,
        });
        let mut ids = ids.filter(|id| id.len() == ID_BYTES).peekable();
        let first = ids.peek().copied();
        ids.find(|id| self.prepared.look_up(id).is_none()).or(first)
    }

    /// The request, if the other nodes are to get it too.
    fn remember_statement(
        &mut self,
        io: &Io,
        key: u32,
        pending: &Pending,
        answer: &Answer<'_>,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let link = self.links.get(key as usize)?;
        let pool = self.pools.get(link.pool)?;
        let version = pool.key.version;
        let (session, login) = (pool.key.keyspace.clone(), pool.key.login.clone());
        let (_, rest) = split_response_prefix(answer.flags, body).ok()?;
        let sent = self.retained_bytes_of(io.sent_of(link.conn, pending.retained), pending.retained)?;
        let (_, request) = split_request_prefix(pending.flags, &sent).ok()?;
        let asked = Prepare::decode(version, request).ok()?;
        let parsed = statement::classify(asked.text);
        let keyspace = asked.keyspace.or(session.as_deref());
        let routing = self.cluster.as_ref().map(|cluster| &*cluster.routing);
        let learned = match ResultMessage::decode(version, rest) {
            Ok(ResultMessage::Prepared(prepared)) => {
                let explicit = asked.keyspace.is_some();
                PreparedStatement::learn(asked.text, &parsed, keyspace, explicit, &prepared, routing)
                    .with_shape(Shape::of(version, &prepared))
            }
            // Metadata of a later kind than we know. It can be executed all the same, but only if it is remembered.
            _ => PreparedStatement::opaque(result_kind::prepared_id(rest)?, asked.text, &parsed, keyspace),
        };
        let account = self.prepared.account(login.as_deref());
        self.prepared.learn(account, learned).then_some(sent)
    }

    /// Prepares a statement on the pool's other nodes, ahead of need; nobody waits for the answers.
    fn spread(&mut self, io: &mut Io, from: u32, body: &[u8], prepare: &Pending) {
        let Some(link) = self.links.get(from as usize) else { return };
        let Some(pool) = self.pools.get(link.pool) else { return };
        let others: Vec<u32> = pool.links().filter(|key| *key != from).collect();
        for key in others {
            let fits = self.links.get(key as usize).is_some_and(|link| link.is_ready() && !link.full);
            if fits {
                let mut pending = self.own_request(io, Purpose::Spread, opcode::PREPARE);
                // Without tracing, which only the client's own request asked for.
                pending.flags = prepare.flags & !flag::TRACING;
                self.send_on_link(io, key, pending, body);
            }
        }
    }
}
