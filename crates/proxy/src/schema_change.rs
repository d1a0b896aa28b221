//! Answers to schema changes, held until the nodes agree.
//!
//! The client's next query may go to another node, and must find the new schema there. A driver would wait for that
//! itself, but it sees one host only, the proxy, and one host always agrees with itself.

use shunt_reactor::Io;
use shunt_wire::cql::message::{ResultMessage, split_response_prefix};

use crate::control::state::ControlRequest;
use crate::core::Core;
use crate::disaggregate::Answer;
use crate::limits;
use crate::metrics::Outcome;
use crate::node::Pending;

/// The answer to a schema change that waits until the nodes agree.
pub(crate) struct AwaitingAgreement {
    pending: Pending,
    flags: u8,
    opcode: u8,
    body: Vec<u8>,
    deadline_ns: u64,
}

impl Core {
    /// Holds the answer to a schema change until the nodes agree, so that the client's next query, which may go to
    /// another node, finds the new schema. A driver would wait for that itself, but it only sees the proxy.
    pub(crate) fn hold_for_agreement(
        &mut self,
        io: &mut Io,
        key: u32,
        pending: &Pending,
        answer: &Answer<'_>,
        body: &[u8],
    ) {
        let rest = split_response_prefix(answer.flags & !1, body).map_or(&[][..], |(_, rest)| rest);
        let changed = matches!(ResultMessage::decode(4, rest), Ok(ResultMessage::SchemaChange(_)));
        let node = self.links.get(key as usize).map(|link| link.node);
        let Some(node) = node.filter(|_| changed && self.awaiting.len() < limits::REPAIRS_MAX) else {
            self.deliver(io, pending.recipient(), answer, Outcome::Ok);
            return;
        };
        let held = AwaitingAgreement {
            pending: *pending,
            flags: answer.flags,
            opcode: answer.opcode,
            body: answer.body.to_vec(),
            deadline_ns: io.now_ns() + limits::SCHEMA_AGREEMENT_NS,
        };
        let ticket = u64::from(self.next_ticket());
        self.awaiting.insert(ticket, held);
        let request = ControlRequest::AwaitSchemaAgreement { node, core: self.index, ticket };
        if self.control.try_send(request).is_err() {
            self.schema_agreed(io, ticket);
        }
    }

    /// The nodes agree, or will not: the client gets its answer.
    pub(crate) fn schema_agreed(&mut self, io: &mut Io, ticket: u64) {
        let Some(held) = self.awaiting.remove(&ticket) else { return };
        let answer = Answer { stream: held.pending.stream, flags: held.flags, opcode: held.opcode, body: &held.body };
        self.deliver(io, held.pending.recipient(), &answer, Outcome::Ok);
    }

    /// Answers that have waited long enough go out whether the nodes agree or not.
    pub(crate) fn expire_agreements(&mut self, io: &mut Io) {
        let now = io.now_ns();
        let late: Vec<u64> =
            self.awaiting.iter().filter(|(_, held)| now > held.deadline_ns).map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            self.schema_agreed(io, ticket);
        }
    }
}
