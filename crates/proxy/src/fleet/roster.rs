//! The fleet as drivers see it: the live proxies, and the differences between two lists of them.
//!
//! The membership builds a list, and every core gets it whole by mail, like the routing table. It
//! never changes. The core answers reads of `system.peers` from it (`answers/peers.rs`), and tells
//! clients the differences between two lists (`client/announce.rs`). No query touches it.

use std::net::SocketAddr;

use crate::limits;

/// A live proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Address that drivers connect to, from [`crate::config::Config::member_address`] of that
    /// proxy.
    pub address: SocketAddr,
    /// Id of the process; a restart has another one.
    pub incarnation: [u8; 16],
}

impl Member {
    /// True if a driver could connect to its address.
    fn is_reachable(&self) -> bool {
        !self.address.ip().to_canonical().is_unspecified() && self.address.port() != 0
    }
}

/// The live members of a fleet, seen from one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    own: Member,
    /// The members in order, so that those of one address are neighbours. None has this proxy's
    /// address.
    others: Box<[Member]>,
}

impl Fleet {
    /// Makes a list of these members; `own` is this proxy's index among them. Returns `None` if
    /// there is no such index, or if no driver could connect to the address there.
    ///
    /// The list leaves out members that no driver could connect to (unspecified address, or port
    /// 0), and those with this proxy's own address, which are former processes that the fleet has
    /// not given up yet. Of more than [`limits::FLEET_MEMBERS_MAX`], the first ones by address are
    /// kept.
    #[must_use]
    pub fn new(members: Vec<Member>, own: usize) -> Option<Fleet> {
        let own = *members.get(own).filter(|own| own.is_reachable())?;
        let mut others = members;
        others.retain(|member| member.is_reachable() && member.address != own.address);
        others.sort_unstable();
        others.dedup();
        others.truncate(limits::FLEET_MEMBERS_MAX);
        Some(Fleet { own, others: others.into() })
    }

    /// This proxy.
    #[must_use]
    pub fn own(&self) -> &Member {
        &self.own
    }

    /// Addresses of the other members, in order and without repetition. A restarted proxy is listed
    /// twice until the fleet gives its former process up.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.hosts().map(|starts| starts[0].address)
    }

    /// The members at each address, at least one.
    fn hosts(&self) -> impl Iterator<Item = &[Member]> {
        self.others.chunk_by(|one, next| one.address == next.address)
    }

    /// The members at this address.
    fn at(&self, address: SocketAddr) -> &[Member] {
        let start = self.others.partition_point(|member| member.address < address);
        let here = &self.others[start..];
        &here[..here.partition_point(|member| member.address == address)]
    }
}

/// A difference between two lists, for clients that know hosts by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new address.
    Joined(SocketAddr),
    /// A restart of the proxy at a known address.
    Restarted(SocketAddr),
    /// An address without a member.
    Left(SocketAddr),
}

/// The differences for a client that knows `before` (`None`: no other proxy). Departures come last,
/// so that no client sees fewer hosts in between than before or after.
pub(crate) fn changes(before: Option<&Fleet>, now: &Fleet) -> Vec<Change> {
    let mut changes = Vec::new();
    for starts in now.hosts() {
        let address = starts[0].address;
        let known = before.map_or(&[][..], |before| before.at(address));
        if known.is_empty() {
            changes.push(Change::Joined(address));
        } else if starts.iter().any(|start| !known.contains(start)) {
            changes.push(Change::Restarted(address));
        }
    }
    let before = before.into_iter().flat_map(Fleet::addresses);
    changes.extend(
        before
            .filter(|gone| now.at(*gone).is_empty() && *gone != now.own.address)
            .map(Change::Left),
    );
    changes
}

#[cfg(test)]
mod tests {
    use super::Change::{Joined, Left, Restarted};
    use super::*;

    fn address(number: u8) -> SocketAddr {
        ([10, 0, 0, number], 9042).into()
    }

    fn member(number: u8, start: u8) -> Member {
        Member { address: address(number), incarnation: [start; 16] }
    }

    /// Numbers of proxies and of their starts.
    type Others<'a> = &'a [(u8, u8)];

    /// Proxy 1 and these others.
    fn fleet(others: Others<'_>) -> Fleet {
        let others = others.iter().map(|(number, start)| member(*number, *start));
        Fleet::new([member(1, 1)].into_iter().chain(others).collect(), 0).expect("a fleet")
    }

    #[test]
    fn a_member_that_joins_restarts_or_leaves_is_one_change() {
        let cases: [(Others, Others, &[Change]); 8] = [
            (&[], &[], &[]),
            (&[], &[(2, 1), (3, 1)], &[Joined(address(2)), Joined(address(3))]),
            (&[(3, 1), (2, 1)], &[(2, 1), (3, 1)], &[]),
            (&[(2, 1), (3, 1)], &[(3, 1)], &[Left(address(2))]),
            (&[(2, 1)], &[(3, 1)], &[Joined(address(3)), Left(address(2))]),
            (&[(2, 1)], &[(2, 2)], &[Restarted(address(2))]),
            (&[(2, 1)], &[(2, 1), (2, 2)], &[Restarted(address(2))]),
            (&[(2, 1), (2, 2)], &[(2, 2)], &[]),
        ];
        for (before, now, expected) in cases {
            assert_eq!(changes(Some(&fleet(before)), &fleet(now)), expected, "{before:?} {now:?}");
        }
        assert_eq!(changes(None, &fleet(&[(2, 1)])), [Joined(address(2))]);
    }

    #[test]
    fn nobody_is_told_of_the_own_proxy() {
        // An earlier start of it is not given up yet; and before it had another address.
        let now = fleet(&[(1, 7), (2, 1)]);
        assert_eq!(now.addresses().collect::<Vec<_>>(), [address(2)]);
        let moved = Fleet::new(vec![member(1, 1), member(2, 1), member(4, 1)], 2).expect("a fleet");
        assert_eq!(changes(Some(&moved), &now), []);
    }

    #[test]
    fn an_address_is_listed_once_and_what_nobody_could_reach_not_at_all() {
        let mut members =
            vec![member(9, 1), member(2, 1), member(2, 2), member(2, 2), member(3, 1)];
        for bad in ["0.0.0.0:9042", "[::]:9042", "[::ffff:0.0.0.0]:9042", "10.0.0.5:0"] {
            members.push(Member { address: bad.parse().expect("address"), incarnation: [1; 16] });
            assert_eq!(Fleet::new(members.clone(), members.len() - 1), None, "{bad}");
        }
        let fleet = Fleet::new(members.clone(), 0).expect("a fleet");
        assert_eq!(fleet.addresses().collect::<Vec<_>>(), [address(2), address(3)]);
        assert_eq!(fleet.own(), &members[0]);
        assert_eq!(Fleet::new(members.clone(), members.len()), None);
        assert_eq!(Fleet::new(Vec::new(), 0), None);
    }

    #[test]
    fn a_list_that_is_too_long_is_cut_alike_everywhere() {
        let number = |number: u32| Member {
            address: (number.to_be_bytes(), 9042).into(),
            incarnation: [0; 16],
        };
        let members: Vec<Member> = (1..100_000).rev().map(number).collect();
        let first = Fleet::new(members.clone(), 0).expect("a fleet");
        let second = Fleet::new(members, 50).expect("a fleet");
        assert_eq!(first.addresses().count(), limits::FLEET_MEMBERS_MAX);
        assert!(first.addresses().eq(second.addresses()));
    }
}
