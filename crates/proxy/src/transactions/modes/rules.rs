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
use crate::transactions::modes::denials::Denial;
use crate::transactions::modes::table_poll::TablePoll;
use crate::transactions::part::{Part, Poll};
use crate::transactions::pause;

/// The question for all rules. A replica that has missed a rule would let writes through.
const RULES: TablePoll = TablePoll {
    table: "shunt.guards",
    text: rules::QUESTION,
    part: Part::Rules,
    polling: |core| &mut core.fleet.transactions.rules_polling.polling,
};

/// Reads the rules, if it is time.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let next_ns = core.fleet.transactions.rules_polling.polling.next_ns;
    if pause::is_of_fleet(core) && io.read_clock_ns() >= next_ns {
        RULES.start(core, io);
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
        // The last rules are kept, for as long as they count.
        _ => {
            match Denial::of(heard) {
                // A fleet that an earlier version created has no such table.
                Some(denial) => RULES.deny(core, io, (poll, denial), true, now_ns),
                None => polling.note_failure(now_ns),
            }
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
