//! Locks, holds and requests: insertion, search, removal.

use std::hash::BuildHasher;

use crate::locks::Locks;
use crate::slab::NIL;
use crate::state::{Awaits, Due, Hold, HoldOf, HoldRow, Lock, Operation, Request, RoleUse};
use crate::text::Name;
use crate::types::{Asked, Handle, Holder, Mode, Namespace, Now, Outcome, Quota};
use crate::wheel::Links;

impl Locks {
    fn hash(&self, namespace: Namespace, name: &[u8]) -> u64 {
        self.hasher.hash_one((namespace == Namespace::Durable, name))
    }

    /// Finds a lock that has a holder or waiting request.
    #[inline]
    pub(crate) fn find(&self, shard: u8, namespace: Namespace, name: &[u8]) -> Option<u32> {
        let found =
            self.shards[usize::from(shard)].index.find(self.hash(namespace, name), |&index| {
                let lock = &self.locks[index];
                lock.namespace == namespace && lock.name.bytes(&self.long_names) == name
            });
        found.copied()
    }

    /// Adds a lock, which is about to get a holder or waiting request.
    pub(crate) fn add_lock(&mut self, shard: u8, namespace: Namespace, name: &[u8]) -> u32 {
        let hash = self.hash(namespace, name);
        let name = Name::new(name, &mut self.long_names);
        let index = self.locks.insert(Lock::new(name, namespace, shard));
        let Self { shards, locks, hasher, long_names, .. } = self;
        shards[usize::from(shard)].index.insert_unique(hash, index, |&other| {
            let lock = &locks[other];
            hasher.hash_one((lock.namespace == Namespace::Durable, lock.name.bytes(long_names)))
        });
        index
    }

    /// Removes a lock without holder and waiting requests.
    pub(crate) fn forget_unused(&mut self, index: u32) {
        let lock = self.locks[index];
        if !lock.is_unused() || lock.stalled {
            return;
        }
        let hash = self.hash(lock.namespace, lock.name.bytes(&self.long_names));
        let entry =
            self.shards[usize::from(lock.shard)].index.find_entry(hash, |&other| other == index);
        let Ok(entry) = entry else { return };
        entry.remove();
        lock.name.release(&mut self.long_names);
        self.locks.remove(index);
    }

    fn shared_hash(&self, lock: u32, owner: u32) -> u64 {
        self.hasher.hash_one((lock, owner))
    }

    /// The hold of a lock under this owner's name, for any role.
    #[inline]
    pub(crate) fn hold_of(&self, lock: u32, owner: &[u8]) -> Option<u32> {
        let first = self.locks[lock].first_hold;
        if first == NIL {
            return None;
        }
        let hold = &self.timed.holds[first];
        if hold.mode == Mode::Exclusive {
            return (self.owners.bytes(hold.owner) == owner).then_some(first);
        }
        let owner = self.owners.find(owner)?;
        let found = self.shared.find(self.shared_hash(lock, owner), |&index| {
            let hold = &self.timed.holds[index];
            hold.lock == lock && hold.owner == owner
        });
        found.copied()
    }

    /// Adds a hold, behind the others of its lock, that ends after its TTL.
    pub(crate) fn add_hold(&mut self, now: Now, lock: u32, of: HoldOf) -> u32 {
        let (owner, role) = (of.owner, of.role);
        let text_bytes = self.text_bytes_of(lock, owner);
        self.text_bytes += text_bytes;
        self.uses[role as usize].text_bytes += text_bytes;
        self.uses[role as usize].holds += 1;
        let due_ms = now.ms() + u64::from(of.ttl_ms) + 1;
        let (mode, state, token, ttl_ms) = (of.mode, of.state, of.token, of.ttl_ms);
        let hold = Hold {
            lock,
            neighbours: NIL,
            owner,
            role,
            ttl_ms,
            row: NIL,
            links: Links::NONE,
            mode,
            state,
            found_again: false,
            is_apart: false,
            token,
            due_ms,
        };
        let index = self.timed.holds.insert(hold);
        self.link_hold(lock, index);
        if mode == Mode::Shared {
            let hash = self.shared_hash(lock, owner);
            let Self { shared, timed, hasher, .. } = self;
            shared.insert_unique(hash, index, |&other| {
                let hold = &timed.holds[other];
                hasher.hash_one((hold.lock, hold.owner))
            });
        }
        self.wheel.set(&mut self.timed, Due::Hold(index).id());
        index
    }

    /// Removes a hold. Requests that wait for its write stay with the write.
    pub(crate) fn remove_hold(&mut self, index: u32) {
        self.wheel.cancel(&mut self.timed, Due::Hold(index).id());
        let hold = self.timed.holds[index];
        self.unlink_hold(index);
        if hold.mode == Mode::Shared
            && let Ok(entry) = self
                .shared
                .find_entry(self.shared_hash(hold.lock, hold.owner), |&other| other == index)
        {
            entry.remove();
        }
        if hold.row != NIL {
            let HoldRow { write, .. } = self.hold_rows[hold.row];
            if write != NIL {
                self.timed.writes[write].hold = NIL;
            }
            self.hold_rows.remove(hold.row);
        }
        self.count_in(index);
        let text_bytes = self.text_bytes_of(hold.lock, hold.owner);
        self.text_bytes -= text_bytes;
        self.uses[hold.role as usize].text_bytes -= text_bytes;
        self.uses[hold.role as usize].holds -= 1;
        self.owners.release(hold.owner);
        self.roles.release(hold.role);
        self.timed.holds.remove(index);
    }

    /// Number of a role, with one more reference to it.
    pub(crate) fn refer_role(&mut self, role: &[u8]) -> u32 {
        let role = self.roles.refer(role);
        if self.uses.len() <= role as usize {
            self.uses.resize(role as usize + 1, RoleUse::default());
        }
        if self.roles.references(role) == 1 {
            self.uses[role as usize] = RoleUse::default();
        }
        role
    }

    fn text_bytes_of(&self, lock: u32, owner: u32) -> u64 {
        (self.locks[lock].name.bytes(&self.long_names).len() + self.owners.bytes(owner).len())
            as u64
    }

    /// Counts a hold found in a row apart from those granted here.
    pub(crate) fn set_apart(&mut self, hold: u32) {
        let text_bytes =
            self.text_bytes_of(self.timed.holds[hold].lock, self.timed.holds[hold].owner);
        self.timed.holds[hold].is_apart = true;
        self.text_bytes -= text_bytes;
        self.apart.holds += 1;
        self.apart.text_bytes += text_bytes;
    }

    /// Counts a hold in again, because its owner has asked for it or it ends.
    pub(crate) fn count_in(&mut self, hold: u32) {
        if !std::mem::take(&mut self.timed.holds[hold].is_apart) {
            return;
        }
        let text_bytes =
            self.text_bytes_of(self.timed.holds[hold].lock, self.timed.holds[hold].owner);
        self.text_bytes += text_bytes;
        self.apart.holds -= 1;
        self.apart.text_bytes -= text_bytes;
    }

    /// True if there is room for one more hold found in a row.
    pub(crate) fn has_room_for_loaded(&self) -> bool {
        self.apart.holds < self.limits.loaded
            && self.apart.text_bytes < self.limits.loaded_text_bytes
    }

    /// Checks the room for one more row of a role to be written: a limit per role leaves room for
    /// others.
    pub(crate) fn room_for_write(&self, role: &[u8]) -> Result<(), Quota> {
        let is_full = self.used_by(role).writes >= self.limits.writes_per_role;
        if is_full { Err(Quota::RequestsOfRole) } else { Ok(()) }
    }

    fn used_by(&self, role: &[u8]) -> RoleUse {
        self.roles.find(role).map_or(RoleUse::default(), |role| self.uses[role as usize])
    }

    /// Checks the room for one more hold of a role.
    pub(crate) fn room_for_hold(&self, role: &[u8], namespace: Namespace) -> Result<(), Quota> {
        let granted = self.timed.holds.len().saturating_sub(self.apart.holds as usize);
        if granted >= self.limits.holds as usize || self.text_bytes >= self.limits.text_bytes {
            return Err(Quota::Holds);
        }
        let used = self.used_by(role);
        if namespace == Namespace::Durable && used.writes >= self.limits.writes_per_role {
            return Err(Quota::RequestsOfRole);
        }
        let is_full = used.holds >= self.limits.holds_per_role
            || used.text_bytes >= self.limits.text_bytes / 2;
        if is_full { Err(Quota::HoldsOfRole) } else { Ok(()) }
    }

    /// Adds a request that is not answered at once.
    pub(crate) fn add_request(
        &mut self,
        asked: &Asked<'_>,
        operation: Operation,
    ) -> Result<u32, Quota> {
        if self.timed.requests.len() >= self.limits.requests as usize {
            return Err(Quota::Requests);
        }
        let waiting =
            self.roles.find(asked.role).map_or(0, |role| self.uses[role as usize].requests);
        if waiting >= self.limits.requests_per_role {
            return Err(Quota::RequestsOfRole);
        }
        let (owner, role) = (self.owners.refer(asked.owner), self.refer_role(asked.role));
        self.uses[role as usize].requests += 1;
        let request = Request {
            ticket: asked.ticket,
            generation: 0,
            operation,
            awaits: Awaits::Nothing,
            owner,
            role,
            previous: NIL,
            next: NIL,
            links: Links::NONE,
            due_ms: 0,
        };
        let index = match self.timed.requests.take_free() {
            Some(index) => {
                let generation = self.timed.requests[index].generation;
                self.timed.requests[index] = Request { generation, ..request };
                index
            }
            None => self.timed.requests.insert(request),
        };
        Ok(index)
    }

    /// The caller's handle of a waiting request.
    pub(crate) fn handle(&self, request: u32) -> Handle {
        Handle { index: request, generation: self.timed.requests[request].generation }
    }

    /// Forgets a request that was answered or whose client has gone.
    pub(crate) fn forget_request(&mut self, request: u32) {
        self.stop_waiting(request);
        let entry = &mut self.timed.requests[request];
        entry.generation = entry.generation.wrapping_add(1);
        let (owner, role) = (entry.owner, entry.role);
        self.uses[role as usize].requests -= 1;
        self.owners.release(owner);
        self.roles.release(role);
        self.timed.requests.remove(request);
    }

    /// A hold as answers describe it.
    pub(crate) fn holder(&self, now: Now, hold: u32) -> Holder<'_> {
        let hold = &self.timed.holds[hold];
        let ttl_ms = hold.due_ms.saturating_sub(now.ms() + 1).min(u64::from(u32::MAX)) as u32;
        Holder { owner: self.owners.bytes(hold.owner), mode: hold.mode, fence: hold.token, ttl_ms }
    }

    /// The first of a lock's holders.
    pub(crate) fn first_holder(&self, now: Now, lock: u32) -> Option<Holder<'_>> {
        let first = self.locks[lock].first_hold;
        (first != NIL).then(|| self.holder(now, first))
    }

    /// The answer to a request that does not get a lock.
    pub(crate) fn refused(&self, now: Now, lock: u32) -> Outcome<'_> {
        Outcome::Refused { holder: self.first_holder(now, lock), waiters: self.queue_length(lock) }
    }
}
