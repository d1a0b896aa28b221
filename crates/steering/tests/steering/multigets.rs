//! Multigets that are split in the network: for any datagram the parts are those of the model, or
//! none.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use shunt_reactor::sim::Random;
use shunt_steering::{
    Error, Parts, Rate, Role, Shim, Sources, Split, Splitter, clean, load_splitter,
};
use shunt_wire::netmc::{
    CLO_SPLIT, DATAGRAM_BYTES_MAX, Group, HEADER_BYTES, KEYS_MAX, Op, Trim, encode_request,
    key_bytes, request_bytes, split,
};

use super::network::{Network, mac_of, run, unless_skipped, until};

const SERVERS: u8 = 8;
const PORT: u16 = 9700;
/// Datagrams over all ways together, and the number of ways.
const DATAGRAMS: usize = 100_000;
const WAYS: usize = 8;
/// Datagrams sent before their results are checked: as many as all buffers hold.
const BATCH: usize = 24;
const WAIT: Duration = Duration::from_secs(180);
/// Id of requests that mark the end of a batch; other requests stay in the lower half.
const MARK: u32 = u32::MAX;

/// A role, addresses and limits.
#[derive(Clone, Copy, Debug)]
struct Way {
    role: Role,
    parts: Parts,
    /// Addresses of the sender, of the service, and of the servers.
    client: IpAddr,
    vip: SocketAddr,
    servers: IpAddr,
    /// An address in the allowed network.
    allowed: IpAddr,
    rate: Rate,
}

impl Way {
    fn new(role: Role, parts: Parts, network: &str) -> Self {
        let address = |last: u8| format!("{network}{last}").parse().expect("an address");
        Self {
            role,
            parts,
            client: address(11),
            vip: SocketAddr::new(address(100), PORT),
            servers: address(31),
            allowed: address(0),
            // A rate that none of these tests reaches.
            rate: Rate::new(1_000_000_000),
        }
    }

    fn host(&self) -> &'static str {
        if self.role == Role::MultigetClient { "c" } else { "d" }
    }
}

/// A client and servers with a splitting program between them.
struct Splitting<'n> {
    network: &'n Network,
    way: Way,
    pins: PathBuf,
    splitter: Splitter,
    client: UdpSocket,
    servers: Vec<UdpSocket>,
    marks: u64,
}

impl Drop for Splitting<'_> {
    fn drop(&mut self) {
        let _ = clean(&self.pins);
    }
}

impl<'n> Splitting<'n> {
    /// `None`, with the reason on standard output, if the program cannot be loaded.
    fn new(network: &'n Network, way: Way) -> Option<Self> {
        let pins = network.pins(way.host());
        let shims: Vec<Shim> = (0..u16::from(SERVERS))
            .map(|number| Shim {
                address: SocketAddr::new(way.servers, PORT + number),
                mac: mac_of(31).parse().expect("an address"),
                interface: 0,
            })
            .collect();
        let loaded = network.on(way.host(), || {
            let allow = [(way.allowed, if way.vip.is_ipv4() { 24 } else { 64 })];
            let sources = Sources { allow: &allow, rate: way.rate };
            load_splitter("eth0", way.role, &[way.vip], &shims, way.parts, sources, &pins)
                .and_then(|()| Splitter::open(&pins))
        });
        let splitter = unless_skipped(loaded)?;
        assert_eq!(splitter.shims(), (0..).zip(shims.iter().copied()).collect::<Vec<_>>());
        assert_eq!(splitter.rate(), way.rate);
        let servers = network.on("b", || {
            let sockets = shims.iter().map(|shim| UdpSocket::bind(shim.address).expect("bound"));
            sockets
                .inspect(|socket| socket.set_read_timeout(Some(WAIT)).expect("an option"))
                .collect()
        });
        let client = network.on("c", || {
            let socket = UdpSocket::bind((way.client, 0)).expect("bound");
            socket.connect(way.vip).map(|()| socket).expect("a way")
        });
        Some(Self { network, way, pins, splitter, client, servers, marks: 0 })
    }

    fn trim(&self) -> Trim {
        if self.way.parts == Parts::Trimmed { Trim::Own } else { Trim::Full }
    }

    /// Sends a datagram, with a finished checksum or one left to the network card.
    fn send(&self, data: &[u8], has_sum: bool) {
        let sent = match data.split_last().filter(|(_, rest)| has_sum && !rest.is_empty()) {
            Some((last, rest)) => {
                // The kernel sums a datagram that is sent in pieces.
                rustix::net::send(&self.client, rest, SendFlags::MORE).expect("sent");
                self.client.send(&[*last])
            }
            None => self.client.send(data),
        };
        sent.expect("sent");
    }

    /// Datagrams that have come for each server since the last call, sorted.
    fn received(&mut self) -> BTreeMap<u8, Vec<Vec<u8>>> {
        self.marks += 1;
        let groups: Vec<Group> = (0..SERVERS).map(|server| Group { server, keys: 1 }).collect();
        let keys: Vec<Vec<u8>> = (0..SERVERS)
            .map(|server| [&[server][..], &self.marks.to_be_bytes()].concat())
            .collect();
        let mut mark = Vec::new();
        encode_request(&mut mark, Op::MultiGet, MARK, &groups, keys.iter().map(Vec::as_slice));
        self.send(&mark, true);
        let from = self.client.local_addr().expect("an address");
        let (mut found, mut buffer) = (BTreeMap::<u8, Vec<Vec<u8>>>::new(), Vec::new());
        split(&mark, self.trim(), &mut buffer, |server, last| {
            let mut data = [0; 4096];
            loop {
                let (length, sender) =
                    self.servers[usize::from(server)].recv_from(&mut data).expect("a part in time");
                assert_eq!(sender, from, "who asks is who asked");
                if &data[..length] == last {
                    break;
                }
                found.entry(server).or_default().push(data[..length].to_vec());
            }
        })
        .expect("it is sound");
        found.values_mut().for_each(|parts| parts.sort());
        found
    }

    /// Has datagrams split, and compares the results with the model.
    fn compare(&mut self, seed: u64, datagrams: usize) {
        let mut random = Random::new(seed);
        let mut reasons = BTreeMap::<&str, u64>::new();
        let before: Vec<u64> =
            Split::ALL.iter().map(|(count, _)| self.splitter.count(*count)).collect();
        for _ in 0..datagrams / BATCH {
            let mut expected = BTreeMap::<u8, Vec<Vec<u8>>>::new();
            let mut sent = Vec::new();
            for _ in 0..BATCH {
                let data = datagram(&mut random);
                self.send(&data, random.chance(0.5));
                match modelled(&data, self.trim()) {
                    Ok(parts) => {
                        *reasons.entry("split").or_default() += 1;
                        *reasons.entry("parts").or_default() += parts.len() as u64;
                        parts.into_iter().for_each(|(server, part)| {
                            expected.entry(server).or_default().push(part)
                        });
                    }
                    Err(reason) => *reasons.entry(reason).or_default() += 1,
                }
                sent.push(data);
            }
            expected.values_mut().for_each(|parts| parts.sort());
            let found = self.received();
            assert!(
                found == expected,
                "{:?}\nsent {sent:02x?}\nfound {found:02x?}\nexpected {expected:02x?}",
                self.way
            );
        }
        let marks = (datagrams / BATCH) as u64;
        *reasons.entry("split").or_default() += marks;
        *reasons.entry("parts").or_default() += marks * u64::from(SERVERS);
        for ((count, name), before) in Split::ALL.iter().zip(before) {
            let expected = reasons.remove(name).unwrap_or(0);
            assert_eq!(self.splitter.count(*count) - before, expected, "{name}, {:?}", self.way);
            // A low count would mean that the case is not exercised.
            let is_tried = datagrams < 10_000
                || matches!(*name, "lost" | "packet" | "source" | "rate")
                || expected > 20;
            assert!(is_tried, "{name}: {expected}");
        }
        assert!(reasons.is_empty(), "{reasons:?}");
    }
}

/// The model's parts of a datagram, or its reason for none.
fn modelled(data: &[u8], trim: Trim) -> Result<Vec<(u8, Vec<u8>)>, &'static str> {
    let mut parts = Vec::new();
    let outcome =
        split(data, trim, &mut Vec::new(), |server, part| parts.push((server, part.to_vec())));
    match outcome {
        Ok(()) if parts.iter().any(|(server, _)| *server >= SERVERS) => Err("unknown"),
        Ok(()) => Ok(parts),
        // For a datagram that was split before, the program gives no other reason.
        Err(wrong) => Err(if is_part(data) { "clo" } else { wrong.name() }),
    }
}

/// True if the first header fields are valid and say that the datagram was split or trimmed.
fn is_part(data: &[u8]) -> bool {
    let Some(header) = data.get(..HEADER_BYTES).filter(|_| data.len() <= DATAGRAM_BYTES_MAX) else {
        return false;
    };
    let (servers, numkey) = (usize::from(header[11]), usize::from(header[6]));
    let is_op = header[0] == 0x11 || header[0] == 0x12;
    let has_keys = (1..=KEYS_MAX).contains(&numkey) && (header[0] == 0x11 || numkey == 1);
    is_op
        && (1..=KEYS_MAX).contains(&servers)
        && data.len() >= HEADER_BYTES + 3 * servers
        && has_keys
        && header[10] != 0
}

/// A request, often slightly damaged.
fn datagram(random: &mut Random) -> Vec<u8> {
    let mut data = request(random);
    let header = HEADER_BYTES + 3 * usize::from(data[11]);
    match random.below(20) {
        0 => data.truncate(random.index(data.len())),
        1 => data.truncate(random.index(HEADER_BYTES + 1)),
        2 => data.extend(vec![7; 1 + random.index(30)]),
        3 => data.resize(DATAGRAM_BYTES_MAX + 1, 0),
        4 => data[0] = random.next() as u8,
        5 => data[6] = random.below(20) as u8,
        6 => data[7 + random.index(2)] = random.next() as u8,
        7 => data[10] = random.below(5) as u8,
        8 => data[11] = random.below(20) as u8,
        9 => data[5 + 4 * random.index(2)] = random.below(3) as u8,
        10 => data[HEADER_BYTES + random.index(header - HEADER_BYTES)] = random.next() as u8,
        11 if data[11] > 1 => data[HEADER_BYTES] = data[HEADER_BYTES + 1],
        12 => {
            let (length, start) = (data.len(), HEADER_BYTES);
            random.fill(&mut data[start..length]);
        }
        13 => {
            for _ in 0..3 {
                data[random.index(header)] = random.next() as u8;
            }
        }
        _ => {}
    }
    // The id must not be a mark.
    if let Some(first) = data.get_mut(1) {
        *first &= 0x7f;
    }
    data
}

fn request(random: &mut Random) -> Vec<u8> {
    let mut numbers: Vec<u8> = (0..SERVERS).collect();
    random.shuffle(&mut numbers);
    if random.chance(0.02) {
        numbers[0] = SERVERS + random.below(200) as u8;
    }
    let op = if random.chance(0.1) { Op::Get } else { Op::MultiGet };
    let groups_max = if op == Op::Get { 1 } else { 1 + random.index(numbers.len()) };
    let (mut groups, mut keys, mut bytes) = (Vec::<Group>::new(), Vec::<Vec<u8>>::new(), 0);
    for server in &numbers[..groups_max] {
        let mut group = Group { server: *server, keys: 0 };
        let wanted = if op == Op::Get { 1 } else { 1 + random.index(6) };
        for _ in 0..wanted {
            let longest = [0, 4, 30, 250, 1024][random.index(5)];
            let mut key = vec![0; random.index(longest + 1)];
            random.fill(&mut key);
            let is_new = !keys.contains(&key);
            if is_new
                && keys.len() < KEYS_MAX
                && request_bytes(groups.len() + 1, bytes + key_bytes(&key)) <= DATAGRAM_BYTES_MAX
            {
                bytes += key_bytes(&key);
                keys.push(key);
                group.keys += 1;
            }
        }
        if group.keys > 0 {
            groups.push(group);
        }
    }
    let mut data = Vec::new();
    encode_request(
        &mut data,
        op,
        random.next() as u32 >> 1,
        &groups,
        keys.iter().map(Vec::as_slice),
    );
    data
}

/// Hosts whose checksums, if left to the network card, are computed before the last link and
/// verified behind it.
fn network(test: &str) -> Option<Network> {
    let network = Network::new(test)?;
    if let Err(why) = network.on("sw", || run("ethtool -K p-b tx off >/dev/null")) {
        println!("skipped: {why}: scripts/prerequisites net");
        return None;
    }
    // A large MTU lets an oversized datagram pass in one packet.
    for (host, interfaces) in [
        ("sw", &["p-c", "p-d", "p-b", "br0"][..]),
        ("c", &["eth0"]),
        ("d", &["eth0"]),
        ("b", &["eth0"]),
    ] {
        for interface in interfaces {
            network
                .on(host, || run(&format!("ip link set {interface} mtu 2000")))
                .expect("an interface");
        }
    }
    Some(network)
}

#[test]
fn the_parts_of_a_hundred_thousand_datagrams_are_those_of_the_model() {
    let Some(network) = network("model") else { return };
    let mut seed = 0;
    for role in [Role::MultigetClient, Role::MultigetGateway] {
        for parts in [Parts::Trimmed, Parts::Full] {
            for addresses in ["10.98.0.", "fd00:98::"] {
                let Some(mut splitting) =
                    Splitting::new(&network, Way::new(role, parts, addresses))
                else {
                    return;
                };
                seed += 1;
                splitting.compare(seed, DATAGRAMS / WAYS);
            }
        }
    }
    assert_eq!(seed, WAYS as u64);
}

/// Sends a datagram with exactly this header.
fn send_raw(splitting: &Splitting<'_>, length: usize, sum: u16, payload: &[u8]) {
    let Splitting { network, way, client, .. } = splitting;
    let family = if way.vip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let port = client.local_addr().expect("an address").port();
    let numbers = [port, way.vip.port(), length as u16, sum].map(u16::to_be_bytes);
    let socket: OwnedFd = network.on("c", || {
        rustix::net::socket(family, SocketType::RAW, Some(ipproto::UDP)).expect("a socket")
    });
    let to = SocketAddr::new(way.vip.ip(), 0);
    let sent = rustix::net::sendto(
        &socket,
        &[&numbers.concat(), payload].concat(),
        SendFlags::empty(),
        &to,
    );
    // The kernel reports a packet dropped on its way out.
    assert!(sent.is_ok() || sent == Err(Errno::NOBUFS), "{sent:?}");
}

#[test]
fn a_wrong_checksum_stays_wrong_and_what_is_no_datagram_alone_is_dropped() {
    let Some(network) = network("sums") else { return };
    for role in [Role::MultigetClient, Role::MultigetGateway] {
        for parts in [Parts::Trimmed, Parts::Full] {
            for addresses in ["10.98.0.", "fd00:98::"] {
                let way = Way::new(role, parts, addresses);
                let Some(mut splitting) = Splitting::new(&network, way) else { return };
                let data = request(&mut Random::new(3));
                let expected = modelled(&data, splitting.trim()).expect("it is sound").len() as u64;
                // The chance that a wrong checksum matches is one in 65,535.
                send_raw(&splitting, data.len() + 8, 0x1234, &data);
                assert!(splitting.received().is_empty(), "{way:?}");
                assert_eq!(splitting.splitter.count(Split::Parts), expected + u64::from(SERVERS));
                // IPv4 datagrams may lack a checksum.
                send_raw(&splitting, data.len() + 8, 0, &data);
                let arrived: usize = splitting.received().values().map(Vec::len).sum();
                assert_eq!(arrived as u64, if way.vip.is_ipv4() { expected } else { 0 }, "{way:?}");
                for length in [0, 7, data.len() + 7, data.len() + 9] {
                    send_raw(&splitting, length, 0, &data);
                }
                assert!(
                    splitting.received().is_empty() && splitting.splitter.count(Split::Packet) == 4,
                    "{way:?}"
                );
            }
        }
    }
}

#[test]
fn other_packets_pass_unchanged() {
    let Some(network) = network("others") else { return };
    for role in [Role::MultigetClient, Role::MultigetGateway] {
        for addresses in ["10.98.0.", "fd00:98::"] {
            let way = Way::new(role, Parts::Trimmed, addresses);
            let Some(mut splitting) = Splitting::new(&network, way) else { return };
            let other = SocketAddr::new(way.vip.ip(), PORT + 1);
            let elsewhere = network.on("d", || UdpSocket::bind(other).expect("bound"));
            elsewhere.set_read_timeout(Some(WAIT)).expect("an option");
            let listener = network.on("d", || TcpListener::bind(way.vip).expect("bound"));
            let _connected = network.on("c", || {
                TcpStream::connect(way.vip).expect("the port is that of another protocol")
            });
            listener.accept().expect("connected");
            let from = network.on("c", || UdpSocket::bind((way.client, 0)).expect("bound"));
            let mut random = Random::new(9);
            for length in [0, 1, 60, 1400, 4000] {
                let mut data = request(&mut random);
                if length != 60 {
                    data.resize(length, 1);
                }
                from.send_to(&data, other).expect("sent");
                let mut found = [0; 8192];
                let count = elsewhere.recv(&mut found).expect("it has come");
                assert!(found[..count] == data, "{way:?}");
            }
            // A fragmented datagram is not split, nor is one that claims to be a part. IPv6
            // fragments do not show their protocol.
            let whole = network.on("d", || UdpSocket::bind(way.vip).expect("bound"));
            whole.set_read_timeout(Some(WAIT)).expect("an option");
            splitting.client.send(&[0x11; 4000]).expect("sent");
            match way.vip.is_ipv6() {
                true => assert_eq!(whole.recv(&mut [0; 8192]).expect("it has come"), 4000),
                false => assert_eq!(splitting.splitter.count(Split::Packet), 1),
            }
            let mut part = request(&mut random);
            part[10] = CLO_SPLIT;
            splitting.client.send(&part).expect("sent");
            assert!(splitting.received().is_empty() && splitting.splitter.count(Split::Clo) == 1);
        }
    }
}

#[test]
fn a_gateway_splits_for_those_that_it_knows() {
    let Some(network) = network("source") else { return };
    for (addresses, other) in [("10.98.0.", "10.98.1.0"), ("fd00:98::", "fd00:97::")] {
        let mut way = Way::new(Role::MultigetGateway, Parts::Trimmed, addresses);
        way.allowed = other.parse().expect("an address");
        let Some(splitting) = Splitting::new(&network, way) else { return };
        splitting.send(&request(&mut Random::new(1)), true);
        splitting.send(&[1], true);
        until("both are dropped", || splitting.splitter.count(Split::Source) == 2);
        assert_eq!(splitting.splitter.count(Split::Requests), 0);
    }
}

/// Least and most of these requests admitted within this time, if they come one after the other.
fn admitted(rate: Rate, requests: u64, within: Duration) -> (u64, u64) {
    let let_in = |due_ns: &mut u64, now_ns| {
        (0..requests).filter(|_| rate.admit(due_ns, now_ns)).count() as u64
    };
    let mut due_ns = 0;
    let at_once = let_in(&mut due_ns, 1);
    (at_once, requests.min(at_once + let_in(&mut due_ns, 1 + within.as_nanos() as u64)))
}

#[test]
fn each_source_may_ask_a_gateway_so_often_as_the_model_lets_it() {
    const REQUESTS: u64 = 300;
    let Some(network) = network("rate") else { return };
    for addresses in ["10.98.0.", "fd00:98::"] {
        let way = Way {
            rate: Rate::new(100),
            ..Way::new(Role::MultigetGateway, Parts::Trimmed, addresses)
        };
        let Some(splitting) = Splitting::new(&network, way) else { return };
        // The second address is in the same /64 for IPv6; for IPv4 it is a source of its own.
        let last = if way.vip.is_ipv4() { "12/24" } else { "12/64 nodad" };
        let other: IpAddr = format!("{addresses}12").parse().expect("an address");
        network
            .on("c", || run(&format!("ip addr replace {addresses}{last} dev eth0")))
            .expect("another address");
        let mut random = Random::new(5);
        let count = |which| splitting.splitter.count(which);
        let let_in = || count(Split::Requests) + count(Split::Version) + count(Split::Unknown);
        let begun = Instant::now();
        // Invalid requests count and cost as much as valid ones.
        for number in 0..REQUESTS {
            splitting.send(&if number % 2 == 0 { request(&mut random) } else { vec![1] }, true);
        }
        until("all are counted", || let_in() + count(Split::Rate) == REQUESTS);
        let (found, (least, most)) = (let_in(), admitted(way.rate, REQUESTS, begun.elapsed()));
        assert!(
            least == 100 && (least..=most).contains(&found),
            "{found} of {least} to {most}, {way:?}"
        );
        let socket = network.on("c", || UdpSocket::bind((other, 0)).expect("bound"));
        for _ in 0..REQUESTS {
            network.on("c", || socket.send_to(&[1], way.vip).expect("sent"));
        }
        until("all are counted", || let_in() + count(Split::Rate) == 2 * REQUESTS);
        let (before, requests) =
            if way.vip.is_ipv4() { (found, REQUESTS) } else { (0, 2 * REQUESTS) };
        let (found, (least, most)) =
            (let_in() - before, admitted(way.rate, requests, begun.elapsed()));
        assert!((least..=most).contains(&found), "{found} of {least} to {most}, {way:?}");
    }
}

#[test]
fn a_program_that_splits_is_loaded_once_and_cleaned_without_a_trace() {
    let Some(network) = Network::new("split") else { return };
    for role in [Role::MultigetClient, Role::MultigetGateway] {
        let way = Way::new(role, Parts::Full, "10.98.0.");
        let Some(splitting) = Splitting::new(&network, way) else { return };
        let pins = splitting.pins.clone();
        let again = network.on(way.host(), || {
            load_splitter("eth0", role, &[way.vip], &[], Parts::Full, Sources::default(), &pins)
        });
        assert!(matches!(again, Err(Error::Loaded(_))), "{again:?}");
        drop(splitting);
        assert!(!pins.exists() && matches!(Splitter::open(&pins), Err(Error::NotLoaded(_))));
    }
}
