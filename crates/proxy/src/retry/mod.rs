//! Second attempts, by cause.
//!
//! | cause | module |
//! |---|---|
//! | the node does not know the statement | [`unprepared`] |
//! | the node turned the request away before it began | [`refusals`] |
//! | the link to the node was lost | [`lost_links`] |
//! | the deadline is over | [`timeouts`] |
//! | the node is late with a read | [`hedge`] |
//! | the nodes do not agree on the schema yet | [`agreement`] |
//!
//! [`repeat`] decides which requests may be sent twice, [`mode_change`] which must not go to nodes
//! any more, [`another_node`] sends them to another node, and [`failure`] tells the client what is
//! known if there is no second attempt. All of this is cold: a request comes here at most a few
//! times in its life, and then its bytes are copied.

pub(crate) mod agreement;
pub(crate) mod agreement_queue;
pub(crate) mod another_node;
pub(crate) mod timeouts;
pub(crate) mod failure;
pub(crate) mod hedge;
pub(crate) mod lost_links;
pub(crate) mod repairs;
pub(crate) mod repeat;
pub(crate) mod mode_change;
pub(crate) mod refusals;
pub(crate) mod unprepared;

use std::sync::Arc;

use shunt_reactor::SentLog;
use shunt_topology::NodeId;

use crate::client::account::Account;
use crate::ids::{LinkRef, PoolId, Ticket};
use crate::link::Pending;
use crate::multiget::Multigets;
use crate::prepared::PreparedStatement;
use crate::retry::agreement_queue::AgreementQueue;
use crate::retry::repairs::Repairs;

/// The owner of requests that wait for an event before they can go on.
#[derive(Default)]
pub(crate) struct Retries {
    /// Requests whose statement is being prepared again.
    pub(crate) repairs: Repairs,
    /// Answers to schema changes that wait for agreement.
    pub(crate) awaiting: AgreementQueue,
    tickets: u32,
    /// Requests that were in flight on lost links, to be handled before the event that ended them
    /// is over.
    pub(crate) lost: Vec<LostRequests>,
    /// Repairs that waited for a link, and whether it opened; handled likewise.
    pub(crate) linked: Vec<(Ticket, bool)>,
    /// Split requests, which may have to be sent whole.
    pub(crate) multigets: Multigets,
}

impl Retries {
    pub(crate) fn next_ticket(&mut self) -> Ticket {
        self.tickets = self.tickets.wrapping_add(1);
        Ticket(self.tickets)
    }

    /// True if a lost, split or waiting request belongs to this pool.
    pub(crate) fn refers_to(&self, pool: PoolId) -> bool {
        let lost = self.lost.iter().flat_map(|lost| &lost.requests);
        lost.chain(self.repairs.iter().map(|(_, repair)| &repair.pending))
            .any(|pending| pending.pool == pool)
            || self.multigets.refers_to(pool)
    }
}

/// The requests that were in flight on a lost link.
pub(crate) struct LostRequests {
    pub(crate) requests: Vec<Pending>,
    /// The buffers from which they were sent.
    pub(crate) log: SentLog,
}

/// A request whose statement is being prepared again on the node it went to.
pub(crate) struct Repair {
    pub(crate) pending: Pending,
    /// Bytes of the request.
    pub(crate) body: Vec<u8>,
    /// Link that the request returns to.
    pub(crate) link: LinkRef,
    /// Node of the link.
    pub(crate) node: NodeId,
    pub(crate) statement: Arc<PreparedStatement>,
    /// True if the PREPARE must go out in the keyspace of the first one: in the request's own it
    /// got another id.
    pub(crate) in_first_keyspace: bool,
    pub(crate) deadline_ns: u64,
}

impl Repair {
    /// Bytes in memory, and in its link's buffer once its PREPARE is sent.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.body.len(), &self.statement)
    }

    pub(crate) fn bytes_of(body: usize, statement: &PreparedStatement) -> usize {
        size_of::<Self>() + body + statement.text.as_ref().map_or(0, |text| text.len())
    }
}

/// The answer to a schema change that waits until the nodes agree.
pub(crate) struct AwaitingAgreement {
    pub(crate) pending: Pending,
    /// Role of its client.
    pub(crate) account: Account,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) body: Vec<u8>,
    pub(crate) deadline_ns: u64,
}

impl AwaitingAgreement {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len()
    }
}
