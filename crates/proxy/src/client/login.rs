//! Logging in, and USE: both move a client from one pool to another.
//!
//! The proxy checks no password. It carries a client's SASL answer to a node; only if the node says
//! AUTH_SUCCESS does the client join the pool of links opened with exactly that answer, as the node
//! reads it ([`token_as_read`]). The answer stays in memory to open that pool's other links. That
//! works for mechanisms that take one step, such as PLAIN of Cassandra's PasswordAuthenticator; the
//! proxy refuses a mechanism with challenges, with an error that says so. It believes a successful
//! login for `auth_cache_ms`, as Cassandra's own `credentials_validity` does, so that thousands of
//! clients starting at once do not cost a node thousands of password hashes.

use std::collections::BTreeSet;
use std::sync::Arc;

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{ErrorMessage, Query, encode, split_request_prefix};
use shunt_wire::cql::statement::{TEXT_BYTES_MAX, classify};

use crate::client::account::{LoginToken, token_as_read};
use crate::client::login_line::HeldLogin;
use crate::client::{Client, Stall, Switch, closing};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::ids::{ClientRef, LinkKey, PoolId};
use crate::limits;
use crate::link::{NodeState, PoolKey, Role, Shortage, Step, open, pools};
use crate::metrics::{Closing, Outcome, Refusal};
use crate::plan::Plan;
use crate::reply;
use crate::tenants::placing;

/// Takes a client's AUTH_RESPONSE.
pub(crate) fn take_login(core: &mut Core, io: &mut Io, slot: u32, stream: i16, token: &[u8]) {
    let Some(client) = core.clients.get(slot) else { return };
    let of_ring = core.router.cluster.as_ref().and_then(|cluster| cluster.authenticator.as_deref());
    if token.len() > limits::LOGIN_BYTES_MAX {
        let (length, max) = (token.len(), limits::LOGIN_BYTES_MAX);
        let why = format!("Shunt: a login has {length} bytes; the limit is {max}");
        closing::refuse(core, io, slot, stream, &Fault::invalid(why));
        return;
    }
    let token = token_as_read(token, of_ring.or(core.router.login_asked.as_deref()));
    let key = PoolKey {
        login: Some(LoginToken::new(token.into())),
        identity: None,
        certificate: None,
        version: client.version,
        keyspace: None,
        compression: client.compression,
        no_compact: client.no_compact,
        is_own: false,
    };
    let deadline_ns = io.now_ns() + core.context.config.connect_timeout_ms * 1_000_000;
    request_login(core, io, slot, HeldLogin::new(key, stream, deadline_ns));
}

/// Has a node check a client's login now, or as soon as there is room.
fn request_login(core: &mut Core, io: &mut Io, slot: u32, held: HeldLogin) {
    let Some(host) = core.clients.get(slot).map(|client| client.peer.counted_host()) else {
        return;
    };
    let is_next = !core.clients.login_line.has(host) || core.router.pools.knows(&held.key);
    let begun = if is_next { begin_login(core, io, slot, &held) } else { Err(Shortage::Logins) };
    match begun {
        Ok(()) => {}
        Err(Shortage::Logins) => hold_login(core, io, slot, held),
        Err(shortage) => closing::refuse_pool(core, io, slot, held.stream, shortage),
    }
}

/// Begins a login, if there is room for it.
fn begin_login(core: &mut Core, io: &mut Io, slot: u32, held: &HeldLogin) -> Result<(), Shortage> {
    let Some(host) = core.clients.get(slot).map(|client| client.peer.counted_host()) else {
        return Ok(());
    };
    let pools = &core.router.pools;
    let has_room = || pools.has_room_of(host) && pools.has_room_of_role(held.key.account());
    if !pools.knows(&held.key) && !has_room() {
        return Err(Shortage::Logins);
    }
    let id = pools::for_key(core, io, &held.key, 0)?;
    core.router.pools.set_tried_by(id, host);
    start_switch(core, io, slot, held.stream, id, true);
    let switch = core.clients.get_mut(slot).and_then(|client| client.switch.as_mut());
    if let Some(switch) = switch.filter(|switch| switch.pool == id) {
        switch.deadline_ns = held.deadline_ns;
    }
    Ok(())
}

fn hold_login(core: &mut Core, io: &mut Io, slot: u32, mut held: HeldLogin) {
    let reference = core.clients.reference(slot);
    let Some(host) = core.clients.get(slot).map(|client| client.peer.counted_host()) else {
        return;
    };
    held.place = core.clients.login_line.join(host, reference);
    if let Some(client) = core.clients.get_mut(slot) {
        client.held_login = Some(Box::new(held));
    }
    core.clients.stall(&core.context.metrics, io, slot, Stall::SWITCH);
}

/// Begins the logins in line for which there is room now, with this many attempts at most.
fn resume_line(core: &mut Core, io: &mut Io, attempts: usize) {
    let mut without_room = 0;
    for _ in 0..attempts {
        let Some((host, place, client)) = core.clients.login_line.first() else { return };
        if without_room >= core.clients.login_line.hosts() {
            return;
        }
        let held = core.clients.find_mut(client).and_then(|found| found.held_login.take());
        let begun = held.as_ref().map(|held| begin_login(core, io, client.slot, held));
        match (begun, held) {
            (Some(Err(Shortage::Logins)), Some(mut held)) => {
                // A host with room of its own waits for that of a role: its next login may be of
                // another role.
                if core.router.pools.has_room_of(host) {
                    core.clients.login_line.leave(host, place);
                    held.place = core.clients.login_line.join(host, client);
                } else {
                    without_room += 1;
                }
                core.clients.login_line.pass(host);
                if let Some(found) = core.clients.find_mut(client) {
                    found.held_login = Some(held);
                }
            }
            (Some(Err(shortage)), Some(held)) => {
                core.clients.login_line.leave(host, place);
                closing::refuse_pool(core, io, client.slot, held.stream, shortage);
            }
            _ => core.clients.login_line.leave(host, place),
        }
    }
}

/// Takes a request that is USE, as text or prepared. It never goes to a shared link, even if it is
/// malformed.
pub(crate) fn use_keyspace(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) {
    core.context.metrics.queries.of(plan.kind).add(1);
    core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
    let statement = core.router.prepared.shared(plan.statement);
    let asked = split_request_prefix(header.flags, body)
        .and_then(|(_, body)| Query::decode(header.version, body));
    let text = match (&statement, &asked) {
        (Some(statement), _) => statement.text.as_deref().unwrap_or_default(),
        (None, Ok(query)) => query.text,
        (None, Err(_)) => "",
    };
    match classify(text).keyspace {
        Some(keyspace) => take_use(core, io, slot, header.stream, &keyspace.to_string()),
        None if text.len() > TEXT_BYTES_MAX => {
            let (bytes, max) = (text.len(), TEXT_BYTES_MAX);
            let why = format!("Shunt: a USE has {bytes} bytes; the limit is {max}");
            reply::error(core, io, slot, header.stream, &Fault::invalid(why));
        }
        None => reply::error(
            core,
            io,
            slot,
            header.stream,
            &Fault::new(FaultKind::Syntax, "USE needs one keyspace name"),
        ),
    }
}

/// Carries out a client's USE: the keyspace belongs to its pool, never to a link that others share.
fn take_use(core: &mut Core, io: &mut Io, slot: u32, stream: i16, keyspace: &str) {
    if keyspace.len() > limits::KEYSPACE_NAME_BYTES_MAX {
        let (length, max) = (keyspace.len(), limits::KEYSPACE_NAME_BYTES_MAX);
        let why = format!("Shunt: no keyspace has a name of {length} bytes; the limit is {max}");
        reply::error(core, io, slot, stream, &Fault::invalid(why));
        return;
    }
    let Some(client) = core.clients.get(slot) else { return };
    let Some(pool) = client.pool.and_then(|pool| core.router.pools.get(pool)) else { return };
    let key = PoolKey { keyspace: Some(Arc::from(keyspace)), ..pool.key.clone() };
    let verified_ns = pool.verified_ns();
    match pools::for_key(core, io, &key, verified_ns) {
        Ok(id) => start_switch(core, io, slot, stream, id, false),
        Err(shortage) => closing::refuse_pool(core, io, slot, stream, shortage),
    }
}

/// Begins to move a client to a pool; the answer to its request follows when a node has accepted
/// the pool's login, or opened a link with its keyspace.
pub(super) fn start_switch(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    stream: i16,
    id: PoolId,
    login: bool,
) {
    let now = io.now_ns();
    let client = core.clients.reference(slot);
    let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
    let deadline_ns = now + core.context.config.connect_timeout_ms * 1_000_000;
    let Some(pool) = core.router.pools.get_mut(id) else { return };
    pool.ask_again();
    pool.clients += 1;
    let done = if login { pool.login_is_fresh(now, cache_ns) } else { pool.ready > 0 };
    if !done {
        pool.waiting.push(client);
    }
    if let Some(client) = core.clients.get_mut(slot) {
        client.switch = Some(Switch { pool: id, stream, login, deadline_ns });
    }
    if done {
        complete_switch(core, io, client, id);
        return;
    }
    core.clients.stall(&core.context.metrics, io, slot, Stall::SWITCH);
    if login {
        verify_login(core, io, id);
    } else {
        open::ensure_links(core, io, id);
    }
}

/// Has a node check the pool's login, on a separate connection if the pool has links already.
fn verify_login(core: &mut Core, io: &mut Io, id: PoolId) {
    let now = io.now_ns();
    let Some(pool) = core.router.pools.get_mut(id) else { return };
    if std::mem::replace(&mut pool.verifying, true) {
        return;
    }
    pool.asked_ns = now;
    if pool.verified_ns() == 0 {
        open::ensure_links(core, io, id);
        // The pool's own first link brings the answer. Open links logged in long ago.
        let is_opening = |key: LinkKey| opening_node(core, key).is_some();
        if core.router.pools.get(id).is_some_and(|pool| pool.links().any(is_opening)) {
            return;
        }
    }
    let asked = ask_another_node(core, io, id);
    if let Some(pool) = core.router.pools.get_mut(id) {
        // On failure the tick tries again until the clients' deadline, or the pool in its turn.
        pool.verifying = asked;
    }
}

/// The node of a link that is opening.
fn opening_node(core: &Core, key: LinkKey) -> Option<NodeId> {
    core.links.get(key).filter(|link| link.step != Step::Ready).map(|link| link.node)
}

/// Has another node check the pool's login, preferably one that answers other queries and has not
/// refused logins lately. Returns false if there is no such node, or no room for another login: the
/// pool is in line then.
fn ask_another_node(core: &mut Core, io: &mut Io, id: PoolId) -> bool {
    let now = io.now_ns();
    // Hundreds of pools may wait for room: the search for a node is for one that has it.
    if !open::has_room(core, id) {
        return false;
    }
    let (Some(cluster), Some(pool)) = (core.router.cluster.clone(), core.router.pools.get_mut(id))
    else {
        return false;
    };
    pool.asked_ns = now;
    core.router.cursor = core.router.cursor.wrapping_add(1);
    let (Some(pool), nodes) = (core.router.pools.get(id), cluster.routing.local_nodes()) else {
        return false;
    };
    let asked: BTreeSet<NodeId> =
        pool.opening_links().filter_map(|key| opening_node(core, key)).collect();
    let usable = (0..nodes.len())
        .map(|offset| nodes[(core.router.cursor + offset) % nodes.len()])
        .filter(|node| {
            core.links.health.is_usable(*node, now)
                && !asked.contains(node)
                && !open::is_being_identified(&core.links, *node)
        });
    let best = usable.min_by_key(|node| {
        let is_last = |state: &NodeState| state.silent || state.drained;
        core.links.node(*node).is_some_and(is_last)
            || pool.is_spared(*node, now)
            || pool.certificate_ends.are_of(*node)
    });
    best.is_some_and(|node| open::open(core, io, id, node, Role::Verifies))
}

/// True if a client waits until a node has accepted the pool's login.
fn is_awaited(core: &Core, id: PoolId) -> bool {
    let waits = |client: &ClientRef| {
        let switch = core.clients.find(*client).and_then(|found| found.switch);
        switch.is_some_and(|switch| switch.pool == id && switch.login)
    };
    core.router.pools.get(id).is_some_and(|pool| pool.waiting.iter().any(waits))
}

/// Has a node check a login that a client waits for, because no node does yet, or the last one has
/// not answered for a while.
fn pursue(core: &mut Core, io: &mut Io, id: PoolId) {
    let patience_ns =
        limits::LOGIN_PATIENCE_NS.min(core.context.config.connect_timeout_ms * 1_000_000 / 4);
    let Some(pool) = core.router.pools.get(id) else { return };
    if !pool.verifying {
        verify_login(core, io, id);
    } else if io.now_ns().saturating_sub(pool.asked_ns) > patience_ns {
        ask_another_node(core, io, id);
    }
}

/// Resumes the pools in line for room, after a link has opened or was given up.
pub(crate) fn resume(core: &mut Core, io: &mut Io) {
    for _ in 0..core.links.openings.waiting() {
        let Some(id) = core.links.openings.next() else { break };
        if is_awaited(core, id) {
            pursue(core, io, id);
        }
        open::ensure_links(core, io, id);
    }
    resume_line(core, io, limits::LOGINS_RESUMED);
}

/// Handles a node's acceptance of the pool's login.
pub(crate) fn login_accepted(core: &mut Core, io: &mut Io, id: PoolId) {
    let now = io.now_ns();
    let Some(pool) = core.router.pools.get_mut(id) else { return };
    pool.verifying = false;
    core.router.pools.set_verified(id, now.max(1));
    for client in take_switching(core, id, true) {
        complete_switch(core, io, client, id);
    }
}

/// Handles a node's refusal of the pool's login, or of USE: the waiting clients get the node's own
/// words.
pub(crate) fn switch_refused(
    core: &mut Core,
    io: &mut Io,
    id: PoolId,
    login: bool,
    error_body: &[u8],
) {
    let Some(pool) = core.router.pools.get_mut(id) else { return };
    if login {
        pool.verifying = false;
        core.router.pools.set_verified(id, 0);
    } else if pool.ready > 0 {
        return; // It works elsewhere: this node's schema lags.
    }
    for client in take_switching(core, id, login) {
        let Some(switch) = core.clients.find_mut(client).and_then(|found| found.switch) else {
            continue;
        };
        reply::message(core, io, client.slot, opcode::ERROR, switch.stream, error_body);
        if switch.login {
            core.context.metrics.clients_refused.of(Refusal::Authentication).add(1);
            // Code and message come first in every version.
            let words = ErrorMessage::decode(3, error_body)
                .map_or("the node refused it", |error| error.message);
            closing::close(core, io, client.slot, Closing::Authentication, words);
        } else {
            end_switch(core, io, client, switch.pool);
            core.clients.unstall(&core.context.metrics, client.slot, Stall::SWITCH);
        }
    }
    pools::remove_if_unused(core, id);
}

/// Ends a USE that failed.
pub(crate) fn end_switch(core: &mut Core, io: &mut Io, client: ClientRef, pool: PoolId) {
    if let Some(found) = core.clients.find_mut(client) {
        found.switch = None;
    }
    core.router.leave_pool(&mut core.links, io, pool, client.id);
}

/// Tries another node after the connection that checked a login broke, while a client waits.
pub(crate) fn verification_interrupted(core: &mut Core, io: &mut Io, id: PoolId) {
    let Some(pool) = core.router.pools.get_mut(id) else { return };
    if std::mem::replace(&mut pool.verifying, false) && !pool.waiting.is_empty() {
        verify_login(core, io, id);
    }
}

/// Takes, from the clients that wait for a pool, those whose login (or whose USE, if `login` is
/// false) concerns this pool. The others stay: they wait for a link, or have gone.
pub(crate) fn take_switching(core: &mut Core, id: PoolId, login: bool) -> Vec<ClientRef> {
    let Some(pool) = core.router.pools.get_mut(id) else { return Vec::new() };
    let waiting = std::mem::take(&mut pool.waiting);
    let (switching, others) = waiting.into_iter().partition(|client: &ClientRef| {
        let switch = core.clients.find(*client).and_then(|found| found.switch);
        switch.is_some_and(|switch| switch.pool == id && switch.login == login)
    });
    if let Some(pool) = core.router.pools.get_mut(id) {
        pool.waiting = others;
    }
    switching
}

/// Moves the client to its new pool.
pub(crate) fn complete_switch(core: &mut Core, io: &mut Io, client: ClientRef, id: PoolId) {
    let Some(found) = core.clients.find_mut(client) else { return };
    let Some(switch) = found.switch.filter(|switch| switch.pool == id) else { return };
    if let Err(fault) = placing::admit(core, io, client.slot, id) {
        refuse_switch(core, io, client, switch, &fault);
        return;
    }
    let Some(found) = core.clients.find_mut(client) else { return };
    found.switch = None;
    let old = found.pool.replace(switch.pool);
    let by_certificate = found.identity.is_some();
    if switch.login {
        core.clients.is_ready(client.slot);
    }
    if let Some(pool) = core.router.pools.get_mut(id) {
        pool.admitted = true;
    }
    if let Some(old) = old {
        core.router.leave_pool(&mut core.links, io, old, client.id);
    }
    let mut body = Vec::new();
    if switch.login && by_certificate {
        reply::message(core, io, client.slot, opcode::READY, switch.stream, &body);
        if let Some(found) = core.clients.find_mut(client).filter(|found| found.version >= 5) {
            found.segmented = true;
            // Within a read of this client, the read follows by itself, and puts its own reader
            // in the place of this one.
            found.reader.start_segments(found.lz4);
        }
    } else if switch.login {
        encode::auth_success(&mut body, None);
        reply::message(core, io, client.slot, opcode::AUTH_SUCCESS, switch.stream, &body);
    } else {
        let keyspace =
            core.router.pools.get(switch.pool).and_then(|pool| pool.key.keyspace.clone());
        encode::set_keyspace(&mut body, keyspace.as_deref().unwrap_or_default());
        reply::message(core, io, client.slot, opcode::RESULT, switch.stream, &body);
    }
    core.clients.unstall(&core.context.metrics, client.slot, Stall::SWITCH);
}

/// Ends the login or the USE of a client for which its tenant has no room.
fn refuse_switch(core: &mut Core, io: &mut Io, client: ClientRef, switch: Switch, fault: &Fault) {
    if !switch.login {
        reply::error(core, io, client.slot, switch.stream, fault);
        end_switch(core, io, client, switch.pool);
        core.clients.unstall(&core.context.metrics, client.slot, Stall::SWITCH);
        return;
    }
    core.context.metrics.clients_refused.of(Refusal::Tenant).add(1);
    if core.clients.find(client).is_some_and(|found| found.identity.is_some()) {
        closing::refuse_for(core, io, client.slot, switch.stream, Closing::Tenant, fault);
    } else {
        closing::close(core, io, client.slot, Closing::Tenant, &fault.why);
    }
}

/// Closes a client whose login no node has judged in time. Drivers take an ERROR to a password,
/// whatever its code, for a wrong one, and some never try again.
pub(super) fn close_unchecked(core: &mut Core, io: &mut Io, slot: u32) {
    let is_held = core.clients.get(slot).is_some_and(|client| client.held_login.is_some());
    let why = if is_held {
        "too many logins wait for a node to accept them, in all, of its role or of its address"
    } else {
        "no node could check its login in time"
    };
    core.context.metrics.clients_refused.of(Refusal::LoginUnchecked).add(1);
    if core.clients.get(slot).is_some_and(|client| client.identity.is_some()) {
        closing::close_identity(core, io, slot, Closing::LoginUnchecked, why);
    } else {
        closing::close(core, io, slot, Closing::LoginUnchecked, why);
    }
}

/// Gives up logins and USEs that no node answered in time.
pub(crate) fn expire_switches(core: &mut Core, io: &mut Io) {
    let now = io.now_ns();
    let is_late = |client: &Client| {
        let held = client.held_login.as_ref().map(|held| held.deadline_ns);
        let switch = client.switch.map(|switch| switch.deadline_ns);
        held.or(switch).is_some_and(|deadline_ns| now > deadline_ns)
    };
    let late = core.clients.iter().filter(|(_, client)| is_late(client));
    let late: Vec<(ClientRef, Option<Switch>)> =
        late.map(|(slot, client)| (ClientRef { slot, id: client.id }, client.switch)).collect();
    for (client, switch) in late {
        let Some(switch) = switch.filter(|switch| !switch.login) else {
            close_unchecked(core, io, client.slot);
            continue;
        };
        end_switch(core, io, client, switch.pool);
        let why = "no node could be reached in time to carry out the request";
        reply::error(core, io, client.slot, switch.stream, &Fault::overloaded(why));
        core.clients.unstall(&core.context.metrics, client.slot, Stall::SWITCH);
    }
    for id in core.router.pools.ids() {
        if is_awaited(core, id) {
            pursue(core, io, id);
        }
    }
    resume_line(core, io, limits::LOGINS_RESUMED_BY_TICK);
}
