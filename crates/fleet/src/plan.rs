//! Who is to own what: shards without a live owner are given away evenly, and members with too many
//! give to those with too few. Pure functions of view and members, so that all who know the same
//! decide the same.

use crate::ids::{Incarnation, SHARDS, Shard, Shards, View};

/// The receivers of so many shards, each to the one who then has least; of equals, to the first.
pub(crate) fn spread(
    view: &View,
    without: Shards,
    receivers: &[Incarnation],
) -> Vec<(Shard, Incarnation)> {
    let mut counts: Vec<(usize, Incarnation)> =
        receivers.iter().map(|one| (kept(view, without, *one), *one)).collect();
    let mut given = Vec::with_capacity(without.len());
    for shard in without.iter() {
        let Some(least) = counts.iter_mut().min() else { return given };
        least.0 += 1;
        given.push((shard, least.1));
    }
    given
}

fn kept(view: &View, without: Shards, owner: Incarnation) -> usize {
    view.shards_of(owner).iter().filter(|shard| !without.contains(*shard)).count()
}

/// For each shard that `me` has too many, who is to get it. `members` are all to whom shards may
/// belong, without doubles. Empty while a shard is nobody's or another's: what is dead is taken
/// over first.
///
/// The sum over all members is the least number of moves after which no two members differ by more
/// than one. No two members fill the same gap.
pub(crate) fn surplus(view: &View, members: &[Incarnation], me: Incarnation) -> Vec<Incarnation> {
    let mut counts: Vec<(usize, Incarnation)> =
        members.iter().map(|member| (view.shards_of(*member).len(), *member)).collect();
    if counts.is_empty() || counts.iter().map(|(count, _)| count).sum::<usize>() != SHARDS {
        return Vec::new();
    }
    // Who has most may keep one of the shards that do not divide evenly.
    counts.sort_by_key(|(count, member)| (std::cmp::Reverse(*count), *member));
    let (share, more) = (SHARDS / counts.len(), SHARDS % counts.len());
    let target = |rank: usize| share + usize::from(rank < more);
    let gaps: Vec<Incarnation> = counts
        .iter()
        .enumerate()
        .flat_map(|(rank, (count, member))| {
            std::iter::repeat_n(*member, target(rank).saturating_sub(*count))
        })
        .collect();
    let mut begin = 0;
    for (rank, (count, member)) in counts.iter().enumerate() {
        let too_many = count.saturating_sub(target(rank));
        if *member == me {
            return gaps[begin..begin + too_many].to_vec();
        }
        begin += too_many;
    }
    Vec::new()
}
