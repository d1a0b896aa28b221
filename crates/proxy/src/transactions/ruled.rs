//! The rules of tables, as a core knows them: read every two seconds, as modes are, and kept while
//! they cannot be read.

use shunt_reactor::Io;
use shunt_wire::cql::message::{ResultMessage, error_code};

use super::part::Part;
use super::{levels, still};
use crate::core::Core;
use crate::fault::is_right_missing;
use crate::fleet::statements::{self, Heard, Whose};
use crate::limits::{NAME_SHOWN_BYTES_MAX, SECOND_NS};
use shunt_transactions::catalogue::rules::{self, ROWS_MAX, Row, Rules};
use shunt_transactions::request::{Asked, Known};
use shunt_wire::printable::printable_to;

/// Between two looks, and the same after one that has failed.
const EVERY_NS: u64 = 2 * SECOND_NS;
const AGAIN_NS: u64 = SECOND_NS / 2;

/// When rules are read.
#[derive(Debug, Default)]
pub(super) struct Looks {
    pub(super) next_ns: u64,
    pub(super) is_asked: bool,
    /// When what is asked now was asked for, and what is known.
    pub(super) asked_ns: u64,
    pub(super) known_ns: Option<u64>,
    /// This proxy's role may not read them, as a node has said last.
    pub(super) is_forbidden: bool,
    /// Rows that are rules of no table.
    pub(super) unread: Vec<Box<str>>,
    /// There may be more than were asked for.
    pub(super) is_full: bool,
}

/// Looks, if it is time.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let now_ns = io.read_clock_ns();
    let looks = &core.fleet.transactions.looks;
    if !still::is_of_fleet(core) || looks.is_asked || now_ns < looks.next_ns {
        return;
    }
    let (pool, quorum) = (statements::ask::pool(core, io), levels::last_quorum(core));
    let whose = Whose::Transaction(Part::Rules);
    // A replica that has missed a rule would let writes through.
    let is_sent = pool.is_some_and(|pool| {
        statements::ask::ask_in(core, io, pool, whose, rules::QUESTION, quorum)
    });
    let looks = &mut core.fleet.transactions.looks;
    (looks.is_asked, looks.asked_ns, looks.next_ns) = (is_sent, now_ns, now_ns + EVERY_NS);
}

/// A node has answered, or nobody has.
pub(super) fn heard(core: &mut Core, io: &Io, heard: &Heard<'_>) {
    let looks = &mut core.fleet.transactions.looks;
    looks.is_asked = false;
    looks.is_forbidden =
        matches!(heard, Heard::Error(error) if is_right_missing(error.code, error.message));
    if looks.asked_ns < core.fleet.transactions.modes.woke_ns {
        looks.next_ns = 0;
    }
    let rows = match heard {
        Heard::Result(ResultMessage::Rows(rows)) => rows,
        // A fleet that was made by a version before has no such table, and no rules.
        Heard::Error(error) if error.code == error_code::INVALID => {
            looks.known_ns = Some(looks.asked_ns);
            return still::see_if_caught_up(core);
        }
        // What is known stays so.
        _ => {
            looks.next_ns = looks.next_ns.min(io.now_ns() + AGAIN_NS);
            return still::see_if_caught_up(core);
        }
    };
    looks.known_ns = Some(looks.asked_ns);
    let (mut rules, mut unread) = (Rules::default(), Vec::new());
    for row in rows.rows().map_while(Result::ok) {
        let text = |place: usize| std::str::from_utf8(row.get(place)?).ok();
        let Some(table_name) = text(0) else { continue };
        let row =
            Row { table_name, lock: text(1), is_fast: row.get(2) == Some(&[1]), mode: text(3) };
        if !rules.add(&row) {
            unread.push(Box::from(table_name));
        }
    }
    core.router.modes.rules = rules;
    let looks = &mut core.fleet.transactions.looks;
    for table_name in
        unread.iter().filter(|name| core.context.index == 0 && !looks.unread.contains(name))
    {
        let table_name = printable_to(table_name, NAME_SHOWN_BYTES_MAX);
        tracing::warn!(%table_name, "a row of shunt.guards is a rule of no table: its table_name is no keyspace.table");
    }
    looks.unread = unread;
    let is_full = rows.row_count >= ROWS_MAX;
    if is_full && !looks.is_full && core.context.index == 0 {
        tracing::warn!(
            most = ROWS_MAX,
            "shunt.guards has as many rules as are read, or more: those beyond hold for no table"
        );
    }
    looks.is_full = is_full;
    still::see_if_caught_up(core);
}

/// True of a request that writes to a table with a rule.
pub(super) fn is_ruled(core: &Core, message: &[u8]) -> bool {
    let known = Asked::read(message)
        .ok()
        .and_then(|asked| Known::read(asked.text, Some(asked.keyspace)).ok());
    known.is_some_and(|known| {
        let mut written = known.tables.iter().filter(|(_, writes)| *writes);
        written.any(|(table, _)| !core.router.modes.rules.of(&known.domain, table).is_empty())
    })
}
