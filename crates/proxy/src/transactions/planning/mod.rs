//! From a text to a plan: tables are read from the schema, and statements are prepared at a node.
//!
//! A plan is kept for [`KEPT_NS`], because tables change. A text is planned once for all who wait.
//! A planning has no deadline: each question has one of its own, and there are few. Transactions
//! whose client has as many texts planned as it may have wait in line ([`line`]). Of the line, a
//! turn reads no more bytes than of heavy requests.

mod line;
pub(super) mod texts;

use std::collections::HashMap;
use std::sync::Arc;

use shunt_language::transaction::mode::TransactionalMode;
use shunt_reactor::Io;
use shunt_transactions::catalogue::replicas;
use shunt_transactions::catalogue::switching::TableState;
use shunt_transactions::plan::cache::{Entry, Key};
use shunt_transactions::plan::schema::{self, Table, Types};
use shunt_transactions::plan::{Draft, Outline, Plan, PreparedText};
use shunt_transactions::request::Request;
use shunt_wire::cql::message::{Consistency, ErrorMessage, ResultMessage, Rows, error_code};

use super::{TIMER, TransactionKeeper, evaluation, levels, modes};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::rights::probe::{qualified, write_to};
use crate::fleet::statements::{self, Heard, Whose};
use crate::limits;
use crate::transactions::effects::Effect;
use crate::transactions::job::Failure;
use crate::transactions::part::{Part, Question, Who};
use crate::transactions::planning::texts::{Planning, Plannings, Waiter};

/// Time for which a plan is used before it is renewed.
const KEPT_NS: u64 = 5 * limits::SECOND_NS;
/// Longest text of a plan that is kept; longer texts are planned each time.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// Bytes of the tables of one plan.
const TABLES_BYTES_MAX: usize = 16 << 20;
/// Texts that are planned at once.
const PLANNINGS_MAX: usize = 64;
/// Texts among them that clients prepare, which needs no right.
const PREPARES_MAX: usize = 16;
/// One client's quota of either is a half.
const SHARES: usize = 2;

/// Returns the plan of a text if it is kept. Otherwise the waiter gets the plan later, or the
/// reason why there is none. `who` is the client whose quota it counts against.
pub(super) fn request(
    core: &mut Core,
    io: &mut Io,
    (text, keyspace): (&str, &str),
    who: &Arc<str>,
    waiter: Waiter,
) -> Option<Arc<Plan>> {
    let key: (Arc<str>, Arc<str>) = (keyspace.into(), text.into());
    let plannings = &mut core.fleet.transactions.plannings;
    let kept = plannings.plans.usable(&key, io.now_ns());
    let kept = kept.map(|(plan, is_due)| (Arc::clone(plan), is_due));
    if kept.as_ref().is_none_or(|(_, is_due)| *is_due) {
        plan_text(core, io, key, who, kept.is_none().then_some(waiter));
    }
    kept.map(|(plan, _)| plan)
}

/// Plans a text, or renews its plan for no waiter.
fn plan_text(core: &mut Core, io: &mut Io, key: Key, who: &Arc<str>, waiter: Option<Waiter>) {
    let plannings = &mut core.fleet.transactions.plannings;
    if let Some(Entry::Planning(number)) = plannings.plans.by_text.get(&key)
        && let Some(planning) = plannings.planning.get_mut(number)
    {
        planning.waiting.extend(waiter);
        return;
    }
    let is_prepare = matches!(waiter, Some(Waiter::Prepare(..)));
    if !has_room(&plannings.planning, who, is_prepare) {
        return waiter.into_iter().for_each(|waiter| wait(core, who, waiter));
    }
    let (keyspace, text) = &key;
    let outline = match Outline::parse(text, keyspace) {
        Ok(outline) => outline,
        Err(refusal) => {
            let failed = Failure::from(Fault::from(refusal));
            return waiter.into_iter().for_each(|waiter| give(core, waiter, Err(&failed)));
        }
    };
    plannings.plans.make_room(0, io.now_ns());
    plannings.number += 1;
    let number = plannings.number;
    match plannings.plans.by_text.get_mut(&key) {
        // The old plan is used until the next one is ready.
        Some(Entry::Ready { renewal, .. }) => *renewal = Some(number),
        _ => drop(plannings.plans.by_text.insert(key.clone(), Entry::Planning(number))),
    }
    let (domain, tables) = (outline.domain.clone(), outline.tables.iter().map(|_| None).collect());
    let planning = Planning {
        key,
        waiting: waiter.into_iter().collect(),
        who: Arc::clone(who),
        is_prepare,
        outline: Some(outline),
        types: None,
        modes: HashMap::new(),
        unfit: None,
        tables,
        draft: None,
        shown: Vec::new(),
        open: 0,
        failed: None,
    };
    plannings.planning.insert(number, planning);
    ask_about_keyspace(core, io, number, &domain);
    go_on(core, io, number);
}

/// Sends the first questions: about the keyspace, its types and its tables' modes.
fn ask_about_keyspace(core: &mut Core, io: &mut Io, number: u64, domain: &str) {
    for (question, text, consistency) in [
        (
            Question::Keyspace,
            format!("{}{}", schema::KEYSPACE, schema::literal(domain)),
            Consistency::ONE,
        ),
        (
            Question::Types,
            format!("{}{}", schema::TYPES, schema::literal(domain)),
            Consistency::ONE,
        ),
        (
            Question::Modes,
            format!("{}{}", schema::MODES, schema::literal(domain)),
            levels::quorum(core),
        ),
    ] {
        ask(core, io, number, question, &text, consistency);
    }
}

/// Puts a transaction in line until its text may be planned. Clients that prepare a text, and
/// those whose share of the line is full, are told to ask again.
fn wait(core: &mut Core, who: &Arc<str>, waiter: Waiter) {
    let keeper = &mut core.fleet.transactions;
    let deadline_ms = match waiter {
        Waiter::Job(number) => keeper.jobs.get(&number).map(|job| (number, job.deadline_ms)),
        Waiter::Prepare(..) => None,
    };
    let waits = deadline_ms
        .is_some_and(|(number, deadline_ms)| keeper.plannings.line.join(who, number, deadline_ms));
    if !waits {
        refuse(core, waiter);
    }
}

fn refuse(core: &mut Core, waiter: Waiter) {
    let fault = Fault::overloaded(
        "Shunt: too many transactions are being planned; ask again, or prepare your statements",
    );
    give(core, waiter, Err(&fault.into()));
}

/// Has the texts planned that wait for it, as many as there is room for. A call takes no more bytes
/// than a turn reads of heavy requests, or one text that is longer; the timer is set for the rest.
pub(super) fn serve_line(core: &mut Core, io: &mut Io) {
    let mut taken = 0;
    loop {
        let TransactionKeeper { plannings, jobs, wakes, .. } = &mut core.fleet.transactions;
        let Plannings { planning, line, is_line_due, .. } = plannings;
        let may_go = |who: &Arc<str>| has_room(planning, who, false);
        let Some(number) = line.first(may_go) else { return *is_line_due = false };
        let job = jobs.get(&number);
        let bytes = job.map_or(0, |job| job.message.len());
        if taken > 0 && taken + bytes > limits::HEAVY_TURN_BYTES_MAX {
            *is_line_due = true;
            // Timers of this time are over in this turn.
            let at_ns = io.now_ns() + 1;
            if wakes.wants(at_ns) {
                io.set_timer(at_ns, TIMER);
            }
            return;
        }
        taken += bytes;
        line.next(may_go);
        let Some(job) = job else { continue };
        let (who, message) = (Arc::clone(&job.who), job.message.clone());
        // It was read when the transaction came.
        if let Ok(asked) = Request::decode(&message) {
            let waiter = Waiter::Job(number);
            if let Some(plan) =
                request(core, io, (asked.text, asked.keyspace), &who, waiter.clone())
            {
                give(core, waiter, Ok(&plan));
            }
        }
    }
}

/// Serves what an earlier turn has left in line.
pub(super) fn go_on_with_line(core: &mut Core, io: &mut Io) {
    if core.fleet.transactions.plannings.is_line_due {
        serve_line(core, io);
    }
}

/// Refuses the transactions in line whose deadline has passed.
pub(super) fn tick(core: &mut Core, io: &Io) {
    let late = core.fleet.transactions.plannings.line.take_late(io.now_ns() / 1_000_000);
    late.into_iter().for_each(|number| refuse(core, Waiter::Job(number)));
}

/// True if one more text may be planned for this client.
fn has_room(plannings: &HashMap<u64, Planning>, who: &Arc<str>, is_prepare: bool) -> bool {
    let (mut all, mut prepares) = ([0; 2], [0; 2]);
    for planning in plannings.values() {
        let is_theirs = usize::from(planning.who == *who);
        all = [all[0] + 1, all[1] + is_theirs];
        if planning.is_prepare {
            prepares = [prepares[0] + 1, prepares[1] + is_theirs];
        }
    }
    let has_room = |[all, theirs]: [usize; 2], most: usize| all < most && theirs < most / SHARES;
    has_room(all, PLANNINGS_MAX) && (!is_prepare || has_room(prepares, PREPARES_MAX))
}

fn planning(core: &mut Core, number: u64) -> Option<&mut Planning> {
    core.fleet.transactions.plannings.planning.get_mut(&number)
}

fn whose_share(core: &mut Core, number: u64) -> Who {
    planning(core, number).map_or(Who::FORMER, |planning| Who::of(&planning.who))
}

fn ask(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    question: Question,
    text: &str,
    consistency: Consistency,
) {
    let who = whose_share(core, number);
    let whose = Whose::Transaction(Part::Schema { planning: number, question, who });
    let pool = statements::ask::pool(core, io);
    let is_sent =
        pool.is_some_and(|pool| statements::ask::ask_in(core, io, pool, whose, text, consistency));
    count(core, number, is_sent);
}

fn count(core: &mut Core, number: u64, is_sent: bool) {
    let Some(planning) = planning(core, number) else { return };
    match is_sent {
        true => planning.open += 1,
        false => fail(
            planning,
            Fault::new(
                FaultKind::Unserved,
                "Shunt: no node could be asked about this transaction's tables; ask again",
            )
            .into(),
        ),
    }
}

/// Notes a failure; the first one counts.
fn fail(planning: &mut Planning, failed: Failure) {
    planning.failed.get_or_insert(failed);
}

fn node(error: &ErrorMessage<'_>, what: &str) -> Failure {
    // To the client, a node that fails to answer this proxy has not answered.
    let code = match error.code {
        code if levels::is_clients(code) => code,
        // This error has more than a message. The statement would fail on every node.
        error_code::FUNCTION_FAILURE => error_code::INVALID,
        _ => error_code::OVERLOADED,
    };
    Failure::Node { code, message: format!("{what}{}", error.message) }
}

/// Takes in an answer about the schema.
pub(super) fn schema_answered(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    question: Question,
    heard: &Heard<'_>,
) {
    let unreachable = match heard {
        Heard::Result(ResultMessage::Rows(rows)) if question == Question::Keyspace => {
            unreachable(core, rows)
        }
        _ => None,
    };
    let Some(planning) = planning(core, number) else { return };
    planning.open -= 1;
    match heard {
        Heard::Result(ResultMessage::Rows(rows)) => {
            let learnt = learn(planning, question, rows);
            if unreachable.is_some() {
                planning.unfit = unreachable;
            }
            if let Err(failed) = learnt {
                fail(planning, failed);
            }
        }
        Heard::Error(error) if question == Question::Modes && error.code == error_code::INVALID => {
            fail(
                planning,
                Fault::invalid(
                    "Shunt: this fleet has no tables for transactions yet; run `shunt fleet init` of this version once",
                )
                .into(),
            );
        }
        // Otherwise the write would fail after the commit.
        Heard::Error(error)
            if matches!(question, Question::MayWrite(_))
                && error.code == error_code::UNAUTHORIZED =>
        {
            let why = format!(
                "Shunt: this proxy's own role may not write what a transaction writes: {}",
                error.message
            );
            fail(planning, Fault::new(FaultKind::Unauthorized, why).into());
        }
        Heard::Error(error)
            if matches!(question, Question::MayWrite(_)) && error.code == error_code::INVALID => {}
        // Versions of Cassandra without masks lack this table.
        Heard::Error(error)
            if matches!(question, Question::Masks(_)) && error.code == error_code::INVALID => {}
        Heard::Error(error) => fail(planning, node(error, "Shunt: the schema could not be read: ")),
        Heard::Result(_) | Heard::Unreadable => {
            fail(
                planning,
                Fault::overloaded("Shunt: a node's answer about the schema cannot be read").into(),
            );
        }
    }
    go_on(core, io, number);
}

/// Explains why a quorum of a keyspace can never be reached, if so.
fn unreachable(core: &Core, rows: &Rows<'_>) -> Option<String> {
    let routing = &core.router.cluster.as_ref()?.routing;
    replicas::too_few(&schema::replication(rows)?, routing, core.fleet.locks.level())
}

fn learn(planning: &mut Planning, question: Question, rows: &Rows<'_>) -> Result<(), Failure> {
    let Some(outline) = &planning.outline else { return Ok(()) };
    let missing = |table: &str| {
        Failure::from(Fault::invalid(format!("table {}.{table} does not exist", outline.domain)))
    };
    match question {
        Question::Keyspace => {
            let domain = &outline.domain;
            let found = schema::keyspace_unfit(rows);
            planning.unfit = found.ok_or_else(|| {
                Failure::from(Fault::invalid(format!("keyspace {domain} does not exist")))
            })?;
        }
        Question::Types => planning.types = Some(Types::read(&outline.domain, rows)),
        Question::Modes => planning.modes = schema::modes(rows),
        Question::Table(place) => {
            let name = &outline.tables[usize::from(place)].0;
            let types = planning.types.clone().unwrap_or_default();
            let table = Table::read(types, name, rows).ok_or_else(|| missing(name))?;
            planning.tables[usize::from(place)] = Some(table);
        }
        // No known node accepts a row without a key.
        Question::MayWrite(_) => {}
        Question::Masks(place) => {
            let masked = rows.row_count > 0;
            if let Some(table) = planning.tables[usize::from(place)].as_mut().filter(|_| masked) {
                let why = "it has masked columns, and the proxy reads them for all roles alike"
                    .to_owned();
                table.unfit.get_or_insert(why);
            }
        }
        Question::Columns(place) => {
            let slot = &mut planning.tables[usize::from(place)];
            let table =
                slot.take().ok_or_else(|| missing(&outline.tables[usize::from(place)].0))?;
            *slot = Some(
                table
                    .with_columns(rows)
                    .map_err(|why| Failure::from(Fault::invalid(format!("Shunt: {why}"))))?,
            );
        }
    }
    // Each planning has its own copy.
    match planning.tables.iter().flatten().map(Table::bytes).sum::<usize>() {
        0..=TABLES_BYTES_MAX => Ok(()),
        _ => Err(Fault::invalid(format!(
            "Shunt: tables of {} have too many columns, or user-defined types, to be in a transaction together",
            outline.domain
        ))
        .into()),
    }
}

/// Takes in a node's answer to PREPARE.
pub(super) fn text_prepared(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    place: u16,
    heard: &Heard<'_>,
) {
    let Some(planning) = planning(core, number) else { return };
    planning.open -= 1;
    match heard {
        Heard::Result(ResultMessage::Prepared(prepared)) => {
            planning.shown[usize::from(place)] = PreparedText::of(prepared);
            let texts =
                planning.draft.as_ref().and_then(|draft| draft.texts().nth(usize::from(place)));
            if let Some(text) = texts.map(Arc::clone) {
                core.fleet.statements.learn_id(&text, prepared.id);
            }
        }
        Heard::Error(error)
            if planning.draft.as_ref().is_some_and(|draft| draft.is_refused_for_another(error)) =>
        {
            fail(planning, evaluation::changed_just_now().into());
        }
        Heard::Error(error) => {
            let name = planning
                .draft
                .as_ref()
                .map(|draft| format!("{}: ", draft.name_of(usize::from(place))))
                .unwrap_or_default();
            fail(planning, node(error, &name));
        }
        Heard::Result(_) | Heard::Unreadable => {
            fail(
                planning,
                Fault::overloaded(
                    "Shunt: a node did not report the types of a transaction's values",
                )
                .into(),
            );
        }
    }
    go_on(core, io, number);
}

/// Takes the next step, once all questions are answered.
fn go_on(core: &mut Core, io: &mut Io, number: u64) {
    loop {
        let now_ms = io.wall_us() / 1_000;
        let Some(planning) = planning(core, number) else { return };
        if planning.open > 0 {
            return;
        }
        if planning.failed.is_some() {
            return end(core, io, number, None);
        }
        if planning.draft.is_some() {
            let plan = planning.draft.take().map(|draft| Plan::new(draft, &planning.shown));
            match plan {
                Some(Ok(plan)) => return end(core, io, number, Some(Arc::new(plan))),
                Some(Err(error)) => fail(planning, Fault::from(error).into()),
                None => {}
            }
            continue;
        }
        let Some(outline) = &planning.outline else { return };
        let missing: Vec<u16> = (0u16..)
            .zip(&planning.tables)
            .filter(|(_, table)| table.is_none())
            .map(|(place, _)| place)
            .collect();
        let bare: Vec<u16> = (0u16..)
            .zip(&planning.tables)
            .filter(|(_, table)| table.as_ref().is_some_and(|table| table.columns.is_empty()))
            .map(|(place, _)| place)
            .collect();
        if missing.is_empty() && bare.is_empty() {
            draft(planning, now_ms);
            let texts: Vec<Arc<str>> =
                planning.draft.iter().flat_map(Draft::texts).map(Arc::clone).collect();
            for (place, text) in (0u16..).zip(&texts) {
                let who = whose_share(core, number);
                let whose = Whose::Transaction(Part::Text { planning: number, place, who });
                let is_sent = statements::ask::prepare_text(core, io, whose, text);
                count(core, number, is_sent);
            }
            continue;
        }
        let domain = outline.domain.clone();
        let names: Vec<String> = outline.tables.iter().map(|(name, _)| name.clone()).collect();
        let of = |places: &[u16], question: fn(u16) -> Question, text: &'static str| {
            let texts = places.iter().map(|place| {
                let name = &names[usize::from(*place)];
                (
                    question(*place),
                    format!(
                        "{text}{} AND table_name = {}",
                        schema::literal(&domain),
                        schema::literal(name)
                    ),
                )
            });
            texts.collect::<Vec<_>>()
        };
        let questions = if missing.is_empty() {
            let mut questions = of(&bare, Question::Columns, schema::COLUMNS);
            questions.splice(0..0, of(&bare, Question::Masks, schema::MASKS));
            let written = bare.iter().filter(|place| outline.tables[usize::from(**place)].1);
            let written = written.map(|place| {
                let table = qualified(&outline.domain, &names[usize::from(*place)]);
                (Question::MayWrite(*place), write_to(&table))
            });
            questions.extend(written.collect::<Vec<_>>());
            questions
        } else {
            of(&missing, Question::Table, schema::TABLE)
        };
        for (question, text) in questions {
            ask(core, io, number, question, &text, Consistency::ONE);
        }
    }
}

/// Checks the statements, once all tables are known.
fn draft(planning: &mut Planning, now_ms: i64) {
    let Some(outline) = planning.outline.take() else { return };
    let domain = &outline.domain;
    let said = |name: &String| planning.modes.get(name).map(|mode| TableState::parse(mode));
    let held = outline
        .tables
        .iter()
        .find(|(name, _)| said(name).is_some_and(|told| told.next().is_some()));
    if let Some((name, _)) = held {
        let fault = modes::change_pending(domain, name);
        return fail(planning, fault.into());
    }
    let off = outline.tables.iter().map(|(name, _)| name).find(|name| {
        // The mode may be a later version's, which this version cannot honour.
        let mode = planning.modes.get(*name).and_then(|mode| TransactionalMode::named(mode));
        mode.is_none_or(|mode| mode == TransactionalMode::Off)
    });
    if let Some(name) = off {
        let why = format!(
            "Shunt: table {domain}.{name} takes part in no transactions: ALTER TABLE {domain}.{name} WITH transactional_mode = 'unsafe'"
        );
        let has_none = outline.tables.iter().all(|(name, _)| !planning.modes.contains_key(name));
        let fault = Fault::invalid(why);
        return fail(planning, if has_none { Failure::NoMode(fault) } else { fault.into() });
    }
    if let Some(why) = &planning.unfit {
        let why = format!(
            "Shunt: table {domain}.{} cannot be in a transaction: {why}",
            outline.tables[0].0
        );
        return fail(planning, Fault::invalid(why).into());
    }
    let modes = outline
        .tables
        .iter()
        .filter_map(|(name, _)| TransactionalMode::named(planning.modes.get(name)?));
    let is_conditional = modes.into_iter().any(TransactionalMode::is_by_statement);
    let tables: Vec<Arc<Table>> = planning.tables.drain(..).flatten().map(Arc::new).collect();
    match Draft::new(outline, &tables, now_ms, is_conditional) {
        Ok(draft) => {
            planning.shown = draft.texts().map(|_| PreparedText::default()).collect();
            planning.draft = Some(draft);
        }
        Err(error) => fail(planning, Fault::from(error).into()),
    }
}

/// Ends the planning, and tells all waiters.
fn end(core: &mut Core, io: &mut Io, number: u64, plan: Option<Arc<Plan>>) {
    let now_ns = io.now_ns();
    let plannings = &mut core.fleet.transactions.plannings;
    let Some(planning) = plannings.planning.remove(&number) else { return };
    match &plan {
        Some(plan) if planning.key.1.len() <= KEPT_BYTES_MAX => {
            let times = (now_ns + KEPT_NS, now_ns);
            plannings.plans.keep(planning.key, plan, &planning.who, times);
        }
        _ => drop(plannings.plans.by_text.remove(&planning.key)),
    }
    let failed = planning.failed.unwrap_or_else(|| {
        Fault::overloaded("Shunt: there is no plan for this transaction").into()
    });
    for waiter in planning.waiting {
        give(core, waiter, plan.as_ref().ok_or(&failed));
    }
    let Plannings { line, is_line_due, .. } = &mut core.fleet.transactions.plannings;
    if !line.is_empty() && !std::mem::replace(is_line_due, true) {
        core.fleet.transactions.effects.list.push(Effect::PlanWaiting);
    }
}

fn give(core: &mut Core, waiter: Waiter, plan: Result<&Arc<Plan>, &Failure>) {
    let plan = plan.map(Arc::clone).map_err(Failure::clone);
    core.fleet.transactions.effects.list.push(Effect::PlanReady(waiter, plan));
}
