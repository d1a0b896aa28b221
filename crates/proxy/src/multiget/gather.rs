//! Answers to parts, until all have arrived or one decides the request.

use shunt_reactor::Io;
use shunt_wire::cql::compression::{self, CompressionError};
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::{error_code, split_response_prefix};

use crate::aggregate;
use crate::client::inbox::Kept;
use crate::core::Core;
use crate::ids::ClientRef;
use crate::limits;
use crate::link::{Pending, Purpose};
use crate::metrics::Outcome;
use crate::multiget::reasons::Lost;
use crate::multiget::{Gather, Mistake, Rows, merge};
use crate::plan::Plan;
use crate::reply::{self, Answer};
use crate::retry::{failure, mode_change};
use crate::route::{self, Choice, WhenFull};
use crate::slow_queries::capture;

/// Handles the answer to a part: from a node, or from the proxy in its place.
#[cold]
pub(crate) fn heard(core: &mut Core, io: &mut Io, answer: &Kept<'_>) {
    take(core, io, answer);
    core.retries.multigets.show(&core.context.metrics.multigets);
}

fn take(core: &mut Core, io: &mut Io, answer: &Kept<'_>) {
    let Some(part) = core.retries.multigets.parts.try_remove(answer.stream as usize) else {
        return;
    };
    let Some(gather) = core.retries.multigets.gathers.get(part.gather) else { return };
    if gather.number != part.number {
        return;
    }
    let mut plain = Vec::new();
    let body = match plain_body(core, gather, answer, &mut plain) {
        Ok(body) => body,
        Err(why) => {
            lose(core, io, part.gather, why);
            return;
        }
    };
    let flags = answer.flags & !flag::COMPRESSION;
    let mistake = core.retries.multigets.mistake;
    if answer.opcode == opcode::ERROR && mistake == Some(Mistake::ErrorIgnored) {
        is_there(core, io, part.gather);
        return;
    }
    if answer.opcode == opcode::ERROR {
        // A node that answers in pages stops at a full one, and may never reach the keys of this
        // part.
        match says_cannot_serve(flags, body) && gather.wanted.page_rows.is_none() {
            true => refuse(core, io, part.gather, flags, body),
            false => lose(core, io, part.gather, Lost::Refused),
        }
        return;
    }
    let found = match answer.opcode {
        opcode::RESULT => merge::complete(gather.wanted.version, flags, body).map(drop),
        _ => Err(Lost::Unreadable),
    };
    if let Err(why) = found {
        lose(core, io, part.gather, why);
        return;
    }
    let multigets = &mut core.retries.multigets;
    let Some(gather) = multigets.gathers.get_mut(part.gather) else { return };
    if gather.bytes + body.len() > limits::MULTIGET_BYTES_MAX
        || multigets.bytes + body.len() > limits::MULTIGETS_BYTES_MAX
    {
        lose(core, io, part.gather, Lost::Bytes);
        return;
    }
    multigets.bytes += body.len();
    gather.bytes += body.len();
    let place = match mistake {
        Some(Mistake::OrderOfAnswers) => gather.answers.len() - gather.missing,
        _ => part.place,
    };
    gather.answers[place] = Some(Rows { flags, body: body.to_vec() });
    is_there(core, io, part.gather);
}

/// Notes that one part fewer is missing.
fn is_there(core: &mut Core, io: &mut Io, key: usize) {
    let Some(gather) = core.retries.multigets.gathers.get_mut(key) else { return };
    gather.missing -= 1;
    if gather.missing == 0 {
        finish(core, io, key);
    }
}

/// The body of an answer, decompressed. One that claims more than a request may keep of its answers
/// is not decompressed.
fn plain_body<'a>(
    core: &Core,
    gather: &Gather,
    answer: &Kept<'a>,
    plain: &'a mut Vec<u8>,
) -> Result<&'a [u8], Lost> {
    if answer.flags & flag::COMPRESSION == 0 {
        return Ok(answer.body);
    }
    let pool = core.router.pools.get(gather.pool);
    let algorithm = pool.and_then(|pool| pool.key.compression).ok_or(Lost::Unreadable)?;
    let max = core.context.config.frame_bytes_max.min(limits::MULTIGET_BYTES_MAX as u32);
    match compression::decompress(algorithm, answer.body, max, plain) {
        Ok(()) => Ok(plain),
        Err(CompressionError::TooLarge { .. }) => Err(Lost::Bytes),
        Err(_) => Err(Lost::Unreadable),
    }
}

/// True for an error that says that nodes cannot serve now, and nothing about the statement.
fn says_cannot_serve(flags: u8, body: &[u8]) -> bool {
    let code = split_response_prefix(flags, body).ok().and_then(|(_, body)| error_code::peek(body));
    code.is_some_and(|code| {
        matches!(
            code,
            error_code::UNAVAILABLE
                | error_code::OVERLOADED
                | error_code::IS_BOOTSTRAPPING
                | error_code::READ_TIMEOUT
                | error_code::READ_FAILURE
        )
    })
}

/// Records the whole request as a slow or failed query.
fn record(core: &mut Core, io: &Io, gather: &Gather, outcome: Outcome) {
    capture::ended(core, io, &whole(gather, io), Some(&gather.request), outcome);
}

/// The original request, whose parts went to nodes at once.
fn whole(gather: &Gather, io: &Io) -> Pending {
    Pending {
        client: gather.client,
        pool: gather.pool,
        stream: gather.stream,
        plan: gather.plan,
        received_ns: gather.received_ns,
        sent_ns: gather.received_ns,
        ..Pending::own(io.now_ns(), Purpose::Client, opcode::EXECUTE)
    }
}

/// Answers the request, because all parts have arrived.
fn finish(core: &mut Core, io: &mut Io, key: usize) {
    let Some(gather) = core.retries.multigets.gathers.get(key) else { return };
    let answers: Vec<&Rows> = gather.answers.iter().flatten().collect();
    let mut wanted = gather.wanted;
    match core.retries.multigets.mistake {
        Some(Mistake::PagesIgnored) => wanted.page_rows = None,
        Some(Mistake::LimitIgnored) => wanted.limit = None,
        _ => {}
    }
    match merge::merge(&wanted, &answers, core.context.config.frame_bytes_max as usize) {
        Ok(merged) => {
            let Some(gather) = core.retries.multigets.remove(key) else { return };
            core.retries.multigets.won(&gather.id);
            if io.now_ns().saturating_sub(gather.received_ns) >= core.context.slow_query_ns {
                record(core, io, &gather, Outcome::Ok);
            }
            let (stream, flags) = (gather.stream, merged.flags);
            let answer = Answer { stream, flags, opcode: opcode::RESULT, body: &merged.body };
            let (pending, bytes_in) = (whole(&gather, io), gather.request.len());
            reply::pass_on_with(core, io, &pending, bytes_in, &answer, Outcome::Ok);
        }
        Err(why) => lose(core, io, key, why),
    }
}

/// Answers the request with a node's error.
fn refuse(core: &mut Core, io: &mut Io, key: usize, flags: u8, body: &[u8]) {
    let Some(gather) = core.retries.multigets.remove(key) else { return };
    record(core, io, &gather, Outcome::Error);
    let answer = Answer { stream: gather.stream, flags, opcode: opcode::ERROR, body };
    let (pending, bytes_in) = (whole(&gather, io), gather.request.len());
    reply::pass_on_with(core, io, &pending, bytes_in, &answer, Outcome::Error);
}

/// Gives up the bet: drops the parts, and sends the original whole.
pub(crate) fn lose(core: &mut Core, io: &mut Io, key: usize, why: Lost) {
    let Some(gather) = core.retries.multigets.remove(key) else { return };
    core.context.metrics.multigets.lost.of(why).add(1);
    if why != Lost::Unsent {
        core.retries.multigets.pause(gather.id, io.now_ns());
    }
    send_whole(core, io, &gather);
}

fn send_whole(core: &mut Core, io: &mut Io, gather: &Gather) {
    if core.clients.version_of(gather.client).is_none() {
        core.context.metrics.in_flight.sub(1);
        core.clients.tenants.end(gather.plan.tenant, 0);
        return;
    }
    let pending = whole(gather, io);
    if core.context.is_too_late(io, &pending.plan, pending.received_ns) {
        return failure::fail(
            core,
            io,
            &pending,
            Outcome::TimedOut,
            "the nodes did not answer in time",
        );
    }
    if mode_change::is_taken(core, io, &pending, &gather.request) {
        return failure::fail(core, io, &pending, Outcome::Intercepted, mode_change::WHY);
    }
    let mut choose = |plan: &Plan| {
        let (router, links) = (&mut core.router, &core.links);
        route::choose(router, links, gather.pool, ClientRef::PROXY, plan, None, WhenFull::Fails)
    };
    let choice = match choose(&gather.plan) {
        // The original cannot wait as a client's next query can; any node with room will do.
        Choice::Full(_) => choose(&Plan { placement: None, ..gather.plan }),
        choice => choice,
    };
    match choice {
        Choice::Link(link)
            if aggregate::send(
                &mut core.links,
                &mut core.retained,
                io,
                link,
                pending,
                &gather.request,
            ) => {}
        Choice::Link(_) | Choice::Full(_) => {
            failure::fail(core, io, &pending, Outcome::Overloaded, "the nodes are overloaded");
        }
        Choice::Nothing => {
            failure::fail(core, io, &pending, Outcome::LinkLost, "no node can be reached")
        }
    }
}
