//! Clients that mix all kinds of requests, in any order and cut anywhere, while nodes answer
//! wrongly, break links in the middle of a turn and forget statements, and other proxies come and
//! go. Afterwards all clients are served again and nothing is left.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_bench::stub::{Action, StubMail, hook};
use shunt_proxy::control::CoreMail;
use shunt_proxy::fleet::roster::{Fleet, Member};
use shunt_reactor::sim::{HostId, MILLISECOND, Random, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::message::put;

use super::testbed::Testbed;

/// Draws a request of any kind for this stream.
fn request(random: &mut Random, version: u8, stream: i16) -> Vec<u8> {
    match random.below(13) {
        0 => bytes::query(version, stream, ["USE bench", "USE nowhere", "USE"][random.index(3)]),
        1 => bytes::prepare(
            version,
            stream,
            &format!("SELECT v FROM bench.kv WHERE k = ? /* {} */", random.below(9)),
        ),
        2 => bytes::request(
            version,
            stream,
            opcode::REGISTER,
            &bytes::body(|out| {
                put::short(out, 2);
                put::string(out, "SCHEMA_CHANGE");
                put::string(out, ["TOPOLOGY_CHANGE", "STATUS_CHANGE"][random.index(2)]);
            }),
        ),
        3 => bytes::execute(version, stream, &[7; 16], &[b"k"]),
        4 => bytes::insert(version, stream, "storm", random.index(60_000)),
        5 => bytes::options(version, stream),
        6 => bytes::query(version, stream, "SELECT * FROM system.local"),
        7 => bytes::query(version, stream, "CREATE TABLE bench.other (k blob PRIMARY KEY)"),
        8 => bytes::query(version, stream, "SELECT * FROM system.size_estimates"),
        9 => bytes::query(version, stream, "nothing that is CQL"),
        10 => {
            bytes::query(version, stream, "SELECT * FROM system.peers_v2 WHERE peer = '10.2.1.3'")
        }
        _ => bytes::query(version, stream, "SELECT v FROM bench.kv WHERE k = 0x73"),
    }
}

fn compressed(envelope: &[u8]) -> Vec<u8> {
    let header = Header::decode(envelope).unwrap();
    let mut body = Vec::new();
    Compressor::default().compress(Algorithm::Lz4, &envelope[HEADER_BYTES..], &mut body);
    bytes::said_compressed(bytes::envelope(header, &body))
}

/// A few requests of this client, now and then with a fault in them.
fn burst(random: &mut Random, version: u8) -> Vec<u8> {
    let count = 1 + random.index(40);
    let mut requests = Vec::new();
    for stream in 0..count {
        let one = request(random, version, stream as i16);
        let packed = version == 4 && random.below(3) == 0;
        requests.extend(if packed { compressed(&one) } else { one });
    }
    if random.below(20) == 0 {
        let at = random.index(requests.len());
        requests[at] ^= 1 << random.below(8);
    }
    if version < 5 {
        return requests;
    }
    let mut out = Vec::new();
    while !requests.is_empty() {
        let length = (1 + random.index(3_000)).min(requests.len());
        let part: Vec<u8> = requests.drain(..length).collect();
        out.extend(bytes::segment(&part, false));
    }
    out
}

struct Mixer {
    host: HostId<simulated::Client>,
    version: u8,
    rest: Vec<u8>,
}

fn act(testbed: &mut Testbed, random: &mut Random, mixer: &mut Mixer) {
    if testbed.scene.world.host(mixer.host).is_closed() || random.below(60) == 0 {
        testbed.reset(mixer.host);
        mixer.rest = bytes::startup(mixer.version, (mixer.version == 4).then_some("lz4"));
        let rest = std::mem::take(&mut mixer.rest);
        testbed.send(mixer.host, &rest);
        return;
    }
    match random.below(12) {
        0 => testbed.stop_reading(mixer.host),
        1 | 2 => testbed.resume_reading(mixer.host),
        _ => {
            mixer.rest.extend(burst(random, mixer.version));
            let length = 1 + random.index(mixer.rest.len());
            let part: Vec<u8> = mixer.rest.drain(..length).collect();
            testbed.send(mixer.host, &part);
        }
    }
}

/// Tells the core of other members, now and then.
fn change_fleet(testbed: &mut Testbed, random: &mut Random) {
    let member = |address: SocketAddr, start| Member { address, incarnation: [start; 16] };
    if random.below(5) != 0 {
        return;
    }
    let mut members = vec![member(testbed.scene.proxy, 1)];
    for number in 1..7 {
        // The member is absent, or one of two starts of it.
        let start = random.below(3) as u8;
        members.extend((start > 0).then(|| member(([10, 2, 1, number], 9042).into(), start)));
    }
    let fleet = Arc::new(Fleet::new(members, 0).unwrap());
    let core = testbed.scene.cores[0];
    testbed.scene.world.post(core, CoreMail::Fleet(fleet));
}

fn storm(seed: u64) {
    let mut random = Random::new(seed);
    let aggregate: Vec<bool> = (0..3).map(|_| random.below(2) == 0).collect();
    let in_flight_max = [4, 64, 4_096][random.index(3)];
    let mut testbed = Testbed::with(|options| {
        options.aggregate = aggregate;
        options.config.in_flight_max = in_flight_max;
    });
    let mut mixers: Vec<Mixer> = [3, 4, 5, 5, 4, 5]
        .map(|version| {
            let host = testbed.offender();
            testbed.scene.world.with(host, |client, io| {
                client.discards_answers = true;
                client.expect_compression((version == 4).then_some(Algorithm::Lz4));
                client.send(io, &bytes::startup(version, (version == 4).then_some("lz4")));
            });
            Mixer { host, version, rest: Vec::new() }
        })
        .into_iter()
        .collect();
    let faults = vec![
        (0.02, Action::Close),
        (0.01, Action::UnknownStream(i16::MAX)),
        (0.01, Action::Garbage(vec![0xA5; 64])),
        (0.05, Action::Error(0x1001)),
        (0.2, Action::Unprepared),
        (0.02, Action::Silence),
        (0.1, Action::Delay(30 * MILLISECOND)),
    ];
    for (index, node) in testbed.scene.nodes.clone().into_iter().enumerate() {
        let hook = hook::random(seed ^ (index as u64 + 1), faults.clone());
        testbed.scene.world.post(node, StubMail::Hook(Some(hook)));
    }
    testbed.start_work();
    for _ in 0..150 {
        for mixer in &mut mixers {
            act(&mut testbed, &mut random, mixer);
        }
        change_fleet(&mut testbed, &mut random);
        testbed.run_for(5 * MILLISECOND);
    }
    for mixer in &mixers {
        testbed.reset(mixer.host);
    }
    (0..3).for_each(|node| testbed.scene.hook(node, None));
    testbed.scene.wait_idle(60 * SECOND);
    testbed.run_for(90 * SECOND);
    testbed.forget_key("storm");
    testbed.accept_errors();
    testbed.check_recovered();
}

#[test]
fn everything_mixed_while_nodes_misbehave() {
    (0..2).for_each(storm);
}
