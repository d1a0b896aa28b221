//! The locks of all cores of this proxy, longest queues first. Each core sends its own, and the
//! lists are merged and cut to the length that the client asked for.
//!
//! A core visits each of its locks, at about ten nanoseconds each, and also the places of locks
//! that are gone. So that no client can hold it up by asking again and again, it visits
//! [`VISITS_PER_TICK`] places between two ticks, and very many locks once a second at most. After
//! that it repeats its last list.

use shunt_language::lock_tables::Request;
use shunt_locks::{Namespace, NotServed, Quota, Ticket};
use shunt_reactor::Io;

use crate::core::Core;
use crate::fault::Fault;
use crate::fleet::requests;
use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::fleet::requests::clients;
use crate::ids::ClientRef;
use crate::limits;
use crate::locks::reply::{Reply, Verdict};
use crate::locks::state::Overview;
use crate::locks::{dispatch, keeper, listing};
use crate::transactions::part::Who;

/// Number of locks above which a core visits them once a second only.
const LOCKS_FEW: usize = 16_384;
/// Places that lists of few locks may visit between two ticks: some five milliseconds' worth.
const VISITS_PER_TICK: usize = 32 * LOCKS_FEW;

/// Asks all cores for a client, which gets one answer.
pub(super) fn begin(
    core: &mut Core,
    io: &mut Io,
    client: (u32, i16),
    request: &Request<'_>,
    kind: AnswerKind,
) -> Result<(), Fault> {
    let Some((role, _)) = clients::asker_of(core, client.0) else { return Ok(()) };
    let who = Who::of(&role);
    if !core.fleet.locks.overview_shares.has_room(who, 0) {
        return Err(Fault::overloaded(
            "Shunt: too many requests, in all or of this role, ask for the locks of this proxy",
        ));
    }
    let most = request.limit.min(listing::ROWS_MAX as u32);
    let namespace = if request.table.is_fast() { Namespace::Memory } else { Namespace::Durable };
    let form = AnswerForm { kind, limit: request.limit, ..AnswerForm::default() };
    // Every proxy answers for itself.
    let Some((ticket, _)) = clients::note(core, io, client, true, form) else { return Ok(()) };
    let cores = core.context.config.cores.max(1);
    core.fleet.locks.overview_shares.take(who, 0);
    let question = Overview { ticket, who, left: cores, list: Vec::new(), refused: None };
    let gathered = core.fleet.locks.overviews.insert(question) as u32;
    for to in 0..cores {
        let mut of_nobody = requests::NONE;
        let whose = (ClientRef::PROXY, 0, io.now_ns());
        let form = AnswerForm { kind: AnswerKind::Share(gathered), ..AnswerForm::default() };
        let part = core.fleet.requests.add(core.context.index, &mut of_nobody, whose, form);
        if to == core.context.index {
            answer(core, io, part, namespace, most);
        } else if !core.fleet.lanes.ask_longest(to, part, namespace, most) {
            dispatch::deliver(core, io, part, &Verdict::Quota(Quota::Requests).into());
        }
    }
    Ok(())
}

/// Returns the list of this core.
pub(crate) fn answer(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    namespace: Namespace,
    most: u32,
) {
    if !dispatch::has_room_for_list(core, io, ticket) {
        dispatch::answered(core, io, ticket, &Verdict::Quota(Quota::Requests).into());
        return;
    }
    match look(core, io, namespace, most) {
        Ok(list) => {
            core.fleet.locks.lists_bytes += list.len();
            dispatch::answered(core, io, ticket, &Reply { list: &list, ..Verdict::Locks.into() });
            core.fleet.locks.snapshots[usize::from(namespace == Namespace::Memory)].list = list;
        }
        Err(why) => dispatch::answered(core, io, ticket, &Verdict::NotServed(why).into()),
    }
}

/// The first `most` locks of this core, longest queues first. The caller gives the list back.
pub(super) fn look(
    core: &mut Core,
    io: &mut Io,
    namespace: Namespace,
    most: u32,
) -> Result<Vec<u8>, NotServed> {
    let now = keeper::now(io);
    if core.fleet.locks.has_left() {
        return Err(NotServed::Elsewhere);
    }
    let place = usize::from(namespace == Namespace::Memory);
    // Otherwise each request for one lock more than the last would cause another visit.
    // A visit includes places of locks that are gone.
    let places = core.fleet.locks.table().0.places();
    let is_few = is_few(places, &mut core.fleet.locks.visits);
    let most = if is_few { most } else { listing::ROWS_MAX as u32 };
    let looked = &mut core.fleet.locks.snapshots[place];
    let (at_ns, enough) = (looked.at_ns, looked.most >= most);
    let mut list = std::mem::take(&mut looked.list);
    let (table, _) = core.fleet.locks.table();
    let is_new = enough && at_ns > 0 && now.boot_ns.saturating_sub(at_ns) < limits::SECOND_NS;
    if is_new && !is_few {
        return Ok(list);
    }
    list.clear();
    let see = |name: &[u8], holder: Option<shunt_locks::Holder<'_>>, waiters| {
        listing::put_lock(&mut list, name, holder.as_ref(), waiters);
    };
    table.longest(now, namespace, most as usize, see)?;
    let looked = &mut core.fleet.locks.snapshots[place];
    (looked.at_ns, looked.most) = (now.boot_ns, most);
    Ok(list)
}

/// True if so few places may be visited for this list alone; `visits` counts those since the tick.
fn is_few(places: usize, visits: &mut usize) -> bool {
    let is_few = places <= LOCKS_FEW && *visits + places <= VISITS_PER_TICK;
    *visits += if is_few { places } else { 0 };
    is_few
}

/// Takes in the list of one core.
pub(super) fn take_list(core: &mut Core, io: &mut Io, gathered: u32, outcome: &Reply<'_>) {
    let Some(question) = core.fleet.locks.overviews.get_mut(gathered as usize) else { return };
    match outcome.verdict {
        Verdict::Locks => question.list.extend_from_slice(outcome.list),
        why => question.refused = Some(why),
    }
    question.left -= 1;
    if question.left > 0 {
        return;
    }
    let Overview { ticket, who, list, refused, .. } =
        core.fleet.locks.overviews.remove(gathered as usize);
    core.fleet.locks.overview_shares.give_back(who, 0);
    let reply = match refused {
        Some(why) => why.into(),
        None => Reply { list: &list, ..Verdict::Locks.into() },
    };
    dispatch::deliver(core, io, ticket, &reply);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Released locks leave their places, and a list of none of them is short.
    #[test]
    fn lists_of_few_locks_visit_so_many_places_in_a_tick() {
        for places in [1, 1_000, 15_000, LOCKS_FEW] {
            let mut visits = 0;
            let fresh = (0..VISITS_PER_TICK + 128).filter(|_| is_few(places, &mut visits)).count();
            assert_eq!(fresh, VISITS_PER_TICK / places, "{places}");
            assert!(visits <= VISITS_PER_TICK);
        }
        assert!(!is_few(LOCKS_FEW + 1, &mut 0), "many locks are visited once a second");
    }
}
