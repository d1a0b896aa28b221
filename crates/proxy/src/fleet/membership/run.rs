//! Events of the membership: the timer, notices of cores, and answers of nodes.

use shunt_fleet::schema::{FORMAT, FORMAT_MIN};
use shunt_fleet::{
    Config, FleetRow, Incarnation, Level, Member, Outcome, Refusal, SHARDS, Statement, StatementId,
    Status,
};
use shunt_reactor::Io;
use shunt_topology::schema::{Factor, Replication};

use crate::core::Core;
use crate::fleet::membership::{FIRST_READ, Membership, Stage, answer, effects, now_ns};
use crate::fleet::notices;
use crate::fleet::notices::notice::Notice;
use crate::fleet::statements::Heard;
use crate::limits;

/// The key of the timer of the membership.
pub(crate) const TIMER: u64 = 6;

/// Starts the membership, or continues it.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    if core.context.index != 0
        || core.context.config.fleet.is_none()
        || core.router.cluster.is_none()
    {
        return;
    }
    core.fleet.membership.wakes.passed(io.now_ns());
    let now_ns = now_ns(io);
    count(core, now_ns);
    match &mut core.fleet.membership.stage {
        Stage::Idle
            if now_ns >= core.fleet.membership.not_before_ns && !core.fleet.membership.leaving =>
        {
            read_first(core, io)
        }
        Stage::Reading { until_ns } if now_ns >= *until_ns => {
            begin_later(
                &mut core.fleet.membership,
                now_ns,
                "the fleet's row could not be read in time",
            );
        }
        Stage::Idle | Stage::Reading { .. } => {}
        Stage::Member(member) => {
            if now_ns >= member.next_wakeup_ns() {
                member.tick(now_ns, io.wall_us(), &mut core.fleet.membership.outputs);
            }
        }
    }
    go_on(core, io);
}

fn count(core: &Core, now_ns: u64) {
    let (metrics, status) = (&core.context.metrics.locks, core.fleet.membership.status());
    let of = |number: &dyn Fn(&Status) -> u64| status.as_ref().map_or(0, number);
    metrics.shards.set(of(&|status| status.held.len() as u64));
    metrics.lease.set(of(&|status| u64::from(now_ns < status.valid_until_ns)));
    metrics.unsealed.set(of(&|status| status.unsealed.len() as u64));
}

/// Performs the effects of the member, and sets the timer for what is due next.
fn go_on(core: &mut Core, io: &mut Io) {
    effects::perform(core, io);
    if let Stage::Member(member) = &core.fleet.membership.stage {
        let due_ns = member.next_wakeup_ns();
        let at_ns = due_ns.max(io.now_ns() + 1);
        if due_ns != u64::MAX && core.fleet.membership.wakes.wants(at_ns) {
            io.set_timer(at_ns, TIMER);
        }
    }
}

fn read_first(core: &mut Core, io: &mut Io) {
    let now_ns = now_ns(io);
    let statement = Statement::ReadFleet { serial: false };
    // The level of the fleet is not known yet, so this is a plain read.
    if effects::ask(core, io, FIRST_READ, &statement, Level::Serial, 0) {
        core.fleet.membership.stage = Stage::Reading { until_ns: now_ns + limits::FLEET_READ_NS };
        core.fleet.membership.remember(FIRST_READ, statement);
    } else {
        let membership = &mut core.fleet.membership;
        if std::mem::replace(&mut membership.has_tried, true) {
            begin_later(membership, now_ns, "no node can be asked for the fleet's row");
        }
    }
}

/// Notes the lack of a member, and logs a new reason.
pub(super) fn begin_later(membership: &mut Membership, now_ns: u64, why: &str) {
    membership.stage = Stage::Idle;
    membership.not_before_ns = now_ns + limits::FLEET_RETRY_NS;
    if membership.told != why {
        why.clone_into(&mut membership.told);
        tracing::warn!(why, "this proxy is not a member of its fleet: it serves no locks");
    }
}

/// Takes in the answer to one of the fleet's statements.
pub(crate) fn take_answer(core: &mut Core, io: &mut Io, id: StatementId, heard: &Heard<'_>) {
    let Some(statement) = core.fleet.membership.take_asked(id) else { return };
    let (now_ns, wall_us) = (now_ns(io), io.wall_us());
    let outcome = answer::outcome(&statement, heard);
    let membership = &mut core.fleet.membership;
    match &mut membership.stage {
        Stage::Member(member) if id != FIRST_READ => {
            member.outcome(id, outcome, now_ns, wall_us, &mut membership.outputs);
        }
        Stage::Reading { .. } if id == FIRST_READ => match outcome {
            Outcome::Fleet(Some(row)) => become_member(core, io, &row),
            Outcome::UnknownFormat(fleet) => {
                let refusal = Refusal::Format { fleet, known: FORMAT_MIN..=FORMAT };
                note_format(core, Some(&refusal));
                begin_later(&mut core.fleet.membership, now_ns, &refusal.to_string());
            }
            Outcome::Fleet(None) => {
                let name = core.context.config.fleet.clone().unwrap_or_default();
                begin_later(
                    &mut core.fleet.membership,
                    now_ns,
                    &Refusal::NoFleet(name).to_string(),
                );
            }
            other => {
                let why = match other {
                    Outcome::Failed(text) => {
                        format!("{text}: run `shunt fleet init`, if it was not run yet")
                    }
                    Outcome::Unreadable(bad) => bad.to_string(),
                    _ => "the fleet's row could not be read in time".to_owned(),
                };
                begin_later(&mut core.fleet.membership, now_ns, &why);
            }
        },
        _ => return,
    }
    go_on(core, io);
}

/// Publishes a format that this version does not know, if that is the reason for the lack of a
/// member.
pub(super) fn note_format(core: &Core, refusal: Option<&Refusal>) {
    let format = match refusal {
        Some(Refusal::Format { fleet, .. }) => u64::from(fleet.unsigned_abs()),
        _ => 0,
    };
    core.context.metrics.locks.unknown_format.set(format);
}

fn become_member(core: &mut Core, io: &mut Io, row: &FleetRow) {
    note_format(core, None);
    notices::tell_all(core, io, Notice::Level(row.level));
    let (now_ns, wall_us) = (now_ns(io), io.wall_us());
    let incarnation = new_incarnation(core, wall_us);
    let config = &core.context.config;
    let address = match config.member_address() {
        Ok(address) => address,
        Err(problem) => {
            begin_later(&mut core.fleet.membership, now_ns, &problem.message);
            return;
        }
    };
    let Some(cluster) = &core.router.cluster else { return };
    let keyspace = cluster
        .routing
        .keyspaces()
        .find(|keyspace| keyspace.name == shunt_fleet::schema::META_KEYSPACE);
    let datacentre = match row.level {
        Level::Serial => None,
        Level::LocalSerial => Some(cluster.datacentre.as_str()),
    };
    let member = Member::new(
        Config {
            lease_ms: row.lease_ms,
            max_ttl_ms: row.max_ttl_ms,
            level: row.level,
            datacentre: datacentre.unwrap_or_default().to_owned(),
            replication_factor: keyspace
                .map_or(0, |keyspace| replicas(&keyspace.replication, datacentre)),
            replication_factor_min: config.fleet_replicas_min,
            own_dead: core.fleet.membership.own_dead.clone(),
            ..Config::new(config.fleet.as_deref().unwrap_or_default(), &address.to_string())
        },
        incarnation,
    );
    match member {
        Ok(mut member) => {
            #[cfg(feature = "weakened")]
            core.fleet.membership.left_out.into_iter().for_each(|step| member.leave_out(step));
            if let Some(Err(error)) =
                core.fleet.membership.state_file.as_mut().map(|file| file.note(incarnation))
            {
                tracing::warn!(%error, "`fleet_state` cannot be written: after a restart this proxy's locks wait for its lease");
            }
            member.start(now_ns, wall_us, &mut core.fleet.membership.outputs);
            core.fleet.membership.stage = Stage::Member(Box::new(member));
            core.fleet.membership.incarnation = Some(incarnation);
            core.fleet.membership.level = Some(row.level);
            core.fleet.membership.told.clear();
            let max_ttl_ms = row.max_ttl_ms.unsigned_abs();
            notices::tell_all(core, io, Notice::Begin { level: row.level, max_ttl_ms });
        }
        Err(refusal) => begin_later(&mut core.fleet.membership, now_ns, &refusal.to_string()),
    }
}

/// Number of replicas of a keyspace.
fn replicas(replication: &Replication, datacentre: Option<&str>) -> u32 {
    let full = |factor: &Factor| u32::from(factor.all - factor.transient);
    match replication {
        Replication::Simple(factor) => full(factor),
        Replication::NetworkTopology(factors) => {
            let counted =
                factors.iter().filter(|(name, _)| datacentre.is_none_or(|wanted| wanted == name));
            counted.map(|(_, factor)| full(factor)).sum()
        }
        _ => u32::MAX,
    }
}

/// A new name: random, and different for each time and process.
fn new_incarnation(core: &mut Core, wall_us: i64) -> Incarnation {
    let halves = [core.context.random(), core.context.random() ^ wall_us.cast_unsigned()];
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&halves[0].to_be_bytes());
    bytes[8..].copy_from_slice(&halves[1].to_be_bytes());
    // Version 4, variant 1 of RFC 9562.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Incarnation(bytes)
}

/// Takes a notice of a core that keeps locks.
pub(crate) fn take_notice(core: &mut Core, io: &mut Io, notice: Notice) {
    let (now_ns, wall_us) = (now_ns(io), io.wall_us());
    let Membership { stage: Stage::Member(member), outputs, .. } = &mut core.fleet.membership
    else {
        return;
    };
    match notice {
        Notice::Drained { shard, number, last_token_us, memory_empty } => {
            member.drained(shard, number, last_token_us, memory_empty, now_ns, wall_us, outputs);
        }
        Notice::GrantedUpTo(token_us) => {
            member.granted_up_to(token_us);
            return;
        }
        _ => return,
    }
    go_on(core, io);
}

/// Hands everything over, because the proxy is about to stop.
pub(crate) fn leave(core: &mut Core, io: &mut Io) {
    let (now_ns, wall_us) = (now_ns(io), io.wall_us());
    core.fleet.membership.leaving = true;
    if let Stage::Reading { .. } = core.fleet.membership.stage {
        core.fleet.membership.stage = Stage::Idle;
    }
    let Membership { stage: Stage::Member(member), outputs, .. } = &mut core.fleet.membership
    else {
        return;
    };
    member.drain(now_ns, wall_us, outputs);
    go_on(core, io);
}

/// Leaves the fleet without announcing it. The proxy is about to stop, reaches no node and holds no
/// lock. The others learn of it when its lease ends.
pub(crate) fn leave_untold(core: &mut Core, io: &mut Io) {
    if core.fleet.membership.leaving && core.fleet.membership.member().is_some() {
        tracing::warn!(
            "no node can be reached and no lock is held: this proxy leaves its fleet untold; others see its lease end"
        );
        effects::end_membership(core, io, "no node can be told that it leaves");
    }
}

/// True if the fleet need not be told anything more before this process ends.
pub(crate) fn has_left(membership: &Membership) -> bool {
    !matches!(membership.stage, Stage::Member(_))
}

/// Ends the member. Another may follow.
pub(super) fn ended(membership: &mut Membership, now_ns: u64, why: &str) {
    if let Some(incarnation) = membership.incarnation.take() {
        membership.own_dead.push(incarnation);
        let excess = membership.own_dead.len().saturating_sub(SHARDS);
        membership.own_dead.drain(..excess);
    }
    membership.asked.clear();
    if membership.leaving {
        membership.stage = Stage::Idle;
    } else {
        begin_later(membership, now_ns, why);
    }
}
