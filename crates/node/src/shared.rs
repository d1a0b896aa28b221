//! State shared by the event loops of a process: the stores, the schema, prepared statements.
//!
//! A node's loop nearly always works on its own store; a statement on partitions of another node
//! accesses that node's store directly, so stores support several threads at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use shunt_language::ast::SchemaStatement;
use shunt_reactor::Mailer;
use shunt_storage::StoreError;
use shunt_storage::files::{self, ReplaceError};
use shunt_storage::row::TableId;
use shunt_storage::store::{Durability as StoreDurability, Store, StoreOptions};
use shunt_topology::Token;
use shunt_wire::cql::message::{Event, encode};

use crate::cluster::ClusterInfo;
use crate::error::CqlError;
use crate::layout::{self, Claim, node_directory, set_nodes};
use crate::mail::NodeMail;
use crate::prepared::PreparedStatements;
use crate::schema::change::{Change, Moment};
use crate::schema::{Durability, Keyspace, Schema, Uuid, persist};
use crate::statement::Statement;
use crate::system;
use crate::system::traces::Traces;

/// Number of locks for conditional statements and lists, by partition.
const PARTITION_LOCKS: usize = 1024;

/// Parts of a process with nodes.
pub struct Shared {
    pub(crate) info: ClusterInfo,
    stores: Vec<Arc<Store>>,
    schema: RwLock<Arc<Schema>>,
    /// Held during a change of the schema.
    changing: Mutex<()>,
    prepared: RwLock<PreparedStatements>,
    partitions: Vec<Mutex<()>>,
    directory: PathBuf,
    /// Id of the store, shared by copies.
    store: Option<Uuid>,
    clock: Clock,
    mailers: OnceLock<Vec<Mailer<NodeMail>>>,
    pub(crate) traces: Traces,
}

/// Strictly increasing time, and numbers derived from it.
#[derive(Default)]
struct Clock {
    last_us: AtomicU64,
    random: AtomicU64,
}

/// Storage numbers of all tables that have one.
fn numbers(schema: &Schema) -> Vec<TableId> {
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter_map(|table| table.number).collect()
}

impl Shared {
    /// Opens the stores of all nodes below `directory`, and the schema. The nodes have the host ids
    /// of the existing data.
    ///
    /// # Errors
    /// A directory that cannot be opened; the message names it and describes the fault.
    pub fn open(
        directory: &Path,
        mut info: ClusterInfo,
        options: &StoreOptions,
    ) -> Result<Shared, String> {
        let claim = layout::claim(directory, info.nodes.len())?;
        if let Some(store) = &claim.store {
            info.set_store(store);
        }
        // Before any store is opened, which writes.
        load_schema(directory, &claim)?;
        let options = StoreOptions { create: options.create && !claim.complete, ..options.clone() };
        let open = |index: usize| {
            let path = node_directory(directory, index);
            Store::open(&path, of_node(&options, index))
                .map(Arc::new)
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let stores: Vec<_> = (0..info.nodes.len()).map(open).collect::<Result<_, _>>()?;
        // Again: no other process can change it now.
        let loaded = load_schema(directory, &claim)?;
        let mut schema = loaded.unwrap_or_else(Schema::empty);
        if !claim.complete {
            persist::save(&schema, directory).map_err(|error| error.to_string())?;
            set_nodes(directory, Claim { complete: true, ..claim })?;
        }
        for keyspace in system::keyspaces()? {
            schema.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        }
        let traces = Traces::new(&stores, &info, &schema);
        let shared = Shared {
            info,
            stores,
            schema: RwLock::new(Arc::new(schema)),
            changing: Mutex::new(()),
            prepared: RwLock::default(),
            partitions: (0..PARTITION_LOCKS).map(|_| Mutex::new(())).collect(),
            directory: directory.to_owned(),
            store: claim.store,
            clock: Clock::default(),
            mailers: OnceLock::new(),
            traces,
        };
        shared.tell_grace(&shared.schema());
        Ok(shared)
    }

    /// Replaces the last store.
    #[cfg(test)]
    pub(crate) fn replace_store(&mut self, store: Store) {
        self.stores.pop();
        self.stores.push(Arc::new(store));
    }

    /// Names of the stores' and traces' threads that have ended without being told to.
    pub(crate) fn dead_threads(&self) -> Vec<String> {
        let of_stores = self.stores.iter().enumerate().flat_map(|(node, store)| {
            store.dead_threads().into_iter().map(move |thread| format!("{thread} of node {node}"))
        });
        of_stores.chain(self.traces.dead_threads()).collect()
    }

    /// Writes and syncs pending data once no writers are left; false if one of the threads for that
    /// had panicked. Remaining owners, such as admin pages, may still read.
    pub(crate) fn close(&self) -> bool {
        let lived = self.dead_threads().is_empty();
        // First: traces are written to the stores.
        let traced = self.traces.close();
        let died = self.stores.iter().filter(|store| !store.close()).count();
        lived && traced && died == 0
    }

    /// Data directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Copies everything to a new directory, which can be opened as it is. The schema does not
    /// change during the copy; each node's part is as of one moment, and the moments of two nodes
    /// may differ.
    pub(crate) fn snapshot(&self, to: &Path) -> Result<(), String> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{}: is there already; name a new directory", to.display())
            }
            _ => format!("{}: {error}", to.display()),
        };
        layout::check_apart(&self.directory, to)?;
        std::fs::create_dir(to).map_err(failed)?;
        let written = self.write_snapshot(to);
        if written.is_err() {
            // A partial copy is useless, and its links keep room occupied.
            let _ = std::fs::remove_dir_all(to);
        }
        written
    }

    fn write_snapshot(&self, to: &Path) -> Result<(), String> {
        for (index, store) in self.stores.iter().enumerate() {
            let part = node_directory(to, index);
            store.snapshot(&part).map_err(|error| format!("{}: {error}", part.display()))?;
        }
        persist::save(&self.schema(), to).map_err(|error| error.to_string())?;
        // Last: without it the directory is not valid.
        set_nodes(to, Claim { nodes: self.stores.len(), complete: true, store: self.store })?;
        files::sync_directory(files::parent(to))
            .map_err(|error| format!("{}: {error}", to.display()))
    }

    /// The current schema.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The store that owns a token.
    #[inline]
    pub(crate) fn store(&self, token: Token) -> &Arc<Store> {
        &self.stores[self.info.owner(token)]
    }

    /// All stores, in the order of the nodes.
    pub(crate) fn stores(&self) -> &[Arc<Store>] {
        &self.stores
    }

    /// The lock of a partition, shared with others.
    pub(crate) fn lock_of(&self, token: Token) -> usize {
        token.0.rem_euclid(self.partitions.len() as i64) as usize
    }

    /// Holds one lock, like a slow request.
    #[cfg(test)]
    pub(crate) fn hold_lock(&self, number: usize) -> MutexGuard<'_, ()> {
        self.partitions[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks these partitions against other statements that change data they have read. Locks are
    /// taken in a global order, each once.
    pub(crate) fn lock_partitions(&self, tokens: &[Token]) -> Vec<MutexGuard<'_, ()>> {
        let mut indexes: Vec<usize> = tokens.iter().map(|token| self.lock_of(*token)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let lock =
            |index: usize| self.partitions[index].lock().unwrap_or_else(PoisonError::into_inner);
        indexes.into_iter().map(lock).collect()
    }

    /// Microseconds since 1970; every call returns a later time.
    pub(crate) fn now_us(&self) -> i64 {
        let real =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros() as u64);
        let next = |last: u64| Some(real.max(last + 1));
        let last = self
            .clock
            .last_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .unwrap_or(real);
        real.max(last + 1) as i64
    }

    /// Sets the time of the last call, whatever the wall clock.
    #[cfg(test)]
    pub(crate) fn set_clock_us(&self, last_us: u64) {
        self.clock.last_us.store(last_us, Ordering::Relaxed);
    }

    /// 128 random, unique bits.
    pub(crate) fn random(&self) -> u128 {
        use std::hash::{BuildHasher, RandomState};
        let count = self.clock.random.fetch_add(1, Ordering::Relaxed);
        let half = || u128::from(RandomState::new().hash_one(count));
        half() << 64 | half()
    }

    /// A random UUID.
    pub(crate) fn uuid(&self) -> Uuid {
        let mut id = self.random().to_be_bytes();
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        id
    }

    /// Executes a statement that changes the schema; durable on return. `None` if nothing changed.
    pub(crate) fn change(
        &self,
        statement: &SchemaStatement,
        session: Option<&str>,
    ) -> Result<Option<Change>, CqlError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.schema();
        let datacentres = &[self.info.datacentre.as_str()];
        let moment = Moment {
            table_id: self.uuid(),
            version: self.uuid(),
            now_us: self.now_us(),
            datacentres,
        };
        let Some((new, change)) = old.change(statement, session, &moment)? else { return Ok(None) };
        // Before any change: dropped data must be deleted from all stores.
        for store in &self.stores {
            if let Err(error @ StoreError::Poisoned(_)) = store.health() {
                return Err(error.into());
            }
        }
        let saved = persist::save(&new, &self.directory);
        if let Err(error @ ReplaceError::Unchanged(_)) = saved {
            return Err(CqlError::Server(format!("the schema cannot be written: {error}")));
        }
        self.tell_grace(&new);
        let new = Arc::new(new);
        *self.schema.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        // If the old schema may come back after a power failure, its data must still exist. The
        // next start deletes the data of unknown tables.
        let dropped = if saved.is_ok() { self.drop_data(&old, &new) } else { Ok(()) };
        for change in old.changes_with(change.clone()) {
            self.announce(&change);
        }
        saved.map_err(|error| CqlError::Server(format!("the schema has changed: {error}")))?;
        dropped?;
        Ok(Some(change))
    }

    /// Sets the mailboxes of the nodes' loops.
    pub(crate) fn set_mailers(&self, mailers: Vec<Mailer<NodeMail>>) {
        let _ = self.mailers.set(mailers);
    }

    /// Reports a change to all registered clients.
    fn announce(&self, change: &Change) {
        let mut body = Vec::new();
        encode::event(&mut body, &Event::SchemaChange(change.in_protocol()));
        let body: Arc<[u8]> = body.into();
        for mailer in self.mailers.get().into_iter().flatten() {
            // A loop with a full mailbox has clients that miss the event; drivers also poll.
            let _ = mailer.post(NodeMail::SchemaEvent(Arc::clone(&body)));
        }
    }

    /// Deletes the data of dropped tables in all stores. [`Shared::drop_leftovers`] deletes the
    /// rest later.
    fn drop_data(&self, old: &Schema, new: &Schema) -> Result<(), CqlError> {
        let kept = numbers(new);
        let mut outcome = Ok(());
        for number in numbers(old).into_iter().filter(|number| !kept.contains(number)) {
            for store in &self.stores {
                let dropped = store.drop_table(number, StoreDurability::Batch).map(|_| ());
                outcome = outcome.and(dropped);
            }
        }
        Ok(outcome?)
    }

    /// Deletes leftovers of dropped tables: the schema is written first, so a store that could not
    /// accept the deletion, or a process that died before it was durable, leaves unreachable rows.
    pub(crate) fn drop_leftovers(&self) -> Result<usize, StoreError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let schema = self.schema();
        let kept = numbers(&schema);
        let mut dropped = 0;
        for store in &self.stores {
            // Numbers beyond the next are those of the node's own tables.
            for number in store.tables()?.into_iter().filter(|number| number.0 < schema.next_table)
            {
                if !kept.contains(&number) {
                    store.drop_table(number, StoreDurability::Batch)?;
                    dropped += 1;
                }
            }
        }
        Ok(dropped)
    }

    fn tell_grace(&self, schema: &Schema) {
        for table in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            if let Some(number) = table.number {
                let seconds = i64::from(table.options.gc_grace_seconds);
                self.stores.iter().for_each(|store| store.set_gc_grace(number, seconds));
            }
        }
    }

    /// A prepared statement.
    pub(crate) fn prepared(&self, id: &[u8]) -> Option<Arc<Statement>> {
        let id = <[u8; 16]>::try_from(id).ok()?;
        self.prepared.read().unwrap_or_else(PoisonError::into_inner).find(&id)
    }

    /// Keeps a prepared statement, replacing one with its id.
    pub(crate) fn keep_prepared(&self, statement: &Arc<Statement>) {
        self.prepared.write().unwrap_or_else(PoisonError::into_inner).keep(statement);
    }
}

/// The schema of a directory; `None` if there has been none.
fn load_schema(directory: &Path, claim: &Claim) -> Result<Option<Schema>, String> {
    let loaded = persist::load(directory).map_err(|error| error.to_string())?;
    if loaded.is_none() && claim.complete {
        return Err(format!("{}: the file is missing", directory.join(persist::FILE).display()));
    }
    Ok(loaded)
}

/// Options of one node's store: its row cache on SSD has a separate directory.
fn of_node(options: &StoreOptions, index: usize) -> StoreOptions {
    let mut options = options.clone();
    if let Some(ssd) = options.row_cache.as_mut().and_then(|cache| cache.ssd.as_mut()) {
        ssd.dir = node_directory(&ssd.dir, index);
    }
    options
}

/// Durability that a keyspace requires of the store.
pub(crate) fn durability(keyspace: &Keyspace) -> StoreDurability {
    match keyspace.durability {
        Durability::Batch => StoreDurability::Batch,
        Durability::Periodic => StoreDurability::Periodic { interval: PERIODIC },
    }
}

/// Sync interval of writes that are not synced individually; Cassandra's `commitlog_sync_period` is
/// ten seconds.
const PERIODIC: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> ClusterInfo {
        let addresses: Vec<_> =
            (1..=2).map(|last| std::net::SocketAddr::from(([127, 0, 0, last], 9042))).collect();
        ClusterInfo::new("Shunt", &addresses)
    }

    fn open(directory: &Path) -> Result<Shared, String> {
        Shared::open(directory, info(), &StoreOptions::default())
    }

    fn host_ids(shared: &Shared) -> Vec<Uuid> {
        shared.info.nodes.iter().map(|node| node.host_id).collect()
    }

    #[test]
    fn each_store_has_host_ids_of_its_own_and_keeps_them() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| host_ids(&open(&directory.path().join(name)).unwrap());
        let (one, other) = (of("one"), of("other"));
        let all: std::collections::HashSet<Uuid> = one.iter().chain(&other).copied().collect();
        assert_eq!(all.len(), 4, "{one:?} {other:?}");
        assert_eq!((of("one"), of("other")), (one.clone(), other), "after a restart");
        // A copy has the same data, and a proxy may find it in the original's place.
        open(&directory.path().join("one"))
            .unwrap()
            .snapshot(&directory.path().join("copy"))
            .unwrap();
        assert_eq!(of("copy"), one);
    }

    #[test]
    fn a_directory_from_before_there_were_store_ids_keeps_its_host_ids() {
        for (before, complete) in [("2 begun", false), ("2", true)] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("nodes");
            if complete {
                open(directory.path()).unwrap();
            }
            std::fs::write(&path, format!("{before} {:08x}\n", crc32fast::hash(before.as_bytes())))
                .unwrap();
            for _ in 0..2 {
                let shared = open(directory.path()).unwrap();
                let old: Vec<Uuid> = info().nodes.iter().map(|node| node.host_id).collect();
                assert_eq!(host_ids(&shared), old, "{before}");
                assert_eq!(
                    std::fs::read_to_string(&path).unwrap(),
                    format!("2 {:08x}\n", crc32fast::hash(b"2"))
                );
            }
        }
    }

    #[test]
    fn simultaneous_first_claims_get_one_id() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let claims: Vec<Result<layout::Claim, String>> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| layout::claim(directory.path(), 2))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let kept = layout::claim_of(directory.path()).unwrap().unwrap();
            assert!(claims.contains(&Ok(kept)), "{claims:?}");
            for claim in &claims {
                let of_another = |why: &String| why.contains("another process");
                assert!(*claim == Ok(kept) || claim.as_ref().is_err_and(of_another), "{claims:?}");
            }
        }
    }
}
