//! The error for a statement that a rule refuses.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::Header;

use super::Rules;
use crate::core::Core;
use crate::digests::attribution;
use crate::fault::Fault;
use crate::metrics::Outcome;
use crate::overload;
use crate::plan::Plan;
use crate::reply;

impl Rules {
    /// The error of the rule in this place.
    fn fault(&self, place: u16) -> Fault {
        let active = self.active.as_deref();
        let rule = active.and_then(|active| active.rules.get(usize::from(place)));
        let (name, words) = rule.map_or(("", ""), |rule| {
            (&*rule.name, rule.actions.refuse.as_deref().unwrap_or_default())
        });
        Fault::invalid(format!("Shunt: rule `{name}` refuses this statement: {words}"))
    }
}

/// Refuses a query beyond the limit of a rule.
#[cold]
pub(crate) fn refuse_beyond_limit(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    message: (&Header, &[u8]),
    plan: &Plan,
    place: u16,
) {
    let active = core.router.rules.active.as_deref();
    let rule = active.and_then(|active| active.rules.get(usize::from(place)));
    let (name, limit) =
        rule.map_or(("", 0), |rule| (&*rule.name, rule.actions.queries_per_s.unwrap_or_default()));
    let fault = Fault::overloaded(format!(
        "Shunt: rule `{name}` has reached its limit at this proxy: queries_per_s = {limit}"
    ));
    overload::refuse(core, io, slot, message, plan, &fault);
}

/// Refuses a query that a rule refuses.
#[cold]
pub(crate) fn refuse(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    (header, body): (&Header, &[u8]),
    plan: &Plan,
    place: u16,
) {
    let fault = core.router.rules.fault(place);
    let served = attribution::identify_served(core, io, slot, (header, body), io.now_ns());
    attribution::count_served_refusal(core, io, slot, served, fault.kind.code());
    core.context.metrics.queries.of(plan.kind).add(1);
    core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
    reply::error(core, io, slot, header.stream, &fault);
}
