//! Clients that wait for a full link.
//!
//! The first to come is the first to be read, and a client that fills the link again goes to the
//! end of the line. While clients wait, the link takes no requests of others, so that a client
//! whose requests arrive at the right time does not overtake the line. The core reads only as many
//! clients as there is room for: its work is proportional to the answers of the node, not to the
//! clients in line.
//!
//! This must never: let a client wait while the link has room; read all of the line for one answer;
//! let a newer client go first.

use shunt_reactor::Io;

use crate::client::Stall;
use crate::core::Core;
use crate::ids::{LinkKey, LinkRef};
use crate::limits;

/// Checks whether a full link has room again. If so, the core reads from the clients in line at the
/// end of this turn.
pub(crate) fn reconsider_full(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get_mut(key) else { return };
    if !link.full
        || link.is_reopening
        || link.streams.is_full()
        || io.backlog(link.conn) > limits::LINK_BACKLOG_BYTES_LOW
        || io.retained_bytes(link.conn) + link.copied_bytes > limits::LINK_RETAINED_BYTES_MAX / 2
    {
        return;
    }
    link.full = !link.waiting.is_empty();
    if link.full {
        link.is_reopening = true;
        let link = LinkRef { key, conn: link.conn };
        core.links.reopening.push(link);
    }
}

/// Takes the next client out of the line of a link that has room again. `false`: there is none.
///
/// A client that is read either leaves room or fills the link, and only a client that fills it
/// joins the line again, so the line of a turn ends. Clients that joined it in this turn count.
pub(crate) fn unstall_next(core: &mut Core, io: &mut Io) -> bool {
    let Core { clients, links, context, .. } = &mut *core;
    while let Some(at) = links.reopening.pop() {
        let Some(link) = links.find_mut(at) else { continue };
        let has_room = !link.streams.is_full() && !link.has_too_many_bytes(io);
        let next = if has_room { link.waiting.pop_front() } else { None };
        link.full = !has_room;
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
