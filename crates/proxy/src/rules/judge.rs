//! The decision about a query: the first rule that has an action decides it.

use shunt_topology::RoutingTable;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    Batch, BatchStatement, Consistency, Prepare, Query, split_request_prefix,
};
use shunt_wire::error::DecodeError;

use super::client;
use super::pin;
use super::set::RuleSet;
use super::{Active, Found};
use crate::client::Client;
use crate::config::{Action, Rule};
use crate::digests::texts::TextTable;
use crate::ids::{PoolId, Tag};
use crate::metrics::QueryKind;
use crate::plan::{After, NO_STATEMENT, Plan, Work};
use crate::prepared::PreparedCache;
use crate::router::Router;

/// The decision of all rules about a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Place of the rule that refuses it.
    pub(crate) refused_by: Option<u16>,
    /// Place of the rule whose limit it exceeds.
    pub(crate) limited_by: Option<u16>,
    /// Its deadline, milliseconds; 0: the usual one.
    pub(crate) timeout_ms: u16,
    /// Its consistency level, if that is not its own.
    pub(crate) level: Option<u16>,
    /// True if it goes to no second replica.
    pub(crate) is_unhedged: bool,
    pub(crate) tag: Tag,
}

impl Verdict {
    /// True if the query goes nowhere.
    fn ends(&self) -> bool {
        self.refused_by.is_some() || self.limited_by.is_some()
    }
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
    fn text(&mut self, kind: QueryKind, keyspace: Option<&str>, text: &str) -> Found {
        let session = keyspace.or(self.session);
        let hash = self.texts.hash(kind, session, text);
        let subject = (text, session, kind == QueryKind::Batch);
        self.active.of_text(self.generation, self.routing, hash, subject)
    }

    fn statement(&mut self, number: u32, is_in_batch: bool) -> Found {
        let statement = (number, is_in_batch);
        self.active.of_statement(self.generation, self.prepared, self.routing, statement)
    }

    fn unknown(&self) -> Found {
        Found { set: self.active.of_unknown, is_conditional: false }
    }

    /// The rules that a request matches, whoever sends it.
    fn request(&mut self, header: &Header, body: &[u8], plan: &Plan) -> Result<Found, DecodeError> {
        if header.opcode == opcode::EXECUTE {
            return Ok(match plan.statement {
                NO_STATEMENT => self.unknown(),
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
            _ => Ok(Found::default()),
        }
    }

    /// A batch matches the rules that any of its statements matches, but an exception only if each
    /// of them does: what one statement may do must not let another one pass.
    fn batch(&mut self, batch: &Batch<'_>) -> Found {
        let (mut any, mut each) = (RuleSet::EMPTY, self.active.exceptions);
        let mut is_conditional = false;
        for child in batch.children() {
            let one = match child.statement {
                BatchStatement::Text(text) => {
                    self.text(QueryKind::Batch, batch.params.keyspace, text)
                }
                BatchStatement::Prepared(id) => match self.prepared.number_of(id) {
                    Some(number) => self.statement(number, true),
                    None => self.unknown(),
                },
            };
            any = any.either(one.set);
            each = each.both(one.set);
            is_conditional |= one.is_conditional;
        }
        Found { set: any.without(self.active.exceptions).either(each), is_conditional }
    }
}

/// Decides about a query that was planned, and counts it at the rules that act.
pub(crate) fn judge(
    router: &mut Router,
    client: &mut Client,
    pool: PoolId,
    (header, body): (&Header, &[u8]),
    plan: &Plan,
    now_ns: u64,
) -> Verdict {
    // The client will be asked to prepare it, and sends it again.
    if plan.after == After::Unprepared {
        return Verdict::default();
    }
    let Router { rules, prepared, pools, texts, cluster, .. } = router;
    // Both numbers only grow, so a sum never comes back.
    let generation = rules.generation.wrapping_add(prepared.replaced).max(1);
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
    let both = of_client.both(of_statement.set);
    if both.is_empty() {
        return Verdict::default();
    }
    let conditional = plan.conditional || of_statement.is_conditional;
    decide(reader.active, client, both, &Plan { conditional, ..*plan }, now_ns)
}

/// Decides each action by the first of the matching rules that has it.
fn decide(
    active: &mut Active,
    client: &mut Client,
    matching: RuleSet,
    plan: &Plan,
    now_ns: u64,
) -> Verdict {
    let Some(known) = client.rules.as_deref_mut() else { return Verdict::default() };
    // A query that has waited for a link is counted, and has paid.
    let is_new = !std::mem::replace(&mut known.is_counted, true);
    let mut verdict = Verdict::default();
    for action in Action::ALL {
        for place in matching.places() {
            let Some(rule) = active.rules.get(place) else { continue };
            if !rule.actions.has(action) || !has_level(rule, plan) {
                continue;
            }
            let limit = active.limits.get_mut(place).and_then(Option::as_mut);
            let effect = effect_of(rule, action, plan);
            let acts = match (action, limit) {
                (Action::Limit, Some(limit)) => {
                    effect.is_some() && is_new && !limit.takes(&rule.shared, now_ns)
                }
                _ => effect.is_some(),
            };
            let is_dry = rule.actions.dry_run;
            let decides = action == Action::Refuse && !is_dry;
            if (acts || decides)
                && is_new
                && let Some(hits) = rule.shared.hits(active.core, active.cores)
            {
                hits.count(action, is_dry);
            }
            if is_dry {
                continue;
            }
            if let Some(effect) = effect.filter(|_| acts) {
                effect.add_to(&mut verdict, place as u16);
            }
            if acts && action == Action::Tag {
                verdict.tag = active.tags.get(place).copied().unwrap_or_default();
            }
            break;
        }
        if verdict.ends() {
            break;
        }
    }
    verdict
}

/// True if the consistency level of a query fits a rule.
fn has_level(rule: &Rule, plan: &Plan) -> bool {
    let levels = rule.matches.consistency;
    let bit = 1u16.checked_shl(plan.consistency.into()).unwrap_or(0);
    levels == 0 || plan.kind != QueryKind::Prepare && levels & bit != 0
}

/// The effect of an action on a query.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Refuse,
    Limit,
    Timeout(u16),
    Level(Consistency),
    Unhedged,
    Tag,
}

/// The effect that an action of a rule has on a query; `None`: none.
fn effect_of(rule: &Rule, action: Action, plan: &Plan) -> Option<Effect> {
    let actions = &rule.actions;
    let is_query = plan.kind != QueryKind::Prepare;
    let is_for_nodes = !plan.after.is_for_the_proxy() || plan.after == After::Multiget;
    match action {
        Action::Refuse => {
            let words = actions.refuse.as_deref()?;
            (!words.is_empty()).then_some(Effect::Refuse)
        }
        Action::Limit => is_query.then_some(Effect::Limit),
        Action::Timeout if is_query && is_for_nodes => actions.timeout_ms.map(Effect::Timeout),
        Action::Timeout => None,
        Action::Hedge => (plan.work == Work::Read && is_query).then_some(Effect::Unhedged),
        Action::Tag => (is_query && is_for_nodes).then_some(Effect::Tag),
        Action::Consistency => pin::replacing(actions.consistency?, plan).map(Effect::Level),
    }
}

impl Effect {
    fn add_to(self, verdict: &mut Verdict, place: u16) {
        match self {
            Effect::Refuse => verdict.refused_by = Some(place),
            Effect::Limit => verdict.limited_by = Some(place),
            Effect::Timeout(timeout_ms) => verdict.timeout_ms = timeout_ms,
            Effect::Level(level) => verdict.level = Some(level.0),
            Effect::Unhedged => verdict.is_unhedged = true,
            // The core knows the number of its text.
            Effect::Tag => {}
        }
    }
}
