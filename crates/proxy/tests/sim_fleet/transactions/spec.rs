//! Transactions of the simulation's clients: their reads, conditions, writes and texts.

use std::fmt::Write as _;

use shunt_reactor::sim::Random;

use super::history::Found;

/// Keyspaces, each decided by one proxy at a time.
pub const KEYSPACES: [&str; 2] = ["bank", "shop"];
/// Accounts of each keyspace, between which amounts are moved.
pub const ACCOUNTS: usize = 4;
/// Shifts: pairs of which one member must be on call.
pub const SHIFTS: usize = 4;
/// Initial balance of an account.
pub const BALANCE: i64 = 100;
/// Rows of a keyspace's two tables of transactions.
pub const ROWS: usize = ACCOUNTS + SHIFTS;
/// Rows of each keyspace for single statements.
pub const LEASES: usize = 2;

/// A row of a keyspace: an account, after those a shift, or a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowOf {
    pub keyspace: usize,
    pub number: usize,
}

impl RowOf {
    pub fn all(keyspace: usize) -> impl Iterator<Item = RowOf> {
        (0..ROWS).map(move |number| RowOf { keyspace, number })
    }

    pub fn is_account(self) -> bool {
        self.number < ACCOUNTS
    }

    pub fn is_lease(self) -> bool {
        self.number >= ROWS
    }

    /// Leases of all keyspaces.
    pub fn leases() -> impl Iterator<Item = RowOf> {
        (0..KEYSPACES.len()).flat_map(|keyspace| {
            (ROWS..ROWS + LEASES).map(move |number| RowOf { keyspace, number })
        })
    }

    /// The column beside the version and the writer: a balance, whether a member is on call, or a
    /// holder.
    pub fn column(self) -> &'static str {
        match () {
            () if self.is_account() => "balance",
            () if self.is_lease() => "holder",
            () => "on_call",
        }
    }

    pub fn value_at_first(self) -> i64 {
        match () {
            () if self.is_account() => BALANCE,
            () if self.is_lease() => 0,
            () => 1,
        }
    }

    /// The other row of a pair.
    fn partner(self) -> RowOf {
        RowOf { number: ACCOUNTS + ((self.number - ACCOUNTS) ^ 1), ..self }
    }

    pub fn table(self) -> &'static str {
        match () {
            () if self.is_account() => "accounts",
            () if self.is_lease() => "leases",
            () => "shifts",
        }
    }

    /// Values of its key.
    pub fn key(self) -> Vec<i32> {
        let number = self.number as i32;
        if self.is_account() || self.is_lease() { vec![number] } else { vec![number, 100 + number] }
    }

    pub fn index(self) -> u32 {
        (self.keyspace * (ROWS + LEASES) + self.number) as u32
    }
}

/// The effect of a write on the value, beside counting the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    Add(i64),
    Set(i64),
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Spec {
    pub keyspace: usize,
    pub reads: Vec<RowOf>,
    /// Conditions: the read at this place has at least this value.
    pub conditions: Vec<(usize, i64)>,
    pub writes: Vec<(RowOf, Change)>,
    /// True if it returns its reads.
    pub returns: bool,
    /// Set for a single statement on a lease, which runs if the lease is still this.
    pub expects: Option<Found>,
}

impl Spec {
    pub fn empty(keyspace: usize) -> Spec {
        let none = (Vec::new(), Vec::new(), Vec::new());
        Spec {
            keyspace,
            reads: none.0,
            conditions: none.1,
            writes: none.2,
            returns: true,
            expects: None,
        }
    }

    /// Replaces a lease that is known to be this; `None`: its holder stays.
    pub fn lease(lease: RowOf, expects: Found, holder: Option<i64>) -> Spec {
        let (reads, writes) =
            (vec![lease], vec![(lease, holder.map_or(Change::Nothing, Change::Set))]);
        Spec { reads, writes, expects: Some(expects), ..Spec::empty(lease.keyspace) }
    }

    pub fn drawn(random: &mut Random, shifts_only: bool) -> Spec {
        let keyspace = random.index(KEYSPACES.len());
        let mut spec = Spec::empty(keyspace);
        let row = |number: usize| RowOf { keyspace, number };
        match if shifts_only { 7 + random.below(6) } else { random.below(20) } {
            // A transfer.
            0..7 => {
                let mut accounts: Vec<usize> = (0..ACCOUNTS).collect();
                random.shuffle(&mut accounts);
                let (from, to) = (row(accounts[0]), row(accounts[1]));
                let amount = 1 + random.below(60) as i64;
                spec.reads = vec![from, to];
                if random.chance(0.3) {
                    spec.reads.push(row(accounts[2]));
                }
                spec.conditions = vec![(0, amount)];
                spec.writes = vec![(from, Change::Add(-amount)), (to, Change::Add(amount))];
                spec.returns = random.chance(0.8);
            }
            // A member leaves, if the other of the pair stays.
            7..11 => {
                let who = row(ACCOUNTS + random.index(SHIFTS));
                spec.reads = vec![who, who.partner()];
                spec.conditions = vec![(1, 1)];
                spec.writes = vec![(who, Change::Set(0))];
            }
            // A member comes back.
            11..13 => {
                let who = row(ACCOUNTS + random.index(SHIFTS));
                spec.writes = vec![(who, Change::Set(1))];
                if random.chance(0.5) {
                    spec.reads = vec![who];
                } else {
                    spec.returns = false;
                }
            }
            // All rows are read.
            13..15 => spec.reads = RowOf::all(keyspace).collect(),
            // Some rows are read, and one or two of these, or others, are written.
            _ => {
                let mut rows: Vec<RowOf> = RowOf::all(keyspace).collect();
                random.shuffle(&mut rows);
                spec.reads = rows[..1 + random.index(3)].to_vec();
                if random.chance(0.7) {
                    let others = random.below(4) == 0;
                    let from = if others { 2 } else { 0 };
                    let written = &rows[from..from + 1 + random.index(2)];
                    spec.writes = written.iter().map(|row| (*row, Change::Nothing)).collect();
                }
            }
        }
        spec
    }

    /// Texts that a client prepares.
    pub fn prepared() -> Vec<String> {
        let mut texts = Vec::new();
        for keyspace in 0..KEYSPACES.len() {
            let row = |number| RowOf { keyspace, number };
            let (from, to, who) = (row(0), row(1), row(ACCOUNTS));
            let none = Spec::empty(keyspace);
            let transfer = Spec {
                reads: vec![from, to],
                conditions: vec![(0, 1)],
                writes: vec![(from, Change::Add(-1)), (to, Change::Add(1))],
                ..none.clone()
            };
            let leave = Spec {
                reads: vec![who, who.partner()],
                conditions: vec![(1, 1)],
                writes: vec![(who, Change::Set(0))],
                ..none.clone()
            };
            let look = Spec { reads: RowOf::all(keyspace).collect(), ..none };
            texts.extend([transfer, leave, look].iter().map(|spec| spec.text(0, true).0));
        }
        texts
    }

    /// Texts on leases that a client prepares.
    pub fn prepared_of_leases() -> Vec<String> {
        let first = |lease: RowOf| {
            let known = Found { version: 0, writer: 0, value: 0 };
            [Some(0), None].map(|holder| Spec::lease(lease, known, holder).text(0, true).0)
        };
        let mut texts: Vec<String> = RowOf::leases().flat_map(first).collect();
        texts.sort();
        texts.dedup();
        texts
    }

    /// The holder of the lease after its replacement.
    pub fn holder(&self) -> Option<i64> {
        let kept = self.expects?.value;
        Some(match self.writes.first() {
            Some((_, Change::Set(holder))) => *holder,
            _ => kept,
        })
    }

    /// True if its conditions hold for these reads.
    pub fn holds(&self, values: &[i64]) -> bool {
        self.conditions.iter().all(|(read, least)| values[*read] >= *least)
    }

    /// Text and values of the markers, as the transaction of this number; or the values in the
    /// text.
    pub fn text(&self, writer: i64, has_markers: bool) -> (String, Vec<Vec<u8>>) {
        let mut values = Vec::new();
        let mut value = |number: i64, is_long: bool| {
            if !has_markers {
                return number.to_string();
            }
            values.push(if is_long {
                number.to_be_bytes().to_vec()
            } else {
                (number as i32).to_be_bytes().to_vec()
            });
            "?".to_owned()
        };
        let keyspace = KEYSPACES[self.keyspace];
        if let (Some(expects), Some((lease, change))) = (self.expects, self.writes.first()) {
            let holder = match change {
                Change::Set(holder) => format!("holder = {}, ", value(*holder, false)),
                _ => String::new(),
            };
            let set = [value(expects.version + 1, false), value(writer, true)];
            let id = value(lease.key()[0].into(), false);
            let is = [
                value(expects.version, false),
                value(expects.writer, true),
                value(expects.value, false),
            ];
            let text = format!(
                "UPDATE {keyspace}.leases SET {holder}version = {}, writer = {} WHERE id = {id} \
                 IF version = {} AND writer = {} AND holder = {}",
                set[0], set[1], is[0], is[1], is[2]
            );
            return (text, values);
        }
        let of = |row: RowOf, value: &mut dyn FnMut(i64, bool) -> String| {
            let parts = if row.is_account() { &["id"][..] } else { &["region", "id"][..] };
            let parts = parts
                .iter()
                .zip(row.key())
                .map(|(column, part)| format!("{column} = {}", value(part.into(), false)));
            parts.collect::<Vec<_>>().join(" AND ")
        };
        let mut text = "BEGIN TRANSACTION\n".to_owned();
        let is_plain = self.is_plain();
        for (place, row) in self.reads.iter().enumerate() {
            let select =
                format!("SELECT {}, version, writer FROM {keyspace}.{}", row.column(), row.table());
            let key = of(*row, &mut value);
            let _ = match is_plain {
                true => writeln!(text, "{select} WHERE {key};"),
                false => writeln!(text, "LET r{place} = ({select} WHERE {key});"),
            };
        }
        if self.returns && !is_plain {
            let columns = |(place, row): (usize, &RowOf)| {
                ["version", "writer", row.column()]
                    .map(|column| format!("r{place}.{column}"))
                    .join(", ")
            };
            let columns: Vec<String> = self.reads.iter().enumerate().map(columns).collect();
            let _ = writeln!(text, "SELECT {};", columns.join(", "));
        }
        let is = |(place, least): &(usize, i64)| {
            format!("r{place}.{} >= {}", self.reads[*place].column(), value(*least, false))
        };
        let conditions: Vec<String> = self.conditions.iter().map(is).collect();
        if !conditions.is_empty() {
            let _ = writeln!(text, "IF {} THEN", conditions.join(" AND "));
        }
        for (row, change) in &self.writes {
            let column = row.column();
            let set = match change {
                Change::Nothing => String::new(),
                Change::Add(by) if *by < 0 => format!("{column} -= {}, ", value(-by, false)),
                Change::Add(by) => format!("{column} += {}, ", value(*by, false)),
                Change::Set(to) => format!("{column} = {}, ", value(*to, false)),
            };
            let writer = value(writer, true);
            let key = of(*row, &mut value);
            let _ = writeln!(
                text,
                "UPDATE {keyspace}.{} SET {set}version += 1, writer = {writer} WHERE {key};",
                row.table()
            );
        }
        if !conditions.is_empty() {
            text.push_str("END IF\n");
        }
        text.push_str("COMMIT TRANSACTION");
        (text, values)
    }

    /// True if it only reads a row: the answer has the plain rows.
    pub fn is_plain(&self) -> bool {
        self.reads.len() == 1 && self.writes.is_empty()
    }
}
