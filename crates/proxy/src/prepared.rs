//! Prepared statements: what was learnt when a client prepared them, so that any core can route their execution and
//! repair a node that does not know them.
//!
//! The store is shared by all cores and locked, but only when a statement is learnt or met for the first time; each
//! core keeps its own table for the data path. A statement is in the store before its client gets the answer to
//! PREPARE, so that an EXECUTE on any other connection finds it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use shunt_topology::{KeyspaceIndex, RoutingTable, Token, token};
use shunt_wire::cql::message::{Prepared, Value, Values};
use shunt_wire::cql::statement::{Identifier, Kind, Statement};
use shunt_wire::cql::types::partition_key;

use crate::limits;
use crate::route::{After, Work, after_of, work_of};

/// One bind marker of the partition key.
#[derive(Debug)]
pub(crate) struct KeyMarker {
    /// Position among the statement's markers.
    index: usize,
    /// Name, for values sent by name.
    name: Box<str>,
}

/// What is known about a prepared statement.
#[derive(Debug)]
pub struct PreparedStatement {
    /// The node's id for it (a hash of keyspace and text, the same on every node).
    pub(crate) id: Box<[u8]>,
    pub(crate) text: Box<str>,
    /// Keyspace its unqualified names mean: that of the session, or of PREPARE itself (v5).
    pub(crate) keyspace: Option<Box<str>>,
    /// The keyspace in its PREPARE message (v5).
    pub(crate) explicit_keyspace: bool,
    pub(crate) work: Work,
    pub(crate) idempotent: bool,
    pub(crate) conditional: bool,
    pub(crate) after: After,
    /// Keyspace its key is placed by.
    table_keyspace: Option<Box<str>>,
    /// Empty: not routable by key.
    key: Box<[KeyMarker]>,
    /// Names of result columns, kept only when the result is rewritten.
    pub(crate) result_columns: Box<[Box<str>]>,
}

impl PreparedStatement {
    /// Puts together what PREPARE asked (`text`, classified as `parsed`) and what the node answered.
    pub(crate) fn learn(
        text: &str,
        parsed: &Statement<'_>,
        keyspace: Option<&str>,
        explicit_keyspace: bool,
        prepared: &Prepared<'_>,
        routing: Option<&RoutingTable>,
    ) -> Self {
        let first = prepared.bind.markers().next();
        let table = first.map(|marker| (marker.keyspace, marker.table));
        let table_keyspace = match (table, &parsed.keyspace) {
            (Some((keyspace, _)), _) if !keyspace.is_empty() => Some(Box::from(keyspace)),
            (_, Some(keyspace)) => Some(keyspace.to_string().into_boxed_str()),
            _ => keyspace.map(Box::from),
        };
        let known = table.and_then(|(keyspace, table)| routing?.table(keyspace, table));
        let counters = known.is_some_and(|table| table.has_counters);
        let after = after_of(parsed, keyspace);
        let result_columns = match after {
            After::Rewrite(_) => prepared.result.columns().map(|column| Box::from(column.name)).collect(),
            _ => Box::default(),
        };
        Self {
            id: Box::from(prepared.id),
            text: Box::from(text),
            keyspace: keyspace.map(Box::from),
            explicit_keyspace,
            work: work_of(parsed.kind),
            idempotent: parsed.idempotent && (parsed.kind == Kind::Select || !counters),
            conditional: parsed.conditional,
            after,
            table_keyspace,
            key: key_markers(prepared, routing),
            result_columns,
        }
    }
}

/// The markers of the partition key: as the node tells (v4 and later), else (v3) by the names of the key's columns.
fn key_markers(prepared: &Prepared<'_>, routing: Option<&RoutingTable>) -> Box<[KeyMarker]> {
    let markers: Vec<_> = prepared.bind.markers().collect();
    let told: Vec<usize> = prepared.bind.partition_key().map(usize::from).collect();
    let positions = if told.is_empty() { by_column_names(&markers, routing).unwrap_or_default() } else { told };
    let found = positions.iter().map(|index| {
        let name = Box::from(markers.get(*index)?.name);
        Some(KeyMarker { index: *index, name })
    });
    found.collect::<Option<Box<[_]>>>().unwrap_or_default()
}

fn by_column_names(
    markers: &[shunt_wire::cql::message::ColumnSpec<'_>],
    routing: Option<&RoutingTable>,
) -> Option<Vec<usize>> {
    let first = markers.first()?;
    let table = routing?.table(first.keyspace, first.table)?;
    let position = |name: &str| {
        let mut found = markers.iter().enumerate().filter(|(_, marker)| marker.name == name);
        let (index, _) = found.next()?;
        found.next().is_none().then_some(index)
    };
    table.partition_key.iter().map(|column| position(&column.name)).collect()
}

/// All statements of the process. Bounded: beyond the bound the oldest leaves.
#[derive(Debug, Default)]
pub struct PreparedStore {
    inner: RwLock<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    by_id: HashMap<Box<[u8]>, Arc<PreparedStatement>>,
    order: VecDeque<Box<[u8]>>,
}

impl PreparedStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of statements known.
    pub fn len(&self) -> usize {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).by_id.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).by_id.get(id).cloned()
    }

    fn insert(&self, statement: &Arc<PreparedStatement>) {
        let mut shelf = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if shelf.by_id.insert(statement.id.clone(), Arc::clone(statement)).is_none() {
            shelf.order.push_back(statement.id.clone());
        }
        while shelf.order.len() > limits::PREPARED_STATEMENTS_MAX {
            if let Some(oldest) = shelf.order.pop_front() {
                shelf.by_id.remove(&oldest);
            }
        }
    }
}

/// A statement as one core sees it.
pub(crate) struct Learned {
    pub(crate) statement: Arc<PreparedStatement>,
    /// Its keyspace in the core's present routing table; `None`: not routable.
    pub(crate) keyspace: Option<KeyspaceIndex>,
}

impl Learned {
    /// Token of the partition key among an EXECUTE's values; `None` if a part of it is absent, null or unset.
    #[inline]
    pub(crate) fn token(&self, values: &Values<'_>, scratch: &mut Vec<u8>) -> Option<Token> {
        let value = |marker: &KeyMarker| {
            let value = if values.is_named() { values.named(&marker.name) } else { values.get(marker.index) };
            match value {
                Some(Value::Bytes(bytes)) => Some(bytes),
                _ => None,
            }
        };
        match &self.statement.key[..] {
            [] => None,
            [single] => Some(token::token(value(single)?)),
            several => {
                let built = partition_key(several.iter().map(value), scratch);
                built.then(|| token::token(scratch))
            }
        }
    }
}

/// A hash of statement ids, which are hashes themselves.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

/// The statements one core has met.
pub(crate) struct PreparedCache {
    store: Arc<PreparedStore>,
    by_id: HashMap<Box<[u8]>, u32, BuildHasherDefault<IdHasher>>,
    learned: Vec<Learned>,
    routing: Option<Arc<RoutingTable>>,
}

impl PreparedCache {
    pub(crate) fn new(store: Arc<PreparedStore>) -> Self {
        Self { store, by_id: HashMap::default(), learned: Vec::new(), routing: None }
    }

    /// The statement with this id, if any client of the process prepared it.
    #[inline]
    pub(crate) fn find(&mut self, id: &[u8]) -> Option<u32> {
        match self.by_id.get(id) {
            Some(index) => Some(*index),
            None => self.find_in_store(id),
        }
    }

    #[cold]
    fn find_in_store(&mut self, id: &[u8]) -> Option<u32> {
        let statement = self.store.find(id)?;
        self.keep(statement)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Learned {
        &self.learned[index as usize]
    }

    /// Remembers a statement for all cores.
    pub(crate) fn learn(&mut self, statement: PreparedStatement) {
        let statement = Arc::new(statement);
        self.store.insert(&statement);
        match self.by_id.get(&statement.id[..]) {
            Some(index) => {
                let keyspace = self.place(&statement);
                self.learned[*index as usize] = Learned { statement, keyspace };
            }
            None => {
                self.keep(statement);
            }
        }
    }

    fn keep(&mut self, statement: Arc<PreparedStatement>) -> Option<u32> {
        if self.learned.len() >= limits::PREPARED_STATEMENTS_MAX {
            return None; // Executed on any node from here on, and still repaired through the store.
        }
        let index = self.learned.len() as u32;
        let keyspace = self.place(&statement);
        self.by_id.insert(statement.id.clone(), index);
        self.learned.push(Learned { statement, keyspace });
        Some(index)
    }

    /// Finds the statements' keyspaces in a new routing table.
    pub(crate) fn resolve(&mut self, routing: &Arc<RoutingTable>) {
        self.routing = Some(Arc::clone(routing));
        for index in 0..self.learned.len() {
            self.learned[index].keyspace = self.place(&self.learned[index].statement);
        }
    }

    fn place(&self, statement: &PreparedStatement) -> Option<KeyspaceIndex> {
        if statement.key.is_empty() {
            return None;
        }
        let name = statement.table_keyspace.as_deref()?;
        self.routing.as_ref()?.resolve_keyspace(&Identifier::exact(name))
    }

    /// A statement by its id, from the core's table or the store.
    pub(crate) fn statement(&mut self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        match self.find(id) {
            Some(index) => Some(Arc::clone(&self.learned[index as usize].statement)),
            None => self.store.find(id),
        }
    }
}
