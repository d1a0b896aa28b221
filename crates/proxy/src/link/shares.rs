//! Shares of a crowded link: one client may have all of its streams and bytes that nobody else asks
//! for, and its equal part otherwise.
//!
//! A link is crowded when less than a reserve of its streams or bytes is left. A client that has
//! its part already, its streams or its bytes, then waits at its own socket, and the reserve is for
//! the others. A client alone on the link may have the reserve too.
//!
//! Only a link that was crowded lately has a table of its clients. It is made from the requests in
//! flight, so that a query on any other link costs nothing for it. Clients are found by their
//! slots: [`shunt_reactor::HostShares`] has a hash map, which is too slow for the path of a query.
//!
//! All clients of a link have one role, because pools do not mix logins. The parts of split
//! requests count as one client together: one that finds no room has its request go whole.
//!
//! This must never:
//! - let a client wait for ever: one with less than its part waits only for room, and in order;
//! - leave more than the reserve unused while somebody waits; that of kept bytes has room for one
//!   more request of any size, because a request is taken whole;
//! - give a client a part of nothing: one stream is the least;
//! - count a client that has left among those that want the link, for longer than a tick;
//! - let a client have a second part by leaving and coming back: its requests are still in flight;
//! - look at more than one client for one request.

use std::collections::VecDeque;

use crate::ids::ClientRef;
use crate::limits;

/// The use that one client makes of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Number of the client; 0: none. A later client in the slot has another number.
    id: u32,
    streams: u32,
    /// Bytes of its requests that are kept.
    bytes: u32,
    /// Tick of its last request.
    used_tick: u32,
    /// True if it counts among those that want the link.
    wants: bool,
    /// True if it waits because it has its part.
    waits: bool,
    /// True if it is in the line, even if it waits no longer.
    is_in_line: bool,
}

/// Bounds that clients share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) streams: usize,
    pub(crate) bytes: usize,
}

impl Bounds {
    /// The equal part of one of so many clients.
    fn part(self, clients: usize) -> Bounds {
        let clients = clients.max(1);
        Bounds { streams: (self.streams / clients).max(1), bytes: (self.bytes / clients).max(1) }
    }
}

/// The clients of a link that is or was crowded.
pub(crate) struct Shares {
    bounds: Bounds,
    /// By slot.
    clients: Vec<Use>,
    /// Slots of those that are there, so that a tick looks at no others.
    taken: Vec<u32>,
    /// The parts of split requests.
    parts: Use,
    /// The requests of clients that have left. Its id is that of the first client that left with a
    /// large part of the link, until all have ended; 0: there was none.
    gone: Use,
    /// Bytes of all of them.
    bytes: usize,
    /// Number of clients that want the link.
    wanting: usize,
    /// Ticks since the table was made.
    ticks: u32,
    /// Ticks since the link was crowded.
    quiet_ticks: u32,
    /// Clients that have their part and wait for more, the first to come at the front.
    line: VecDeque<ClientRef>,
}

impl Shares {
    /// A table of these requests in flight: clients with their bytes.
    pub(crate) fn new(
        bounds: Bounds,
        requests: impl Iterator<Item = (ClientRef, usize)>,
    ) -> Shares {
        let mut shares = Shares {
            bounds,
            clients: Vec::new(),
            taken: Vec::new(),
            parts: Use::default(),
            gone: Use::default(),
            bytes: 0,
            wanting: 0,
            ticks: 0,
            quiet_ticks: 0,
            line: VecDeque::new(),
        };
        requests.for_each(|(client, bytes)| shares.take(client, bytes));
        shares
    }

    /// Number of clients among which the link is divided. Nobody knows at first who used it a
    /// moment ago, so that another client is assumed. Clients that have left count as one.
    fn wanting(&self) -> usize {
        let has_another = self.ticks < limits::SHARE_WANTED_TICKS || self.gone.id != 0;
        let least = if has_another { 2 } else { 1 };
        self.wanting.max(least)
    }

    fn find(&self, client: ClientRef) -> Option<&Use> {
        let found = match client {
            ClientRef::PROXY => None,
            ClientRef::PART => Some(&self.parts),
            _ => self.clients.get(client.slot as usize),
        };
        found.filter(|found| found.id == client.id)
    }

    fn find_mut(&mut self, client: ClientRef) -> Option<&mut Use> {
        let found = match client {
            ClientRef::PROXY => None,
            ClientRef::PART => Some(&mut self.parts),
            _ => self.clients.get_mut(client.slot as usize),
        };
        found.filter(|found| found.id == client.id)
    }

    /// The place of a client, which becomes one that wants the link.
    fn place(&mut self, client: ClientRef) -> Option<&mut Use> {
        let ticks = self.ticks;
        let place = match client {
            ClientRef::PROXY => return None,
            ClientRef::PART => &mut self.parts,
            _ => {
                let slot = client.slot as usize;
                if self.clients.len() <= slot {
                    self.clients.resize(slot + 1, Use::default());
                }
                let place = &mut self.clients[slot];
                if place.id == 0 {
                    self.taken.push(client.slot);
                }
                place
            }
        };
        if place.id != client.id {
            let new = Use { id: client.id, wants: place.wants, ..Use::default() };
            let left = std::mem::replace(place, new);
            self.keep(left);
        }
        let place = self.find_mut(client)?;
        let is_new = !std::mem::replace(&mut place.wants, true);
        place.used_tick = ticks;
        self.wanting += usize::from(is_new);
        self.find_mut(client)
    }

    /// Keeps the use of a client that has left.
    fn keep(&mut self, left: Use) {
        let part = self.bounds.part(self.wanting());
        let has_much =
            2 * left.streams as usize >= part.streams || 2 * left.bytes as usize >= part.bytes;
        self.gone.streams += left.streams;
        self.gone.bytes = self.gone.bytes.saturating_add(left.bytes);
        if left.streams > 0 && has_much {
            self.gone.id = match self.gone.id {
                0 => left.id,
                first => first.min(left.id),
            };
        }
    }

    /// Counts a request that was sent.
    pub(crate) fn take(&mut self, client: ClientRef, bytes: usize) {
        let of_slot = self.clients.get(client.slot as usize);
        let has_left = client.is_client() && of_slot.is_some_and(|later| later.id > client.id);
        let place = if has_left { Some(&mut self.gone) } else { self.place(client) };
        if let Some(place) = place {
            place.streams += 1;
            place.bytes = place.bytes.saturating_add(bytes as u32);
            self.bytes += bytes;
        }
    }

    /// Bytes of all clients' requests that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the end of a request. `true`: its client waits and has less than its part, so that
    /// the caller lines it up among those that wait for room.
    pub(crate) fn end(&mut self, client: ClientRef, bytes: usize) -> bool {
        match self.find_mut(client) {
            Some(place) => place.streams = place.streams.saturating_sub(1),
            None if client.is_client() => self.gone.streams = self.gone.streams.saturating_sub(1),
            None => return false,
        }
        self.free(client, bytes)
    }

    /// Counts bytes that are kept no longer while their request still has its stream; the result is
    /// that of [`end`](Shares::end).
    pub(crate) fn free(&mut self, client: ClientRef, bytes: usize) -> bool {
        let place = match self.find_mut(client) {
            Some(place) => place,
            None if client.is_client() => &mut self.gone,
            None => return false,
        };
        place.bytes = place.bytes.saturating_sub(bytes as u32);
        let waits = place.waits;
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.gone.streams == 0 {
            let rest = std::mem::take(&mut self.gone).bytes;
            self.bytes = self.bytes.saturating_sub(rest as usize);
        }
        waits && self.is_readied(client)
    }

    /// Ends the wait of a client that has less than its part.
    fn is_readied(&mut self, client: ClientRef) -> bool {
        let is_within = !self.has_part(client);
        if let Some(place) = self.find_mut(client).filter(|_| is_within) {
            place.waits = false;
        }
        is_within
    }

    /// True if a client has its part, and others want the link. A client that has connected after
    /// one that left with a large part may be the same one: it waits for the requests of that one.
    pub(crate) fn has_part(&self, client: ClientRef) -> bool {
        let wanting = self.wanting();
        if wanting <= 1 {
            return false;
        }
        let part = self.bounds.part(wanting);
        let fills = |place: &Use| {
            place.streams as usize >= part.streams || place.bytes as usize >= part.bytes
        };
        let may_be_back = client.is_client() && self.gone.id != 0 && client.id > self.gone.id;
        self.find(client).is_some_and(fills) || may_be_back && fills(&self.gone)
    }

    /// Lines up a client that has its part.
    pub(crate) fn line_up(&mut self, client: ClientRef) {
        let Some(place) = self.place(client) else { return };
        place.waits = true;
        if !std::mem::replace(&mut place.is_in_line, true) {
            self.line.push_back(client);
        }
    }

    /// Takes the next client out of the line.
    pub(crate) fn next(&mut self) -> Option<ClientRef> {
        while let Some(client) = self.line.pop_front() {
            let Some(place) = self.find_mut(client) else { continue };
            place.is_in_line = false;
            if std::mem::take(&mut place.waits) {
                return Some(client);
            }
        }
        None
    }

    /// Number of clients in line. Some of them may wait no longer.
    pub(crate) fn in_line(&self) -> usize {
        self.line.len()
    }

    /// Keeps in line only clients that wait, says `waits`.
    pub(crate) fn retain(&mut self, waits: impl Fn(&ClientRef) -> bool) {
        for client in std::mem::take(&mut self.line) {
            let Some(place) = self.find_mut(client) else { continue };
            place.is_in_line = waits(&client);
            place.waits &= place.is_in_line;
            if place.is_in_line {
                self.line.push_back(client);
            }
        }
    }

    /// Notes that the link is crowded, and the bounds that its clients share.
    pub(crate) fn crowd(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.quiet_ticks = 0;
    }

    /// Counts the clients that want the link: they have requests in flight, wait, or had some
    /// lately. Lines up, by `ready`, those whose part has grown. `false`: the table is no longer
    /// needed.
    pub(crate) fn tick(
        &mut self,
        is_there: impl Fn(ClientRef) -> bool,
        mut ready: impl FnMut(ClientRef),
    ) -> bool {
        self.ticks = self.ticks.saturating_add(1);
        self.quiet_ticks = self.quiet_ticks.saturating_add(1);
        let ticks = self.ticks;
        let wants = |place: &Use| {
            place.streams > 0
                || place.waits
                || ticks.saturating_sub(place.used_tick) <= limits::SHARE_WANTED_TICKS
        };
        let mut wanting = 0;
        let (clients, mut left) = (&mut self.clients, Vec::new());
        self.taken.retain(|slot| {
            let Some(place) = clients.get_mut(*slot as usize) else { return false };
            if !is_there(ClientRef { slot: *slot, id: place.id }) {
                left.push(std::mem::take(place));
                return false;
            }
            place.wants = wants(place);
            wanting += usize::from(place.wants);
            true
        });
        left.into_iter().for_each(|left| self.keep(left));
        self.parts.wants = self.parts.id != 0 && wants(&self.parts);
        self.wanting = wanting + usize::from(self.parts.wants);
        for place in 0..self.line.len() {
            let client = self.line[place];
            if self.find(client).is_some_and(|found| found.waits) && self.is_readied(client) {
                ready(client);
            }
        }
        self.quiet_ticks < limits::SHARE_KEPT_TICKS || !self.line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { streams: 1_000, bytes: 100_000 };

    fn client(slot: u32) -> ClientRef {
        ClientRef { slot, id: slot + 1 }
    }

    /// A table that knows who wants the link.
    fn settled(requests: &[(u32, usize)]) -> Shares {
        let requests =
            requests.iter().flat_map(|(slot, number)| vec![(client(*slot), 10); *number]);
        let mut shares = Shares::new(BOUNDS, requests);
        tick(&mut shares, limits::SHARE_WANTED_TICKS);
        shares
    }

    /// Some ticks; returns the clients that they ready.
    fn tick(shares: &mut Shares, number: u32) -> Vec<ClientRef> {
        let mut readied = Vec::new();
        for _ in 0..number {
            shares.tick(|_| true, |client| readied.push(client));
        }
        readied
    }

    #[test]
    fn one_client_alone_may_have_everything() {
        let shares = settled(&[(1, 999)]);
        assert!(!shares.has_part(client(1)) && !shares.has_part(client(2)));
    }

    #[test]
    fn clients_have_equal_parts_and_at_least_one_stream() {
        let mut shares = settled(&[(1, 500), (2, 499)]);
        assert_eq!([1, 2].map(|slot| shares.has_part(client(slot))), [true, false]);
        shares.take(client(3), 10);
        assert!(shares.has_part(client(2)), "a third one wants the link");
        (10..5_000).for_each(|slot| shares.take(client(slot), 10));
        assert!(shares.has_part(client(4_999)), "it has one stream");
        assert!(!shares.has_part(client(5_000)), "and everybody may have one");
    }

    #[test]
    fn bytes_have_parts_too() {
        let mut shares = settled(&[(1, 1), (2, 1)]);
        shares.take(client(1), 60_000);
        assert_eq!([1, 2].map(|slot| shares.has_part(client(slot))), [true, false]);
        shares.line_up(client(1));
        assert!(shares.free(client(1), 60_000), "the request was answered with an error");
        assert_eq!(shares.find(client(1)).map(|found| (found.streams, found.bytes)), Some((2, 10)));
    }

    /// The buffers of a link may be many times as large as the requests in them.
    #[test]
    fn the_bytes_of_all_clients_are_known_while_they_come_and_go() {
        let mut shares = settled(&[(1, 5), (2, 5)]);
        shares.take(ClientRef::PART, 30);
        shares.take(ClientRef::PROXY, 1_000);
        shares.take(client(1), 20);
        shares.end(client(1), 20);
        shares.free(client(2), 10);
        assert_eq!(shares.bytes(), 120);
        shares.tick(|there| there != client(1), |_| ());
        (0..5).for_each(|_| assert!(!shares.end(client(1), 10)));
        assert_eq!(shares.bytes(), 70, "one has left");
        shares.take(ClientRef { slot: 2, id: 99 }, 1);
        (0..4).for_each(|_| assert!(!shares.end(client(2), 10)));
        assert_eq!(shares.bytes(), 31, "its slot has another client");
        shares.crowd(Bounds { bytes: shares.bytes(), ..BOUNDS });
        let next = ClientRef { slot: 2, id: 99 };
        assert!(shares.has_part(ClientRef::PART) && !shares.has_part(next));
    }

    #[test]
    fn a_client_that_gets_below_its_part_is_readied_once() {
        let mut shares = settled(&[(1, 501), (2, 1)]);
        shares.line_up(client(1));
        assert_eq!([(); 3].map(|()| shares.end(client(1), 10)), [false, true, false]);
        assert_eq!(shares.next(), None, "it has been readied already");
        assert_eq!(shares.in_line(), 0);
    }

    #[test]
    fn the_line_has_each_client_once_and_in_order() {
        let mut shares = settled(&[(1, 400), (2, 400), (3, 400)]);
        for _ in 0..100 {
            (1..=3).for_each(|slot| shares.line_up(client(slot)));
            while !shares.end(client(1), 10) {}
            (0..200).for_each(|_| shares.take(client(1), 10));
        }
        assert_eq!(shares.in_line(), 3);
        shares.line_up(client(1));
        let order: Vec<_> = std::iter::from_fn(|| shares.next()).collect();
        assert_eq!(order, [1, 2, 3].map(client));
    }

    #[test]
    fn a_client_that_has_left_does_not_count() {
        let mut shares = settled(&[(1, 600), (2, 1)]);
        assert!(shares.has_part(client(1)));
        shares.line_up(client(1));
        let mut readied = Vec::new();
        shares.tick(|there| there != client(2), |client| readied.push(client));
        assert_eq!(readied, [client(1)], "nobody else is left");
        // Its slot has another client now, and an old request ends.
        let next = ClientRef { slot: 2, id: 99 };
        shares.take(next, 10);
        assert!(!shares.end(client(2), 10));
        assert_eq!(shares.find(next).map(|found| found.streams), Some(1));
        assert_eq!(shares.wanting, 2);
        assert_eq!(shares.taken, [1, 2]);
    }

    /// Slots are those of all clients of the core, of which few may use the link.
    #[test]
    fn a_tick_looks_at_the_clients_of_the_link_alone() {
        let mut shares = settled(&[(1, 1), (60_000, 1)]);
        for _ in 0..3 {
            (1..4).for_each(|id| shares.take(ClientRef { slot: 70_000, id }, 10));
        }
        let looked_at = std::cell::Cell::new(0);
        for left in [3, 3, 2, 2] {
            looked_at.set(0);
            let is_there = |client: ClientRef| {
                looked_at.set(looked_at.get() + 1);
                left == 3 || client.slot != 60_000
            };
            shares.tick(is_there, |_| ());
            assert!(looked_at.get() <= 3 && shares.taken.len() == left);
        }
    }

    /// Its requests are still in flight, and a new connection would have a part beside them.
    #[test]
    fn a_client_that_leaves_and_comes_back_has_no_second_part() {
        for is_noticed in [true, false] {
            let mut shares = settled(&[(0, 1), (1, 900)]);
            let back = ClientRef { slot: 1, id: 99 };
            if is_noticed {
                shares.tick(|there| there != client(1), |_| ());
            } else {
                shares.line_up(back);
            }
            assert!(shares.has_part(back) && shares.has_part(ClientRef { slot: 7, id: 100 }));
            assert!(!shares.has_part(client(0)) && !shares.has_part(ClientRef::PROXY));
            shares.line_up(back);
            assert!(!shares.has_part(ClientRef::PART), "it is no client");
            assert_eq!(tick(&mut shares, 1), []);
            (0..401).for_each(|_| assert!(!shares.end(client(1), 10)));
            assert_eq!(tick(&mut shares, 1), [back], "less than a part of them is left");
            shares.take(back, 10);
            (0..499).for_each(|_| assert!(!shares.end(client(1), 10)));
            assert_eq!((shares.gone.id, shares.bytes()), (0, 20));
            assert!(!shares.has_part(back));
        }
    }

    /// The table is made from requests in the order of their streams.
    #[test]
    fn requests_of_two_clients_of_a_slot_count_for_each_of_them() {
        let (before, now) = (client(1), ClientRef { slot: 1, id: 99 });
        let requests = (0..10).flat_map(|_| [(before, 10), (now, 10), (before, 10)]);
        let mut shares = Shares::new(BOUNDS, requests);
        let streams =
            |shares: &Shares| (shares.find(now).map(|it| it.streams), shares.gone.streams);
        assert_eq!((streams(&shares), shares.bytes()), ((Some(10), 20), 300));
        (0..20).for_each(|_| assert!(!shares.end(before, 10)));
        (0..9).for_each(|_| assert!(!shares.end(now, 10)));
        assert_eq!((streams(&shares), shares.bytes()), ((Some(1), 0), 10));
    }

    #[test]
    fn clients_that_leave_with_few_requests_delay_nobody() {
        let mut shares = settled(&[(0, 600), (1, 200), (2, 20)]);
        shares.tick(|there| there == client(0), |_| ());
        assert!(shares.gone.id == client(1).id, "it had more than half of a part");
        let mut shares = settled(&[(0, 600), (1, 100), (2, 20)]);
        shares.tick(|there| there == client(0), |_| ());
        assert_eq!((shares.gone.id, shares.gone.streams), (0, 120));
        assert!(!shares.has_part(client(9)));
    }

    #[test]
    fn a_client_that_pauses_for_a_moment_keeps_its_part() {
        let mut shares = settled(&[(1, 800), (2, 1)]);
        shares.end(client(2), 10);
        shares.take(client(2), 10);
        shares.end(client(2), 10);
        shares.line_up(client(1));
        assert_eq!(tick(&mut shares, limits::SHARE_WANTED_TICKS), []);
        assert_eq!(tick(&mut shares, 1), [client(1)], "it no longer asks");
    }

    #[test]
    fn at_first_another_client_is_assumed() {
        let requests = (0..900).map(|_| (client(1), 10));
        let mut shares = Shares::new(BOUNDS, requests);
        assert!(shares.has_part(client(1)) && !shares.has_part(client(2)));
        tick(&mut shares, limits::SHARE_WANTED_TICKS);
        assert!(!shares.has_part(client(1)));
    }

    #[test]
    fn the_proxy_waits_for_nobody_and_parts_are_one_client() {
        let mut shares = settled(&[(1, 100)]);
        for _ in 0..600 {
            shares.take(ClientRef::PROXY, 10);
            shares.take(ClientRef::PART, 10);
        }
        assert_eq!((shares.wanting, shares.has_part(ClientRef::PROXY)), (2, false));
        assert!(shares.has_part(ClientRef::PART) && !shares.has_part(client(1)));
        assert!(shares.clients.len() < 10, "they have no slots");
        assert_eq!(shares.taken, [1]);
    }

    #[test]
    fn the_table_goes_when_the_link_was_not_crowded_for_long() {
        let mut shares = settled(&[(1, 600), (2, 1)]);
        shares.crowd(BOUNDS);
        shares.line_up(client(1));
        for _ in 0..2 * limits::SHARE_KEPT_TICKS {
            assert!(shares.tick(|_| true, |_| {}), "somebody waits");
        }
        assert_eq!(shares.next(), Some(client(1)));
        assert!(!shares.tick(|_| true, |_| {}));
        shares.crowd(BOUNDS);
        assert!(shares.tick(|_| true, |_| {}));
    }

    /// Ten thousand clients: a request readies one client at most.
    #[test]
    fn many_clients_share_a_link() {
        let mut shares = Shares::new(BOUNDS, (0..10_000).map(|slot| (client(slot), 1)));
        tick(&mut shares, limits::SHARE_WANTED_TICKS);
        assert_eq!(shares.wanting, 10_000);
        (0..10_000).for_each(|slot| shares.line_up(client(slot)));
        let readied = (0..10_000).filter(|slot| shares.end(client(*slot), 1)).count();
        assert_eq!((readied, shares.next()), (10_000, None));
    }
}
