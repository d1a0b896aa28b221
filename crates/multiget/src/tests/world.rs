//! The clock, the network, and the events.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use shunt_reactor::sim::{MICROSECOND, MILLISECOND, Random, SECOND};
use shunt_wire::netmc::{Item, KEYS_MAX, Op, ReplyWriter, Request, Status, Trim};

use super::history::{History, value};
use super::hosts::{Server, State, Switch, address, coordinated, shim_address};
use crate::client::{Client, ClientOptions, Event, Failure, Ticket, Weakened};
use crate::limits::{SERVERS_MAX, WINDOW_GROUPS};
use crate::mode::Mode;
use crate::place;
use crate::shim::{Asked, Coordinator};

const DEADLINE_NS: u64 = 2 * SECOND;
const KEYS: u64 = 300;
/// Keys including those that never have a value.
const KEYS_ASKED: u64 = 1_500;
const MULTIGETS: u64 = 30;

/// Kind of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Clients split; all faults.
    Client,
    /// A shim splits and merges; all faults.
    Coordinator,
    /// The switch splits; all faults.
    Network,
    /// No faults.
    Quiet,
    /// Servers disappear completely, and no other answers for them.
    ServersGone,
}

#[derive(Debug)]
enum Happens {
    Arrives {
        to: SocketAddr,
        from: SocketAddr,
        data: Vec<u8>,
    },
    Answers {
        server: usize,
        asked: Asked,
    },
    TcpAsks {
        client: usize,
        ticket: Ticket,
        server: usize,
        keys: Vec<(u16, Vec<u8>)>,
    },
    TcpAnswers {
        client: usize,
        ticket: Ticket,
        server: usize,
        values: Option<Vec<(u16, Option<Vec<u8>>)>>,
    },
    Begins {
        client: usize,
    },
    Writes,
    Fault,
    Forges,
}

/// A multiget under way, or over.
#[derive(Debug)]
struct Asking {
    keys: Vec<Vec<u8>>,
    at_ns: u64,
    is_over: bool,
}

/// Counts of the faults that occurred.
#[derive(Debug, Default)]
struct Happened {
    lost: u64,
    doubled: u64,
    held_up: u64,
    forged: u64,
    faults: u64,
    coordinated: u64,
}

pub(super) struct World {
    random: Random,
    kind: Kind,
    now_ns: u64,
    queue: BTreeMap<(u64, u64), Happens>,
    sequence: u64,
    clients: Vec<Client>,
    asking: Vec<Vec<Asking>>,
    servers: Vec<Server>,
    switch: Switch,
    history: History,
    version: u64,
    loss: f64,
    doubling: f64,
    happened: Happened,
}

fn key(number: u64) -> Vec<u8> {
    // Some keys are long, so that sixteen do not fit a request, and a few fit none.
    let length = if number.is_multiple_of(50) {
        1_500
    } else if number.is_multiple_of(7) {
        250
    } else {
        0
    };
    let mut key = format!("key:{number}:").into_bytes();
    key.resize(key.len().max(length), b'k');
    key
}

fn client_address(client: usize) -> SocketAddr {
    address(200 + client as u8, 4000)
}

impl World {
    pub(super) fn new(seed: u64, kind: Kind, weakened: Weakened) -> Self {
        let mut random = Random::new(seed);
        let servers = 1 + random.index(6);
        let shims: Vec<SocketAddr> = (0..servers).map(shim_address).collect();
        let modes = [Mode::Cli, Mode::Coordinator, Mode::Netmc { switch: Switch::address() }];
        let mode = match kind {
            Kind::Client => modes[0],
            Kind::Coordinator => modes[1],
            Kind::Network => modes[2],
            Kind::Quiet | Kind::ServersGone => modes[random.index(modes.len())],
        };
        // Some shims need not coordinate.
        let coordinates = |random: &mut Random| mode == Mode::Coordinator && random.chance(0.8);
        let clients = (0..2).map(|_| {
            // Ids that wrap around soon, or random ones.
            let seed = if random.chance(0.5) { u64::from(u32::MAX - 5) } else { random.next() };
            let options = ClientOptions {
                shims: shims.clone(),
                mode,
                deadline_ns: DEADLINE_NS,
                resend_ns: 20 * MILLISECOND,
                seed,
            };
            let mut client = Client::new(options);
            client.weakened = weakened;
            client
        });
        let clients: Vec<Client> = clients.collect();
        let is_quiet = kind == Kind::Quiet;
        let trim = if random.chance(0.5) { Trim::Own } else { Trim::Full };
        let mut world = Self {
            now_ns: SECOND,
            queue: BTreeMap::new(),
            sequence: 0,
            asking: vec![Vec::new(), Vec::new()],
            servers: (0..servers)
                .map(|index| {
                    Server::new(index, servers, is_quiet || coordinates(&mut random), random.next())
                })
                .collect(),
            switch: Switch { table: shims, is_up: true, trim },
            history: History::default(),
            version: 0,
            loss: if is_quiet { 0.0 } else { [0.0, 0.01, 0.05, 0.2][random.index(4)] },
            doubling: if is_quiet { 0.0 } else { [0.0, 0.02, 0.2][random.index(3)] },
            happened: Happened::default(),
            clients,
            kind,
            random,
        };
        world.fill();
        world
    }

    fn fill(&mut self) {
        for number in 0..KEYS {
            if self.random.chance(0.9) {
                self.version += 1;
                self.history.write(self.now_ns, &key(number), Some(self.version));
            }
        }
        for client in 0..self.clients.len() {
            for _ in 0..MULTIGETS {
                let after_ns = self.random.below(SECOND);
                self.after(after_ns, Happens::Begins { client });
            }
        }
        for _ in 0..150 {
            let after_ns = self.random.below(2 * SECOND);
            self.after(after_ns, Happens::Writes);
        }
        if self.kind != Kind::Quiet {
            for _ in 0..6 {
                let after_ns = self.random.below(SECOND);
                self.after(after_ns, Happens::Fault);
            }
            for _ in 0..60 {
                let after_ns = self.random.below(SECOND);
                self.after(after_ns, Happens::Forges);
            }
        }
    }

    fn after(&mut self, after_ns: u64, happens: Happens) {
        self.sequence += 1;
        self.queue.insert((self.now_ns + after_ns, self.sequence), happens);
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) -> Result<(), String> {
        loop {
            let next_ns = self.queue.first_key_value().map(|((at_ns, _), _)| *at_ns);
            let due_ns = self.clients.iter().filter_map(Client::due_at_ns);
            let due_ns = due_ns.chain(self.servers.iter().filter_map(Server::due_at_ns)).min();
            let Some(at_ns) = next_ns.into_iter().chain(due_ns).min() else { break };
            self.now_ns = self.now_ns.max(at_ns);
            if next_ns == Some(at_ns) {
                let (_, happens) = self.queue.pop_first().ok_or("nothing is left")?;
                self.happens(happens)?;
            } else {
                for client in 0..self.clients.len() {
                    self.with(client, |client, now_ns, out| client.look(now_ns, out))?;
                }
                for server in 0..self.servers.len() {
                    self.with_coordinator(server, |coordinator, now_ns, out| {
                        coordinator.look(now_ns, out)
                    });
                }
            }
        }
        self.is_at_rest()
    }

    fn is_at_rest(&self) -> Result<(), String> {
        for (client, asking) in self.clients.iter().zip(&self.asking) {
            if let Some(open) = asking.iter().position(|asking| !asking.is_over) {
                return Err(format!("multiget {open} was never over"));
            }
            let unanswered =
                (0..SERVERS_MAX).map(|server| client.multigets_at(server)).sum::<usize>();
            if (client.under_way() + unanswered, client.groups(), client.ids()) != (0, (0, 0), 0) {
                return Err(format!("left over: {:?}, {} IDs", client.groups(), client.ids()));
            }
            if let Some(server) = self.servers.iter().find(|server| server.under_way() > 0) {
                return Err(format!("left over with a coordinator: {}", server.under_way()));
            }
            let counts = client.counts();
            let asked_twice = counts.repeated
                + counts.fell_back
                + counts.duplicates
                + counts.foreign
                + counts.late;
            if self.kind == Kind::Quiet && asked_twice > 0 {
                return Err(format!("without a fault: {counts:?}"));
            }
        }
        Ok(())
    }

    /// Calls a client, and carries out its datagrams and events.
    fn with(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut Client, u64, &mut dyn FnMut(SocketAddr, &[u8])),
    ) -> Result<(), String> {
        let mut sent = Vec::new();
        let now_ns = self.now_ns;
        call(&mut self.clients[index], now_ns, &mut |to, data| sent.push((to, data.to_vec())));
        for (to, data) in sent {
            let request =
                Request::parse(&data).map_err(|error| format!("a client has sent {error}"))?;
            if self.clients[index].asks_for_what_it_has(request.id) {
                return Err("a key is asked for that has an answer".to_owned());
            }
            self.send(client_address(index), to, data);
        }
        let (in_flight, _) = self.clients[index].groups();
        if in_flight > WINDOW_GROUPS.max(KEYS_MAX) {
            return Err(format!("{in_flight} groups are under way"));
        }
        while let Some(event) = self.clients[index].event() {
            self.event(index, event)?;
        }
        Ok(())
    }

    /// Calls a server's coordinator, and sends its datagrams and answers.
    fn with_coordinator(
        &mut self,
        server: usize,
        call: impl FnOnce(&mut Coordinator, u64, &mut dyn FnMut(SocketAddr, &[u8])),
    ) {
        let now_ns = self.now_ns;
        let Some(coordinator) = self.servers[server].coordinator() else { return };
        let mut sent = Vec::new();
        call(coordinator, now_ns, &mut |to, data| sent.push((to, data.to_vec())));
        while let Some((asked, values)) = coordinator.answered() {
            self.happened.coordinated += 1;
            sent.extend(coordinated(&asked, &values).into_iter().map(|reply| (asked.from, reply)));
        }
        for (to, data) in sent {
            self.send(shim_address(server), to, data);
        }
    }

    fn event(&mut self, client: usize, event: Event) -> Result<(), String> {
        match event {
            Event::Done { user, values } => {
                let now_ns = self.now_ns;
                let asking = self.over(client, user)?;
                let (keys, from_ns) = (asking.keys.clone(), asking.at_ns);
                if values.iter().len() != keys.len() {
                    return Err(format!("{} values for {} keys", values.iter().len(), keys.len()));
                }
                for (key, value) in keys.iter().zip(values.iter()) {
                    if !self.history.was_current(key, value, from_ns, now_ns) {
                        let text = value.map(String::from_utf8_lossy);
                        return Err(format!(
                            "{} was never {text:?} then",
                            String::from_utf8_lossy(key)
                        ));
                    }
                }
            }
            Event::Failed { user, failure } => {
                let kind = self.kind;
                self.over(client, user)?;
                let is_a_server = match failure {
                    Failure::Deadline { server } | Failure::Server { server, .. } => {
                        server < self.servers.len()
                    }
                    Failure::NotSent | Failure::TooLarge => true,
                };
                if kind != Kind::ServersGone || !is_a_server {
                    return Err(format!("failed where every server was there: {failure:?}"));
                }
            }
            Event::Fetch { ticket, server, keys, .. } => {
                let bytes = |position: &u16| {
                    self.clients[client].key(ticket, *position).map(<[u8]>::to_vec)
                };
                let keys: Option<Vec<_>> =
                    keys.iter().map(|position| Some((*position, bytes(position)?))).collect();
                let keys = keys.unwrap_or_default();
                let after_ns = self.random.range(&(50 * MICROSECOND..5 * MILLISECOND));
                self.after(after_ns, Happens::TcpAsks { client, ticket, server, keys });
            }
        }
        Ok(())
    }

    fn over(&mut self, client: usize, user: u64) -> Result<&Asking, String> {
        let asking = self.asking[client].get_mut(user as usize).ok_or("an outcome for nobody")?;
        if std::mem::replace(&mut asking.is_over, true) {
            return Err(format!("multiget {user} was over twice"));
        }
        if self.now_ns > asking.at_ns + DEADLINE_NS {
            return Err(format!("multiget {user} took {} ns", self.now_ns - asking.at_ns));
        }
        Ok(asking)
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, data: Vec<u8>) {
        if self.random.chance(self.loss) {
            self.happened.lost += 1;
            return;
        }
        let copies = if self.random.chance(self.doubling) { 2 } else { 1 };
        self.happened.doubled += copies - 1;
        for _ in 0..copies {
            let mut after_ns = self.random.range(&(20 * MICROSECOND..2 * MILLISECOND));
            if self.kind != Kind::Quiet && self.random.chance(0.02) {
                // Later than any multiget may be under way.
                after_ns = self.random.below(3 * SECOND);
                self.happened.held_up += 1;
            }
            self.after(after_ns, Happens::Arrives { to, from, data: data.clone() });
        }
    }

    fn happens(&mut self, happens: Happens) -> Result<(), String> {
        match happens {
            Happens::Arrives { to, from, data } => return self.arrives(to, from, &data),
            Happens::Answers { server, asked } => self.answers(server, &asked),
            Happens::TcpAsks { client, ticket, server, keys } => {
                let values = self.servers[server].has_store.then(|| {
                    let value =
                        |key: &[u8]| self.history.now(key).map(|version| value(key, version));
                    keys.iter().map(|(position, key)| (*position, value(key))).collect()
                });
                // An absent host does not answer.
                if values.is_some() || self.random.chance(0.5) {
                    let after_ns = self.random.range(&(50 * MICROSECOND..5 * MILLISECOND));
                    self.after(after_ns, Happens::TcpAnswers { client, ticket, server, values });
                }
            }
            Happens::TcpAnswers { client, ticket, server, values } => {
                return self.with(client, |client, _, _| match values {
                    Some(values) => values.iter().for_each(|(position, value)| {
                        client.fetched(ticket, *position, value.as_deref());
                    }),
                    None => client.fetch_failed(ticket, server, "ERR refused"),
                });
            }
            Happens::Begins { client } => return self.begin(client),
            Happens::Writes => {
                let key = key(self.random.below(KEYS));
                let is_there = self.servers[place::server(&key, self.servers.len())].has_store;
                self.version += 1;
                let version = self.random.chance(0.8).then_some(self.version);
                if is_there {
                    self.history.write(self.now_ns, &key, version);
                }
            }
            Happens::Fault => self.fault(),
            Happens::Forges => self.forge(),
        }
        Ok(())
    }

    fn arrives(&mut self, to: SocketAddr, from: SocketAddr, data: &[u8]) -> Result<(), String> {
        if let Some(client) = (0..self.clients.len()).find(|client| client_address(*client) == to) {
            return self
                .with(client, |client, now_ns, out| client.datagram(now_ns, from, data, out));
        }
        if to == Switch::address() {
            // The source stays the client's: servers answer it directly.
            for (server, part) in self.switch.parts(data) {
                self.send(from, server, part);
            }
            return Ok(());
        }
        let server = (0..self.servers.len()).find(|server| shim_address(*server) == to);
        let server = server.ok_or_else(|| format!("a datagram to {to}"))?;
        if self.servers[server].coordinator().is_some() && Op::is_reply(data) {
            self.with_coordinator(server, |coordinator, now_ns, out| {
                coordinator.datagram(now_ns, from, data, out)
            });
            return Ok(());
        }
        if let Some(asked) = self.servers[server].datagram(self.now_ns, from, data) {
            if asked.is_whole() {
                let mut refused = None;
                self.with_coordinator(server, |coordinator, now_ns, out| {
                    refused = coordinator.begin(now_ns, asked, out).err();
                });
                return refused.map_or(Ok(()), |refused| Err(refused.to_string()));
            }
            let after_ns = self.random.range(&(10 * MICROSECOND..MILLISECOND));
            self.after(after_ns, Happens::Answers { server, asked });
        }
        Ok(())
    }

    fn answers(&mut self, server: usize, asked: &Asked) {
        let count = self.servers.len();
        let value = |key: &[u8]| {
            // This server lacks other servers' keys.
            let is_here = place::server(key, count) == server;
            self.history.now(key).filter(|_| is_here).map(|version| value(key, version))
        };
        let values: Vec<Option<Vec<u8>>> = asked.keys().map(value).collect();
        for reply in self.servers[server].answers(asked, &values) {
            self.send(shim_address(server), asked.from, reply);
        }
    }

    fn begin(&mut self, client: usize) -> Result<(), String> {
        let user = self.asking[client].len() as u64;
        // Heavy-tailed sizes; some fill the window.
        let count = match self.random.below(20) {
            0 => 20 + self.random.below(1_500),
            1..=4 => 20 + self.random.below(60),
            _ => 1 + self.random.below(16),
        };
        let below = if count > 100 { KEYS_ASKED } else { KEYS };
        let keys: Vec<Vec<u8>> = (0..count).map(|_| key(self.random.below(below))).collect();
        self.asking[client].push(Asking { keys: keys.clone(), at_ns: self.now_ns, is_over: false });
        let mut refused = None;
        self.with(client, |client, now_ns, out| {
            let keys = keys.iter().map(Vec::as_slice);
            refused = client.begin(now_ns, user, Op::MultiGet, keys, out).err();
        })?;
        refused.map_or(Ok(()), |refused| Err(refused.to_string()))
    }

    fn fault(&mut self) {
        self.happened.faults += 1;
        let (victim, other) =
            (self.random.index(self.servers.len()), self.random.index(self.servers.len()));
        if self.kind == Kind::ServersGone {
            self.servers[victim].has_store = self.random.chance(0.3);
            match self.servers[victim].has_store {
                true => self.servers[victim].state = State::Up,
                false => self.servers[victim].kill(),
            }
            return;
        }
        match self.random.below(6) {
            0 => self.servers[victim].kill(),
            1 => self.servers[victim].state = State::Paused,
            2 => self.switch.is_up = !self.switch.is_up,
            3 => self.switch.table[victim] = shim_address(other),
            4 => self.switch.table = (0..self.servers.len()).map(shim_address).collect(),
            _ => {
                self.servers[victim].state = State::Up;
                for (from, data) in std::mem::take(&mut self.servers[victim].queue) {
                    self.after(0, Happens::Arrives { to: shim_address(victim), from, data });
                }
            }
        }
    }

    /// Forges a reply whose sender guesses an id and a server's address, but not the keys; or knows
    /// all but cannot use that address.
    fn forge(&mut self) {
        let client = self.random.index(self.clients.len());
        let Some(id) = self.clients[client].any_id() else { return };
        self.happened.forged += 1;
        let (mut data, known) = (Vec::new(), key(self.random.below(KEYS)));
        let knows_keys = self.random.chance(0.5);
        let mut writer = ReplyWriter::begin(&mut data, Op::MultiGet, id, 0, 0);
        let key: &[u8] = if knows_keys { &known } else { b"another" };
        writer.push(&Item { status: Status::Hit, key, value: b"forged" });
        let server = shim_address(self.random.index(self.servers.len()));
        let from = if knows_keys { address(99, 9700) } else { server };
        self.after(0, Happens::Arrives { to: client_address(client), from, data });
    }

    /// Counts of each kind of fault and reaction.
    pub(super) fn happened(&self) -> [u64; 11] {
        let Happened { lost, doubled, held_up, forged, faults, coordinated } = self.happened;
        let sum = |count: fn(&crate::client::Counts) -> u64| {
            self.clients.iter().map(|client| count(&client.counts())).sum()
        };
        let counts = [sum(|c| c.fell_back), sum(|c| c.duplicates), sum(|c| c.late)];
        let [fell_back, duplicates, late] = counts;
        let (uncoordinated, unswitched) = (sum(|c| c.uncoordinated), sum(|c| c.unswitched));
        [
            lost,
            doubled,
            held_up,
            forged,
            faults,
            fell_back,
            duplicates,
            late,
            coordinated,
            uncoordinated,
            unswitched,
        ]
    }
}
