//! Test data: the paper's rows and telemetry.

use shunt_storage::row::{Cell, CellValue, ColumnId, Liveness, Row};

/// Timestamp of the first row.
pub(crate) const START_US: i64 = 1_790_000_000_000_000;

/// Xorshift.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }
}

/// Rows to store, and the names of their columns.
pub(crate) struct Data {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

pub(crate) fn row(at: usize, values: Vec<(u32, Vec<u8>)>) -> Row {
    let timestamp = START_US + at as i64 * 1000;
    let cell = |(column, value)| Cell {
        column: ColumnId(column),
        path: None,
        timestamp,
        expiry: None,
        value: CellValue::Live(value),
    };
    let cells = values.into_iter().map(cell).collect();
    Row { liveness: Some(Liveness { timestamp, expiry: None }), cells, ..Row::default() }
}

/// Paper 5: 5 to 10 of 10 columns, with names of 5 bytes and values of 10.
pub(crate) fn paper(rows: usize, random: &mut Random) -> Data {
    let columns = (0..10).map(|at| format!("fiel{at}")).collect();
    let mut one = |at| {
        let mut chosen: Vec<u32> = (0..10).collect();
        for _ in 0..random.below(6) {
            chosen.remove(random.below(chosen.len() as u64) as usize);
        }
        let mut value = || (0..10).map(|_| b' ' + random.below(95) as u8).collect::<Vec<u8>>();
        row(at, chosen.into_iter().map(|column| (column, value())).collect())
    };
    Data { name: "paper", columns, rows: (0..rows).map(&mut one).collect() }
}

/// Telemetry: hosts of 64 kinds, each with 20 to 40 of 40 columns with real names, of which up to
/// three are missing at times.
pub(crate) fn telemetry(rows: usize, random: &mut Random) -> Data {
    let parts = ["cpu", "mem", "disk", "net", "jvm", "http", "gc", "db"];
    let kinds = [
        "utilization_percent",
        "bytes_read_total",
        "queue_depth",
        "latency_p99_micros",
        "errors_total",
    ];
    let columns: Vec<String> = parts
        .iter()
        .flat_map(|part| kinds.iter().map(move |kind| format!("{part}.{kind}")))
        .collect();
    let mut drop_some = |from: &[u32], some: u64| {
        let mut left = from.to_vec();
        for _ in 0..some {
            left.remove(random.below(left.len() as u64) as usize);
        }
        left
    };
    let all: Vec<u32> = (0..columns.len() as u32).collect();
    let hosts: Vec<Vec<u32>> = (0..64).map(|kind| drop_some(&all, kind % 21)).collect();
    let mut noise = Random(7);
    let mut one = |at: usize| {
        let host = noise.below(2000);
        let missing = if noise.below(10) == 0 { 3 } else { 0 };
        let chosen = drop_some(&hosts[(host % 64) as usize], missing);
        let mut value = |column: u32| match column % 4 {
            0 => format!("{}.{:02}", noise.below(100), noise.below(100)),
            1 => (1_000_000 + host * 7919 + noise.below(5000)).to_string(),
            2 => noise.below(16).to_string(),
            _ => (200 + noise.below(3000)).to_string(),
        };
        row(at, chosen.into_iter().map(|column| (column, value(column).into_bytes())).collect())
    };
    Data { name: "telemetry", columns, rows: (0..rows).map(&mut one).collect() }
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    let token = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [&token.to_be_bytes()[..], format!("user{number:020}").as_bytes()].concat()
}
