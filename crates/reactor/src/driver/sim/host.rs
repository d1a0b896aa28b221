//! One host: a service, its `Io`, and the driver that joins them to the simulated network. Runs the
//! turns.

use super::network::Network;
use super::session::TornSession;
use super::wire::{End, News};
use crate::connection::State;
use crate::driver::{Driver, finish_turn};
use crate::engine::close_reason;
use crate::io::{Io, SimulatedClock};
use crate::moving::{Frozen, FrozenLimits, NotFrozen};
use crate::options::LoopOptions;
use crate::service::{Accepted, CloseReason, ConnId, Service};
use std::any::Any;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;

/// A host, independent of its service's type.
pub(super) trait Host {
    /// Runs one turn of the loop, after an event or for a due timer.
    fn turn(&mut self, network: &mut Network);
    /// Runs a turn if a timer is due.
    fn timer_due(&mut self, network: &mut Network, for_ns: u64);
    fn end_of(&self, conn: ConnId) -> Option<End>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// A running service.
pub(super) struct Running<S: Service> {
    host: usize,
    pub(super) service: S,
    pub(super) io: Io,
    pub(super) mail: VecDeque<S::Mail>,
    started: bool,
    /// The deadline of the timer event in the queue.
    timer_for_ns: Option<u64>,
    sockets: Sockets,
}

/// The driver's part of the connections, by slot.
#[derive(Default)]
struct Sockets {
    ends: Vec<Option<End>>,
    /// Slots closed in an earlier turn; the next one releases them.
    releases: Vec<u32>,
}

/// The driver during one turn.
struct SimDriver<'a> {
    host: usize,
    network: &'a mut Network,
    sockets: &'a mut Sockets,
}

impl<S: Service> Running<S> {
    pub(super) fn new(host: usize, options: &LoopOptions, service: S) -> Running<S> {
        Running {
            host,
            service,
            io: Io::new(options, "sim"),
            mail: VecDeque::new(),
            started: false,
            timer_for_ns: None,
            sockets: Sockets::default(),
        }
    }

    /// Runs a turn that begins with `events`.
    pub(super) fn turn_with<R>(
        &mut self,
        network: &mut Network,
        events: impl FnOnce(&mut Self, &mut Network) -> R,
    ) -> R {
        let machine = &mut network.machines[self.host];
        let (clock, began_ns) =
            (machine.clock, machine.turn_began_ns.take().unwrap_or(network.now_ns));
        self.io.now_ns = clock.local_ns(began_ns);
        let (boot_ns, wall_offset_us) = (clock.local_ns(network.now_ns), clock.wall_offset_us);
        self.io.simulated = Some(SimulatedClock { boot_ns, wall_offset_us });
        if !std::mem::replace(&mut self.started, true) {
            self.service.started(&mut self.io);
        }
        for index in std::mem::take(&mut self.sockets.releases) {
            self.io.release_slot(index);
        }
        let result = events(self, network);
        let mut driver = SimDriver { host: self.host, network, sockets: &mut self.sockets };
        finish_turn(&mut self.io, &mut driver, &mut self.service);
        self.rest(network);
        result
    }

    /// Schedules the next event that must wake the host.
    fn rest(&mut self, network: &mut Network) {
        network.machines[self.host].window_ns = self.io.window_ns;
        let clock = network.machines[self.host].clock;
        if self.io.wait_ns(clock.local_ns(network.now_ns)) == Some(0)
            || !self.sockets.releases.is_empty()
            || !self.mail.is_empty()
        {
            network.poke(self.host);
        }
        let next_ns = self.io.timers.next_ns();
        if next_ns != self.timer_for_ns {
            self.timer_for_ns = next_ns;
            if let Some(at_ns) = next_ns {
                network.set_timer(self.host, at_ns, clock.world_ns(at_ns));
            }
        }
    }

    fn accept_all(&mut self, network: &mut Network) {
        while let Some((listener, end)) = network.machines[self.host].backlog.pop_front() {
            let Some(index) = self.io.admit() else {
                network.detach(end, true);
                continue;
            };
            let [caller, called] = &network.wires[end.wire].sockets;
            let origin = Accepted { listener, peer: caller.address.into(), local: called.address };
            let caller = caller.host;
            self.sockets.put(index, end);
            network.wires[end.wire].sockets[end.side].slot = Some(index);
            network.note(self.host, "accept", end, 0);
            if network.options.sealed {
                let names = network.machines[caller].peer_names.clone();
                let session = TornSession::accepting(network.random.fork(), names);
                self.io.secure(index, Box::new(session), Some(origin));
            } else {
                let conn = self.io.id(index);
                self.service.accepted(&mut self.io, conn, &origin);
            }
            network.wake(end);
        }
    }

    fn take_mail(&mut self) {
        for _ in 0..self.mail.len() {
            if let Some(mail) = self.mail.pop_front() {
                self.service.mail(&mut self.io, mail);
            }
        }
    }

    /// Handles the ready ends, in an order drawn at random, and leaves some for later.
    fn look_at_ready(&mut self, network: &mut Network) {
        let mut ready = std::mem::take(&mut network.machines[self.host].ready);
        network.random.shuffle(&mut ready);
        for end in ready {
            network.wires[end.wire].sockets[end.side].queued = false;
            if network.random.chance(network.options.deferral) {
                network.wake(end);
                continue;
            }
            self.look_at(end, network);
        }
    }

    fn look_at(&mut self, end: End, network: &mut Network) {
        if let Some(news) = network.wires[end.wire].sockets[end.side].news.take()
            && let Some(index) = network.slot(end)
        {
            self.act_on(news, index, end, network);
        }
        if let Some(index) = network.slot(end) {
            let blocked = network.wires[end.wire].sockets[end.side].blocked;
            if !blocked && !self.io.unsent(index).is_empty() {
                SimDriver { host: self.host, network, sockets: &mut self.sockets }.write(
                    &mut self.io,
                    index,
                    end,
                );
            }
            self.read(index, end, network);
        }
    }

    fn act_on(&mut self, news: News, index: u32, end: End, network: &mut Network) {
        let state = self.io.connections[index as usize].state;
        let connecting = matches!(state, State::Connecting | State::Securing | State::Restoring);
        let reason = match (news, connecting) {
            (News::Connected, _) => {
                network.note(self.host, "connected", end, 0);
                return self.io.established(index, &mut self.service);
            }
            (News::Refused, _) => CloseReason::ConnectFailed(ErrorKind::ConnectionRefused),
            (News::Reset, true) if state == State::Securing => CloseReason::Reset,
            (News::Reset, true) => CloseReason::ConnectFailed(ErrorKind::ConnectionReset),
            (News::TimedOut, true) => CloseReason::ConnectFailed(ErrorKind::TimedOut),
            (News::Reset, false) => {
                // Bytes that arrived before the reset may be read or not: both happen.
                if network.random.chance(0.5) {
                    self.read(index, end, network);
                }
                CloseReason::Reset
            }
            (News::TimedOut, false) => CloseReason::Error(ErrorKind::TimedOut),
        };
        network.note(self.host, "lost", end, news as u64);
        self.io.ended(index, reason, &mut self.service);
    }

    /// Reads at most once; the end is woken again if bytes are left.
    fn read(&mut self, index: u32, end: End, network: &mut Network) {
        if !self.io.connections[index as usize].wants_read() {
            return;
        }
        if network.at_end(end) {
            network.note(self.host, "end", end, 0);
            return self.io.end_of_stream(index, &mut self.service);
        }
        if network.readable(end) == 0 {
            return;
        }
        // The two ways in which the socket drivers hand bytes over.
        let mut count = 0;
        if network.random.chance(0.3) {
            let mut bytes = Vec::new();
            count = network.read(end, &mut bytes, self.io.receive_bytes_max);
            self.io.deliver(index, &bytes, &mut self.service);
        } else {
            self.io.receive(index, &mut self.service, |buffer, bytes_max| {
                count = network.read(end, buffer, bytes_max);
                Ok(count)
            });
        }
        network.note(self.host, "read", end, count as u64);
        if network.readable(end) > 0 || network.at_end(end) {
            network.wake(end);
        }
    }
}

impl<S: Service + 'static> Host for Running<S> {
    fn turn(&mut self, network: &mut Network) {
        self.turn_with(network, |running, network| {
            running.accept_all(network);
            if network.random.chance(0.5) {
                running.take_mail();
                running.look_at_ready(network);
            } else {
                running.look_at_ready(network);
                running.take_mail();
            }
        });
        if self.io.stopping {
            network.host_gone(self.host, false);
        }
    }

    fn timer_due(&mut self, network: &mut Network, for_ns: u64) {
        // An earlier timer was set since, or the one for this time has expired. Setting another for
        // each would accumulate timers.
        if self.timer_for_ns != Some(for_ns) {
            return;
        }
        self.timer_for_ns = None;
        let local_ns = network.machines[self.host].clock.local_ns(network.now_ns);
        if self.io.timers.next_ns().is_some_and(|at_ns| at_ns <= local_ns) {
            self.turn(network);
        } else {
            self.rest(network);
        }
    }

    fn end_of(&self, conn: ConnId) -> Option<End> {
        self.io.is_open(conn).then(|| self.sockets.get(conn.index)).flatten()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Sockets {
    fn get(&self, index: u32) -> Option<End> {
        self.ends.get(index as usize).copied().flatten()
    }

    fn put(&mut self, index: u32, end: End) {
        let index = index as usize;
        if self.ends.len() <= index {
            self.ends.resize(index + 1, None);
        }
        self.ends[index] = Some(end);
    }
}

impl SimDriver<'_> {
    fn write(&mut self, io: &mut Io, index: u32, end: End) {
        match self.network.write(end, io.unsent(index)) {
            Ok(0) => {}
            Ok(count) => {
                self.network.note(self.host, "write", end, count as u64);
                io.wrote(index, count);
            }
            Err(kind) => io.fail(index, close_reason(kind)),
        }
    }
}

impl Driver for SimDriver<'_> {
    fn connect(&mut self, io: &mut Io, index: u32, to: SocketAddr) {
        if io.connections[index as usize].state != State::Connecting {
            return;
        }
        let end = self.network.connect(self.host, index, to);
        self.network.note(self.host, "connect", end, u64::from(to.port()));
        self.sockets.put(index, end);
        let is_secured = io.connections[index as usize].tunnel.is_some();
        if self.network.options.sealed && !is_secured {
            let session = TornSession::new(self.network.random.fork(), true);
            io.secure(index, Box::new(session), None);
        }
    }

    fn send(&mut self, io: &mut Io, index: u32) {
        if let Some(end) = self.sockets.get(index) {
            self.write(io, index, end);
        }
    }

    fn resume(&mut self, _io: &mut Io, index: u32) {
        if let Some(end) = self.sockets.get(index)
            && (self.network.readable(end) > 0 || self.network.at_end(end))
        {
            self.network.wake(end);
        }
    }

    fn shutdown(&mut self, _io: &mut Io, index: u32) {
        if let Some(end) = self.sockets.get(index) {
            self.network.note(self.host, "shutdown", end, 0);
            self.network.shut_down(end);
        }
    }

    fn close(&mut self, io: &mut Io, index: u32, reset: bool) {
        if let Some(end) = self.sockets.get(index) {
            self.network.note(self.host, "close", end, u64::from(reset));
            self.network.detach(end, reset);
            self.sockets.ends[index as usize] = None;
        }
        if self.network.random.chance(0.3) {
            self.sockets.releases.push(index);
        } else {
            io.release_slot(index);
        }
    }

    fn freeze(
        &mut self,
        _io: &mut Io,
        index: u32,
        room: FrozenLimits,
    ) -> Result<Frozen, NotFrozen> {
        let end = self.sockets.get(index).ok_or(NotFrozen::NotEstablished)?;
        let frozen = self.network.freeze(end, room)?;
        self.network.note(self.host, "freeze", end, u64::from(frozen.state.send_sequence));
        self.sockets.ends[index as usize] = None;
        Ok(frozen)
    }

    fn unacknowledged(&mut self, index: u32) -> usize {
        self.sockets.get(index).map_or(0, |end| self.network.unacknowledged(end))
    }

    fn restore(
        &mut self,
        _io: &mut Io,
        index: u32,
        mut frozen: Frozen,
    ) -> Result<Frozen, ErrorKind> {
        let end = self.network.restore(self.host, index, &frozen)?;
        self.network.note(self.host, "restore", end, u64::from(frozen.state.send_sequence));
        self.sockets.put(index, end);
        frozen.unacknowledged.clear();
        Ok(frozen)
    }
}
