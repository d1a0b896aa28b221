//! Which table a name stands for, and which columns it has: asked of a node before anything is
//! decided or written by that name.
//!
//! A statement names its table, and the table may be dropped and another of its name be made at any
//! time, or one of its columns be. A transaction that was planned with the former must not be
//! committed: its clients are told so before its writes are made, and they would be refused. And a
//! write that is made late, or by whoever has found its record, must not put old rows into another
//! table. So whoever is about to do either asks for the table's id, and for the columns of those
//! that it will write to, each time.
//!
//! What is told was asked for when the waiter wanted to know, or later; where several want to know
//! at once they are told together. Whoever comes while a question is under way that is too old for
//! it asks another one; who comes then waits for one of the two. A decision takes nothing that was
//! asked for before it began: its client may have been told since that the table is another. A
//! write takes what was asked for up to [`FRESH_NS`] earlier: about as long as it is on its way
//! itself. What comes later than [`LATE_NS`] says nothing: this process stood still, perhaps. A
//! change of the schema makes all that was said void.
//!
//! This must never: tell what was asked for earlier than the waiter allows; leave a waiter without
//! a word, or give it two.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_wire::cql::message::{Consistency, ResultMessage, ValueList};

use super::VERSION;
use super::outbox::Wanted;
use super::part::{OneWrite, Part, WaitsForName, Who};
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::limits::SECOND_NS;
use shunt_transactions::catalogue::table_identity::{Found, Key, Named, What};
use shunt_transactions::plan::schema;

/// How old what a write is told may be.
pub(super) const FRESH_NS: u64 = 20_000_000;
/// Clients that are tried as askers of one question.
const ASKERS_MAX: u32 = 4;
/// When it says nothing any more.
const LATE_NS: u64 = 5 * SECOND_NS;

/// Tells a waiter which table of this keyspace has this name, or its columns, as it was asked for
/// no earlier than `since_ns`. It is told once, later.
pub(super) fn want(
    core: &mut Core,
    io: &mut Io,
    (keyspace, table): (&str, &str),
    since_ns: u64,
    waits: WaitsForName,
) {
    let what = if let WaitsForName::Job { what, .. } = waits { what } else { What::Id };
    let key = (what, Box::from(keyspace), Box::from(table));
    let name = core.fleet.transactions.names.of(&key);
    if let Some(last) = name.last.filter(|last| last.asked_ns >= since_ns) {
        return core.fleet.transactions.outbox.wanted.push(Wanted::Named(waits, last));
    }
    name.waiting.push((since_ns, waits));
    if name.is_to_be_asked() {
        ask(core, io, &key);
    }
}

/// Whose a question is.
fn who(core: &Core, waits: WaitsForName) -> Who {
    let keeper = &core.fleet.transactions;
    let number = match waits {
        WaitsForName::Job { number, .. } => Some(number),
        WaitsForName::Write(OneWrite::Own { id, .. }) => keeper.of_id.get(&id).copied(),
        WaitsForName::Write(OneWrite::Found { .. }) => None,
    };
    number.and_then(|number| keeper.jobs.get(&number)).map_or(Who::FORMER, |job| Who::of(&job.who))
}

/// Asks, as one of those who wait for what no question under way will tell. Clients that have no
/// room for a question are told so; others ask in their place.
fn ask(core: &mut Core, io: &mut Io, key: &Key) {
    let keeper = &mut core.fleet.transactions;
    let (names, jobs) = (&mut keeper.names, &keeper.jobs);
    let is_gone = |waits: &WaitsForName| matches!(waits, WaitsForName::Job { number, .. } if !jobs.contains_key(number));
    names.of(key).waiting.retain(|(_, waits)| !is_gone(waits));
    for turn in 1..=ASKERS_MAX {
        let name = core.fleet.transactions.names.of(key);
        let Some((_, first)) =
            name.waiting.iter().find(|(since_ns, _)| name.is_asked_for_later(*since_ns)).copied()
        else {
            return;
        };
        let asker = who(core, first);
        if is_asked(core, io, key, asker) {
            return;
        }
        let named = Named { found: Found::Unknown, asked_ns: io.now_ns() };
        let waiting = std::mem::take(&mut core.fleet.transactions.names.of(key).waiting);
        for (since_ns, waits) in waiting {
            let gives_up = turn == ASKERS_MAX || who(core, waits) == asker;
            let keeper = &mut core.fleet.transactions;
            let name = keeper.names.of(key);
            match gives_up && name.is_asked_for_later(since_ns) {
                true => keeper.outbox.wanted.push(Wanted::Named(waits, named)),
                false => name.waiting.push((since_ns, waits)),
            }
        }
    }
}

/// True if a node is asked, for this client.
fn is_asked(core: &mut Core, io: &mut Io, key: &Key, who: Who) -> bool {
    let asked_ns = io.now_ns();
    let names = &mut core.fleet.transactions.names;
    names.number += 1;
    let number = names.number;
    let name = names.of(key);
    let text = Arc::clone(name.question.get_or_insert_with(|| question(key)));
    let levels = Levels {
        consistency: Consistency::ONE,
        serial: None,
        timestamp_us: None,
        elsewhere: false,
    };
    let whose = Whose::Transaction(Part::Name { number, who });
    // Prepared, as what is asked by each transaction is: to read its text takes a node longer than
    // to answer it.
    let is_asked = statements::ask::ask_text(
        core,
        io,
        whose,
        &text,
        ValueList::positional(VERSION).values(),
        &levels,
        None,
    );
    if is_asked {
        let names = &mut core.fleet.transactions.names;
        names.of(key).asked.push((number, asked_ns));
        names.asked.insert(number, key.clone());
    }
    is_asked
}

fn question((what, keyspace, table): &Key) -> Arc<str> {
    match what {
        What::Id => schema::id_question(keyspace, table).into(),
        What::Columns => schema::columns_question(keyspace, table).into(),
    }
}

/// Tells those to whom it may be told.
fn tell(core: &mut Core, key: &Key, named: Named) {
    let keeper = &mut core.fleet.transactions;
    let name = keeper.names.of(key);
    // Answers may overtake one another.
    if name.last.is_none_or(|last| last.asked_ns <= named.asked_ns) {
        name.last = Some(named).filter(|named| named.found != Found::Unknown);
    }
    for (_, waits) in name.waiting.extract_if(.., |(since_ns, _)| *since_ns <= named.asked_ns) {
        keeper.outbox.wanted.push(Wanted::Named(waits, named));
    }
}

/// A node has answered, or nobody has.
pub(super) fn heard(core: &mut Core, io: &mut Io, number: u64, heard: &Heard<'_>) {
    let names = &mut core.fleet.transactions.names;
    let Some(key) = names.asked.remove(&number) else { return };
    let asked = &mut names.of(&key).asked;
    let Some(place) = asked.iter().position(|(of, _)| *of == number) else { return };
    let (_, asked_ns) = asked.swap_remove(place);
    let found = match heard {
        Heard::Result(ResultMessage::Rows(rows)) => match key.0 {
            What::Id => schema::found_id(rows),
            What::Columns => schema::found_columns(rows),
        },
        Heard::Result(_) | Heard::Error(_) | Heard::Unreadable => Found::Unknown,
    };
    // A node that does not know it as it was prepared has not been asked: it is asked again, by the
    // text.
    if !matches!(heard, Heard::Error(error) if error.unprepared_id().is_some()) {
        tell(core, &key, Named { found, asked_ns });
    }
    if core.fleet.transactions.names.of(&key).is_to_be_asked() {
        ask(core, io, &key);
    }
}

/// What is known by this, now: what was asked for too long ago says nothing.
pub(super) fn known(io: &mut Io, named: Named) -> Found {
    // Not the turn's time: what is done by this is done now.
    match io.read_clock_ns().saturating_sub(named.asked_ns) <= LATE_NS {
        true => named.found,
        false => Found::Unknown,
    }
}
