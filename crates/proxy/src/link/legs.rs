//! The two requests of a hedged read, while the proxy waits for both answers: each names the other.
//! When one of them ends, the other changes its purpose at once. So a hedged request always has a
//! counterpart.

use shunt_reactor::Io;

use crate::link::links::Links;
use crate::link::streams::Leg;
use crate::link::{Kept, Pending, Purpose};
use crate::metrics::{CoreMetrics, HedgeEvent};
use crate::retained::Retained;

/// The request at this place, if it names `own` as the other.
fn other_of(links: &mut Links, other: Leg, own: Leg) -> Option<&mut Pending> {
    let pending = links.get_mut(other.link)?.streams.get_mut(other.stream)?;
    let names_own = pending.purpose.other_leg() == Some(own);
    debug_assert!(names_own, "{other:?} is no longer the other of {own:?}");
    names_own.then_some(pending)
}

/// The answer to the request at `own` goes to the client, and the other answer will be dropped.
pub(crate) fn overtake(
    links: &mut Links,
    retained: &mut Retained,
    io: &mut Io,
    metrics: &CoreMetrics,
    (own, purpose): (Leg, Purpose),
) {
    let Purpose::Hedged { is_second, .. } = purpose else { return };
    count_end(metrics, is_second);
    let Some(other) = purpose.other_leg() else { return };
    let Some(pending) = other_of(links, other, own) else { return };
    pending.purpose = Purpose::Overtaken;
    let (client, kept) = (pending.client, std::mem::replace(&mut pending.kept, Kept::Nothing));
    let Some(link) = links.get_mut(other.link) else { return };
    link.overtaken += 1;
    link.free_bytes(client, retained.length(kept));
    retained.release_on(link, io, kept);
}

/// The request at `own` ends without an answer for the client. If it belongs to a hedged read, the
/// other one goes on as an ordinary request.
pub(crate) fn end(links: &mut Links, metrics: &CoreMetrics, own: Leg, purpose: Purpose) {
    let Purpose::Hedged { is_second, .. } = purpose else { return };
    count_end(metrics, !is_second);
    let other = purpose.other_leg().and_then(|other| other_of(links, other, own));
    if let Some(pending) = other {
        pending.purpose = Purpose::Client;
    }
}

/// Handles an overtaken request that has no answer at its deadline.
pub(crate) fn expire(links: &mut Links, own: Leg) {
    let Some(link) = links.get_mut(own.link) else { return };
    let pending = link.streams.get_mut(own.stream);
    if let Some(pending) = pending.filter(|pending| pending.purpose == Purpose::Overtaken) {
        pending.purpose = Purpose::Orphan;
        link.overtaken = link.overtaken.saturating_sub(1);
        link.orphans += 1;
    }
}

/// Counts the end of a hedge. `is_second`: the client's answer comes from the second node.
fn count_end(metrics: &CoreMetrics, is_second: bool) {
    let event = if is_second { HedgeEvent::Won } else { HedgeEvent::Abandoned };
    metrics.hedges.of(event).add(1);
}
