//! Keys: table, token, partition key, and the place within the partition.
//!
//! ```text
//! table (4, big endian)  token (8)  length of the rest (1 or 3)  partition key  part (1)
//! clustering
//! ```
//!
//! The length gives each partition a separate range of keys: no partition is a prefix of another.
//! Partitions sort by token, then (for the very rare equal tokens) by length, then by bytes. In a
//! partition the header comes first, then the static row, then the rows by their clustering bytes.

use crate::row::{PartitionKey, TableId};

/// Longest partition key after the token, as in Cassandra.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Longest clustering. The columns of a row may have 65,535 bytes, as in Cassandra; their sortable
/// encoding takes more: two bytes for each zero, and a few for each column and each value within
/// one.
pub const CLUSTERING_BYTES_MAX: usize = 256 << 10;

/// The table of the storage's own records.
pub(crate) const OWN_TABLE: TableId = TableId(u32::MAX);

pub(crate) const TABLE_BYTES: usize = 4;
const TOKEN_BYTES: usize = 8;
const PART_HEADER: u8 = 0;
const PART_STATIC: u8 = 1;
const PART_ROW: u8 = 2;
/// Greater than all parts: the end of a partition's keys.
const PART_END: u8 = 3;

/// A place within a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target<'a> {
    /// The deletions of the partition and of ranges in it.
    Header,
    /// The static row.
    Static,
    /// The row with these clustering bytes; empty in a table without clustering columns.
    Row(&'a [u8]),
}

/// Reasons why a key cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// The table number is reserved for the storage itself.
    Table,
    /// Shorter than a token.
    PartitionTooShort(usize),
    /// Longer than [`KEY_BYTES_MAX`].
    PartitionTooLong(usize),
    /// Longer than [`CLUSTERING_BYTES_MAX`].
    ClusteringTooLong(usize),
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyError::Table => write!(f, "table {} is kept for the storage itself", OWN_TABLE.0),
            KeyError::PartitionTooShort(bytes) => {
                write!(f, "a partition of {bytes} bytes has no token")
            }
            KeyError::PartitionTooLong(bytes) => {
                write!(f, "partition key of {bytes} bytes, longer than {KEY_BYTES_MAX}")
            }
            KeyError::ClusteringTooLong(bytes) => {
                write!(f, "clustering of {bytes} bytes, longer than {CLUSTERING_BYTES_MAX}")
            }
        }
    }
}

impl std::error::Error for KeyError {}

/// Encodes the table and partition, the common prefix of the partition's keys.
pub(crate) fn partition_prefix(
    table: TableId,
    partition: PartitionKey<'_>,
) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::with_capacity(TABLE_BYTES + partition.0.len() + 40);
    put_partition(&mut key, table, partition)?;
    Ok(key)
}

fn put_partition(
    key: &mut Vec<u8>,
    table: TableId,
    partition: PartitionKey<'_>,
) -> Result<(), KeyError> {
    if table == OWN_TABLE {
        return Err(KeyError::Table);
    }
    let Some((token, rest)) = partition.0.split_at_checked(TOKEN_BYTES) else {
        return Err(KeyError::PartitionTooShort(partition.0.len()));
    };
    if rest.len() > KEY_BYTES_MAX {
        return Err(KeyError::PartitionTooLong(rest.len()));
    }
    key.extend_from_slice(&table.0.to_be_bytes());
    key.extend_from_slice(token);
    match u8::try_from(rest.len()) {
        Ok(length) if length < u8::MAX => key.push(length),
        _ => {
            key.push(u8::MAX);
            key.extend_from_slice(&(rest.len() as u16).to_be_bytes());
        }
    }
    key.extend_from_slice(rest);
    Ok(())
}

/// The key of a record.
pub(crate) fn record(
    table: TableId,
    partition: PartitionKey<'_>,
    target: Target<'_>,
) -> Result<Vec<u8>, KeyError> {
    let mut key = partition_prefix(table, partition)?;
    push_target(&mut key, target)?;
    Ok(key)
}

/// Turns a partition's prefix into the key of one of its records.
pub(crate) fn push_target(key: &mut Vec<u8>, target: Target<'_>) -> Result<(), KeyError> {
    match target {
        Target::Header => key.push(PART_HEADER),
        Target::Static => key.push(PART_STATIC),
        Target::Row(clustering) if clustering.len() > CLUSTERING_BYTES_MAX => {
            return Err(KeyError::ClusteringTooLong(clustering.len()));
        }
        Target::Row(clustering) => {
            key.push(PART_ROW);
            key.extend_from_slice(clustering);
        }
    }
    Ok(())
}

/// Turns a partition's prefix into the end of its keys.
pub(crate) fn partition_end(prefix: &[u8]) -> Vec<u8> {
    [prefix, &[PART_END]].concat()
}

/// The first key of a table at or after a token.
pub(crate) fn token_start(table: TableId, token: Option<[u8; TOKEN_BYTES]>) -> Vec<u8> {
    let mut key = table.0.to_be_bytes().to_vec();
    key.extend(token.into_iter().flatten());
    key
}

/// The end of a table's keys.
pub(crate) fn table_end(table: TableId) -> Vec<u8> {
    table.0.saturating_add(1).to_be_bytes().to_vec()
}

/// The table that a key belongs to.
pub(crate) fn table_of(key: &[u8]) -> Option<TableId> {
    key.first_chunk().map(|bytes| TableId(u32::from_be_bytes(*bytes)))
}

/// Length of the part of a key that names its partition; the whole key if its format is unknown.
pub(crate) fn prefix_bytes(key: &[u8]) -> usize {
    let head = TABLE_BYTES + TOKEN_BYTES;
    let end = match key.get(head..) {
        Some([u8::MAX, high, low, ..]) => head + 3 + usize::from(u16::from_be_bytes([*high, *low])),
        Some([length, ..]) if *length < u8::MAX => head + 1 + usize::from(*length),
        _ => key.len(),
    };
    end.min(key.len())
}

/// Splits a key into its parts, for readers and error messages. `None` if its format is unknown.
pub(crate) fn split(key: &[u8]) -> Option<(TableId, Vec<u8>, Target<'_>)> {
    let prefix = prefix_bytes(key);
    let target = match key.get(prefix..)? {
        [PART_HEADER] => Target::Header,
        [PART_STATIC] => Target::Static,
        [PART_ROW, clustering @ ..] => Target::Row(clustering),
        _ => return None,
    };
    Some((table_of(key)?, partition_of(&key[..prefix])?, target))
}

/// The partition key in a partition's prefix.
pub(crate) fn partition_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let token = prefix.get(TABLE_BYTES..TABLE_BYTES + TOKEN_BYTES)?;
    let head = if *prefix.get(TABLE_BYTES + TOKEN_BYTES)? == u8::MAX { 3 } else { 1 };
    let rest = prefix.get(TABLE_BYTES + TOKEN_BYTES + head..)?;
    Some([token, rest].concat())
}

/// Encodes a key of the storage's own table.
pub(crate) fn own(name: &[u8]) -> Vec<u8> {
    [&OWN_TABLE.0.to_be_bytes(), name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn partition() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![vec(0..3u8, 8..12), vec(any::<u8>(), 8..600)]
    }

    proptest! {
        #[test]
        fn keys_come_back_and_keep_partitions_apart(a in partition(), b in partition(), clustering in vec(any::<u8>(), 0..6)) {
            let table = TableId(3);
            for target in [Target::Header, Target::Static, Target::Row(&clustering)] {
                let key = record(table, PartitionKey(&a), target).unwrap();
                let prefix = partition_prefix(table, PartitionKey(&a)).unwrap();
                prop_assert_eq!(split(&key), Some((table, a.clone(), target)));
                prop_assert_eq!(&key[..prefix_bytes(&key)], &prefix);
                prop_assert!(key < partition_end(&prefix));
                let other = partition_prefix(table, PartitionKey(&b)).unwrap();
                prop_assert_eq!(key.starts_with(&other), a == b);
                if a[..8] < b[..8] {
                    prop_assert!(partition_end(&prefix) < other);
                }
            }
        }

        #[test]
        fn foreign_keys_never_panic(key in vec(any::<u8>(), 0..40)) {
            prop_assert!(prefix_bytes(&key) <= key.len());
            if let Some((table, partition, target)) = split(&key) {
                prop_assert!(record(table, PartitionKey(&partition), target).is_ok() || table == OWN_TABLE);
            }
        }
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        let long = vec![0; KEY_BYTES_MAX + 9];
        let refused = |table, partition: &[u8], target| {
            record(TableId(table), PartitionKey(partition), target).err()
        };
        assert_eq!(refused(1, b"short", Target::Static), Some(KeyError::PartitionTooShort(5)));
        assert_eq!(
            refused(1, &long, Target::Static),
            Some(KeyError::PartitionTooLong(KEY_BYTES_MAX + 1))
        );
        assert_eq!(refused(1, &long[..20], Target::Row(&long)), None);
        let long = vec![0; CLUSTERING_BYTES_MAX + 1];
        let too_long = KeyError::ClusteringTooLong(CLUSTERING_BYTES_MAX + 1);
        assert_eq!(refused(1, &long[..20], Target::Row(&long)), Some(too_long));
        assert_eq!(refused(u32::MAX, &long[..20], Target::Static), Some(KeyError::Table));
    }
}
