//! A member's observations of all members: beats that stand still, deaths, missing rows.
//!
//! Reads may come late, out of order, or miss statements in doubt. So no observation goes back (a
//! state only gets worse, a beat only rises), silence counts from when a beat was first known here,
//! and only a read sent after that time has passed proves the silence. Observations never decide:
//! the condition of the resulting statement does.

use std::collections::{BTreeMap, BTreeSet};

use crate::answer::{MemberRow, State};
use crate::config::Times;
use crate::ids::{Incarnation, View};
use crate::output::Peer;

/// Renewals that prove a rival: a process that has ended may have renewed once or twice more by
/// statements that were on their way.
const RENEWALS_OF_RIVAL: u32 = 3;

/// Observations of one member.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) row: MemberRow,
    /// Time at which this beat was first known here.
    pub(crate) since_ns: u64,
    /// Rises of the beat since another live member was first seen at the same address; `None`
    /// without such a member.
    pub(crate) beside: Option<u32>,
    /// Time at which the beat was known to have stood still too long.
    pub(crate) silent_at_ns: Option<u64>,
    /// Time at which the state was first known here.
    pub(crate) state_since_ns: u64,
    /// The caller was asked to redo its unfinished work.
    pub(crate) redo_asked: bool,
    /// The caller has redone it.
    pub(crate) redone: bool,
}

/// A member that owns shards and has no row.
#[derive(Debug, Clone, Copy)]
struct Missing {
    since_ns: u64,
    /// A linearizable read, made after a whole lease of absence, found no row either.
    confirmed: bool,
}

/// Observations of all members, including this one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Others {
    seen: BTreeMap<Incarnation, Seen>,
    missing: BTreeMap<Incarnation, Missing>,
    unreadable: BTreeSet<Incarnation>,
    pub(crate) was_read: bool,
}

/// One read of all rows.
pub(crate) struct Snapshot {
    pub(crate) rows: Vec<MemberRow>,
    pub(crate) unreadable: BTreeSet<Incarnation>,
    /// The read was linearizable. Rows that another read does not show may still exist.
    pub(crate) serial: bool,
    pub(crate) sent_ns: u64,
    pub(crate) now_ns: u64,
}

impl Others {
    /// Takes one read. True if a linearizable read is needed, because this one lacked rows that
    /// were there before.
    pub(crate) fn take(&mut self, snapshot: Snapshot, times: &Times) -> bool {
        let Snapshot { rows, unreadable, serial, sent_ns, now_ns } = snapshot;
        let present: BTreeSet<Incarnation> = rows.iter().map(|row| row.incarnation).collect();
        let is_there = |incarnation: &Incarnation| {
            present.contains(incarnation) || unreadable.contains(incarnation)
        };
        let confirm = !serial && !self.seen.keys().all(is_there);
        if serial {
            self.seen.retain(|incarnation, _| is_there(incarnation));
        }
        for row in rows {
            self.take_row(row, sent_ns, now_ns, times);
        }
        self.note_addresses();
        self.unreadable = unreadable;
        self.was_read = true;
        confirm
    }

    /// Notes which members share an address.
    fn note_addresses(&mut self) {
        let mut count: BTreeMap<String, u32> = BTreeMap::new();
        for seen in self.seen.values().filter(|seen| seen.row.state == State::Live) {
            *count.entry(seen.row.address.clone()).or_default() += 1;
        }
        for seen in self.seen.values_mut() {
            let is_beside = seen.row.state == State::Live
                && count.get(&seen.row.address).is_some_and(|&live| live > 1);
            seen.beside = is_beside.then(|| seen.beside.unwrap_or(0));
        }
    }

    fn take_row(&mut self, row: MemberRow, sent_ns: u64, now_ns: u64, times: &Times) {
        let fresh = |row| Seen {
            row,
            since_ns: now_ns,
            beside: None,
            silent_at_ns: None,
            state_since_ns: now_ns,
            redo_asked: false,
            redone: false,
        };
        let seen = self.seen.entry(row.incarnation).or_insert_with(|| fresh(row.clone()));
        if (row.state, row.beat) < (seen.row.state, seen.row.beat) {
            return;
        }
        if row.state > seen.row.state {
            seen.state_since_ns = now_ns;
        }
        if row.beat > seen.row.beat {
            (seen.since_ns, seen.silent_at_ns) = (now_ns, None);
            seen.beside = seen.beside.map(|renewals| renewals.saturating_add(1));
        } else if sent_ns.saturating_sub(seen.since_ns) >= times.silent_ns {
            seen.silent_at_ns = seen.silent_at_ns.or(Some(now_ns));
        }
        seen.row = row;
    }

    /// Notes owners without a row in the read that was sent at `sent_ns`. Returns whether a
    /// linearizable read is needed, and the owners newly confirmed as missing.
    pub(crate) fn note_missing(
        &mut self,
        view: &View,
        serial: bool,
        sent_ns: u64,
        now_ns: u64,
        times: &Times,
    ) -> Absent {
        let owners: BTreeSet<Incarnation> = view.owned().map(|(_, owner)| owner).collect();
        let gone = |owner: &Incarnation| {
            !self.seen.contains_key(owner) && !self.unreadable.contains(owner)
        };
        let gone: BTreeSet<Incarnation> = owners.into_iter().filter(gone).collect();
        self.missing.retain(|owner, _| gone.contains(owner));
        let mut absent = Absent::default();
        for owner in gone {
            let missing =
                self.missing.entry(owner).or_insert(Missing { since_ns: now_ns, confirmed: false });
            if missing.confirmed {
                continue;
            }
            let long = |at_ns: u64| at_ns.saturating_sub(missing.since_ns) >= times.silent_ns;
            if serial && long(sent_ns) {
                missing.confirmed = true;
                absent.confirmed.push(owner);
            } else {
                absent.read_wanted |= long(now_ns);
            }
        }
        absent
    }

    /// Observations of each member.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Seen> {
        self.seen.values()
    }

    pub(crate) fn find(&self, incarnation: Incarnation) -> Option<&Seen> {
        self.seen.get(&incarnation)
    }

    pub(crate) fn find_mut(&mut self, incarnation: Incarnation) -> Option<&mut Seen> {
        self.seen.get_mut(&incarnation)
    }

    pub(crate) fn remove(&mut self, incarnation: Incarnation) {
        self.seen.remove(&incarnation);
    }

    /// Takes a change of state that this member made itself.
    pub(crate) fn set_state(&mut self, incarnation: Incarnation, state: State, now_ns: u64) {
        if let Some(seen) = self.seen.get_mut(&incarnation) {
            (seen.row.state, seen.state_since_ns) = (state, now_ns);
            // The declaration of a death clears it.
            seen.row.leaving &= state != State::Dead;
        }
    }

    /// Limit of tokens of an owner whose shards may be taken; `None` if it lives or nothing is
    /// known. `Some(None)` is an owner without a row, whose limit is unknown.
    pub(crate) fn limit_of_dead(&self, owner: Incarnation) -> Option<Option<i64>> {
        match self.seen.get(&owner) {
            Some(seen) => (seen.row.state != State::Live).then_some(Some(seen.row.ts_limit_us)),
            None => {
                self.missing.get(&owner).is_some_and(|missing| missing.confirmed).then_some(None)
            }
        }
    }

    /// Largest limit of tokens in any row.
    pub(crate) fn limit_max_us(&self) -> i64 {
        self.seen.values().map(|seen| seen.row.ts_limit_us).max().unwrap_or(0)
    }

    /// Other members that can be given shards: live, not leaving, and with a recent beat. In rising
    /// order.
    pub(crate) fn receivers(
        &self,
        me: Incarnation,
        now_ns: u64,
        times: &Times,
    ) -> Vec<Incarnation> {
        let can = |seen: &&Seen| {
            let row = &seen.row;
            let lately = now_ns.saturating_sub(seen.since_ns) <= times.fresh_ns;
            row.incarnation != me && row.state == State::Live && !row.leaving && lately
        };
        self.seen.values().filter(can).map(|seen| seen.row.incarnation).collect()
    }

    /// Live members, one for each address: of two incarnations of one proxy the one first seen
    /// later. The one with the latest beat would not do: with two processes at one address it would
    /// change at each renewal.
    pub(crate) fn peers(&self, me: Incarnation) -> Vec<Peer> {
        let mut by_address: BTreeMap<&str, &Seen> = BTreeMap::new();
        for seen in self.seen.values().filter(|seen| seen.row.state == State::Live) {
            let rank = |seen: &Seen| (seen.row.incarnation == me, seen.state_since_ns);
            let place = by_address.entry(&seen.row.address).or_insert(seen);
            if rank(seen) > rank(place) {
                *place = seen;
            }
        }
        let peer = |seen: &Seen| Peer {
            incarnation: seen.row.incarnation,
            address: seen.row.address.clone(),
            leaving: seen.row.leaving,
        };
        let mut peers: Vec<Peer> = by_address.into_values().map(peer).collect();
        peers.sort_by_key(|peer| peer.incarnation);
        peers
    }

    /// Live members that keep renewing their leases side by side at one address: two for each such
    /// address, this member first. A replaced incarnation would not keep renewing.
    pub(crate) fn rivals(&self, me: Incarnation) -> Vec<[&MemberRow; 2]> {
        let mut by_address: BTreeMap<&str, Vec<&MemberRow>> = BTreeMap::new();
        for seen in self
            .seen
            .values()
            .filter(|seen| seen.beside.is_some_and(|renewals| renewals >= RENEWALS_OF_RIVAL))
        {
            by_address.entry(&seen.row.address).or_default().push(&seen.row);
        }
        let mut all: Vec<Vec<&MemberRow>> = by_address.into_values().collect();
        all.iter_mut()
            .for_each(|rows| rows.sort_by_key(|row| (row.incarnation != me, row.incarnation)));
        all.iter().filter_map(|rows| rows.first_chunk::<2>().copied()).collect()
    }

    /// True if some rows are invalid.
    pub(crate) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Address of a member that has a row.
    pub(crate) fn address(&self, incarnation: Incarnation) -> Option<&str> {
        self.seen.get(&incarnation).map(|seen| seen.row.address.as_str())
    }
}

/// Result of looking for owners without a row.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    pub(crate) read_wanted: bool,
    pub(crate) confirmed: Vec<Incarnation>,
}
