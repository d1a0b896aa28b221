//! Counts a core's clients by their identity, when `/status` asks for it.
//!
//! The count does not hold the core up: it takes [`limits::CENSUS_STEP`] clients at a time, and the
//! core serves its connections in between. Clients that come or go meanwhile may be counted or not.
//! However many clients differ, memory is bounded: beyond [`limits::CENSUS_GROUPS_MAX`] groups the
//! rest counts as one.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_reactor::{ClientHost, Io};
use tokio::sync::mpsc;

use crate::client::clients::Clients;
use crate::client::identity::Driver;
use crate::client::times::GroupTimes;
use crate::limits;
use crate::link::Pools;

/// Clients that `/status` shows as one: alike in all of these fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// Role; `None`: not logged in, or the ring asks for no login.
    pub role: Option<Arc<str>>,
    /// Identity by certificate; `None`: the client logged in by a password, or not at all.
    pub identity: Option<Arc<str>>,
    /// The client without its port, which differs for every connection.
    pub address: ClientHost,
    /// Keyspace of USE.
    pub keyspace: Option<Arc<str>>,
    /// Driver; `None`: the client did not say.
    pub driver: Option<Arc<Driver>>,
    /// Version of the protocol; 0: it has not sent STARTUP.
    pub version: u8,
    /// Version of TLS; `None`: clear text.
    pub tls: Option<&'static str>,
}

/// Number and state of the clients of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of connections.
    pub clients: u64,
    /// Clients among them that the core does not read from now.
    pub paused: u64,
    /// Queries of these clients in flight.
    pub in_flight: u64,
    /// Queries of these clients since they connected.
    pub queries: u64,
    /// Queries of these clients in a second, of the last two seconds or so.
    pub queries_per_second: u64,
    /// Queries among them that ended with an error.
    pub errors: u64,
    /// Bytes of these clients' requests, without headers.
    pub bytes_in: u64,
    /// Bytes of the answers, without headers.
    pub bytes_out: u64,
    /// Times of the last queries of each client.
    pub times: GroupTimes,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.clients += other.clients;
        self.paused += other.paused;
        self.in_flight += other.in_flight;
        self.queries += other.queries;
        self.queries_per_second += other.queries_per_second;
        self.errors += other.errors;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.times.add(&other.times);
    }
}

/// The count of one core.
#[derive(Debug)]
pub struct CoreCensus {
    /// Number of the core.
    pub core: usize,
    /// Tallies by group, in no order.
    pub groups: HashMap<Group, Tally>,
    /// Clients of groups beyond the bound.
    pub others: Tally,
}

/// A count in progress.
pub(crate) struct Census {
    answer: mpsc::Sender<CoreCensus>,
    /// Slot of the next client.
    next: usize,
    counted: CoreCensus,
}

impl Census {
    fn new(core: usize, answer: mpsc::Sender<CoreCensus>) -> Self {
        let counted = CoreCensus { core, groups: HashMap::new(), others: Tally::default() };
        Self { answer, next: 0, counted }
    }

    /// Counts the next clients; returns whether there are more.
    fn step(&mut self, clients: &Clients, pools: &Pools) -> bool {
        let end = self.next.saturating_add(limits::CENSUS_STEP).min(clients.capacity());
        for slot in self.next..end {
            let Some(client) = clients.get(slot as u32) else { continue };
            let names = client.pool.and_then(|pool| pools.get(pool)).map(|pool| &pool.names);
            let group = Group {
                role: names.and_then(|names| names.role.clone()),
                identity: names.and_then(|names| names.identity.clone()),
                address: client.peer.host(),
                keyspace: names.and_then(|names| names.keyspace.clone()),
                driver: client.driver.clone(),
                version: client.version,
                tls: client.tls,
            };
            let paused = u64::from(client.stalls.any());
            let (bytes_in, bytes_out) = client.traffic.bytes();
            let one = Tally {
                clients: 1,
                paused,
                in_flight: client.in_flight.into(),
                queries: client.traffic.queries(),
                queries_per_second: client.traffic.per_second(),
                errors: client.traffic.errors(),
                bytes_in,
                bytes_out,
                times: client.traffic.times(),
            };
            let CoreCensus { groups, others, .. } = &mut self.counted;
            let full = groups.len() >= limits::CENSUS_GROUPS_MAX;
            match groups.get_mut(&group) {
                Some(tally) => tally.add(one),
                None if full => others.add(one),
                None => {
                    groups.insert(group, one);
                }
            }
        }
        self.next = end;
        end < clients.capacity()
    }
}

/// Timer of the next step of a count.
pub(crate) const TIMER: u64 = 5;

/// Begins a count, in place of an abandoned one; `false`: the timer of the abandoned one continues
/// with this one.
pub(crate) fn start(
    census: &mut Option<Census>,
    core: usize,
    answer: mpsc::Sender<CoreCensus>,
) -> bool {
    census.replace(Census::new(core, answer)).is_none()
}

/// Counts the next clients.
pub(crate) fn go_on(census: &mut Option<Census>, clients: &Clients, pools: &Pools, io: &mut Io) {
    let Some(counting) = census else { return };
    if !counting.answer.is_closed() && counting.step(clients, pools) {
        io.set_timer(io.now_ns() + limits::CENSUS_PAUSE_NS, TIMER);
    } else if let Some(done) = census.take() {
        // The requester has gone, or has room for the answer of each core.
        let _ = done.answer.try_send(done.counted);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use shunt_reactor::ConnId;

    use super::*;

    fn add_client(clients: &mut Clients, number: u32, address: [u8; 4]) {
        let conn = ConnId { index: number, generation: 0 };
        let local = "127.0.0.1:9042".parse().expect("address");
        let slot = clients.insert(conn, local, SocketAddr::from((address, 40_000)).into(), 0);
        let client = clients.get_mut(slot).expect("client");
        (client.in_flight, client.version) = (2, 4);
    }

    /// Counts to the end: the result, and the number of steps.
    fn count(clients: &Clients) -> (CoreCensus, usize) {
        let (sender, _receiver) = mpsc::channel(1);
        let (mut census, pools, mut steps) = (Census::new(0, sender), Pools::default(), 1);
        while census.step(clients, &pools) {
            steps += 1;
        }
        (census.counted, steps)
    }

    #[test]
    fn a_hundred_thousand_clients_are_counted_in_small_steps() {
        let mut clients = Clients::default();
        for number in 0..100_000 {
            add_client(&mut clients, number, [10, 0, 0, (number % 3) as u8]);
        }
        // Empty slots are no clients.
        (0..50_000).for_each(|number| drop(clients.try_remove(number * 2)));
        let (counted, steps) = count(&clients);
        assert!(steps >= 100_000 / limits::CENSUS_STEP, "{steps}");
        let total: u64 = counted.groups.values().map(|tally| tally.clients).sum();
        assert_eq!((counted.groups.len(), total, counted.others), (3, 50_000, Tally::default()));
        assert!(counted.groups.values().all(|tally| tally.in_flight == 2 * tally.clients));
    }

    #[test]
    fn clients_that_all_differ_take_bounded_memory() {
        let mut clients = Clients::default();
        for number in 0..100_000u32 {
            add_client(&mut clients, number, number.to_be_bytes());
        }
        let (counted, _) = count(&clients);
        assert_eq!(counted.groups.len(), limits::CENSUS_GROUPS_MAX);
        assert_eq!(counted.others.clients, 100_000 - limits::CENSUS_GROUPS_MAX as u64);
        assert_eq!(count(&Clients::default()).0.groups.len(), 0);
    }
}
