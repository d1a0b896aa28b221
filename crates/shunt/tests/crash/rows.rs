//! Loads with one writer for each row or partition: single rows, batches over partitions, TRUNCATE.

use std::collections::BTreeSet;

use shunt_testing::blocking::Client;
use shunt_testing::number;

use crate::load::{Load, Place, asked};
use crate::model::{Fact, Random, Seen};

/// Most statements sent together.
const VOLLEY_MAX: u64 = 8;

/// Inserts, overwrites and deletes rows, with several statements under way at once, one per row.
pub(crate) struct Singles {
    writer: i64,
    random: Random,
    versions: Vec<Fact<Option<i64>>>,
    next: i64,
}

/// Rows of each writer.
const ROWS: usize = 24;

impl Singles {
    pub(crate) fn new(writer: i64, random: Random) -> Self {
        Self { writer, random, versions: vec![Fact::default(); ROWS], next: 1 }
    }

    fn pad(version: i64) -> usize {
        (version * 37 % 300) as usize
    }
}

impl Load for Singles {
    fn step(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        let (mut texts, mut rows) = (Vec::new(), Vec::new());
        let first = self.random.below(ROWS as u64) as usize;
        for offset in 0..=self.random.below(VOLLEY_MAX) as usize {
            let row = (first + offset) % ROWS;
            let version = (!self.random.one_in(5)).then_some(self.next);
            self.next += 1;
            self.versions[row].sent(version);
            rows.push(row);
            let writer = self.writer;
            texts.push(match version {
                Some(v) => {
                    let pad = "x".repeat(Self::pad(v));
                    format!("INSERT INTO k.single (w, id, v, pad) VALUES ({writer}, {row}, {v}, '{pad}')")
                }
                None => format!("DELETE FROM k.single WHERE w = {writer} AND id = {row}"),
            });
        }
        let mut all = true;
        for (answer, row) in asked(client, &texts).into_iter().zip(rows) {
            match answer {
                Some(answer) => {
                    answer.rows();
                    self.versions[row].acknowledged();
                    seen.acknowledged += 1;
                }
                None => all = false,
            }
        }
        all
    }

    fn verify(&mut self, client: &mut Client, _: Place, seen: &mut Seen) {
        for (row, fact) in self.versions.iter_mut().enumerate() {
            let text =
                format!("SELECT v, pad FROM k.single WHERE w = {} AND id = {row}", self.writer);
            let version = client.rows(&text).first().and_then(|values| {
                let version = number(values[0].as_ref());
                assert_eq!(
                    values[1].as_ref().map(Vec::len),
                    version.map(Self::pad),
                    "row {row}: half of a row"
                );
                version
            });
            seen.kept +=
                u64::from(fact.found(version, &format!("row {row} of writer {}", self.writer)));
        }
    }
}

/// Batches that write one version into each partition of a group; every second one deletes a range
/// of rows as well.
pub(crate) struct Batches {
    random: Random,
    groups: Vec<Vec<Fact<i64>>>,
    next: i64,
}

const GROUPS: usize = 6;
/// Partitions of a group.
const PARTS: usize = 5;

impl Batches {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, groups: vec![vec![Fact::default(); PARTS]; GROUPS], next: 1 }
    }

    fn batch(group: usize, version: i64) -> String {
        let mut text = String::from("BEGIN BATCH ");
        for part in 0..PARTS {
            let partition = group * PARTS + part;
            for row in 0..2 {
                text += &format!(
                    "INSERT INTO k.grouped (p, c, v) VALUES ({partition}, {row}, {version}); "
                );
            }
            text += &match version % 2 {
                0 => {
                    format!("INSERT INTO k.grouped (p, c, v) VALUES ({partition}, 2, {version}); ")
                }
                _ => format!("DELETE FROM k.grouped WHERE p = {partition} AND c >= 2; "),
            };
        }
        text + "APPLY BATCH"
    }

    /// Returns the version of a partition; all of its rows must have it.
    fn version(client: &mut Client, partition: usize) -> i64 {
        let rows = client.rows(&format!("SELECT c, v FROM k.grouped WHERE p = {partition}"));
        let found: Vec<_> =
            rows.iter().map(|row| (number(row[0].as_ref()), number(row[1].as_ref()))).collect();
        let version = found.first().map_or(0, |(_, version)| version.expect("a version"));
        let rows = match version {
            0 => 0,
            even if even % 2 == 0 => 3,
            _ => 2,
        };
        let whole: Vec<_> = (0..rows).map(|row| (Some(row), Some(version))).collect();
        assert_eq!(found, whole, "partition {partition}: half of a batch");
        version
    }
}

impl Load for Batches {
    fn step(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        let first = self.random.below(GROUPS as u64) as usize;
        let groups: Vec<usize> =
            (0..=self.random.below(3) as usize).map(|offset| (first + offset) % GROUPS).collect();
        let mut texts = Vec::new();
        for group in &groups {
            self.groups[*group].iter_mut().for_each(|part| part.sent(self.next));
            texts.push(Self::batch(*group, self.next));
            self.next += 1;
        }
        let mut all = true;
        for (answer, group) in asked(client, &texts).into_iter().zip(groups) {
            match answer {
                Some(answer) => {
                    answer.rows();
                    self.groups[group].iter_mut().for_each(Fact::acknowledged);
                    seen.acknowledged += 1;
                }
                None => all = false,
            }
        }
        all
    }

    /// All or nothing within the store of a node; each of several nodes may have its part or not.
    fn verify(&mut self, client: &mut Client, place: Place, seen: &mut Seen) {
        for (group, parts) in self.groups.iter_mut().enumerate() {
            let mut of_node = vec![None; place.nodes()];
            for (part, fact) in parts.iter_mut().enumerate() {
                let partition = group * PARTS + part;
                let version = Self::version(client, partition);
                let node = place.owner(partition as i32);
                let same = *of_node[node].get_or_insert(version);
                assert_eq!(
                    version, same,
                    "partition {partition}: half of a batch in the store of node {node}"
                );
                seen.kept += u64::from(fact.found(version, &format!("partition {partition}")));
            }
            let versions: BTreeSet<i64> = of_node.into_iter().flatten().collect();
            seen.split += u64::from(versions.len() > 1);
        }
    }
}

/// Inserts rows, and truncates the table now and then.
pub(crate) struct Truncates {
    random: Random,
    rows: BTreeSet<i64>,
    under_way: Option<Change>,
    next: i64,
}

#[derive(Clone, Copy)]
enum Change {
    Insert(i64),
    Truncate,
}

impl Truncates {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, rows: BTreeSet::new(), under_way: None, next: 1 }
    }
}

impl Load for Truncates {
    fn step(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        let change =
            if self.random.one_in(12) { Change::Truncate } else { Change::Insert(self.next) };
        self.next += 1;
        let text = match change {
            Change::Truncate => "TRUNCATE k.emptied".to_owned(),
            Change::Insert(id) => format!("INSERT INTO k.emptied (id) VALUES ({id})"),
        };
        self.under_way = Some(change);
        let Some(answer) = asked(client, &[text]).remove(0) else { return false };
        answer.rows();
        seen.acknowledged += 1;
        match change {
            Change::Truncate => self.rows.clear(),
            Change::Insert(id) => drop(self.rows.insert(id)),
        }
        self.under_way = None;
        true
    }

    fn verify(&mut self, client: &mut Client, place: Place, seen: &mut Seen) {
        let rows = client.rows("SELECT id FROM k.emptied");
        let found: BTreeSet<i64> = rows.iter().filter_map(|row| number(row[0].as_ref())).collect();
        let of = |rows: &BTreeSet<i64>, node: usize| -> BTreeSet<i64> {
            rows.iter().copied().filter(|id| place.owner(*id as i32) == node).collect()
        };
        let mut emptied = BTreeSet::new();
        for node in 0..place.nodes() {
            let (known, now) = (of(&self.rows, node), of(&found, node));
            let mut more = known.clone();
            match self.under_way {
                Some(Change::Insert(id)) if place.owner(id as i32) == node => drop(more.insert(id)),
                Some(Change::Truncate) => more.clear(),
                _ => {}
            }
            assert!(
                now == known || now == more,
                "node {node} has {now:?}; acknowledged was {known:?}"
            );
            if known != more {
                emptied.insert(now == more);
            }
        }
        seen.kept += u64::from(emptied.contains(&true));
        seen.split += u64::from(emptied.len() > 1);
        (self.rows, self.under_way) = (found, None);
    }
}
