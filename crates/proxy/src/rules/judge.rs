//! The decision about a query: the first rule that has an action decides it.

use shunt_topology::RoutingTable;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Batch, BatchStatement, Prepare, Query, split_request_prefix};
use shunt_wire::error::DecodeError;

use super::Active;
use super::client;
use super::set::RuleSet;
use crate::client::Client;
use crate::config::Action;
use crate::digests::texts::TextTable;
use crate::ids::PoolId;
use crate::metrics::QueryKind;
use crate::plan::{After, NO_STATEMENT, Plan};
use crate::prepared::PreparedCache;
use crate::router::Router;

/// The decision of all rules about a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Place of the rule that refuses it.
    pub(crate) refused_by: Option<u16>,
}

/// What finding the rules of a statement takes.
struct Reader<'r> {
    active: &'r mut Active,
    generation: u32,
    prepared: &'r PreparedCache,
    routing: Option<&'r RoutingTable>,
    texts: &'r TextTable,
    /// Keyspace of the client's session.
    session: Option<&'r str>,
}

impl Reader<'_> {
    fn text(&mut self, kind: QueryKind, keyspace: Option<&str>, text: &str) -> RuleSet {
        let session = keyspace.or(self.session);
        let hash = self.texts.hash(kind, session, text);
        let subject = (text, session, kind == QueryKind::Batch);
        self.active.of_text(self.generation, self.routing, hash, subject)
    }

    fn statement(&mut self, number: u32, is_in_batch: bool) -> RuleSet {
        let statement = (number, is_in_batch);
        self.active.of_statement(self.generation, self.prepared, self.routing, statement)
    }

    /// The rules that a request matches, whoever sends it.
    fn request(
        &mut self,
        header: &Header,
        body: &[u8],
        plan: &Plan,
    ) -> Result<RuleSet, DecodeError> {
        if header.opcode == opcode::EXECUTE {
            return Ok(match plan.statement {
                NO_STATEMENT => self.active.of_unknown,
                number => self.statement(number, false),
            });
        }
        let (_, body) = split_request_prefix(header.flags, body)?;
        match header.opcode {
            opcode::QUERY => {
                let query = Query::decode(header.version, body)?;
                Ok(self.text(QueryKind::Query, query.params.keyspace, query.text))
            }
            opcode::PREPARE => {
                let asked = Prepare::decode(header.version, body)?;
                Ok(self.text(QueryKind::Query, asked.keyspace, asked.text))
            }
            opcode::BATCH => Ok(self.batch(&Batch::decode(header.version, body)?)),
            _ => Ok(RuleSet::EMPTY),
        }
    }

    /// A batch matches the rules that any of its statements matches.
    fn batch(&mut self, batch: &Batch<'_>) -> RuleSet {
        let mut all = RuleSet::EMPTY;
        for child in batch.children() {
            let one = match child.statement {
                BatchStatement::Text(text) => {
                    self.text(QueryKind::Batch, batch.params.keyspace, text)
                }
                BatchStatement::Prepared(id) => match self.prepared.number_of(id) {
                    Some(number) => self.statement(number, true),
                    None => self.active.of_unknown,
                },
            };
            all = all.either(one);
        }
        all
    }
}

/// Decides about a query that was planned, and counts it at the rules that act.
pub(crate) fn judge(
    router: &mut Router,
    client: &mut Client,
    pool: PoolId,
    (header, body): (&Header, &[u8]),
    plan: &Plan,
) -> Verdict {
    // The client will be asked to prepare it, and sends it again.
    if plan.after == After::Unprepared {
        return Verdict::default();
    }
    let Router { rules, prepared, pools, texts, cluster, .. } = router;
    let generation = rules.generation;
    let Some(active) = rules.active.as_deref_mut() else { return Verdict::default() };
    let of_client = client::matching(&active.rules, generation, client, pools, pool);
    if of_client.is_empty() {
        return Verdict::default();
    }
    let session = pools.get(pool).and_then(|pool| pool.key.keyspace.as_deref());
    let routing = cluster.as_ref().map(|cluster| &*cluster.routing);
    let mut reader = Reader { active, generation, prepared, routing, texts, session };
    // The plan has read the request already, so that it can be read.
    let of_statement = reader.request(header, body, plan).unwrap_or_default();
    let both = of_client.both(of_statement);
    if both.is_empty() {
        return Verdict::default();
    }
    decide(reader.active, client, both, plan)
}

/// Walks through the matching rules in their order.
fn decide(active: &Active, client: &mut Client, matching: RuleSet, plan: &Plan) -> Verdict {
    let is_new = !client.rules.as_ref().is_some_and(|known| known.is_counted);
    let mut verdict = Verdict::default();
    // An exception has no rule, but decides.
    let mut is_decided = false;
    for place in matching.places() {
        let Some(rule) = active.rules.get(place) else { continue };
        let levels = rule.matches.consistency;
        let has_level = plan.kind != QueryKind::Prepare
            && 1u16.checked_shl(plan.consistency.into()).is_some_and(|bit| levels & bit != 0);
        if levels != 0 && !has_level {
            continue;
        }
        let Some(words) = rule.actions.refuse.as_deref().filter(|_| !is_decided) else { continue };
        let is_dry = rule.actions.dry_run;
        if !is_dry {
            is_decided = true;
            verdict.refused_by = (!words.is_empty()).then_some(place as u16);
        }
        let hits = rule.shared.hits(active.core, active.cores);
        if let Some(hits) = hits.filter(|_| is_new) {
            hits.count(Action::Refuse, is_dry);
        }
    }
    if let Some(known) = client.rules.as_deref_mut() {
        known.is_counted = true;
    }
    verdict
}
