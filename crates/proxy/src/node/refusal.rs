//! Clients whose pool no node gives a link any more: what they were let in with is refused everywhere. Authentication was
//! switched on, a password changed, the keyspace of their USE dropped.
//!
//! A driver logs in again only on a new connection, so they are told what the nodes say and closed. What must never happen:
//! that clients are closed for what is no verdict of all nodes. One node's refusal, a time-out, a node that cannot say, or one
//! that cannot be reached is none; only nodes that the control plane says are down have no voice. Each node has to have said it
//! twice, with its pause between, and no link of the pool may be open.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{ErrorMessage, encode, error_code};

use crate::client::{ClientRef, Stall};
use crate::core::Core;
use crate::metrics::{Closing, Outcome};
use crate::node::PoolId;
use crate::route::Plan;

/// Times that a node has to refuse, one after the other, before its word is taken for the last.
const VERDICTS_MIN: u32 = 2;

/// What a node says of what a pool's links are opened with.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Body of the ERROR that clients are told.
    pub(crate) words: Vec<u8>,
    /// It is about the login.
    pub(crate) of_login: bool,
    /// Class of the authenticator that asks for a login where none was needed before.
    pub(crate) asks: Option<String>,
}

impl Verdict {
    /// A node's own words on a login, or else on a keyspace.
    pub(crate) fn of_node(words: &[u8], of_login: bool) -> Self {
        Self { words: words.to_vec(), of_login, asks: None }
    }

    /// On a login that the pool does not have.
    pub(crate) fn asks_for_login(class: &str) -> Self {
        let mut words = Vec::new();
        let why = "the nodes ask for a login, which they did not when this client connected: connect again";
        encode::error(&mut words, error_code::BAD_CREDENTIALS, why);
        Self { words, of_login: true, asks: Some(class.to_owned()) }
    }

    /// On what the clients asked for in STARTUP.
    pub(crate) fn of_wishes() -> Self {
        let mut words = Vec::new();
        let why =
            "the nodes no longer take this client's version of the protocol, compression or options: connect again";
        encode::error(&mut words, error_code::SERVER_ERROR, why);
        Self { words, of_login: false, asks: None }
    }
}

impl Core {
    /// Looks whether there is any hope for a pool's clients; once a tick. They are told first, and closed a tick later, when
    /// what they had asked by then has been answered.
    pub(crate) fn tick_refusals(&mut self, io: &mut Io, id: PoolId) {
        if !self.is_refused_everywhere(id) {
            return;
        }
        if self.pools.get(id).is_some_and(|pool| pool.dismissed) {
            self.close_dismissed(io, id);
        } else {
            self.dismiss(io, id);
        }
    }

    fn is_refused_everywhere(&self, id: PoolId) -> bool {
        let (Some(pool), Some(cluster)) = (self.pools.get(id), &self.cluster) else { return false };
        if !pool.admitted || pool.clients == 0 || pool.ready > 0 || pool.last_verdict.is_none() {
            return false;
        }
        let local = cluster.routing.local_nodes().iter().filter_map(|node| cluster.routing.node(*node));
        let mut voices = local.filter(|node| node.up).peekable();
        voices.peek().is_some() && voices.all(|node| pool.verdicts_of(node.id) >= VERDICTS_MIN)
    }

    /// From here on the pool's clients get the nodes' words for what they ask, and nobody is let in by what was believed of
    /// their login.
    fn dismiss(&mut self, io: &mut Io, id: PoolId) {
        let Some(pool) = self.pools.get_mut(id) else { return };
        let Some(verdict) = pool.last_verdict.clone() else { return };
        pool.dismissed = true;
        let login = pool.key.login.clone();
        if let Some(class) = verdict.asks {
            self.login_asked = Some(class);
        }
        if verdict.of_login {
            for pool in self.pools.iter_mut().filter(|pool| pool.key.login == login) {
                pool.verified_ns = 0;
            }
        }
        for client in self.take_switching(id, false) {
            let Some(switch) = self.client(client).and_then(|found| found.switch) else { continue };
            self.end_switch(io, client, id);
            self.reply(io, client.slot, 0, opcode::ERROR, switch.stream, &verdict.words);
            self.unstall(client.slot, Stall::SWITCH);
        }
        let logins = self.take_switching(id, true);
        if let Some(pool) = self.pools.get_mut(id) {
            let mut held = std::mem::replace(&mut pool.waiting, logins);
            self.unstall_all(&mut held, Stall::POOL);
        }
    }

    /// Whether queries of this pool's clients are to be answered by [`Core::refuse_dismissed`].
    pub(crate) fn is_dismissed(&self, id: PoolId) -> bool {
        self.pools.get(id).is_some_and(|pool| pool.dismissed)
    }

    /// A query of a client that is about to be closed.
    #[cold]
    pub(crate) fn refuse_dismissed(&mut self, io: &mut Io, slot: u32, stream: i16, plan: &Plan, id: PoolId) {
        self.metrics.queries.of(plan.kind).add(1);
        self.metrics.outcomes.of(Outcome::Overloaded).add(1);
        let verdict = self.pools.get(id).and_then(|pool| pool.last_verdict.as_ref());
        let words = verdict.map(|verdict| verdict.words.clone()).unwrap_or_default();
        self.reply(io, slot, 0, opcode::ERROR, stream, &words);
    }

    /// Those with an answer still to come, or a USE that leads elsewhere, have their turn later.
    fn close_dismissed(&mut self, io: &mut Io, id: PoolId) {
        let Some(verdict) = self.pools.get(id).and_then(|pool| pool.last_verdict.as_ref()) else { return };
        let words = ErrorMessage::decode(3, &verdict.words).map_or("not even why", |error| error.message);
        let why = format!("every node refuses it now: {}", words);
        let of_pool: Vec<ClientRef> = self
            .clients
            .iter()
            .filter(|(_, client)| client.pool == Some(id) && client.in_flight == 0 && client.switch.is_none())
            .map(|(slot, client)| ClientRef { slot: slot as u32, id: client.id })
            .collect();
        for client in of_pool {
            self.close_client(io, client.slot, Closing::AccessLost, &why);
        }
    }
}
