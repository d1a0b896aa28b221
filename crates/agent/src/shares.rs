//! Shares of the connections to the server, by the addresses of clients. While requests of other
//! addresses wait, the slow exchanges of one address keep a part of the connections. A connection
//! that becomes free goes first to an address that has less than its part. An address whose slow
//! exchanges were broken off gets no more than its part for a while; the others are not limited.
//!
//! Once an upload of an address with less than its part has waited for long, more uploads count as
//! slow, and those of all addresses together keep a part of the connections.
//!
//! The dispatcher says who the client is: it adds the address to the head as the last field. Behind
//! a balancer or a NAT all clients have one address, and these shares change nothing among them.

use std::cmp::Reverse;
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
/// share, or else the first of a client that is not limited.
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
    let client = |exchange: &usize| agent.exchanges.get(*exchange).and_then(|state| state.client);
    let has_less =
        |exchange: &usize| held.get(&client(exchange)).is_none_or(|count| *count < share);
    let is_free = |exchange: &usize| !is_limited(agent, now_ns, client(exchange));
    line.iter().position(has_less).or_else(|| line.iter().position(is_free))
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

/// Others have had to wait for the client's slow exchanges, not long ago.
fn is_limited(agent: &Agent, now_ns: u64, client: Option<IpAddr>) -> bool {
    agent.limited.get(&client).is_some_and(|until_ns| now_ns < *until_ns)
}

/// Returns true if the client may have one connection more, for this exchange. The lines ask the
/// same, so that what was next in one does not come back into it.
pub(crate) fn may_have(agent: &Agent, now_ns: u64, state: &Exchange) -> bool {
    if !is_limited(agent, now_ns, state.client) {
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
        break_uploads_off(agent, io);
    }
    if !pool::is_waited_for(agent) || pool::has_room(agent) {
        return;
    }
    let is_slow_answer =
        |state: &Exchange| state.pace.is_slow() && state.answer.stage != Stage::Awaited;
    let mut slow: Vec<(u64, usize)> = slow(agent, is_slow_answer).map(|(_, one)| one).collect();
    let beyond = slow.len().saturating_sub((agent.options.upstream_connections_max / 2).max(1));
    slow.sort_unstable();
    let oldest: Vec<usize> = slow.into_iter().take(beyond).map(|(_, key)| key).collect();
    let reason = "its client takes the answer slowly, and other requests wait for the connection to the server";
    break_off(agent, io, &oldest, reason);
    let excess = excess(agent, of_all(agent), |state| state.pace.is_slow(), &agent.waiting);
    let reason =
        "its client is slow, and requests of other clients wait for the connection to the server";
    break_shares_off(agent, io, &excess, reason);
}

/// Breaks off the slow uploads that one address has beyond its share. If uploads of addresses with
/// less than theirs have waited for long, all addresses together keep a share too, of uploads that
/// need not be as slow: it breaks off the oldest of the address that has most, again and again, no
/// more than there are such uploads.
fn break_uploads_off(agent: &mut Agent, io: &mut Io) {
    let reason = "its client sends the body slowly, and requests of other clients wait for the connection to the server";
    let waiting = clients_that_wait_long(agent, io.now_ns());
    let is_slow = |state: &Exchange| is_upload(state) && state.pace.is_slow();
    let excess = excess(agent, of_uploads(agent), is_slow, &agent.uploads.full);
    break_shares_off(agent, io, &excess, reason);
    let is_slow =
        |state: &Exchange| is_upload(state) && state.pace.is_below(limits::UPLOAD_BYTES_MIN);
    let mut by_client: HashMap<Option<IpAddr>, Vec<(u64, usize)>> = HashMap::new();
    for (client, one) in slow(agent, is_slow) {
        by_client.entry(client).or_default().push(one);
    }
    let count: usize = by_client.values().map(Vec::len).sum();
    let beyond = count.saturating_sub(of_uploads(agent));
    let wanted = waiting.len().saturating_sub(excess.len());
    let mut victims: Vec<(Reverse<usize>, u64, usize)> = Vec::new();
    for (client, mut held) in by_client {
        if waiting.iter().any(|one| *one != client) {
            held.sort_unstable();
            let count = held.len();
            let ranked = (0..).zip(held);
            victims
                .extend(ranked.map(|(at, (asked_ns, key))| (Reverse(count - at), asked_ns, key)));
        }
    }
    victims.sort_unstable();
    let victims: Vec<usize> =
        victims.into_iter().take(beyond.min(wanted)).map(|(_, _, key)| key).collect();
    break_off(agent, io, &victims, reason);
}

/// The clients of uploads that have waited for long, though these clients have less than their
/// shares: each as often as its share has room for.
fn clients_that_wait_long(agent: &Agent, now_ns: u64) -> Vec<Option<IpAddr>> {
    let (mut held, share) = (held(agent, is_upload), of_uploads(agent));
    let full = agent.uploads.full.iter().filter_map(|exchange| agent.exchanges.get(*exchange));
    full.filter(|state| state.filled_ns + limits::UPLOAD_WAIT_NS <= now_ns)
        .map(|state| state.client)
        .filter(|client| {
            let count = held.entry(*client).or_default();
            *count += 1;
            *count <= share
        })
        .collect()
}

/// Slow exchanges that have connections: the client of each, when it came, and its key.
fn slow(
    agent: &Agent,
    is_slow: impl Fn(&Exchange) -> bool,
) -> impl Iterator<Item = (Option<IpAddr>, (u64, usize))> {
    let slow =
        agent.exchanges.iter().filter(move |(_, state)| state.upstream.is_some() && is_slow(state));
    slow.map(|(key, state)| (state.client, (state.asked_ns, key)))
}

/// The oldest of the slow exchanges that an address has beyond its share, if requests of others are
/// in line.
fn excess(
    agent: &Agent,
    share: usize,
    is_slow: impl Fn(&Exchange) -> bool,
    line: &VecDeque<usize>,
) -> Vec<usize> {
    let mut by_client: HashMap<Option<IpAddr>, Vec<(u64, usize)>> = HashMap::new();
    for (client, one) in slow(agent, is_slow) {
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

/// Breaks off what clients have beyond their shares. These clients keep to them for a while then.
fn break_shares_off(agent: &mut Agent, io: &mut Io, exchanges: &[usize], reason: &str) {
    let now_ns = io.now_ns();
    agent.limited.retain(|_, until_ns| now_ns < *until_ns);
    for exchange in exchanges {
        if let Some(state) = agent.exchanges.get(*exchange) {
            agent.limited.insert(state.client, now_ns + limits::LIMITED_NS);
        }
    }
    break_off(agent, io, exchanges, reason);
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
        // The answer may begin before the request has ended.
        let waits_for_body = !state.request_is_complete && io.backlog(upstream.conn) == 0;
        let waits_for_client = match state.answer.stage {
            Stage::Awaited => waits_for_body,
            Stage::Relayed => {
                let is_full = sessions.get(state.session).is_some_and(|session| session.is_full);
                waits_for_body || is_paused && state.credit == 0 && !is_full
            }
            Stage::Direct => waits_for_body || is_paused,
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
