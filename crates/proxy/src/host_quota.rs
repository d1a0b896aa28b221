//! A quota for each second, of which one client's host gets a share.

use shunt_reactor::{ClientAddress, ClientHost, HostShares};

use crate::limits;

/// Things that clients have taken in the present second.
#[derive(Default)]
pub(crate) struct HostQuota {
    second: u64,
    shares: HostShares<Option<ClientHost>>,
}

impl HostQuota {
    /// Begins the second of this time; `false` if it has begun before.
    pub(crate) fn begin_second(&mut self, now_ns: u64) -> bool {
        let second = now_ns / limits::SECOND_NS;
        let is_new = second != self.second;
        if is_new {
            self.second = second;
            self.shares.clear();
        }
        is_new
    }

    /// Takes one of the `most` things of this second, of which one host gets `most_of_host`.
    /// A host of IPv6 has 64 bits of addresses.
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        client: Option<ClientAddress>,
        most: usize,
        most_of_host: usize,
    ) -> bool {
        self.begin_second(now_ns);
        self.shares.take(client.map(ClientAddress::counted_host), most, most_of_host).is_ok()
    }

    /// True if the second in which something was taken is over.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns / limits::SECOND_NS > self.second
    }

    /// Number of hosts that have taken something.
    #[cfg(test)]
    pub(crate) fn hosts(&self) -> usize {
        self.shares.hosts()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};

    use super::*;

    fn client(network: u16, last: u16) -> Option<ClientAddress> {
        let address = Ipv6Addr::new(0x2001, 0xDB8, 0, network, 0, 0, 0, last);
        Some(SocketAddr::from((address, last)).into())
    }

    #[test]
    fn all_addresses_of_a_network_of_ipv6_have_one_part() {
        let mut quota = HostQuota::default();
        let taken = (0..100).filter(|last| quota.take(7, client(1, *last), 16, 4)).count();
        assert_eq!((taken, quota.hosts()), (4, 1));
        assert!(quota.take(7, client(2, 1), 16, 4), "another network");
    }
}
