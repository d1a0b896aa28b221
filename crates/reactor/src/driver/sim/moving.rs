//! Connections that are away for a while: an end of a wire is taken from one host and attached to
//! another.
//!
//! Packets to the end meanwhile wait in the network, as if their sender repeated them until a host
//! acknowledges them. Packets from the end arrive or are lost, as drawn; the restored end sends its
//! unacknowledged bytes again, and sequence numbers identify those that the peer already has. If no
//! host restores the end, its peer gives up after
//! [`Options::give_up_ns`](super::Options::give_up_ns).

use super::network::Network;
use super::queue::Packet;
use super::wire::{Away, End, News, Stage};
use crate::moving::{Frozen, FrozenLimits, NotFrozen, TcpState, Window};
use std::io::ErrorKind;

/// Segments of simulated connections are as large as those of Ethernet.
const MSS: u16 = 1460;

impl Network {
    /// Takes the end from its host, with the state of the connection in the host's kernel.
    pub(super) fn freeze(&mut self, end: End, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
        let wire = &self.wires[end.wire];
        let [here, there] = [&wire.pipes[end.side], &wire.pipes[1 - end.side]];
        let socket = &wire.sockets[end.side];
        let broken = socket.lost || socket.news.is_some();
        if wire.stage != Stage::Open || broken || here.end_arrived || there.end_sent {
            return Err(NotFrozen::NotEstablished);
        }
        // The acknowledged bytes are those that arrived, or fewer: acknowledgements may be on their
        // way.
        let acknowledged = self.random.index(there.arrived + 1);
        let (unread, unacknowledged) = (here.arrived, there.bytes.len() - acknowledged);
        if unread > room.unread_bytes_max || unacknowledged > room.output_bytes_max {
            return Err(NotFrozen::TooLong(unread.max(unacknowledged)));
        }
        if self.random.chance(self.options.freeze_failed) {
            self.fault("not frozen", end);
            return Err(NotFrozen::Moved);
        }
        let lost = self.random.chance(self.options.move_loss);
        let wire = &mut self.wires[end.wire];
        let frozen = Frozen {
            state: state_of(end, wire, unacknowledged),
            unacknowledged: wire.pipes[1 - end.side]
                .bytes
                .iter()
                .skip(acknowledged)
                .copied()
                .collect(),
            unsent: Vec::new(),
            unread: wire.pipes[end.side].bytes.drain(..unread).collect(),
        };
        wire.pipes[end.side].arrived = 0;
        let next = (wire.next_sequence(end.other()), wire.next_sequence(end));
        let socket = &mut wire.sockets[end.side];
        socket.away = Some(Away {
            to_send: next.0,
            to_receive: next.1.wrapping_sub(wire.pipes[end.side].bytes.len() as u32),
        });
        socket.attached = false;
        socket.slot = None;
        let (host, queued) = (socket.host, std::mem::take(&mut socket.queued));
        if queued {
            self.machines[host].ready.retain(|ready| *ready != end);
        }
        if lost {
            self.fault("lost", end);
            self.wires[end.wire].pipes[1 - end.side].lose_parcels();
        }
        self.expect_give_up(end.wire);
        Ok(frozen)
    }

    /// Bytes from this end that its peer's host has not got.
    pub(super) fn unacknowledged(&self, end: End) -> usize {
        let there = &self.wires[end.wire].pipes[1 - end.side];
        there.bytes.len() - there.arrived
    }

    /// Attaches the end that is away and has these addresses to a host. Fails with `AddrInUse` if
    /// it is attached already, with `NotFound` if there is none, and with `InvalidData` if the
    /// bytes or sequence numbers are not its own.
    pub(super) fn restore(
        &mut self,
        host: usize,
        slot: u32,
        frozen: &Frozen,
    ) -> Result<End, ErrorKind> {
        let end = self.end_between(frozen).ok_or(ErrorKind::NotFound)?;
        let wire = &self.wires[end.wire];
        let socket = &wire.sockets[end.side];
        let away = match socket.away {
            Some(away) => away,
            None if socket.attached => return Err(ErrorKind::AddrInUse),
            None => return Err(ErrorKind::NotFound),
        };
        let state = &frozen.state;
        let to_send = state.send_sequence.wrapping_add(frozen.unacknowledged.len() as u32);
        let to_receive = state.receive_sequence.wrapping_add(frozen.unread.len() as u32);
        if (Away { to_send, to_receive }) != away {
            return Err(ErrorKind::InvalidData);
        }
        // The peer has these, or will have.
        let there = &wire.pipes[1 - end.side];
        let known = wire.next_sequence(end.other()).wrapping_sub(state.send_sequence) as usize;
        let overlap = known.min(there.bytes.len());
        let told =
            frozen.unacknowledged.get(known - overlap..known).ok_or(ErrorKind::InvalidData)?;
        if !there.bytes.iter().skip(there.bytes.len() - overlap).eq(told) {
            return Err(ErrorKind::InvalidData);
        }
        if self.random.chance(self.options.restore_failed) {
            self.fault("not restored", end);
            return Err(ErrorKind::OutOfMemory);
        }
        self.attach(end, host, slot, &frozen.unacknowledged[known..]);
        Ok(end)
    }

    fn attach(&mut self, end: End, host: usize, slot: u32, again: &[u8]) {
        let wire = &mut self.wires[end.wire];
        let peer_is_gone =
            !wire.sockets[1 - end.side].attached && wire.sockets[1 - end.side].away.is_none();
        let ended_in_order = wire.pipes[end.side].end_sent;
        let socket = &mut wire.sockets[end.side];
        socket.away = None;
        socket.attached = true;
        socket.host = host;
        socket.slot = Some(slot);
        socket.blocked = false;
        if peer_is_gone && !ended_in_order && socket.news.is_none() {
            // A reset answers all further packets.
            self.send_reset(end);
        }
        if !again.is_empty() {
            self.wires[end.wire].pipes[1 - end.side].append(again);
            self.dispatch(end.other(), again.len());
        }
        let cut = self.is_cut(end.wire);
        let wire = &mut self.wires[end.wire];
        if wire.silent || cut {
            self.expect_give_up(end.wire);
        } else {
            wire.silences += 1;
            let room = wire.pipes[end.side].room() > 0;
            let writer = &mut wire.sockets[1 - end.side];
            if writer.blocked && !writer.room_announced && room {
                writer.room_announced = true;
                self.send_later(end.wire, Packet::Room { side: 1 - end.side });
            }
        }
        self.wake(end);
    }

    /// The youngest connection between these addresses.
    fn end_between(&self, frozen: &Frozen) -> Option<End> {
        let TcpState { local, peer, .. } = frozen.state;
        let is = |end: &End| {
            let sockets = &self.wires[end.wire].sockets;
            sockets[end.side].address == local && sockets[1 - end.side].address == peer
        };
        (0..self.wires.len())
            .rev()
            .flat_map(|wire| [End { wire, side: 0 }, End { wire, side: 1 }])
            .find(is)
    }

    /// Drops a packet that no kernel repeats, because it reached an end that is away. A reset or a
    /// time-out shows as a reset after the restore.
    pub(super) fn remember(&mut self, end: End, news: News) {
        let socket = &mut self.wires[end.wire].sockets[end.side];
        if socket.away.is_some() && matches!(news, News::Reset | News::TimedOut) {
            socket.news = Some(News::Reset);
        }
    }
}

fn state_of(end: End, wire: &super::wire::Wire, unacknowledged: usize) -> TcpState {
    let here = &wire.pipes[end.side];
    let [local, peer] = [end.side, 1 - end.side].map(|side| wire.sockets[side].address);
    let receive_sequence = wire.next_sequence(end).wrapping_sub(here.bytes.len() as u32);
    let next = receive_sequence.wrapping_add(here.arrived as u32);
    let send = wire.pipes[1 - end.side].window as u32;
    TcpState {
        local,
        peer,
        send_sequence: wire.next_sequence(end.other()).wrapping_sub(unacknowledged as u32),
        receive_sequence,
        mss: MSS,
        timestamp: Some(receive_sequence),
        sack: true,
        window_scales: Some((7, 7)),
        window: Window {
            send_update: next,
            send,
            largest: send,
            receive: here.window as u32,
            receive_update: next,
        },
    }
}
