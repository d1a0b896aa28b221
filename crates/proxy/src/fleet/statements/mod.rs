//! The proxy's own statements: rows of locks and transactions, and statements by which the proxies
//! of a fleet agree.
//!
//! A statement is sent as if a client without a connection had sent it: in a pool of its own, with
//! the login of the control connection. It thus gets all that a client's query gets: routing by
//! key, second attempts where they can do no harm, another PREPARE at a node that forgot it, a
//! deadline. Its answer is the one that a client would see. The answer lies in
//! [`crate::client::inbox`] until the event is over, and then [`answers`] delivers it.
//!
//! A statement must never have two outcomes, or none. Nor may its outcome say that it was not
//! carried out if it may have been, or may still be.
//!
//! Questions about rights are an exception: they go through the pool of the client, under its
//! login.
//!
//! A statement is prepared at its first use. Until a node has answered the PREPARE, it travels as
//! text.

pub(crate) mod ask;
pub(crate) mod answers;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use shunt_fleet::StatementId;
use shunt_language::lock_tables::Table;
use shunt_locks::{LoadId, WriteId};
use shunt_topology::NodeId;
use shunt_wire::cql::message::{Consistency, ErrorMessage, ResultMessage};
use slab::Slab;

use crate::ids::PoolId;
use crate::transactions::part::{Part, Share, Who};

/// Version of the protocol for these statements; 3 if the ring knows no other.
pub(crate) const VERSION: u8 = 4;

/// Most statements in flight. Their indexes tell them apart, and travel like stream ids.
pub(crate) const IN_FLIGHT_MAX: usize = 16_896;

/// Places among them for statements of the fleet only, so that requests for locks do not keep the
/// lease from being renewed.
pub(crate) const IN_FLIGHT_OF_FLEET: usize = 64;

/// Places for transactions. One transaction may send a hundred statements at a time.
const IN_FLIGHT_OF_TRANSACTIONS: usize = Share::Rights.most()
    + Share::Plans.most()
    + Share::Looks.most()
    + Share::Reads.most()
    + Share::Names.most()
    + Share::Records.most()
    + Share::Confirms.most()
    + Share::Writes.most()
    + Share::Found.most();

/// Most texts that are being prepared for the next time.
const IN_FLIGHT_OF_PREPARES: usize = 256;

/// Most rows of locks in flight. Writes for locks leave room for the reads for them, and for the
/// rest.
const IN_FLIGHT_OF_ROWS: usize = 13_312;

/// Places among them for free rows, which nobody waits for, so that grants have room. The grants of
/// one role have [`shunt_locks::Limits::writes_per_role`].
const IN_FLIGHT_OF_FREE_ROWS: usize = 4_096;

const _: () = assert!(
    IN_FLIGHT_OF_FREE_ROWS < IN_FLIGHT_OF_ROWS
        && IN_FLIGHT_OF_ROWS
            + IN_FLIGHT_OF_TRANSACTIONS
            + IN_FLIGHT_OF_PREPARES
            + IN_FLIGHT_OF_FLEET
            < IN_FLIGHT_MAX
);

/// Purpose of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Prepares a text of the proxy: its place, and its number, because another text may have the
    /// place by then.
    Prepare(usize, u64),
    /// Writes a row of a lock.
    Write(WriteId),
    /// Reads a partition of rows.
    Load(LoadId),
    /// Reads a page of a partition for the sweep.
    Sweep(LoadId),
    /// Deletes rows of a lock, by the place among the deletions under way.
    Deletion(u32),
    /// A statement of the membership.
    Fleet(StatementId),
    /// Asks a node for its time; `sent_ns` is the time of the question.
    Clock { node: NodeId, sent_ns: u64 },
    /// Asks about a right of a pool's login, in that pool. `who` is the role whose share the
    /// question counts against; `None` counts against no share.
    Right { pool: PoolId, number: u64, who: Option<Who> },
    /// Searches for rows in a table of locks.
    Foreign(Table),
    /// A statement of a transaction.
    Transaction(Part),
}

/// Levels and timestamp of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) consistency: Consistency,
    /// Serial consistency, for a conditional statement.
    pub(crate) serial: Option<Consistency>,
    /// Timestamp of the writes, microseconds.
    pub(crate) timestamp_us: Option<i64>,
    /// True to avoid the node that is best for the key, because it failed the last time.
    pub(crate) elsewhere: bool,
}

/// Outcome of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heard<'a> {
    /// A result from a node.
    Result(ResultMessage<'a>),
    /// An error from a node or from the proxy. Its code says what is known.
    Error(ErrorMessage<'a>),
    /// An answer that cannot be decoded.
    Unreadable,
}

/// A text of the proxy's own statements.
struct Text {
    text: Arc<str>,
    /// Number of the text, which no other text ever has.
    number: u64,
    /// Id under which nodes know the text, if a PREPARE has succeeded.
    id: Option<Box<[u8]>>,
    /// True while a PREPARE is under way.
    is_asked: bool,
}

/// Most texts of transactions that are kept prepared, and most bytes of them. Beyond that all are
/// forgotten, and prepared again at their next use.
const TEXTS_MAX: usize = 4_096;
const TEXTS_BYTES_MAX: usize = 32 << 20;

/// The owner of the proxy's own statements.
#[derive(Default)]
pub(crate) struct Statements {
    /// The pool of the statements, once there is one.
    pool: Option<PoolId>,
    texts: Slab<Text>,
    /// Places of the texts that are constants of the proxy.
    own_texts: Vec<(&'static str, usize)>,
    /// Places of the texts of transactions, and the bytes of those.
    others: HashMap<Arc<str>, usize>,
    others_bytes: usize,
    /// Number of texts so far.
    numbers: u64,
    in_flight: InFlight,
    /// Buffer for a message.
    message: Vec<u8>,
}

impl Statements {
    /// The place of a constant text. There are few of them.
    fn place(&mut self, text: &'static str) -> usize {
        let found =
            self.own_texts.iter().find(|(known, _)| std::ptr::eq(*known, text) || *known == text);
        found.map(|(_, place)| *place).unwrap_or_else(|| {
            let place = self.add(text.into());
            self.own_texts.push((text, place));
            place
        })
    }

    /// The place of any other text.
    fn place_of(&mut self, text: &Arc<str>) -> usize {
        if let Some(place) = self.others.get(text) {
            return *place;
        }
        if self.others.len() >= TEXTS_MAX || self.others_bytes + text.len() > TEXTS_BYTES_MAX {
            for (_, place) in self.others.drain() {
                self.texts.try_remove(place);
            }
            self.others_bytes = 0;
        }
        self.others_bytes += text.len();
        let place = self.add(Arc::clone(text));
        self.others.insert(Arc::clone(text), place);
        place
    }

    fn add(&mut self, text: Arc<str>) -> usize {
        self.numbers += 1;
        self.texts.insert(Text { text, number: self.numbers, id: None, is_asked: false })
    }

    /// True if another statement with this purpose may be in flight.
    pub(crate) fn has_room(&self, whose: &Whose) -> bool {
        self.in_flight.has_room(whose)
    }

    /// Notes the id under which nodes know a text of a transaction.
    pub(crate) fn learn_id(&mut self, text: &Arc<str>, id: &[u8]) {
        let place = self.place_of(text);
        self.texts[place].id = Some(Box::from(id));
    }

    /// Forgets an id that nodes no longer know, so that its text is prepared again.
    fn forget_id(&mut self, id: &[u8]) {
        for (_, text) in self.texts.iter_mut().filter(|(_, text)| text.id.as_deref() == Some(id)) {
            text.id = None;
        }
    }

    /// Notes the outcome of a PREPARE.
    fn prepared(&mut self, place: usize, number: u64, id: Option<&[u8]>) {
        let Some(text) = self.texts.get_mut(place).filter(|text| text.number == number) else {
            return;
        };
        text.is_asked = false;
        if let Some(id) = id {
            text.id = Some(Box::from(id));
        }
    }
}

/// Statements in flight, with the number of rows of locks among them.
#[derive(Default)]
struct InFlight {
    all: Slab<Whose>,
    rows: usize,
    free_rows: usize,
    /// Number of statements of each share.
    transactions: [usize; Share::COUNT],
    /// Number of statements of each client in each share.
    of_clients: HashMap<(Who, Share), usize>,
    /// Number of texts that are being prepared for the next time.
    prepares: usize,
}

/// The share that a statement counts against, and the client within it; `None` if it counts against
/// no share.
fn share_of(whose: &Whose) -> Option<(Share, Option<Who>)> {
    match whose {
        Whose::Transaction(part) => Some((part.share(), part.who())),
        Whose::Right { who: Some(who), .. } => Some((Share::Rights, Some(*who))),
        _ => None,
    }
}

impl InFlight {
    /// True if another statement with this purpose leaves the others their share.
    fn has_room(&self, whose: &Whose) -> bool {
        let is_fleets = matches!(whose, Whose::Fleet(_) | Whose::Clock { .. });
        let kept_free = if is_fleets { 0 } else { IN_FLIGHT_OF_FLEET };
        let has_room = self.all.len() + kept_free < IN_FLIGHT_MAX;
        has_room
            && match whose {
                Whose::Write(WriteId::UNWATCHED) => {
                    self.free_rows < IN_FLIGHT_OF_FREE_ROWS && self.rows < IN_FLIGHT_OF_ROWS
                }
                Whose::Write(_) => self.rows < IN_FLIGHT_OF_ROWS,
                Whose::Prepare(..) => self.prepares < IN_FLIGHT_OF_PREPARES,
                _ => share_of(whose).is_none_or(|(share, who)| {
                    let of_one = who.and_then(|who| self.of_clients.get(&(who, share)).copied());
                    self.transactions[share as usize] < share.most()
                        && of_one.is_none_or(|count| count < share.most_of_one())
                }),
            }
    }

    /// Takes a place.
    fn insert(&mut self, whose: Whose) -> usize {
        self.rows += usize::from(matches!(whose, Whose::Write(_)));
        self.free_rows += usize::from(whose == Whose::Write(WriteId::UNWATCHED));
        self.prepares += usize::from(matches!(whose, Whose::Prepare(..)));
        if let Some((share, who)) = share_of(&whose) {
            self.transactions[share as usize] += 1;
            if let Some(who) = who {
                *self.of_clients.entry((who, share)).or_default() += 1;
            }
        }
        self.all.insert(whose)
    }

    /// Frees a place, and returns its purpose.
    fn remove(&mut self, place: usize) -> Option<Whose> {
        let whose = self.all.try_remove(place)?;
        self.rows -= usize::from(matches!(whose, Whose::Write(_)));
        self.free_rows -= usize::from(whose == Whose::Write(WriteId::UNWATCHED));
        self.prepares -= usize::from(matches!(whose, Whose::Prepare(..)));
        if let Some((share, who)) = share_of(&whose) {
            self.transactions[share as usize] -= 1;
            if let Some(who) = who
                && let Entry::Occupied(mut of_one) = self.of_clients.entry((who, share))
            {
                *of_one.get_mut() -= 1;
                if *of_one.get() == 0 {
                    of_one.remove();
                }
            }
        }
        Some(whose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transactions::part::Poll;

    #[test]
    fn an_answer_to_what_was_forgotten_is_no_answer_to_what_has_its_place() {
        let mut own = Statements::default();
        assert_eq!((own.place("a"), own.place("b"), own.place("a")), (0, 1, 0));
        let text = |number: usize| Arc::from(format!("SELECT {number}"));
        let first = own.place_of(&text(0));
        let number = own.texts[first].number;
        for other in 1..=TEXTS_MAX {
            own.place_of(&text(other));
        }
        assert_eq!((own.texts.len(), own.others.len()), (3, 1));
        let next: Vec<usize> = (1..=TEXTS_MAX).map(|other| own.place_of(&text(other))).collect();
        own.prepared(first, number, Some(b"id"));
        assert!(next.contains(&first) && own.texts.iter().all(|(_, text)| text.id.is_none()));
        let number = own.texts[first].number;
        own.prepared(first, number, Some(b"id"));
        assert!(own.texts[first].id.is_some());
    }

    #[test]
    fn texts_that_are_kept_have_so_many_bytes_at_most() {
        let mut own = Statements::default();
        let long = "x".repeat(1 << 20);
        for number in 0..100 {
            own.place_of(&format!("{number}{long}").into());
            let bytes: usize = own.texts.iter().map(|(_, text)| text.text.len()).sum();
            assert_eq!((bytes, own.others.len()), (own.others_bytes, own.texts.len()));
            assert!(bytes <= TEXTS_BYTES_MAX, "{bytes}");
        }
    }

    #[test]
    fn rows_of_locks_leave_room_for_others_and_free_rows_for_grants() {
        let mut in_flight = InFlight::default();
        let mut fill = |whose| {
            let before = in_flight.all.len();
            while in_flight.has_room(&whose) {
                in_flight.insert(whose);
            }
            in_flight.all.len() - before
        };
        assert_eq!(fill(Whose::Write(WriteId::UNWATCHED)), IN_FLIGHT_OF_FREE_ROWS);
        assert_eq!(fill(Whose::Write(WriteId(7))), IN_FLIGHT_OF_ROWS - IN_FLIGHT_OF_FREE_ROWS);
        let read = |who| Part::Read { job: 1, read: 1, who: Who(who) };
        let name = |who| Part::Name { number: 1, who: Who(who) };
        let planning = |who| Part::Text { planning: 1, place: 1, who: Who(who) };
        // Whoever asks for what it has no right to, again and again, keeps nobody else's rights
        // from being found.
        for (who, count) in
            [(1, Share::Rights.most_of_one()), (2, Share::Rights.most_of_one()), (3, 0)]
        {
            let who = Some(Who(who));
            assert_eq!(fill(Whose::Right { pool: PoolId::NONE, number: 1, who }), count);
        }
        for (part, count) in [
            (Part::MayChange { pool: PoolId::NONE, number: 1 }, 0),
            // Whoever has many texts planned keeps nobody from reading modes and rules.
            (planning(1), Share::Plans.most_of_one()),
            (planning(2), Share::Plans.most_of_one()),
            (planning(3), 0),
            (Part::Modes(Poll::default()), Share::Looks.most()),
            // One client leaves another its room.
            (read(1), Share::Reads.most_of_one()),
            (read(2), Share::Reads.most_of_one()),
            (read(3), 0),
            (name(1), Share::Names.most_of_one()),
            (name(2), Share::Names.most_of_one()),
            (name(3), 0),
            (Part::Nothing, Share::Records.most()),
            // What is acknowledged must not be told as in doubt because others write much.
            (Part::Confirm(shunt_fleet::Incarnation::default()), Share::Confirms.most()),
        ] {
            assert_eq!(fill(Whose::Transaction(part)), count, "{part:?}");
        }
        assert_eq!(fill(Whose::Prepare(1, 1)), IN_FLIGHT_OF_PREPARES);
        // Nobody has writes of transactions in flight here.
        let transactions = IN_FLIGHT_OF_TRANSACTIONS - Share::Writes.most() - Share::Found.most();
        let others = IN_FLIGHT_MAX
            - IN_FLIGHT_OF_ROWS
            - transactions
            - IN_FLIGHT_OF_PREPARES
            - IN_FLIGHT_OF_FLEET;
        assert_eq!(fill(Whose::Deletion(1)), others);
        assert_eq!(fill(Whose::Fleet(StatementId(1))), IN_FLIGHT_OF_FLEET);
        (0..IN_FLIGHT_MAX).for_each(|place| assert!(in_flight.remove(place).is_some()));
        assert_eq!((in_flight.rows, in_flight.free_rows, in_flight.remove(0)), (0, 0, None));
        assert!(in_flight.of_clients.is_empty());
    }

    /// One role alone cannot take what there is for the rows of all.
    #[test]
    fn one_role_leaves_others_room_for_their_grants() {
        let of_role = shunt_locks::Limits::default().writes_per_role as usize;
        assert!(of_role + IN_FLIGHT_OF_FREE_ROWS + 1_024 <= IN_FLIGHT_OF_ROWS);
    }
}
