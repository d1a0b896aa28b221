//! The steps of a review, and their timer.

use std::ops::Range;
use std::sync::Arc;

use shunt_reactor::Io;

use super::Review;
use super::index::IdentityIndex;
use crate::client::closing;
use crate::config::{Config, Identity};
use crate::core::Core;
use crate::ids::ClientRef;
use crate::limits;
use crate::link::PoolKey;
use crate::link::verdict::NODES_TAKE_CERTIFICATES;
use crate::metrics::Closing;
use crate::tenants::placing;

/// Timer of the next step.
pub(crate) const TIMER: u64 = 14;

/// The fault of a client under the present configuration.
enum Fault {
    /// Its names give it another identity, another role, or none.
    Identity,
    /// Nodes would accept the proxy's own certificate as its login.
    ProxysCertificate,
}

/// The clients that would have the role of the proxy's own certificate.
struct Lending {
    /// True if there may be such clients.
    is_possible: bool,
    /// True if nodes look at the login of a client that has one.
    takes_logins: bool,
}

impl Lending {
    fn of(core: &Core) -> Lending {
        let (config, router) = (&core.context.config, &core.router);
        let is_asked =
            router.cluster.as_ref().is_some_and(|cluster| cluster.authenticator.is_some());
        // Nodes that have begun to ask for a login take a client's own; STARTUP lets such clients
        // in.
        let asked = router.login_asked.as_deref();
        Lending {
            is_possible: !is_asked && config.lends_certificate(None),
            takes_logins: asked.is_some_and(|asked| !config.lends_certificate(Some(asked))),
        }
    }

    fn reaches(&self, key: &PoolKey) -> bool {
        let has_login = self.takes_logins && key.login.is_some();
        self.is_possible && !key.is_own && key.certificate.is_none() && !has_login
    }
}

/// Begins a review if the configuration asks for one that `former` did not ask for.
pub(crate) fn reloaded(core: &mut Core, io: &mut Io, former: &Config) {
    let config = &core.context.config;
    // Nodes may have changed their authenticator since the last reload.
    let is_due = former.tenant != config.tenant
        || former.identity != config.identity
        || config.lends_certificate(None);
    if is_due && Review::begin(&mut core.reports.review) {
        io.set_timer(io.now_ns(), TIMER);
    }
}

/// Judges the next clients.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    let slots = Review::step(&mut core.reports.review, core.clients.capacity());
    let faults = judge(core, io, slots);
    for (client, fault) in faults {
        if core.clients.find(client).is_none() {
            continue;
        }
        match fault {
            Fault::Identity => {
                let why = "its identity has another login now, or is gone from the configuration";
                closing::close_identity(core, io, client.slot, Closing::IdentityChanged, why);
            }
            Fault::ProxysCertificate => {
                let why = NODES_TAKE_CERTIFICATES;
                closing::close(core, io, client.slot, Closing::IdentityChanged, why);
            }
        }
    }
    if core.reports.review.is_some() {
        io.set_timer(io.now_ns() + limits::CENSUS_PAUSE_NS, TIMER);
    }
}

/// The faults of the clients in these slots. Clients without fault get their identity as it is now.
fn judge(core: &mut Core, io: &Io, slots: Range<usize>) -> Vec<(ClientRef, Fault)> {
    let config = Arc::clone(&core.context.config);
    let identities = IdentityIndex::new(&config.identity);
    let lending = Lending::of(core);
    let mut faults = Vec::new();
    for slot in slots {
        let slot = slot as u32;
        let reference = core.clients.reference(slot);
        placing::place(core, io, slot);
        let Some(client) = core.clients.get_mut(slot) else { continue };
        if let Some(before) = &client.identity {
            let names = io.session_info(client.conn).map(|session| &session.peer_names[..]);
            let now = identities.of(names.unwrap_or_default());
            if !now.is_some_and(|now| has_rights_of(now, before)) {
                faults.push((reference, Fault::Identity));
                continue;
            }
            client.identity = now.cloned();
        }
        let pool = client.pool.and_then(|pool| core.router.pools.get(pool));
        if pool.is_some_and(|pool| lending.reaches(&pool.key)) {
            faults.push((reference, Fault::ProxysCertificate));
        }
    }
    faults
}

fn has_rights_of(now: &Arc<Identity>, before: &Arc<Identity>) -> bool {
    Arc::ptr_eq(now, before) || now.has_rights_of(before)
}
