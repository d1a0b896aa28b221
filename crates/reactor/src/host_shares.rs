//! Shares of hosts: how many of a limited number of things the clients of one host may have, so
//! that no host keeps all others out. Such things are connections that have not logged in, places
//! at a server, and attempts within a second.
//!
//! This must never:
//! - let one host have more than its share, or all hosts together more than the limit;
//! - make a host give way to one that has as many: two hosts would take each other's places in
//!   turn.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::client_address::ClientHost;

/// Counts of things by host. `H` is the host, or an `Option` of it where things without a known
/// host have a share as well.
#[derive(Debug)]
pub struct HostShares<H = ClientHost> {
    taken: usize,
    of_hosts: HashMap<H, usize>,
    /// The same hosts by their numbers, to find the one with the most.
    by_number: BTreeSet<(usize, H)>,
}

/// The reason for giving a host nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Everything is taken.
    All,
    /// The host has its share.
    Host,
}

impl<H> Default for HostShares<H> {
    fn default() -> Self {
        Self { taken: 0, of_hosts: HashMap::new(), by_number: BTreeSet::new() }
    }
}

impl<H: Copy + Eq + Ord + Hash> HostShares<H> {
    /// Takes one of `most` things for a host, which may have `most_of_host` of them.
    ///
    /// # Errors
    /// Everything is taken, or the host has its share.
    pub fn take(&mut self, host: H, most: usize, most_of_host: usize) -> Result<(), Full> {
        if self.taken >= most {
            return Err(Full::All);
        }
        if self.of(host) >= most_of_host {
            return Err(Full::Host);
        }
        self.add(host);
        Ok(())
    }

    /// Counts one more thing of a host, without a limit.
    pub fn add(&mut self, host: H) {
        let of_host = self.of_hosts.entry(host).or_default();
        self.by_number.remove(&(*of_host, host));
        *of_host += 1;
        self.by_number.insert((*of_host, host));
        self.taken += 1;
    }

    /// True if `most` things leave as many free as the host has. A host alone then leaves half of
    /// them to others, and several together leave a part, too.
    pub fn has_place(&self, host: H, most: usize) -> bool {
        self.of(host) < most.saturating_sub(self.taken)
    }

    /// Gives one thing of a host back. A host without any stays as it is.
    pub fn remove(&mut self, host: H) {
        let Some(of_host) = self.of_hosts.get_mut(&host) else { return };
        self.by_number.remove(&(*of_host, host));
        *of_host -= 1;
        self.taken -= 1;
        match *of_host {
            0 => drop(self.of_hosts.remove(&host)),
            left => drop(self.by_number.insert((left, host))),
        }
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        self.taken = 0;
        self.of_hosts.clear();
        self.by_number.clear();
    }

    /// Number of things that a host has.
    pub fn of(&self, host: H) -> usize {
        self.of_hosts.get(&host).copied().unwrap_or_default()
    }

    /// Number of things that all hosts have.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Number of hosts that have something.
    pub fn hosts(&self) -> usize {
        self.of_hosts.len()
    }

    /// The host that gives one thing up for `host`, whose new thing is counted already: the host
    /// with the most, if it has more than `host`, and more than `always`, the number that every
    /// host keeps.
    pub fn displaced_by(&self, host: H, always: usize) -> Option<H> {
        let (most, heaviest) = self.by_number.last()?;
        (*most > self.of(host).max(always)).then_some(*heaviest)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn host(last: u8) -> ClientHost {
        ClientHost::Network(IpAddr::from([192, 0, 2, last]))
    }

    fn shares(hosts: &[u8]) -> HostShares {
        let mut shares = HostShares::default();
        hosts.iter().for_each(|last| shares.add(host(*last)));
        shares
    }

    #[test]
    fn hosts_have_shares_and_give_back_what_they_took() {
        let mut shares = HostShares::default();
        let take = |shares: &mut HostShares, last| shares.take(host(last), 4, 2);
        assert_eq!([(); 3].map(|()| take(&mut shares, 1)), [Ok(()), Ok(()), Err(Full::Host)]);
        assert_eq!([2, 3, 4].map(|last| take(&mut shares, last)), [Ok(()), Ok(()), Err(Full::All)]);
        assert_eq!((shares.of(host(1)), shares.taken(), shares.hosts()), (2, 4, 3));
        shares.remove(host(4));
        assert_eq!(take(&mut shares, 4), Err(Full::All), "it had nothing to give back");
        shares.remove(host(1));
        assert_eq!((take(&mut shares, 4), take(&mut shares, 1)), (Ok(()), Err(Full::All)));
        (1..=4).for_each(|last| shares.remove(host(last)));
        assert_eq!((shares.taken(), shares.hosts(), shares.by_number.len()), (0, 0, 0));
        shares.add(host(1));
        shares.clear();
        assert_eq!((shares.taken(), shares.hosts(), shares.by_number.len()), (0, 0, 0));
    }

    #[test]
    fn a_host_gives_way_to_one_that_has_less() {
        let shares = shares(&[1, 1, 1, 2, 2, 3]);
        assert_eq!(shares.displaced_by(host(3), 0), Some(host(1)));
        assert_eq!(shares.displaced_by(host(2), 2), Some(host(1)));
        assert_eq!(shares.displaced_by(host(2), 3), None, "every host keeps three");
        assert_eq!(shares.displaced_by(host(1), 0), None, "it has the most itself");
    }

    #[test]
    fn a_host_leaves_half_of_the_places_to_others() {
        const PLACES: usize = 4_096;
        let mut shares = HostShares::default();
        let fill = |shares: &mut HostShares, last| {
            while shares.has_place(host(last), PLACES) {
                shares.add(host(last));
            }
            shares.of(host(last))
        };
        let taken: Vec<usize> = (0..8).map(|last| fill(&mut shares, last)).collect();
        assert_eq!(taken, [2_048, 1_024, 512, 256, 128, 64, 32, 16]);
        assert!(!shares.has_place(host(0), PLACES), "the first has more than its part");
        (8..8 + 16).for_each(|last| shares.add(host(last)));
        assert!(!shares.has_place(host(99), PLACES), "each place is given once");
    }

    #[test]
    fn hosts_with_as_many_do_not_give_way_to_each_other() {
        let mut shares = shares(&[1, 1, 2, 2]);
        assert_eq!([1, 2].map(|last| shares.displaced_by(host(last), 0)), [None, None]);
        shares.remove(host(2));
        assert_eq!(shares.displaced_by(host(2), 0), Some(host(1)));
        assert_eq!(HostShares::default().displaced_by(host(1), 0), None);
    }
}
