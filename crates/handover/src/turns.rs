//! Turns of exchanges on a control connection that has no room for all of them.
//!
//! While a connection has room and no exchange waits, exchanges send freely. Once it is full, an
//! exchange with more to send waits in line. Clients take turns of [`TURN_BYTES`], and so do the
//! exchanges of each client: a client that has had a turn goes behind the others, however many of
//! its exchanges wait.
//!
//! This must never:
//! - let a client's exchange go while another client waits that has had fewer turns since it came
//!   into line, or before another exchange of the same client that has waited longer;
//! - let a turn that nobody uses hold up the line for longer than until [`Turns::lapse`], or the
//!   rest of a turn once its exchange has no more to send;
//! - give so many turns at once that most of them find the connection full again.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use shunt_reactor::ClientHost;

use crate::limits::CREDIT_BYTES;
use crate::message::Ticket;

/// A client's host; `None` where no client is named. All such exchanges count as one client's.
pub type ClientKey = Option<ClientHost>;

/// Bytes of one turn: the most that an exchange can send without new credit.
pub const TURN_BYTES: u64 = CREDIT_BYTES as u64;

/// State of an exchange that may not send freely.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The exchange is in line, at this place among the exchanges of this client.
    Waits(u64, ClientKey),
    /// Bytes that it may still send in its turn.
    Has(u64),
}

/// A client whose exchanges wait.
#[derive(Debug)]
struct Waiting {
    /// The client's place in line.
    place: u64,
    /// The client's exchanges, by their places.
    exchanges: BTreeMap<u64, Ticket>,
}

/// The line of one control connection.
#[derive(Debug, Default)]
pub struct Turns {
    is_full: bool,
    /// Number of the last place.
    last: u64,
    waiting: HashMap<ClientKey, Waiting>,
    /// Clients by their places in line.
    clients: BTreeMap<u64, ClientKey>,
    of: HashMap<Ticket, Turn>,
    /// Bytes of turns that were given and not used.
    given_bytes: u64,
}

impl Turns {
    /// True while the connection has more unsent bytes than it may have.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// True if exchanges wait.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Notes that the connection is full. Returns false if it was full before.
    pub fn fill(&mut self) -> bool {
        !std::mem::replace(&mut self.is_full, true)
    }

    /// Bytes that an exchange of a client may send now. With 0 it is in line, and [`Turns::next`]
    /// names it when its turn has come.
    pub fn room(&mut self, client: ClientKey, ticket: Ticket) -> u64 {
        if !self.is_full {
            if self.waiting.is_empty() {
                return u64::MAX;
            }
            if let Some(Turn::Has(bytes @ 1..)) = self.of.get(&ticket) {
                return *bytes;
            }
        }
        if !matches!(self.of.get(&ticket), Some(Turn::Waits(..))) {
            self.forget(ticket);
            self.wait(client, ticket);
        }
        0
    }

    /// Puts an exchange behind the others of its client, and the client behind the others unless it
    /// is in line.
    fn wait(&mut self, client: ClientKey, ticket: Ticket) {
        self.last += 1;
        let place = self.last;
        let own = self.waiting.entry(client).or_insert_with(|| {
            self.clients.insert(place, client);
            Waiting { place, exchanges: BTreeMap::new() }
        });
        own.exchanges.insert(place, ticket);
        self.of.insert(ticket, Turn::Waits(place, client));
    }

    /// Takes an exchange of a client out of the line, and the client with its last one.
    fn leave(&mut self, client: ClientKey, place: u64) {
        let Entry::Occupied(mut own) = self.waiting.entry(client) else { return };
        own.get_mut().exchanges.remove(&place);
        if own.get().exchanges.is_empty() {
            self.clients.remove(&own.remove().place);
        }
    }

    /// Notes bytes that an exchange has sent.
    pub fn sent(&mut self, ticket: Ticket, bytes: u64) {
        if let Some(Turn::Has(left)) = self.of.get_mut(&ticket) {
            let used = bytes.min(*left);
            *left -= used;
            self.given_bytes -= used;
        }
    }

    /// Ends the turn of an exchange that can use no more of it now. The rest goes to others, and
    /// the exchange waits behind them for more.
    pub fn give_back(&mut self, ticket: Ticket) {
        if matches!(self.of.get(&ticket), Some(Turn::Has(_))) {
            self.forget(ticket);
        }
    }

    /// Forgets an exchange that has ended.
    pub fn forget(&mut self, ticket: Ticket) {
        match self.of.remove(&ticket) {
            Some(Turn::Waits(place, client)) => self.leave(client, place),
            Some(Turn::Has(bytes)) => self.given_bytes -= bytes,
            None => {}
        }
    }

    /// Notes that the connection has room again.
    pub fn drained(&mut self) {
        self.is_full = false;
    }

    /// Takes back turns that were not used.
    pub fn lapse(&mut self) {
        self.of.retain(|_, turn| matches!(turn, Turn::Waits(..)));
        self.given_bytes = 0;
    }

    /// The exchange whose turn has come, if `free_bytes` of the connection are free and not given
    /// to others. Its client goes behind the others.
    pub fn next(&mut self, free_bytes: u64) -> Option<Ticket> {
        if self.is_full || self.given_bytes > free_bytes {
            return None;
        }
        let (_, client) = self.clients.pop_first()?;
        let own = self.waiting.get_mut(&client)?;
        let (_, ticket) = own.exchanges.pop_first()?;
        if own.exchanges.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.last += 1;
            own.place = self.last;
            self.clients.insert(own.place, client);
        }
        self.of.insert(ticket, Turn::Has(TURN_BYTES));
        self.given_bytes += TURN_BYTES;
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u64 = 4 * TURN_BYTES;

    /// A full connection for which these exchanges wait.
    fn full(tickets: impl IntoIterator<Item = u64>) -> Turns {
        let mut turns = Turns::default();
        assert!(turns.fill() && !turns.fill());
        tickets.into_iter().for_each(|ticket| assert_eq!(turns.room(None, Ticket(ticket)), 0));
        turns
    }

    fn served(turns: &mut Turns, free_bytes: u64) -> Vec<u64> {
        std::iter::from_fn(|| turns.next(free_bytes)).map(|ticket| ticket.0).collect()
    }

    #[test]
    fn nobody_waits_where_there_is_room() {
        let mut turns = Turns::default();
        assert_eq!(turns.room(None, Ticket(1)), u64::MAX);
        turns.sent(Ticket(1), 5);
        assert!(!turns.has_waiting() && turns.of.is_empty());
    }

    #[test]
    fn turns_are_given_in_the_order_of_the_line_and_only_for_what_is_free() {
        let mut turns = full([9, 2, 7, 2, 1, 3, 4]);
        assert_eq!(turns.next(FREE), None, "it is full");
        turns.drained();
        assert_eq!(served(&mut turns, FREE - 1), [9, 2, 7, 1]);
        assert_eq!(turns.room(None, Ticket(8)), 0, "one that comes now waits behind");
        assert_eq!(turns.room(None, Ticket(2)), TURN_BYTES);
        turns.sent(Ticket(2), TURN_BYTES);
        assert_eq!(turns.room(None, Ticket(2)), 0, "and so does one that has had its turn");
        assert_eq!(served(&mut turns, FREE - 1), [3]);
        turns.forget(Ticket(9));
        turns.forget(Ticket(4));
        assert_eq!(served(&mut turns, FREE - 1), [8]);
        turns.lapse();
        assert_eq!(served(&mut turns, FREE - 1), [2]);
        assert_eq!(turns.room(None, Ticket(5)), u64::MAX, "nobody waits any more");
    }

    #[test]
    fn a_turn_that_is_not_used_lapses() {
        let mut turns = full(1..=3);
        turns.drained();
        assert_eq!(served(&mut turns, 0), [1]);
        turns.lapse();
        assert_eq!(served(&mut turns, 0), [2]);
        assert_eq!(turns.room(None, Ticket(1)), 0, "it waits behind the others");
        turns.lapse();
        assert_eq!(served(&mut turns, 2 * TURN_BYTES), [3, 1]);
    }

    /// Otherwise many slow exchanges would hold up an idle connection until the next lapse.
    #[test]
    fn the_rest_of_a_turn_goes_to_others_once_its_exchange_has_no_more_to_send() {
        let mut turns = full(1..=60);
        turns.drained();
        for ticket in 1..=50 {
            assert_eq!(turns.next(0), Some(Ticket(ticket)));
            turns.sent(Ticket(ticket), TURN_BYTES / 8);
            turns.give_back(Ticket(ticket));
        }
        assert_eq!(turns.given_bytes, 0);
        assert_eq!(turns.room(None, Ticket(1)), 0, "it waits behind the others");
        turns.give_back(Ticket(1));
        turns.give_back(Ticket(70));
        let expected: Vec<u64> = (51..=60).chain([1]).collect();
        assert_eq!(served(&mut turns, 20 * TURN_BYTES), expected, "a place in line stays");
    }

    fn client(number: u8) -> ClientKey {
        Some(ClientHost::counted([192, 0, 2, number].into()))
    }

    #[test]
    fn a_client_with_many_exchanges_leaves_others_every_second_turn() {
        let mut turns = full([]);
        (1..=30).for_each(|ticket| assert_eq!(turns.room(client(1), Ticket(ticket)), 0));
        (91..=92).for_each(|ticket| assert_eq!(turns.room(client(2), Ticket(ticket)), 0));
        assert_eq!(turns.room(client(3), Ticket(93)), 0);
        turns.drained();
        assert_eq!(served(&mut turns, 5 * TURN_BYTES), [1, 91, 93, 2, 92, 3]);
        // A client that comes back into line is behind those that wait.
        for (host, ticket) in [(2, 91), (1, 1)] {
            turns.sent(Ticket(ticket), TURN_BYTES);
            assert_eq!(turns.room(client(host), Ticket(ticket)), 0);
        }
        turns.lapse();
        assert_eq!(served(&mut turns, 2 * TURN_BYTES), [4, 91, 5]);
        // So is one whose exchanges have all left the line, and others keep their places.
        assert_eq!(turns.room(client(3), Ticket(93)), 0);
        turns.forget(Ticket(93));
        assert_eq!(turns.room(client(2), Ticket(92)), 0);
        assert_eq!(turns.room(client(3), Ticket(93)), 0);
        turns.lapse();
        assert_eq!(served(&mut turns, 3 * TURN_BYTES), [6, 92, 93, 7]);
        turns.lapse();
        (8..=30).chain([1]).for_each(|ticket| turns.forget(Ticket(ticket)));
        assert!(!turns.has_waiting() && turns.clients.is_empty() && turns.of.is_empty());
    }

    /// One exchange after another ends, waits or goes on, and nothing is left of them.
    #[test]
    fn what_ended_is_forgotten() {
        let mut turns = full(1..=50);
        turns.drained();
        served(&mut turns, 10 * TURN_BYTES);
        (1..=50).for_each(|ticket| turns.forget(Ticket(ticket)));
        assert!(turns.of.is_empty() && !turns.has_waiting());
        assert_eq!(turns.given_bytes, 0);
    }
}
