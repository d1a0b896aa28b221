//! The locks of all cores of this proxy, those with the longest queues first: asked of each core,
//! put together, cut to what was asked for.
//!
//! A core looks at each of its locks, some ten nanoseconds for each. So that nobody holds a core up
//! by asking again and again, one that has very many looks once a second at most, and tells what it
//! saw then.

use shunt_language::facade::Request;
use shunt_locks::{Namespace, NotServed, Quota, Ticket};
use shunt_reactor::Io;

use crate::core::Core;
use crate::fault::Fault;
use crate::ids::ClientRef;
use crate::limits;
use crate::locks::form::{Form, FormKind};
use crate::locks::gathered::Gathered;
use crate::locks::outbox::{Reply, Verdict};
use crate::locks::{ask, keep, listing, requests};

/// Questions under way on a core.
const GATHERED_MAX: usize = 256;
/// With more locks than these a core looks once a second.
const LOCKS_FEW: usize = 16_384;

/// Asks all cores for a client. It is answered once.
pub(super) fn begin(
    core: &mut Core,
    io: &mut Io,
    client: (u32, i16),
    request: &Request<'_>,
    kind: FormKind,
) -> Result<(), Fault> {
    if core.fleet.locks.gathered.len() >= GATHERED_MAX {
        return Err(Fault::overloaded("Shunt: too many ask for the locks of this proxy"));
    }
    let most = request.limit.min(listing::ROWS_MAX as u32);
    let namespace = if request.table.is_fast() { Namespace::Memory } else { Namespace::Durable };
    let form = Form { kind, limit: request.limit, ..Form::default() };
    // Every proxy answers for itself.
    let Some((ticket, _)) = ask::note(core, io, client, true, form) else { return Ok(()) };
    let cores = core.context.config.cores.max(1);
    let question = Gathered { ticket, left: cores, list: Vec::new(), refused: None };
    let gathered = core.fleet.locks.gathered.insert(question) as u32;
    for to in 0..cores {
        let mut of_nobody = requests::NONE;
        let whose = (ClientRef::PROXY, 0, io.now_ns());
        let form = Form { kind: FormKind::Share(gathered), ..Form::default() };
        let part = core.fleet.locks.requests.add(core.context.index, &mut of_nobody, whose, form);
        if to == core.context.index {
            answer(core, io, part, namespace, most);
        } else if !core.fleet.lanes.ask_longest(to, part, namespace, most) {
            ask::deliver(core, io, part, &Verdict::Quota(Quota::Requests).into());
        }
    }
    Ok(())
}

/// This core's answer.
pub(super) fn answer(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    namespace: Namespace,
    most: u32,
) {
    if !ask::has_room_for_list(core, io, ticket) {
        ask::answered(core, io, ticket, &Verdict::Quota(Quota::Requests).into());
        return;
    }
    match look(core, io, namespace, most) {
        Ok(list) => {
            core.fleet.locks.lists_bytes += list.len();
            ask::answered(core, io, ticket, &Reply { list: &list, ..Verdict::Locks.into() });
            core.fleet.locks.looked[usize::from(namespace == Namespace::Memory)].list = list;
        }
        Err(why) => ask::answered(core, io, ticket, &Verdict::NotServed(why).into()),
    }
}

/// So many of this core's locks, those with the longest queues first. The list is to be given back.
pub(super) fn look(
    core: &mut Core,
    io: &mut Io,
    namespace: Namespace,
    most: u32,
) -> Result<Vec<u8>, NotServed> {
    let now = keep::now(io);
    if core.fleet.locks.has_left() {
        return Err(NotServed::Elsewhere);
    }
    let place = usize::from(namespace == Namespace::Memory);
    // Otherwise each question for one lock more than the last would be a look of its own.
    let is_few = core.fleet.locks.table().0.len() <= LOCKS_FEW;
    let most = if is_few { most } else { listing::ROWS_MAX as u32 };
    let looked = &mut core.fleet.locks.looked[place];
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
    let looked = &mut core.fleet.locks.looked[place];
    (looked.at_ns, looked.most) = (now.boot_ns, most);
    Ok(list)
}

/// The answer of one core.
pub(super) fn heard(core: &mut Core, io: &mut Io, gathered: u32, outcome: &Reply<'_>) {
    let Some(question) = core.fleet.locks.gathered.get_mut(gathered as usize) else { return };
    match outcome.verdict {
        Verdict::Locks => question.list.extend_from_slice(outcome.list),
        why => question.refused = Some(why),
    }
    question.left -= 1;
    if question.left > 0 {
        return;
    }
    let Gathered { ticket, list, refused, .. } =
        core.fleet.locks.gathered.remove(gathered as usize);
    let reply = match refused {
        Some(why) => why.into(),
        None => Reply { list: &list, ..Verdict::Locks.into() },
    };
    ask::deliver(core, io, ticket, &reply);
}
