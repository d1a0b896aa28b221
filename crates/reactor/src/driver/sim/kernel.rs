//! The calls of a host to its kernel: connect, write, read, close. The faults of the network are
//! drawn here, at a write or a connect.

use super::network::{NOWHERE, Network};
use super::queue::{Event, Packet};
use super::wire::{End, Pipe, Socket, Stage, Wire};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

impl Network {
    /// Starts a connection; the end hears `Connected` or `Refused`, or nothing for ever.
    pub(super) fn connect(&mut self, host: usize, slot: u32, to: SocketAddr) -> End {
        let windows = [self.draw_window(), self.draw_window()];
        let machine = &mut self.machines[host];
        let from = SocketAddr::new(machine.address, machine.next_port);
        machine.next_port = machine.next_port.checked_add(1).unwrap_or(32_768);
        let target = match self.listeners.get(&to).map(Vec::as_slice) {
            None | Some([]) => self.machine_of(to.ip()),
            Some(listening) => listening[self.random.index(listening.len())].0,
        };
        let sockets =
            [Socket::new(host, from, Some(slot), true), Socket::new(target, to, None, false)];
        self.wires.push(Wire::new(sockets, windows));
        let wire = self.wires.len() - 1;
        if self.random.chance(self.options.connect_lost) {
            self.fault("syn lost", End { wire, side: 0 });
        } else if self.random.chance(self.options.connect_refused) {
            self.fault("refused", End { wire, side: 0 });
            self.send_later(wire, Packet::Refused);
        } else {
            self.send_later(wire, Packet::Open { attempt: 0 });
        }
        End { wire, side: 0 }
    }

    /// Writes; returns the number of bytes that the kernel takes. 0 means that it is full and wakes
    /// the end when it has room.
    pub(super) fn write(&mut self, end: End, bytes: &[u8]) -> Result<usize, ErrorKind> {
        let wire = &self.wires[end.wire];
        if wire.stage != Stage::Open || wire.sockets[end.side].lost {
            return Err(ErrorKind::ConnectionReset);
        }
        self.maybe_break(end);
        let wire = &self.wires[end.wire];
        let room = wire.pipes[1 - end.side].room();
        let mut taken = room.min(bytes.len());
        if taken > 1 && self.random.chance(self.options.short_write) {
            taken = 1 + self.random.index(taken - 1);
        }
        if taken < bytes.len() {
            let socket = &mut self.wires[end.wire].sockets[end.side];
            socket.blocked = true;
            if taken < room {
                // The kernel lacked memory for a moment, not window.
                socket.room_announced = true;
                let at = self.now_ns + 1 + self.random.range(&self.options.turn_delay_ns);
                let packet = Packet::Room { side: end.side };
                let wire = end.wire;
                self.queue.push(at, Event::Packet { wire, packet });
            }
        }
        if taken > 0 {
            self.wires[end.wire].pipes[1 - end.side].append(&bytes[..taken]);
            self.dispatch(end.other(), taken);
        }
        Ok(taken)
    }

    /// Number of bytes that a read would find.
    pub(super) fn readable(&self, end: End) -> usize {
        self.wires[end.wire].pipes[end.side].arrived
    }

    /// True if the next read finds the end of the stream.
    pub(super) fn at_end(&self, end: End) -> bool {
        let pipe = &self.wires[end.wire].pipes[end.side];
        pipe.end_arrived && pipe.arrived == 0
    }

    /// Appends up to `bytes_max` arrived bytes to `into`; returns their number.
    pub(super) fn read(&mut self, end: End, into: &mut Vec<u8>, bytes_max: usize) -> usize {
        let arrived = self.readable(end);
        let mut count = arrived.min(bytes_max);
        if count > 1 && self.random.chance(self.options.partial_read) {
            count = 1 + self.random.index(count - 1);
        }
        let start = into.len();
        let wire = &mut self.wires[end.wire];
        let pipe = &mut wire.pipes[end.side];
        pipe.take(count, into);
        let writer = &mut wire.sockets[1 - end.side];
        if writer.blocked && !writer.room_announced && !wire.silent {
            writer.room_announced = true;
            self.send_later(end.wire, Packet::Room { side: 1 - end.side });
        }
        self.trace.fold_bytes(&into[start..]);
        count
    }

    /// Ends the output: the other side finds the end of the stream after the last byte.
    pub(super) fn shut_down(&mut self, end: End) {
        let wire = &mut self.wires[end.wire];
        let pipe = &mut wire.pipes[1 - end.side];
        if wire.stage == Stage::Open && !pipe.end_sent {
            pipe.end_sent = true;
            self.dispatch(end.other(), 0);
        }
    }

    /// Gives the socket up. An open wire ends in order, unless bytes for this end are still unread
    /// or `reset` asks for it: then the other side hears a reset.
    pub(super) fn detach(&mut self, end: End, reset: bool) {
        let unread = self.readable(end) > 0;
        let wire = &mut self.wires[end.wire];
        let socket = &mut wire.sockets[end.side];
        if !socket.attached {
            return;
        }
        socket.attached = false;
        socket.slot = None;
        let silent = socket.lost || wire.stage != Stage::Open;
        let other =
            wire.sockets[1 - end.side].attached || wire.sockets[1 - end.side].away.is_some();
        if other && !silent {
            if reset || unread {
                self.send_reset(end.other());
            } else {
                self.shut_down(end);
            }
        }
        let pipes = &mut self.wires[end.wire].pipes;
        pipes[end.side].discard_arrived();
        if !other {
            pipes.iter_mut().for_each(Pipe::discard);
        }
    }

    /// Sends the parcel that was just added to the pipe of `to` on its way.
    pub(super) fn dispatch(&mut self, to: End, length: usize) {
        let mut delay = self.random.range(&self.options.latency_ns);
        if self.random.chance(self.options.stall) {
            delay += self.random.range(&self.options.stall_ns);
            self.fault("stall", to);
        }
        let wire = &mut self.wires[to.wire];
        if wire.silent {
            let peer = &wire.sockets[to.side];
            if peer.forgotten && self.machines[peer.host].up {
                // The machine is back and knows nothing of this connection.
                wire.silent = false;
                self.send_reset(to.other());
            }
            return;
        }
        let pipe = &mut wire.pipes[to.side];
        pipe.parcels.push_back(length);
        pipe.last_arrival_ns = pipe.last_arrival_ns.max(self.now_ns + delay);
        let event = Event::Packet {
            wire: to.wire,
            packet: Packet::Data { side: to.side, losses: pipe.losses },
        };
        self.queue.push(pipe.last_arrival_ns, event);
    }

    /// Draws the faults that a write can run into.
    fn maybe_break(&mut self, end: End) {
        if self.random.chance(self.options.reset) {
            self.fault("reset", end);
            self.break_wire(end.wire);
        }
        if self.random.chance(self.options.half_open) {
            self.fault("half-open", end);
            self.silence(end.wire);
        }
    }

    fn draw_window(&mut self) -> usize {
        self.random.range(&self.options.window_bytes) as usize
    }

    fn machine_of(&self, address: IpAddr) -> usize {
        self.machines.iter().position(|machine| machine.address == address).unwrap_or(NOWHERE)
    }
}
