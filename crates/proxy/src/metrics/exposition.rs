//! The metrics in Prometheus's format, summed over cores unless a core label says otherwise.

mod hedges;
mod own_statements;
mod tls;
mod transactions;

use std::fmt;
use std::sync::Arc;

use shunt_admin::{
    Counter, Encoder, Family, Gauge, Gauges, Histogram, Label, Labels, Snapshot, Unit, Value, plain,
};

use super::{ControlMetrics, CoreMetrics, GivenUp, HandoverMetrics, NodeMetrics, TlsMetrics};
use crate::control::view::ClusterView;
use crate::prepared::PreparedStore;
use crate::traces::report::TraceReport;

/// The sources of all exposed metrics.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Counters of every core.
    pub cores: Arc<[Arc<CoreMetrics>]>,
    /// Counters of the control plane.
    pub control: Arc<ControlMetrics>,
    /// The ring as last read.
    pub cluster: ClusterView,
    /// Prepared statements of all cores.
    pub prepared: Arc<PreparedStore>,
    /// Counters of TLS with clients.
    pub tls: Arc<TlsMetrics>,
    /// Traces that are exported.
    pub traces: Arc<TraceReport>,
}

impl Sources {
    /// Writes all metrics.
    ///
    /// # Errors
    /// Those of the encoder.
    pub(crate) fn write(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        self.loops(encoder)?;
        self.clients(encoder)?;
        self.tls(encoder)?;
        self.stalls(encoder)?;
        self.pools(encoder)?;
        self.statements(encoder)?;
        self.locks(encoder)?;
        self.transactions(encoder)?;
        self.queries(encoder)?;
        self.hedges(encoder)?;
        self.own_statements(encoder)?;
        self.traces.write(encoder, &self.cores)?;
        self.multigets(encoder)?;
        self.handovers(encoder)?;
        self.nodes(encoder)?;
        self.control(encoder)
    }

    /// Sum of one number over all cores.
    fn total(&self, number: impl Fn(&CoreMetrics) -> u64) -> u64 {
        self.cores.iter().map(|core| number(core)).sum()
    }

    /// Sum of a family over all cores, by label.
    fn family<L: Label, const N: usize>(
        &self,
        family: impl Fn(&CoreMetrics) -> &Family<L, N>,
    ) -> Vec<Value> {
        let value = |label: &L| {
            let labels = vec![(L::NAME, label.text().to_owned())];
            (labels, self.total(|core| family(core).of(*label).get()) as f64)
        };
        L::ALL.iter().map(value).collect()
    }

    /// Sum of gauges over all cores, by label.
    fn gauges<L: Label, const N: usize>(
        &self,
        gauges: impl Fn(&CoreMetrics) -> &Gauges<L, N>,
    ) -> Vec<Value> {
        let value = |label: &L| {
            let labels = vec![(L::NAME, label.text().to_owned())];
            (labels, self.total(|core| gauges(core).of(*label).get()) as f64)
        };
        L::ALL.iter().map(value).collect()
    }

    /// One value per core.
    fn per_core(&self, number: impl Fn(&CoreMetrics) -> f64) -> Vec<Value> {
        let value = |core: &Arc<CoreMetrics>| (vec![("core", core.core.to_string())], number(core));
        self.cores.iter().map(value).collect()
    }

    fn loops(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let info = |core: &Arc<CoreMetrics>| {
            let driver = core.driver.get().cloned().unwrap_or_else(|| "none".to_owned());
            (vec![("core", core.core.to_string()), ("driver", driver)], 1.0)
        };
        let loops: Vec<Value> = self.cores.iter().map(info).collect();
        encoder.gauge("shunt_loop", "Event loops, by I/O driver.", None, &loops)?;
        let turns = self.per_core(|core| core.turns.get() as f64);
        encoder.counter("shunt_turns", "Turns of the event loop.", None, &turns)?;
        let window = self.per_core(|core| core.window_ns.get() as f64 / 1e9);
        encoder.gauge("shunt_window", "Waiting window in force.", Some(&Unit::Seconds), &window)?;
        let buffers = self.per_core(|core| core.idle_buffer_bytes.get() as f64);
        encoder.gauge(
            "shunt_idle_buffers",
            "Pooled buffers that are free.",
            Some(&Unit::Bytes),
            &buffers,
        )
    }

    fn clients(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let clients = self.per_core(|core| core.clients.get() as f64);
        encoder.gauge("shunt_clients", "Clients connected.", None, &clients)?;
        let accepted = self.total(|core| core.clients_accepted.get()) as f64;
        encoder.counter("shunt_clients_accepted", "Clients accepted.", None, &[plain(accepted)])?;
        let refused = self.family(|core| &core.clients_refused);
        encoder.counter("shunt_clients_refused", "Clients refused, by reason.", None, &refused)?;
        let paused = self.total(|core| core.clients_paused.get()) as f64;
        encoder.gauge(
            "shunt_clients_paused",
            "Clients from which the proxy does not read now (backpressure).",
            None,
            &[plain(paused)],
        )?;
        let pauses = self.total(|core| core.client_pauses.get()) as f64;
        encoder.counter(
            "shunt_client_pauses",
            "Times a client was paused.",
            None,
            &[plain(pauses)],
        )?;
        let waits = self.total(|core| core.share_waits.get()) as f64;
        let help = "Times a client waited because it had its part of a crowded link.";
        encoder.counter("shunt_client_share_waits", help, None, &[plain(waits)])?;
        let errors = self.total(|core| core.client_protocol_errors.get()) as f64;
        encoder.counter(
            "shunt_client_protocol_errors",
            "Clients closed after a protocol error.",
            None,
            &[plain(errors)],
        )?;
        let bytes_in = self.total(|core| core.client_bytes_in.get()) as f64;
        encoder.counter(
            "shunt_client_received",
            "Bytes received from clients.",
            Some(&Unit::Bytes),
            &[plain(bytes_in)],
        )?;
        let bytes_out = self.total(|core| core.client_bytes_out.get()) as f64;
        encoder.counter(
            "shunt_client_sent",
            "Bytes sent to clients.",
            Some(&Unit::Bytes),
            &[plain(bytes_out)],
        )
    }

    fn stalls(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let closed = self.family(|core| &core.clients_closed);
        encoder.counter(
            "shunt_clients_closed",
            "Clients that the proxy closed, by reason.",
            None,
            &closed,
        )?;
        let errors = self.family(|core| &core.final_errors);
        encoder.counter(
            "shunt_kick_errors",
            "Errors to requests in flight of clients that an operator closed.",
            None,
            &errors,
        )?;
        let stalled = self.gauges(|core| &core.clients_stalled);
        let help =
            "Clients from which the proxy does not read now, by reason; a client may have several.";
        encoder.gauge("shunt_clients_stalled", help, None, &stalled)?;
        let stalls = self.family(|core| &core.client_stalls);
        encoder.counter(
            "shunt_client_stalls",
            "Pauses of reading from a client, by reason.",
            None,
            &stalls,
        )
    }

    fn pools(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let pools = self.gauges(|core| &core.pools);
        encoder.gauge("shunt_pools", "Pools of links, by state.", None, &pools)?;
        let clients = self.gauges(|core| &core.pool_clients);
        encoder.gauge("shunt_pool_clients", "Clients by the state of their pool.", None, &clients)
    }

    fn locks(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let held = self.per_core(|core| core.locks.held.get() as f64);
        encoder.gauge("shunt_locks_held", "Holds of locks.", None, &held)?;
        let waiting = self.per_core(|core| core.locks.waiting.get() as f64);
        encoder.gauge(
            "shunt_locks_waiting",
            "Requests that wait for a lock or its row.",
            None,
            &waiting,
        )?;
        let permissions = self.family(|core| &core.locks.permissions);
        let help = "Answers of nodes about a role's right to a table's locks.";
        encoder.counter("shunt_lock_permission_checks", help, None, &permissions)?;
        let events = self.family(|core| &core.locks.events);
        encoder.counter("shunt_lock_events", "Events of locks.", None, &events)?;
        let shards = self.total(|core| core.locks.shards.get()) as f64;
        encoder.gauge(
            "shunt_fleet_shards",
            "Shards of locks that this proxy owns, of 64.",
            None,
            &[plain(shards)],
        )?;
        let lease = self.total(|core| core.locks.lease.get()) as f64;
        encoder.gauge(
            "shunt_fleet_lease",
            "1 while this proxy may grant locks.",
            None,
            &[plain(lease)],
        )?;
        let foreign = self.total(|core| core.locks.foreign.get()) as f64;
        encoder.gauge(
            "shunt_lock_foreign_tables",
            "Tables of the keyspace shunt that contain a row.",
            None,
            &[plain(foreign)],
        )?;
        let unreadable = self.cores.iter().flat_map(|core| core.locks.unreadable.all());
        let unreadable: Vec<Value> =
            unreadable.map(|bucket| (vec![("bucket", bucket.to_string())], 1.0)).collect();
        let help = "1 for each partition of shunt_meta.lock with a row that no proxy writes: its locks are not served.";
        encoder.gauge("shunt_lock_unreadable_partitions", help, None, &unreadable)?;
        let unsealed = self.total(|core| core.locks.unsealed.get()) as f64;
        encoder.gauge(
            "shunt_fleet_unsealed",
            "Dead members whose shards have no new owner yet.",
            None,
            &[plain(unsealed)],
        )?;
        let format = self.total(|core| core.locks.unknown_format.get()) as f64;
        let help = "Format of the fleet's rows if this version does not know it, else 0.";
        encoder.gauge("shunt_fleet_unknown_format", help, None, &[plain(format)])
    }

    fn statements(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let known = [plain(self.prepared.len() as f64)];
        encoder.gauge(
            "shunt_prepared_statements",
            "Prepared statements in memory.",
            None,
            &known,
        )?;
        let bytes = [plain(self.prepared.bytes() as f64)];
        encoder.gauge(
            "shunt_prepared",
            "Memory of prepared statements, estimated.",
            Some(&Unit::Bytes),
            &bytes,
        )?;
        let evicted = [plain(self.prepared.evicted() as f64)];
        encoder.counter(
            "shunt_prepared_evictions",
            "Prepared statements evicted at the limit.",
            None,
            &evicted,
        )
    }

    fn queries(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        encoder.counter(
            "shunt_queries",
            "Requests of clients, by kind.",
            None,
            &self.family(|core| &core.queries),
        )?;
        let outcomes = self.family(|core| &core.outcomes);
        let help = "Requests of clients, by outcome; retried and reprepared count in addition.";
        encoder.counter("shunt_query_outcomes", help, None, &outcomes)?;
        let routed = self.family(|core| &core.routed);
        encoder.counter(
            "shunt_queries_routed",
            "Queries, by how the proxy chose their node.",
            None,
            &routed,
        )?;
        let in_flight = self.per_core(|core| core.in_flight.get() as f64);
        encoder.gauge("shunt_in_flight", "Queries of clients in flight.", None, &in_flight)?;
        let slow = self.total(|core| core.slow_queries.get()) as f64;
        let help = "Queries slower than slow_query_ms, or that nodes could not carry out in time.";
        encoder.counter("shunt_slow_queries", help, None, &[plain(slow)])?;
        let frames = self.total(|core| core.aggregated_frames.get()) as f64;
        encoder.counter(
            "shunt_aggregated_frames",
            "Aggregated frames sent to nodes.",
            None,
            &[plain(frames)],
        )?;
        let errors = self.total(|core| core.node_protocol_errors.get()) as f64;
        encoder.counter(
            "shunt_node_protocol_errors",
            "Malformed or unexpected messages from nodes.",
            None,
            &[plain(errors)],
        )?;
        let (mut latency, mut per_write) = (Snapshot::default(), Snapshot::default());
        for core in self.cores.iter() {
            core.latency_ns.add_to(&mut latency);
            core.queries_per_write.add_to(&mut per_write);
        }
        let help = "Time from a request's arrival to its reply, as clients see it.";
        encoder.durations("shunt_query_duration", help, &[(Vec::new(), latency)])?;
        encoder.sizes(
            "shunt_queries_per_write",
            "Queries in one write to a node.",
            &[(Vec::new(), per_write)],
        )
    }

    fn handovers(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let offers = self.total(|core| core.handover.offers.get()) as f64;
        encoder.counter(
            "shunt_handover_offers",
            "Large answers that agents offered.",
            None,
            &[plain(offers)],
        )?;
        let answers = self.family(|core| &core.handover.answers);
        encoder.counter(
            "shunt_handover_answers",
            "Large answers that agents offered, by outcome.",
            None,
            &answers,
        )?;
        let relayed = self.family(|core| &core.handover.relayed);
        encoder.counter(
            "shunt_handover_relayed",
            "Large answers relayed, by reason.",
            None,
            &relayed,
        )?;
        let bytes = [plain(self.total(|core| core.handover.bytes.get()) as f64)];
        encoder.counter(
            "shunt_handover_sent",
            "Bytes that agents sent to clients.",
            Some(&Unit::Bytes),
            &bytes,
        )?;
        let away = self.per_core(|core| core.handover.away.get() as f64);
        encoder.gauge(
            "shunt_handover_away",
            "Connections of clients at agents now.",
            None,
            &away,
        )?;
        let agents = self.per_core(|core| core.handover.agents.get() as f64);
        encoder.gauge("shunt_handover_agents", "Agents that are reachable.", None, &agents)?;
        type Time = fn(&HandoverMetrics) -> &Histogram;
        let times: [(&str, &str, Time); 4] = [
            ("shunt_handover_freeze", "Time to freeze a connection that leaves.", |m| &m.freeze),
            (
                "shunt_handover_taking",
                "Time until the agent has the connection, which is still meanwhile.",
                |m| &m.taking,
            ),
            (
                "shunt_handover_absence",
                "Time until the connection is back, with its answer sent.",
                |m| &m.absence,
            ),
            (
                "shunt_handover_first_byte",
                "Time from a query to the first byte of its answer from the agent.",
                |m| &m.first_byte,
            ),
        ];
        for (name, help, histogram) in times {
            let mut all = Snapshot::default();
            self.cores.iter().for_each(|core| histogram(&core.handover).add_to(&mut all));
            encoder.durations(name, help, &[(Vec::new(), all)])?;
        }
        Ok(())
    }

    fn multigets(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let split = self.total(|core| core.multigets.split.get()) as f64;
        let help = "IN queries split.";
        encoder.counter("shunt_multigets_split", help, None, &[plain(split)])?;
        let parts = self.total(|core| core.multigets.parts.get()) as f64;
        let help = "Parts of IN queries sent to nodes; requests count them too.";
        encoder.counter("shunt_multiget_parts", help, None, &[plain(parts)])?;
        let whole = self.family(|core| &core.multigets.whole);
        encoder.counter(
            "shunt_multigets_whole",
            "IN queries sent whole, by reason.",
            None,
            &whole,
        )?;
        let lost = self.family(|core| &core.multigets.lost);
        let help = "IN queries split and then sent whole, by reason.";
        encoder.counter("shunt_multigets_lost", help, None, &lost)?;
        let open = self.per_core(|core| core.multigets.open.get() as f64);
        encoder.gauge("shunt_multigets_open", "IN queries that wait for parts.", None, &open)?;
        let bytes = self.per_core(|core| core.multigets.bytes.get() as f64);
        let help = "Bytes of requests and answers that IN queries keep while they wait for parts.";
        encoder.gauge("shunt_multigets_kept", help, Some(&Unit::Bytes), &bytes)
    }

    fn nodes(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let nodes = self.node_sums();
        let up: Vec<Value> =
            nodes.iter().map(|node| (node.labels.clone(), f64::from(node.up))).collect();
        encoder.gauge("shunt_node_up", "1 if the ring reports the node as up.", None, &up)?;
        let drained: Vec<Value> =
            nodes.iter().map(|node| (node.labels.clone(), f64::from(node.drained))).collect();
        let help = "1 if an operator has taken the node out of routing.";
        encoder.gauge("shunt_node_drained", help, None, &drained)?;
        type Level = fn(&NodeMetrics) -> &Gauge;
        let aggregated = "Open links to the node that carry aggregated frames.";
        let orphaned = "Stream ids of queries that timed out and have no answer yet.";
        let ejected = "Event loops that give the node only queries that no other node can take.";
        let gauges: [(&str, &str, Level); 5] = [
            ("shunt_node_links", "Open links to the node.", |node| &node.links),
            ("shunt_node_links_aggregated", aggregated, |node| &node.aggregated_links),
            ("shunt_node_in_flight", "Queries in flight at the node.", |node| &node.in_flight),
            ("shunt_node_streams_orphaned", orphaned, |node| &node.streams_orphaned),
            ("shunt_node_ejected", ejected, |node| &node.ejected),
        ];
        for (name, help, number) in gauges {
            let values = nodes.iter().map(|node| node.value(|metrics| number(metrics).get()));
            encoder.gauge(name, help, None, &values.collect::<Vec<_>>())?;
        }
        type Number = fn(&NodeMetrics) -> &Counter;
        let failures = "Failed connects and logins.";
        let renewed = "Links replaced to use new certificates.";
        let strangers = "Links refused because another node or cluster answered at the address.";
        let received = "Bytes received from the node.";
        let timed_out = "Queries that the node did not answer in time.";
        let errors = "Answers that said that the node itself cannot serve.";
        let ejections = "Ejections of the node by an event loop.";
        let counters: [(&str, &str, Option<Unit>, Number); 11] = [
            ("shunt_node_queries", "Queries sent to the node.", None, |node| &node.queries),
            ("shunt_node_writes", "Writes to links that contained queries.", None, |node| {
                &node.writes
            }),
            ("shunt_node_timed_out", timed_out, None, |node| &node.timed_out),
            ("shunt_node_errors", errors, None, |node| &node.errors),
            ("shunt_node_ejections", ejections, None, |node| &node.ejections),
            ("shunt_node_connect_failures", failures, None, |node| &node.connect_failures),
            ("shunt_node_links_lost", "Open links that failed.", None, |node| &node.links_lost),
            ("shunt_node_links_renewed", renewed, None, |node| &node.links_renewed),
            ("shunt_node_strangers", strangers, None, |node| &node.strangers),
            ("shunt_node_received", received, Some(Unit::Bytes), |node| &node.bytes_in),
            ("shunt_node_sent", "Bytes sent to the node.", Some(Unit::Bytes), |node| {
                &node.bytes_out
            }),
        ];
        for (name, help, unit, number) in counters {
            let values = nodes.iter().map(|node| node.value(|metrics| number(metrics).get()));
            encoder.counter(name, help, unit.as_ref(), &values.collect::<Vec<_>>())?;
        }
        let given_up: Vec<Value> = nodes.iter().flat_map(NodeSums::given_up).collect();
        encoder.counter(
            "shunt_node_links_given_up",
            "Links that the proxy closed, by reason.",
            None,
            &given_up,
        )?;
        let latency: Vec<(Labels, Snapshot)> =
            nodes.iter().map(|node| (node.labels.clone(), node.latency())).collect();
        encoder.durations(
            "shunt_node_duration",
            "Time from sending a query to the node's answer.",
            &latency,
        )
    }

    /// The ring's present nodes with what every core counts about them.
    fn node_sums(&self) -> Vec<NodeSums> {
        let Some(cluster) = self.cluster.get() else { return Vec::new() };
        let sums = |node: &shunt_topology::Node| NodeSums {
            labels: vec![
                ("node", node.address.to_string()),
                ("datacentre", node.datacentre.clone()),
            ],
            up: node.up,
            drained: cluster.drained.contains(&node.id),
            cores: self.cores.iter().filter_map(|core| core.nodes.get(node.id)).collect(),
        };
        cluster.routing.nodes().iter().map(sums).collect()
    }

    fn control(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let control = &self.control;
        let ring = self.cluster.get().map_or(0, |cluster| cluster.routing.nodes().len());
        encoder.gauge(
            "shunt_ring_nodes",
            "Nodes of the ring as last read.",
            None,
            &[plain(ring as f64)],
        )?;
        let connected = [plain(control.connected.get() as f64)];
        encoder.gauge(
            "shunt_control_connected",
            "1 while the control connection is open.",
            None,
            &connected,
        )?;
        let at = [plain(control.refreshed_at_seconds.get() as f64)];
        let help = "Time of the last complete reading of the ring, since the epoch.";
        encoder.gauge("shunt_control_refreshed_at", help, Some(&Unit::Seconds), &at)?;
        let unplaced = [plain(control.keyspaces_unplaced.get() as f64)];
        let help = "Keyspaces without token routing: ring and schema are too large for all.";
        encoder.gauge("shunt_keyspaces_without_token_routing", help, None, &unplaced)?;
        let counters: [(&str, &str, &Counter); 7] = [
            (
                "shunt_control_connect_failures",
                "Failed attempts at a control connection.",
                &control.connect_failures,
            ),
            (
                "shunt_control_strangers",
                "Nodes of another ring, refused for the control connection.",
                &control.strangers,
            ),
            (
                "shunt_control_connections_lost",
                "Control connections lost.",
                &control.connections_lost,
            ),
            ("shunt_control_events", "Events received from the ring.", &control.events),
            (
                "shunt_control_refreshes",
                "Complete readings of topology and schema.",
                &control.refreshes,
            ),
            (
                "shunt_control_refresh_failures",
                "Failed readings of topology and schema.",
                &control.refresh_failures,
            ),
            (
                "shunt_control_mail_delayed",
                "Messages delayed by a core's full mailbox.",
                &control.mail_delayed,
            ),
        ];
        for (name, help, counter) in counters {
            encoder.counter(name, help, None, &[plain(counter.get() as f64)])?;
        }
        Ok(())
    }
}

/// One node and what each core counts about it.
struct NodeSums {
    labels: Labels,
    up: bool,
    drained: bool,
    cores: Vec<Arc<NodeMetrics>>,
}

impl NodeSums {
    fn value(&self, number: impl Fn(&NodeMetrics) -> u64) -> Value {
        (self.labels.clone(), self.cores.iter().map(|core| number(core)).sum::<u64>() as f64)
    }

    fn given_up(&self) -> impl Iterator<Item = Value> + '_ {
        GivenUp::ALL.iter().map(|reason| {
            let mut labels = self.labels.clone();
            labels.push((GivenUp::NAME, reason.text().to_owned()));
            (
                labels,
                self.cores.iter().map(|core| core.links_given_up.of(*reason).get()).sum::<u64>()
                    as f64,
            )
        })
    }

    fn latency(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        self.cores.iter().for_each(|core| core.latency_ns.add_to(&mut sum));
        sum
    }
}
