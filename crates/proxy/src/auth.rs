//! Logging in, and USE: both move a client from one pool to another.
//!
//! The proxy checks no password. A client's SASL answer is carried to a node; only if the node says AUTH_SUCCESS does
//! the client join the pool of links opened with exactly that answer. The answer stays in memory to open that pool's
//! other links, which works for mechanisms that take one step, such as PLAIN of Cassandra's PasswordAuthenticator;
//! a mechanism with challenges is refused with an error that says so. A login that succeeded is believed for
//! `auth_cache_ms`, as Cassandra's own `credentials_validity`, so that thousands of clients starting at once do not
//! cost a node thousands of password hashes.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{ErrorMessage, Query, encode, error_code, split_request_prefix};
use shunt_wire::cql::statement::classify;

use crate::client::{ClientRef, Phase, Stall, Switch};
use crate::core::Core;
use crate::limits;
use crate::metrics::{Closing, Outcome, Refusal};
use crate::node::{PoolId, PoolKey, Role, Step};
use crate::route::Plan;

impl Core {
    /// AUTH_RESPONSE of a client.
    pub(crate) fn take_login(&mut self, io: &mut Io, slot: u32, stream: i16, token: &[u8]) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        let key = PoolKey {
            login: Some(Arc::from(token)),
            version: client.version,
            keyspace: None,
            compression: client.compression,
            no_compact: client.no_compact,
        };
        match self.pool_for(io, &key, 0) {
            Some(id) => self.start_switch(io, slot, stream, id, true),
            None => self.refuse_pool(io, slot, stream),
        }
    }

    /// A request that is USE, as text or prepared. Never sent on a shared link, not even malformed.
    pub(crate) fn use_keyspace(&mut self, io: &mut Io, slot: u32, header: &Header, plan: &Plan, body: &[u8]) {
        self.metrics.queries.of(plan.kind).add(1);
        self.metrics.outcomes.of(Outcome::Intercepted).add(1);
        let statement = self.prepared.shared(plan.statement);
        let asked = split_request_prefix(header.flags, body).and_then(|(_, body)| Query::decode(header.version, body));
        let text = match (&statement, &asked) {
            (Some(statement), _) => statement.text.as_deref().unwrap_or_default(),
            (None, Ok(query)) => query.text,
            (None, Err(_)) => "",
        };
        match classify(text).keyspace {
            Some(keyspace) => self.take_use(io, slot, header.stream, &keyspace.to_string()),
            None => self.reply_error(io, slot, header.stream, error_code::SYNTAX_ERROR, "USE needs one keyspace name"),
        }
    }

    /// USE of a client: the keyspace belongs to its pool, never to a link others share.
    pub(crate) fn take_use(&mut self, io: &mut Io, slot: u32, stream: i16, keyspace: &str) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        let Some(pool) = client.pool.and_then(|pool| self.pools.get(pool)) else { return };
        let key = PoolKey { keyspace: Some(Arc::from(keyspace)), ..pool.key.clone() };
        let verified_ns = pool.verified_ns;
        match self.pool_for(io, &key, verified_ns) {
            Some(id) => self.start_switch(io, slot, stream, id, false),
            None => self.refuse_pool(io, slot, stream),
        }
    }

    fn start_switch(&mut self, io: &mut Io, slot: u32, stream: i16, id: PoolId, login: bool) {
        let now = io.now_ns();
        let client = self.client_ref(slot);
        let cache_ns = self.config.auth_cache_ms * 1_000_000;
        let deadline_ns = now + self.config.connect_timeout_ms * 1_000_000;
        let Some(pool) = self.pools.get_mut(id) else { return };
        pool.ask_again();
        pool.clients += 1;
        let done = if login { pool.login_is_fresh(now, cache_ns) } else { pool.ready > 0 };
        if !done {
            pool.waiting.push(client);
        }
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.switch = Some(Switch { pool: id, stream, login, deadline_ns });
        }
        if done {
            self.complete_switch(io, client, id);
            return;
        }
        self.stall(io, slot, Stall::SWITCH);
        if login {
            self.verify_login(io, id);
        } else {
            self.ensure_links(io, id);
        }
    }

    /// Has a node check the pool's login, on a connection of its own if the pool has links already.
    fn verify_login(&mut self, io: &mut Io, id: PoolId) {
        let now = io.now_ns();
        let Some(pool) = self.pools.get_mut(id) else { return };
        if std::mem::replace(&mut pool.verifying, true) {
            return;
        }
        pool.asked_ns = now;
        if pool.verified_ns == 0 {
            self.ensure_links(io, id);
            // The pool's own first link brings the answer. Those that are open have logged in long ago.
            let opening = |key: u32| self.links.get(key as usize).is_some_and(|link| link.step != Step::Ready);
            if self.pools.get(id).is_some_and(|pool| pool.links().any(opening)) {
                return;
            }
        }
        let asked = self.ask_another_node(io, id);
        if let Some(pool) = self.pools.get_mut(id) {
            pool.verifying = asked; // If not, tried again by the tick until the clients' deadline.
        }
    }

    /// Has a node that is not being asked check the pool's login, if possible one that answers others and has not refused
    /// of late. Whether there was any.
    fn ask_another_node(&mut self, io: &mut Io, id: PoolId) -> bool {
        let now = io.now_ns();
        let (Some(cluster), Some(pool)) = (self.cluster.clone(), self.pools.get_mut(id)) else { return false };
        pool.asked_ns = now;
        self.cursor = self.cursor.wrapping_add(1);
        let (Some(pool), nodes) = (self.pools.get(id), cluster.routing.local_nodes()) else { return false };
        let is_asked = |node: NodeId| {
            self.links.iter().any(|(_, link)| link.pool == id && link.node == node && link.step != Step::Ready)
        };
        let usable = (0..nodes.len())
            .map(|offset| nodes[(self.cursor + offset) % nodes.len()])
            .filter(|node| self.health.is_usable(*node, now) && !is_asked(*node) && !self.is_being_identified(*node));
        let best = usable.min_by_key(|node| {
            let silent = self.nodes.get(usize::from(node.0)).is_some_and(|state| state.silent);
            silent || pool.is_spared(*node, now)
        });
        best.is_some_and(|node| self.open_link(io, id, node, Role::Verifies))
    }

    /// A node accepted the pool's login.
    pub(crate) fn login_accepted(&mut self, io: &mut Io, id: PoolId) {
        let now = io.now_ns();
        let Some(pool) = self.pools.get_mut(id) else { return };
        pool.verified_ns = now.max(1);
        pool.verifying = false;
        for client in self.take_switching(id, true) {
            self.complete_switch(io, client, id);
        }
    }

    /// A node refused the pool's login, or USE: those who wait get the node's own words.
    pub(crate) fn switch_refused(&mut self, io: &mut Io, id: PoolId, login: bool, error_body: &[u8]) {
        let Some(pool) = self.pools.get_mut(id) else { return };
        if login {
            pool.verifying = false;
            pool.verified_ns = 0;
        } else if pool.ready > 0 {
            return; // Works elsewhere: this node's schema lags.
        }
        for client in self.take_switching(id, login) {
            let Some(switch) = self.client(client).and_then(|found| found.switch) else { continue };
            self.reply(io, client.slot, 0, opcode::ERROR, switch.stream, error_body);
            if switch.login {
                self.metrics.clients_refused.of(Refusal::Authentication).add(1);
                // Code and message come first in every version.
                let words = ErrorMessage::decode(3, error_body).map_or("the node refused it", |error| error.message);
                self.close_client(io, client.slot, Closing::Authentication, words);
            } else {
                self.end_switch(io, client, switch.pool);
                self.unstall(client.slot, Stall::SWITCH);
            }
        }
        self.remove_pool_if_unused(id);
    }

    /// A USE has come to nothing.
    pub(crate) fn end_switch(&mut self, io: &mut Io, client: ClientRef, pool: PoolId) {
        if let Some(found) = self.client(client) {
            found.switch = None;
        }
        self.leave_pool(io, pool, client.id);
    }

    /// The connection that was to check a login broke: another node is tried while somebody waits.
    pub(crate) fn verification_interrupted(&mut self, io: &mut Io, id: PoolId) {
        let Some(pool) = self.pools.get_mut(id) else { return };
        if std::mem::replace(&mut pool.verifying, false) && !pool.waiting.is_empty() {
            self.verify_login(io, id);
        }
    }

    /// Of those who wait for a pool the clients whose login, or else whose USE, is about this pool. The others, held
    /// until it has a link or gone by now, are left.
    pub(crate) fn take_switching(&mut self, id: PoolId, login: bool) -> Vec<ClientRef> {
        let Some(pool) = self.pools.get_mut(id) else { return Vec::new() };
        let waiting = std::mem::take(&mut pool.waiting);
        let (switching, others) = waiting.into_iter().partition(|client: &ClientRef| {
            let switch = client.of(&self.clients).and_then(|found| found.switch);
            switch.is_some_and(|switch| switch.pool == id && switch.login == login)
        });
        if let Some(pool) = self.pools.get_mut(id) {
            pool.waiting = others;
        }
        switching
    }

    /// The client belongs to its new pool from here on.
    pub(crate) fn complete_switch(&mut self, io: &mut Io, client: ClientRef, id: PoolId) {
        let Some(found) = self.client(client) else { return };
        let Some(switch) = found.switch.take_if(|switch| switch.pool == id) else { return };
        let old = found.pool.replace(switch.pool);
        if switch.login {
            found.phase = Phase::Ready;
        }
        if let Some(pool) = self.pools.get_mut(id) {
            pool.admitted = true;
        }
        if let Some(old) = old {
            self.leave_pool(io, old, client.id);
        }
        let mut body = Vec::new();
        if switch.login {
            encode::auth_success(&mut body, None);
            self.reply(io, client.slot, 0, opcode::AUTH_SUCCESS, switch.stream, &body);
        } else {
            let keyspace = self.pools.get(switch.pool).and_then(|pool| pool.key.keyspace.clone());
            encode::set_keyspace(&mut body, keyspace.as_deref().unwrap_or_default());
            self.reply(io, client.slot, 0, opcode::RESULT, switch.stream, &body);
        }
        self.unstall(client.slot, Stall::SWITCH);
    }

    /// Gives up logins and USEs that no node could answer in time.
    pub(crate) fn expire_switches(&mut self, io: &mut Io) {
        let now = io.now_ns();
        let late: Vec<(ClientRef, Switch)> = self
            .clients
            .iter()
            .filter_map(|(slot, client)| {
                let switch = client.switch.filter(|switch| now > switch.deadline_ns)?;
                Some((ClientRef { slot: slot as u32, id: client.id }, switch))
            })
            .collect();
        for (client, switch) in late {
            if switch.login {
                // Drivers take an ERROR here, whatever its code, for a wrong password, and some never try again.
                self.metrics.clients_refused.of(Refusal::LoginUnchecked).add(1);
                self.close_client(io, client.slot, Closing::LoginUnchecked, "no node could check its login in time");
            } else {
                self.end_switch(io, client, switch.pool);
                let why = "no node could be reached in time to carry out the request";
                self.reply_error(io, client.slot, switch.stream, error_code::OVERLOADED, why);
                self.unstall(client.slot, Stall::SWITCH);
            }
        }
        let patience_ns = limits::LOGIN_PATIENCE_NS.min(self.config.connect_timeout_ms * 1_000_000 / 4);
        for id in self.pools.ids() {
            let waits = |client: &ClientRef| {
                let switch = client.of(&self.clients).and_then(|found| found.switch);
                switch.is_some_and(|switch| switch.pool == id && switch.login)
            };
            let Some(pool) = self.pools.get(id).filter(|pool| pool.waiting.iter().any(waits)) else { continue };
            if !pool.verifying {
                self.verify_login(io, id);
            } else if now.saturating_sub(pool.asked_ns) > patience_ns {
                self.ask_another_node(io, id);
            }
        }
    }
}
