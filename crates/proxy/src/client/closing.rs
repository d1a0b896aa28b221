//! The end of a client: the proxy counts and logs every client that it closes, with its identity
//! and the reason.
//!
//! No query passes this module. [`close`] and [`abort`] are the only ways to close a client, so
//! that every client is closed for a reason.

use std::io::ErrorKind;

use shunt_admin::Label as _;
use shunt_reactor::{CloseReason, Io, SessionFault};

use crate::client::Phase;
use crate::client::census::{Group, Tally};
use crate::client::login_failures::Untold;
use crate::core::Core;
use crate::fault::{Fault, Party};
use crate::fleet::requests;
use crate::fleet::requests::cancel;
use crate::limits;
use crate::link::Shortage;
use crate::log_limits::Logged;
use crate::metrics::Closing;
use crate::reply;
use shunt_wire::printable::printable_to;

/// Error text for a client for which no pool is left.
const TOO_MANY_POOLS: &str = "too many different combinations of role, keyspace and protocol version are in use on this proxy";
/// Error text for a client whose role already has its share of the pools.
const TOO_MANY_OF_ROLE: &str = "Shunt: too many different combinations of this role with a keyspace and protocol version are in use on this proxy";
/// Error text for a login that could not be tried, while there is room for one that a node has
/// accepted.
const TOO_MANY_LOGINS: &str =
    "Shunt: too many logins wait for a node to accept them; ask again in a moment";

/// Handles a connection that the client or the network ended.
pub(crate) fn lost(core: &mut Core, io: &mut Io, slot: u32, reason: CloseReason) {
    if reason == CloseReason::Error(ErrorKind::TimedOut) {
        tell_closed(
            core,
            io,
            slot,
            Closing::Unreachable,
            "its host acknowledged no data, or had no room for it, for too long",
        );
    }
    if let CloseReason::Session(SessionFault(why)) = reason {
        tell_closed(core, io, slot, Closing::Tls, why);
    }
    gone(core, io, slot);
}

fn gone(core: &mut Core, io: &mut Io, slot: u32) {
    if let Some(client) = core.clients.get(slot) {
        core.connections.forget(client.conn);
        if let Some((handover, flow)) = core.handover.as_deref_mut().zip(client.flow()) {
            handover.client_left(flow, client.is_away);
        }
    }
    forget(core, io, slot);
}

/// Closes a client after sending what was written to it.
pub(crate) fn close(core: &mut Core, io: &mut Io, slot: u32, closing: Closing, why: &str) {
    tell_closed(core, io, slot, closing, why);
    let Some(client) = core.clients.get_mut(slot) else { return };
    let conn = client.conn;
    if std::mem::take(&mut client.dirty) {
        client.writer.finish(io.output(conn));
    }
    io.close(conn);
    gone(core, io, slot);
}

/// Closes a client of an identity. A client that waits for the answer to its STARTUP gets an ERROR:
/// some drivers notice no end of a connection before that answer, and wait for a minute. An ERROR
/// to a password would be taken for a wrong one.
pub(crate) fn close_identity(core: &mut Core, io: &mut Io, slot: u32, closing: Closing, why: &str) {
    let stream = core.clients.get(slot).and_then(|client| {
        let switch = client.switch.filter(|switch| switch.login).map(|switch| switch.stream);
        switch.or(client.held_login.as_ref().map(|held| held.stream))
    });
    match stream {
        Some(stream) => {
            let fault = Fault::overloaded(format!("Shunt: {why}"));
            refuse_for(core, io, slot, stream, closing, &fault);
        }
        None => close(core, io, slot, closing, why),
    }
}

/// Closes a client that would not take what is still written to it.
pub(crate) fn abort(core: &mut Core, io: &mut Io, slot: u32, closing: Closing, why: &str) {
    tell_closed(core, io, slot, closing, why);
    let Some(client) = core.clients.get(slot) else { return };
    if client.is_away {
        // A connection on its way in must hear of its end.
        io.close(client.conn);
    } else {
        io.abort(client.conn);
    }
    gone(core, io, slot);
}

fn forget(core: &mut Core, io: &mut Io, slot: u32) {
    let Some(client) = core.clients.try_remove(slot) else { return };
    if client.phase == Phase::Ready {
        let pool = client.pool.and_then(|pool| core.router.pools.get(pool));
        let group = Group::of(&client, pool.map(|pool| &pool.names));
        if let Some(census) = &mut core.reports.census {
            census.leave(slot, &client, &group);
        }
        core.reports.departed.leave(group, Tally::of_queries(&client), io.now_ns());
    }
    core.context.metrics.clients.sub(1);
    if client.tls.is_some() {
        core.context.metrics.tls_clients.sub(1);
    }
    if client.stalls.any() {
        core.context.metrics.clients_paused.sub(1);
    }
    for reason in client.stalls.reasons() {
        core.context.metrics.clients_stalled.of(reason).sub(1);
    }
    if client.lock_requests != requests::NONE {
        cancel::cancel_all(core, io, client.lock_requests);
    }
    for pool in [client.pool, client.switch.map(|switch| switch.pool)].into_iter().flatten() {
        core.router.leave_pool(&mut core.links, io, pool, client.id);
    }
}

/// Counts and logs a closed client. `why` may quote a client or a node.
fn tell_closed(core: &mut Core, io: &Io, slot: u32, closing: Closing, why: &str) {
    let Some(client) = core.clients.get(slot) else { return };
    core.context.metrics.clients_closed.of(closing).add(1);
    if closing == Closing::Version {
        // Each connection of a driver that begins with a newer version ends this way once; no
        // operator can change that.
        return;
    }
    let who = core.router.who(client);
    core.reports.refused_logins.note(&who, closing, why, io.now_ns());
    let admitted = if closing == Closing::Authentication {
        core.reports.login_failures.admit(who.role(), who.address, io.now_ns())
    } else {
        core.context.log_limits.admit(Logged::Closed(closing), io.now_ns())
    };
    let Some(suppressed) = admitted else { return };
    let why = printable_to(why, limits::REASON_SHOWN_BYTES_MAX);
    tracing::warn!(
        core = core.context.index,
        reason = closing.text(),
        address = %who.address,
        role = who.role(),
        keyspace = who.keyspace(),
        identity = who.identity.as_deref(),
        driver = who.driver(),
        in_flight = client.in_flight,
        why,
        suppressed,
        "closed a client"
    );
}

/// Logs the number of lines left out, for kinds without a line since.
pub(crate) fn tell_suppressed(core: &mut Core, io: &Io) {
    for Untold { of, suppressed } in core.reports.login_failures.tick(io.now_ns()) {
        let (role, host) = of.map(|(role, host)| (role, host.to_string())).unzip();
        let reason = Closing::Authentication.text();
        tracing::warn!(reason, role, host, suppressed, "more logins failed");
    }
    let context = &core.context;
    for (logged, suppressed) in context.log_limits.overdue(io.now_ns()) {
        let reason = logged.text();
        match logged {
            Logged::Closed(_) => {
                tracing::warn!(reason, suppressed, "more clients were closed for the same reason")
            }
            Logged::LongAnswer
            | Logged::NoAccess
            | Logged::LockRow
            | Logged::Permission
            | Logged::Transactions
            | Logged::Observed
            | Logged::Tls
            | Logged::LinkLost
            | Logged::LinkGivenUp
            | Logged::Renewal
            | Logged::ProxyGivenUp => {
                tracing::warn!(reason, suppressed, "the same happened more often")
            }
        }
    }
}

/// Handles a client's breach of the protocol: answers with ERROR, and closes this connection and no
/// other once that is sent.
#[cold]
pub(crate) fn refuse(core: &mut Core, io: &mut Io, slot: u32, stream: i16, fault: &Fault) {
    refuse_for(core, io, slot, stream, Closing::ProtocolError, fault);
}

/// Answers with ERROR and closes the connection, because no pool is left for the client.
pub(crate) fn refuse_pool(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    stream: i16,
    shortage: Shortage,
) {
    let why = match shortage {
        Shortage::Pools => TOO_MANY_POOLS,
        Shortage::OfRole => TOO_MANY_OF_ROLE,
        Shortage::Logins => TOO_MANY_LOGINS,
    };
    refuse_for(core, io, slot, stream, Closing::TooManyPools, &Fault::overloaded(why));
}

/// Answers with ERROR and closes the connection, for any reason.
pub(crate) fn refuse_for(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    stream: i16,
    closing: Closing,
    fault: &Fault,
) {
    let by_client = fault.kind.party() == Party::Client;
    core.context.metrics.client_protocol_errors.add(u64::from(by_client));
    let max = core.router.cluster.as_ref().map_or(4, |cluster| cluster.protocol_version_max);
    let Some(client) = core.clients.get_mut(slot) else { return };
    if client.version == 0 {
        client.version = max;
    }
    reply::error(core, io, slot, stream.max(0), fault);
    close(core, io, slot, closing, &fault.why);
}
