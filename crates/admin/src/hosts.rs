//! The hosts of a part's clients: how many connections and requests each has.
//!
//! Each event loop has a table of its own, of at most 256 hosts. The table is locked when a client
//! connects and when somebody asks; requests are counted without a lock. A new host takes the place
//! of one without connections. If there is none, it counts as one of the others: a client with many
//! addresses must never push out a host that is connected. A host of IPv6 has 64 bits of addresses,
//! which are one host here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value as Json, json};

use crate::connections::network;
use crate::counter::{Counter, Gauge};

/// Hosts that a table keeps.
const HOSTS_MAX: usize = 256;

/// Counts of a host's clients. The event loop writes, any thread reads.
#[derive(Debug, Default)]
pub struct HostMetrics {
    /// Connections now.
    pub connections: Gauge,
    /// Requests.
    pub requests: Counter,
    /// Errors that the part itself has answered.
    pub errors: Counter,
}

/// The hosts of one event loop.
#[derive(Debug, Default)]
pub struct Hosts {
    known: Mutex<BTreeMap<IpAddr, Arc<HostMetrics>>>,
    others: Arc<HostMetrics>,
}

/// A connection among those of its host, until it is dropped.
#[derive(Debug)]
pub struct HostConnection(Arc<HostMetrics>);

impl Hosts {
    /// Counts a new connection. Only the event loop of the table may call this, and drop what it
    /// returns.
    pub fn connect(&self, address: IpAddr) -> HostConnection {
        let address = network(address);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= HOSTS_MAX && !known.contains_key(&address) {
            self.make_room(&mut known);
        }
        let has_room = known.len() < HOSTS_MAX || known.contains_key(&address);
        let host = match has_room {
            true => Arc::clone(known.entry(address).or_default()),
            false => Arc::clone(&self.others),
        };
        host.connections.add(1);
        HostConnection(host)
    }

    /// Forgets the host without connections that has sent the fewest requests, if there is one. The
    /// others get its counts.
    fn make_room(&self, known: &mut BTreeMap<IpAddr, Arc<HostMetrics>>) {
        let gone = known.iter().filter(|(_, host)| host.connections.get() == 0);
        let least = gone.min_by_key(|(_, host)| host.requests.get()).map(|(address, _)| *address);
        if let Some(host) = least.and_then(|address| known.remove(&address)) {
            self.others.requests.add(host.requests.get());
            self.others.errors.add(host.errors.get());
        }
    }

    /// The hosts of several event loops for `/status`, those with the most requests first, and the
    /// sums of the others.
    pub fn show<'a>(tables: impl Iterator<Item = &'a Hosts>) -> Json {
        let mut all = BTreeMap::<IpAddr, [u64; 3]>::new();
        let mut others = [0; 3];
        for table in tables {
            let known = table.known.lock().unwrap_or_else(PoisonError::into_inner);
            for (address, host) in &*known {
                add(all.entry(*address).or_default(), host);
            }
            add(&mut others, &table.others);
        }
        let mut hosts: Vec<_> = all.into_iter().collect();
        hosts.sort_by_key(|(_, [_, requests, _])| std::cmp::Reverse(*requests));
        let row = |[connections, requests, errors]: [u64; 3]| json!({ "connections": connections, "requests": requests, "errors": errors });
        let named = |(address, counts): (IpAddr, [u64; 3])| {
            let mut row = row(counts);
            row["address"] = match address {
                IpAddr::V4(address) => address.to_string().into(),
                IpAddr::V6(network) => format!("{network}/64").into(),
            };
            row
        };
        json!({ "hosts": hosts.into_iter().map(named).collect::<Vec<_>>(), "others": row(others) })
    }
}

fn add(sums: &mut [u64; 3], host: &HostMetrics) {
    let counts = [host.connections.get(), host.requests.get(), host.errors.get()];
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

impl Deref for HostConnection {
    type Target = HostMetrics;

    fn deref(&self) -> &HostMetrics {
        &self.0
    }
}

impl Drop for HostConnection {
    fn drop(&mut self) {
        self.0.connections.sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).expect("small").to_be_bytes())
    }

    #[test]
    fn connections_and_requests_count_for_their_host_over_all_loops() {
        let tables = [Hosts::default(), Hosts::default()];
        let kept: Vec<_> = tables.iter().map(|table| table.connect(address(1))).collect();
        kept.iter().for_each(|connection| connection.requests.add(2));
        let mapped = "::ffff:0.0.0.2".parse().expect("an address");
        tables[0].connect(mapped).errors.add(1);
        let shown = Hosts::show(tables.iter());
        let expected = json!([
            { "address": "0.0.0.1", "connections": 2, "requests": 4, "errors": 0 },
            { "address": "0.0.0.2", "connections": 0, "requests": 0, "errors": 1 },
        ]);
        assert_eq!(shown["hosts"], expected);
    }

    /// A client may have all addresses of its network.
    #[test]
    fn the_addresses_of_an_ipv6_network_are_one_host() {
        let table = Hosts::default();
        let network = 0x2001_0db8_u128 << 96;
        let address = |number| IpAddr::V6(Ipv6Addr::from_bits(network + number));
        let kept: Vec<_> = (0..2 * HOSTS_MAX as u128).map(|n| table.connect(address(n))).collect();
        let other = table.connect(address(1 << 64));
        let shown = Hosts::show(std::iter::once(&table));
        let named: Vec<_> = shown["hosts"].as_array().expect("a list").iter().collect();
        let row = |address: &str, connections: usize| json!({ "address": address, "connections": connections, "requests": 0, "errors": 0 });
        assert_eq!(named, [&row("2001:db8::/64", kept.len()), &row("2001:db8:0:1::/64", 1)]);
        drop(other);
    }

    #[test]
    fn a_host_that_is_connected_keeps_its_place_however_many_others_come() {
        let table = Hosts::default();
        let kept: Vec<_> = (0..HOSTS_MAX / 2).map(|host| table.connect(address(host))).collect();
        for host in HOSTS_MAX..3 * HOSTS_MAX {
            table.connect(address(host)).requests.add(3);
        }
        kept.iter().for_each(|connection| connection.requests.add(5));
        let shown = Hosts::show(std::iter::once(&table));
        let hosts = shown["hosts"].as_array().expect("a list");
        assert_eq!(hosts.len(), HOSTS_MAX);
        assert!(hosts[..kept.len()].iter().all(|host| host["connections"] == 1), "{hosts:?}");
        // Nothing is lost: the others have what the forgotten ones had.
        let forgotten = 2 * HOSTS_MAX - (HOSTS_MAX - kept.len());
        assert_eq!(shown["others"]["requests"], 3 * forgotten);

        let full = Hosts::default();
        let _all: Vec<_> = (0..HOSTS_MAX).map(|host| full.connect(address(host))).collect();
        let one_more = full.connect(address(HOSTS_MAX));
        let shown = Hosts::show(std::iter::once(&full));
        assert_eq!(shown["others"]["connections"], 1);
        drop(one_more);
        assert_eq!(Hosts::show(std::iter::once(&full))["others"]["connections"], 0);
    }
}
