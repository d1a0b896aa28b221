//! Distribution of shards: shards without a live owner are given away evenly, and members with too
//! many give to those with too few. Pure functions of view and members, so that members with the
//! same knowledge decide alike.

use crate::ids::{Incarnation, SHARDS, Shard, Shards, View};

/// Receivers of `without`: each shard goes to the member that then has least; among equals, to the
/// first.
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

/// Receivers of the shards that `me` has too many. `members` are all candidates, without
/// duplicates. Empty while a shard has another owner or none: dead owners' shards are taken over
/// first.
///
/// The sum over all members is the least number of moves after which no two members differ by more
/// than one. No two members fill the same gap.
pub(crate) fn surplus(view: &View, members: &[Incarnation], me: Incarnation) -> Vec<Incarnation> {
    let mut counts: Vec<(usize, Incarnation)> =
        members.iter().map(|member| (view.shards_of(*member).len(), *member)).collect();
    if counts.is_empty() || counts.iter().map(|(count, _)| count).sum::<usize>() != SHARDS {
        return Vec::new();
    }
    // The members with most keep the shards that do not divide evenly.
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
