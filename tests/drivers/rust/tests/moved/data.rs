//! The rows that the test reads, written beforehand past the proxy.

use drivers_rust::replication;
use scylla::client::session::Session;

pub const MIB: usize = 1 << 20;
pub const KEYSPACE: &str = "moved_rust";
const BLOB_SIZES: [usize; 11] =
    [MIB, MIB, 2 * MIB, MIB, 4 * MIB, MIB, MIB, 2 * MIB, 8 * MIB, MIB, 15 * MIB];
pub const PAGE_SIZES: [i32; 3] = [4, 16, 64];
/// Rows of 104 bytes, and how many queries for them are in flight.
pub const SMALL_ROWS: i32 = 1_000;
pub const FIRST_SMALL: i32 = 1_000;
pub const SMALL_SIZE: usize = 104;
/// One partition of 16 MiB in table lines.
const LINES: i32 = 64;

/// The values of rows, by their numbers.
pub struct Data {
    pub blobs: Vec<Vec<u8>>,
    pub lines: Vec<Vec<u8>>,
}

impl Data {
    /// Makes the tables and fills them.
    pub async fn written(node: &Session) -> Self {
        for statement in [
            format!("CREATE KEYSPACE {KEYSPACE} WITH replication = {}", replication()),
            format!("CREATE TABLE {KEYSPACE}.blobs (k int PRIMARY KEY, v blob)"),
            format!("CREATE TABLE {KEYSPACE}.lines (k int, n int, v blob, PRIMARY KEY (k, n))"),
        ] {
            node.query_unpaged(statement.as_str(), ())
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        let blobs: Vec<_> = (0..).zip(BLOB_SIZES).map(|(key, size)| content(key, size)).collect();
        let lines: Vec<_> = (0..LINES).map(|line| content(line, MIB / 4)).collect();
        let insert = format!("INSERT INTO {KEYSPACE}.blobs (k, v) VALUES (?, ?)");
        let insert = node.prepare(insert).await.expect("prepare");
        for (key, value) in (0..).zip(&blobs) {
            node.execute_unpaged(&insert, (key, value)).await.expect("insert");
        }
        for key in FIRST_SMALL..FIRST_SMALL + SMALL_ROWS {
            node.execute_unpaged(&insert, (key, content(key, SMALL_SIZE))).await.expect("insert");
        }
        let insert = format!("INSERT INTO {KEYSPACE}.lines (k, n, v) VALUES (0, ?, ?)");
        let insert = node.prepare(insert).await.expect("prepare");
        for (line, value) in (0..).zip(&lines) {
            node.execute_unpaged(&insert, (line, value)).await.expect("insert");
        }
        Self { blobs, lines }
    }
}

/// The value of the row with that key: 64 bytes by chance and 64 that are easy to compress, in
/// turn.
pub fn content(key: i32, size: usize) -> Vec<u8> {
    let mut made = Vec::with_capacity(size);
    let mut word = (key as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ size as u64;
    for at in (0..size).step_by(8) {
        if at / 64 % 2 == 0 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
        }
        made.extend_from_slice(&word.to_le_bytes());
    }
    made
}
