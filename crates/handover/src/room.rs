//! Room for requests, shared among the hosts of their clients.
//!
//! A host gets no more places than are free. So a host alone leaves half of the places to others,
//! and several together leave a part of them, too: slow requests of one host never have those of
//! all others refused.

use std::collections::HashMap;

use crate::turns::ClientKey;

/// A number of places, and those in use.
#[derive(Debug)]
pub struct Room {
    places: usize,
    count: usize,
    /// Hosts with requests, and the number of these.
    by_client: HashMap<ClientKey, usize>,
}

impl Room {
    /// Room for so many requests.
    pub fn new(places: usize) -> Self {
        Self { places, count: 0, by_client: HashMap::new() }
    }

    /// Requests that have places.
    pub fn count(&self) -> usize {
        self.count
    }

    /// True if no place is free.
    pub fn is_full(&self) -> bool {
        self.count >= self.places
    }

    /// True if one more request of this host may have a place.
    pub fn admits(&self, client: ClientKey) -> bool {
        let free = self.places.saturating_sub(self.count);
        self.by_client.get(&client).copied().unwrap_or(0) < free
    }

    /// Takes a place for a request of this host.
    pub fn take(&mut self, client: ClientKey) {
        self.count += 1;
        *self.by_client.entry(client).or_default() += 1;
    }

    /// Gives back a place that the host has taken.
    pub fn give_back(&mut self, client: ClientKey) {
        let Some(own) = self.by_client.get_mut(&client) else { return };
        self.count -= 1;
        *own -= 1;
        if *own == 0 {
            self.by_client.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use shunt_reactor::ClientHost;

    use super::*;

    const PLACES: usize = 4_096;

    fn host(number: u32) -> ClientKey {
        Some(ClientHost::counted(Ipv4Addr::from_bits(number).into()))
    }

    /// Takes all places that a host gets; returns the number.
    fn fill(room: &mut Room, number: u32) -> usize {
        let before = room.count();
        while room.admits(host(number)) {
            room.take(host(number));
        }
        room.count() - before
    }

    #[test]
    fn a_host_leaves_half_of_the_places_to_others() {
        let mut room = Room::new(PLACES);
        assert_eq!(fill(&mut room, 0), PLACES / 2);
        let others: Vec<usize> = (1..8).map(|number| fill(&mut room, number)).collect();
        assert_eq!(others, [1_024, 512, 256, 128, 64, 32, 16]);
        assert_eq!(fill(&mut room, 0), 0, "the first has more than its part");
        for number in 0..8 {
            while room.by_client.contains_key(&host(number)) {
                room.give_back(host(number));
            }
        }
        assert_eq!((room.count(), room.by_client.len()), (0, 0));
        assert_eq!(fill(&mut room, 9), PLACES / 2);
    }

    #[test]
    fn each_place_is_given_once() {
        let mut room = Room::new(PLACES);
        for number in 0..PLACES as u32 {
            assert!(room.admits(host(number)) && !room.is_full());
            room.take(host(number));
        }
        assert!(room.is_full() && !room.admits(host(u32::MAX)));
    }
}
