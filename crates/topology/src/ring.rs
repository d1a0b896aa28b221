//! The token ring: which node owns which range.

use crate::node::{Node, NodeId};
use crate::token::Token;

/// All tokens in order, each with the node that owns the range ending at it.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    tokens: Vec<i64>,
    owners: Vec<NodeId>,
}

impl Ring {
    /// Collects the tokens of all nodes. A token claimed by two nodes (seen while one replaces the other) goes to the
    /// one with the lower number, so that every core and every rebuild agrees.
    pub(crate) fn new(nodes: &[Node]) -> Ring {
        let mut pairs: Vec<(i64, NodeId)> =
            nodes.iter().flat_map(|node| node.tokens.iter().map(|&token| (token, node.id))).collect();
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| pair.0);
        let (tokens, owners) = pairs.into_iter().unzip();
        Ring { tokens, owners }
    }

    /// Number of distinct tokens.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Index of the range a token lies in: ranges are `(previous, own]`, and what lies above the last token belongs to
    /// the first (`TokenMetadata.firstToken`). Meaningless on an empty ring.
    pub(crate) fn range_of(&self, token: Token) -> usize {
        let index = self.tokens.partition_point(|&end| end < token.0);
        if index == self.tokens.len() { 0 } else { index }
    }

    /// Owners from a range onwards, once around the ring.
    pub(crate) fn walk(&self, range: usize) -> impl Iterator<Item = NodeId> {
        let (before, from) = self.owners.split_at(range);
        from.iter().chain(before).copied()
    }
}
