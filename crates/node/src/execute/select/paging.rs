//! Start of the next page: opaque to clients, valid on any node and after a restart, since it names
//! a row instead of server state.
//!
//! ```text
//! version (1)  checksum (4)  kind (1)  rows left of LIMIT (4)  rows of the partition so far (4)
//! length of the partition key (4)  partition key  clustering
//! ```

use crate::error::CqlError;
use crate::schema::Table;

/// The only version. Cassandra's states usually begin with other bytes, and have no checksum.
const VERSION: u8 = 1;
const BEHIND_PARTITION: u8 = 0;
const BEHIND_ROW: u8 = 1;
/// No LIMIT.
const UNLIMITED: u32 = u32::MAX;
/// Version and checksum.
const HEAD_BYTES: usize = 5;

/// Last row of a page.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Position {
    pub(super) partition: Vec<u8>,
    /// `None`: the partition is finished.
    pub(super) clustering: Option<Vec<u8>>,
    /// Rows, or groups, returned from its partition.
    pub(super) in_partition: u32,
}

/// A position with the remainder of LIMIT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct State {
    pub(super) position: Position,
    pub(super) limit: Option<u32>,
}

fn wrong() -> CqlError {
    CqlError::Protocol("Invalid value for the paging state".to_owned())
}

/// FNV-1a over the table and the content, to detect the state of another statement.
fn checksum(table: &Table, reversed: bool, content: &[u8]) -> [u8; 4] {
    let seed = [&table.id[..], &[u8::from(reversed)]].concat();
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = seed.iter().chain(content).fold(0xcbf2_9ce4_8422_2325, step);
    ((hash ^ hash >> 32) as u32).to_be_bytes()
}

impl State {
    pub(super) fn encode(&self, table: &Table, reversed: bool) -> Vec<u8> {
        let Position { partition, clustering, in_partition } = &self.position;
        let mut out = vec![VERSION, 0, 0, 0, 0];
        out.push(if clustering.is_some() { BEHIND_ROW } else { BEHIND_PARTITION });
        out.extend_from_slice(&self.limit.unwrap_or(UNLIMITED).to_be_bytes());
        out.extend_from_slice(&in_partition.to_be_bytes());
        out.extend_from_slice(&(partition.len() as u32).to_be_bytes());
        out.extend_from_slice(partition);
        out.extend_from_slice(clustering.as_deref().unwrap_or_default());
        let sum = checksum(table, reversed, &out[HEAD_BYTES..]);
        out[1..HEAD_BYTES].copy_from_slice(&sum);
        out
    }

    pub(super) fn decode(bytes: &[u8], table: &Table, reversed: bool) -> Result<State, CqlError> {
        State::read(bytes, table, reversed).ok_or_else(wrong)
    }

    fn read(bytes: &[u8], table: &Table, reversed: bool) -> Option<State> {
        let (head, content) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        if head[0] != VERSION || head[1..] != checksum(table, reversed, content) {
            return None;
        }
        let (kind, rest) = content.split_first()?;
        let (limit, rest) = number(rest)?;
        // Nothing would be left to read. A client can compute the checksum of such a state.
        if limit == 0 {
            return None;
        }
        let (in_partition, rest) = number(rest)?;
        let (length, rest) = number(rest)?;
        let (partition, clustering) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let clustering = match *kind {
            BEHIND_ROW => Some(clustering.to_vec()),
            BEHIND_PARTITION if clustering.is_empty() => None,
            _ => return None,
        };
        // A token, and a key with that token.
        let (token, key) = partition.split_first_chunk::<8>()?;
        if key.is_empty()
            || super::super::keys::token_bytes(shunt_topology::token::token(key)) != *token
        {
            return None;
        }
        let position = Position { partition: partition.to_vec(), clustering, in_partition };
        Some(State { position, limit: Some(limit).filter(|limit| *limit != UNLIMITED) })
    }
}

/// Error for a state that does not match the statement's partitions.
pub(super) fn foreign() -> CqlError {
    wrong()
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), rest))
}

#[cfg(test)]
pub(super) mod forgery {
    use super::{HEAD_BYTES, State, checksum};
    use crate::schema::Table;

    /// A state with other numbers, and the checksum that goes with them.
    pub(in crate::execute::select) fn with(
        state: &[u8],
        table: &Table,
        (limit, in_partition): (u32, u32),
    ) -> Vec<u8> {
        let mut forged = state.to_vec();
        forged[6..10].copy_from_slice(&limit.to_be_bytes());
        forged[10..14].copy_from_slice(&in_partition.to_be_bytes());
        let sum = checksum(table, false, &forged[HEAD_BYTES..]);
        forged[1..HEAD_BYTES].copy_from_slice(&sum);
        assert!(limit == 0 || State::decode(&forged, table, false).is_ok());
        forged
    }
}
