//! Links that show the certificate of an identity, and lose their connection.
//!
//! A certificate that nodes refuse must harm no other pool. So if a node ends such a connection
//! before the link is ready, that counts against the pool and not against the node. A node that was
//! not reached, or whose own certificate is wrong, counts as for other links.
//!
//! A node may refuse a certificate by an alert that says so, even after this side has finished its
//! handshake. The alert is a verdict, and the clients that wait get it. A node may also send no
//! alert, or another one. Cassandra with its native TLS library sends `internal_error`, whatever is
//! wrong with the certificate. A node that stops does the same. So only several ends in a row are a
//! verdict, with no link of the pool opened in between.
//!
//! One node must never keep an identity from the others. While the pool has an open link, an end is
//! a verdict only if every node that can be asked has ended one, alert or not.

use shunt_reactor::{CloseReason, Io};
use shunt_tls::{is_alert, is_of_own_certificate};

use crate::core::Core;
use crate::ids::{LinkKey, PoolId};
use crate::link::certificate_ends::CertificateEnds;
use crate::link::{Role, Step, handshake, lifecycle};

/// Handles the end of a link's connection, or its failure to open.
pub(crate) fn lost(core: &mut Core, io: &mut Io, key: LinkKey, reason: CloseReason) {
    let Some(link) = core.links.get(key) else { return };
    let is_new = link.step != Step::Ready && matches!(link.role, Role::Serves | Role::Verifies);
    let pool = core.router.pools.get_mut(link.pool);
    let pool = pool.filter(|pool| is_new && pool.key.certificate.is_some());
    let (Some(pool), Some(end)) = (pool, End::of(reason)) else {
        return lifecycle::lost(core, io, key, reason);
    };
    pool.certificate_ends.add(link.node);
    let (has_open_links, are_many) = (pool.ready > 0, pool.certificate_ends.are_many());
    let are_of_all = are_of_all(core, link.pool, io.now_ns());
    let is_unanswered = matches!(link.step, Step::Connecting | Step::Options);
    let tls = (core.context.outgoing.nodes.as_deref(), is_unanswered);
    core.context.note_tls_end(io, tls, &core.router.node_named(link.node), reason);
    match end {
        End::Verdict(alert) if !has_open_links || are_of_all => {
            let why =
                format!("Shunt: a node refused the certificate of this client's identity: {alert}");
            handshake::refuse_login(core, io, key, &why);
        }
        End::Doubtful(how) if are_many && are_of_all => {
            let why = format!(
                "Shunt: nodes end each connection that shows the certificate of this client's \
                identity, and so probably refuse it: {how}"
            );
            handshake::refuse_login(core, io, key, &why);
        }
        End::Verdict(_) | End::Doubtful(_) => {
            let why = "it ended a connection that showed the certificate of an identity";
            handshake::turned_away(core, io, key, why, None);
        }
    }
}

/// True if every node that can be asked has ended a connection of the pool, or enough of them have.
fn are_of_all(core: &Core, id: PoolId, now_ns: u64) -> bool {
    let (Some(pool), Some(cluster)) = (core.router.pools.get(id), &core.router.cluster) else {
        return false;
    };
    let local = cluster.routing.local_nodes().iter().filter_map(|node| cluster.routing.node(*node));
    // The failure of another pool's link gives a node a pause, but closes no link of this one.
    let voices = local.filter(|node| {
        let has_link = pool.links_to(node.id).next().is_some();
        node.up && (has_link || core.links.health.is_usable(node.id, now_ns))
    });
    pool.certificate_ends.are_of_all(pool.ready > 0, voices.map(|node| node.id))
}

/// The way in which a node has ended a connection.
enum End {
    /// The node refuses the certificate, by this alert.
    Verdict(&'static str),
    /// The node perhaps refuses the certificate, or has another reason.
    Doubtful(&'static str),
}

impl End {
    /// The end of a connection; `None` if its node was not reached, or is at fault.
    fn of(reason: CloseReason) -> Option<End> {
        match reason {
            CloseReason::Session(fault) if is_of_own_certificate(fault) => {
                Some(End::Verdict(fault.0))
            }
            CloseReason::Session(fault) if is_alert(fault) => Some(End::Doubtful(fault.0)),
            CloseReason::HandshakeEnded | CloseReason::Peer | CloseReason::Reset => {
                Some(End::Doubtful("they send no alert"))
            }
            CloseReason::Session(_)
            | CloseReason::ConnectFailed(_)
            | CloseReason::ConnectTimedOut
            | CloseReason::Error(_) => None,
        }
    }
}

/// Notes what new links of identities prove and verify by a new configuration. Links that prove or
/// verify something else are renewed.
pub(crate) fn reloaded(core: &mut Core) {
    for id in core.router.pools.ids() {
        let Some(pool) = core.router.pools.get_mut(id) else { continue };
        let Some(subject) = pool.key.certificate else { continue };
        let name = pool.key.identity.as_deref().unwrap_or_default();
        // Another certificate has another pool; the clients of this one are closed.
        let shown = core.context.config.identity.sessions_of(name, subject);
        if let Some((_, content)) = shown.filter(|shown| shown.1 != pool.certificate_content) {
            pool.certificate_content = content;
            pool.certificate_ends = CertificateEnds::default();
        }
    }
}
