//! The answer to PREPARE: the statement is remembered for all cores, and prepared on the other nodes ahead of need.

use shunt_reactor::Io;
use shunt_wire::cql::compression;
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::{Prepare, ResultMessage, split_request_prefix, split_response_prefix};
use shunt_wire::cql::statement;

use crate::core::Core;
use crate::disaggregate::Answer;
use crate::limits;
use crate::metrics::Outcome;
use crate::node::{Pending, Purpose};
use crate::prepared::PreparedStatement;
use crate::repair::SentOf;

impl Core {
    /// A node prepared a client's statement: remember it, tell the client, and prepare it on the other nodes too.
    pub(crate) fn learn_prepared(
        &mut self,
        io: &mut Io,
        key: u32,
        pending: &Pending,
        answer: &Answer<'_>,
        body: &[u8],
    ) {
        if let Some(text) = self.remember_statement(io, key, pending, answer, body) {
            self.deliver(io, pending, answer, Outcome::Ok);
            self.spread(io, key, &text, pending);
        } else {
            self.deliver(io, pending, answer, Outcome::Ok);
        }
    }

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
        let session = pool.key.keyspace.clone();
        let compression = pool.key.compression;
        let (_, rest) = split_response_prefix(answer.flags, body).ok()?;
        let ResultMessage::Prepared(prepared) = ResultMessage::decode(version, rest).ok()? else { return None };
        let sent = self.retained_bytes_of(io.sent_of(link.conn, pending.retained), pending.retained)?;
        let mut plain = Vec::new();
        let request = if pending.flags & flag::COMPRESSION != 0 && version < 5 {
            let max = limits::REQUEST_BYTES_MAX;
            compression::decompress(compression?, &sent, max, &mut plain).ok()?;
            &plain[..]
        } else {
            &sent[..]
        };
        let (_, request) = split_request_prefix(pending.flags, request).ok()?;
        let asked = Prepare::decode(version, request).ok()?;
        let parsed = statement::classify(asked.text);
        let keyspace = asked.keyspace.or(session.as_deref());
        let routing = self.cluster.as_ref().map(|cluster| &*cluster.routing);
        let learned =
            PreparedStatement::learn(asked.text, &parsed, keyspace, asked.keyspace.is_some(), &prepared, routing);
        self.prepared.learn(learned);
        Some(sent)
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
