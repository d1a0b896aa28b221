//! Bounds on the ring that a node may describe: far beyond what Cassandra is run with, and small
//! enough that neither time nor memory runs out.

use super::error::ControlError;
use super::tables::Row;

/// Nodes of a ring: a quarter of the numbers that nodes can have, and more than any ring has.
pub(super) const NODES_MAX: usize = 16_384;
/// Tokens of one node: Cassandra takes 1,536 at most (`num_tokens`).
pub(super) const NODE_TOKENS_MAX: usize = 4_096;
/// Tokens of all nodes: 256 each of a thousand nodes.
pub(super) const TOKENS_MAX: usize = 256 * 1_024;

/// The column that lists a node's tokens.
const TOKENS: &str = "tokens";

/// Checks the row about the node itself.
///
/// # Errors
/// The node has too many tokens.
pub(super) fn check_own(local: &Row) -> Result<(), ControlError> {
    let count = local.count(TOKENS);
    if count <= NODE_TOKENS_MAX {
        return Ok(());
    }
    let what = format!("{count} tokens of its own, and at most {NODE_TOKENS_MAX} are allowed");
    Err(ControlError::Garbage(what))
}

/// Leaves out the nodes beyond the bound, the last ones in the order of the table. Returns why.
pub(super) fn leave_out_excess<T>(peers: &mut Vec<T>) -> Option<String> {
    let count = peers.len() + 1;
    peers.truncate(NODES_MAX - 1);
    (count > NODES_MAX).then(|| {
        format!(
            "the ring has {count} nodes, and Shunt uses {NODES_MAX} at most: the others get no \
            queries"
        )
    })
}

/// The tokens that a ring's nodes may have.
pub(super) struct TokenBounds {
    /// Tokens of all nodes that have no more than one may.
    all: usize,
    /// Nodes that have more.
    excessive: usize,
}

impl TokenBounds {
    /// Counts the tokens that these rows say they have.
    pub(super) fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut bounds = Self { all: 0, excessive: 0 };
        for count in rows.map(|row| row.count(TOKENS)) {
            if count <= NODE_TOKENS_MAX {
                bounds.all += count;
            } else {
                bounds.excessive += 1;
            }
        }
        bounds
    }

    /// The tokens of a node; none if it has too many, or if all nodes together have.
    pub(super) fn read<'a>(&self, row: &'a Row) -> Vec<&'a str> {
        if self.all > TOKENS_MAX || row.count(TOKENS) > NODE_TOKENS_MAX {
            return Vec::new();
        }
        row.texts(TOKENS)
    }

    /// The reason why nodes have no tokens here; `None`: they have all of theirs.
    pub(super) fn excess(&self) -> Option<String> {
        if self.all > TOKENS_MAX {
            return Some(format!(
                "the ring has {} tokens, and Shunt routes by {TOKENS_MAX} at most: queries go to \
                any node",
                self.all
            ));
        }
        (self.excessive > 0).then(|| {
            format!(
                "{} nodes have more than {NODE_TOKENS_MAX} tokens each, so they count as nodes \
                without tokens: queries go to replicas among the others",
                self.excessive
            )
        })
    }
}
