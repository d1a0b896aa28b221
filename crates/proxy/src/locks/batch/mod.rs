//! Batches on locks: all of them or none.
//!
//! A batch asks for its locks one after the other, in the same order everywhere (by shard, then by
//! name), so that two batches on the same locks never wait for each other. If a lock is refused,
//! the batch releases the locks that it got, and then answers with that lock. Each lock may wait
//! for the rest of `wait_ms`.
//!
//! A batch must never release a lock that its owner held before: such a lock is refused, as it
//! would be alone. Nor may it say that all are held when the first may have expired, or that none
//! is held while one may be.
//!
//! A batch of releases makes them one by one, whatever the outcomes of those before, and its answer
//! has each outcome. It must never say that nothing was released when a lock was, or may have been.

pub(super) mod state;

use shunt_language::lock_tables::reply as rows;
use shunt_language::lock_tables::{Asked, Request, TTL_LEFT_MS, Table};
use shunt_locks::{Quota, shard_of};
use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::ErrorMessage;

use crate::core::Core;
use crate::fault::Fault;
use crate::fleet::requests::Asker;
use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::fleet::requests::clients;
use crate::limits::SECOND_NS;
use crate::locks::answer;
use crate::locks::batch::state::{Back, Batch, Failed, Known, Owned, Part};
use crate::locks::dispatch;
use crate::locks::reply::{Held, Reply, Verdict};
use crate::locks::request::LockRequest;
use crate::locks::request::Operation;
use crate::locks::validation::{form, question};

/// Most batches on locks under way on a core.
const BATCHES_MAX: usize = 16_384;
/// Most batches of one role.
const BATCHES_PER_ROLE: usize = BATCHES_MAX / 2;
/// Age at which a batch of releases ends with the first failure. The releases of a batch are sent
/// again within the same time.
const RELEASES_NS: u64 = SECOND_NS;

/// Begins a batch, which gets one answer.
pub(super) fn begin(
    core: &mut Core,
    io: &mut Io,
    client: (u32, i16),
    was_forwarded: bool,
    requests: &[Request<'_>],
) -> Result<(), Fault> {
    let Some((role, _)) = clients::asker_of(core, client.0) else { return Ok(()) };
    if core.fleet.locks.batches.len() >= BATCHES_MAX {
        return Err(Fault::overloaded("Shunt: too many batches on locks are under way"));
    }
    if core.fleet.locks.batches_by_role.get(&role).is_some_and(|count| *count >= BATCHES_PER_ROLE) {
        return Err(Fault::overloaded(
            "Shunt: too many batches on locks of this role are under way",
        ));
    }
    let mut parts = Vec::with_capacity(requests.len());
    for (place, request) in requests.iter().enumerate() {
        let LockRequest { table, namespace, operation, name, owner } =
            question(core, request, was_forwarded)?;
        let question =
            Owned { table, namespace, operation, name: Box::from(name), owner: Box::from(owner) };
        parts.push(Part { question, place, outcome: None });
    }
    parts.sort_by(|one, other| order(one).cmp(&order(other)));
    let acquires = requests.iter().all(|request| matches!(request.asked, Asked::Acquire { .. }));
    if acquires && parts.windows(2).any(|pair| pair[0].question.name == pair[1].question.name) {
        return Err(Fault::invalid("Shunt: a batch acquires each lock once"));
    }
    let batch = core.fleet.locks.batches.vacant_key() as u32;
    let form = AnswerForm { kind: AnswerKind::Batch(batch), ..AnswerForm::default() };
    let Some((ticket, asker)) = clients::note(core, io, client, was_forwarded, form) else {
        return Ok(());
    };
    let began_ns = io.now_ns();
    *core.fleet.locks.batches_by_role.entry(role).or_default() += 1;
    core.fleet.locks.batches.insert(Batch {
        parts,
        next: 0,
        asker,
        ticket,
        asked: None,
        began_ns,
        back: None,
    });
    ask_next(core, io, batch);
    Ok(())
}

fn order(part: &Part) -> (u8, &[u8]) {
    (shard_of(&part.question.name), &part.question.name)
}

/// Asks for the next lock.
fn ask_next(core: &mut Core, io: &mut Io, batch: u32) {
    let Some(found) = core.fleet.locks.batches.get(batch as usize) else { return };
    let waited_ms = (io.now_ns().saturating_sub(found.began_ns) / 1_000_000) as u32;
    let Some(part) = found.parts.get(found.next) else {
        finish(core, io, batch);
        return;
    };
    let operation = match part.question.operation {
        Operation::Acquire { mode, ttl_ms, wait_ms } => {
            Operation::Acquire { mode, ttl_ms, wait_ms: wait_ms.saturating_sub(waited_ms) }
        }
        other => other,
    };
    let (asker, place) = (found.asker.clone(), found.next);
    // The batch may have ended when this returns.
    let (name, owner) = (part.question.name.clone(), part.question.owner.clone());
    let (table, namespace) = (part.question.table, part.question.namespace);
    let question = LockRequest { table, namespace, operation, name: &name, owner: &owner };
    let form = form(core, AnswerKind::Part { batch, place }, &name, &owner, 0);
    dispatch::ask_for(core, io, &asker, &question, form);
}

/// Takes in the outcome for one lock.
pub(super) fn take_outcome(
    core: &mut Core,
    io: &mut Io,
    batch: u32,
    place: usize,
    outcome: &Reply<'_>,
) {
    let at_ns = io.now_ns();
    let Some(found) = core.fleet.locks.batches.get_mut(batch as usize) else { return };
    let holder =
        outcome.holder.map(|held| (Box::from(held.owner), held.mode, held.fence, held.ttl_ms));
    let Some(part) = found.parts.get_mut(place) else { return };
    part.outcome =
        Some(Known { verdict: outcome.verdict, holder, waiters: outcome.waiters, at_ns });
    found.next = place + 1;
    let ends = has_failed(part)
        && (part.acquires() || at_ns.saturating_sub(found.began_ns) >= RELEASES_NS);
    if ends {
        finish(core, io, batch);
    } else {
        ask_next(core, io, batch);
    }
}

/// Answers a batch whose outcomes are all known. If a lock was refused or granted too late,
/// releases the others first.
fn finish(core: &mut Core, io: &mut Io, batch: u32) {
    let now_ns = io.now_ns();
    let Some(found) = core.fleet.locks.batches.get_mut(batch as usize) else { return };
    let failed = found.parts.iter().position(|part| part.acquires() && has_failed(part));
    let is_late = found.parts.iter().any(|part| is_late(part, now_ns));
    if failed.is_none() && !is_late {
        answer(core, io, batch);
        return;
    }
    let granted: Vec<(Owned, i64)> = found.parts.iter().filter_map(Part::granted).collect();
    let asker = found.asker.clone();
    // The count is one too high, because an answer may come before all releases are sent.
    found.back = Some(Back { failed, left: granted.len() + 1, is_unsure: false });
    for (lock, fence) in granted {
        give_back(core, io, &asker, &lock, fence, AnswerKind::Back(batch));
    }
    given_back(core, io, batch, Verdict::Released);
}

fn has_failed(part: &Part) -> bool {
    let Some(known) = &part.outcome else { return false };
    answer::error(&known.verdict).is_some() || part.acquires() && known.verdict != Verdict::Granted
}

fn is_late(part: &Part, now_ns: u64) -> bool {
    let (Operation::Acquire { ttl_ms, .. }, Some(known)) =
        (&part.question.operation, &part.outcome)
    else {
        return false;
    };
    let passed_ms = now_ns.saturating_sub(known.at_ns) / 1_000_000;
    passed_ms + u64::from(TTL_LEFT_MS.min(*ttl_ms / 2)) > u64::from(*ttl_ms)
}

/// Releases a lock that a batch was granted.
fn give_back(
    core: &mut Core,
    io: &mut Io,
    asker: &Asker,
    lock: &Owned,
    fence: i64,
    kind: AnswerKind,
) {
    let form = form(core, kind, &lock.name, &lock.owner, 0);
    dispatch::ask_for(core, io, asker, &lock.borrow(Operation::GiveBack { fence }), form);
}

/// Notes the release of one lock of a refused batch. The lock may have expired, or the outcome may
/// be unknown.
pub(super) fn given_back(core: &mut Core, io: &mut Io, batch: u32, verdict: Verdict) {
    let Some(found) = core.fleet.locks.batches.get_mut(batch as usize) else { return };
    let Some(back) = &mut found.back else { return };
    back.is_unsure |= !matches!(verdict, Verdict::Released | Verdict::Refused);
    back.left = back.left.saturating_sub(1);
    if back.left == 0 {
        answer(core, io, batch);
    }
}

/// Removes a batch.
fn end(core: &mut Core, batch: u32) -> Option<Batch> {
    let batch = core.fleet.locks.batches.try_remove(batch as usize)?;
    if let Some(count) = core.fleet.locks.batches_by_role.get_mut(&batch.asker.role) {
        *count -= 1;
        if *count == 0 {
            core.fleet.locks.batches_by_role.remove(&batch.asker.role);
        }
    }
    Some(batch)
}

/// Answers the client, unless it has left.
fn answer(core: &mut Core, io: &mut Io, batch: u32) {
    let Some(batch) = end(core, batch) else { return };
    let failed = batch.back.as_ref().and_then(|back| batch.parts.get(back.failed?));
    let partly;
    let error = match &batch.back {
        None => match failure(&batch) {
            None => None,
            Some(Failed::Whole(verdict)) => answer::error(&verdict),
            Some(Failed::Partly { released, verdict }) => {
                let why = answer::error(&verdict).map_or("", |error| error.message);
                partly = format!(
                    "Shunt: {released} of the {} locks of this batch were released. The others \
                     were not, or perhaps not: release each of them alone. The first error: {why}",
                    batch.parts.len()
                );
                let in_doubt = answer::error(&Verdict::InDoubt);
                in_doubt.map(|error| ErrorMessage { message: &partly, ..error })
            }
        },
        Some(Back { is_unsure: true, .. }) => answer::error(&Verdict::InDoubt),
        Some(_) => match failed {
            Some(part) => part.outcome.as_ref().and_then(|known| answer::error(&known.verdict)),
            None => answer::error(&Verdict::Quota(Quota::Requests)),
        },
    };
    let mut body = std::mem::take(&mut core.scratch.message);
    body.clear();
    let version = clients::version_of(core, batch.ticket);
    let op = match error {
        Some(error) => {
            error.put(&mut body, version);
            opcode::ERROR
        }
        None => {
            write_rows(&mut body, &batch, failed);
            opcode::RESULT
        }
    };
    clients::answer_with(core, io, batch.ticket, (op, 0), &body);
    core.scratch.message = body;
}

/// The failure of a batch of releases, if not all have an outcome that a row shows.
fn failure(batch: &Batch) -> Option<Failed> {
    let known = || batch.parts.iter().filter_map(|part| part.outcome.as_ref());
    let count = |verdict| known().filter(|known| known.verdict == verdict).count();
    let first = known().map(|known| known.verdict).find(|one| answer::error(one).is_some())?;
    Some(match (count(Verdict::Released), count(Verdict::InDoubt)) {
        (0, 0) => Failed::Whole(first),
        (0, _) => Failed::Whole(Verdict::InDoubt),
        (released, _) => Failed::Partly { released, verdict: first },
    })
}

fn write_rows(out: &mut Vec<u8>, batch: &Batch, failed: Option<&Part>) {
    let mut shown: Vec<&Part> = match failed {
        Some(part) => vec![part],
        None => batch.parts.iter().collect(),
    };
    shown.sort_by_key(|part| part.place);
    let table = if shown.iter().any(|part| part.question.table.is_shared()) {
        Table::RwLocks
    } else {
        shown[0].question.table
    };
    let rows = shown.iter().map(|part| {
        let known = part.outcome.as_ref();
        let held =
            known.and_then(|known| known.holder.as_ref()).map(|(owner, mode, fence, ttl_ms)| {
                Held { owner, mode: *mode, fence: *fence, ttl_ms: *ttl_ms }
            });
        let applied = known
            .is_some_and(|known| matches!(known.verdict, Verdict::Granted | Verdict::Released));
        (
            applied,
            answer::row(&part.question.name, held.as_ref(), known.map_or(0, |known| known.waiters)),
        )
    });
    rows::conditional(out, table, rows);
}

/// Abandons a batch whose client has left. Granted locks are released at once, and the lock that
/// the batch waits for is released once it is granted.
pub(crate) fn abandon(core: &mut Core, io: &mut Io, batch: u32) {
    // A batch that releases its locks ends after that, so that no other batch gets its number
    // before.
    if core.fleet.locks.batches.get(batch as usize).is_none_or(|found| found.back.is_some()) {
        return;
    }
    let Some(batch) = end(core, batch) else { return };
    if let Some(ticket) = batch.asked {
        dispatch::cancel(core, io, ticket);
    }
    for (lock, fence) in batch.parts.iter().filter_map(Part::granted) {
        give_back(core, io, &batch.asker, &lock, fence, AnswerKind::Nobody);
    }
}
