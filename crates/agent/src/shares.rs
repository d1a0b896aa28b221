//! Shares of the connections to the server, by the addresses of clients. While requests of other
//! addresses wait, the slow exchanges of one address keep a part of the connections. A connection
//! that becomes free goes first to an address that has less than its part. An address whose slow
//! exchanges were broken off gets no more than its part for a while, and all such addresses
//! together get no more than one part; the others are not limited.
//!
//! Once a request of an address with less than its part has waited for long, more exchanges count
//! as slow, and those of all addresses together keep a part of the connections: uploads where an
//! upload waits, uploads and answers where a whole request does.
//!
//! The dispatcher says who the client is: it adds the address to the head as the last field. Behind
//! a balancer or a NAT all clients have one address, and these shares change nothing among them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use shunt_handover::turns::ClientKey;
use shunt_reactor::{ClientHost, Io};

use crate::held::Counts;
use crate::limits;
use crate::line::Line;
use crate::pool;
use crate::request;
use crate::state::{Agent, Exchange, Stage};

/// The client that a request's head names.
pub(crate) fn client(head: &[u8]) -> ClientKey {
    const NAME: &[u8] = b"X-Forwarded-For: ";
    let fields = head.strip_suffix(b"\r\n\r\n")?;
    let last = fields.rsplit(|byte| *byte == b'\n').next()?.strip_prefix(NAME)?;
    let address: IpAddr = std::str::from_utf8(last).ok()?.parse().ok()?;
    Some(ClientHost::counted(address))
}

/// The connections that clients have, of one kind, and the share of each client.
struct Shares<'a> {
    agent: &'a Agent,
    now_ns: u64,
    share: usize,
    held: &'a Counts,
    /// Connections of all limited clients together.
    of_limited: usize,
}

impl<'a> Shares<'a> {
    /// Shares of all connections.
    fn of_all(agent: &'a Agent, now_ns: u64) -> Self {
        let share = (agent.options.upstream_connections_max / 2).max(1);
        Self::new(agent, now_ns, share, &agent.held.all)
    }

    /// Shares of the connections with uploads.
    fn of_uploads(agent: &'a Agent, now_ns: u64) -> Self {
        Self::new(agent, now_ns, (pool::share(agent, true) / 2).max(1), &agent.held.uploads)
    }

    fn new(agent: &'a Agent, now_ns: u64, share: usize, held: &'a Counts) -> Self {
        let of_one = |client: ClientKey| match is_limited(agent, now_ns, client) {
            true => held.of(client),
            false => 0,
        };
        let of_limited = match agent.limited.len() < held.clients_count() {
            true => agent.limited.keys().copied().map(of_one).sum(),
            false => held.clients().map(of_one).sum(),
        };
        Self { agent, now_ns, share, held, of_limited }
    }

    /// Connections that a client lacks to its share. Limited clients have one share together.
    fn lacks(&self, client: ClientKey) -> usize {
        let own = self.share.saturating_sub(self.held.of(client));
        match is_limited(self.agent, self.now_ns, client) {
            true => own.min(self.share.saturating_sub(self.of_limited)),
            false => own,
        }
    }

    /// True if the client may have one connection more.
    fn may_have(&self, client: ClientKey) -> bool {
        !is_limited(self.agent, self.now_ns, client) || self.lacks(client) > 0
    }

    /// The exchange that is next in line: the first of a client that has less than its share, or
    /// else the first of a client that is not limited.
    fn next(&self, line: &Line) -> Option<usize> {
        let has_less = |client: ClientKey| self.lacks(client) > 0;
        line.first(has_less).or_else(|| line.first(|client| self.may_have(client)))
    }

    /// Clients in line that would get a connection.
    fn takers(&self, line: &Line) -> impl Iterator<Item = ClientKey> {
        line.clients().filter(|client| self.may_have(*client))
    }

    /// The clients of exchanges that have waited for long, though these clients have less than
    /// their shares: each as often as its share has room for.
    fn long_waiters(&self, line: &Line) -> Vec<ClientKey> {
        let is_long = |since_ns: &u64| since_ns + limits::LONG_WAIT_NS <= self.now_ns;
        let mut waiters = Vec::new();
        for client in line.clients() {
            let times_ns = line.waiting_since_ns(client).take(self.lacks(client));
            waiters.extend(times_ns.take_while(is_long).map(|_| client));
        }
        waiters
    }
}

fn is_upload(state: &Exchange) -> bool {
    !state.request_is_complete
}

/// Takes the next request that is whole.
pub(crate) fn next_request(agent: &mut Agent, now_ns: u64) -> Option<usize> {
    if agent.waiting.is_empty() {
        return None;
    }
    let exchange = Shares::of_all(agent, now_ns).next(&agent.waiting)?;
    agent.waiting.remove(exchange).then_some(exchange)
}

/// Takes the next upload that has sent as much as it may.
pub(crate) fn next_upload(agent: &mut Agent, now_ns: u64) -> Option<usize> {
    if agent.uploads.full.is_empty() {
        return None;
    }
    let exchange = Shares::of_uploads(agent, now_ns).next(&agent.uploads.full)?;
    agent.uploads.full.remove(exchange).then_some(exchange)
}

/// Takes the next of the other uploads, which may be small.
pub(crate) fn next_small_upload(agent: &mut Agent, now_ns: u64) -> Option<usize> {
    if agent.uploads.others.is_empty() {
        return None;
    }
    let exchange = Shares::of_uploads(agent, now_ns).next(&agent.uploads.others)?;
    agent.uploads.others.remove(exchange).then_some(exchange)
}

/// Others have had to wait for the client's slow exchanges, not long ago.
fn is_limited(agent: &Agent, now_ns: u64, client: ClientKey) -> bool {
    agent.limited.get(&client).is_some_and(|until_ns| now_ns < *until_ns)
}

/// Returns true if the client may have one connection more, for this exchange. The lines ask the
/// same, so that what was next in one does not come back into it.
pub(crate) fn may_have(agent: &Agent, now_ns: u64, state: &Exchange) -> bool {
    if !is_limited(agent, now_ns, state.client) {
        return true;
    }
    let shares = match is_upload(state) {
        true => Shares::of_uploads(agent, now_ns),
        false => Shares::of_all(agent, now_ns),
    };
    shares.may_have(state.client)
}

/// Breaks off what clients hold up while others wait for the connections.
pub(crate) fn tick(agent: &mut Agent, io: &mut Io) {
    debug_assert!(pool::is_counted(agent), "connections are counted wrongly");
    look_at_paces(agent, io);
    if !agent.uploads.full.is_empty() && !pool::may_begin(agent, true) {
        break_uploads_off(agent, io);
    }
    if !pool::has_room(agent) && is_waited_for(agent, io.now_ns()) {
        break_answers_off(agent, io);
    }
    if !agent.waiting.is_empty() && !pool::has_room(agent) {
        break_any_off(agent, io);
    }
}

/// True if an exchange in line would start if a connection were free.
fn is_waited_for(agent: &Agent, now_ns: u64) -> bool {
    let has_taker =
        |shares: Shares<'_>, line: &Line| !line.is_empty() && shares.takers(line).next().is_some();
    has_taker(Shares::of_all(agent, now_ns), &agent.waiting)
        || pool::may_begin(agent, true)
            && has_taker(Shares::of_uploads(agent, now_ns), &agent.uploads.full)
}

/// Breaks off the slow uploads that one address has beyond its share, and those of all addresses
/// once uploads of others have waited for long.
fn break_uploads_off(agent: &mut Agent, io: &mut Io) {
    let reason = "its client sends the body slowly, and requests of other clients wait for the connection to the server";
    let (shares, line) = (Shares::of_uploads(agent, io.now_ns()), &agent.uploads.full);
    let (waiters, share) = (shares.long_waiters(line), shares.share);
    let excess = excess(&shares, |state| is_upload(state) && state.pace.is_slow(), line);
    break_shares_off(agent, io, &excess, reason);
    let is_slow =
        |state: &Exchange| is_upload(state) && state.pace.is_below(limits::CROWD_BYTES_MIN);
    let crowd = crowd(agent, share, &waiters, waiters.len().saturating_sub(excess.len()), is_slow);
    break_off(agent, io, &crowd, reason);
}

/// Breaks off the oldest slow answers beyond those that all addresses may have together.
fn break_answers_off(agent: &mut Agent, io: &mut Io) {
    let is_slow_answer =
        |state: &Exchange| state.pace.is_slow() && state.answer.stage != Stage::Awaited;
    let mut slow: Vec<(u64, usize)> = slow(agent, is_slow_answer).map(|(_, one)| one).collect();
    let beyond = slow.len().saturating_sub((agent.options.upstream_connections_max / 2).max(1));
    slow.sort_unstable();
    let oldest: Vec<usize> = slow.into_iter().take(beyond).map(|(_, key)| key).collect();
    let reason = "its client takes the answer slowly, and other requests wait for the connection to the server";
    break_off(agent, io, &oldest, reason);
}

/// Breaks off the slow exchanges that one address has beyond its share, uploads and answers, and
/// those of all addresses once whole requests of others have waited for long. The addresses that
/// lose any share one part then, so that their next requests do not take what they had to leave.
fn break_any_off(agent: &mut Agent, io: &mut Io) {
    let reason =
        "its client is slow, and requests of other clients wait for the connection to the server";
    let (shares, line) = (Shares::of_all(agent, io.now_ns()), &agent.waiting);
    let (waiters, share) = (shares.long_waiters(line), shares.share);
    let excess = excess(&shares, |state| state.pace.is_slow(), line);
    break_shares_off(agent, io, &excess, reason);
    let is_slow = |state: &Exchange| state.pace.is_below(limits::CROWD_BYTES_MIN);
    let crowd = crowd(agent, share, &waiters, waiters.len().saturating_sub(excess.len()), is_slow);
    break_shares_off(agent, io, &crowd, reason);
}

/// The slow exchanges beyond those that all addresses may have together, so many at most: the
/// oldest of the address that has most, again and again. Addresses give way to others alone.
fn crowd(
    agent: &Agent,
    share: usize,
    waiters: &[ClientKey],
    wanted: usize,
    is_slow: impl Fn(&Exchange) -> bool,
) -> Vec<usize> {
    if wanted == 0 {
        return Vec::new();
    }
    let by_client = slow_by_client(agent, is_slow);
    let count: usize = by_client.values().map(Vec::len).sum();
    let beyond = count.saturating_sub(share);
    let mut victims: Vec<(Reverse<usize>, u64, usize)> = Vec::new();
    for (client, held) in by_client {
        if waiters.iter().any(|one| *one != client) {
            let count = held.len();
            let ranked = (0..).zip(held);
            victims
                .extend(ranked.map(|(at, (asked_ns, key))| (Reverse(count - at), asked_ns, key)));
        }
    }
    victims.sort_unstable();
    victims.into_iter().take(beyond.min(wanted)).map(|(_, _, key)| key).collect()
}

/// Slow exchanges that have connections: the client of each, when it came, and its key.
fn slow(
    agent: &Agent,
    is_slow: impl Fn(&Exchange) -> bool,
) -> impl Iterator<Item = (ClientKey, (u64, usize))> {
    let slow =
        agent.exchanges.iter().filter(move |(_, state)| state.upstream.is_some() && is_slow(state));
    slow.map(|(key, state)| (state.client, (state.asked_ns, key)))
}

/// The same of each client, the oldest first.
fn slow_by_client(
    agent: &Agent,
    is_slow: impl Fn(&Exchange) -> bool,
) -> HashMap<ClientKey, Vec<(u64, usize)>> {
    let mut by_client: HashMap<ClientKey, Vec<(u64, usize)>> = HashMap::new();
    for (client, one) in slow(agent, is_slow) {
        by_client.entry(client).or_default().push(one);
    }
    by_client.values_mut().for_each(|held| held.sort_unstable());
    by_client
}

/// The oldest of the slow exchanges that an address has beyond its share, if another client in line
/// would get a connection.
fn excess(shares: &Shares<'_>, is_slow: impl Fn(&Exchange) -> bool, line: &Line) -> Vec<usize> {
    // If there are two, one of them is another client, whichever the slow one is.
    let takers: Vec<ClientKey> = shares.takers(line).take(2).collect();
    let mut excess = Vec::new();
    for (client, mut held) in slow_by_client(shares.agent, is_slow) {
        if held.len() > shares.share && takers.iter().any(|taker| *taker != client) {
            held.truncate(held.len() - shares.share);
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
                let is_full =
                    sessions.get(state.session).is_some_and(|session| session.turns.is_full());
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
        let address = |text: &str| Some(ClientHost::Network(text.parse().expect("an address")));
        let forged = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2";
        assert_eq!(of(forged), address("192.0.2.2"));
        assert_eq!(of("X-Forwarded-For: ::ffff:192.0.2.2"), address("192.0.2.2"));
        assert_eq!(of("X-Forwarded-For: 2001:db8::1:2:3:4"), address("2001:db8::"));
        assert_eq!(of("X-Forwarded-For: 192.0.2.1\r\nHost: a"), None);
        assert_eq!(of("X-Forwarded-For: somebody"), None);
    }
}
