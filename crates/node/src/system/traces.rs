//! `system_traces`: traces as rows that stay for a day.
//!
//! A separate thread writes them, so that no answer waits for its trace. Clients expect a delay and
//! retry until a trace has a duration; the rows of both tables become visible at once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use shunt_language::functions::timeuuid;
use shunt_language::values::split;
use shunt_storage::Target;
use shunt_storage::row::{Expiry, Fragment, PartitionKey, Row, TableId};
use shunt_storage::store::{Durability, Mutation, Store};

use super::in_order;
use super::values::RowMaker;
use crate::cluster::ClusterInfo;
use crate::error::CqlError;
use crate::execute::fragment::{WriteTime, whole_row};
use crate::execute::keys::Partition;
use crate::schema::{Schema, Table};
use crate::stop_outcome;
use crate::trace::{Event, Trace};

pub(super) const KEYSPACE: &str = "system_traces";

/// Lifetime of a trace in seconds: `trace_type_query_ttl`.
const TTL_S: u32 = 24 * 60 * 60;
/// Most traces waiting to be written, and bytes of their texts; further ones are lost.
const WAITING_MAX: usize = 8192;
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Durability of traces.
const DURABILITY: Durability = Durability::Periodic { interval: Duration::from_secs(1) };

/// Storage number of a table in a system keyspace; `None` for tables whose rows come from memory.
/// User tables count up from 0, the storage's own is `u32::MAX`.
pub(super) fn number(keyspace: &str, index: usize) -> Option<TableId> {
    (keyspace == KEYSPACE).then(|| TableId(u32::MAX - 1 - index as u32))
}

/// A finished request, and the node that executed it.
struct Finished {
    trace: Box<Trace>,
    duration_us: u64,
    node: usize,
    thread: String,
    bytes: usize,
}

/// The writer thread.
struct Started {
    /// `None` ends the thread.
    sender: SyncSender<Option<Finished>>,
    /// Running until closed.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Destination of traces. Dropping it ends the thread after it has written waiting traces.
pub(crate) struct Traces {
    writer: Option<Writer>,
    /// Started with the first trace: most processes never have one.
    started: OnceLock<Option<Started>>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// State of the writer thread.
#[derive(Clone)]
struct Writer {
    stores: Vec<Arc<Store>>,
    info: ClusterInfo,
    sessions: Arc<Table>,
    events: Arc<Table>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Traces {
    /// Traces go to these stores, into the tables that `schema` defines for them.
    pub(crate) fn new(stores: &[Arc<Store>], info: &ClusterInfo, schema: &Schema) -> Traces {
        let table = |name: &str| schema.table(KEYSPACE, name).cloned();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let writer = table("sessions").zip(table("events")).map(|(sessions, events)| Writer {
            stores: stores.to_vec(),
            info: info.clone(),
            sessions,
            events,
            waiting_bytes: Arc::clone(&waiting_bytes),
        });
        Traces { writer, started: OnceLock::new(), waiting_bytes }
    }

    /// Takes the trace of a request that `node` has just answered. Never waits; returns whether
    /// there was room.
    pub(crate) fn keep(&self, mut trace: Box<Trace>, node: usize) -> bool {
        let duration_us = trace.end();
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let bytes = trace.bytes();
        self.send(Finished { trace, duration_us, node, thread, bytes })
    }

    fn send(&self, finished: Finished) -> bool {
        let sender = self.started.get_or_init(|| self.writer.clone().and_then(start)).as_ref();
        let Some(Started { sender, .. }) = sender else { return false };
        let bytes = finished.bytes;
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = before + bytes <= WAITING_BYTES_MAX && sender.try_send(Some(finished)).is_ok();
        if !sent {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }
}

impl Traces {
    /// Name of the thread if it has ended without being told to.
    pub(crate) fn dead_threads(&self) -> Vec<String> {
        let Some(started) = self.started.get().and_then(Option::as_ref) else { return Vec::new() };
        stop_outcome::ended(&*started.thread.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes waiting traces and ends the thread, like dropping; false if it had panicked. Later
    /// traces are lost.
    pub(crate) fn close(&self) -> bool {
        let Some(started) = self.started.get().and_then(Option::as_ref) else { return true };
        let _ = started.sender.send(None);
        let thread = started.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.is_none_or(|thread| thread.join().is_ok())
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.close();
    }
}

fn start(writer: Writer) -> Option<Started> {
    let (sender, inbox) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("traces".to_owned());
    match thread.spawn(move || writer.run(&inbox)) {
        Ok(thread) => Some(Started { sender, thread: Mutex::new(Some(thread)) }),
        Err(error) => {
            tracing::error!(%error, "no thread for traces could be started, they are lost");
            None
        }
    }
}

/// A row in the store's form.
struct Stored {
    table: TableId,
    partition: Partition,
    clustering: Vec<u8>,
    row: Row,
}

impl Stored {
    fn mutation(&self) -> Mutation<'_> {
        Mutation {
            table: self.table,
            partition: PartitionKey(&self.partition.key),
            target: Target::Row(&self.clustering),
            fragment: Fragment::Row(self.row.clone()),
        }
    }
}

impl Writer {
    fn run(&self, inbox: &Receiver<Option<Finished>>) {
        while let Ok(Some(finished)) = inbox.recv() {
            if let Err(error) = self.write(&finished) {
                tracing::warn!(?error, "a trace could not be written");
            }
            self.waiting_bytes.fetch_sub(finished.bytes, Ordering::Relaxed);
        }
    }

    /// Writes a trace to the store that owns it, all or nothing.
    fn write(&self, finished: &Finished) -> Result<(), CqlError> {
        let Finished { trace, duration_us, node, thread, .. } = finished;
        let now = (trace.origin.started_us + *duration_us as i64) / 1_000_000;
        let expiry = Some(Expiry { ttl: TTL_S, at: now + i64::from(TTL_S) });
        let time = WriteTime { timestamp: trace.origin.started_us, expiry, now };
        let address = self.info.nodes[*node].address;
        let mut rows = vec![(&self.sessions, session(trace, *duration_us, address))];
        let mut last_100ns = 0;
        for event in &trace.events {
            // Ids preserve order even within one microsecond.
            last_100ns =
                (last_100ns + 1).max((trace.origin.started_us + event.elapsed_us as i64) * 10);
            rows.push((&self.events, event_row(trace, event, last_100ns, address, thread)));
        }
        let mut stored = Vec::with_capacity(rows.len());
        for (table, row) in rows {
            let Some(number) = table.number else { continue };
            let (partition, clustering, row) = whole_row(table, &in_order(table, row), time)?;
            stored.push(Stored { table: number, partition, clustering, row });
        }
        // All rows of a trace are in partitions of the same key.
        let Some(first) = stored.first() else { return Ok(()) };
        let store = &self.stores[self.info.owner(first.partition.token)];
        let mutations: Vec<Mutation<'_>> = stored.iter().map(Stored::mutation).collect();
        store.apply(&mutations, DURABILITY)?;
        Ok(())
    }
}

fn whole(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn session(trace: &Trace, duration_us: u64, address: SocketAddr) -> RowMaker {
    let parameters: Vec<&[u8]> = trace
        .parameters
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()])
        .collect();
    let row = RowMaker::default()
        .uuid("session_id", &trace.origin.session)
        .text("command", "QUERY")
        .inet("coordinator", address.ip())
        .int("coordinator_port", i32::from(address.port()))
        .int("duration", whole(duration_us))
        .blob("parameters", &split::join_collection(trace.parameters.len(), parameters))
        .text("request", trace.request)
        .bigint("started_at", trace.origin.started_us / 1000);
    match trace.origin.client {
        Some(client) => row.inet("client", client),
        None => row,
    }
}

fn event_row(
    trace: &Trace,
    event: &Event,
    time_100ns: i64,
    address: SocketAddr,
    thread: &str,
) -> RowMaker {
    let random = trace.origin.session.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    RowMaker::default()
        .uuid("session_id", &trace.origin.session)
        .uuid("event_id", &timeuuid(time_100ns, random))
        .text("activity", &event.activity)
        .inet("source", address.ip())
        .int("source_elapsed", whole(event.elapsed_us))
        .int("source_port", i32::from(address.port()))
        .text("thread", thread)
}
