//! The proxy's own statements: rows of locks, and those by which the proxies of a fleet agree.
//!
//! They are asked as a client without a connection would ask them: in a pool of its own, with the
//! login of the control connection. So all that is done for a client's query is done for them:
//! routing by key, second attempts where they can do no harm, preparing again what a node has
//! forgotten, deadlines. The answers come back as a client would see them and lie in
//! [`crate::client::inbox`] until the event is over; then [`answers`] gives each to who asked.
//!
//! This must never give two outcomes of one statement, or none; nor say that a statement was not
//! carried out if it may have been, or may be yet.
//!
//! One kind is asked otherwise, in the pool of a client and under its login: whether it may use
//! locks.
//!
//! A statement is prepared when it is asked for the first time, and travels as text until a node
//! has answered that.

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

/// Version of the protocol that they are asked in, or 3 if the ring knows no other.
pub(crate) const VERSION: u8 = 4;

/// Statements in flight at once. They are told apart by their place, which travels as a stream id
/// does.
pub(crate) const IN_FLIGHT_MAX: usize = 16_896;

/// Places of these that only statements of the fleet get: requests for locks must not keep the
/// lease from being renewed.
pub(crate) const IN_FLIGHT_OF_FLEET: usize = 64;

/// Places for transactions, of which one may send a hundred statements at a time.
const IN_FLIGHT_OF_TRANSACTIONS: usize = Share::Rights.most()
    + Share::Plans.most()
    + Share::Looks.most()
    + Share::Reads.most()
    + Share::Names.most()
    + Share::Records.most()
    + Share::Confirms.most()
    + Share::Writes.most()
    + Share::Found.most();

/// Texts that are prepared for the next time.
const IN_FLIGHT_OF_PREPARES: usize = 256;

/// Rows of locks in flight, at most: what locks want written leaves room for what is read for them
/// and for the rest.
const IN_FLIGHT_OF_ROWS: usize = 13_312;

/// Places of these for free rows: nobody waits for them, and grants must have room. One role's
/// grants have [`shunt_locks::Limits::writes_per_role`].
const IN_FLIGHT_OF_FREE_ROWS: usize = 4_096;

const _: () = assert!(
    IN_FLIGHT_OF_FREE_ROWS < IN_FLIGHT_OF_ROWS
        && IN_FLIGHT_OF_ROWS
            + IN_FLIGHT_OF_TRANSACTIONS
            + IN_FLIGHT_OF_PREPARES
            + IN_FLIGHT_OF_FLEET
            < IN_FLIGHT_MAX
);

/// The origin of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A text of ours is to be prepared; its place among them, and its number, for another may have
    /// the place by then.
    Prepare(usize, u64),
    /// A row of a lock is to be written.
    Write(WriteId),
    /// A partition of rows is to be read.
    Load(LoadId),
    /// A page of a partition is read, to see what says nothing any more.
    Sweep(LoadId),
    /// Rows of a lock are deleted; its place among those under way.
    Deletion(u32),
    /// The fleet's.
    Fleet(StatementId),
    /// A node is asked for its time, at this time.
    Clock { node: NodeId, sent_ns: u64 },
    /// A question about a right of the login of a pool, asked in that pool. `who`: the role whose
    /// share of the questions it counts to; none: it counts to no share.
    Right { pool: PoolId, number: u64, who: Option<Who> },
    /// A search for rows in a table of locks.
    Foreign(Table),
    /// A part of a transaction.
    Transaction(Part),
}

/// Levels and timestamp of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) consistency: Consistency,
    /// Serial consistency of a conditional statement.
    pub(crate) serial: Option<Consistency>,
    /// Timestamp of its writes, microseconds.
    pub(crate) timestamp_us: Option<i64>,
    /// Avoids the node that is best for its key, because that node failed the last time.
    pub(crate) elsewhere: bool,
}

/// The outcome of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heard<'a> {
    /// The node's result.
    Result(ResultMessage<'a>),
    /// An error, of a node or in the proxy's own words; its code says what is known.
    Error(ErrorMessage<'a>),
    /// A node answered something that cannot be read.
    Unreadable,
}

/// A text of ours.
struct Text {
    text: Arc<str>,
    /// Never that of another.
    number: u64,
    /// The id that nodes know it by, once it is known.
    id: Option<Box<[u8]>>,
    /// A PREPARE is under way.
    is_asked: bool,
}

/// Texts of transactions that are kept prepared, and bytes of them. Beyond that all are forgotten,
/// and prepared again when they are needed.
const TEXTS_MAX: usize = 4_096;
const TEXTS_BYTES_MAX: usize = 32 << 20;

/// The owner of what is known of the proxy's own statements.
#[derive(Default)]
pub(crate) struct Statements {
    /// The pool that they are asked in, once there is one.
    pool: Option<PoolId>,
    texts: Slab<Text>,
    /// The places of those that are the proxy's own.
    own_texts: Vec<(&'static str, usize)>,
    /// The places of those that are of transactions, and how long these are.
    others: HashMap<Arc<str>, usize>,
    others_bytes: usize,
    /// Number of texts so far.
    numbers: u64,
    in_flight: InFlight,
    /// A message is put together here.
    message: Vec<u8>,
}

impl Statements {
    /// The place of a text of the proxy's own; there are few.
    fn place(&mut self, text: &'static str) -> usize {
        let found =
            self.own_texts.iter().find(|(known, _)| std::ptr::eq(*known, text) || *known == text);
        found.map(|(_, place)| *place).unwrap_or_else(|| {
            let place = self.add(text.into());
            self.own_texts.push((text, place));
            place
        })
    }

    /// The place of any other.
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

    /// True if one more of this kind may be in flight.
    pub(crate) fn has_room(&self, whose: &Whose) -> bool {
        self.in_flight.has_room(whose)
    }

    /// Nodes know a text of a transaction by this id.
    pub(crate) fn learn_id(&mut self, text: &Arc<str>, id: &[u8]) {
        let place = self.place_of(text);
        self.texts[place].id = Some(Box::from(id));
    }

    /// Nodes know nothing under this id any more: its text is prepared again.
    fn forget_id(&mut self, id: &[u8]) {
        for (_, text) in self.texts.iter_mut().filter(|(_, text)| text.id.as_deref() == Some(id)) {
            text.id = None;
        }
    }

    /// A node has prepared a text, or has not.
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

/// Statements in flight, and how many of them are rows of locks.
#[derive(Default)]
struct InFlight {
    all: Slab<Whose>,
    rows: usize,
    free_rows: usize,
    /// By share.
    transactions: [usize; Share::COUNT],
    /// The same of each client.
    of_clients: HashMap<(Who, Share), usize>,
    /// Texts of transactions that are being prepared for the next time.
    prepares: usize,
}

/// The share that a statement counts to, and the client within it; none: it has no share.
fn share_of(whose: &Whose) -> Option<(Share, Option<Who>)> {
    match whose {
        Whose::Transaction(part) => Some((part.share(), part.who())),
        Whose::Right { who: Some(who), .. } => Some((Share::Rights, Some(*who))),
        _ => None,
    }
}

impl InFlight {
    /// True if one more of this kind leaves the others their part.
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

    /// Frees a place; returns its statement.
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
