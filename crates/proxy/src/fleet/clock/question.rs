//! Nodes are asked for their time, a few in turn every [`crate::limits::CLOCK_ASK_NS`].

use shunt_language::functions::time_of_timeuuid_us;
use shunt_locks::Now;
use shunt_reactor::Io;
use shunt_wire::cql::message::{Consistency, ResultMessage};

use super::Sample;
use crate::core::Core;
use crate::fleet::statements::{Heard, Whose, ask};

const QUESTION: &str = "SELECT host_id, now() FROM system.local";

/// Asks nodes for their time if that is due, and shows how far behind the clock is.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    if core.context.config.fleet.is_none() {
        return;
    }
    let now = Now { boot_ns: io.read_clock_ns(), wall_us: io.wall_us() };
    core.fleet.clocks.estimate.expire(now.boot_ns);
    show(core, now);
    let room = core.fleet.clocks.room(now.boot_ns);
    if room > 0 {
        ask_nodes(core, io, now.boot_ns, room);
    }
}

/// Where there is no link to any node, the next tick asks.
fn ask_nodes(core: &mut Core, io: &mut Io, now_ns: u64, room: usize) {
    let Some(cluster) = core.router.cluster.as_ref() else { return };
    let nodes = cluster.routing.local_nodes().to_vec();
    let Some(pool) = ask::pool(core, io) else { return };
    for _ in 0..nodes.len().min(room) {
        let clocks = &mut core.fleet.clocks;
        let node = nodes[clocks.cursor % nodes.len()];
        clocks.cursor = clocks.cursor.wrapping_add(1);
        let whose = Whose::Clock { sent_ns: now_ns };
        if ask::ask_node(core, io, (pool, node), whose, QUESTION, Consistency::ONE) {
            core.fleet.clocks.count_asked(now_ns);
        }
    }
}

/// Takes a node's answer, or that there is none.
pub(crate) fn heard(core: &mut Core, io: &mut Io, sent_ns: u64, heard: &Heard<'_>) {
    let heard_ns = io.read_clock_ns();
    let sample = read(heard).map(|(node, told_us)| {
        let heard_us = i64::try_from(heard_ns / 1_000).unwrap_or(i64::MAX);
        let round_trip_ns = heard_ns.saturating_sub(sent_ns);
        Sample { node, ahead_us: told_us.saturating_sub(heard_us), round_trip_ns, heard_ns }
    });
    core.fleet.clocks.learn(sample);
    show(core, Now { boot_ns: heard_ns, wall_us: io.wall_us() });
}

/// A node's host id and its time, microseconds since 1970.
fn read(heard: &Heard<'_>) -> Option<(u128, i64)> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else { return None };
    let row = rows.rows().next()?.ok()?;
    let node = u128::from_be_bytes(row.get(0)?.try_into().ok()?);
    Some((node, time_of_timeuuid_us(row.get(1)?)?))
}

/// Counts how far behind the clock is, and logs a change for the worse or the better.
fn show(core: &mut Core, now: Now) {
    let (behind_us, has_changed) = core.fleet.clocks.look(now);
    core.context.metrics.clock_behind_us.set(behind_us);
    if !has_changed || core.context.index != 0 {
        return;
    }
    let behind_ms = behind_us / 1_000;
    if core.fleet.clocks.is_behind {
        tracing::warn!(
            behind_ms,
            "this proxy's clock is behind the nodes': it decides no transactions that write until the clock is right (NTP)"
        );
    } else {
        tracing::info!(behind_ms, "this proxy's clock is right again: it decides transactions");
    }
}
