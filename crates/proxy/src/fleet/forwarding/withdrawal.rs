//! A request that waits at another proxy is withdrawn there when its client leaves, so that the
//! requests behind it wait no longer.
//!
//! An OPTIONS names it in its custom payload, by its stream id on the connection. An OPTIONS takes
//! no stream id and no quota and needs no permission, and a proxy that does not know the payload
//! answers it too. The request itself gets one answer, as if it were not withdrawn.
//!
//! This must never:
//! - withdraw another client's request. Here its ticket has to be the one that lies in its place on
//!   the connection; and there nothing is found but what came over the same connection. A stream id
//!   is used again only after its answer was read here, so that what comes with it later comes
//!   behind the OPTIONS;
//! - take a lock from a client that was told of it. A request is withdrawn only when nobody can
//!   be told of its answer any more; and what was granted before the OPTIONS came is not touched by
//!   it, but given back by its fence when the answer is read ([`super::connection`]), unless its
//!   owner has found it again;
//! - be relied on. One that is lost, late or not sent costs the rest of the wait.

use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{put, split_request_prefix};

use crate::core::Core;
use crate::fleet::forwarding::{PAYLOAD, STREAM, Step, VERSION, Via, WITHDRAWS};
use crate::limits;

/// Withdraws a request of a client that has left.
pub(crate) fn withdraw(core: &mut Core, io: &mut Io, ticket: Ticket, via: Via) {
    let Some(link) = core.fleet.peers.links.get_mut(via.link) else { return };
    let waits = link.sent.get(via.place).is_some_and(|sent| {
        sent.ticket == ticket && sent.lock.is_some_and(|lock| lock.operation.may_wait())
    });
    if !waits || link.unsent.len() + io.backlog(link.conn) > limits::LINK_BACKLOG_BYTES_MAX {
        return;
    }
    let out = if link.step == Step::Ready { io.output(link.conn) } else { &mut link.unsent };
    write(out, via.stream());
}

fn write(out: &mut Vec<u8>, stream: i16) {
    let [high, low] = stream.to_be_bytes();
    let mut body = Vec::new();
    put::bytes_map(&mut body, [(PAYLOAD, Some(&[WITHDRAWS, high, low][..]))]);
    let (flags, length) = (flag::CUSTOM_PAYLOAD, body.len() as u32);
    let header = Header {
        version: VERSION,
        response: false,
        flags,
        stream: STREAM,
        opcode: opcode::OPTIONS,
        length,
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(&body);
}

/// The stream id of the request that an OPTIONS withdraws, if there is one.
pub(crate) fn stream_of(flags: u8, body: &[u8]) -> Option<i16> {
    let (payload, _) = split_request_prefix(flags, body).ok()?;
    let (_, value) = payload?.iter().find(|(key, _)| *key == PAYLOAD)?;
    match value? {
        [WITHDRAWS, high, low] => Some(i16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_withdrawal_is_read_and_nothing_else_is() {
        for stream in [1, 255, 256, 16_384, i16::MAX] {
            let mut out = Vec::new();
            write(&mut out, stream);
            let header = Header::decode(&out).expect("a header");
            let body = &out[out.len() - header.length as usize..];
            assert_eq!(stream_of(header.flags, body), Some(stream));
            assert_eq!(stream_of(0, body), None, "without the flag there is no payload");
            for end in 0..body.len() {
                assert_eq!(stream_of(header.flags, &body[..end]), None, "cut after {end}");
            }
        }
        for value in
            [None, Some(&[][..]), Some(&[WITHDRAWS]), Some(&[WITHDRAWS, 0, 1, 0]), Some(&[1, 0, 1])]
        {
            let mut body = Vec::new();
            put::bytes_map(&mut body, [(PAYLOAD, value)]);
            assert_eq!(stream_of(flag::CUSTOM_PAYLOAD, &body), None, "{value:?}");
        }
    }
}
