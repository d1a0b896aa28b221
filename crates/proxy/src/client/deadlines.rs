//! Deadlines and memory of clients: for the handshake, for one request, for taking replies; and the
//! bytes that all of them together may leave lying.

use shunt_reactor::Io;

use crate::accept::TOO_MANY;
use crate::client::{Client, Phase, Stall, closing};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::ids::ClientRef;
use crate::limits;
use crate::metrics::{Closing, Refusal};

/// Closes clients that take too long over their handshake or over one request. Full rounds, only
/// now and then, also measure the clients' rates of queries.
pub(crate) fn tick(core: &mut Core, io: &mut Io, full_round: bool) {
    let now = io.now_ns();
    let (mut late, mut deaf, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    for (slot, client) in core.clients.iter_mut() {
        bytes += bytes_of(io, client);
        if full_round {
            client.traffic.measure(now);
        }
        if client.is_away {
            // The agent that has its connection makes it take its replies, and what the client
            // sends waits there: for both the time begins when the connection is back.
            client.untaken_since_ns = now;
            if client.partial_since_ns != 0 {
                client.partial_since_ns = now;
            }
        }
        let handshake = !matches!(client.phase, Phase::Ready) && now > client.handshake_deadline_ns;
        let slow = client.partial_since_ns != 0
            && !client.stalls.any()
            && now - client.partial_since_ns > limits::REQUEST_READ_NS;
        if takes_nothing(io, client) {
            deaf.push(slot);
        } else if handshake || (full_round && slow) {
            late.push((slot, handshake));
        } else if client.stalled_since_ns != 0
            && now - client.stalled_since_ns > limits::STALL_MAX_NS
        {
            held.push(slot);
        }
    }
    for (slot, handshake) in late {
        if core.clients.get(slot).is_some_and(|client| client.phase == Phase::TurnedAway) {
            closing::abort(core, io, slot, Closing::TooMany, TOO_MANY);
        } else if handshake {
            refuse_late(core, io, slot);
        } else {
            closing::close(
                core,
                io,
                slot,
                Closing::RequestTimeout,
                "it took longer than a minute to send one request",
            );
        }
    }
    for slot in deaf {
        closing::abort(core, io, slot, Closing::RepliesUntaken, "it does not read its replies");
    }
    drop_heaviest(core, io, bytes);
    for slot in held {
        if let Some(client) = core.clients.get_mut(slot) {
            client.refuse_next = true;
        }
        core.clients.unstall(&core.context.metrics, slot, Stall::POOL);
        core.clients.unstall(&core.context.metrics, slot, Stall::LINK);
    }
    if full_round {
        forget_waiting(core);
    }
}

/// Closes the clients with the most bytes if all together (with `bytes`) exceed the core's share:
/// each client stays within its own bounds, but many clients have many times as much. The largest
/// possible answer always has room.
fn drop_heaviest(core: &mut Core, io: &mut Io, mut bytes: usize) {
    let one_answer =
        core.context.config.frame_bytes_max as usize + core.context.config.client_backlog_bytes;
    let share =
        (core.context.config.clients_bytes_max / core.context.config.cores.max(1)).max(one_answer);
    if bytes <= share {
        return;
    }
    let mut by_weight: Vec<(usize, u32)> =
        core.clients.iter().map(|(slot, client)| (bytes_of(io, client), slot)).collect();
    by_weight.sort_unstable();
    while let Some((weight, slot)) = by_weight.pop()
        && bytes > share
    {
        bytes -= weight;
        let why =
            format!("clients_bytes_max is reached, and it has the most unread bytes: {weight}");
        closing::abort(core, io, slot, Closing::BytesMax, &why);
    }
}

/// Removes clients that no longer wait from the lists of those that do: they left, or were told
/// that it took too long.
fn forget_waiting(core: &mut Core) {
    let clients = &core.clients;
    let waits = |client: &ClientRef, reason| {
        clients.find(*client).is_some_and(|found| found.stalls.has(reason))
    };
    for pool in core.router.pools.iter_mut() {
        pool.waiting.retain(|client| waits(client, Stall::POOL) || waits(client, Stall::SWITCH));
    }
    for link in core.links.iter_mut() {
        link.waiting.retain(|client| waits(client, Stall::LINK));
    }
}

/// Refuses a client whose handshake took too long, perhaps because the proxy itself has not reached
/// the ring yet.
fn refuse_late(core: &mut Core, io: &mut Io, slot: u32) {
    let (reason, closing, why) = match core.router.cluster {
        None => {
            (Refusal::NoRing, Closing::NoRing, "Shunt has not reached any node of the ring yet")
        }
        Some(_) => (
            Refusal::HandshakeTimeout,
            Closing::HandshakeTimeout,
            "the handshake was not completed in time",
        ),
    };
    core.context.metrics.clients_refused.of(reason).add(1);
    closing::refuse_for(core, io, slot, 0, closing, &Fault::new(FaultKind::Late, why));
}

/// Memory of a client: replies that it has not taken, incomplete requests, and its encryption.
fn bytes_of(io: &Io, client: &Client) -> usize {
    io.backlog(client.conn)
        + io.unread(client.conn)
        + io.session_bytes(client.conn)
        + client.reader.held_bytes()
}

/// True if a client does not take its replies: more of them wait than any bound allows, or it has
/// taken none for too long.
fn takes_nothing(io: &Io, client: &mut Client) -> bool {
    if !client.stalls.has(Stall::REPLIES) {
        return false;
    }
    let writes = io.writes_of(client.conn);
    if writes != client.writes_taken {
        client.writes_taken = writes;
        client.untaken_since_ns = io.now_ns();
    }
    io.now_ns() - client.untaken_since_ns > limits::REPLIES_UNTAKEN_NS
        || io.backlog(client.conn) > limits::CLIENT_BACKLOG_BYTES_HARD
}
