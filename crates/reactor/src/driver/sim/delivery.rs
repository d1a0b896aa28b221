//! Delivers events from the queue to the ends of the wires.

use super::network::{NOWHERE, Network};
use super::options::SECOND;
use super::queue::{Event, Packet};
use super::wire::{End, News, Stage, Wire};

impl Network {
    /// Delivers a packet.
    pub(super) fn deliver(&mut self, wire: usize, packet: Packet) {
        if self.is_cut_for(wire, packet) {
            return match packet {
                Packet::Open { attempt } => self.repeat_open(wire, attempt),
                packet => self.held.push((wire, packet)),
            };
        }
        if self.wires[wire].silent {
            return;
        }
        match packet {
            Packet::Open { attempt } => self.open_arrives(wire, attempt),
            Packet::Opened => self.tell(End { wire, side: 0 }, News::Connected),
            Packet::Refused => {
                self.wires[wire].stage = Stage::Broken;
                self.tell(End { wire, side: 0 }, News::Refused);
            }
            Packet::Data { side, losses } if losses == self.wires[wire].pipes[side].losses => {
                self.parcel_arrives(End { wire, side });
            }
            Packet::Data { .. } => {}
            Packet::Room { side } => {
                let socket = &mut self.wires[wire].sockets[side];
                socket.blocked = false;
                socket.room_announced = false;
                self.wake(End { wire, side });
            }
            Packet::Reset { side } => self.tell(End { wire, side }, News::Reset),
        }
    }

    /// Ends a wire after the keepalive of both ends has run out, unless they heard of each other
    /// since.
    pub(super) fn give_up(&mut self, wire: usize, silence: u32) {
        if self.wires[wire].silences == silence && self.is_unanswered(wire) {
            for side in [0, 1] {
                self.tell(End { wire, side }, News::TimedOut);
            }
        }
    }

    fn open_arrives(&mut self, wire: usize, attempt: u32) {
        let [caller, called] = &self.wires[wire].sockets;
        let (host, to, caller) = (called.host, called.address, caller.attached);
        if host != NOWHERE && self.machines[host].dark {
            return self.repeat_open(wire, attempt);
        }
        let listeners = self.listeners.get(&to).map(Vec::as_slice).unwrap_or_default();
        let listener = listeners.iter().find(|entry| entry.0 == host).map(|entry| entry.1);
        let Some(listener) = listener.filter(|_| caller && self.machines[host].up) else {
            return self.send_later(wire, Packet::Refused);
        };
        let machine = &mut self.machines[host];
        if machine.backlog.len() >= self.options.accept_backlog {
            return self.repeat_open(wire, attempt);
        }
        // The kernel completes the handshake; a frozen service need not do anything for it.
        machine.backlog.push_back((listener, End { wire, side: 1 }));
        self.wires[wire].stage = Stage::Open;
        self.wires[wire].sockets[1].attached = true;
        self.send_later(wire, Packet::Opened);
        self.poke(host);
    }

    /// Repeats an unanswered connect request after 1, 2, 4, ... seconds, as TCP does.
    fn repeat_open(&mut self, wire: usize, attempt: u32) {
        if attempt < 6 && self.wires[wire].sockets[0].attached {
            let packet = Packet::Open { attempt: attempt + 1 };
            self.queue.push(self.now_ns + (SECOND << attempt), Event::Packet { wire, packet });
        }
    }

    fn parcel_arrives(&mut self, end: End) {
        let wire = &mut self.wires[end.wire];
        if wire.stage == Stage::Broken || wire.sockets[end.side].lost {
            // Packets in flight when the connection was lost are gone; later ones must not follow a
            // gap.
            return;
        }
        wire.pipes[end.side].parcel_arrives();
        if wire.sockets[end.side].attached {
            self.wake(end);
        } else if wire.sockets[end.side].away.is_none() && wire.pipes[end.side].arrived > 0 {
            // Bytes for a closed socket are answered with a reset.
            wire.pipes[end.side].discard_arrived();
            self.send_reset(end.other());
        }
    }

    /// True if nobody answers for one of the ends, or the answers do not get through.
    pub(super) fn is_unanswered(&self, wire: usize) -> bool {
        let Wire { silent, sockets, .. } = &self.wires[wire];
        *silent || sockets.iter().any(|socket| socket.away.is_some()) || self.is_cut(wire)
    }

    fn tell(&mut self, end: End, news: News) {
        self.remember(end, news);
        let wire = &mut self.wires[end.wire];
        if matches!(news, News::Reset | News::TimedOut) {
            wire.sockets[end.side].lost = true;
            wire.pipes[end.side].lose_parcels();
        }
        let socket = &mut wire.sockets[end.side];
        // A late confirmation of the connect does not undo a reset.
        if socket.attached && !matches!(socket.news, Some(News::Reset | News::TimedOut)) {
            socket.news = Some(news);
            self.wake(end);
        }
    }
}
