//! Collection of the lists in steps, with a timer between them.

use shunt_reactor::Io;
use tokio::sync::mpsc;

use super::{Collection, CoreConnections, rows};
use crate::core::Core;
use crate::ids::{LinkKey, PoolId};
use crate::limits;

/// Timer of the next step.
pub(crate) const TIMER: u64 = 12;

/// Begins a collection. It replaces an abandoned one, and uses that one's timer.
pub(crate) fn start(core: &mut Core, io: &mut Io, answer: mpsc::Sender<CoreConnections>) {
    if core.reports.connection_list.replace(Collection::new(answer)).is_none() {
        resume(core, io);
    }
}

/// Reads the next places, and sets the timer or sends the answer.
pub(crate) fn resume(core: &mut Core, io: &mut Io) {
    let Some(mut collection) = core.reports.connection_list.take() else { return };
    if collection.answer.is_closed() {
        return;
    }
    if step(&mut collection, core, io) {
        core.reports.connection_list = Some(collection);
        io.set_timer(io.now_ns() + limits::CENSUS_PAUSE_NS, TIMER);
    } else {
        collection.finish(core.context.index);
    }
}

/// Reads the next places; returns whether there are more.
fn step(collection: &mut Collection, core: &Core, io: &Io) -> bool {
    let clients = core.clients.capacity();
    let links = clients + core.links.capacity();
    let all = links + core.router.pools.capacity();
    let end = (collection.next + limits::CONNECTION_LIST_STEP).min(all);
    for place in collection.next..end {
        if place < clients {
            if let Some(client) = core.clients.get(place as u32) {
                collection.clients.add(rows::client(&core.router, io, client));
            }
        } else if place < links {
            add_link(collection, core, io, LinkKey((place - clients) as u32));
        } else if collection.pools.len() < limits::POOLS_MAX {
            let id = PoolId((place - links) as u32);
            collection.pools.extend(core.router.pools.get(id).map(|pool| rows::pool(id, pool, io)));
        }
    }
    collection.next = end;
    end < all
}

fn add_link(collection: &mut Collection, core: &Core, io: &Io, key: LinkKey) {
    let Some(link) = core.links.get(key) else { return };
    if collection.links.len() < limits::LISTED_LINKS_MAX {
        collection.links.push(rows::link(&core.router, io, key, link));
    } else {
        collection.links_left_out += 1;
    }
}
