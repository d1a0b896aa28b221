//! The clients of a core: the slots, the reasons not to read from a client, and the clients to read
//! from again.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_reactor::{ClientAddress, ConnId, Io};
use slab::Slab;

use crate::client::heavy::{self, Heavy, Owner};
use crate::client::identity::Drivers;
use crate::client::inbox::Inbox;
use crate::client::login_line::LoginLine;
use crate::client::news::{Announcing, SchemaNews};
use crate::client::pending_logins::PendingLogins;
use crate::client::{Client, Phase, Stall};
use crate::fleet::statements;
use crate::ids::{ClientRef, TenantKey};
use crate::limits;
use crate::link::Pools;
use crate::metrics::CoreMetrics;
use crate::tenants::{Limit, Tenants};

/// The owner of all state that a core keeps of its clients.
#[derive(Default)]
pub(crate) struct Clients {
    slots: Slab<Client>,
    /// Last number given to a client.
    ids: u32,
    /// Clients among them beyond `clients_max`, which wait for an ERROR that says so.
    pub(crate) turned_away: usize,
    /// Number of such clients since that time.
    turned_away_since: usize,
    turned_away_from_ns: u64,
    /// Clients that have not logged in, by host.
    pending_logins: PendingLogins,
    pub(crate) drivers: Drivers,
    /// Clients with a v5 segment to complete before this turn's flush.
    pub(crate) dirty: Vec<u32>,
    /// Answers to the proxy's own requests, as for one more client.
    pub(crate) inbox: Inbox,
    /// The round of events about changes of the fleet.
    pub(crate) announcing: Announcing,
    /// Changes of the schema that clients have not heard of yet.
    pub(crate) schema_news: SchemaNews,
    /// Clients that may be read again, the first to be read at the front.
    pub(crate) wake: VecDeque<ClientRef>,
    /// The line of clients whose logins wait for room.
    pub(crate) login_line: LoginLine,
    /// The line of clients with large requests.
    pub(crate) heavy: Heavy,
    /// The tenants of the clients, with their limits.
    pub(crate) tenants: Tenants,
}

impl Clients {
    pub(crate) fn new(tenants: Tenants) -> Clients {
        Clients { tenants, ..Clients::default() }
    }

    /// Inserts a client that just connected from `peer` to `local`; returns its slot.
    pub(crate) fn insert(
        &mut self,
        conn: ConnId,
        local: SocketAddr,
        peer: ClientAddress,
        deadline_ns: u64,
    ) -> u32 {
        // 0 means no client, and the last two numbers mean the proxy itself.
        self.ids = if self.ids >= u32::MAX - 2 { 1 } else { self.ids + 1 };
        let slot = self.slots.vacant_key() as u32;
        let client = ClientRef { slot, id: self.ids };
        let pending_login = self.pending_logins.join(peer.counted_host(), client);
        let new =
            Client { pending_login, ..Client::new(conn, client.id, local, peer, deadline_ns) };
        self.slots.insert(new) as u32
    }

    /// Notes that a client has logged in or is gone.
    fn end_pending_login(pending_logins: &mut PendingLogins, slot: u32, client: &Client) {
        let reference = ClientRef { slot, id: client.id };
        pending_logins.leave(client.peer.counted_host(), client.pending_login, reference);
    }

    /// The client that makes room for a new one of another host, on a core with this many places.
    pub(crate) fn displaced_by(&self, slot: u32, places: usize) -> Option<ClientRef> {
        self.pending_logins.displaced_by(self.get(slot)?.peer.counted_host(), places)
    }

    pub(crate) fn try_remove(&mut self, slot: u32) -> Option<Client> {
        let removed = self.slots.try_remove(slot as usize)?;
        self.turned_away -= usize::from(removed.phase == Phase::TurnedAway);
        Self::end_pending_login(&mut self.pending_logins, slot, &removed);
        self.tenants.forget(&removed);
        if let Some(held) = &removed.held_login {
            self.login_line.forget(removed.peer.counted_host(), held);
        }
        Some(removed)
    }

    /// Decides whether the core keeps a client beyond `clients_max` until it can refuse it by an
    /// ERROR. `false`: too many clients wait for that already, or got theirs lately. The connection
    /// of a refused client may stay open for seconds.
    pub(crate) fn turn_away(&mut self, slot: u32, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.turned_away_from_ns) >= limits::TURNED_AWAY_NS {
            (self.turned_away_from_ns, self.turned_away_since) = (now_ns, 0);
        }
        let may_wait = self.turned_away.max(self.turned_away_since) < limits::TURNED_AWAY_MAX;
        if let Some(client) = self.slots.get_mut(slot as usize).filter(|_| may_wait) {
            self.turned_away += 1;
            Self::end_pending_login(&mut self.pending_logins, slot, client);
            self.turned_away_since += 1;
            (client.phase, client.handshake_deadline_ns) =
                (Phase::TurnedAway, now_ns + limits::TURNED_AWAY_NS);
        }
        may_wait
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Number of slots, used or not.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Client> {
        self.slots.get(slot as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Client> {
        self.slots.get_mut(slot as usize)
    }

    /// True if the core reads from clients again in this turn.
    #[inline]
    pub(crate) fn has_woken(&self) -> bool {
        !self.wake.is_empty() || self.tenants.has_due()
    }

    /// A client, with the tenants.
    #[inline]
    pub(crate) fn with_tenants(&mut self, slot: u32) -> Option<(&mut Client, &mut Tenants)> {
        Some((self.slots.get_mut(slot as usize)?, &mut self.tenants))
    }

    /// Moves a client to a tenant. It no longer waits for its former one.
    pub(crate) fn move_to_tenant(&mut self, metrics: &CoreMetrics, slot: u32, key: TenantKey) {
        let Some((client, tenants)) = self.with_tenants(slot) else { return };
        if client.tenant != key {
            tenants.move_client(client, key);
            self.unstall(metrics, slot, Stall::TENANT);
        }
    }

    /// Moves a client to a tenant that has room for it. It no longer waits for its former one.
    ///
    /// # Errors
    /// The limit of a tenant without room. The client stays at its former one.
    pub(crate) fn admit_to_tenant(
        &mut self,
        metrics: &CoreMetrics,
        slot: u32,
        key: TenantKey,
    ) -> Result<(), Limit> {
        let Some((client, tenants)) = self.with_tenants(slot) else { return Ok(()) };
        if client.tenant != key {
            tenants.admit_client(client, key)?;
            self.unstall(metrics, slot, Stall::TENANT);
        }
        Ok(())
    }

    /// Notes that a request of a client has been taken.
    pub(crate) fn settle_request(&mut self, slot: u32) {
        if let Some(client) = self.get_mut(slot) {
            client.is_tenant_paid = false;
            if let Some(rules) = client.rules.as_deref_mut() {
                rules.is_counted = false;
            }
        }
    }

    /// The client of a reference, if it is still there.
    #[inline]
    pub(crate) fn find(&self, client: ClientRef) -> Option<&Client> {
        self.get(client.slot).filter(|found| found.id == client.id)
    }

    /// The client of a reference, if it is still there.
    #[inline]
    pub(crate) fn find_mut(&mut self, client: ClientRef) -> Option<&mut Client> {
        self.get_mut(client.slot).filter(|found| found.id == client.id)
    }

    /// The protocol version for answers to a client, or to the proxy itself; `None` if the client
    /// has gone.
    pub(crate) fn version_of(&self, client: ClientRef) -> Option<u8> {
        match client {
            // The proxy's messages about a part are the same in all versions.
            ClientRef::PROXY | ClientRef::PART => Some(statements::VERSION),
            _ => self.find(client).map(|client| client.version),
        }
    }

    /// A client to write to, and the list of clients with a segment to complete.
    #[inline]
    pub(crate) fn for_writing(&mut self, slot: u32) -> Option<(&mut Client, &mut Vec<u32>)> {
        Some((self.slots.get_mut(slot as usize)?, &mut self.dirty))
    }

    /// A reference to the client in this slot, which may outlive the client.
    pub(crate) fn reference(&self, slot: u32) -> ClientRef {
        ClientRef { slot, id: self.get(slot).map_or(0, |client| client.id) }
    }

    /// Clients with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Client)> {
        self.slots.iter().map(|(slot, client)| (slot as u32, client))
    }

    /// Clients with their slots.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Client)> {
        self.slots.iter_mut().map(|(slot, client)| (slot as u32, client))
    }

    /// Slots of all clients.
    pub(crate) fn slots(&self) -> Vec<u32> {
        self.iter().map(|(slot, _)| slot).collect()
    }

    /// Takes the client's queries from here on.
    pub(crate) fn is_ready(&mut self, slot: u32) {
        if let Some(client) = self.slots.get_mut(slot as usize) {
            client.phase = Phase::Ready;
            Self::end_pending_login(&mut self.pending_logins, slot, client);
        }
    }

    /// Stops reading from a client for a reason.
    pub(crate) fn stall(&mut self, metrics: &CoreMetrics, io: &mut Io, slot: u32, reason: Stall) {
        let Some(client) = self.get_mut(slot) else { return };
        if !client.stalls.any() {
            io.pause_reading(client.conn);
            metrics.client_pauses.add(1);
            metrics.clients_paused.add(1);
        }
        if reason.is_bounded() && client.stalled_since_ns == 0 {
            client.stalled_since_ns = io.now_ns();
        }
        if !client.stalls.has(reason) {
            for new in reason.reasons() {
                metrics.clients_stalled.of(new).add(1);
                metrics.client_stalls.of(new).add(1);
            }
        }
        client.stalls.set(reason);
    }

    /// True if a client's request of this [cost](heavy::cost) with this body may be read now.
    /// Otherwise the client is in line, and the caller stalls it for [`Stall::HEAVY`].
    pub(crate) fn admits(&mut self, pools: &Pools, slot: u32, cost: usize, body: &[u8]) -> bool {
        let may_read = match heavy::is_amplified(cost, body) {
            true => self.has_room(slot, cost),
            false => self.may_read(slot, cost),
        };
        if !may_read {
            self.wait_as_heavy(pools, slot, cost);
        }
        may_read
    }

    /// True if input may be read now that costs as much as a text of `bytes` bytes.
    pub(crate) fn may_read(&mut self, slot: u32, bytes: usize) -> bool {
        bytes < limits::HEAVY_BYTES_MIN || self.has_room(slot, bytes)
    }

    /// True if this turn has room for so many bytes of a client.
    fn has_room(&mut self, slot: u32, bytes: usize) -> bool {
        let Some(client) = self.slots.get_mut(slot as usize) else { return true };
        std::mem::take(&mut client.may_be_heavy) || self.heavy.admits(bytes)
    }

    /// Puts a client in line with this many bytes; the caller stalls it for [`Stall::HEAVY`].
    pub(crate) fn wait_as_heavy(&mut self, pools: &Pools, slot: u32, bytes: usize) {
        if let Some(client) = self.slots.get(slot as usize) {
            let waits = ClientRef { slot, id: client.id };
            self.heavy.wait(Owner::of(client, pools), waits, bytes);
        }
    }

    /// Ends a turn: lets waiting clients read their heavy requests, as many as one turn may read.
    pub(crate) fn end_heavy_turn(&mut self, metrics: &CoreMetrics) {
        self.heavy.end_turn();
        loop {
            let Self { heavy, slots, .. } = &mut *self;
            let is_there = |client: ClientRef| {
                slots.get(client.slot as usize).is_some_and(|found| found.id == client.id)
            };
            let Some(waited) = heavy.next(is_there) else { break };
            if let Some(client) = self.find_mut(waited) {
                client.may_be_heavy = true;
                self.unstall(metrics, waited.slot, Stall::HEAVY);
            }
        }
    }

    /// Takes a reason away; with the last one gone the core reads from the client again before this
    /// turn ends.
    pub(crate) fn unstall(&mut self, metrics: &CoreMetrics, slot: u32, reason: Stall) {
        let Some(client) = self.slots.get_mut(slot as usize) else { return };
        if !client.stalls.has(reason) {
            return;
        }
        client.stalls.clear(reason);
        for ended in reason.reasons() {
            metrics.clients_stalled.of(ended).sub(1);
        }
        if !client.stalls.is_bounded() {
            client.stalled_since_ns = 0;
        }
        if !client.stalls.any() {
            metrics.clients_paused.sub(1);
            self.wake.push_back(ClientRef { slot, id: client.id });
        }
    }

    /// Takes a reason away from those of `held` that are still there. The core reads from them in
    /// this order.
    pub(crate) fn unstall_all(
        &mut self,
        metrics: &CoreMetrics,
        held: impl IntoIterator<Item = ClientRef>,
        reason: Stall,
    ) {
        for client in held {
            if self.find(client).is_some() {
                self.unstall(metrics, client.slot, reason);
            }
        }
    }
}
