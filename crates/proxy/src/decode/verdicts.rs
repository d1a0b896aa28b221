//! Queries while there are rules: the rules decide before anything else happens to a query.

use shunt_reactor::Io;

use super::{Forwarded, Path, Request, send};
use crate::client::Client;
use crate::ids::PoolId;
use crate::plan::Plan;
use crate::rules::judge::judge;

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
    let verdict = judge(path.router, client, pool, message, &plan);
    if let Some(place) = verdict.refused_by {
        return Forwarded::Refused(place, plan);
    }
    if plan.after.is_for_the_proxy() {
        return Forwarded::Special(plan);
    }
    let forwarded = send(client, path, io, request, (pool, plan));
    if matches!(forwarded, Forwarded::Sent)
        && let Some(rules) = client.rules.as_deref_mut()
    {
        rules.is_counted = false;
    }
    forwarded
}
