//! The state of the simulated network and of its machines. `kernel` has the calls of a host,
//! `delivery` the arrivals.
//!
//! Every delay is a packet in the event queue. Packets of one pipe keep their order; packets of
//! different pipes overtake each other as their delays are drawn. This module knows neither
//! services nor `Io`.

use super::clock::Clock;
use super::options::{Options, SECOND};
use super::queue::{Event, Packet, Queue};
use super::random::Random;
use super::trace::Trace;
use super::wire::{End, Pipe, Socket, Wire};
use crate::session::PeerName;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// The host number of an address without a listener.
pub(super) const NOWHERE: usize = usize::MAX;

/// A host as the network knows it.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) up: bool,
    /// True without power, or cut off from everything: packets to it vanish instead of being
    /// refused.
    pub(super) dark: bool,
    pub(super) frozen: bool,
    pub(super) clock: Clock,
    /// Time at which it read its clock for a turn and was frozen, before any other step of the
    /// turn.
    pub(super) turn_began_ns: Option<u64>,
    /// Number of restarts, so that events meant for an earlier life are dropped.
    pub(super) life: u32,
    pub(super) turn_due: bool,
    pub(super) window_ns: u64,
    pub(super) ready: Vec<End>,
    /// Connections made by the kernel and not yet accepted by the service, with their listener.
    pub(super) backlog: VecDeque<(u16, End)>,
    pub(super) next_port: u16,
    /// Names of the certificate that it shows to servers.
    pub(super) peer_names: Vec<PeerName>,
}

/// The hosts, listeners, wires and events of a world.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) now_ns: u64,
    pub(super) random: Random,
    pub(super) options: Options,
    pub(super) trace: Trace,
    pub(super) queue: Queue,
    pub(super) machines: Vec<Machine>,
    pub(super) wires: Vec<Wire>,
    /// Listeners by address. Several hosts may listen on one (the cores of one process); a connect
    /// gets any of them.
    pub(super) listeners: BTreeMap<SocketAddr, Vec<(usize, u16)>>,
    /// Cut directions: from a host, to a host.
    cuts: BTreeSet<(usize, usize)>,
    pub(super) held: Vec<(usize, Packet)>,
}

impl Network {
    pub(super) fn new(seed: u64, options: Options) -> Network {
        Network {
            now_ns: SECOND,
            random: Random::new(seed),
            options,
            trace: Trace::new(),
            queue: Queue::default(),
            machines: Vec::new(),
            wires: Vec::new(),
            listeners: BTreeMap::new(),
            cuts: BTreeSet::new(),
            held: Vec::new(),
        }
    }

    pub(super) fn add_machine(&mut self, name: &str, address: IpAddr) -> usize {
        self.machines.push(Machine {
            name: name.to_owned(),
            address,
            up: true,
            dark: false,
            frozen: false,
            clock: Clock::default(),
            turn_began_ns: None,
            life: 0,
            turn_due: false,
            window_ns: 0,
            ready: Vec::new(),
            backlog: VecDeque::new(),
            next_port: 32_768,
            peer_names: Vec::new(),
        });
        self.machines.len() - 1
    }

    /// Lets the host's loop turn soon.
    pub(super) fn poke(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        if machine.up && !machine.frozen && !machine.turn_due {
            let delay = self.random.range(&self.options.turn_delay_ns);
            machine.turn_due = true;
            let event = Event::Turn { host, life: machine.life };
            self.queue.push(self.now_ns + machine.window_ns + delay, event);
        }
    }

    /// Puts the end on its host's list of ready ends and lets the host turn.
    pub(super) fn wake(&mut self, end: End) {
        let socket = &mut self.wires[end.wire].sockets[end.side];
        if !socket.attached {
            return;
        }
        let host = socket.host;
        if !socket.queued {
            socket.queued = true;
            self.machines[host].ready.push(end);
        }
        self.poke(host);
    }

    /// Makes the host's loop check its timers at this time, or a little later: the timer for
    /// `for_ns`, by its own clock.
    pub(super) fn set_timer(&mut self, host: usize, for_ns: u64, at_ns: u64) {
        let late = self.random.range(&self.options.timer_delay_ns);
        let event = Event::Timer { host, life: self.machines[host].life, for_ns };
        self.queue.push(at_ns.max(self.now_ns).saturating_add(late), event);
    }

    /// Returns whether the host can take a turn that is due.
    pub(super) fn takes_turn(&mut self, host: usize, life: u32) -> bool {
        let machine = &mut self.machines[host];
        if machine.life != life {
            return false;
        }
        machine.turn_due = false;
        machine.up && !machine.frozen
    }

    /// The slot of the connection table that this end belongs to, while its host holds it.
    pub(super) fn slot(&self, end: End) -> Option<u32> {
        self.wires[end.wire].sockets[end.side].slot
    }

    // --- hosts ---

    /// Ends all connections of the host. A killed process resets or closes them; a machine without
    /// power does neither, and answers nothing.
    pub(super) fn host_gone(&mut self, host: usize, dark: bool) {
        let machine = &mut self.machines[host];
        machine.up = false;
        machine.dark = dark;
        machine.frozen = false;
        machine.turn_began_ns = None;
        machine.turn_due = false;
        machine.life += 1;
        machine.ready.clear();
        machine.backlog.clear();
        for (wire, side) in self.ends_of(host) {
            let end = End { wire, side };
            if dark {
                let socket = &mut self.wires[wire].sockets[side];
                socket.attached = false;
                socket.slot = None;
                socket.forgotten = true;
                self.silence(wire);
            } else {
                let reset = self.random.chance(0.5);
                self.detach(end, reset);
            }
        }
    }

    /// Cuts one direction between two hosts until they are joined again.
    pub(super) fn cut(&mut self, from: usize, to: usize) {
        let was_cut = self.cuts.contains(&(to, from));
        if self.cuts.insert((from, to)) && !was_cut {
            for wire in self.wires_between(from, to) {
                self.expect_give_up(wire);
            }
        }
    }

    /// Joins two hosts and lets the held packets through.
    pub(super) fn join(&mut self, a: usize, b: usize) {
        let was_cut = [(a, b), (b, a)].map(|pair| self.cuts.remove(&pair));
        if was_cut == [false, false] {
            return;
        }
        for wire in self.wires_between(a, b) {
            if !self.is_unanswered(wire) {
                self.wires[wire].silences += 1;
            }
        }
        let held = std::mem::take(&mut self.held);
        for (wire, packet) in held {
            if self.is_cut_for(wire, packet) {
                self.held.push((wire, packet));
            } else {
                self.send_later(wire, packet);
            }
        }
    }

    /// The pairs of hosts of which the first cannot reach the second.
    pub(super) fn cut_pairs(&self) -> Vec<(usize, usize)> {
        self.cuts.iter().copied().collect()
    }

    /// Silences a wire: nothing passes from now on, and no end hears of it.
    pub(super) fn silence(&mut self, wire: usize) {
        if !self.wires[wire].silent {
            self.wires[wire].silent = true;
            self.expect_give_up(wire);
        }
    }

    /// Resets the connection in the network; both ends hear of it, each in its own time.
    pub(super) fn break_wire(&mut self, wire: usize) {
        for side in [0, 1] {
            self.send_reset(End { wire, side });
        }
    }

    // --- details ---

    pub(super) fn send_later(&mut self, wire: usize, packet: Packet) {
        let mut at = self.now_ns + self.random.range(&self.options.latency_ns);
        if let Packet::Data { side, .. } = packet {
            let pipe: &mut Pipe = &mut self.wires[wire].pipes[side];
            pipe.last_arrival_ns = pipe.last_arrival_ns.max(at);
            at = pipe.last_arrival_ns;
        }
        self.queue.push(at, Event::Packet { wire, packet });
    }

    pub(super) fn send_reset(&mut self, to: End) {
        self.send_later(to.wire, Packet::Reset { side: to.side });
    }

    pub(super) fn expect_give_up(&mut self, wire: usize) {
        self.wires[wire].silences += 1;
        let event = Event::GiveUp { wire, silence: self.wires[wire].silences };
        let spread = self.random.below(self.options.give_up_ns / 8 + 1);
        self.queue.push(self.now_ns + self.options.give_up_ns + spread, event);
    }

    fn ends_of(&self, host: usize) -> Vec<(usize, usize)> {
        let attached = |&(wire, side): &(usize, usize)| {
            let socket: &Socket = &self.wires[wire].sockets[side];
            socket.host == host && socket.attached
        };
        (0..self.wires.len()).flat_map(|wire| [(wire, 0), (wire, 1)]).filter(attached).collect()
    }

    fn wires_between(&self, a: usize, b: usize) -> Vec<usize> {
        let between = |wire: &usize| {
            let hosts = self.wires[*wire].hosts();
            hosts == [a, b] || hosts == [b, a]
        };
        (0..self.wires.len()).filter(between).collect()
    }

    /// True if one of the two directions is cut.
    pub(super) fn is_cut(&self, wire: usize) -> bool {
        let [a, b] = self.wires[wire].hosts();
        !self.cuts.is_empty() && (self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a)))
    }

    /// True if the direction of this packet is cut.
    pub(super) fn is_cut_for(&self, wire: usize, packet: Packet) -> bool {
        let to = match packet {
            Packet::Open { .. } => 1,
            Packet::Opened | Packet::Refused => 0,
            Packet::Data { side, .. } | Packet::Room { side } | Packet::Reset { side } => side,
        };
        let hosts = self.wires[wire].hosts();
        !self.cuts.is_empty() && self.cuts.contains(&(hosts[1 - to], hosts[to]))
    }

    /// Traces a host's action on one of its ends.
    pub(super) fn note(&mut self, host: usize, what: &'static str, end: End, amount: u64) {
        let facts = [host as u64, end.wire as u64, end.side as u64, amount];
        let name = &self.machines[host].name;
        self.trace.note(self.now_ns, what, &facts, || format!("{name} wire {} {amount}", end.wire));
    }

    pub(super) fn fault(&mut self, what: &'static str, end: End) {
        let facts = [end.wire as u64, end.side as u64];
        self.trace
            .note(self.now_ns, what, &facts, || format!("wire {} side {}", end.wire, end.side));
    }
}
