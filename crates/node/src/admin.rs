//! Admin view of the nodes: their part of metrics, health and `/status`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use shunt_admin::{
    Counter, Encoder, Heartbeats, Json, Label, Labels, Map, Part, Snapshot, State, Unit, Value,
};
use shunt_storage::row_cache::RowCacheStatistics;
use shunt_storage::store::{FRAGMENT_CLASSES, StoreFigures};

use crate::metrics::{LoopMetrics, RequestKind};
use crate::shared::Shared;

/// Metrics and status of the nodes of a process.
pub struct NodesAdmin {
    shared: Arc<Shared>,
    /// The metrics of each loop of each node.
    loops: Vec<Vec<Arc<LoopMetrics>>>,
    heartbeats: Heartbeats,
    draining: AtomicBool,
}

/// Engine counters to export: name in RocksDB, exported name, help text, unit, and divisor.
const ENGINE_COUNTERS: [(&str, &str, &str, Option<Unit>, f64); 6] = [
    (
        "rocksdb.compact.read.bytes",
        "shunt_store_compaction_read",
        "Bytes read by compaction.",
        Some(Unit::Bytes),
        1.0,
    ),
    (
        "rocksdb.compact.write.bytes",
        "shunt_store_compaction_written",
        "Bytes written by compaction.",
        Some(Unit::Bytes),
        1.0,
    ),
    (
        "rocksdb.flush.write.bytes",
        "shunt_store_flush_written",
        "Bytes written by flushes.",
        Some(Unit::Bytes),
        1.0,
    ),
    (
        "rocksdb.block.cache.hit",
        "shunt_store_block_cache_hits",
        "Blocks found in the cache.",
        None,
        1.0,
    ),
    (
        "rocksdb.block.cache.miss",
        "shunt_store_block_cache_misses",
        "Blocks read from disk.",
        None,
        1.0,
    ),
    (
        "rocksdb.bloom.filter.useful",
        "shunt_store_filter_hits",
        "Reads that a Bloom filter avoided.",
        None,
        1.0,
    ),
];

/// One figure of a store.
type StoreNumber = fn(&StoreFigures) -> f64;

impl NodesAdmin {
    pub(crate) fn new(shared: Arc<Shared>, loops: Vec<Vec<Arc<LoopMetrics>>>) -> Self {
        let heartbeats = Heartbeats::new(loops.iter().map(Vec::len).sum());
        Self { shared, loops, heartbeats, draining: AtomicBool::new(false) }
    }

    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn label(&self, node: usize) -> Labels {
        vec![("node", self.shared.info.nodes[node].address.to_string())]
    }

    /// One value per node: the sum over its loops.
    fn per_node(&self, number: impl Fn(&LoopMetrics) -> u64) -> Vec<Value> {
        let sum = |loops: &Vec<Arc<LoopMetrics>>| {
            loops.iter().map(|metrics| number(metrics)).sum::<u64>() as f64
        };
        self.loops.iter().enumerate().map(|(node, loops)| (self.label(node), sum(loops))).collect()
    }

    fn loops(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let connections = self.per_node(|metrics| metrics.connections.get());
        encoder.gauge("shunt_store_connections", "Connections to the node.", None, &connections)?;
        let accepted = self.per_node(|metrics| metrics.accepted.get());
        encoder.counter(
            "shunt_store_connections_accepted",
            "Connections accepted.",
            None,
            &accepted,
        )?;
        let mut requests = Vec::new();
        for kind in RequestKind::ALL {
            for (mut labels, value) in self.per_node(|metrics| metrics.requests.of(*kind).get()) {
                labels.push((RequestKind::NAME, kind.text().to_owned()));
                requests.push((labels, value));
            }
        }
        encoder.counter(
            "shunt_store_requests",
            "Requests, those in aggregated frames included.",
            None,
            &requests,
        )?;
        type Number = fn(&LoopMetrics) -> &Counter;
        let counters: [(&str, &str, Number); 6] = [
            ("shunt_store_requests_handed_over", "Requests passed to worker threads.", |metrics| {
                &metrics.handed_over
            }),
            (
                "shunt_store_writes_stalled",
                "Writes passed to worker threads while compaction lagged.",
                |m| &m.stalled,
            ),
            ("shunt_store_errors", "Requests answered with an error.", |metrics| &metrics.errors),
            ("shunt_store_protocol_errors", "Connections closed for malformed messages.", |m| {
                &m.protocol_errors
            }),
            ("shunt_store_clients_cut_off", "Clients closed for unread answers.", |m| &m.cut_off),
            ("shunt_store_traces_lost", "Traces dropped because they came too fast.", |m| {
                &m.traces_lost
            }),
        ];
        for (name, help, number) in counters {
            encoder.counter(name, help, None, &self.per_node(|metrics| number(metrics).get()))?;
        }
        let waiting = self.per_node(|metrics| metrics.waiting.get());
        encoder.gauge(
            "shunt_store_answers_waiting",
            "Answers that wait for a sync of the log.",
            None,
            &waiting,
        )?;
        let frames = |loops: &Vec<Arc<LoopMetrics>>| {
            let mut sum = Snapshot::default();
            loops.iter().for_each(|metrics| metrics.requests_per_frame.add_to(&mut sum));
            sum
        };
        let frames: Vec<(Labels, Snapshot)> = self
            .loops
            .iter()
            .enumerate()
            .map(|(node, loops)| (self.label(node), frames(loops)))
            .collect();
        encoder.sizes("shunt_store_requests_per_frame", "Requests in an aggregated frame.", &frames)
    }

    fn stores(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let figures: Vec<StoreFigures> =
            self.shared.stores().iter().map(|store| store.figures()).collect();
        self.store_counters(&figures, encoder)?;
        self.store_gauges(&figures, encoder)?;
        let healthy: Vec<Value> = self
            .shared
            .stores()
            .iter()
            .enumerate()
            .map(|(node, store)| (self.label(node), f64::from(u8::from(store.health().is_ok()))))
            .collect();
        encoder.gauge("shunt_store_writable", "Whether the store takes writes.", None, &healthy)?;
        self.row_caches(&figures, encoder)?;
        self.fragments(&figures, encoder)?;
        self.engines(encoder)
    }

    fn store_counters(&self, figures: &[StoreFigures], encoder: &mut Encoder<'_>) -> fmt::Result {
        let counters: [(&str, &str, Option<Unit>, StoreNumber); 11] = [
            ("shunt_store_batches", "Batches written.", None, |f| f.applies as f64),
            (
                "shunt_store_fragments_written",
                "Fragments of rows in the batches written.",
                None,
                |f| f.mutations as f64,
            ),
            ("shunt_store_syncs", "Syncs of the log.", None, |f| f.syncs as f64),
            ("shunt_store_batches_synced", "Batches made durable by syncs.", None, |f| {
                f.synced as f64
            }),
            ("shunt_store_sync", "Time of syncs.", Some(Unit::Seconds), |f| f.sync_us as f64 / 1e6),
            (
                "shunt_store_stall",
                "Time that writes waited for compaction.",
                Some(Unit::Seconds),
                |f| f.stalled_us as f64 / 1e6,
            ),
            ("shunt_store_reads", "Rows read from the engine.", None, |f| f.reads as f64),
            (
                "shunt_store_reads_blocked",
                "Reads passed to worker threads, as they needed the disk.",
                None,
                |f| f.would_block as f64,
            ),
            (
                "shunt_store_written_back",
                "Rows written back after a read merged them.",
                None,
                |f| f.written_back as f64,
            ),
            ("shunt_store_broken_merges", "Merges that met a broken fragment.", None, |f| {
                f.broken_merges as f64
            }),
            ("shunt_store_catalogue_errors", "Failed writes of the catalogue.", None, |f| {
                f.catalogue_errors as f64
            }),
        ];
        for (name, help, unit, number) in counters {
            encoder.counter(name, help, unit.as_ref(), &self.by_store(figures, number))?;
        }
        Ok(())
    }

    fn store_gauges(&self, figures: &[StoreFigures], encoder: &mut Encoder<'_>) -> fmt::Result {
        let gauges: [(&str, &str, Option<Unit>, StoreNumber); 7] = [
            ("shunt_store_schemas", "Schemas in the catalogue.", None, |f| {
                f.catalogue.schemas as f64
            }),
            (
                "shunt_store_base_schemas",
                "Schemas in the catalogue with a presence bitmap.",
                None,
                |f| f.catalogue.bases as f64,
            ),
            ("shunt_store_disk", "Of the files in use.", Some(Unit::Bytes), |f| {
                f.sizes.disk_bytes as f64
            }),
            ("shunt_store_memtables", "Not in files yet.", Some(Unit::Bytes), |f| {
                f.sizes.memtable_bytes as f64
            }),
            ("shunt_store_block_cache", "Used of the block cache.", Some(Unit::Bytes), |f| {
                f.sizes.cache_bytes as f64
            }),
            ("shunt_store_files", "Files in use.", None, |f| f.sizes.files as f64),
            ("shunt_store_keys", "Rows, estimated.", None, |f| f.sizes.keys as f64),
        ];
        for (name, help, unit, number) in gauges {
            encoder.gauge(name, help, unit.as_ref(), &self.by_store(figures, number))?;
        }
        Ok(())
    }

    fn by_store(&self, figures: &[StoreFigures], number: StoreNumber) -> Vec<Value> {
        let value = |(node, figures)| (self.label(node), number(figures));
        figures.iter().enumerate().map(value).collect()
    }

    fn row_caches(&self, figures: &[StoreFigures], encoder: &mut Encoder<'_>) -> fmt::Result {
        let caches: Vec<RowCacheStatistics> =
            figures.iter().map(|f| f.row_cache.unwrap_or_default()).collect();
        let values = |number: fn(&RowCacheStatistics) -> u64| -> Vec<Value> {
            caches
                .iter()
                .enumerate()
                .map(|(node, cache)| (self.label(node), number(cache) as f64))
                .collect()
        };
        type Number = fn(&RowCacheStatistics) -> u64;
        let tiers = |memory: Number, ssd: Number| -> Vec<Value> {
            let tier = |name: &'static str| {
                move |(mut labels, value): Value| {
                    labels.push(("tier", name.to_owned()));
                    (labels, value)
                }
            };
            values(memory)
                .into_iter()
                .map(tier("memory"))
                .chain(values(ssd).into_iter().map(tier("ssd")))
                .collect()
        };
        let hits = tiers(|c| c.memory_hits, |c| c.ssd_hits);
        encoder.counter(
            "shunt_store_row_cache_hits",
            "Rows answered by the row cache.",
            None,
            &hits,
        )?;
        let rows = tiers(|c| c.memory_rows, |c| c.index_entries);
        encoder.gauge("shunt_store_row_cache_rows", "Rows in the row cache.", None, &rows)?;
        let used = tiers(|c| c.memory_bytes, |c| c.ssd_bytes);
        encoder.gauge(
            "shunt_store_row_cache_used",
            "Taken by the row cache.",
            Some(&Unit::Bytes),
            &used,
        )?;
        let index = values(|c| c.index_bytes);
        encoder.gauge(
            "shunt_store_row_cache_index",
            "Index of the SSD tier, in memory.",
            Some(&Unit::Bytes),
            &index,
        )?;
        let on = values(|c| u64::from(c.ssd_on));
        encoder.gauge(
            "shunt_store_row_cache_ssd_on",
            "Whether there is an SSD tier and it works.",
            None,
            &on,
        )?;
        let counters: [(&str, &str, Option<Unit>, Number); 6] = [
            ("shunt_store_row_cache_misses", "Rows not in the row cache.", None, |c| c.misses),
            ("shunt_store_row_cache_ssd_written", "Written to the SSD.", Some(Unit::Bytes), |c| {
                c.ssd_bytes_written
            }),
            ("shunt_store_row_cache_ssd_row", "Of rows brought there.", Some(Unit::Bytes), |c| {
                c.ssd_row_bytes_written
            }),
            ("shunt_store_row_cache_ssd_reads", "Reads of the SSD.", None, |c| c.ssd_reads),
            (
                "shunt_store_row_cache_ssd_errors",
                "Reads and writes of the SSD that failed.",
                None,
                |c| c.ssd_read_errors + c.ssd_write_errors,
            ),
            ("shunt_store_row_cache_ssd_collected", "Segments collected.", None, |c| {
                c.ssd_segments_collected
            }),
        ];
        for (name, help, unit, number) in counters {
            encoder.counter(name, help, unit.as_ref(), &values(number))?;
        }
        Ok(())
    }

    fn fragments(&self, figures: &[StoreFigures], encoder: &mut Encoder<'_>) -> fmt::Result {
        let mut values = Vec::new();
        for (node, figures) in figures.iter().enumerate() {
            for (class, count) in figures.fragments.iter().enumerate() {
                let up_to =
                    FRAGMENT_CLASSES.get(class).map_or_else(|| "more".to_owned(), u32::to_string);
                let mut labels = self.label(node);
                labels.push(("up_to", up_to));
                values.push((labels, *count as f64));
            }
        }
        encoder.counter(
            "shunt_store_reads_by_fragments",
            "Reads by how many fragments they merged.",
            None,
            &values,
        )
    }

    fn engines(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let statistics: Vec<Vec<(String, u64)>> =
            self.shared.stores().iter().map(|store| store.engine_statistics()).collect();
        for (theirs, ours, help, unit, scale) in &ENGINE_COUNTERS {
            let of = |statistics: &Vec<(String, u64)>| {
                statistics.iter().find(|(name, _)| name == theirs).map(|(_, v)| *v)
            };
            let value =
                |(node, statistics)| (self.label(node), of(statistics).unwrap_or(0) as f64 / scale);
            let values: Vec<Value> = statistics.iter().enumerate().map(value).collect();
            encoder.counter(ours, help, unit.as_ref(), &values)?;
        }
        Ok(())
    }

    fn node_status(&self, node: usize) -> Json {
        let info = &self.shared.info.nodes[node];
        let sum = |number: fn(&LoopMetrics) -> u64| -> u64 {
            self.loops[node].iter().map(|m| number(m)).sum()
        };
        let store = &self.shared.stores()[node];
        let figures = store.figures();
        json!({
            "address": info.address.to_string(),
            "loops": self.loops[node].len(),
            "tokens": info.tokens.len(),
            "connections": sum(|metrics| metrics.connections.get()),
            "requests": sum(|metrics| metrics.requests.total()),
            "errors": sum(|metrics| metrics.errors.get()),
            "answers_waiting": sum(|metrics| metrics.waiting.get()),
            "writable": store.health().is_ok(),
            "refuses_writes_because": store.health().err().map(|error| error.to_string()),
            "disk_bytes": figures.sizes.disk_bytes,
            "memtable_bytes": figures.sizes.memtable_bytes,
            "rows_estimated": figures.sizes.keys,
            "row_cache": figures.row_cache.map(|cache| json!({
                "memory_hits": cache.memory_hits,
                "ssd_hits": cache.ssd_hits,
                "misses": cache.misses,
                "memory_rows": cache.memory_rows,
                "memory_bytes": cache.memory_bytes,
                "ssd_rows": cache.index_entries,
                "ssd_on": cache.ssd_on,
            })),
            "syncs": figures.syncs,
            "sync_us_max": figures.sync_us_max,
        })
    }
}

impl Part for NodesAdmin {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        self.loops(encoder)?;
        self.stores(encoder)
    }

    fn stuck(&self, now: Instant) -> Map<String, Json> {
        let turns = self.loops.iter().flatten().map(|metrics| metrics.turns.get());
        let stuck = self.heartbeats.stuck(turns, now);
        let entry = (!stuck.is_empty()).then(|| ("node_loops".to_owned(), stuck.into()));
        entry.into_iter().collect()
    }

    fn not_ready(&self) -> Option<String> {
        self.draining.load(Ordering::Relaxed).then(|| "draining".to_owned())
    }

    fn status(&self) -> State<'_> {
        let nodes: Vec<Json> = (0..self.loops.len()).map(|node| self.node_status(node)).collect();
        let directory = self.shared.directory().display().to_string();
        let state = json!({ "store": { "data": directory, "cluster_name": self.shared.info.name, "nodes": nodes } });
        Box::pin(std::future::ready(state))
    }
}
