//! Which node a request goes to.
//!
//! First the plan: what the request is, and the token of its partition key when that can be told ([`Core::plan`]). Then
//! the choice: among the replicas of that token in the local datacentre the one with the fewest queries in flight;
//! without a token any node of the local datacentre ([`Core::choose`]). A request the proxy does not understand is never
//! refused: it goes to any node, is not repeated, and the node says what it thinks.

use shunt_topology::token;
use shunt_topology::{KeyspaceIndex, NodeId, Token};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::split_request_prefix;
use shunt_wire::cql::message::{Batch, BatchStatement, ExecuteRouting, Prepare, Query, Values};
use shunt_wire::cql::statement::{self, Identifier, Kind, Statement, routing_key};
use shunt_wire::error::DecodeError;

use crate::core::Core;
use crate::local_pages::reads_local_rows;
use crate::metrics::QueryKind;
use crate::node::{Pool, PoolId};
use crate::prepared::ID_BYTES;
use crate::system_tables::SystemTable;

/// No prepared statement.
pub(crate) const NO_STATEMENT: u32 = u32::MAX;

/// What kind of work a request asks for; decides the error when its fate is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    /// A schema change or TRUNCATE, which every node has a part in.
    Schema,
    Other,
}

/// What must happen to the node's answer before the client gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Deliver,
    /// PREPARE: remember the statement.
    Learn,
    /// A read of `system.local` or `system.peers`: show the proxy instead of the node.
    Rewrite(SystemTable),
    /// A read of rows that are each node's own: its pages stay with one node.
    Local,
    /// Schema change: wait until the nodes agree.
    Agree,
    /// Not understood: see that it did not change the shared connection's keyspace.
    Inspect,
    /// USE: changes the client's pool and is never sent on a shared link.
    Use,
    /// It names a statement that nobody prepared here: not sent, the client is asked to prepare it.
    Unprepared,
}

/// What is known about one request; small, because it lies in the stream table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) placement: Option<(KeyspaceIndex, Token)>,
    /// Generation of the routing table `placement` belongs to.
    pub(crate) generation: u32,
    /// The only node it may go to.
    pub(crate) node: Option<NodeId>,
    pub(crate) work: Work,
    pub(crate) kind: QueryKind,
    /// A lightweight transaction (IF).
    pub(crate) conditional: bool,
    /// Not put into one frame or segment with others: conditional or a range read, which would hold them up; or one that a
    /// node may be unable to read, two of which in one segment would end the connection.
    pub(crate) alone: bool,
    pub(crate) after: After,
    /// The prepared statement executed, in the core's table.
    pub(crate) statement: u32,
    pub(crate) consistency: u16,
}

impl Plan {
    /// The plan of a request nothing is known about.
    pub(crate) fn anywhere() -> Self {
        Self {
            placement: None,
            generation: 0,
            node: None,
            work: Work::Other,
            kind: QueryKind::Other,
            conditional: false,
            alone: true,
            after: After::Deliver,
            statement: NO_STATEMENT,
            consistency: 0,
        }
    }
}

/// Outcome of [`Core::choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This link.
    Link(u32),
    /// The right links exist but are full; wait for this one.
    Full(u32),
    /// No link of the pool is open.
    Nothing,
}

impl Core {
    /// Reads of a request what routing needs. An error means the body is malformed.
    #[inline]
    pub(crate) fn plan(&mut self, pool: PoolId, header: &Header, body: &[u8]) -> Result<Plan, DecodeError> {
        let (_, body) = split_request_prefix(header.flags, body)?;
        match header.opcode {
            opcode::EXECUTE => Ok(self.plan_execute(&ExecuteRouting::decode(header.version, body)?)),
            opcode::QUERY => Ok(self.plan_query(pool, &Query::decode(header.version, body)?)),
            opcode::BATCH => Ok(self.plan_batch(pool, &Batch::decode(header.version, body)?)),
            opcode::PREPARE => {
                Prepare::decode(header.version, body)?;
                let after = After::Learn;
                Ok(Plan { kind: QueryKind::Prepare, after, ..Plan::anywhere() })
            }
            _ => Ok(Plan::anywhere()),
        }
    }

    #[inline]
    fn plan_execute(&mut self, execute: &ExecuteRouting<'_>) -> Plan {
        let mut plan = Plan {
            kind: QueryKind::Execute,
            consistency: execute.consistency.0,
            after: After::Inspect,
            ..Plan::anywhere()
        };
        let Some((number, learned)) = self.prepared.look_up(execute.id) else {
            plan.after = self.after_unknown(execute.id);
            return plan;
        };
        plan.statement = number;
        plan.work = learned.statement.work;
        plan.conditional = learned.statement.conditional;
        plan.after = learned.statement.after;
        if let Some(keyspace) = learned.keyspace
            && let Some(token) = learned.token(&execute.values, &mut self.key_scratch)
        {
            plan.placement = Some((keyspace, token));
            plan.generation = self.generation;
            plan.alone = plan.conditional || execute.doubtful;
        }
        plan
    }

    /// What follows when nobody prepared the statement with this id here: a proxy that restarted does not know what
    /// its clients prepared before. Asked again, their drivers prepare it, and it can be routed from then on.
    #[cold]
    fn after_unknown(&self, id: &[u8]) -> After {
        if id.len() == ID_BYTES { After::Unprepared } else { After::Inspect }
    }

    fn plan_query(&mut self, pool: PoolId, query: &Query<'_>) -> Plan {
        let parsed = statement::classify(query.text);
        let placement = self.text_placement(pool, query.params.keyspace, &parsed, &query.params.values);
        let session = self.pools.get(pool).and_then(|pool| pool.key.keyspace.as_deref());
        let after = after_of(&parsed, query.params.keyspace.or(session));
        Plan {
            placement,
            generation: self.generation,
            node: None,
            work: work_of(parsed.kind),
            kind: QueryKind::Query,
            conditional: parsed.conditional,
            alone: parsed.conditional || placement.is_none() || query.params.is_doubtful(),
            after,
            statement: NO_STATEMENT,
            consistency: query.params.consistency.0,
        }
    }

    /// A batch goes where its first statement with a key goes.
    fn plan_batch(&mut self, pool: PoolId, batch: &Batch<'_>) -> Plan {
        let mut plan = Plan {
            generation: self.generation,
            work: Work::Write,
            kind: QueryKind::Batch,
            consistency: batch.params.consistency.0,
            ..Plan::anywhere()
        };
        for child in batch.children() {
            let (conditional, placement) = match child.statement {
                BatchStatement::Prepared(id) => match self.prepared.look_up(id) {
                    None => {
                        plan.after = self.after_unknown(id);
                        (false, None)
                    }
                    Some((_, learned)) => {
                        let token = learned.token(&child.values, &mut self.key_scratch);
                        (learned.statement.conditional, learned.keyspace.zip(token))
                    }
                },
                BatchStatement::Text(text) => {
                    let parsed = statement::classify(text);
                    let wanted = plan.placement.is_none();
                    let placement = if wanted {
                        self.text_placement(pool, batch.params.keyspace, &parsed, &child.values)
                    } else {
                        None
                    };
                    (parsed.conditional, placement)
                }
            };
            plan.conditional |= conditional;
            plan.placement = plan.placement.or(placement);
        }
        plan.alone = plan.conditional || plan.placement.is_none() || batch.params.is_doubtful();
        plan
    }

    /// Placement of a statement given as text, from its literals and bind values.
    fn text_placement(
        &mut self,
        pool: PoolId,
        keyspace: Option<&str>,
        parsed: &Statement<'_>,
        values: &Values<'_>,
    ) -> Option<(KeyspaceIndex, Token)> {
        let routing = &self.cluster.as_ref()?.routing;
        let session = self.pools.get(pool)?.key.keyspace.as_deref();
        let keyspace = parsed.keyspace.or_else(|| keyspace.or(session).map(Identifier::exact))?;
        let table = routing.resolve_table(&keyspace, &parsed.table?)?;
        let value = |bind: statement::Bind<'_>| bind.of(values)?.bytes();
        let scratch = &mut self.key_scratch;
        if !routing_key(parsed, &table.partition_key, value, scratch) {
            return None;
        }
        Some((routing.resolve_keyspace(&keyspace)?, token::token(scratch)))
    }
}

impl Core {
    /// The link a request takes, from the links its pool has open.
    #[inline]
    pub(crate) fn choose(&mut self, pool: PoolId, plan: &Plan) -> Choice {
        let Some(cluster) = self.cluster.as_ref() else { return Choice::Nothing };
        let Some(pool) = self.pools.get(pool) else { return Choice::Nothing };
        if pool.ready == 0 {
            return Choice::Nothing;
        }
        if let Some(node) = plan.node {
            return self.least_loaded(pool, [node].iter());
        }
        if let Some((keyspace, token)) = plan.placement
            && plan.generation == self.generation
        {
            let replicas = cluster.routing.replicas(keyspace, token);
            let local = &replicas.nodes[..replicas.local.min(replicas.nodes.len())];
            // Conditions on one partition through one coordinator do not compete in Paxos.
            if plan.conditional
                && let Choice::Link(link) = self.least_loaded(pool, local.iter().take(1))
                && self.is_responsive(link)
            {
                return Choice::Link(link);
            }
            match self.least_loaded(pool, local.iter()) {
                Choice::Nothing => {}
                found => return found,
            }
        }
        let nodes = cluster.routing.local_nodes();
        let start = if nodes.is_empty() { 0 } else { self.cursor % nodes.len() };
        let choice = self.least_loaded(pool, nodes[start..].iter().chain(&nodes[..start]));
        self.cursor = self.cursor.wrapping_add(1);
        choice
    }

    /// Whether a link's node answers probes.
    fn is_responsive(&self, link: u32) -> bool {
        let node = self.links.get(link as usize).and_then(|link| self.nodes.get(usize::from(link.node.0)));
        node.is_some_and(|node| !node.silent)
    }

    /// Of these nodes the one with the fewest queries in flight, its late errors counted among them; the first of equals.
    /// Nodes that do not answer probes come last.
    #[inline]
    fn least_loaded<'a>(&self, pool: &Pool, nodes: impl Iterator<Item = &'a NodeId>) -> Choice {
        let mut best = None;
        let mut full = Choice::Nothing;
        for node in nodes {
            let Some(state) = self.nodes.get(usize::from(node.0)) else { continue };
            for key in pool.links_to(*node) {
                let Some(link) = self.links.get(key as usize).filter(|link| link.is_ready()) else { continue };
                if link.full {
                    full = Choice::Full(key);
                    continue;
                }
                let load = (state.silent, state.in_flight + state.penalty, link.streams.len());
                if best.is_none_or(|(least, _)| load < least) {
                    best = Some((load, key));
                }
            }
        }
        best.map_or(full, |(_, key)| Choice::Link(key))
    }
}

/// What kind of work a kind of statement is.
pub(crate) fn work_of(kind: Kind) -> Work {
    match kind {
        Kind::Select => Work::Read,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch => Work::Write,
        Kind::Ddl | Kind::Truncate => Work::Schema,
        Kind::Use | Kind::Other => Work::Other,
    }
}

/// What a statement's answer needs; `keyspace` is what its unqualified names mean.
pub(crate) fn after_of(parsed: &Statement<'_>, keyspace: Option<&str>) -> After {
    match parsed.kind {
        Kind::Use => After::Use,
        Kind::Ddl => After::Agree,
        Kind::Select => match SystemTable::of(parsed, keyspace) {
            Some(table) => After::Rewrite(table),
            None if reads_local_rows(parsed, keyspace) => After::Local,
            None => After::Deliver,
        },
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch | Kind::Truncate => After::Deliver,
        Kind::Other => After::Inspect,
    }
}
