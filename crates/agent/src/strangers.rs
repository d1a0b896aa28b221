//! Control connections that have not proved the key: fewer than all, and few from one host.

use std::collections::HashMap;

use shunt_reactor::ClientHost;

use crate::limits::{STRANGERS_MAX, STRANGERS_OF_HOST_MAX};

/// Connections within their handshakes. Other hosts, and connections that are open, keep room.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    count: usize,
    by_host: HashMap<ClientHost, usize>,
}

impl Strangers {
    /// Counts one more of this host; false if it has no place.
    pub(crate) fn add(&mut self, host: ClientHost) -> bool {
        let of_host = self.by_host.get(&host).copied().unwrap_or(0);
        if self.count >= STRANGERS_MAX || of_host >= STRANGERS_OF_HOST_MAX {
            return false;
        }
        self.count += 1;
        self.by_host.insert(host, of_host + 1);
        true
    }

    /// Gives the place of one of this host back.
    pub(crate) fn remove(&mut self, host: ClientHost) {
        self.count = self.count.saturating_sub(1);
        let Some(of_host) = self.by_host.get_mut(&host) else { return };
        *of_host -= 1;
        if *of_host == 0 {
            self.by_host.remove(&host);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn hosts_have_shares_and_places_come_back() {
        let host = |number: u32| {
            ClientHost::Network(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number)))
        };
        let mut strangers = Strangers::default();
        let add = |strangers: &mut Strangers, number| {
            std::iter::repeat_with(|| strangers.add(host(number)))
                .take_while(|taken| *taken)
                .count()
        };
        assert_eq!(add(&mut strangers, 1), STRANGERS_OF_HOST_MAX);
        let others: usize = (2..100).map(|number| add(&mut strangers, number)).sum();
        assert_eq!(others, STRANGERS_MAX - STRANGERS_OF_HOST_MAX);
        assert!(!strangers.add(host(100)));
        strangers.remove(host(1));
        assert!(strangers.add(host(100)) && !strangers.add(host(101)));
        (0..STRANGERS_OF_HOST_MAX - 1).for_each(|_| strangers.remove(host(1)));
        assert!(!strangers.by_host.contains_key(&host(1)));
    }
}
