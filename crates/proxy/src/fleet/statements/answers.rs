//! Answers to the proxy's own statements go to the modules that sent the statements.

use shunt_reactor::Io;
use shunt_wire::cql::compression;
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::{ErrorMessage, ResultMessage, split_response_prefix};

use crate::client::inbox::Kept;
use crate::core::Core;
use crate::fleet::clock::sampling;
use crate::fleet::membership::run;
use crate::fleet::rights;
use crate::fleet::statements::{Heard, VERSION, Whose};
use crate::ids::PoolId;
use crate::limits;
use crate::locks::{foreign_rows, permission, rows, sweep};
use crate::multiget::gather;
use crate::transactions;
use crate::transactions::part::Part;

/// Delivers the answers of an event. Statements that they cause are sent, and answers to those are
/// delivered too.
#[cold]
pub(crate) fn settle(core: &mut Core, io: &mut Io) {
    let mut inbox = std::mem::take(&mut core.clients.inbox);
    for answer in inbox.iter() {
        if answer.is_part {
            gather::heard(core, io, &answer);
        } else {
            take(core, io, &answer);
        }
    }
    inbox.clear();
    if core.clients.inbox.is_empty() {
        core.clients.inbox = inbox;
    }
}

fn take(core: &mut Core, io: &mut Io, answer: &Kept<'_>) {
    let Some(whose) = core.fleet.statements.in_flight.remove(answer.stream as usize) else {
        return;
    };
    let mut plain = Vec::new();
    let heard = match whose {
        Whose::Right { pool, .. } | Whose::Transaction(Part::MayChange { pool, .. })
            if answer.flags & flag::COMPRESSION != 0 =>
        {
            match decompress(core, pool, answer, &mut plain) {
                Some(answer) => read(&answer),
                None => Heard::Unreadable,
            }
        }
        _ => read(answer),
    };
    if let Heard::Error(error) = &heard
        && let Some(id) = error.unprepared_id()
    {
        core.fleet.statements.forget_id(id);
    }
    match whose {
        Whose::Prepare(place, number) => {
            let id = match heard {
                Heard::Result(ResultMessage::Prepared(prepared)) => Some(prepared.id),
                _ => None,
            };
            core.fleet.statements.prepared(place, number, id);
        }
        Whose::Write(id) => rows::written(core, io, id, &heard),
        Whose::Load(load) => rows::loaded(core, io, load, &heard),
        Whose::Sweep(known) => sweep::take_page(core, io, known, &heard),
        Whose::Deletion(key) => sweep::deleted(core, io, key, &heard),
        Whose::Fleet(id) => run::take_answer(core, io, id, &heard),
        Whose::Clock { node, sent_ns } => sampling::take_answer(core, io, (node, sent_ns), &heard),
        Whose::Foreign(table) => foreign_rows::take_answer(core, table, &heard),
        Whose::Transaction(part) => {
            let raw =
                split_response_prefix(answer.flags, answer.body).map_or(&[][..], |(_, body)| body);
            transactions::results::deliver(core, io, part, &heard, raw);
        }
        Whose::Right { pool, number, .. } => {
            if let Some(answer) = rights::ask::take_answer(core, (pool, number), &heard) {
                permission::take_answer(core, io, &answer);
                transactions::permission::take_answer(core, io, &answer);
            }
        }
    }
}

/// Decompresses an answer in the pool of a client that asked for compression (v3 and v4).
fn decompress<'a>(
    core: &Core,
    pool: PoolId,
    answer: &Kept<'_>,
    plain: &'a mut Vec<u8>,
) -> Option<Kept<'a>> {
    let algorithm = core.router.pools.get(pool)?.key.compression?;
    compression::decompress(algorithm, answer.body, limits::REQUEST_BYTES_MAX, plain).ok()?;
    Some(Kept { flags: answer.flags & !flag::COMPRESSION, body: plain, ..*answer })
}

fn read<'a>(answer: &Kept<'a>) -> Heard<'a> {
    let Ok((_, body)) = split_response_prefix(answer.flags, answer.body) else {
        return Heard::Unreadable;
    };
    match answer.opcode {
        opcode::RESULT => {
            ResultMessage::decode(VERSION, body).map_or(Heard::Unreadable, Heard::Result)
        }
        opcode::ERROR => {
            ErrorMessage::decode(VERSION, body).map_or(Heard::Unreadable, Heard::Error)
        }
        _ => Heard::Unreadable,
    }
}
