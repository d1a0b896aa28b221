//! Polling of tables' rules: every two seconds, like modes. The last rules are kept while they
//! cannot be read.

use shunt_reactor::Io;
use shunt_transactions::catalogue::rules::{self, ROWS_MAX, Row, Rules};
use shunt_transactions::request::{Request, Summary};
use shunt_wire::cql::message::{ResultMessage, error_code};
use shunt_wire::printable::printable_to;

use crate::core::Core;
use crate::fault::is_right_missing;
use crate::fleet::statements::Heard;
use crate::limits::{NAME_SHOWN_BYTES_MAX, SECOND_NS};
use crate::transactions::modes::question;
use crate::transactions::part::Part;
use crate::transactions::pause;

/// Interval between two reads.
const EVERY_NS: u64 = 2 * SECOND_NS;
/// Interval after a failed read.
const AGAIN_NS: u64 = SECOND_NS / 2;

/// Reads the rules, if it is time.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let now_ns = io.read_clock_ns();
    let rules_polling = &core.fleet.transactions.rules_polling;
    if !pause::is_of_fleet(core) || rules_polling.is_asked || now_ns < rules_polling.next_ns {
        return;
    }
    ask(core, io, now_ns);
}

/// Asks for all rules.
fn ask(core: &mut Core, io: &mut Io, now_ns: u64) {
    // A replica that has missed a rule would let writes through.
    let is_sent = question::ask(core, io, Part::Rules, rules::QUESTION, |core| {
        &mut core.fleet.transactions.rules_polling.absence
    });
    let rules_polling = &mut core.fleet.transactions.rules_polling;
    let pause_ns = if is_sent { EVERY_NS } else { AGAIN_NS };
    (rules_polling.is_asked, rules_polling.asked_ns, rules_polling.next_ns) =
        (is_sent, now_ns, now_ns + pause_ns);
}

/// Takes in a node's answer that there is no table of rules. A fleet that an earlier version
/// created has none.
fn absent(core: &mut Core, io: &mut Io) {
    let Some(cluster) = core.router.cluster.clone() else { return };
    let (now_ns, woke_ns) = (io.now_ns(), core.fleet.transactions.modes.woke_ns);
    let rules_polling = &mut core.fleet.transactions.rules_polling;
    rules_polling.next_ns = rules_polling.next_ns.min(now_ns + AGAIN_NS);
    if rules_polling.asked_ns < woke_ns {
        return;
    }
    let is_news = rules_polling.absence.deny(rules_polling.asked_ns);
    let ring = cluster.routing.nodes().iter().map(|node| node.id);
    if rules_polling.absence.is_certain(ring, now_ns) {
        rules_polling.known_ns = Some(rules_polling.asked_ns);
        rules_polling.next_ns = now_ns + EVERY_NS;
    } else if is_news && core.router.modes.is_behind {
        ask(core, io, now_ns);
    }
}

/// Takes in a node's answer.
pub(crate) fn rules_read(core: &mut Core, io: &mut Io, heard: &Heard<'_>) {
    let rules_polling = &mut core.fleet.transactions.rules_polling;
    rules_polling.is_asked = false;
    rules_polling.is_forbidden =
        matches!(heard, Heard::Error(error) if is_right_missing(error.code, error.message));
    if rules_polling.asked_ns < core.fleet.transactions.modes.woke_ns {
        rules_polling.next_ns = 0;
    }
    let rows = match heard {
        Heard::Result(ResultMessage::Rows(rows)) => rows,
        Heard::Error(error) if error.code == error_code::INVALID => {
            absent(core, io);
            return pause::end_finished_wait(core);
        }
        // The last rules are kept.
        _ => {
            rules_polling.next_ns = rules_polling.next_ns.min(io.now_ns() + AGAIN_NS);
            return pause::end_finished_wait(core);
        }
    };
    rules_polling.known_ns = Some(rules_polling.asked_ns);
    rules_polling.absence.clear();
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
    pause::end_finished_wait(core);
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
