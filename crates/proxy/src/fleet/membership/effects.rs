//! Performs the effects of a member: sends statements, notifies the cores, logs.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_fleet::{Consistency, End, Event, Level, Output, Peer, Statement, StatementId, Value};
use shunt_reactor::Io;
use shunt_wire::cql::message::{self, Value as Bound, ValueList, put};

use crate::client::announce;
use crate::core::Core;
use crate::fleet::forwarding::Owners;
use crate::fleet::membership::{Stage, now_ns, run};
use crate::fleet::notices;
use crate::fleet::notices::notice::Notice;
use crate::fleet::roster::{Fleet, Member};
use crate::fleet::statements::{self, Levels, Whose};

/// Performs all effects of the member, and those that follow from them.
pub(super) fn perform(core: &mut Core, io: &mut Io) {
    // At most three statements of a round cannot be sent, and each gets an answer at once.
    while !core.fleet.membership.outputs.is_empty() {
        for output in std::mem::take(&mut core.fleet.membership.outputs) {
            one(core, io, output);
        }
    }
}

fn one(core: &mut Core, io: &mut Io, output: Output) {
    match output {
        Output::Send { id, statement, coordinator, .. } => {
            send(core, io, id, statement, coordinator)
        }
        Output::Lease(post) => notices::tell_all(core, io, Notice::Lease(post)),
        Output::Gain(gain) => notices::tell_shard(core, io, gain.shard, Notice::Gain(gain)),
        Output::Drain { shard, number } => {
            notices::tell_shard(core, io, shard, Notice::Drain { shard, number })
        }
        Output::Resume(shard) => notices::tell_shard(core, io, shard, Notice::Resume(shard)),
        Output::Lost { shard, .. } => notices::tell_shard(core, io, shard, Notice::Lost(shard)),
        Output::Peers(peers) => show_peers(core, io, &peers),
        Output::Owners { .. } => show_owners(core, io),
        // A dead member leaves work behind only if there were transactions.
        Output::Redo(incarnation) => redo(core, io, incarnation),
        Output::ToldToLeave => {
            tracing::info!(
                "an operator has told this proxy to leave its fleet: it stops, as at SIGTERM"
            );
            core.fleet.membership.leaving = true;
            core.context.metrics.locks.told_to_leave.set(1);
        }
        Output::Event(event) => say(&event),
        Output::Alarm(alarm) => tracing::warn!(%alarm, "the fleet needs attention"),
        Output::Ended(end) => take_end(core, io, &end),
    }
}

fn send(core: &mut Core, io: &mut Io, id: StatementId, statement: Statement, coordinator: u32) {
    let level = core.fleet.membership.level.unwrap_or(Level::Serial);
    if ask(core, io, id, &statement, level, coordinator) {
        core.fleet.membership.remember(id, statement);
    } else {
        let (now_ns, wall_us) = (now_ns(io), io.wall_us());
        let outcome = shunt_fleet::Outcome::Failed("no node can be asked".to_owned());
        if let Stage::Member(member) = &mut core.fleet.membership.stage {
            member.outcome(id, outcome, now_ns, wall_us, &mut core.fleet.membership.outputs);
        }
    }
}

/// Sends one of the fleet's statements. Returns false if it could not be sent.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    id: StatementId,
    statement: &Statement,
    level: Level,
    coordinator: u32,
) -> bool {
    let fleet = core.context.config.fleet.clone().unwrap_or_default();
    let mut list = ValueList::positional(statements::VERSION);
    let mut bytes = Vec::new();
    for value in statement.values(&fleet) {
        bytes.clear();
        encode(value, &mut bytes);
        list.push(Bound::Bytes(&bytes));
    }
    let consistencies = statement.consistencies(level);
    let levels = Levels {
        consistency: consistency(consistencies.consistency),
        serial: consistencies.serial.map(consistency),
        timestamp_us: None,
        elsewhere: coordinator % 2 == 1,
    };
    statements::ask::ask(core, io, Whose::Fleet(id), statement.text(), list.values(), &levels, None)
}

pub(super) fn consistency(level: Consistency) -> message::Consistency {
    match level {
        Consistency::Quorum => message::Consistency::QUORUM,
        Consistency::LocalQuorum => message::Consistency::LOCAL_QUORUM,
        Consistency::Serial => message::Consistency::SERIAL,
        Consistency::LocalSerial => message::Consistency::LOCAL_SERIAL,
    }
}

/// Encodes a value by its type (native protocol, section 6).
pub(super) fn encode(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        Value::Int(number) => out.extend_from_slice(&number.to_be_bytes()),
        Value::BigInt(number) => out.extend_from_slice(&number.to_be_bytes()),
        Value::Boolean(is_true) => out.push(u8::from(is_true)),
        Value::Uuid(incarnation) => out.extend_from_slice(&incarnation.0),
        Value::Owners(view) => {
            put::int(out, view.owned().count() as i32);
            for (shard, owner) in view.owned() {
                put::bytes(out, Some(&i32::from(shard).to_be_bytes()));
                put::bytes(out, Some(&owner.0));
            }
        }
    }
}

fn redo(core: &mut Core, io: &mut Io, incarnation: shunt_fleet::Incarnation) {
    let (now_ns, wall_us) = (now_ns(io), io.wall_us());
    if let Stage::Member(member) = &mut core.fleet.membership.stage {
        member.redone(incarnation, now_ns, wall_us, &mut core.fleet.membership.outputs);
    }
}

/// Publishes the members that drivers may connect to.
fn show_peers(core: &mut Core, io: &mut Io, peers: &[Peer]) {
    let own = core.fleet.membership.incarnation;
    let live = peers.iter().filter(|peer| !peer.leaving || Some(peer.incarnation) == own);
    show_owners(core, io);
    let members: Vec<Member> = live
        .filter_map(|peer| {
            Some(Member { address: peer.address.parse().ok()?, incarnation: peer.incarnation.0 })
        })
        .collect();
    let place = members.iter().position(|member| Some(member.incarnation) == own.map(|own| own.0));
    let Some(fleet) = place.and_then(|own| Fleet::new(members, own)).map(Arc::new) else { return };
    for to in 0..core.context.config.cores.max(1) {
        if to != core.context.index {
            core.fleet.lanes.show(to, &fleet);
        }
    }
    announce::changed(core, io, fleet);
}

/// Sends the owners of other proxies' shards to all cores.
pub(super) fn show_owners(core: &mut Core, io: &mut Io) {
    let Stage::Member(member) = &core.fleet.membership.stage else { return };
    let own = core.fleet.membership.incarnation;
    // Such an owner claims this proxy's address, or is a former process of this proxy. A request to
    // it would come back here and not be served, so it is refused at once.
    let here = core.context.config.member_address().ok();
    let address = |shard| {
        let (owner, address, _) = member.owner(shard)?;
        let address: SocketAddr = address.filter(|_| Some(owner) != own)?.parse().ok()?;
        (Some(address) != here).then_some(address)
    };
    let owners = Owners(std::array::from_fn(|shard| address(shard as u8)));
    tell_owners(core, io, owners);
}

fn tell_owners(core: &mut Core, _: &mut Io, owners: Owners) {
    if core.fleet.peers.owners.as_deref() == Some(&owners) {
        return;
    }
    let owners = Arc::new(owners);
    for to in 0..core.context.config.cores.max(1) {
        if to != core.context.index {
            core.fleet.lanes.show_owners(to, &owners);
        }
    }
    core.fleet.peers.owners = Some(owners);
}

fn say(event: &Event) {
    match event {
        Event::Joined => tracing::info!("this proxy is a member of its fleet"),
        Event::LeaseLapsed => {
            tracing::warn!("the lease has run out before it could be renewed: no locks are granted")
        }
        Event::LeaseBack => tracing::info!("the lease is renewed: locks are granted again"),
        Event::DeclaredDead { incarnation, address, shards } => {
            tracing::warn!(address, shards, member = %incarnation, "a silent member was declared dead: its shards are taken over");
        }
        Event::ViewChanged { epoch, moved, taken_over } => {
            tracing::info!(epoch, moved, taken_over, "shards of locks have changed hands");
        }
        Event::Sealed(member) => tracing::info!(%member, "a dead member was sealed"),
        Event::FormatRaised(format) => {
            tracing::info!(format, "the format of the fleet's rows was raised")
        }
    }
}

fn take_end(core: &mut Core, io: &mut Io, end: &End) {
    let why = match end {
        End::Refused(refusal) => {
            run::note_format(core, Some(refusal));
            refusal.to_string()
        }
        End::Dead => {
            "others declared it dead, because it was silent for longer than its lease".to_owned()
        }
        End::Left => "it has left".to_owned(),
    };
    end_membership(core, io, &why);
}

/// Ends the membership. From here on the cores serve no locks, whatever earlier notices said.
pub(super) fn end_membership(core: &mut Core, io: &mut Io, why: &str) {
    notices::tell_all(core, io, Notice::End);
    tell_owners(core, io, Owners([None; shunt_fleet::SHARDS]));
    let now_ns = now_ns(io);
    run::ended(&mut core.fleet.membership, now_ns, why);
}
