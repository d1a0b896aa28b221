//! Checks whether a history of transactions is strictly serialisable, by the method of Elle
//! (Kingsbury and Alvaro, "Elle: inferring isolation anomalies from experimental observations",
//! VLDB 2020).
//!
//! Each key is a register that counts its versions: a writer makes version `v + 1` of the `v` that
//! it finds, and puts its own number beside it. So a read identifies the writer, and the versions
//! of a key have an order that everybody agrees on. The edges of a graph follow:
//!
//! | edge | from | to |
//! |---|---|---|
//! | `ww` | the maker of a version | the maker of the next one |
//! | `wr` | the maker of a version | a reader of it |
//! | `rw` | a reader of a version | the maker of the next one |
//! | `rt` | an answered transaction | one requested after that |
//!
//! A history without a cycle is strictly serialisable. The time to find a cycle grows with edges
//! and transactions, and the number of edges with reads and writes: `rt` goes over a chain of
//! answers, which has as many links as there are answers.
//!
//! The paper's names of cycles: `G0` of `ww`; `G1c` of `ww` and `wr`; `G-single` with one `rw`
//! (read skew, lost updates); `G2` with more of them (write skew). A cycle that needs `rt` violates
//! real time: a stale read is `G-single` with it.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Edge, Graph, Kind};

/// The maker of version 0 of every key.
pub const INITIALLY: usize = usize::MAX;

/// A version of a key that a transaction read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub key: u32,
    pub version: i64,
    /// Index of the maker in the history; or [`INITIALLY`].
    pub writer: usize,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Answered at this time, nanoseconds: it has read and written its keys.
    Done(u64),
    /// Not done: it has written nothing, and never will.
    NotDone,
    /// Unknown; its reads are unknown too.
    Unknown,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Time of the request, nanoseconds.
    pub asked_ns: u64,
    pub fate: Fate,
    /// Versions that it found before it wrote.
    pub reads: Vec<Seen>,
    /// Keys of which it makes, or would make, the next version.
    pub writes: Vec<u32>,
}

/// Figures of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub edges: usize,
    /// Versions with a known maker.
    pub versions: usize,
    /// Transactions of unknown outcome whose writes were read.
    pub seen_in_doubt: usize,
}

/// Makers of versions, by key and number.
type Versions = BTreeMap<(u32, i64), usize>;

/// Looks for a violation of strict serialisability.
///
/// # Errors
/// The first violation, and the transactions that show it.
pub fn check(history: &[Transaction]) -> Result<Summary, String> {
    let versions = versions(history)?;
    let mut graph = Graph::new(history.len());
    let following: BTreeMap<(u32, i64), usize> = versions
        .iter()
        .zip(versions.iter().skip(1))
        .filter(|((one, _), (next, _))| one.0 == next.0)
        .map(|((one, _), (_, writer))| (*one, *writer))
        .collect();
    for (version, next) in &following {
        if let Some(writer) = versions.get(version).filter(|writer| **writer != INITIALLY) {
            graph.add(*writer, *next, Kind::WriteWrite);
        }
    }
    for (index, transaction) in history.iter().enumerate() {
        for seen in &transaction.reads {
            if seen.writer != INITIALLY {
                graph.add(seen.writer, index, Kind::WriteRead);
            }
            if let Some(next) = following.get(&(seen.key, seen.version)) {
                graph.add(index, *next, Kind::ReadWrite);
            }
        }
    }
    let seen: BTreeSet<usize> =
        versions.values().copied().filter(|writer| *writer != INITIALLY).collect();
    let seen_in_doubt =
        seen.into_iter().filter(|index| history[*index].fate == Fate::Unknown).count();
    add_real_time(&mut graph, history);
    match graph.cycle() {
        None => Ok(Summary { edges: graph.edges(), versions: versions.len(), seen_in_doubt }),
        Some(cycle) => Err(told(history, &cycle)),
    }
}

/// The makers of versions, by the reports of readers and writers.
fn versions(history: &[Transaction]) -> Result<Versions, String> {
    let (mut versions, mut of_writer) = (Versions::new(), BTreeMap::<(usize, u32), i64>::new());
    let mut learn = |seen: Seen, by: usize| -> Result<(), String> {
        let Seen { key, version, writer } = seen;
        let fail = |what: String| Err(format!("{what}: {}", show(history, by)));
        if (writer == INITIALLY) != (version == 0) {
            return fail(format!("version {version} of {key} is of nobody who could have made it"));
        }
        if writer != INITIALLY {
            let Some(maker) = history.get(writer) else {
                return fail(format!("{key} is of nobody: {writer}"));
            };
            if !maker.writes.contains(&key) {
                return fail(format!("{key} was not written by {}", show(history, writer)));
            }
            if maker.fate == Fate::NotDone {
                return fail(format!(
                    "G1a: {key} is of one that was not done, {}",
                    show(history, writer)
                ));
            }
            let known = *of_writer.entry((writer, key)).or_insert(version);
            if known != version {
                return fail(format!(
                    "{} made version {known} of {key}, and {version}",
                    show(history, writer)
                ));
            }
        }
        let known = *versions.entry((key, version)).or_insert(writer);
        if known != writer {
            let (one, other) = (show(history, known), show(history, writer));
            return fail(format!("two made version {version} of {key}: {one}, and {other}"));
        }
        Ok(())
    };
    for (index, transaction) in history.iter().enumerate() {
        transaction.reads.iter().try_for_each(|seen| learn(*seen, index))?;
        for seen in transaction.reads.iter().filter(|seen| transaction.writes.contains(&seen.key)) {
            learn(Seen { key: seen.key, version: seen.version + 1, writer: index }, index)?;
        }
    }
    Ok(versions)
}

/// Adds the edges from answered transactions to those requested later.
fn add_real_time(graph: &mut Graph, history: &[Transaction]) {
    // At equal times requests come first: they are concurrent.
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * history.len());
    for (index, transaction) in
        history.iter().enumerate().filter(|(_, one)| one.fate != Fate::NotDone)
    {
        events.push((transaction.asked_ns, false, index));
        if let Fate::Done(at_ns) = transaction.fate {
            events.push((at_ns, true, index));
        }
    }
    events.sort_unstable();
    let mut last = None;
    for (_, is_answer, index) in events {
        if is_answer {
            let link = graph.link();
            graph.add(index, link, Kind::RealTime);
            if let Some(before) = last.replace(link) {
                graph.add(before, link, Kind::RealTime);
            }
        } else if let Some(link) = last {
            graph.add(link, index, Kind::RealTime);
        }
    }
}

fn show(history: &[Transaction], index: usize) -> String {
    match history.get(index) {
        Some(Transaction { asked_ns, fate, reads, writes }) => {
            let reads: Vec<_> = reads.iter().map(|seen| (seen.key, seen.version)).collect();
            format!("#{index} (asked {asked_ns}, {fate:?}, read {reads:?}, writes {writes:?})")
        }
        None => "the beginning".to_owned(),
    }
}

/// Names and shows a cycle.
fn told(history: &[Transaction], cycle: &[Edge]) -> String {
    let count = |kind: Kind| cycle.iter().filter(|edge| edge.kind == kind).count();
    let name = match (count(Kind::ReadWrite), count(Kind::WriteRead)) {
        (0, 0) => "G0",
        (0, _) => "G1c",
        (1, _) => "G-single",
        _ => "G2",
    };
    let time = if count(Kind::RealTime) > 0 { " with real time" } else { "" };
    let edges = cycle.iter().map(|edge| {
        // Links of the chain of answers are left out.
        let from =
            if edge.from < history.len() { show(history, edge.from) } else { "..".to_owned() };
        format!("\n  {from} {}", edge.kind.name())
    });
    format!("{name}{time}:{}", edges.collect::<String>())
}
