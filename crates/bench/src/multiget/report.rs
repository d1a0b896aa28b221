//! The report of a round, and the samples that it is computed from.

use std::fs;

use hdrhistogram::Histogram;
use serde::Serialize;
use shunt_multiget::client::Counts;

use crate::{
    load::{Latency, ProcessReport, result::new_histogram},
    measure::{ProcessDelta, ProcessSample},
};

/// Counts of the load.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) multigets: u64,
    pub(super) writes: u64,
    pub(super) keys: u64,
    /// Operations that ended without an answer.
    pub(super) failed: u64,
    /// Values that do not belong to their keys, and keys without a value.
    pub(super) wrong: u64,
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { multigets: 0, writes: 0, keys: 0, failed: 0, wrong: 0, latency: new_histogram() }
    }
}

/// Processor time since the start of the machine, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    /// Time that was neither idle nor taken by other virtual machines.
    busy: u64,
    /// Share of `busy` in the handling of interrupts, as the kernel's ticks sample it.
    interrupts: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    sent_packets: u64,
    sent_bytes: u64,
    received_packets: u64,
    received_bytes: u64,
}

/// Counters of this machine at one time.
#[derive(Debug)]
pub(super) struct Sample {
    own: Option<ProcessSample>,
    processes: Vec<(u32, Option<ProcessSample>)>,
    processors: Vec<Processor>,
    traffic: Option<Traffic>,
    counts: Counts,
}

impl Sample {
    pub(super) fn take(pids: &[u32], interface: Option<&str>, counts: Counts) -> Self {
        let traffic = interface
            .and_then(|name| traffic(&fs::read_to_string("/proc/thread-self/net/dev").ok()?, name));
        Self {
            own: ProcessSample::take(std::process::id()).ok(),
            processes: pids.iter().map(|pid| (*pid, ProcessSample::take(*pid).ok())).collect(),
            processors: processors(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            traffic,
            counts,
        }
    }
}

/// One processor of this machine in a round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ProcessorReport {
    /// Busy microseconds per operation.
    pub(super) cpu_us_per_operation: f64,
    /// Share of the busy time in interrupts, most of it for the network (coarse).
    pub(super) interrupt_share: f64,
    /// Busy share of the time.
    pub(super) utilisation: f64,
}

/// Traffic of an interface per operation.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct TrafficReport {
    pub(super) sent_packets: f64,
    pub(super) sent_bytes: f64,
    pub(super) received_packets: f64,
    pub(super) received_bytes: f64,
}

/// Work of the library's client in a round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ClientReport {
    pub(super) datagrams_sent: u64,
    pub(super) repeated: u64,
    pub(super) keys_fallen_back: u64,
    pub(super) duplicates: u64,
    pub(super) late: u64,
    pub(super) coordinated: u64,
    pub(super) uncoordinated: u64,
    pub(super) switched: u64,
    pub(super) unswitched: u64,
}

/// The report of one round.
#[derive(Debug, Serialize)]
pub(super) struct Round {
    pub(super) round: u32,
    /// Duration in seconds.
    pub(super) seconds: f64,
    /// Multigets and writes that ended.
    pub(super) operations: u64,
    pub(super) multigets: u64,
    /// Mean number of keys of a multiget.
    pub(super) keys_per_multiget: f64,
    /// Operations per second.
    pub(super) rate: f64,
    pub(super) failed: u64,
    pub(super) wrong: u64,
    /// Latency of multigets; `None` if none ended.
    pub(super) latency_us: Option<Latency>,
    /// This process, which is the client.
    pub(super) own: Option<ProcessReport>,
    pub(super) processes: Vec<ProcessReport>,
    pub(super) processors: Vec<ProcessorReport>,
    pub(super) traffic: Option<TrafficReport>,
    pub(super) client: ClientReport,
    /// Open loop: arrivals dropped so far.
    pub(super) shed: u64,
    /// Open loop: arrivals waiting at the end.
    pub(super) waiting: usize,
}

impl Round {
    pub(super) fn new(
        round: u32,
        wall_ns: u64,
        tally: &Tally,
        begin: &Sample,
        end: &Sample,
    ) -> Self {
        let operations = tally.multigets + tally.writes;
        let each = operations.max(1) as f64;
        let seconds = wall_ns.max(1) as f64 / 1e9;
        let cost = |delta: &ProcessDelta| ProcessReport::new(delta, operations);
        let delta = |now: Option<&ProcessSample>, was: Option<&ProcessSample>, pid| {
            Some(now?.since(was?, pid))
        };
        let processes = begin.processes.iter().zip(&end.processes);
        Self {
            round,
            seconds,
            operations,
            multigets: tally.multigets,
            keys_per_multiget: tally.keys as f64 / tally.multigets.max(1) as f64,
            rate: operations as f64 / seconds,
            failed: tally.failed,
            wrong: tally.wrong,
            latency_us: Latency::new(&tally.latency),
            own: delta(end.own.as_ref(), begin.own.as_ref(), std::process::id()).as_ref().map(cost),
            processes: processes
                .filter_map(|((pid, was), (_, now))| {
                    delta(now.as_ref(), was.as_ref(), *pid).as_ref().map(cost)
                })
                .collect(),
            processors: begin
                .processors
                .iter()
                .zip(&end.processors)
                .map(|(was, now)| busy(*was, *now, seconds, each))
                .collect(),
            traffic: begin.traffic.zip(end.traffic).map(|(was, now)| carried(was, now, each)),
            client: done(&begin.counts, &end.counts),
            shed: 0,
            waiting: 0,
        }
    }
}

fn busy(was: Processor, now: Processor, seconds: f64, operations: f64) -> ProcessorReport {
    let ticks = now.busy.saturating_sub(was.busy) as f64;
    let busy_seconds = ticks / rustix::param::clock_ticks_per_second() as f64;
    ProcessorReport {
        cpu_us_per_operation: 1e6 * busy_seconds / operations,
        interrupt_share: now.interrupts.saturating_sub(was.interrupts) as f64 / ticks.max(1.0),
        utilisation: busy_seconds / seconds,
    }
}

fn carried(was: Traffic, now: Traffic, operations: f64) -> TrafficReport {
    let each = |now: u64, was: u64| now.saturating_sub(was) as f64 / operations;
    TrafficReport {
        sent_packets: each(now.sent_packets, was.sent_packets),
        sent_bytes: each(now.sent_bytes, was.sent_bytes),
        received_packets: each(now.received_packets, was.received_packets),
        received_bytes: each(now.received_bytes, was.received_bytes),
    }
}

fn done(was: &Counts, now: &Counts) -> ClientReport {
    ClientReport {
        datagrams_sent: now.sent - was.sent,
        repeated: now.repeated - was.repeated,
        keys_fallen_back: now.fell_back - was.fell_back,
        duplicates: now.duplicates - was.duplicates,
        late: now.late - was.late,
        coordinated: now.coordinated - was.coordinated,
        uncoordinated: now.uncoordinated - was.uncoordinated,
        switched: now.switched - was.switched,
        unswitched: now.unswitched - was.unswitched,
    }
}

/// Reads the lines of `/proc/stat` about single processors.
fn processors(stat: &str) -> Vec<Processor> {
    let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines
        .map(|line| {
            let ticks: Vec<u64> =
                line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0)).collect();
            let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
            // user, nice, system, idle, iowait, irq, softirq, steal
            Processor { busy: at(0) + at(1) + at(2) + at(5) + at(6), interrupts: at(5) + at(6) }
        })
        .collect()
}

/// Reads the line of `/proc/net/dev` about an interface.
fn traffic(dev: &str, interface: &str) -> Option<Traffic> {
    let counts =
        dev.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))?;
    let counts: Vec<u64> =
        counts.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    Some(Traffic {
        received_bytes: *counts.first()?,
        received_packets: *counts.get(1)?,
        sent_bytes: *counts.get(8)?,
        sent_packets: *counts.get(9)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let stat =
            "cpu  9 9 9 9\ncpu0 1 2 3 1000 500 4 5 77 0 0\ncpu1 10 0 0 1 0 0 0 0 0 0\nintr 5\n";
        let found = processors(stat);
        assert_eq!(
            found.iter().map(|one| (one.busy, one.interrupts)).collect::<Vec<_>>(),
            [(15, 9), (10, 0)]
        );
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10\n  eth0:11 12 0 0 0 0 0 0 13 14 0 0\n";
        let found = traffic(dev, "eth0").expect("there");
        assert_eq!(
            (found.received_bytes, found.received_packets, found.sent_bytes, found.sent_packets),
            (11, 12, 13, 14)
        );
        assert!(traffic(dev, "eth").is_none() && traffic(dev, "eth1").is_none());
    }

    #[test]
    fn a_round_is_what_changed_in_it_for_each_operation() {
        let sample = |busy, packets, sent| Sample {
            own: None,
            processes: Vec::new(),
            processors: vec![Processor { busy, interrupts: busy / 2 }],
            traffic: Some(Traffic { sent_packets: packets, ..Traffic::default() }),
            counts: Counts { sent, ..Counts::default() },
        };
        let tally = Tally { multigets: 90, writes: 10, keys: 774, ..Tally::new() };
        let round = Round::new(3, 2_000_000_000, &tally, &sample(100, 7, 1), &sample(200, 107, 31));
        assert_eq!((round.operations, round.client.datagrams_sent), (100, 30));
        let found =
            [round.rate, round.keys_per_multiget, round.traffic.expect("counted").sent_packets];
        assert!(
            found.iter().zip([50.0, 8.6, 1.0]).all(|(found, wanted)| (found - wanted).abs() < 1e-9),
            "{found:?}"
        );
        // 100 ticks of 10 ms.
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        let wanted = 1e6 * 100.0 / ticks_per_second / 100.0;
        assert!((round.processors[0].cpu_us_per_operation - wanted).abs() < 1e-6);
        assert!((round.processors[0].interrupt_share - 0.5).abs() < 1e-9);
    }
}
