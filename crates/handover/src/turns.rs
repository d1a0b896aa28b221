//! Turns of exchanges on a control connection that has no room for all of them.
//!
//! While a connection has room and no exchange waits, exchanges send freely. Once it is full, an
//! exchange with more to send waits in line. The line is served in order: each exchange gets a turn
//! of [`TURN_BYTES`], and then goes behind the others.
//!
//! This must never:
//! - let an exchange go before another that waits, whatever its key or age;
//! - let a turn that nobody uses hold up the line for longer than until [`Turns::lapse`], or the
//!   rest of a turn once its exchange has no more to send;
//! - give so many turns at once that most of them find the connection full again.

use std::collections::{BTreeMap, HashMap};

use crate::limits::CREDIT_BYTES;
use crate::message::Ticket;

/// Bytes of one turn: the most that an exchange can send without new credit.
pub const TURN_BYTES: u64 = CREDIT_BYTES as u64;

/// State of an exchange that may not send freely.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// In line, at this place.
    Waits(u64),
    /// Bytes that it may still send in its turn.
    Has(u64),
}

/// The line of one control connection.
#[derive(Debug, Default)]
pub struct Turns {
    is_full: bool,
    /// Number of the last place.
    last: u64,
    waiting: BTreeMap<u64, Ticket>,
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

    /// Bytes that an exchange may send now. With 0 it is in line, and [`Turns::next`] names it when
    /// its turn has come.
    pub fn room(&mut self, ticket: Ticket) -> u64 {
        if !self.is_full {
            if self.waiting.is_empty() {
                return u64::MAX;
            }
            if let Some(Turn::Has(bytes @ 1..)) = self.of.get(&ticket) {
                return *bytes;
            }
        }
        if !matches!(self.of.get(&ticket), Some(Turn::Waits(_))) {
            self.forget(ticket);
            self.last += 1;
            self.waiting.insert(self.last, ticket);
            self.of.insert(ticket, Turn::Waits(self.last));
        }
        0
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
            Some(Turn::Waits(place)) => _ = self.waiting.remove(&place),
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
        self.of.retain(|_, turn| matches!(turn, Turn::Waits(_)));
        self.given_bytes = 0;
    }

    /// The exchange whose turn has come, if `free_bytes` of the connection are free and not given
    /// to others.
    pub fn next(&mut self, free_bytes: u64) -> Option<Ticket> {
        if self.is_full || self.given_bytes > free_bytes {
            return None;
        }
        let (_, ticket) = self.waiting.pop_first()?;
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
        tickets.into_iter().for_each(|ticket| assert_eq!(turns.room(Ticket(ticket)), 0));
        turns
    }

    fn served(turns: &mut Turns, free_bytes: u64) -> Vec<u64> {
        std::iter::from_fn(|| turns.next(free_bytes)).map(|ticket| ticket.0).collect()
    }

    #[test]
    fn nobody_waits_where_there_is_room() {
        let mut turns = Turns::default();
        assert_eq!(turns.room(Ticket(1)), u64::MAX);
        turns.sent(Ticket(1), 5);
        assert!(!turns.has_waiting() && turns.of.is_empty());
    }

    #[test]
    fn turns_are_given_in_the_order_of_the_line_and_only_for_what_is_free() {
        let mut turns = full([9, 2, 7, 2, 1, 3, 4]);
        assert_eq!(turns.next(FREE), None, "it is full");
        turns.drained();
        assert_eq!(served(&mut turns, FREE - 1), [9, 2, 7, 1]);
        assert_eq!(turns.room(Ticket(8)), 0, "one that comes now waits behind");
        assert_eq!(turns.room(Ticket(2)), TURN_BYTES);
        turns.sent(Ticket(2), TURN_BYTES);
        assert_eq!(turns.room(Ticket(2)), 0, "and so does one that has had its turn");
        assert_eq!(served(&mut turns, FREE - 1), [3]);
        turns.forget(Ticket(9));
        turns.forget(Ticket(4));
        assert_eq!(served(&mut turns, FREE - 1), [8]);
        turns.lapse();
        assert_eq!(served(&mut turns, FREE - 1), [2]);
        assert_eq!(turns.room(Ticket(5)), u64::MAX, "nobody waits any more");
    }

    #[test]
    fn a_turn_that_is_not_used_lapses() {
        let mut turns = full(1..=3);
        turns.drained();
        assert_eq!(served(&mut turns, 0), [1]);
        turns.lapse();
        assert_eq!(served(&mut turns, 0), [2]);
        assert_eq!(turns.room(Ticket(1)), 0, "it waits behind the others");
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
        assert_eq!(turns.room(Ticket(1)), 0, "it waits behind the others");
        turns.give_back(Ticket(1));
        turns.give_back(Ticket(70));
        let expected: Vec<u64> = (51..=60).chain([1]).collect();
        assert_eq!(served(&mut turns, 20 * TURN_BYTES), expected, "a place in line stays");
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
