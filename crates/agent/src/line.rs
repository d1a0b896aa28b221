//! A line of exchanges that wait for connections to the server. The line is in order as a whole,
//! and so are the exchanges of each client in it. Finding the next exchange of a client that may
//! have a connection costs a step for each client before it, however many exchanges these have.

use std::collections::{BTreeMap, HashMap};

use shunt_handover::turns::ClientKey;

/// Exchanges in line, each once.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Number of the place behind the last one.
    end: u64,
    /// Place and client of each exchange.
    places: HashMap<usize, (u64, ClientKey)>,
    /// Exchanges of each client by place, with the time since which each waits.
    by_client: HashMap<ClientKey, BTreeMap<u64, (usize, u64)>>,
    /// Clients, by the place of their first exchange.
    clients: BTreeMap<u64, ClientKey>,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Puts an exchange at the end of the line.
    pub(crate) fn push(&mut self, exchange: usize, client: ClientKey, now_ns: u64) {
        self.remove(exchange);
        let place = self.end;
        self.end += 1;
        self.places.insert(exchange, (place, client));
        let own = self.by_client.entry(client).or_default();
        if own.is_empty() {
            self.clients.insert(place, client);
        }
        own.insert(place, (exchange, now_ns));
    }

    /// Removes an exchange; false if it is not in line.
    pub(crate) fn remove(&mut self, exchange: usize) -> bool {
        let Some((place, client)) = self.places.remove(&exchange) else { return false };
        let Some(own) = self.by_client.get_mut(&client) else { return true };
        own.remove(&place);
        let first = own.first_key_value().map(|(place, _)| *place);
        if self.clients.remove(&place).is_some()
            && let Some(first) = first
        {
            self.clients.insert(first, client);
        }
        if first.is_none() {
            self.by_client.remove(&client);
        }
        true
    }

    /// The first exchange whose client may have a connection.
    pub(crate) fn first(&self, may_have: impl Fn(ClientKey) -> bool) -> Option<usize> {
        let (place, client) = self.clients.iter().find(|(_, client)| may_have(**client))?;
        Some(self.by_client.get(client)?.get(place)?.0)
    }

    /// Clients in the order of their first exchanges.
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientKey> {
        self.clients.values().copied()
    }

    /// Times since which a client's exchanges wait, the first in line first.
    pub(crate) fn waiting_since_ns(&self, client: ClientKey) -> impl Iterator<Item = u64> {
        self.by_client.get(&client).into_iter().flatten().map(|(_, (_, since_ns))| *since_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use shunt_reactor::ClientHost;

    use super::*;

    const MANY: usize = 8_000;

    fn client(number: u8) -> ClientKey {
        Some(ClientHost::counted([192, 0, 2, number].into()))
    }

    #[test]
    fn a_client_beyond_its_share_is_passed_over_in_one_step() {
        let mut line = Line::default();
        (0..MANY).for_each(|exchange| line.push(exchange, client(1), 0));
        line.push(MANY, client(2), 0);
        let steps = Cell::new(0);
        let has_less = |one: ClientKey| {
            steps.set(steps.get() + 1);
            one != client(1)
        };
        assert_eq!((line.first(has_less), steps.get()), (Some(MANY), 2));
        assert!(line.remove(MANY) && !line.remove(MANY));
        steps.set(0);
        assert_eq!((line.first(has_less), steps.get()), (None, 1));
    }

    #[test]
    fn the_line_is_in_order_whatever_leaves_it() {
        let mut line = Line::default();
        for (exchange, number) in [(10, 1), (11, 2), (12, 1), (13, 2), (14, 1)] {
            line.push(exchange, client(number), exchange as u64);
        }
        // The first one comes back.
        line.push(10, client(1), 20);
        line.remove(13);
        let times = |line: &Line, number| line.waiting_since_ns(client(number)).collect::<Vec<_>>();
        assert_eq!((times(&line, 1), times(&line, 2)), (vec![12, 14, 20], vec![11]));
        assert_eq!(line.clients().collect::<Vec<_>>(), [client(2), client(1)]);
        let mut left = Vec::new();
        while let Some(exchange) = line.first(|_| true) {
            line.remove(exchange);
            left.push(exchange);
        }
        assert_eq!(left, [11, 12, 14, 10]);
        assert!(line.is_empty() && line.by_client.is_empty() && line.clients.is_empty());
    }
}
