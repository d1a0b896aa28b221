//! Regular checks of a core: deadlines of handshakes, silence, idle pools.

use shunt_admin::Label as _;
use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;

use crate::aggregate;
use crate::client::login;
use crate::core::Core;
use crate::ids::LinkKey;
use crate::limits;
use crate::link::{
    Pending, Purpose, Step, closing, judgement, lifecycle, open, pools, refusal, upgrade,
};
use crate::metrics::{GivenUp, PoolState};
use crate::retry::lost_links;

/// Opens missing links, and closes idle pools.
pub(crate) fn tick_pools(core: &mut Core, io: &mut Io) {
    let now = io.now_ns();
    for id in core.router.pools.ids() {
        let Some(pool) = core.router.pools.get(id) else { continue };
        let unused = pool.links().next().is_none()
            || now.saturating_sub(pool.idle_since_ns) > limits::POOL_IDLE_NS;
        let idle = pool.clients == 0 && unused;
        if idle {
            if pools::retire_links(core, io, id) {
                login::verification_interrupted(core, io, id);
            }
            pools::remove_if_unused(core, id);
        } else {
            open::ensure_links(core, io, id);
            refusal::tick(core, io, id);
        }
    }
    count_pools(core);
}

fn count_pools(core: &Core) {
    let (mut pools, mut clients) = ([0; PoolState::COUNT], [0; PoolState::COUNT]);
    for pool in core.router.pools.iter() {
        let state = pool.state().index();
        pools[state] += 1;
        clients[state] += pool.clients as u64;
    }
    for state in PoolState::ALL {
        core.context.metrics.pools.of(*state).set(pools[state.index()]);
        core.context.metrics.pool_clients.of(*state).set(clients[state.index()]);
    }
}

/// Gives up links that are late or silent, and probes those that may be.
pub(crate) fn tick_links(core: &mut Core, io: &mut Io) {
    let now = io.now_ns();
    for node in core.links.nodes_mut() {
        node.metrics.in_flight.set(u64::from(node.in_flight));
        node.penalty -= node.penalty.div_ceil(4);
    }
    core.links.count_orphans();
    judgement::tick(core, now);
    // The silence before the probe counts.
    let silence_max_ns =
        core.context.config.node_silence_ms * 1_000_000 - limits::LINK_SILENCE_PROBE_NS;
    for key in core.links.keys() {
        // Requests of a lost link find room on others before the probes take it.
        lost_links::settle(core, io);
        let Some(link) = core.links.get(key) else { continue };
        if link.step != Step::Ready {
            if now > link.open_deadline_ns {
                lifecycle::break_off(
                    core,
                    io,
                    key,
                    GivenUp::HandshakeTimeout,
                    "the handshake took too long",
                );
            }
            continue;
        }
        if link.retiring && link.is_unused() {
            closing::close(core, io, key);
            continue;
        }
        let node = link.node;
        if now.saturating_sub(link.ready_ns) > limits::RECONNECT_MAX_MS * 1_000_000 {
            core.links.health.link_lasted(node);
        }
        let Some(link) = core.links.get(key) else { continue };
        let silent_ns = now.saturating_sub(link.last_received_ns);
        // A long answer may precede the one to the probe.
        let probed_ns = now.saturating_sub(link.probe_sent_ns).min(silent_ns);
        let busy = link.streams.len() > 0;
        if link.probe_sent_ns != 0 && probed_ns > silence_max_ns {
            lifecycle::break_off(core, io, key, GivenUp::Silent, "it did not answer OPTIONS");
        } else if link.orphans > limits::LINK_ORPHANS_MAX.min(link.streams.max() / 2) {
            lifecycle::break_off(
                core,
                io,
                key,
                GivenUp::TimedOutQueries,
                "too many of its queries timed out",
            );
        } else if link.probe_sent_ns != 0 {
            if let Some(state) = core.links.node_mut(node) {
                state.silent |= probed_ns > limits::LINK_SILENCE_PROBE_NS;
            }
        } else if (busy && silent_ns > limits::LINK_SILENCE_PROBE_NS)
            || silent_ns > core.context.config.heartbeat_interval_ms * 1_000_000
            || upgrade::may_have_new_offer(core, key, now)
        {
            probe(core, io, key);
        }
    }
}

fn probe(core: &mut Core, io: &mut Io, key: LinkKey) {
    let pending = Pending::own(io.now_ns(), Purpose::Heartbeat, opcode::OPTIONS);
    if aggregate::send(&mut core.links, &mut core.retained, io, key, pending, &[])
        && let Some(link) = core.links.get_mut(key)
    {
        link.probe_sent_ns = io.now_ns();
    }
}
