//! Queries while there are rules: the rules decide before anything else happens to a query.

use shunt_reactor::Io;

use super::{Forwarded, Path, Request, send};
use crate::client::Client;
use crate::ids::PoolId;
use crate::plan::{After, Plan};
use crate::rules::judge::{Verdict, judge};
use crate::rules::pin;

/// Forwards a planned query as the rules have it.
#[inline(never)]
pub(super) fn forward(
    client: &mut Client,
    path: Path<'_>,
    io: &mut Io,
    request: &Request<'_>,
    (pool, plan): (PoolId, Plan),
) -> Forwarded {
    let message = (request.header, request.body);
    let verdict = judge(path.router, client, pool, message, &plan, io.now_ns());
    if let Some(place) = verdict.refused_by {
        return Forwarded::Refused(place, plan);
    }
    if let Some(place) = verdict.limited_by {
        return Forwarded::Limited(place, plan);
    }
    let Verdict { timeout_ms, is_unhedged, tag, level, .. } = verdict;
    let plan = Plan { timeout_ms, is_unhedged, tag, ..plan };
    let place = level.and_then(|level| Some((level, pin::place_in(message.0, message.1)?)));
    let forwarded = match place {
        Some((level, place)) => {
            send_at_level(client, path, io, request, (pool, plan), (level, place))
        }
        None if plan.after.is_for_the_proxy() => return Forwarded::Special(plan),
        None => send(client, path, io, request, (pool, plan)),
    };
    if matches!(forwarded, Forwarded::Sent)
        && let Some(rules) = client.rules.as_deref_mut()
    {
        rules.is_counted = false;
    }
    forwarded
}

/// Puts a query on its link with another consistency level, which stands in this place. An IN query
/// is not split then.
fn send_at_level(
    client: &mut Client,
    path: Path<'_>,
    io: &mut Io,
    request: &Request<'_>,
    (pool, plan): (PoolId, Plan),
    (level, place): (u16, usize),
) -> Forwarded {
    let plan = Plan { consistency: level, after: After::Deliver, ..plan };
    let Path { router, links, retained, tenants, traces, context } = path;
    let mut scratch = router.rules.take_scratch();
    pin::write(&mut scratch, request.body, place, level);
    let again = Path { router: &mut *router, links, retained, tenants, traces, context };
    let request = Request { body: &scratch, ..*request };
    let forwarded = send(client, again, io, &request, (pool, plan));
    router.rules.return_scratch(scratch);
    forwarded
}
