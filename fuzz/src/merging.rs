//! The client's side of multigets as answers arrive. The input is steps: multigets begin, requests
//! are answered correctly, incorrectly or by a stranger, time passes, servers are asked over TCP.

use std::collections::HashMap;
use std::net::SocketAddr;

use shunt_multiget::client::{Client, ClientOptions, Event, Ticket};
use shunt_multiget::mode::Mode;
use shunt_multiget::place;
use shunt_wire::netmc::{Item, Op, ReplyWriter, Request, Status};

const SERVERS: usize = 3;
const MS: u64 = 1_000_000;
const DEADLINE_NS: u64 = 400 * MS;
/// Most looks at the clock until the client is idle; more than it has reason for.
const LOOKS_MAX: usize = 10_000;

/// A multiget in progress.
struct Asking {
    keys: Vec<Vec<u8>>,
    at_step: usize,
    at_ns: u64,
    is_over: bool,
}

/// The step at which a server reported a value, and the value, if the key had one.
type Said = (usize, Option<Vec<u8>>);

struct Scene {
    client: Client,
    now_ns: u64,
    step: usize,
    asking: Vec<Asking>,
    /// Requests in progress with their destinations.
    sent: Vec<(SocketAddr, Vec<u8>)>,
    fetches: Vec<(Ticket, Op, usize, Vec<u16>)>,
    /// Every valid report about a key: step and value.
    said: HashMap<Vec<u8>, Vec<Said>>,
}

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((seed, mut steps)) = data.split_first() else { return };
    let mut scene = Scene::new(*seed);
    while let Some(step) = byte(&mut steps) {
        scene.step += 1;
        match step % 6 {
            0 => scene.begin(&mut steps),
            1 => scene.reply(&mut steps),
            2 => scene.noise(&mut steps),
            3 => {
                scene.now_ns += u64::from(byte(&mut steps).unwrap_or(0)) * MS;
                scene.with(|client, now_ns, out| client.look(now_ns, out));
            }
            4 => scene.fetched(&mut steps),
            _ => scene.fetch_failed(&mut steps),
        }
    }
    scene.end();
}

fn byte(steps: &mut &[u8]) -> Option<u8> {
    let (first, rest) = steps.split_first()?;
    *steps = rest;
    Some(*first)
}

fn shim(server: usize) -> SocketAddr {
    ([192, 0, 2, 10 + server as u8], 9700).into()
}

/// A few keys, some of which fill datagrams and one fits none.
fn key(number: u8) -> Vec<u8> {
    let length = match number % 16 {
        0 => 1_500,
        1..=4 => 300,
        _ => 0,
    };
    let mut key = format!("key:{number}").into_bytes();
    key.resize(key.len().max(length), b'k');
    key
}

impl Scene {
    fn new(seed: u8) -> Self {
        let options = ClientOptions {
            shims: (0..SERVERS).map(shim).collect(),
            mode: [Mode::Cli, Mode::Coordinator, Mode::Tcp][usize::from(seed) % 3],
            deadline_ns: DEADLINE_NS,
            resend_ns: 10 * MS,
            // IDs that wrap around soon, or begin anywhere.
            seed: u64::from(u32::MAX - u32::from(seed)) | u64::from(seed) << 32,
        };
        Self {
            client: Client::new(options),
            now_ns: 1,
            step: 0,
            asking: Vec::new(),
            sent: Vec::new(),
            fetches: Vec::new(),
            said: HashMap::new(),
        }
    }

    /// Calls the client; its requests must be valid, and its results true.
    fn with(&mut self, call: impl FnOnce(&mut Client, u64, &mut dyn FnMut(SocketAddr, &[u8]))) {
        let sent = &mut self.sent;
        let sent_before = sent.len();
        call(&mut self.client, self.now_ns, &mut |to, data| sent.push((to, data.to_vec())));
        for (to, data) in &self.sent[sent_before..] {
            let request = Request::parse(data).expect("a request is sound");
            let servers: Vec<usize> = request.own_servers().map(usize::from).collect();
            assert!(servers.iter().any(|server| shim(*server) == *to));
            let places =
                request.own_keys().expect("so are its keys").map(|key| place::server(key, SERVERS));
            assert!(places.eq(servers));
        }
        while let Some(event) = self.client.event() {
            match event {
                Event::Done { user, values } => {
                    let asking = self.over(user);
                    let (keys, since) = (asking.keys.clone(), asking.at_step);
                    assert_eq!(values.iter().len(), keys.len());
                    for (key, value) in keys.iter().zip(values.iter()) {
                        let said = self.said.get(key).into_iter().flatten();
                        let is_true = said
                            .into_iter()
                            .any(|(at, said)| *at >= since && said.as_deref() == value);
                        assert!(is_true, "{} was never said to be {value:?}", key.escape_ascii());
                    }
                }
                Event::Failed { user, .. } => drop(self.over(user)),
                Event::Fetch { ticket, op, server, keys } => {
                    assert!(server < SERVERS && !keys.is_empty());
                    self.fetches.push((ticket, op, server, keys));
                }
            }
        }
    }

    fn over(&mut self, user: u64) -> &Asking {
        let asking = &mut self.asking[user as usize];
        assert!(!std::mem::replace(&mut asking.is_over, true), "over twice");
        asking
    }

    fn say(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.said.entry(key.to_vec()).or_default().push((self.step, value.map(<[u8]>::to_vec)));
    }

    fn begin(&mut self, steps: &mut &[u8]) {
        let count = usize::from(byte(steps).unwrap_or(0));
        let (first, stride) = (byte(steps).unwrap_or(0), byte(steps).unwrap_or(1));
        let op = if count == 1 && stride % 2 == 0 { Op::Get } else { Op::MultiGet };
        let keys: Vec<Vec<u8>> = (0..count)
            .map(|index| key(first.wrapping_add(stride.wrapping_mul(index as u8))))
            .collect();
        let user = self.asking.len() as u64;
        self.asking.push(Asking {
            keys: keys.clone(),
            at_step: self.step,
            at_ns: self.now_ns,
            is_over: false,
        });
        self.with(|client, now_ns, out| {
            let begun = client.begin(now_ns, user, op, keys.iter().map(Vec::as_slice), out);
            begun.expect("there is room");
        });
    }

    /// Answers a request: from the right address or another, wholly or in part, with its own ID or
    /// an older one's.
    fn reply(&mut self, steps: &mut &[u8]) {
        let (which, how, first) =
            (byte(steps).unwrap_or(0), byte(steps).unwrap_or(0), byte(steps).unwrap_or(0));
        if self.sent.is_empty() {
            return;
        }
        let (to, data) =
            self.sent[self.sent.len() - 1 - usize::from(which) % self.sent.len()].clone();
        let request = Request::parse(&data).expect("a request is sound");
        let keys: Vec<&[u8]> = request.own_keys().expect("so are its keys").collect();
        let from = if how & 1 == 0 { to } else { shim(usize::from(how >> 1) % (SERVERS + 1)) };
        let (first, mut reply) = (usize::from(first) % keys.len(), Vec::new());
        let id = if how & 2 == 0 { request.id } else { request.id.wrapping_sub(1) };
        let mut writer =
            ReplyWriter::begin(&mut reply, request.op, id, 0, request.startidx + first as u8);
        let mut said = Vec::new();
        for key in &keys[first..keys.len().min(first + 1 + usize::from(how >> 4))] {
            let status = match byte(steps).unwrap_or(0) % 8 {
                0..4 => Status::Hit,
                4..6 => Status::Miss,
                6 => Status::TooBig,
                _ => Status::AskOverTcp,
            };
            let value = self.step.to_string().into_bytes();
            let value: &[u8] = if status == Status::Hit { &value } else { &[] };
            writer.push(&Item { status, key, value });
            if from == to && matches!(status, Status::Hit | Status::Miss) {
                said.push((key.to_vec(), (status == Status::Hit).then(|| value.to_vec())));
            }
        }
        said.iter().for_each(|(key, value)| self.say(key, value.as_deref()));
        self.with(|client, now_ns, out| client.datagram(now_ns, from, &reply, out));
    }

    /// Sends a datagram from an unknown address.
    fn noise(&mut self, steps: &mut &[u8]) {
        let length = usize::from(byte(steps).unwrap_or(0)).min(steps.len());
        let (data, rest) = steps.split_at(length);
        *steps = rest;
        self.with(|client, now_ns, out| client.datagram(now_ns, shim(SERVERS), data, out));
    }

    fn fetched(&mut self, steps: &mut &[u8]) {
        let (which, how) = (byte(steps).unwrap_or(0), byte(steps).unwrap_or(0));
        if self.fetches.is_empty() {
            return;
        }
        let index = usize::from(which) % self.fetches.len();
        let (ticket, _, server, positions) = self.fetches.swap_remove(index);
        let value = self.step.to_string().into_bytes();
        let value = (how & 1 == 0).then_some(&value[..]);
        for position in positions {
            let Some(key) = self.client.key(ticket, position).map(<[u8]>::to_vec) else { continue };
            assert_eq!(place::server(&key, SERVERS), server);
            self.say(&key, value);
            self.with(|client, _, _| client.fetched(ticket, position, value));
        }
    }

    fn fetch_failed(&mut self, steps: &mut &[u8]) {
        let which = byte(steps).unwrap_or(0);
        if self.fetches.is_empty() {
            return;
        }
        let index = usize::from(which) % self.fetches.len();
        let (ticket, _, server, _) = self.fetches.swap_remove(index);
        self.with(|client, _, _| client.fetch_failed(ticket, server, "ERR refused"));
    }

    /// Without further answers, everything ends by its deadline, and nothing is kept.
    fn end(mut self) {
        for _ in 0..LOOKS_MAX {
            let Some(due_ns) = self.client.due_at_ns() else { break };
            self.now_ns = self.now_ns.max(due_ns);
            self.with(|client, now_ns, out| client.look(now_ns, out));
            let now_ns = self.now_ns;
            let is_late = |asking: &&Asking| !asking.is_over && asking.at_ns + DEADLINE_NS < now_ns;
            assert!(!self.asking.iter().any(|asking| is_late(&asking)), "after its deadline");
        }
        assert_eq!(self.client.due_at_ns(), None, "there is always more to do");
        assert!(self.asking.iter().all(|asking| asking.is_over), "a multiget was never over");
        assert_eq!((self.client.under_way(), self.client.groups()), (0, (0, 0)));
    }
}
