//! Loads with several writers for one row: counters and conditional statements. Also the schema,
//! with one writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shunt_testing::blocking::Client;
use shunt_testing::{Answer, number};

use crate::load::{Load, Place, asked};
use crate::model::{Fact, Random, Seen};

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

const COUNTERS: usize = 8;

/// The sums added to each counter: acknowledged, and sent.
#[derive(Default)]
pub(crate) struct Sums([(i64, i64); COUNTERS]);

/// Counters that several connections add to. Each statement adds to two columns, which must
/// therefore stay equal.
pub(crate) struct Counters {
    random: Random,
    sums: Arc<Mutex<Sums>>,
}

impl Counters {
    pub(crate) fn new(random: Random, sums: &Arc<Mutex<Sums>>) -> Self {
        Self { random, sums: Arc::clone(sums) }
    }
}

impl Load for Counters {
    fn step(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        let added: Vec<(usize, i64)> = (0..=self.random.below(5))
            .map(|_| (self.random.below(COUNTERS as u64) as usize, 1 + self.random.below(9) as i64))
            .collect();
        added.iter().for_each(|(id, by)| lock(&self.sums).0[*id].1 += by);
        let text = |(id, by): &(usize, i64)| {
            format!("UPDATE k.counted SET a = a + {by}, b = b + {by} WHERE id = {id}")
        };
        let texts: Vec<String> = added.iter().map(text).collect();
        let answers = asked(client, &texts);
        for (answer, (id, by)) in answers.iter().cloned().zip(added) {
            if let Some(answer) = answer {
                answer.rows();
                lock(&self.sums).0[id].0 += by;
                seen.acknowledged += 1;
            }
        }
        answers.iter().all(Option::is_some)
    }

    fn verify(&mut self, client: &mut Client, _: Place, seen: &mut Seen) {
        let mut found = [0; COUNTERS];
        for row in client.rows("SELECT id, a, b FROM k.counted") {
            let id = number(row[0].as_ref()).expect("an id") as usize;
            assert_eq!(row[1], row[2], "counter {id}: half of a statement");
            found[id] = number(row[1].as_ref()).expect("a count");
        }
        for (id, (sum, found)) in lock(&self.sums).0.iter_mut().zip(found).enumerate() {
            let (least, most) = *sum;
            assert!(
                (least..=most).contains(&found),
                "counter {id} is {found}, not from {least} to {most}"
            );
            seen.kept += u64::from(found > least);
            *sum = (found, found);
        }
    }
}

/// Number of registers; several connections raise each by one, with its known value as the
/// condition.
const REGISTERS: usize = 3;

/// Knowledge from the answers to conditional statements.
#[derive(Default)]
pub(crate) struct Races {
    /// Winner of each slot, as any answer showed it.
    winners: BTreeMap<i64, i64>,
    /// Slots tried since the last check.
    tried: BTreeSet<i64>,
    /// Lower bound of each register, as any answer showed it.
    registers: [i64; REGISTERS],
    /// Acknowledged steps of registers.
    steps: BTreeSet<(usize, i64)>,
}

impl Races {
    fn won(&mut self, slot: i64, winner: i64) {
        let known = *self.winners.entry(slot).or_insert(winner);
        assert_eq!(known, winner, "slot {slot} has two winners");
    }
}

/// Slots, which the first writer wins, and registers.
pub(crate) struct Conditional {
    client: i64,
    random: Random,
    races: Arc<Mutex<Races>>,
    next: i64,
}

impl Conditional {
    pub(crate) fn new(client: i64, random: Random, races: &Arc<Mutex<Races>>) -> Self {
        Self { client, random, races: Arc::clone(races), next: 0 }
    }

    fn slots(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        let slots: Vec<i64> =
            (0..=self.random.below(5) as i64).map(|offset| self.next + offset).collect();
        // All connections try the same slots in the same order.
        self.next += slots.len() as i64;
        lock(&self.races).tried.extend(&slots);
        let text = |slot: &i64| {
            format!(
                "INSERT INTO k.taken (slot, winner) VALUES ({slot}, {}) IF NOT EXISTS",
                self.client
            )
        };
        let texts: Vec<String> = slots.iter().map(text).collect();
        let answers = asked(client, &texts);
        for (slot, answer) in slots.into_iter().zip(&answers) {
            let Some(Ok(rows)) = answer.as_ref().map(Answer::outcome) else { continue };
            let applied = rows[0][0].as_deref() == Some(&[1]);
            let winner = if applied { Some(self.client) } else { number(rows[0][2].as_ref()) };
            lock(&self.races).won(slot, winner.expect("a winner"));
            seen.acknowledged += 1;
            seen.refused += u64::from(!applied);
        }
        answered(&answers)
    }

    fn register(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        let id = self.random.below(REGISTERS as u64) as usize;
        let value = lock(&self.races).registers[id];
        let text = format!("UPDATE k.raised SET v = {} WHERE id = {id} IF v = {value}", value + 1);
        let answers = asked(client, &[text]);
        if let Some(Ok(rows)) = answers[0].as_ref().map(Answer::outcome) {
            let applied = rows[0][0].as_deref() == Some(&[1]);
            let now =
                if applied { value + 1 } else { number(rows[0][1].as_ref()).expect("a value") };
            let mut races = lock(&self.races);
            races.registers[id] = races.registers[id].max(now);
            assert!(
                !applied || races.steps.insert((id, value)),
                "register {id} went on from {value} twice"
            );
            seen.acknowledged += 1;
            seen.refused += u64::from(!applied);
        }
        answered(&answers)
    }
}

/// True if all were answered; an error fails the test.
fn answered(answers: &[Option<Answer>]) -> bool {
    assert_eq!(answers.iter().flatten().find_map(|answer| answer.outcome().err()), None);
    answers.iter().all(Option::is_some)
}

impl Load for Conditional {
    fn step(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        if self.random.one_in(3) { self.register(client, seen) } else { self.slots(client, seen) }
    }

    fn verify(&mut self, client: &mut Client, _: Place, _: &mut Seen) {
        let mut races = lock(&self.races);
        let tried: Vec<i64> = std::mem::take(&mut races.tried).into_iter().collect();
        for slots in tried.chunks(100) {
            let list = slots.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            let rows =
                client.rows(&format!("SELECT slot, winner FROM k.taken WHERE slot IN ({list})"));
            let found: BTreeMap<_, _> =
                rows.iter().map(|row| (number(row[0].as_ref()), number(row[1].as_ref()))).collect();
            for slot in slots {
                match (found.get(&Some(*slot)), races.winners.get(slot)) {
                    (Some(found), Some(known)) => {
                        assert_eq!(*found, Some(*known), "slot {slot} has another winner")
                    }
                    (Some(found), None) => races.won(*slot, found.expect("a winner")),
                    (None, known) => assert_eq!(known, None, "slot {slot} has lost its winner"),
                }
            }
        }
        for row in client.rows("SELECT id, v FROM k.raised") {
            let (id, found) =
                (number(row[0].as_ref()).expect("an id") as usize, number(row[1].as_ref()));
            let least = races.registers[id];
            assert!(found >= Some(least), "register {id} is {found:?}, it has been {least}");
            races.registers[id] = found.unwrap_or_default();
        }
        // Both connections continue at the furthest slot of the two.
        self.next = races.winners.keys().next_back().map_or(0, |slot| slot + 1).max(self.next);
    }
}

/// Creates tables, adds a row and a column to each, and drops them.
pub(crate) struct Schema {
    random: Random,
    tables: BTreeMap<u32, Fact<Stage>>,
    next: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Absent,
    Created,
    HasRow,
    Altered,
}

/// Most tables at a time.
const TABLES_MAX: usize = 4;

impl Schema {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, tables: BTreeMap::new(), next: 1 }
    }
}

impl Load for Schema {
    fn step(&mut self, client: &mut Client, seen: &mut Seen) -> bool {
        if self.tables.len() < TABLES_MAX {
            self.tables.insert(self.next, Fact::default());
            self.next += 1;
        }
        let chosen = self.random.below(self.tables.len() as u64) as usize;
        let Some((table, fact)) = self.tables.iter_mut().nth(chosen) else { return true };
        let (text, stage) = match fact.known() {
            Stage::Absent => {
                (format!("CREATE TABLE k.t{table} (id int PRIMARY KEY, v int)"), Stage::Created)
            }
            Stage::Created => {
                (format!("INSERT INTO k.t{table} (id, v) VALUES (1, {table})"), Stage::HasRow)
            }
            Stage::HasRow => (format!("ALTER TABLE k.t{table} ADD w int"), Stage::Altered),
            Stage::Altered => (format!("DROP TABLE k.t{table}"), Stage::Absent),
        };
        fact.sent(stage);
        let table = *table;
        let Some(answer) = asked(client, &[text]).remove(0) else { return false };
        answer.rows();
        seen.acknowledged += 1;
        self.tables.get_mut(&table).expect("known").acknowledged();
        if stage == Stage::Absent {
            self.tables.remove(&table);
        }
        true
    }

    fn verify(&mut self, client: &mut Client, _: Place, seen: &mut Seen) {
        let text = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'k'";
        let names: BTreeSet<Vec<u8>> =
            client.rows(text).into_iter().filter_map(|row| row[0].clone()).collect();
        let ours = names
            .iter()
            .filter(|name| name[0] == b't' && name[1..].iter().all(u8::is_ascii_digit))
            .count();
        let mut there = 0;
        for (table, fact) in &mut self.tables {
            let stage = stage(client, *table, names.contains(format!("t{table}").as_bytes()));
            there += usize::from(stage != Stage::Absent);
            seen.kept += u64::from(fact.found(stage, &format!("table {table}")));
        }
        assert_eq!(there, ours, "tables that were dropped are there: {names:?}");
        self.tables.retain(|_, fact| *fact.known() != Stage::Absent);
    }
}

fn stage(client: &mut Client, table: u32, exists: bool) -> Stage {
    if !exists {
        return Stage::Absent;
    }
    let rows = client.rows(&format!("SELECT * FROM k.t{table}"));
    let Some([row]) = rows.get(..1) else { return Stage::Created };
    assert_eq!(number(row[1].as_ref()), Some(i64::from(table)));
    if row.len() == 3 { Stage::Altered } else { Stage::HasRow }
}
