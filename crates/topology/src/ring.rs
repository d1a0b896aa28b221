//! The token ring: the owner of each range.

use crate::node::{Node, NodeId};
use crate::token::Token;

/// All tokens in order, each with the owner of the range that ends at it.
#[derive(Debug)]
pub(crate) struct Ring {
    tokens: Vec<i64>,
    owners: Vec<NodeId>,
    starts: Starts,
}

/// By the highest bits of a token: index of the first range that can hold it, and as the last
/// element the number of ranges. Leaves a step or two of the binary search. Kept as small as the
/// ring allows, because it competes with the queries for the processor's cache.
#[derive(Debug)]
struct Starts {
    firsts: Vec<u32>,
    /// Number of low bits of a token that are ignored.
    shift: u32,
}

/// Most bits of a token that index `starts`.
const START_BITS_MAX: u32 = 12;

impl Starts {
    fn new(tokens: &[i64]) -> Starts {
        let bits = (tokens.len().next_power_of_two().ilog2() + 1).min(START_BITS_MAX);
        let mut starts = Starts { firsts: Vec::new(), shift: 64 - bits };
        let first_of = |index| tokens.partition_point(|&end| starts.index_of(end) < index) as u32;
        starts.firsts = (0..=1 << bits).map(first_of).collect();
        starts
    }

    /// Index of a token; rises with the token.
    #[inline]
    fn index_of(&self, token: i64) -> usize {
        ((token as u64 ^ (1 << 63)) >> self.shift) as usize
    }

    /// The first range that can hold a token, and the one after the last.
    #[inline]
    fn around(&self, token: i64) -> Option<(usize, usize)> {
        let index = self.index_of(token);
        let &[first, last] = self.firsts.get(index..index + 2)? else { return None };
        Some((first as usize, last as usize))
    }
}

impl Ring {
    /// Collects the tokens of all nodes. A token claimed by two nodes (as during a replacement)
    /// goes to the one with the lower number, so that every core and every rebuild agrees.
    pub(crate) fn new(nodes: &[Node]) -> Ring {
        let mut pairs: Vec<(i64, NodeId)> = nodes
            .iter()
            .flat_map(|node| node.tokens.iter().map(|&token| (token, node.id)))
            .collect();
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| pair.0);
        let (tokens, owners): (Vec<i64>, Vec<NodeId>) = pairs.into_iter().unzip();
        Ring { starts: Starts::new(&tokens), tokens, owners }
    }

    /// Number of distinct tokens.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Index of the range that contains a token: ranges are `(previous, own]`, and tokens above the
    /// last one belong to the first (`TokenMetadata.firstToken`). Undefined for an empty ring.
    #[inline]
    pub(crate) fn range_of(&self, token: Token) -> usize {
        let Some((first, last)) = self.starts.around(token.0) else { return 0 };
        let index = first
            + self
                .tokens
                .get(first..last)
                .unwrap_or_default()
                .partition_point(|&end| end < token.0);
        if index == self.tokens.len() { 0 } else { index }
    }

    /// Owners of all ranges, in order.
    pub(crate) fn owners(&self) -> &[NodeId] {
        &self.owners
    }

    /// Owners from a range onwards, once around the ring.
    #[cfg(test)]
    pub(crate) fn walk(&self, range: usize) -> impl Iterator<Item = NodeId> {
        let (before, from) = self.owners.split_at(range);
        from.iter().chain(before).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(tokens: &[i64]) -> Ring {
        let mut tokens = tokens.to_vec();
        tokens.sort_unstable();
        Ring { starts: Starts::new(&tokens), owners: vec![NodeId(0); tokens.len()], tokens }
    }

    #[test]
    fn the_range_is_the_one_a_search_through_all_tokens_finds() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state as i64
        };
        let spread: Vec<i64> = (0..3_000).map(|_| random()).collect();
        let close: Vec<i64> = (0..3_000).map(|index| index * 3).collect();
        for tokens in [
            &spread[..],
            &close,
            &[i64::MIN, -1, 0, i64::MAX],
            &[i64::MIN + 1, i64::MAX - 1],
            &[17],
        ] {
            let ring = ring(tokens);
            let near = ring
                .tokens
                .iter()
                .flat_map(|token| [token.wrapping_sub(1), *token, token.wrapping_add(1)]);
            let probes = near.chain((0..3_000).map(|_| random())).chain([i64::MIN, i64::MAX]);
            for probe in probes.collect::<Vec<_>>() {
                let expected = ring.tokens.iter().position(|&end| end >= probe).unwrap_or(0);
                assert_eq!(ring.range_of(Token(probe)), expected, "{probe}");
            }
        }
    }
}
