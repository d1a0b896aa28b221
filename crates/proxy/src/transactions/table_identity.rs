//! Identity of tables: a node is asked which table has a name, and which columns, before anything
//! is decided or written by that name.
//!
//! Statements name their table, and at any time the table may be dropped and another created with
//! its name, or a column changed. A transaction planned with the old table must not be committed:
//! its clients would be told so before the writes are made, and nodes would refuse the writes. A
//! write that is made late, or from a recovered record, must not put old rows into another table.
//! Each decision and each write therefore asks for the table's id; decisions also ask for the
//! columns of written tables.
//!
//! An answer must have been asked for when the waiter wanted it, or later; waiters at the same time
//! share an answer. A waiter for which the question under way is too old sends another; the next
//! waiters wait for either. A decision takes no answer that was asked for before it began, because
//! its client may have learned of a change since. A write takes answers up to [`FRESH_NS`] old,
//! about as long as it is on its way itself. An answer that comes later than [`LATE_NS`] is void:
//! this process may have been paused. A change of the schema voids all answers.
//!
//! A node is asked in the same way for the version of the schema, each time another one, as text
//! and at most once a second for all tables. A version that no node has named lately is a change
//! of the schema: a column may have been dropped and added again, which neither the id nor the
//! columns of its table show. If that node fails, or is silent for [`SILENT_NS`], the question goes
//! to the next one, and to three in all before waiters are told that no node has answered: one node
//! must not stop statements that all others serve.
//!
//! This must never: give an answer that was asked for earlier than the waiter allows; leave a
//! waiter without an answer, or give it two.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_transactions::catalogue::table_identity::{Identity, IdentityAnswer, IdentityKind, Key};
use shunt_transactions::plan::schema;
use shunt_wire::cql::message::{Consistency, ResultMessage, ValueList};

use super::VERSION;
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::ids::ClientRef;
use crate::limits::SECOND_NS;
use crate::route::{self, Choice};
use crate::transactions::effects::Effect;
use crate::transactions::part::{IdentityWaiter, OneWrite, Part, Who};

/// Age of an answer that a write accepts.
pub(super) const FRESH_NS: u64 = 20_000_000;
/// Clients whose quota is tried for one question.
const ASKERS_MAX: u32 = 4;
/// Age at which an answer is void.
const LATE_NS: u64 = 5 * SECOND_NS;
/// Time without an answer after which another node is asked for the version of the schema, at the
/// next tick.
const SILENT_NS: u64 = 200_000_000;

/// Time before which a question that has no answer yet went to a silent node. Other questions than
/// that for the version are bound to no node, and are sent to another elsewhere.
fn silent_ns(io: &Io, what: IdentityKind) -> u64 {
    match what {
        IdentityKind::Schema => io.now_ns().saturating_sub(SILENT_NS),
        IdentityKind::Id | IdentityKind::Columns => 0,
    }
}

/// Returns the answer about the table of this name, or its columns, if one is known that was asked
/// for no earlier than `since_ns`. Otherwise the waiter gets it once, later.
pub(super) fn look_up(
    core: &mut Core,
    io: &mut Io,
    (keyspace, table): (&str, &str),
    since_ns: u64,
    waits: IdentityWaiter,
) -> Option<IdentityAnswer> {
    let what = if let IdentityWaiter::Job { what, .. } = waits { what } else { IdentityKind::Id };
    let key = (what, Box::from(keyspace), Box::from(table));
    let name = core.fleet.transactions.names.entry(&key);
    if let Some(last) = name.last.filter(|last| last.asked_ns >= since_ns) {
        return Some(last);
    }
    name.waiting.push((since_ns, waits));
    if name.is_to_be_asked(silent_ns(io, what)) {
        ask(core, io, &key);
    }
    None
}

/// Asks another node for the version of the schema, if those asked before are silent.
pub(super) fn tick(core: &mut Core, io: &mut Io) {
    let key = (IdentityKind::Schema, Box::from(""), Box::from(""));
    let silent_ns = silent_ns(io, key.0);
    drop_gone(core, &key);
    let name = core.fleet.transactions.names.entry(&key);
    if name.is_to_be_asked(silent_ns) {
        return ask(core, io, &key);
    }
    // A question that cannot be sent costs waiters nothing: another is under way.
    if name.is_unheard(silent_ns)
        && let Some((_, first)) = name.waiting.first().copied()
    {
        let asker = who(core, first);
        if is_asked(core, io, &key, asker) {
            core.fleet.transactions.names.entry(&key).repeats += 1;
        }
    }
}

/// Drops waiters that have ended.
fn drop_gone(core: &mut Core, key: &Key) {
    let keeper = &mut core.fleet.transactions;
    let (names, jobs) = (&mut keeper.names, &keeper.jobs);
    let is_gone = |waits: &IdentityWaiter| matches!(waits, IdentityWaiter::Job { number, .. } if !jobs.contains_key(number));
    names.entry(key).waiting.retain(|(_, waits)| !is_gone(waits));
}

/// The client whose quota a question counts against.
fn who(core: &Core, waits: IdentityWaiter) -> Who {
    let keeper = &core.fleet.transactions;
    let number = match waits {
        IdentityWaiter::Job { number, .. } => Some(number),
        IdentityWaiter::Write(OneWrite::Own { id, .. }) => keeper.of_id.get(&id).copied(),
        IdentityWaiter::Write(OneWrite::Found { .. }) => None,
    };
    number.and_then(|number| keeper.jobs.get(&number)).map_or(Who::FORMER, |job| Who::of(&job.who))
}

/// Sends a question for one of the waiters that no question under way serves. Clients without room
/// for a question are told so; others ask in their place.
fn ask(core: &mut Core, io: &mut Io, key: &Key) {
    drop_gone(core, key);
    for turn in 1..=ASKERS_MAX {
        let name = core.fleet.transactions.names.entry(key);
        let Some((_, first)) =
            name.waiting.iter().find(|(since_ns, _)| name.is_asked_for_later(*since_ns)).copied()
        else {
            return;
        };
        let asker = who(core, first);
        if is_asked(core, io, key, asker) {
            return;
        }
        let named = IdentityAnswer { identity: Identity::Unknown, asked_ns: io.now_ns() };
        let waiting = std::mem::take(&mut core.fleet.transactions.names.entry(key).waiting);
        for (since_ns, waits) in waiting {
            let gives_up = turn == ASKERS_MAX || who(core, waits) == asker;
            let keeper = &mut core.fleet.transactions;
            let name = keeper.names.entry(key);
            match gives_up && name.is_asked_for_later(since_ns) {
                true => keeper.effects.list.push(Effect::IdentityKnown(waits, named)),
                false => name.waiting.push((since_ns, waits)),
            }
        }
    }
}

/// Sends a question for this client; `false` if there is no room.
fn is_asked(core: &mut Core, io: &mut Io, key: &Key, who: Who) -> bool {
    let asked_ns = io.now_ns();
    let names = &mut core.fleet.transactions.names;
    names.number += 1;
    let number = names.number;
    let name = names.entry(key);
    let text = Arc::clone(name.question.get_or_insert_with(|| question(key)));
    let whose = Whose::Transaction(Part::Name { number, who });
    let levels = Levels {
        consistency: Consistency::ONE,
        serial: None,
        timestamp_us: None,
        elsewhere: false,
    };
    let is_asked = match key.0 {
        IdentityKind::Schema => is_version_asked(core, io, whose, &text),
        // Prepared, because each transaction asks: parsing the text takes a node longer than
        // answering.
        IdentityKind::Id | IdentityKind::Columns => statements::ask::ask_text(
            core,
            io,
            whose,
            &text,
            ValueList::positional(VERSION).values(),
            &levels,
            None,
        ),
    };
    if is_asked {
        let names = &mut core.fleet.transactions.names;
        names.entry(key).asked.push((number, asked_ns));
        names.asked.insert(number, key.clone());
    }
    is_asked
}

/// Asks the next node for the version of the schema: one that is cut off from the others does not
/// hear of changes.
fn is_version_asked(core: &mut Core, io: &mut Io, whose: Whose, text: &str) -> bool {
    let Some(pool) = statements::ask::pool(core, io) else { return false };
    let turn = core.fleet.transactions.schema_versions.next_turn();
    let cluster = core.router.cluster.as_ref();
    let nodes = cluster.map(|cluster| cluster.routing.local_nodes()).unwrap_or_default();
    let start = turn % nodes.len().max(1);
    let mut in_turn = nodes[start..].iter().chain(&nodes[..start]).copied();
    let is_usable = |node: &NodeId| {
        let (router, links) = (&core.router, &core.links);
        let choice = route::choose_among(router, links, pool, ClientRef::PROXY, &[*node]);
        matches!(choice, Choice::Link(_))
    };
    match in_turn.find(is_usable) {
        Some(node) => {
            statements::ask::ask_node(core, io, (pool, node), whose, text, Consistency::ONE)
        }
        None => statements::ask::ask_in(core, io, pool, whose, text, Consistency::ONE),
    }
}

fn question((what, keyspace, table): &Key) -> Arc<str> {
    match what {
        IdentityKind::Id => schema::id_question(keyspace, table).into(),
        IdentityKind::Columns => schema::columns_question(keyspace, table).into(),
        IdentityKind::Schema => schema::VERSION.into(),
    }
}

/// Gives an answer to the waiters that may have it.
fn tell(core: &mut Core, key: &Key, named: IdentityAnswer) {
    let keeper = &mut core.fleet.transactions;
    let name = keeper.names.entry(key);
    name.repeats = 0;
    // Answers may overtake each other.
    if name.last.is_none_or(|last| last.asked_ns <= named.asked_ns) {
        name.last = Some(named).filter(|named| named.identity != Identity::Unknown);
    }
    for (_, waits) in name.waiting.extract_if(.., |(since_ns, _)| *since_ns <= named.asked_ns) {
        keeper.effects.list.push(Effect::IdentityKnown(waits, named));
    }
}

/// Takes in a node's answer.
pub(super) fn answered(core: &mut Core, io: &mut Io, number: u64, heard: &Heard<'_>) {
    let names = &mut core.fleet.transactions.names;
    let Some(key) = names.asked.remove(&number) else { return };
    let asked = &mut names.entry(&key).asked;
    let Some(place) = asked.iter().position(|(of, _)| *of == number) else { return };
    let (_, asked_ns) = asked.swap_remove(place);
    let found = match heard {
        Heard::Result(ResultMessage::Rows(rows)) => match key.0 {
            IdentityKind::Id => schema::found_id(rows),
            IdentityKind::Columns => schema::found_columns(rows),
            IdentityKind::Schema => schema::found_version(rows),
        },
        Heard::Result(_) | Heard::Error(_) | Heard::Unreadable => Identity::Unknown,
    };
    if let (IdentityKind::Schema, Identity::Table(version)) = (key.0, found)
        && core.fleet.transactions.schema_versions.is_changed_by(version)
    {
        core.fleet.transactions.schema_changed();
    }
    // A node that does not know the prepared statement has not answered: it is asked again, as
    // text. A node that cannot name the version is not the only one.
    let is_unprepared = matches!(heard, Heard::Error(error) if error.unprepared_id().is_some());
    let is_failed = key.0 == IdentityKind::Schema && found == Identity::Unknown;
    let name = core.fleet.transactions.names.entry(&key);
    let is_asked_again = is_unprepared || is_failed && name.is_repeated(asked_ns);
    if !is_asked_again {
        tell(core, &key, IdentityAnswer { identity: found, asked_ns });
    }
    let silent_ns = silent_ns(io, key.0);
    if core.fleet.transactions.names.entry(&key).is_to_be_asked(silent_ns) {
        ask(core, io, &key);
    }
}

/// The answer, unless it is too old.
pub(super) fn current(io: &mut Io, named: IdentityAnswer) -> Identity {
    // The turn's time is too old, since the answer is used now.
    match io.read_clock_ns().saturating_sub(named.asked_ns) <= LATE_NS {
        true => named.identity,
        false => Identity::Unknown,
    }
}
