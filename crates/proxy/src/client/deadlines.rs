//! Deadlines and memory of clients: time for the handshake, for one request and for taking replies,
//! and the bytes that all clients together may leave in buffers.
//!
//! Clients that have not logged in must never cost a client its connection that has. Therefore each
//! kind has bytes of its own ([`Budget`]).

use shunt_reactor::Io;

use crate::accept::TOO_MANY;
use crate::client::{Client, Phase, Stall, closing, login};
use crate::config::Config;
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::ids::ClientRef;
use crate::limits;
use crate::metrics::{Closing, Refusal};
use crate::tenants::waiting as tenants;

/// Closes clients that take too long over their handshake or over one request. Every few
/// seconds, a full round also measures the clients' rates of queries.
pub(crate) fn tick(core: &mut Core, io: &mut Io, full_round: bool) {
    let now = io.now_ns();
    let (mut late, mut deaf, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = Bytes::default();
    let stall_max_ns = core.context.config.node_silence_ms * 1_000_000;
    for (slot, client) in core.clients.iter_mut() {
        *bytes.of(client) += bytes_of(io, client);
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
        if client.stalled_since_ns == 0 {
            // What waited at the last look has been sent or refused: later queries may wait, too.
            client.refuse_next = false;
        }
        let handshake = !matches!(client.phase, Phase::Ready) && now > client.handshake_deadline_ns;
        let slow = client.partial_since_ns != 0
            && !client.stalls.any()
            && now - client.partial_since_ns > limits::REQUEST_READ_NS;
        if takes_nothing(io, client) {
            deaf.push(slot);
        } else if handshake || (full_round && slow) {
            late.push((slot, handshake));
        } else if client.stalled_since_ns != 0 && now - client.stalled_since_ns > stall_max_ns {
            held.push(slot);
        }
    }
    for (slot, handshake) in late {
        if core.clients.get(slot).is_some_and(|client| client.phase == Phase::TurnedAway) {
            closing::abort(core, io, slot, Closing::TooMany, TOO_MANY);
        } else if core.clients.get(slot).is_some_and(Client::awaits_login) {
            login::close_unchecked(core, io, slot);
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
    drop_heaviest(core, io, &bytes);
    for slot in held {
        if let Some(client) = core.clients.get_mut(slot) {
            client.refuse_next = true;
        }
        core.clients.unstall(&core.context.metrics, slot, Stall::POOL);
        core.clients.unstall(&core.context.metrics, slot, Stall::LINK);
        core.clients.unstall(&core.context.metrics, slot, Stall::TENANT);
    }
    if full_round {
        forget_waiting(core);
    }
}

/// Bytes of clients, by whether they have logged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bytes {
    logged_in: usize,
    others: usize,
}

impl Bytes {
    /// The bytes of the kind of this client.
    fn of(&mut self, client: &Client) -> &mut usize {
        if client.phase == Phase::Ready { &mut self.logged_in } else { &mut self.others }
    }
}

/// The bytes that the clients of a core may have.
struct Budget {
    /// Bytes of all clients together.
    all: usize,
    /// Bytes of clients that have logged in. The largest possible answer always has room.
    logged_in: usize,
}

impl Budget {
    fn of_config(config: &Config) -> Self {
        let one_answer = config.frame_bytes_max as usize + config.client_backlog_bytes;
        let all = (config.clients_bytes_max / config.cores.max(1)).max(one_answer);
        let logged_in = (all - all / limits::BEFORE_LOGIN_PARTS).max(one_answer);
        Self { all, logged_in }
    }

    /// The bytes by which each kind has too many. The clients that have not logged in have what
    /// the others leave, and a part in any case.
    fn excess(&self, bytes: &Bytes) -> Bytes {
        let left = self.all.saturating_sub(bytes.logged_in.min(self.logged_in));
        let before_login = left.max(self.all / limits::BEFORE_LOGIN_PARTS);
        Bytes {
            logged_in: bytes.logged_in.saturating_sub(self.logged_in),
            others: bytes.others.saturating_sub(before_login),
        }
    }
}

/// Closes the clients with the most bytes if all of their kind together exceed their bytes of the
/// core's share: each client stays within its own bounds, but many clients have many times as much.
fn drop_heaviest(core: &mut Core, io: &mut Io, bytes: &Bytes) {
    let mut excess = Budget::of_config(&core.context.config).excess(bytes);
    if excess == Bytes::default() {
        return;
    }
    let mut by_weight: Vec<(usize, u32)> =
        core.clients.iter().map(|(slot, client)| (bytes_of(io, client), slot)).collect();
    by_weight.sort_unstable();
    while let Some((weight, slot)) = by_weight.pop()
        && excess != Bytes::default()
    {
        let Some(client) = core.clients.get(slot) else { continue };
        let of_kind = excess.of(client);
        if *of_kind == 0 {
            continue;
        }
        *of_kind = of_kind.saturating_sub(weight);
        let why =
            format!("clients_bytes_max is reached, and it has the most unread bytes: {weight}");
        closing::abort(core, io, slot, Closing::BytesMax, &why);
    }
}

/// Removes clients that no longer wait from the lists of waiting clients. They have left, or got an
/// error because the wait took too long.
fn forget_waiting(core: &mut Core) {
    tenants::forget(core);
    let clients = &core.clients;
    let waits = |client: &ClientRef, reason| {
        clients.find(*client).is_some_and(|found| found.stalls.has(reason))
    };
    for pool in core.router.pools.iter_mut() {
        pool.waiting.retain(|client| waits(client, Stall::POOL) || waits(client, Stall::SWITCH));
    }
    for (_, link) in core.links.iter_mut() {
        link.waiting.retain(|client| waits(client, Stall::LINK));
        if let Some(shares) = &mut link.shares {
            shares.retain(|client| waits(client, Stall::LINK));
        }
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
    io.output_memory(client.conn)
        + io.unread(client.conn)
        + io.session_bytes(client.conn)
        + client.reader.held_bytes()
        + client.held_login.as_ref().map_or(0, |held| held.bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn clients_that_have_not_logged_in_have_bytes_of_their_own() {
        let config = Config {
            clients_bytes_max: 128 * MIB,
            cores: 2,
            frame_bytes_max: 15 << 20,
            client_backlog_bytes: MIB,
            ..Config::default()
        };
        let budget = Budget::of_config(&config);
        let excess = |logged_in: usize, others: usize| {
            let Bytes { logged_in, others } =
                budget.excess(&Bytes { logged_in: logged_in * MIB, others: others * MIB });
            (logged_in / MIB, others / MIB)
        };
        assert_eq!(excess(60, 4), (0, 0));
        assert_eq!(excess(60, 100), (0, 96), "whatever they send costs the others nothing");
        assert_eq!(excess(64, 4), (4, 0), "their part is theirs even if the others have too much");
        assert_eq!(excess(10, 54), (0, 0), "they have what the others leave");
        assert_eq!(excess(10, 55), (0, 1));
    }

    #[test]
    fn the_largest_answer_has_room() {
        let config = Config {
            clients_bytes_max: MIB,
            frame_bytes_max: 16 << 20,
            client_backlog_bytes: MIB,
            ..Config::default()
        };
        let excess = |logged_in: usize, others: usize| {
            Budget::of_config(&config).excess(&Bytes { logged_in, others })
        };
        assert_eq!(excess(17 * MIB, MIB), Bytes::default());
        assert_eq!(excess(17 * MIB + 1, 0), Bytes { logged_in: 1, others: 0 });
    }
}
