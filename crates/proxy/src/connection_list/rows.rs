//! A client, a link and a pool as the lists show them.

use shunt_admin::Label as _;
use shunt_reactor::Io;
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::printable::printable_to;

use super::{ClientRow, LinkRow, PoolRow};
use crate::client::{Client, Phase};
use crate::ids::{LinkKey, PoolId};
use crate::limits;
use crate::link::{Link, LinkWriter, Pool, Role, Step};
use crate::router::Router;

pub(super) fn client(router: &Router, io: &Io, client: &Client) -> ClientRow {
    let who = router.who(client);
    let session = io.session_info(client.conn);
    let first_name = session.and_then(|session| session.peer_names.first());
    let shown = |text: &str| printable_to(text, limits::NAME_SHOWN_BYTES_MAX).into();
    let times = client.traffic.times();
    let lz4 = client.lz4.then_some(Algorithm::Lz4);
    ClientRow {
        address: client.peer,
        local: client.local,
        stage: match client.phase {
            Phase::Startup => "ESTABLISHED",
            Phase::Authenticating => "AUTHENTICATING",
            Phase::Ready => "READY",
            Phase::TurnedAway => "REFUSED",
        },
        version: client.version,
        compression: client.compression.or(lz4).map(Algorithm::name),
        role: who.role,
        identity: who.identity,
        keyspace: who.keyspace,
        driver: client.driver.clone(),
        tls: session.map(|session| (session.version, session.cipher)),
        certificate: first_name.map(|name| shown(&name.to_string())),
        pool: client.pool.map(|pool| pool.0),
        paused: client.stalls.reasons().next().map(|reason| reason.text()),
        in_flight: client.in_flight,
        queries: client.traffic.queries(),
        queries_per_second: client.traffic.per_second(),
        errors: client.traffic.errors().total(),
        bytes: client.traffic.bytes(),
        backlog_bytes: io.backlog(client.conn),
        percentiles_us: (times.percentile_us(0.5), times.percentile_us(0.99)),
    }
}

pub(super) fn link(router: &Router, io: &Io, key: LinkKey, link: &Link) -> LinkRow {
    let cluster = router.cluster.as_ref();
    let node = cluster.and_then(|cluster| cluster.routing.node(link.node));
    let node = match node {
        Some(node) => std::net::SocketAddr::new(node.address.ip(), link.port).to_string(),
        None => router.node_named(link.node),
    };
    let since_ms = |at_ns: u64| io.now_ns().saturating_sub(at_ns) / 1_000_000;
    LinkRow {
        node,
        number: key.0,
        pool: link.pool.0,
        state: state(link),
        purpose: match link.role {
            Role::Serves => "serves",
            Role::Verifies => "verifies a login",
            Role::Replaces(_) => "replaces a link",
            Role::Renews(_) => "renews a link",
        },
        layout: match link.writer {
            LinkWriter::Envelopes => "envelopes",
            LinkWriter::Segments(_) => "segments",
            LinkWriter::Aggregate(_) => "aggregated",
        },
        version: link.version,
        tls: io.session_info(link.conn).map(|session| session.version),
        is_through_agent: link.via.is_some(),
        in_flight: (link.streams.len(), link.streams.max()),
        orphans: link.orphans,
        waiting: link.waiting_clients(),
        backlog_bytes: io.backlog(link.conn),
        retained_bytes: io.retained_bytes(link.conn) + link.copied_bytes,
        silent_ms: (link.last_received_ns > 0).then(|| since_ms(link.last_received_ns)),
        ready_ms: (link.ready_ns > 0).then(|| since_ms(link.ready_ns)),
    }
}

fn state(link: &Link) -> &'static str {
    match link.step {
        _ if link.retiring => "retiring",
        Step::Connecting => "connecting",
        Step::Agent => "agent",
        Step::Options => "options",
        Step::Startup => "startup",
        Step::Login => "login",
        Step::Identity => "identity",
        Step::Use => "use",
        Step::Ready if link.full => "full",
        Step::Ready => "ready",
    }
}

pub(super) fn pool(id: PoolId, pool: &Pool, io: &Io) -> PoolRow {
    let idle_ns = io.now_ns().saturating_sub(pool.idle_since_ns);
    PoolRow {
        number: id.0,
        role: pool.names.role.clone(),
        identity: pool.names.identity.clone(),
        keyspace: pool.names.keyspace.clone(),
        version: pool.key.version,
        compression: pool.key.compression.map(Algorithm::name),
        is_own: pool.key.is_own,
        clients: pool.clients,
        waiting: pool.waiting.len(),
        links: (pool.links_in_all(), pool.ready),
        is_unverified: pool.is_unverified(),
        idle_ms: (pool.clients == 0 && !pool.key.is_own).then_some(idle_ns / 1_000_000),
    }
}
