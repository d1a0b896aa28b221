//! Counts a core's clients by their identity, when `/status` asks for it.
//!
//! The count does not hold the core up: it takes [`limits::CENSUS_STEP`] clients at a time, and the
//! core serves its connections in between. Clients that come meanwhile may be counted or not. The
//! count drops clients that leave meanwhile, because [`DepartedGroups`] has them then: no query
//! counts twice. Memory is bounded: beyond [`limits::CENSUS_GROUPS_MAX`] groups, all others count
//! as one.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_reactor::{ClientHost, Io};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::client::clients::Clients;
use crate::client::departed::DepartedGroups;
use crate::client::identity::{Driver, PoolNames};
use crate::client::times::GroupTimes;
use crate::client::traffic::Errors;
use crate::limits;
use crate::link::Pools;

/// Clients that `/status` shows as one group: equal in all of these fields.
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

impl Group {
    /// The group of a client, whose pool has these names.
    pub(crate) fn of(client: &Client, names: Option<&PoolNames>) -> Group {
        Group {
            role: names.and_then(|names| names.role.clone()),
            identity: names.and_then(|names| names.identity.clone()),
            address: client.peer.host(),
            keyspace: names.and_then(|names| names.keyspace.clone()),
            driver: client.driver.clone(),
            version: client.version,
            tls: client.tls,
        }
    }
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
    /// Queries of these clients, and of clients of the group that have left.
    pub queries: u64,
    /// Queries of these clients in a second, of the last two seconds or so.
    pub queries_per_second: u64,
    /// Queries among them that ended with an error.
    pub errors: Errors,
    /// Bytes of these clients' requests, without headers.
    pub bytes_in: u64,
    /// Bytes of the answers, without headers.
    pub bytes_out: u64,
    /// Times of the last queries of each client.
    pub times: GroupTimes,
    /// Nanoseconds since its last client left; `None`: it has clients.
    pub left_ago_ns: Option<u64>,
}

// A core keeps and sends thousands of them.
const _: () = assert!(size_of::<Tally>() <= 720);

impl Tally {
    /// The queries of a client, without those in flight.
    pub(crate) fn of_queries(client: &Client) -> Tally {
        let (bytes_in, bytes_out) = client.traffic.bytes();
        Tally {
            queries: client.traffic.queries(),
            errors: client.traffic.errors(),
            bytes_in,
            bytes_out,
            times: client.traffic.times(),
            ..Tally::default()
        }
    }

    /// A connected client.
    fn of(client: &Client) -> Tally {
        Tally {
            clients: 1,
            paused: u64::from(client.stalls.any()),
            in_flight: client.in_flight.into(),
            queries_per_second: client.traffic.per_second(),
            ..Tally::of_queries(client)
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        let left = [self.left_ago_ns, other.left_ago_ns].into_iter().flatten().min();
        self.left_ago_ns = left.filter(|_| self.clients + other.clients == 0);
        self.clients += other.clients;
        self.paused += other.paused;
        self.in_flight += other.in_flight;
        self.queries += other.queries;
        self.queries_per_second += other.queries_per_second;
        self.errors.add(other.errors);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.times.add(&other.times);
    }

    /// Removes a client that was added. Its times stay among those of the last queries.
    fn take_back(&mut self, one: &Tally) {
        self.clients = self.clients.saturating_sub(one.clients);
        self.paused = self.paused.saturating_sub(one.paused);
        self.in_flight = self.in_flight.saturating_sub(one.in_flight);
        self.queries = self.queries.saturating_sub(one.queries);
        self.queries_per_second = self.queries_per_second.saturating_sub(one.queries_per_second);
        self.errors.take_back(one.errors);
        self.bytes_in = self.bytes_in.saturating_sub(one.bytes_in);
        self.bytes_out = self.bytes_out.saturating_sub(one.bytes_out);
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
            let group = Group::of(client, names);
            let one = Tally::of(client);
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

    /// Removes a client that leaves after it was counted.
    pub(crate) fn leave(&mut self, slot: u32, client: &Client, group: &Group) {
        if slot as usize >= self.next {
            return;
        }
        let one = Tally::of(client);
        let CoreCensus { groups, others, .. } = &mut self.counted;
        match groups.get_mut(group) {
            Some(tally) if tally.clients > 1 => tally.take_back(&one),
            Some(_) => drop(groups.remove(group)),
            None => others.take_back(&one),
        }
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
pub(crate) fn go_on(
    census: &mut Option<Census>,
    departed: &mut DepartedGroups,
    clients: &Clients,
    pools: &Pools,
    io: &mut Io,
) {
    let Some(counting) = census else { return };
    if counting.answer.is_closed() {
        *census = None;
    } else if counting.step(clients, pools) {
        io.set_timer(io.now_ns() + limits::CENSUS_PAUSE_NS, TIMER);
    } else if let Some(mut done) = census.take() {
        departed.join(&mut done.counted, io.now_ns());
        // The requester has gone, or has room for the answer of each core.
        let _ = done.answer.try_send(done.counted);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use shunt_reactor::ConnId;

    use super::*;
    use crate::query_end::{End, ErrorKind};

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

    #[test]
    fn a_client_that_leaves_during_a_count_is_counted_once() {
        let (mut clients, mut departed) = (Clients::default(), DepartedGroups::default());
        let all = 2 * limits::CENSUS_STEP as u32;
        for number in 0..all {
            add_client(&mut clients, number, [10, 0, 0, (number == 0).into()]);
            clients.get_mut(number).expect("client").traffic.count(10);
        }
        let (sender, _receiver) = mpsc::channel(1);
        let mut census = Census::new(0, sender);
        assert!(census.step(&clients, &Pools::default()));
        // The only one of its group, one of many that are counted, and one that is not counted yet.
        for slot in [0, 1, all - 1] {
            let client = clients.try_remove(slot).expect("client");
            let group = Group::of(&client, None);
            census.leave(slot, &client, &group);
            departed.leave(group, Tally::of_queries(&client), 0);
        }
        while census.step(&clients, &Pools::default()) {}
        departed.join(&mut census.counted, 1);
        let tallies = census.counted.groups.values();
        let sums = tallies.map(|tally| (tally.clients, tally.queries, tally.bytes_in));
        let sums = sums.fold((0, 0, 0), |all, one| (all.0 + one.0, all.1 + one.1, all.2 + one.2));
        assert_eq!(sums, (u64::from(all) - 3, u64::from(all), 10 * u64::from(all)));
    }

    #[test]
    fn a_group_has_the_queries_of_clients_that_left() {
        let (mut clients, mut departed) = (Clients::default(), DepartedGroups::default());
        (0..4).for_each(|number| add_client(&mut clients, number, [10, 0, 0, 1]));
        for slot in 0..4 {
            let traffic = &mut clients.get_mut(slot).expect("client").traffic;
            traffic.count(10);
            let error = Some(ErrorKind::TimedOut);
            traffic.end(&End { error, ..End::new((1_000, 2_000), 9_000, 10, 20) });
        }
        let leave = |clients: &mut Clients, departed: &mut DepartedGroups, slot, now_ns| {
            let client = clients.try_remove(slot).expect("client");
            departed.leave(Group::of(&client, None), Tally::of_queries(&client), now_ns);
        };
        leave(&mut clients, &mut departed, 0, 100);
        let shown = |clients: &Clients, departed: &mut DepartedGroups, now_ns| {
            let (mut counted, _) = count(clients);
            departed.join(&mut counted, now_ns);
            let tally = counted.groups.into_values().next().expect("a group");
            (tally.clients, tally.queries, tally.errors.total(), tally.bytes_in, tally.left_ago_ns)
        };
        assert_eq!(shown(&clients, &mut departed, 200), (3, 4, 4, 40, None));
        (1..4).for_each(|slot| leave(&mut clients, &mut departed, slot, 300));
        assert_eq!(shown(&clients, &mut departed, 350), (0, 4, 4, 40, Some(50)));
        add_client(&mut clients, 9, [10, 0, 0, 1]);
        // A group with clients keeps its sums, however long the others are gone.
        for round in 1..5 {
            let now_ns = 350 + round * (limits::DEPARTED_GROUP_NS - 1);
            assert_eq!(shown(&clients, &mut departed, now_ns), (1, 4, 4, 40, None));
        }
    }
}
