//! Polling of tables' rules: every two seconds, like modes. The last rules are kept while they
//! cannot be read, and count for as long as modes do.

use shunt_reactor::Io;
use shunt_transactions::catalogue::rules::{self, ROWS_MAX, Row, Rules};
use shunt_transactions::request::{Request, Summary};
use shunt_wire::cql::message::ResultMessage;
use shunt_wire::printable::printable_to;

use crate::core::Core;
use crate::fleet::statements::Heard;
use crate::limits::NAME_SHOWN_BYTES_MAX;
use crate::transactions::modes::{absence, question};
use crate::transactions::part::{Part, Poll};
use crate::transactions::pause;

/// Reads the rules, if it is time.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let next_ns = core.fleet.transactions.rules_polling.polling.next_ns;
    if pause::is_of_fleet(core) && io.read_clock_ns() >= next_ns {
        ask(core, io);
    }
}

/// Asks for all rules. A replica that has missed a rule would let writes through.
fn ask(core: &mut Core, io: &mut Io) {
    question::ask(core, io, Part::Rules, rules::QUESTION, |core| {
        &mut core.fleet.transactions.rules_polling.polling
    });
}

/// Takes in a node's answer that there is no table of rules. A fleet that an earlier version
/// created has none.
fn absent(core: &mut Core, io: &mut Io, poll: Poll, now_ns: u64) {
    let Some(cluster) = core.router.cluster.clone() else { return };
    let woke_ns = core.fleet.transactions.modes.woke_ns;
    let (is_in_doubt, is_settled) = (core.router.modes.are_in_doubt(), pause::is_settled(core));
    let polling = &mut core.fleet.transactions.rules_polling.polling;
    polling.note_failure(now_ns);
    if poll.asked_ns < woke_ns {
        return;
    }
    let is_news = polling.absence.deny(poll);
    let ring = cluster.routing.nodes().iter().map(|node| node.id);
    if is_settled && !polling.absence.has_rows || polling.absence.is_certain(ring, now_ns) {
        polling.note_absence(poll, now_ns);
    } else if is_news && is_in_doubt {
        ask(core, io);
    }
}

/// Takes in a node's answer.
pub(crate) fn rules_read(core: &mut Core, io: &mut Io, poll: Poll, heard: &Heard<'_>) {
    let now_ns = io.read_clock_ns();
    let polling = &mut core.fleet.transactions.rules_polling.polling;
    if polling.is_outdated(poll, now_ns) {
        return;
    }
    if let Heard::Error(error) = heard {
        polling.note_error(error);
    }
    let rows = match heard {
        // A row that cannot be read would hide all that follow it.
        Heard::Result(ResultMessage::Rows(rows)) if rows.rows().all(|row| row.is_ok()) => rows,
        Heard::Error(error) if absence::denies_table(error) => {
            absent(core, io, poll, now_ns);
            return pause::end_finished_wait(core, now_ns);
        }
        // The last rules are kept, for as long as they count.
        _ => {
            polling.note_failure(now_ns);
            return pause::end_finished_wait(core, now_ns);
        }
    };
    polling.note_rows(poll, core.fleet.transactions.modes.woke_ns);
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
    let rules_polling = &mut core.fleet.transactions.rules_polling;
    for table_name in
        unread.iter().filter(|name| core.context.index == 0 && !rules_polling.unread.contains(name))
    {
        let table_name = printable_to(table_name, NAME_SHOWN_BYTES_MAX);
        tracing::warn!(%table_name, "a row of shunt.guards is ignored: its table_name is no keyspace.table");
    }
    rules_polling.unread = unread;
    let is_full = rows.row_count >= ROWS_MAX;
    if is_full && !rules_polling.is_full && core.context.index == 0 {
        tracing::warn!(
            most = ROWS_MAX,
            "shunt.guards has more rules than are read: the rest is ignored"
        );
    }
    rules_polling.is_full = is_full;
    pause::end_finished_wait(core, now_ns);
}

/// True of a request that writes to a table with a rule.
pub(crate) fn has_rule(core: &Core, message: &[u8]) -> bool {
    let known = Request::decode(message)
        .ok()
        .and_then(|asked| Summary::parse(asked.text, Some(asked.keyspace)).ok());
    known.is_some_and(|known| {
        let mut written = known.tables.iter().filter(|(_, writes)| *writes);
        written
            .any(|(table, _)| !core.router.modes.rules.for_table(&known.domain, table).is_empty())
    })
}
