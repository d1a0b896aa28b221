//! Clients that wait for a link.
//!
//! A link has two lines. Clients wait in the first one while the link is full: the first to come is
//! the first to be read, and a client that fills the link again goes to the end of the line. While
//! clients wait there, the link takes no requests of others, so that a client whose requests arrive
//! at the right time does not overtake the line. Clients that have their part of a crowded link
//! wait in the second line, that of its [`shares`](crate::link::shares), until the link is no
//! longer crowded. One whose part is no longer used up goes to the first line.
//!
//! The core reads only as many clients as there is room for: its work is proportional to the
//! answers of the node, not to the clients in line.
//!
//! This must never: let a client wait while the link has room for it; read all of a line for one
//! answer; let a newer client of the same line go first.

use shunt_reactor::Io;

use crate::client::Stall;
use crate::core::Core;
use crate::ids::{ClientRef, LinkKey, LinkRef};
use crate::limits;
use crate::link::Link;

/// Holds a client back whose next query must take this link.
pub(crate) fn join(core: &mut Core, io: &mut Io, key: LinkKey, client: ClientRef) {
    let metrics = &core.context.metrics;
    if let Some(link) = core.links.get_mut(key) {
        match &mut link.shares {
            Some(shares) if shares.has_part(client) => {
                metrics.share_waits.add(1);
                shares.line_up(client);
            }
            _ => link.waiting.push_back(client),
        }
    }
    core.clients.stall(metrics, io, client.slot, Stall::LINK);
}

/// Checks whether a crowded link has room again. If so, the core reads from the clients in line at
/// the end of this turn.
pub(crate) fn reconsider(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get_mut(key) else { return };
    if !link.crowded || link.is_reopening || link.full && !has_room_again(link, io) {
        return;
    }
    link.full &= !link.waiting.is_empty();
    let is_crowded = link.stays_crowded(io);
    let in_line = link.shares.as_ref().map_or(0, |shares| shares.in_line());
    if !link.waiting.is_empty() || !is_crowded && in_line > 0 {
        link.is_reopening = true;
        let link = LinkRef { key, conn: link.conn };
        core.links.reopening.push(link);
    } else {
        link.crowded = is_crowded;
    }
}

/// True if a link that was full has room, and so much that it is not full again at once.
fn has_room_again(link: &Link, io: &Io) -> bool {
    !link.streams.is_full()
        && io.backlog(link.conn) <= limits::LINK_BACKLOG_BYTES_LOW
        && link.kept_bytes(io) <= limits::LINK_RETAINED_BYTES_AGAIN
}

/// Takes the next client out of the lines of a link that has room again. `false`: there is none.
///
/// A client that is read either leaves room or uses it up, and only a client that finds none joins
/// a line again, so the lines of a turn end. Clients that joined them in this turn count.
pub(crate) fn unstall_next(core: &mut Core, io: &mut Io) -> bool {
    let Core { clients, links, context, .. } = &mut *core;
    while let Some(at) = links.reopening.pop() {
        let Some(link) = links.find_mut(at) else { continue };
        let has_room = !link.streams.is_full() && !link.has_too_many_bytes(io);
        let is_crowded = link.stays_crowded(io);
        let mut next = if has_room { link.waiting.pop_front() } else { None };
        if next.is_none() && has_room && !is_crowded {
            next = link.shares.as_mut().and_then(|shares| shares.next());
        }
        link.full = !has_room;
        link.crowded = is_crowded || link.full;
        link.is_reopening = next.is_some();
        let Some(client) = next else { continue };
        links.reopening.push(at);
        if clients.find(client).is_some() {
            clients.unstall(&context.metrics, client.slot, Stall::LINK);
            return true;
        }
    }
    false
}

/// Counts anew who wants the links that are or were crowded, and lines up the clients whose part
/// has grown. Unused links give back the room of many requests.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let mut crowded = Vec::new();
    let clients = &core.clients;
    for (key, link) in core.links.iter_mut() {
        link.streams.shrink();
        let (Some(shares), waiting) = (&mut link.shares, &mut link.waiting) else { continue };
        let is_there = |client| clients.find(client).is_some();
        let is_needed = shares.tick(is_there, |client| waiting.push_back(client));
        if !is_needed && !link.crowded {
            link.shares = None;
        }
        crowded.push(key);
    }
    crowded.into_iter().for_each(|key| reconsider(core, io, key));
}
