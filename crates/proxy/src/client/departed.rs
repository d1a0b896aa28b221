//! Groups of clients that have left, so that an operator finds out who sent something a minute ago.
//!
//! A group keeps the sums of its former clients while it has others, and for
//! [`limits::DEPARTED_GROUP_NS`] after the last one. Memory is bounded. In a full table, a role
//! with few groups replaces a group of the role with the most, and a role that has its share
//! replaces a group of its own. Therefore no client that reconnects under new names can push others
//! out, or make the core search the table more often than [`limits::DEPARTED_CHANGES_PER_SECOND`].
//! The sums of groups without a place are added up, so no count is lost.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_reactor::ClientHost;

use crate::client::census::{CoreCensus, Group, Tally};
use crate::limits;

/// The clients that have left a core, by group.
#[derive(Default)]
pub(crate) struct DepartedGroups {
    groups: HashMap<Group, Departed>,
    /// Sums of groups without a place.
    others: Tally,
    /// Start of the second of `changes`, nanoseconds.
    second_ns: u64,
    /// Groups that were replaced in that second.
    changes: u32,
}

struct Departed {
    tally: Tally,
    /// Time at which the last of them left, or at which a count last found clients of the group.
    left_ns: u64,
}

impl Departed {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.left_ns) >= limits::DEPARTED_GROUP_NS
    }
}

/// The party whose groups have a share of the table: a role or, without a login, a host. A client
/// may use all addresses of an IPv6 network of 64 bits, so that is one host.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Party {
    Role(Arc<str>),
    Host(ClientHost),
}

impl Party {
    fn of(group: &Group) -> Party {
        let host = match group.address {
            ClientHost::Network(address) => ClientHost::counted(address),
            user => user,
        };
        group.role.clone().map_or(Party::Host(host), Party::Role)
    }
}

impl DepartedGroups {
    /// Adds a client that leaves.
    pub(crate) fn leave(&mut self, group: Group, tally: Tally, now_ns: u64) {
        if let Some(known) = self.groups.get_mut(&group) {
            known.tally.add(tally);
            known.left_ns = now_ns;
        } else if self.groups.len() < limits::DEPARTED_GROUPS_MAX || self.make_room(&group, now_ns)
        {
            self.groups.insert(group, Departed { tally, left_ns: now_ns });
        } else {
            self.others.add(tally);
        }
    }

    /// Adds the clients that have left to the connected ones.
    pub(crate) fn join(&mut self, counted: &mut CoreCensus, now_ns: u64) {
        let Self { groups, others, .. } = self;
        groups.retain(|group, departed| {
            if let Some(tally) = counted.groups.get_mut(group) {
                tally.add(departed.tally);
                departed.left_ns = now_ns;
                return true;
            }
            if departed.is_over(now_ns) {
                others.add(departed.tally);
                return false;
            }
            let left_ago_ns = Some(now_ns.saturating_sub(departed.left_ns));
            let tally = Tally { left_ago_ns, ..departed.tally };
            if counted.groups.len() < limits::CENSUS_GROUPS_MAX {
                counted.groups.insert(group.clone(), tally);
            } else {
                counted.others.add(tally);
            }
            true
        });
        counted.others.add(*others);
    }

    /// Frees a place in a full table for a group. Returns false if there is none for it now.
    #[cold]
    fn make_room(&mut self, group: &Group, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.second_ns) >= limits::SECOND_NS {
            (self.second_ns, self.changes) = (now_ns, 0);
        }
        if self.changes >= limits::DEPARTED_CHANGES_PER_SECOND {
            return false;
        }
        self.changes += 1;
        let Some(victim) = self.victim(group) else { return false };
        if let Some(departed) = self.groups.remove(&victim) {
            self.others.add(departed.tally);
        }
        true
    }

    /// The group that another one replaces: the group whose clients left first, of the party with
    /// the most groups, or of the new group's own party if that has its share.
    fn victim(&self, group: &Group) -> Option<Group> {
        let mut shares = HashMap::<Party, usize>::new();
        for group in self.groups.keys() {
            *shares.entry(Party::of(group)).or_default() += 1;
        }
        let party = Party::of(group);
        let own = shares.get(&party).copied().unwrap_or_default();
        let (most_of, most) = shares.iter().max_by_key(|(_, share)| **share)?;
        let from = if own + 1 < *most { most_of } else { &party };
        // With one group for each party, a new party takes the place of any.
        let is_from = |group: &Group| own == 0 && *most == 1 || Party::of(group) == *from;
        let groups = self.groups.iter().filter(|(group, _)| is_from(group));
        groups.min_by_key(|(_, departed)| departed.left_ns).map(|(group, _)| group.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(role: &str, address: u32) -> Group {
        Group {
            role: Some(role.into()),
            identity: None,
            address: ClientHost::Network(std::net::Ipv4Addr::from_bits(address).into()),
            keyspace: None,
            driver: None,
            version: 5,
            tls: None,
        }
    }

    fn one() -> Tally {
        Tally { queries: 1, ..Tally::default() }
    }

    /// The groups that a count shows, and the queries of all.
    fn shown(departed: &mut DepartedGroups, now_ns: u64) -> (Vec<Group>, u64) {
        let others = Tally::default();
        let mut counted = CoreCensus { core: 0, groups: HashMap::new(), others };
        departed.join(&mut counted, now_ns);
        let queries = counted.groups.values().map(|tally| tally.queries).sum::<u64>();
        (counted.groups.into_keys().collect(), queries + counted.others.queries)
    }

    #[test]
    fn a_group_without_clients_shows_for_a_while_and_no_count_is_lost() {
        let mut departed = DepartedGroups::default();
        departed.leave(group("shop", 1), one(), 0);
        departed.leave(group("shop", 1), one(), 5);
        let last_ns = 5 + limits::DEPARTED_GROUP_NS - 1;
        assert_eq!(shown(&mut departed, last_ns), (vec![group("shop", 1)], 2));
        assert_eq!(shown(&mut departed, last_ns + 1), (Vec::new(), 2));
        assert!(departed.groups.is_empty());
    }

    #[test]
    fn a_thousand_roles_keep_the_table_at_its_bound_and_a_role_its_share() {
        let mut departed = DepartedGroups::default();
        departed.leave(group("shop", 1), one(), 0);
        // One role from many hosts, then many roles: ten in a millisecond.
        for number in 0..200_000u32 {
            let now_ns = u64::from(number) * limits::SECOND_NS / 10_000;
            let role = if number < 100_000 { 0 } else { number % 1_000 };
            departed.leave(group(&format!("role {role}"), number), one(), now_ns);
            assert!(departed.groups.len() <= limits::DEPARTED_GROUPS_MAX);
        }
        let (groups, queries) = shown(&mut departed, 20 * limits::SECOND_NS);
        assert_eq!((groups.len(), queries), (limits::DEPARTED_GROUPS_MAX, 200_001));
        assert!(groups.contains(&group("shop", 1)), "a role with one group keeps it");
        let of_first = groups.iter().filter(|group| group.role.as_deref() == Some("role 0"));
        let count = of_first.count();
        assert!((100..1_024).contains(&count), "{count}");
    }

    #[test]
    fn a_second_has_few_looks_at_the_table() {
        let mut departed = DepartedGroups::default();
        let most = limits::DEPARTED_GROUPS_MAX as u32;
        (0..most).for_each(|number| departed.leave(group("flood", number), one(), 0));
        for number in most..100 * most {
            departed.leave(group("flood", number), one(), 1);
        }
        let (groups, queries) = shown(&mut departed, 2);
        let is_new = |group: &&Group| group.address > self::group("", most - 1).address;
        let changed = groups.iter().filter(is_new).count();
        assert_eq!(changed, limits::DEPARTED_CHANGES_PER_SECOND as usize);
        assert_eq!(queries, u64::from(100 * most));
    }

    #[test]
    fn a_client_with_many_addresses_leaves_others_their_places() {
        let mut departed = DepartedGroups::default();
        let at = |address: std::net::Ipv6Addr| Group {
            role: None,
            address: ClientHost::Network(address.into()),
            ..group("", 0)
        };
        let other = at(std::net::Ipv6Addr::LOCALHOST);
        departed.leave(other.clone(), one(), 0);
        for number in 0..2 * limits::DEPARTED_GROUPS_MAX as u16 {
            let address = std::net::Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, number);
            departed.leave(at(address), one(), u64::from(number) * limits::SECOND_NS / 10);
        }
        assert!(shown(&mut departed, limits::SECOND_NS).0.contains(&other));
    }
}
