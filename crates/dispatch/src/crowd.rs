//! Limit on the memory of all clients together. Each client has bounds of its own, but their sum
//! may be too much: then the clients that have taken nothing for longest are cut off until there is
//! room again.

use std::cmp::Reverse;

use shunt_reactor::Io;

use crate::failing;
use crate::reply;
use crate::state::{Client, Dispatcher, Place};

/// Idle times are compared in whole seconds; among equal ones the client with the most bytes is cut
/// off first.
const ALIKE_NS: u64 = 1_000_000_000;

impl Dispatcher {
    /// Sets the limit on the bytes of all clients of this event loop; limits per client are
    /// separate.
    pub fn set_clients_bytes_max(&mut self, bytes: usize) {
        self.weight.most = bytes;
    }
}

/// Weighs all clients if they may have exceeded the limit.
pub(crate) fn look(dispatcher: &mut Dispatcher, io: &mut Io) {
    if dispatcher.weight.is_due() {
        weigh(dispatcher, io);
    }
}

/// Weighs all clients, and cuts off idle ones if the sum exceeds the limit.
pub(crate) fn weigh(dispatcher: &mut Dispatcher, io: &mut Io) {
    let weights = dispatcher.clients.iter().map(|(_, client)| of(client, io));
    dispatcher.weight.set(weights.sum());
    if dispatcher.weight.weighed <= dispatcher.weight.most {
        return;
    }
    let all = dispatcher
        .clients
        .iter()
        .map(|(key, client)| (key, client.stalled_since_ns / ALIKE_NS, of(client, io)));
    let mut all: Vec<(usize, u64, usize)> = all.filter(|(_, _, bytes)| *bytes > 0).collect();
    all.sort_unstable_by_key(|(_, since, bytes)| (*since, Reverse(*bytes)));
    // The spare quarter avoids weighing all clients for every answer.
    let enough = dispatcher.weight.most - dispatcher.weight.most / 4;
    let mut count = 0_usize;
    for (client, _, bytes) in all {
        if dispatcher.weight.weighed <= enough {
            break;
        }
        dispatcher.weight.weighed -= bytes;
        count += 1;
        failing::give_up(dispatcher, io, client);
        reply::cut(dispatcher, io, client);
    }
    tracing::warn!(
        count,
        "cut off clients that read nothing: all clients together held too many bytes"
    );
}

/// Bytes kept for a client whose connection is here, those of its encryption included.
fn of(client: &Client, io: &Io) -> usize {
    let head = client.exchange.as_ref().map_or(0, |exchange| exchange.head.len());
    match client.place {
        Place::Here => {
            let conn = client.conn;
            io.output_memory(conn) + io.unread(conn) + io.session_bytes(conn) + head
        }
        Place::Leaving | Place::Away | Place::Arriving => 0,
    }
}
