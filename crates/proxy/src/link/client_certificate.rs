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

use shunt_reactor::{CloseReason, Io};
use shunt_tls::{is_alert, is_of_own_certificate};

use crate::core::Core;
use crate::ids::LinkKey;
use crate::link::{Role, Step, handshake, lifecycle};

/// Number of ends in a row that are a verdict. A pool without a link asks a node at each tick, so
/// its clients get the verdict within a second.
const ENDS_MIN: u32 = 3;

/// Handles the end of a link's connection, or its failure to open.
pub(crate) fn lost(core: &mut Core, io: &mut Io, key: LinkKey, reason: CloseReason) {
    let Some(link) = core.links.get(key) else { return };
    let is_new = link.step != Step::Ready && matches!(link.role, Role::Serves | Role::Verifies);
    let pool = core.router.pools.get_mut(link.pool);
    let pool = pool.filter(|pool| is_new && pool.key.certificate.is_some());
    let (Some(pool), Some(end)) = (pool, End::of(reason)) else {
        return lifecycle::lost(core, io, key, reason);
    };
    pool.certificate_ends = pool.certificate_ends.saturating_add(1);
    let ends = pool.certificate_ends;
    let is_unanswered = matches!(link.step, Step::Connecting | Step::Options);
    let tls = (core.context.outgoing.nodes.as_deref(), is_unanswered);
    core.context.note_tls_end(io, tls, &core.router.node_named(link.node), reason);
    match end {
        End::Verdict(alert) => {
            let why =
                format!("Shunt: a node refused the certificate of this client's identity: {alert}");
            handshake::refuse_login(core, io, key, &why);
        }
        End::Doubtful(how) if ends >= ENDS_MIN => {
            let why = format!(
                "Shunt: nodes end each connection that shows the certificate of this client's \
                identity, and so probably refuse it: {how}"
            );
            handshake::refuse_login(core, io, key, &why);
        }
        End::Doubtful(_) => {
            let why = "it ended a connection that showed the certificate of an identity";
            handshake::turned_away(core, io, key, why, None);
        }
    }
}

/// The way in which a node has ended a connection.
enum End {
    /// It refuses the certificate, by this alert.
    Verdict(&'static str),
    /// It may refuse the certificate, or have another reason.
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
            (pool.certificate_content, pool.certificate_ends) = (content, 0);
        }
    }
}
