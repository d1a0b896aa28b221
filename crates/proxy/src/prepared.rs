//! Prepared statements: facts that the proxy learns when a client prepares them, so that any core
//! can route their execution and repair a node that does not know them.
//!
//! All cores share the store ([`PreparedStore`]), under a lock that a core takes only when it
//! learns a statement or meets one for the first time; each core keeps its own table for the data
//! path. A statement is in the store before its client gets the answer to PREPARE, so that an
//! EXECUTE on any other connection finds it.

mod id_hash;
mod shape;
mod store;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, OnceLock};

use shunt_language::lock_tables;
use shunt_topology::{KeyspaceIndex, RoutingTable, Token, token};
use shunt_wire::cql::message::{ColumnSpec, Prepared, Value, Values};
use shunt_wire::cql::statement::{Identifier, Kind, Statement};
use shunt_wire::cql::types::partition_key;

use crate::client::account::Account;
use crate::digests::Digest;
use crate::limits;
use crate::multiget::form::Form;
use crate::plan::{After, Work, after_of, work_of};
use shunt_transactions::catalogue::modes::{Access, TableName, tables_of};
use shunt_transactions::request::Summary;

pub(crate) use shape::Shape;
pub use store::PreparedStore;

use id_hash::IdHashes;
use store::Mark;

/// One bind marker of the partition key.
#[derive(Clone, Debug)]
pub(crate) struct KeyMarker {
    /// Position among the statement's markers.
    index: usize,
    /// Name, for values sent by name.
    name: Box<str>,
}

/// One column of a result.
#[derive(Clone, Debug)]
pub(crate) struct ResultColumn {
    /// Name of the column, or its alias.
    pub(crate) name: Box<str>,
    /// Type of the column, as an `[option]` of the protocol.
    pub(crate) type_option: Box<[u8]>,
}

/// The known facts about a prepared statement.
#[derive(Clone, Debug)]
pub struct PreparedStatement {
    /// The node's id for the statement (a hash of keyspace and text, the same on every node).
    pub(crate) id: Box<[u8]>,
    /// Text of the statement; `None` if it is longer than `PREPARED_TEXT_BYTES_MAX`. The proxy
    /// routes such a statement like any other, but cannot prepare it again without its client, who
    /// gets UNPREPARED when a node does not know it.
    pub(crate) text: Option<Box<str>>,
    /// Hash of a text that is not kept; 0 for others.
    text_hash: u64,
    /// Keyspace of unqualified names: that of the session, or of PREPARE itself (v5).
    pub(crate) keyspace: Option<Box<str>>,
    /// The keyspace in its PREPARE message (v5).
    pub(crate) explicit_keyspace: bool,
    /// True if the text names the keyspace of its table, so that it means the same in every
    /// session.
    pub(crate) names_keyspace: bool,
    pub(crate) kind: Kind,
    pub(crate) work: Work,
    pub(crate) conditional: bool,
    pub(crate) after: After,
    /// Keyspace that places its key.
    table_keyspace: Option<Box<str>>,
    /// Markers of the partition key; empty if the key does not route the statement.
    key: Box<[KeyMarker]>,
    /// Result columns, kept only for results that the proxy rewrites.
    pub(crate) result_columns: Box<[ResultColumn]>,
    /// The statement on locks, if it is on one of their tables.
    pub(crate) locks: Option<Arc<lock_tables::Statement>>,
    /// True if it is on a table of locks, in whatever form.
    pub(crate) names_locks: bool,
    /// The tables that it reads or writes; `None` if they are unknown. A batch without a kept
    /// text has unknown tables: it cannot be a transaction, and parsing it would hold the core up.
    pub(crate) tables: Option<Box<[TableName]>>,
    /// The statement's access to them.
    pub(crate) access: Access,
    /// The form in which it is split, or the reason why it is not; `None` if it is no read of
    /// several partitions or the option is off.
    pub(crate) multiget: Option<Arc<Form>>,
    /// Form as a transaction: from the text, or from the first execution as one.
    pub(crate) transaction: OnceLock<Arc<Summary>>,
    /// Bind markers and columns, as its clients know them.
    pub(crate) shape: Shape,
    /// Notified of each execution.
    mark: Mark,
}

impl PreparedStatement {
    /// A statement about which no more is known than these values: it goes to any node.
    pub(crate) fn opaque(
        id: &[u8],
        text: &str,
        parsed: &Statement<'_>,
        keyspace: Option<&str>,
    ) -> Self {
        let is_kept = text.len() <= limits::PREPARED_TEXT_BYTES_MAX;
        let is_parsed = is_kept || parsed.kind != Kind::Batch;
        let tables = is_parsed.then(|| tables_of(parsed, text, keyspace)).flatten();
        Self {
            id: Box::from(id),
            text: is_kept.then(|| Box::from(text)),
            text_hash: if is_kept { 0 } else { TEXT_HASHES.hash_one(text) },
            keyspace: keyspace.map(Box::from),
            explicit_keyspace: false,
            // Only the first statement of a batch counts.
            names_keyspace: parsed.keyspace.is_some() && parsed.kind != Kind::Batch,
            kind: parsed.kind,
            work: work_of(parsed.kind),
            conditional: parsed.conditional,
            after: after_of(parsed, keyspace, text),
            table_keyspace: None,
            key: Box::default(),
            result_columns: Box::default(),
            locks: None,
            names_locks: false,
            tables: tables.map(Into::into),
            access: Access::of_text(parsed.kind, text),
            multiget: None,
            transaction: OnceLock::new(),
            shape: Shape::default(),
            mark: Mark::default(),
        }
    }

    /// Marks a statement on the tables of locks; `statement`: its form, if it has one with an
    /// answer. `is_answered`: the proxy answers it, not the nodes.
    pub(crate) fn on_locks(
        self,
        statement: Option<lock_tables::Statement>,
        is_answered: bool,
    ) -> Self {
        let after = if is_answered { After::Lock } else { self.after };
        Self { locks: statement.map(Arc::new), names_locks: true, after, ..self }
    }

    /// Marks a transaction.
    pub(crate) fn of_transaction(self, known: Summary) -> Self {
        Self { transaction: OnceLock::from(Arc::new(known)), after: After::Transaction, ..self }
    }

    /// Marks a read of several partitions.
    pub(crate) fn of_partitions(self, form: Form) -> Self {
        Self { multiget: Some(Arc::new(form)), after: After::Multiget, ..self }
    }

    /// True if both have the same text on the same tables, as statements of one id must have.
    fn is_same_as(&self, other: &Self) -> bool {
        self.text == other.text && self.text_hash == other.text_hash && self.tables == other.tables
    }

    pub(crate) fn with_shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// The keyspace and the name of its first table, if both are known.
    pub(crate) fn table(&self) -> Option<(&str, &str)> {
        let (_, table) = self.tables.as_deref()?.first()?;
        Some((self.table_keyspace.as_deref()?, table))
    }

    /// Approximate memory of the statement, bytes.
    fn bytes(&self) -> usize {
        let column = |column: &ResultColumn| {
            column.name.len() + column.type_option.len() + size_of::<ResultColumn>()
        };
        let columns = self.result_columns.iter().map(column).sum::<usize>();
        let key =
            self.key.iter().map(|marker| marker.name.len() + size_of::<KeyMarker>()).sum::<usize>();
        let text = self.text.as_ref().map_or(0, |text| text.len());
        let locks = self.locks.as_ref().map_or(0, |statement| statement.bytes());
        let named = |(keyspace, table): &TableName| {
            keyspace.as_ref().map_or(0, |name| name.len()) + table.len() + size_of::<TableName>()
        };
        let tables = self.tables.iter().flatten().map(named).sum::<usize>();
        let names_no_table = self.tables.as_ref().is_some_and(|tables| tables.is_empty());
        let transaction = match self.after {
            After::Transaction => self.transaction.get().map_or(0, |known| known.bytes()),
            _ if names_no_table => 0,
            // The size must be the same before and after it becomes a transaction: the text counts
            // twice.
            _ => text + size_of::<Summary>(),
        };
        let multiget = self.multiget.as_ref().map_or(0, |form| match &**form {
            Ok(split) => split.bytes(),
            Err(_) => size_of::<Form>(),
        });
        size_of::<Self>()
            + multiget
            + self.id.len()
            + text
            + columns
            + key
            + locks
            + transaction
            + tables
    }

    /// Combines the text of PREPARE (classified as `parsed`) with the node's answer.
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
        let result_columns = match after_of(parsed, keyspace, text) {
            After::Rewrite(_) => {
                prepared.result.columns().map(|column| ResultColumn::of(&column)).collect()
            }
            _ => Box::default(),
        };
        Self {
            explicit_keyspace,
            table_keyspace,
            key: key_markers(prepared, routing),
            result_columns,
            ..Self::opaque(prepared.id, text, parsed, keyspace)
        }
    }
}

impl ResultColumn {
    fn of(column: &ColumnSpec<'_>) -> Self {
        Self { name: Box::from(column.name), type_option: Box::from(column.type_option) }
    }
}

/// The markers of the partition key: from the node's answer (v4 and later), else (v3) by the names
/// of the key's columns. None if the key has more columns than the proxy routes by: a node may name
/// one marker any number of times, and each copy of its name takes memory.
fn key_markers(prepared: &Prepared<'_>, routing: Option<&RoutingTable>) -> Box<[KeyMarker]> {
    let told = prepared.bind.partition_key();
    if told.len() > limits::KEY_MARKERS_MAX {
        return Box::default();
    }
    let told: Vec<usize> = told.map(usize::from).collect();
    let positions =
        if told.is_empty() { by_column_names(prepared, routing).unwrap_or_default() } else { told };
    let mut names = vec![None; positions.len()];
    for (index, marker) in markers_of(prepared).enumerate() {
        let places = positions.iter().zip(&mut names);
        places.filter(|(position, _)| **position == index).for_each(|(_, name)| {
            *name = Some(marker.name);
        });
    }
    let found = positions.into_iter().zip(names);
    let found = found.map(|(index, name)| Some(KeyMarker { index, name: Box::from(name?) }));
    found.collect::<Option<Box<[_]>>>().unwrap_or_default()
}

/// The bind markers that a request has values for.
fn markers_of<'p>(prepared: &Prepared<'p>) -> impl Iterator<Item = ColumnSpec<'p>> + use<'p> {
    prepared.bind.markers().take(limits::MARKERS_MAX)
}

fn by_column_names(prepared: &Prepared<'_>, routing: Option<&RoutingTable>) -> Option<Vec<usize>> {
    let first = markers_of(prepared).next()?;
    let table = routing?.table(first.keyspace, first.table)?;
    if table.partition_key.len() > limits::KEY_MARKERS_MAX {
        return None;
    }
    let position = |name: &str| {
        let markers = markers_of(prepared).enumerate();
        let mut found = markers.filter(|(_, marker)| marker.name == name);
        let (index, _) = found.next()?;
        found.next().is_none().then_some(index)
    };
    table.partition_key.iter().map(|column| position(&column.name)).collect()
}

/// Hashes of texts that are not kept, with a key that no client or node knows.
static TEXT_HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A node gave a statement the id of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForeignId;

/// Length of Cassandra's statement ids: MD5 of keyspace and text.
pub(crate) const ID_BYTES: usize = 16;

/// A core's table of statements by id, bounded in number and bytes: beyond either bound the oldest
/// one leaves, and the store has it when the core meets it again.
///
/// Every statement gets the next number, and no other statement ever has the same one.
struct Shelf<T> {
    by_id: HashMap<u128, u32, IdHashes>,
    items: VecDeque<(Arc<PreparedStatement>, T)>,
    /// Number of the first of `items`.
    first: u32,
    bytes: usize,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { by_id: HashMap::default(), items: VecDeque::new(), first: 0, bytes: 0 }
    }
}

/// The id as a number; `None` for ids of another length, which are not looked up.
#[inline]
fn id_of(id: &[u8]) -> Option<u128> {
    <[u8; ID_BYTES]>::try_from(id).ok().map(u128::from_le_bytes)
}

impl<T> Shelf<T> {
    #[inline]
    fn find(&self, id: &[u8]) -> Option<u32> {
        self.by_id.get(&id_of(id)?).copied()
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&(Arc<PreparedStatement>, T)> {
        self.items.get(number.wrapping_sub(self.first) as usize)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut (Arc<PreparedStatement>, T)> {
        self.items.get_mut(number.wrapping_sub(self.first) as usize)
    }

    /// Inserts a statement, or replaces the one with its id.
    fn insert(&mut self, statement: Arc<PreparedStatement>, more: T) -> Option<u32> {
        let id = id_of(&statement.id)?;
        self.bytes += statement.bytes();
        if let Some(number) = self.by_id.get(&id).copied() {
            let old = std::mem::replace(
                &mut self.items[number.wrapping_sub(self.first) as usize],
                (statement, more),
            );
            self.bytes -= old.0.bytes();
            return Some(number);
        }
        let number = self.first.wrapping_add(self.items.len() as u32);
        self.by_id.insert(id, number);
        self.items.push_back((statement, more));
        while self.items.len() > limits::PREPARED_STATEMENTS_MAX
            || self.bytes > limits::PREPARED_BYTES_MAX
        {
            let Some((oldest, _)) = self.items.pop_front() else { break };
            self.first = self.first.wrapping_add(1);
            self.bytes -= oldest.bytes();
            if let Some(id) = id_of(&oldest.id) {
                self.by_id.remove(&id);
            }
        }
        Some(number)
    }
}

/// A statement as one core sees it.
#[derive(Clone, Copy)]
pub(crate) struct Learned<'a> {
    pub(crate) statement: &'a PreparedStatement,
    /// The statement's keyspace in the core's present routing table; `None`: not routable.
    pub(crate) keyspace: Option<KeyspaceIndex>,
    /// The statement's digest.
    pub(crate) digest: Digest,
    /// The digest of batches that begin with it.
    pub(crate) batch_digest: Digest,
}

impl Learned<'_> {
    /// The partition key among an EXECUTE's values; `None` if a part of it is absent, null or
    /// unset.
    #[inline]
    pub(crate) fn routing_key<'v>(
        &self,
        values: &Values<'v>,
        scratch: &'v mut Vec<u8>,
    ) -> Option<&'v [u8]> {
        let value = |marker: &KeyMarker| {
            let value = if values.is_named() {
                values.named(&marker.name)
            } else {
                values.get(marker.index)
            };
            match value {
                Some(Value::Bytes(bytes)) => Some(bytes),
                _ => None,
            }
        };
        match &self.statement.key[..] {
            [] => None,
            [single] => value(single),
            several => {
                let built = partition_key(several.iter().map(value), scratch);
                built.then_some(&scratch[..])
            }
        }
    }

    /// Token of that key.
    #[inline]
    pub(crate) fn token(&self, values: &Values<'_>, scratch: &mut Vec<u8>) -> Option<Token> {
        self.routing_key(values, scratch).map(token::token)
    }
}

/// The knowledge of one core about a statement.
#[derive(Clone, Copy)]
struct Local {
    keyspace: Option<KeyspaceIndex>,
    digest: Digest,
    batch_digest: Digest,
}

/// The statements that one core has met.
pub(crate) struct PreparedCache {
    store: Arc<PreparedStore>,
    met: Shelf<Local>,
    routing: Option<Arc<RoutingTable>>,
    /// Number of statements whose number went to another text.
    pub(crate) replaced: u32,
}

impl PreparedCache {
    pub(crate) fn new(store: Arc<PreparedStore>) -> Self {
        Self { store, met: Shelf::default(), routing: None, replaced: 0 }
    }

    /// The number of the statement with this id, if any client of the process prepared it.
    #[inline]
    fn find(&mut self, id: &[u8]) -> Option<u32> {
        match self.met.find(id) {
            Some(number) => Some(number),
            None => self.find_in_store(id),
        }
    }

    /// The statement with this id and its number.
    #[inline]
    pub(crate) fn look_up(&mut self, id: &[u8]) -> Option<(u32, Learned<'_>)> {
        let number = self.find(id)?;
        let learned = self.get(number)?;
        learned.statement.mark.executed();
        Some((number, learned))
    }

    #[cold]
    fn find_in_store(&mut self, id: &[u8]) -> Option<u32> {
        let statement = self.store.find(id)?;
        self.keep(statement)
    }

    /// The statement with this number; `None` once it has left.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<Learned<'_>> {
        let (statement, local) = self.met.get(number)?;
        let Local { keyspace, digest, batch_digest } = *local;
        Some(Learned { statement, keyspace, digest, batch_digest })
    }

    /// The text of the statement with this id, if this core has met it.
    pub(crate) fn text_of(&self, id: &[u8]) -> Option<&str> {
        let (statement, _) = self.met.get(self.number_of(id)?)?;
        statement.text.as_deref()
    }

    /// The number of the statement with this id, if this core has met it.
    pub(crate) fn number_of(&self, id: &[u8]) -> Option<u32> {
        self.met.find(id)
    }

    /// Notes the digest of a statement, or of batches that begin with it.
    pub(crate) fn set_digest(&mut self, number: u32, is_in_batch: bool, digest: Digest) {
        match self.met.get_mut(number) {
            Some((_, local)) if is_in_batch => local.batch_digest = digest,
            Some((_, local)) => local.digest = digest,
            None => {}
        }
    }

    /// A shared handle to the statement with this number.
    pub(crate) fn shared(&self, number: u32) -> Option<Arc<PreparedStatement>> {
        self.met.get(number).map(|(statement, _)| Arc::clone(statement))
    }

    /// Remembers a statement under the id that a node gave it, as [`learn`](Self::learn) does. A
    /// node must not replace the statement of another client, whose modes, rules and key apply to
    /// each EXECUTE, also on links to other nodes.
    ///
    /// # Errors
    /// The id is that of another statement. Nothing changes.
    pub(crate) fn learn_from_node(
        &mut self,
        account: Account,
        statement: PreparedStatement,
    ) -> Result<bool, ForeignId> {
        let before = self.statement(&statement.id);
        if before.is_some_and(|before| !before.is_same_as(&statement)) {
            return Err(ForeignId);
        }
        self.remember(account, statement, true)
    }

    /// Remembers a statement for all cores, together with earlier shapes of its columns that
    /// clients may know. Returns whether the other nodes should prepare it: it is new, or its text
    /// is not kept, so that the proxy could not prepare it there later.
    pub(crate) fn learn(&mut self, account: Account, statement: PreparedStatement) -> bool {
        self.remember(account, statement, false).unwrap_or_default()
    }

    /// `keeps_other`: another statement with the id stays, whichever core learned it.
    fn remember(
        &mut self,
        account: Account,
        mut statement: PreparedStatement,
        keeps_other: bool,
    ) -> Result<bool, ForeignId> {
        let before = self.statement(&statement.id);
        if let Some(before) = &before {
            statement.shape = statement.shape.after(before.shape);
            statement.mark = before.mark.clone();
        }
        let unknown = before.is_none() || statement.text.is_none();
        let statement = Arc::new(statement);
        self.store.insert(account, &statement, keeps_other)?;
        self.keep(statement);
        Ok(unknown)
    }

    fn keep(&mut self, statement: Arc<PreparedStatement>) -> Option<u32> {
        let before = self.met.find(&statement.id).and_then(|number| self.met.get(number));
        if before.is_some_and(|(before, _)| !before.is_same_as(&statement)) {
            self.replaced = self.replaced.wrapping_add(1);
        }
        let keyspace = self.place(&statement);
        let digest = if statement.text.is_some() { Digest::UNKNOWN } else { Digest::NONE };
        self.met.insert(statement, Local { keyspace, digest, batch_digest: digest })
    }

    /// Finds the statements' keyspaces in a new routing table.
    pub(crate) fn resolve(&mut self, routing: &Arc<RoutingTable>) {
        self.routing = Some(Arc::clone(routing));
        let mut items = std::mem::take(&mut self.met.items);
        for (statement, local) in &mut items {
            local.keyspace = self.place(statement);
        }
        self.met.items = items;
    }

    fn place(&self, statement: &PreparedStatement) -> Option<KeyspaceIndex> {
        if statement.key.is_empty() {
            return None;
        }
        let name = statement.table_keyspace.as_deref()?;
        self.routing.as_ref()?.resolve_keyspace(&Identifier::exact(name))
    }

    /// A statement by its id.
    pub(crate) fn statement(&mut self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        let number = self.find(id)?;
        self.shared(number)
    }
}

#[cfg(test)]
mod tests;
