//! The part of the rules that depends on the client alone: its role and its application.

use super::set::RuleSet;
use crate::client::Client;
use crate::config::{Rule, RuleMatch};
use crate::ids::PoolId;
use crate::link::Pools;

/// The rules that a client matches, whatever it sends. A client has them from its first query
/// under a rule on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientRules {
    /// Generation of the rules.
    generation: u32,
    pool: PoolId,
    set: RuleSet,
    /// True if the rules have counted its next query, which has waited since.
    pub(crate) is_counted: bool,
}

/// The rules that a client matches.
#[inline]
pub(super) fn matching(
    rules: &[Rule],
    generation: u32,
    client: &mut Client,
    pools: &Pools,
    pool: PoolId,
) -> RuleSet {
    match client.rules.as_deref() {
        Some(known) if known.generation == generation && known.pool == pool => known.set,
        _ => read(rules, generation, client, pools, pool),
    }
}

#[cold]
fn read(
    rules: &[Rule],
    generation: u32,
    client: &mut Client,
    pools: &Pools,
    pool: PoolId,
) -> RuleSet {
    let role = pools.get(pool).and_then(|pool| pool.names.whole_role.as_deref());
    let application = client.driver.as_deref().map(|driver| &*driver.application);
    let has = |values: &[String], value: Option<&str>| {
        values.is_empty() || values.iter().any(|known| Some(known.as_str()) == value)
    };
    let mut set = RuleSet::EMPTY;
    for (place, rule) in rules.iter().enumerate() {
        let RuleMatch { role: roles, application: applications, .. } = &rule.matches;
        if has(roles, role) && has(applications, application) {
            set.insert(place);
        }
    }
    let is_counted = client.rules.as_ref().is_some_and(|known| known.is_counted);
    client.rules = Some(Box::new(ClientRules { generation, pool, set, is_counted }));
    set
}
