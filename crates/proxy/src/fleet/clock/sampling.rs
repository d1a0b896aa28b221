//! Questions to nodes for their time, in the order of [`super::turns`], and their answers.

use shunt_language::functions::time_of_timeuuid_us;
use shunt_locks::Now;
use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::message::{Consistency, ResultMessage};

use super::{Sample, Standing};
use crate::core::Core;
use crate::fleet::statements::{Heard, Whose, ask};

const QUESTION: &str = "SELECT now() FROM system.local";

/// Asks nodes for their time if it is due, and publishes how far behind the clock is.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    if core.context.config.fleet.is_none() {
        return;
    }
    let now = Now { boot_ns: io.read_clock_ns(), wall_us: io.wall_us() };
    core.fleet.clocks.estimate.expire(now.boot_ns);
    publish(core, now);
    let room = core.fleet.clocks.room(now.boot_ns);
    if room > 0 {
        ask_nodes(core, io, now.boot_ns, room);
    }
}

/// Asks this many nodes. A node without a link is asked at a later tick.
fn ask_nodes(core: &mut Core, io: &mut Io, now_ns: u64, room: usize) {
    let Some(cluster) = core.router.cluster.clone() else { return };
    let nodes = cluster.routing.local_nodes();
    let Some(pool) = ask::pool(core, io) else { return };
    for _ in 0..nodes.len().min(room) {
        let Some(node) = core.fleet.clocks.turns.choose(nodes, now_ns) else { return };
        let whose = Whose::Clock { node, sent_ns: now_ns };
        if ask::ask_node(core, io, (pool, node), whose, QUESTION, Consistency::ONE) {
            core.fleet.clocks.turns.add(node, now_ns);
        }
    }
}

/// Takes in the answer of a node, or its absence.
pub(crate) fn take_answer(
    core: &mut Core,
    io: &mut Io,
    (node, sent_ns): (NodeId, u64),
    heard: &Heard<'_>,
) {
    let heard_ns = io.read_clock_ns();
    let sample = time_us(heard).map(|told_us| {
        let heard_us = i64::try_from(heard_ns / 1_000).unwrap_or(i64::MAX);
        let round_trip_ns = heard_ns.saturating_sub(sent_ns);
        Sample { node, ahead_us: told_us.saturating_sub(heard_us), round_trip_ns, heard_ns }
    });
    core.fleet.clocks.learn(node, sent_ns, sample);
    publish(core, Now { boot_ns: heard_ns, wall_us: io.wall_us() });
}

/// A node's time, microseconds since 1970.
fn time_us(heard: &Heard<'_>) -> Option<i64> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else { return None };
    let row = rows.rows().next()?.ok()?;
    time_of_timeuuid_us(row.get(0)?)
}

/// Publishes how far behind the clock is.
fn publish(core: &mut Core, now: Now) {
    let behind_us = core.fleet.clocks.show(core.context.index, now);
    let is_unmeasured = core.fleet.clocks.standing == Standing::Unmeasured;
    core.context.metrics.clock_behind_us.set(behind_us);
    core.context.metrics.clock_unmeasured.set(u64::from(is_unmeasured));
}
