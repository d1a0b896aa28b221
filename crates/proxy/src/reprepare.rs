//! UNPREPARED: a node does not know a statement that clients prepared through this proxy. The statement is prepared on
//! that node, in the keyspace it was prepared in, and the request sent again.
//!
//! What this may never do:
//! - Hide from a client what only preparing again can tell it. Where the node's answer to PREPARE shows that what the
//!   client believes of the statement is no longer so (types of its bind markers; columns of its result, in version 5 by
//!   the id that its EXECUTE carries), the client gets UNPREPARED.
//! - Trust that the same text has the same id everywhere. A node that makes another one is not asked twice.
//! - Multiply the work of a node that keeps nothing: each statement of a request is prepared on a node once, one of them
//!   twice, on two nodes at most.
//! - Say that a request's fate is unknown if it is not. No node that answered has carried it out as long as it is here, so
//!   that where a repair cannot go on its client gets UNPREPARED, whatever the reason, and the driver prepares and asks again.
//! - Say that a request was not carried out if it had been sent before to a node that was lost with it: a driver that
//!   prepares and asks again might give it another time.
//!
//! Cold code: a request comes here at most a few times in its life, and then its bytes are copied.

use std::sync::Arc;

use shunt_reactor::{ConnId, Io};
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Batch, BatchStatement, ErrorDetails, ErrorMessage, Execute, ResultMessage};
use shunt_wire::cql::message::{encode, error_code, result_kind, split_request_prefix, split_response_prefix};

use crate::core::Core;
use crate::disaggregate::Answer;
use crate::failure::may_have_changed;
use crate::limits;
use crate::metrics::Outcome;
use crate::node::{Pending, PoolId, PoolKey, Purpose, Retained, Role};
use crate::prepared::{PreparedStatement, Shape};
use crate::repair::SentOf;

/// A request whose statement is being prepared again on the node it went to.
pub(crate) struct Repair {
    pending: Pending,
    /// Its bytes.
    body: Vec<u8>,
    /// Link it goes back to, and that link's node.
    link: u32,
    conn: ConnId,
    node: NodeId,
    statement: Arc<PreparedStatement>,
    /// The PREPARE must go out in the keyspace of the one before: in the request's own it got another id.
    in_first_keyspace: bool,
    pub(crate) deadline_ns: u64,
}

impl Repair {
    /// Whose links the request travels on.
    pub(crate) fn pool(&self) -> PoolId {
        self.pending.pool
    }
}

/// What the answer to a repair's PREPARE says.
enum Again {
    /// The node knows the statement as the client does.
    Same,
    /// Under another id.
    AnotherId,
    /// Not as the client knows it.
    Changed,
}

impl Core {
    /// An ERROR answered a client's request. If it is UNPREPARED and the statement is known, prepares it on that node
    /// and sends the request again; `false` leaves the error to the client.
    pub(crate) fn repair_unprepared(
        &mut self,
        io: &mut Io,
        key: u32,
        pending: &Pending,
        flags: u8,
        body: &[u8],
    ) -> bool {
        let Ok((_, body)) = split_response_prefix(flags, body) else { return false };
        if error_code::peek(body) != Some(error_code::UNPREPARED) {
            return false;
        }
        let version = self.version_of(key);
        let Ok(error) = ErrorMessage::decode(version, body) else { return false };
        let Some(id) = error.unprepared_id() else { return false };
        let Some(statement) = self.prepared.statement(id).filter(|known| known.text.is_some()) else { return false };
        if self.repairs.len() >= limits::REPAIRS_MAX {
            return false;
        }
        let Some(link) = self.links.get(key as usize) else { return false };
        let (node, conn) = (link.node, link.conn);
        let Some(bytes) = self.retained_bytes_of(io.sent_of(conn, pending.retained), pending.retained) else {
            return false;
        };
        let mut pending = Pending { retained: Retained::Nothing, ..*pending };
        if !may_be_prepared(version, &pending, &bytes) {
            return self.give_to_another(io, node, pending, &bytes);
        }
        self.metrics.outcomes.of(Outcome::Reprepared).add(1);
        pending.reprepares += 1;
        let deadline_ns = pending.received_ns + self.timeout_ns(&pending.plan);
        let in_first_keyspace = !statement.names_keyspace || self.keyspace_of(key) == statement.keyspace.as_deref();
        let repair = Repair { pending, body: bytes, link: key, conn, node, statement, in_first_keyspace, deadline_ns };
        let ticket = self.next_ticket();
        self.repairs.insert(ticket, repair);
        self.continue_repair(io, ticket);
        true
    }

    /// The keyspace of what a link's clients ask.
    fn keyspace_of(&self, link: u32) -> Option<&str> {
        let link = self.links.get(link as usize)?;
        self.pools.get(link.pool)?.key.keyspace.as_deref()
    }

    /// A node does not keep what is prepared on it, or not under the id that clients know: another one may. `false` when
    /// there is none, or this is not the first.
    fn give_to_another(&mut self, io: &mut Io, node: NodeId, pending: Pending, body: &[u8]) -> bool {
        let Some(pool) = self.pools.get(pending.pool) else { return false };
        let is_another =
            |key: u32| self.links.get(key as usize).is_some_and(|link| link.node != node && link.is_ready());
        if pending.retries > 0 || !pool.links().any(is_another) {
            return false;
        }
        self.send_away(io, node, Pending { reprepares: 0, ..pending }, body);
        true
    }

    /// Sends the PREPARE of a repair, on a link whose keyspace is the one the statement is to be prepared in.
    pub(crate) fn continue_repair(&mut self, io: &mut Io, key: u32) {
        let Some(target) = self.link_to_prepare_on(io, key) else { return };
        let Some(repair) = self.repairs.get(&key) else { return };
        let statement = Arc::clone(&repair.statement);
        let mut body = Vec::new();
        let version = self.version_of(target);
        let explicit = statement.keyspace.as_deref().filter(|_| statement.explicit_keyspace && version >= 5);
        encode::prepare(&mut body, version, statement.text.as_deref().unwrap_or_default(), explicit);
        let pending = self.own_request(io, Purpose::Reprepare { repair: key }, opcode::PREPARE);
        if !self.send_on_link(io, target, pending, &body) {
            self.fail_repair(io, key);
        }
    }

    /// The link itself if its pool has the right keyspace, or the statement's text says which it means; else one of a
    /// sister pool to the same node. `None`: failed, or waiting for that link to open.
    fn link_to_prepare_on(&mut self, io: &mut Io, key: u32) -> Option<u32> {
        let repair = self.repairs.get(&key)?;
        let (link, node, statement) = (repair.link, repair.node, &repair.statement);
        let Some(found) = self.links.get(link as usize).filter(|found| found.conn == repair.conn) else {
            self.fail_repair(io, key);
            return None;
        };
        let pool = self.pools.get(found.pool)?;
        let explicit = statement.explicit_keyspace && pool.key.version >= 5;
        let in_keyspace = pool.key.keyspace.as_deref() == statement.keyspace.as_deref();
        if explicit || in_keyspace || !repair.in_first_keyspace {
            return Some(link);
        }
        let verified_ns = pool.verified_ns;
        let sister = PoolKey { keyspace: statement.keyspace.as_deref().map(Arc::from), ..pool.key.clone() };
        let sister = self.pool_for(io, &sister, verified_ns);
        let Some(pool) = sister.and_then(|sister| self.pools.get(sister)) else {
            self.fail_repair(io, key);
            return None;
        };
        // A node that has just refused the keyspace, because it is gone, say, is not asked for each request.
        if let Some(sister) = sister
            && pool.links_to(node).next().is_none()
            && pool.may_ask(node, io.now_ns())
        {
            self.open_link(io, sister, node, Role::Serves);
        }
        let Some(target) = self.pools.get(sister?)?.links_to(node).next() else {
            self.fail_repair(io, key);
            return None;
        };
        let target_link = self.links.get_mut(target as usize)?;
        if target_link.is_ready() {
            return Some(target);
        }
        target_link.on_ready.push(key);
        None
    }

    /// The node answered the PREPARE of a repair.
    pub(crate) fn reprepared(&mut self, io: &mut Io, link: u32, key: u32, answer: &Answer<'_>) {
        let Some(mut repair) = self.repairs.remove(&key) else { return };
        if answer.opcode == opcode::ERROR {
            self.repair_refused(io, link, &repair, answer);
            return;
        }
        match self.compare(link, &repair, answer) {
            Again::Same => {}
            Again::Changed => {
                let why = "Shunt: this statement's columns have changed since it was prepared; prepare it again";
                self.refuse_as_unprepared(io, &repair, Outcome::Error, why);
                return;
            }
            Again::AnotherId if !repair.in_first_keyspace => {
                repair.in_first_keyspace = true;
                self.repairs.insert(key, repair);
                self.continue_repair(io, key);
                return;
            }
            // Cassandra 4 and 5 keep a statement under two ids, with and without the session's keyspace, and tell one of
            // them: it may know the other. If it does not, to prepare it once more would not help.
            Again::AnotherId => repair.pending.reprepares = u8::MAX,
        }
        if !self.links.get(repair.link as usize).is_some_and(|link| link.conn == repair.conn && link.is_ready())
            || !self.send_on_link(io, repair.link, repair.pending, &repair.body)
        {
            self.send_elsewhere(io, repair.pending, &repair.body);
        }
    }

    /// The statement cannot be prepared any more (its table is gone, say): the node's words are the answer.
    fn repair_refused(&mut self, io: &mut Io, link: u32, repair: &Repair, answer: &Answer<'_>) {
        let (max, mut plain) = (self.config.frame_bytes_max, Vec::new());
        let body = self.plain_body(link, answer.flags, answer.body, max, &mut plain).unwrap_or_default();
        if !self.refused_after_all(io, &repair.pending, answer.flags, body) {
            self.deliver(io, repair.pending.recipient(), answer, Outcome::Error);
        }
    }

    /// What a node prepared, beside what the client asked for and believes of it.
    fn compare(&mut self, link: u32, repair: &Repair, answer: &Answer<'_>) -> Again {
        let (max, mut plain) = (self.config.frame_bytes_max, Vec::new());
        let Some(body) = self.plain_body(link, answer.flags, answer.body, max, &mut plain) else { return Again::Same };
        let Ok((_, rest)) = split_response_prefix(answer.flags, body) else { return Again::Same };
        let version = self.version_of(link);
        let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(version, rest) else {
            // Metadata of a later kind than we know.
            let is_same = result_kind::prepared_id(rest).is_none_or(|id| *id == *repair.statement.id);
            return if is_same { Again::Same } else { Again::AnotherId };
        };
        if *prepared.id != *repair.statement.id {
            return Again::AnotherId;
        }
        let statement = self.prepared.statement(prepared.id).unwrap_or_else(|| Arc::clone(&repair.statement));
        let shape = Shape::of(version, &prepared).after(statement.shape);
        if shape != statement.shape {
            let login = self.pools.get(repair.pool()).and_then(|pool| pool.key.login.clone());
            let account = self.prepared.account(login.as_deref());
            self.prepared.learn(account, PreparedStatement::clone(&statement).with_shape(shape));
        }
        let knows_result = match (repair.pending.opcode, prepared.result_metadata_id) {
            (opcode::EXECUTE, Some(now)) => {
                metadata_id(version, &repair.pending, &repair.body).is_none_or(|id| id == now)
            }
            _ => true,
        };
        if shape.has_changed() || !knows_result { Again::Changed } else { Again::Same }
    }

    /// A repair cannot go on: the request is sent to another node once, else its client is asked to prepare.
    pub(crate) fn fail_repair(&mut self, io: &mut Io, key: u32) {
        let Some(repair) = self.repairs.remove(&key) else { return };
        if repair.pending.retries == 0 {
            self.send_away(io, repair.node, repair.pending, &repair.body);
        } else {
            let why = "Shunt: this statement could not be prepared on the node it was sent to; prepare it again";
            self.refuse_as_unprepared(io, &repair, Outcome::LinkLost, why);
        }
    }

    /// A repair has taken all the time that its request had.
    pub(crate) fn repair_is_late(&mut self, io: &mut Io, key: u32) {
        let Some(repair) = self.repairs.remove(&key) else { return };
        let why = "Shunt: the node did not prepare this statement in time; prepare it again";
        self.refuse_as_unprepared(io, &repair, Outcome::TimedOut, why);
    }

    fn refuse_as_unprepared(&mut self, io: &mut Io, repair: &Repair, outcome: Outcome, why: &str) {
        if may_have_changed(&repair.pending) {
            self.fail_request(io, &repair.pending, outcome, why);
            return;
        }
        let Some(client) = self.client(repair.pending.client) else {
            self.metrics.in_flight.sub(1);
            return;
        };
        let body = Self::unprepared(client.version, &repair.statement.id, why);
        let answer = Answer { stream: repair.pending.stream, flags: 0, opcode: opcode::ERROR, body: &body };
        self.deliver(io, repair.pending.recipient(), &answer, outcome);
    }

    /// Tells a client that a statement is not prepared, in words of ours.
    pub(crate) fn unprepared(version: u8, id: &[u8], message: &str) -> Vec<u8> {
        let mut body = Vec::new();
        ErrorMessage { code: error_code::UNPREPARED, message, details: ErrorDetails::Unprepared { id } }
            .put(&mut body, version);
        body
    }
}

/// Whether one more statement of a request may be prepared on the node it is on: as many as it names, and one of them
/// again, should the node have pushed it out meanwhile.
fn may_be_prepared(version: u8, pending: &Pending, body: &[u8]) -> bool {
    if pending.reprepares < 2 {
        return true;
    }
    if pending.opcode != opcode::BATCH || pending.reprepares >= limits::REPREPARES_PER_REQUEST_MAX {
        return false;
    }
    let Ok((_, body)) = split_request_prefix(pending.flags, body) else { return false };
    let Ok(batch) = Batch::decode(version, body) else { return false };
    let mut ids: Vec<&[u8]> = batch
        .children()
        .filter_map(|child| match child.statement {
            BatchStatement::Prepared(id) => Some(id),
            BatchStatement::Text(_) => None,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    usize::from(pending.reprepares) <= ids.len()
}

/// The id of the result's metadata that an EXECUTE says its client knows.
fn metadata_id<'b>(version: u8, pending: &Pending, body: &'b [u8]) -> Option<&'b [u8]> {
    let (_, body) = split_request_prefix(pending.flags, body).ok()?;
    Execute::decode(version, body).ok()?.result_metadata_id
}
