//! The world: hosts of any service types on one network, under one virtual clock and one seed.

use super::clock::Clock;
use super::host::{Host, Running};
use super::network::Network;
use super::options::Options;
use super::queue::Event;
use crate::io::Io;
use crate::options::LoopOptions;
use crate::service::{ConnId, Service};
use crate::session::PeerName;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Events at one instant that mean that services wake each other for ever.
const EVENTS_PER_INSTANT_MAX: u64 = 1_000_000;

/// Names a host of a world and the type of its service.
pub struct HostId<S> {
    index: usize,
    service: PhantomData<fn() -> S>,
}

impl<S> Clone for HostId<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for HostId<S> {}

impl<S> std::fmt::Debug for HostId<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostId({})", self.index)
    }
}

/// Bytes that the loop of a host holds for its connections, and timers.
#[derive(Copy, Clone, Default, Debug, Eq, PartialEq)]
pub struct Held {
    /// Received and not consumed by the service.
    pub unread: usize,
    /// Written by the service and not taken by the kernel.
    pub backlog: usize,
    /// The largest backlog of one connection.
    pub backlog_most: usize,
    /// Bytes in sent logs.
    pub retained: usize,
    /// Number of timers set.
    pub timers: usize,
}

/// A deterministic world. The same seed, options and calls give the same run.
///
/// Between events the test may inspect services, post mail, kill, freeze and cut;
/// [`run_for`](World::run_for) and [`run_until`](World::run_until) let time pass.
pub struct World {
    network: Network,
    hosts: Vec<Option<Box<dyn Host>>>,
    loop_options: Vec<LoopOptions>,
    instant_events: u64,
}

impl World {
    /// An empty world, one virtual second after its epoch.
    pub fn new(seed: u64, options: Options) -> World {
        World {
            network: Network::new(seed, options),
            hosts: Vec::new(),
            loop_options: Vec::new(),
            instant_events: 0,
        }
    }

    /// Adds a host that runs the service, at its own address. `name` is for traces.
    pub fn add<S: Service + 'static>(&mut self, name: &str, service: S) -> HostId<S> {
        self.add_with(name, LoopOptions::default(), service)
    }

    /// Same as [`add`](World::add), with settings for the host's loop.
    pub fn add_with<S: Service + 'static>(
        &mut self,
        name: &str,
        options: LoopOptions,
        service: S,
    ) -> HostId<S> {
        let number = self.hosts.len();
        let address =
            IpAddr::V4(Ipv4Addr::new(10, 0, (number / 250) as u8, (number % 250 + 1) as u8));
        let index = self.network.add_machine(name, address);
        self.hosts.push(Some(Box::new(Running::new(index, &options, service))));
        self.loop_options.push(options);
        self.network.poke(index);
        HostId { index, service: PhantomData }
    }

    /// Makes the host accept connections to this address, also after a restart. Several hosts may
    /// share an address. Returns the number that [`Accepted::listener`](crate::Accepted::listener)
    /// has for it.
    pub fn listen<S>(&mut self, host: HostId<S>, address: SocketAddr) -> u16 {
        let number =
            self.network.listeners.values().flatten().filter(|entry| entry.0 == host.index).count()
                as u16;
        self.network.listeners.entry(address).or_default().push((host.index, number));
        number
    }

    /// Stops the host from accepting connections to this address.
    pub fn stop_listening<S>(&mut self, host: HostId<S>, address: SocketAddr) {
        if let Some(entries) = self.network.listeners.get_mut(&address) {
            entries.retain(|entry| entry.0 != host.index);
        }
    }

    /// Has a host show a certificate with these names in sealed connections from now on.
    pub fn show_certificate<S>(&mut self, host: HostId<S>, names: Vec<PeerName>) {
        self.network.machines[host.index].peer_names = names;
    }

    // --- inspection ---

    /// The service of a host.
    ///
    /// # Panics
    /// If the host was killed.
    pub fn host<S: Service + 'static>(&self, host: HostId<S>) -> &S {
        &self.running(host).service
    }

    /// The loop of a host, for its counters, backlogs and connections.
    ///
    /// # Panics
    /// If the host was killed.
    pub fn io<S: Service + 'static>(&self, host: HostId<S>) -> &Io {
        &self.running(host).io
    }

    /// Runs a turn of the host that begins with this call.
    ///
    /// # Panics
    /// If the host was killed.
    pub fn with<S: Service + 'static, R>(
        &mut self,
        host: HostId<S>,
        call: impl FnOnce(&mut S, &mut Io) -> R,
    ) -> R {
        let running =
            self.hosts[host.index].as_mut().and_then(|running| running.as_any_mut().downcast_mut());
        let running: &mut Running<S> = running.expect("the host is dead");
        running
            .turn_with(&mut self.network, |running, _| call(&mut running.service, &mut running.io))
    }

    /// Posts mail to the host. Mail to a dead host is lost.
    pub fn post<S: Service + 'static>(&mut self, host: HostId<S>, mail: S::Mail) {
        let running =
            self.hosts[host.index].as_mut().and_then(|running| running.as_any_mut().downcast_mut());
        if let Some(running) = running {
            let running: &mut Running<S> = running;
            running.mail.push_back(mail);
            self.network.poke(host.index);
        }
    }

    /// Bytes that the host's loop holds for its connections at this moment, and timers.
    ///
    /// # Panics
    /// If the host was killed.
    pub fn held<S: Service + 'static>(&self, host: HostId<S>) -> Held {
        let mut held = Held { timers: self.io(host).timers.len(), ..Held::default() };
        for connection in &self.io(host).connections {
            held.unread += connection.unread();
            held.backlog += connection.backlog();
            held.backlog_most = held.backlog_most.max(connection.backlog());
            held.retained += connection.log.as_ref().map_or(0, |log| log.bytes());
        }
        held
    }

    /// True if the host runs: it was not killed and did not stop itself. A frozen host runs.
    pub fn is_running<S>(&self, host: HostId<S>) -> bool {
        self.network.machines[host.index].up
    }

    // --- faults by hand ---

    /// Kills the process: its kernel closes or resets its connections, and refuses connects to it.
    /// Returns the service, so that its "disk" can go into the next one; `None` if it was dead
    /// already.
    pub fn kill<S: Service + 'static>(&mut self, host: HostId<S>) -> Option<S> {
        self.end_host(host, false)
    }

    /// Cuts the power: like [`kill`](World::kill), but no peer hears of it, and connects are not
    /// answered.
    pub fn power_off<S: Service + 'static>(&mut self, host: HostId<S>) -> Option<S> {
        self.end_host(host, true)
    }

    /// Starts the host again with another service value. A host that still runs is killed first.
    pub fn restart<S: Service + 'static>(&mut self, host: HostId<S>, service: S) {
        self.kill(host);
        self.note("restart", host.index, 0);
        let machine = &mut self.network.machines[host.index];
        machine.up = true;
        machine.dark = false;
        let options = &self.loop_options[host.index];
        self.hosts[host.index] = Some(Box::new(Running::new(host.index, options, service)));
        self.network.poke(host.index);
    }

    /// Stops the process as SIGSTOP does: it neither reads nor writes nor accepts, its connections
    /// stay, and its kernel goes on taking bytes and connections until its buffers are full.
    pub fn freeze<S>(&mut self, host: HostId<S>) {
        self.note("freeze", host.index, 0);
        self.network.machines[host.index].frozen = true;
    }

    /// Stops the process in the middle of a turn: it has read its clock, goes on with that turn
    /// when it is thawed, and then finds the events that came since.
    pub fn freeze_in_turn<S>(&mut self, host: HostId<S>) {
        let machine = &mut self.network.machines[host.index];
        if machine.up && !machine.frozen {
            machine.turn_began_ns = Some(self.network.now_ns);
        }
        self.freeze(host);
    }

    /// Lets a frozen process go on.
    pub fn thaw<S>(&mut self, host: HostId<S>) {
        self.thaw_index(host.index);
    }

    /// Cuts the network between two hosts: packets wait, connects are not answered.
    pub fn cut<A, B>(&mut self, a: HostId<A>, b: HostId<B>) {
        self.note("cut", a.index, b.index);
        self.network.cut(a.index, b.index);
        self.network.cut(b.index, a.index);
    }

    /// Cuts one direction: packets from the first host to the second wait, answers of the second
    /// arrive.
    pub fn cut_one_way<A, B>(&mut self, from: HostId<A>, to: HostId<B>) {
        self.note("cut", from.index, to.index);
        self.network.cut(from.index, to.index);
    }

    /// Joins two hosts; the held packets arrive.
    pub fn join<A, B>(&mut self, a: HostId<A>, b: HostId<B>) {
        self.note("join", a.index, b.index);
        self.network.join(a.index, b.index);
    }

    /// Resets a connection of the host in the network; both ends will hear of it.
    pub fn reset<S>(&mut self, host: HostId<S>, conn: ConnId) {
        if let Some(end) = self.hosts[host.index].as_ref().and_then(|running| running.end_of(conn))
        {
            self.network.break_wire(end.wire);
        }
    }

    /// Makes a connection of the host half-open: nothing passes any more and no end hears of it.
    pub fn silence<S>(&mut self, host: HostId<S>, conn: ConnId) {
        if let Some(end) = self.hosts[host.index].as_ref().and_then(|running| running.end_of(conn))
        {
            self.network.silence(end.wire);
        }
    }

    /// Sets the clocks of a host. The one that never goes back must not.
    pub fn set_clock<S>(&mut self, host: HostId<S>, clock: Clock) {
        self.network.machines[host.index].clock = clock;
    }

    /// The clocks of a host.
    pub fn clock<S>(&self, host: HostId<S>) -> Clock {
        self.network.machines[host.index].clock
    }

    /// Sets the faults and delays from now on.
    pub fn set_options(&mut self, options: Options) {
        self.network.options = options;
    }

    /// The present faults and delays.
    pub fn options(&self) -> &Options {
        &self.network.options
    }

    /// Ends all faults: no new ones are drawn, all cuts are joined and all frozen hosts go on. Dead
    /// hosts stay dead, and half-open connections half-open until their ends give up.
    pub fn calm(&mut self) {
        let sealed = self.network.options.sealed;
        self.network.options = Options { sealed, ..Options::calm() };
        for (a, b) in self.network.cut_pairs() {
            self.note("join", a, b);
            self.network.join(a, b);
        }
        for index in 0..self.hosts.len() {
            self.thaw_index(index);
        }
    }

    // --- time ---

    /// Nanoseconds of virtual time.
    pub fn now_ns(&self) -> u64 {
        self.network.now_ns
    }

    /// Handles the next event if it is not later than `limit_ns`; returns whether there was one.
    pub fn step(&mut self, limit_ns: u64) -> bool {
        if self.network.queue.next_ns().is_none_or(|at_ns| at_ns > limit_ns) {
            return false;
        }
        let Some((at_ns, event)) = self.network.queue.pop() else {
            return false;
        };
        self.advance(at_ns);
        match event {
            Event::Turn { host, life } => {
                if self.network.takes_turn(host, life) {
                    self.running_turn(host, |running, network| running.turn(network));
                }
            }
            Event::Timer { host, life, for_ns } => {
                let machine = &self.network.machines[host];
                if machine.life == life && machine.up && !machine.frozen {
                    self.running_turn(host, |running, network| running.timer_due(network, for_ns));
                }
            }
            Event::Packet { wire, packet } => self.network.deliver(wire, packet),
            Event::GiveUp { wire, silence } => self.network.give_up(wire, silence),
        }
        true
    }

    /// Lets this much time pass.
    pub fn run_for(&mut self, duration_ns: u64) {
        let end_ns = self.network.now_ns + duration_ns;
        while self.step(end_ns) {}
        self.advance(end_ns);
    }

    /// Lets time pass until the condition holds, but no longer than this; returns whether it holds.
    /// The condition is checked after every event and may act upon the world.
    pub fn run_until(
        &mut self,
        max_ns: u64,
        mut condition: impl FnMut(&mut World) -> bool,
    ) -> bool {
        let end_ns = self.network.now_ns + max_ns;
        loop {
            if condition(self) {
                return true;
            }
            if !self.step(end_ns) {
                self.advance(end_ns);
                return condition(self);
            }
        }
    }

    /// A digest of all events so far.
    pub fn digest(&self) -> u64 {
        self.network.trace.digest()
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.network.trace.events()
    }

    fn advance(&mut self, at_ns: u64) {
        if at_ns > self.network.now_ns {
            self.network.now_ns = at_ns;
            self.instant_events = 0;
        }
        self.instant_events += 1;
        assert!(
            self.instant_events < EVENTS_PER_INSTANT_MAX,
            "the clock stands still: hosts wake each other for ever"
        );
    }

    fn running_turn(&mut self, host: usize, turn: impl FnOnce(&mut dyn Host, &mut Network)) {
        if let Some(running) = &mut self.hosts[host] {
            turn(running.as_mut(), &mut self.network);
        }
    }

    fn end_host<S: Service + 'static>(&mut self, host: HostId<S>, dark: bool) -> Option<S> {
        let running = self.hosts[host.index].take()?;
        self.note(if dark { "power off" } else { "kill" }, host.index, 0);
        self.network.host_gone(host.index, dark);
        let running: Running<S> = *running.into_any().downcast().ok()?;
        Some(running.service)
    }

    fn thaw_index(&mut self, index: usize) {
        if std::mem::replace(&mut self.network.machines[index].frozen, false) {
            self.note("thaw", index, 0);
            self.network.poke(index);
        }
    }

    fn running<S: Service + 'static>(&self, host: HostId<S>) -> &Running<S> {
        let running = self.hosts[host.index].as_ref().expect("the host is dead");
        running.as_any().downcast_ref().expect("the id carries the type of the service")
    }

    fn note(&mut self, what: &'static str, host: usize, other: usize) {
        let network = &mut self.network;
        let machines = &network.machines;
        let text = || match what {
            "cut" | "join" => format!("{} - {}", machines[host].name, machines[other].name),
            _ => machines[host].name.clone(),
        };
        network.trace.note(network.now_ns, what, &[host as u64, other as u64], text);
    }
}
