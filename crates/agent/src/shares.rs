//! Shares of the connections to the server, by the addresses of clients. While requests of other
//! addresses wait, the slow exchanges of one address keep a part of the connections. A connection
//! that becomes free goes to an address that has less than its part; after a client has had to wait
//! for another's slow exchanges, it goes to no other address for a while.
//!
//! The dispatcher says who the client is: it adds the address to the head as the last field. Behind
//! a balancer all clients have one address, and these shares change nothing.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use shunt_reactor::Io;

use crate::limits;
use crate::pool;
use crate::request;
use crate::state::{Agent, Exchange, Stage};

/// The client that a request's head names. One host may have all addresses of a /64, so these are
/// one client.
pub(crate) fn client(head: &[u8]) -> Option<IpAddr> {
    const NAME: &[u8] = b"X-Forwarded-For: ";
    let fields = head.strip_suffix(b"\r\n\r\n")?;
    let last = fields.rsplit(|byte| *byte == b'\n').next()?.strip_prefix(NAME)?;
    let address: IpAddr = std::str::from_utf8(last).ok()?.parse().ok()?;
    Some(match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    })
}

/// Connections that one address may have while others wait for any.
fn of_all(agent: &Agent) -> usize {
    (agent.options.upstream_connections_max / 2).max(1)
}

/// Connections with uploads that one address may have while others' uploads wait.
fn of_uploads(agent: &Agent) -> usize {
    (pool::share(agent, true) / 2).max(1)
}

/// Connections that each client has, of those with exchanges that are counted.
fn held(agent: &Agent, is_counted: fn(&Exchange) -> bool) -> HashMap<Option<IpAddr>, usize> {
    let mut held = HashMap::new();
    for state in pool::with_connections(agent).filter(|state| is_counted(state)) {
        *held.entry(state.client).or_default() += 1;
    }
    held
}

fn is_upload(state: &Exchange) -> bool {
    !state.request_is_complete
}

/// The place in line of the exchange that is next: the first of a client that has less than its
/// share. Others are next only where no client has had to wait for another lately.
fn next(
    agent: &Agent,
    now_ns: u64,
    line: &VecDeque<usize>,
    share: usize,
    is_counted: fn(&Exchange) -> bool,
) -> Option<usize> {
    if line.is_empty() {
        return None;
    }
    let held = held(agent, is_counted);
    let has_less = |exchange: &usize| {
        let client = agent.exchanges.get(*exchange).and_then(|state| state.client);
        held.get(&client).is_none_or(|count| *count < share)
    };
    let first = (!is_contended(agent, now_ns)).then_some(0);
    line.iter().position(has_less).or(first)
}

/// Takes the next request that is whole.
pub(crate) fn next_request(agent: &mut Agent, now_ns: u64) -> Option<usize> {
    let place = next(agent, now_ns, &agent.waiting, of_all(agent), |_| true)?;
    agent.waiting.remove(place)
}

/// Takes the next upload that has sent as much as it may.
pub(crate) fn next_upload(agent: &mut Agent, now_ns: u64) -> Option<usize> {
    let place = next(agent, now_ns, &agent.uploads.full, of_uploads(agent), is_upload)?;
    agent.uploads.full.remove(place)
}

/// Takes the next of the other uploads, which may be small.
pub(crate) fn next_small_upload(agent: &mut Agent, now_ns: u64) -> Option<usize> {
    let place = next(agent, now_ns, &agent.uploads.others, of_uploads(agent), is_upload)?;
    agent.uploads.others.remove(place)
}

/// Clients have had to wait for the slow exchanges of another, not long ago.
fn is_contended(agent: &Agent, now_ns: u64) -> bool {
    now_ns < agent.contended_until_ns
}

/// Whether the client may have one connection more, for this exchange. The lines ask the same, so
/// that what was next in one does not come back into it.
pub(crate) fn may_have(agent: &Agent, now_ns: u64, state: &Exchange) -> bool {
    if !is_contended(agent, now_ns) {
        return true;
    }
    let (held, share) = match is_upload(state) {
        true => (held(agent, is_upload), of_uploads(agent)),
        false => (held(agent, |_| true), of_all(agent)),
    };
    held.get(&state.client).is_none_or(|count| *count < share)
}

/// Breaks off what clients hold up while others wait for the connections.
pub(crate) fn tick(agent: &mut Agent, io: &mut Io) {
    look_at_paces(agent, io);
    if !agent.uploads.full.is_empty() && !pool::may_begin(agent, true) {
        let excess = excess(agent, of_uploads(agent), is_upload, &agent.uploads.full);
        let reason = "its client sends the body slowly, and requests of other clients wait for the connection to the server";
        break_shares_off(agent, io, &excess, reason);
    }
    if !pool::is_waited_for(agent) || pool::has_room(agent) {
        return;
    }
    let is_answer = |state: &Exchange| state.answer.stage != Stage::Awaited;
    let mut slow: Vec<(u64, usize)> = slow(agent, is_answer).map(|(_, one)| one).collect();
    let beyond = slow.len().saturating_sub((agent.options.upstream_connections_max / 2).max(1));
    slow.sort_unstable();
    let oldest: Vec<usize> = slow.into_iter().take(beyond).map(|(_, key)| key).collect();
    let reason = "its client takes the answer slowly, and other requests wait for the connection to the server";
    break_off(agent, io, &oldest, reason);
    let excess = excess(agent, of_all(agent), |_| true, &agent.waiting);
    let reason =
        "its client is slow, and requests of other clients wait for the connection to the server";
    break_shares_off(agent, io, &excess, reason);
}

/// Slow exchanges that have connections: the client of each, when it came, and its key.
fn slow(
    agent: &Agent,
    is_counted: fn(&Exchange) -> bool,
) -> impl Iterator<Item = (Option<IpAddr>, (u64, usize))> + '_ {
    let slow = agent.exchanges.iter().filter(move |(_, state)| {
        state.pace.is_slow && state.upstream.is_some() && is_counted(state)
    });
    slow.map(|(key, state)| (state.client, (state.asked_ns, key)))
}

/// The oldest of the slow exchanges that an address has beyond its share, if requests of others are
/// in line.
fn excess(
    agent: &Agent,
    share: usize,
    is_counted: fn(&Exchange) -> bool,
    line: &VecDeque<usize>,
) -> Vec<usize> {
    let mut by_client: HashMap<Option<IpAddr>, Vec<(u64, usize)>> = HashMap::new();
    for (client, one) in slow(agent, is_counted) {
        by_client.entry(client).or_default().push(one);
    }
    let mut excess = Vec::new();
    for (client, mut held) in by_client {
        let is_others = |exchange: &usize| {
            agent.exchanges.get(*exchange).is_some_and(|state| state.client != client)
        };
        if held.len() > share && line.iter().any(is_others) {
            held.sort_unstable();
            held.truncate(held.len() - share);
            excess.extend(held);
        }
    }
    excess.sort_unstable();
    excess.into_iter().map(|(_, key)| key).collect()
}

/// Breaks off what clients have beyond their shares, which all keep to for a while then.
fn break_shares_off(agent: &mut Agent, io: &mut Io, exchanges: &[usize], reason: &str) {
    if !exchanges.is_empty() {
        agent.contended_until_ns = io.now_ns() + limits::CONTENDED_NS;
        break_off(agent, io, exchanges, reason);
    }
}

fn break_off(agent: &mut Agent, io: &mut Io, exchanges: &[usize], reason: &str) {
    for exchange in exchanges {
        request::fail(agent, io, *exchange, 503, reason);
    }
}

/// Looks at the exchanges that have connections: the others hold nothing up.
fn look_at_paces(agent: &mut Agent, io: &Io) {
    let Agent { sessions, upstreams, exchanges, .. } = agent;
    for (_, upstream) in upstreams.iter() {
        let Some(state) = upstream.exchange.and_then(|key| exchanges.get_mut(key)) else {
            continue;
        };
        let is_paused = io.is_paused(upstream.conn);
        let waits_for_client = match state.answer.stage {
            Stage::Awaited => !state.request_is_complete && io.backlog(upstream.conn) == 0,
            Stage::Relayed => {
                let is_full = sessions.get(state.session).is_some_and(|session| session.is_full);
                is_paused && state.credit == 0 && !is_full
            }
            Stage::Direct => is_paused,
            Stage::Held | Stage::Offered => false,
        };
        state.pace.look(io.now_ns(), waits_for_client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_who_the_last_field_names() {
        let of = |fields: &str| client(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes());
        let address = |text: &str| Some(text.parse().expect("an address"));
        let forged = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2";
        assert_eq!(of(forged), address("192.0.2.2"));
        assert_eq!(of("X-Forwarded-For: ::ffff:192.0.2.2"), address("192.0.2.2"));
        assert_eq!(of("X-Forwarded-For: 2001:db8::1:2:3:4"), address("2001:db8::"));
        assert_eq!(of("X-Forwarded-For: 192.0.2.1\r\nHost: a"), None);
        assert_eq!(of("X-Forwarded-For: somebody"), None);
    }
}
