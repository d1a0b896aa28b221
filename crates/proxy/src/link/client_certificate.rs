//! Links that show the certificate of an identity, and lose their connection.
//!
//! A certificate that nodes refuse must harm no other pool. They may say so by an alert, even after
//! this side has finished its handshake, or just close the connection. So the end of such a
//! connection, before the link is ready, counts against the pool and not against the node. Only a
//! node that was not reached at all counts as such.

use shunt_reactor::{CloseReason, Io};
use shunt_tls::is_of_own_certificate;

use crate::core::Core;
use crate::ids::LinkKey;
use crate::link::{Step, handshake, lifecycle};

/// Handles the end of a link's connection, or its failure to open.
pub(crate) fn lost(core: &mut Core, io: &mut Io, key: LinkKey, reason: CloseReason) {
    let Some(link) = core.links.get(key) else { return };
    let pool = core.router.pools.get(link.pool);
    let is_shown = pool.is_some_and(|pool| pool.key.certificate.is_some());
    let is_reached =
        !matches!(reason, CloseReason::ConnectFailed(_) | CloseReason::ConnectTimedOut);
    if !(is_shown && is_reached && link.step != Step::Ready) {
        return lifecycle::lost(core, io, key, reason);
    }
    let is_unanswered = matches!(link.step, Step::Connecting | Step::Options);
    let tls = (core.context.outgoing.nodes.as_deref(), is_unanswered);
    core.context.note_tls_end(io, tls, &core.router.node_named(link.node), reason);
    match reason {
        CloseReason::Session(fault) if is_of_own_certificate(fault) => {
            let why =
                format!("Shunt: a node refused the certificate of this client's identity: {fault}");
            handshake::refuse_login(core, io, key, &why);
        }
        _ => {
            let why = "it ended a connection that showed the certificate of an identity";
            handshake::turned_away(core, io, key, why, None);
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
        if let Some((_, content)) = core.context.config.identity.sessions_of(name, subject) {
            pool.certificate_content = content;
        }
    }
}
