//! Admin parts of shim and sidecar: metrics, health and `/status`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use shunt_admin::{Encoder, Hosts, Json, Loops, Map, Part, Reading, Snapshot, State};

use crate::metrics::{ClientGauges, ServerState, ShimMetrics, SidecarMetrics, Why};
use crate::mode::Mode;

/// Metrics and status of a shim.
#[derive(Debug)]
pub struct ShimAdmin {
    loops: Loops<ShimMetrics>,
    server: SocketAddr,
    draining: AtomicBool,
}

impl ShimAdmin {
    /// Creates the admin part for loops with these metrics, beside this server.
    pub fn new(loops: Vec<Arc<ShimMetrics>>, server: SocketAddr) -> Arc<Self> {
        Arc::new(Self { loops: Loops::new(loops), server, draining: AtomicBool::new(false) })
    }

    /// Marks the shim as draining: it should get no new requests.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn up(&self) -> u64 {
        self.loops.sum(|metrics| metrics.up.get())
    }
}

impl Part for ShimAdmin {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let counter = |encoder: &mut Encoder<'_>, name, help, number: fn(&ShimMetrics) -> u64| {
            encoder.counter(name, help, None, &self.loops.plain(number))
        };
        counter(encoder, "shunt_shim_requests", "Requests that were let in.", |m| {
            m.requests.get()
        })?;
        counter(encoder, "shunt_shim_keys", "Keys in these.", |m| m.keys.get())?;
        counter(encoder, "shunt_shim_coordinated", "Requests for several servers.", |m| {
            m.coordinated.get()
        })?;
        counter(encoder, "shunt_shim_replies", "Replies sent.", |m| m.replies.get())?;
        counter(encoder, "shunt_shim_unserved", "Requests answered without the server.", |m| {
            m.unserved.get()
        })?;
        counter(encoder, "shunt_shim_unsent", "Replies that the kernel did not take.", |m| {
            m.unsent.get()
        })?;
        let rejected = self.loops.by::<Why, _>(|metrics| &metrics.rejected);
        encoder.counter("shunt_shim_rejected", "Datagrams dropped.", None, &rejected)?;
        let waiting = self.loops.plain(|metrics| metrics.waiting.get());
        encoder.gauge(
            "shunt_shim_waiting",
            "Requests that wait for the server.",
            None,
            &waiting,
        )?;
        let waiting = self.loops.plain(|metrics| metrics.coordinating.get());
        encoder.gauge(
            "shunt_shim_coordinating",
            "Requests that wait for several servers.",
            None,
            &waiting,
        )?;
        let up = self.loops.plain(|metrics| metrics.up.get());
        encoder.gauge("shunt_shim_links", "Connections to the server.", None, &up)
    }

    fn stuck(&self, now: Instant) -> Map<String, Json> {
        self.loops.stuck("shim_loops", |metrics| metrics.turns.get(), now)
    }

    fn not_ready(&self) -> Option<String> {
        match self.draining.load(Ordering::Relaxed) {
            true => Some("draining".to_owned()),
            false => (self.up() == 0)
                .then(|| format!("the server {} cannot be reached: is it running?", self.server)),
        }
    }

    fn status(&self) -> State<'_> {
        let state = json!({ "shim": {
            "loops": self.loops.count(),
            "server": self.server.to_string(),
            "links": self.up(),
            "requests": self.loops.sum(|metrics| metrics.requests.get()),
            "keys": self.loops.sum(|metrics| metrics.keys.get()),
            "coordinated": self.loops.sum(|metrics| metrics.coordinated.get()),
            "rejected": self.loops.sum(|metrics| metrics.rejected.total()),
            "unserved": self.loops.sum(|metrics| metrics.unserved.get()),
        } });
        Box::pin(std::future::ready(state))
    }
}

/// Metrics and status of a sidecar.
#[derive(Debug)]
pub struct SidecarAdmin {
    loops: Loops<SidecarMetrics>,
    servers: Vec<(SocketAddr, SocketAddr)>,
    mode: Mode,
    draining: AtomicBool,
}

impl SidecarAdmin {
    /// Creates the admin part for loops with these metrics, for servers with shims at these
    /// addresses.
    pub fn new(
        loops: Vec<Arc<SidecarMetrics>>,
        servers: Vec<(SocketAddr, SocketAddr)>,
        mode: Mode,
    ) -> Arc<Self> {
        Arc::new(Self { loops: Loops::new(loops), servers, mode, draining: AtomicBool::new(false) })
    }

    /// The servers that have answered or failed, each with its state, the best of the event loops'
    /// states, and with the times of all its answers.
    fn states(&self) -> BTreeMap<SocketAddr, (ServerState, Snapshot)> {
        let mut states = BTreeMap::new();
        for server in self.loops.each().flat_map(|metrics| metrics.servers.all()) {
            let (state, times) =
                states.entry(server.address).or_insert((server.state, Snapshot::default()));
            *state = (*state).max(server.state);
            server.times.add_to(times);
        }
        states
    }

    /// The configured servers, and those that a cluster has besides, for `/status`.
    fn servers(&self) -> Vec<Json> {
        let states = self.states();
        let configured = self.servers.iter().map(|(server, shim)| (*server, Some(shim)));
        let is_found =
            |server: &&SocketAddr| !self.servers.iter().any(|(known, _)| known == *server);
        let found = states.keys().filter(is_found).map(|server| (*server, None));
        let row = |(server, shim): (SocketAddr, Option<&SocketAddr>)| {
            let (state, times) = states.get(&server).cloned().unzip();
            let times = times.unwrap_or_default();
            json!({
                "server": server.to_string(),
                "shim": shim.filter(|_| self.mode != Mode::Tcp).map(ToString::to_string),
                "up": state.and_then(ServerState::is_up),
                "answers": times.count(),
                "microseconds": times.microseconds(),
            })
        };
        configured.chain(found).map(row).collect()
    }

    /// The reason why commands cannot be carried out: all servers have failed.
    fn without_servers(&self) -> Option<String> {
        let states = self.states();
        let configured = self.servers.iter().map(|(server, _)| server);
        let is_down = |server: &SocketAddr| {
            states.get(server).is_some_and(|(state, _)| *state == ServerState::Down)
        };
        let all_down = configured.chain(states.keys()).all(is_down);
        all_down.then(|| "no server answers".to_owned())
    }

    /// Marks the sidecar as draining: it should get no new connections.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

impl Part for SidecarAdmin {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let counter = |encoder: &mut Encoder<'_>,
                       name: &str,
                       help: &str,
                       number: &dyn Fn(&SidecarMetrics) -> u64| {
            encoder.counter(name, help, None, &self.loops.plain(number))
        };
        counter(encoder, "shunt_sidecar_passed", "Commands passed on over TCP.", &|m| {
            m.passed.get()
        })?;
        counter(
            encoder,
            "shunt_sidecar_split",
            "Commands split over servers, but for MGET.",
            &|m| m.split.get(),
        )?;
        counter(
            encoder,
            "shunt_sidecar_split_failed",
            "Split commands that failed as a whole or in part.",
            &|m| m.split_failed.get(),
        )?;
        counter(
            encoder,
            "shunt_sidecar_errors",
            "Commands answered with an error of our own.",
            &|m| m.errors.get(),
        )?;
        counter(
            encoder,
            "shunt_sidecar_links_lost",
            "Connections to servers lost or not made.",
            &|m| m.links_lost.get(),
        )?;
        counter(
            encoder,
            "shunt_sidecar_clients_closed",
            "Applications closed for the memory they took up.",
            &|m| m.clients_closed.get(),
        )?;
        counter(
            encoder,
            "shunt_sidecar_unsent",
            "Datagrams that the kernel did not take.",
            &|m| m.unsent.get(),
        )?;
        for (index, (name, help)) in ClientGauges::NAMES.iter().enumerate() {
            counter(encoder, &format!("shunt_sidecar_{name}"), help, &|m| m.counts.get(index))?;
        }
        type Level = fn(&SidecarMetrics) -> u64;
        let gauges: [(&str, &str, Level); 5] = [
            ("shunt_sidecar_clients", "Applications that are connected.", |m| m.clients.get()),
            ("shunt_sidecar_under_way", "Multigets under way.", |m| m.under_way.get()),
            ("shunt_sidecar_splits", "Split commands under way, but for MGET.", |m| m.splits.get()),
            ("shunt_sidecar_groups", "Groups of keys under way.", |m| m.groups.get()),
            (
                "shunt_sidecar_silent",
                "Servers, by event loop, that do not answer datagrams.",
                |m| m.silent.get(),
            ),
        ];
        for (name, help, number) in gauges {
            encoder.gauge(name, help, None, &self.loops.plain(number))?;
        }
        let (mut up, mut times) = (Vec::new(), Vec::new());
        for (server, (state, durations)) in self.states() {
            let server = vec![("server", server.to_string())];
            let is_up = state.is_up().map(|is_up| f64::from(u8::from(is_up)));
            up.extend(is_up.map(|is_up| (server.clone(), is_up)));
            times.push((server, durations));
        }
        let help = "1 if a server has answered the last command over TCP, 0 if it has failed.";
        encoder.gauge("shunt_sidecar_server_up", help, None, &up)?;
        let help = "From a command over TCP to the server's answer.";
        encoder.durations("shunt_sidecar_server_duration", help, &times)?;
        let times = [(Vec::new(), self.loops.histogram(|metrics| &metrics.times))];
        encoder.durations("shunt_sidecar_time", "From GET or MGET to its answer.", &times)
    }

    fn reading(&self) -> Option<Reading> {
        let latency = self.loops.histogram(|metrics| &metrics.times);
        let others = self.loops.sum(|metrics| metrics.passed.get() + metrics.split.get());
        let failed = self.loops.sum(|metrics| metrics.errors.get());
        Some(Reading { answered: latency.count() + others, failed, latency })
    }

    fn stuck(&self, now: Instant) -> Map<String, Json> {
        self.loops.stuck("multiget_loops", |metrics| metrics.turns.get(), now)
    }

    fn not_ready(&self) -> Option<String> {
        let draining = self.draining.load(Ordering::Relaxed);
        draining.then(|| "draining".to_owned()).or_else(|| self.without_servers())
    }

    fn status(&self) -> State<'_> {
        let mut state = Map::new();
        state.insert("mode".to_owned(), self.mode.name().into());
        state.insert("loops".to_owned(), self.loops.count().into());
        state.insert("servers".to_owned(), self.servers().into());
        state.insert("clients".to_owned(), self.loops.sum(|metrics| metrics.clients.get()).into());
        state.insert("passed".to_owned(), self.loops.sum(|metrics| metrics.passed.get()).into());
        state.insert("split".to_owned(), self.loops.sum(|metrics| metrics.split.get()).into());
        state.insert(
            "split_failed".to_owned(),
            self.loops.sum(|metrics| metrics.split_failed.get()).into(),
        );
        let hosts = Hosts::show(self.loops.each().map(|metrics| &metrics.hosts));
        state.insert("client_hosts".to_owned(), hosts);
        let under_way = self.loops.sum(|metrics| metrics.under_way.get());
        state.insert("under_way".to_owned(), under_way.into());
        state.insert("silent".to_owned(), self.loops.sum(|metrics| metrics.silent.get()).into());
        for (index, (name, _)) in ClientGauges::NAMES.iter().enumerate() {
            state.insert(
                (*name).to_owned(),
                self.loops.sum(|metrics| metrics.counts.get(index)).into(),
            );
        }
        Box::pin(std::future::ready(json!({ "multiget": state })))
    }
}
