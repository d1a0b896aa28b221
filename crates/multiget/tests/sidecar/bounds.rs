//! Bounds on the cost of one application: timers, room for answers, and endless answers.

use shunt_multiget::limits;
use shunt_multiget::place::Places;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND, for_seeds};

use crate::script::Script;
use crate::{Scene, listen_address, whole};

/// Larger than any other value in these tests.
const LARGE: usize = 900_000;

pub(crate) fn scene(seed: u64, options: Options) -> (Scene, HostId<Script>) {
    let mut scene = Scene::new(seed, options, 0);
    let script = scene.world.add("script", Script::new(listen_address()));
    scene.world.run_for(SECOND);
    (scene, script)
}

pub(crate) fn send(scene: &mut Scene, script: HostId<Script>, words: &[&[u8]]) {
    scene.world.with(script, |script, io| script.send(io, words));
}

/// A key on another server than this one.
pub(crate) fn key_elsewhere(scene: &Scene, key: &[u8]) -> Vec<u8> {
    let places = Places::Equal(scene.servers.len());
    let mut others = (0..100).map(|other| format!("other {other}").into_bytes());
    others
        .find(|other| places.server(other) != places.server(key))
        .expect("a key of another server")
}

pub(crate) fn freeze(scene: &mut Scene) {
    for server in scene.servers.clone() {
        scene.world.freeze(server);
    }
}

pub(crate) fn thaw(scene: &mut Scene) {
    for server in scene.servers.clone() {
        scene.world.thaw(server);
    }
}

#[test]
fn timers_do_not_pile_up() {
    let (mut scene, script) = scene(1, Options::calm());
    for _ in 0..1_000 {
        send(&mut scene, script, &[b"GET", b"key"]);
        scene.world.run_for(150 * MILLISECOND);
    }
    assert_eq!(scene.world.host(script).received, b"$-1\r\n".repeat(1_000));
    let timers = scene.world.held(scene.sidecar).timers;
    assert!(timers < 200, "{timers} timers are set");
}

#[test]
fn a_client_held_for_room_is_read_again_once_there_is_room() {
    let (mut scene, script) = scene(2, Options::calm());
    freeze(&mut scene);
    send(&mut scene, script, &[b"INCR", b"counter"]);
    let (text, mut expected) = (vec![b'e'; 1 << 20], b":1\r\n".to_vec());
    for _ in 0..8 {
        send(&mut scene, script, &[b"ECHO", &text]);
        expected.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
        expected.extend_from_slice(&text);
        expected.extend_from_slice(b"\r\n");
    }
    // Answers are ready up to the limit, behind the missing one.
    scene.world.run_for(2 * SECOND);
    assert!(scene.world.host(script).received.is_empty());
    thaw(&mut scene);
    scene.world.run_for(60 * SECOND);
    assert!(
        scene.world.host(script).received == expected,
        "{} bytes",
        scene.world.host(script).received.len()
    );
}

/// Each connection keeps its name, and CLIENT INFO makes several copies of it.
#[test]
fn a_connection_has_a_short_name() {
    let (mut scene, script) = scene(8, Options::calm());
    let long = vec![b'n'; 1 << 20];
    let longest = vec![b'n'; limits::APP_NAME_BYTES_MAX];
    send(&mut scene, script, &[b"CLIENT", b"SETNAME", b"shop"]);
    for name in [&long[..], &longest[1..], b"a b", b"a\nid=9", &[0xff; 300], b"shop\xff"] {
        let is_short = name == &longest[1..];
        scene.world.with(script, |script, _| script.received.clear());
        send(&mut scene, script, &[b"CLIENT", b"SETNAME", name]);
        send(&mut scene, script, &[b"HELLO", b"3", b"SETNAME", name]);
        scene.world.run_for(10 * SECOND);
        let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
        assert_eq!(answers.matches("-ERR").count(), if is_short { 0 } else { 2 }, "{answers}");
        assert!(answers.len() < 1_024, "{} bytes", answers.len());
        send(&mut scene, script, &[b"CLIENT", b"SETNAME", b"shop"]);
        send(&mut scene, script, &[b"CLIENT", b"GETNAME"]);
        send(&mut scene, script, &[b"CLIENT", b"INFO"]);
        scene.world.run_for(10 * SECOND);
        let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
        assert!(answers.contains("$4\r\nshop") && answers.contains(" name=shop "), "{answers}");
        assert!(answers.len() < 2_048, "{} bytes", answers.len());
    }
    send(&mut scene, script, &[b"CLIENT", b"SETNAME", &longest]);
    scene.world.with(script, |script, _| script.received.clear());
    send(&mut scene, script, &[b"CLIENT", b"GETNAME"]);
    scene.world.run_for(10 * SECOND);
    assert!(scene.world.host(script).received.ends_with(&[&longest[..], b"\r\n"].concat()));
}

#[test]
fn hello_waits_for_what_was_asked_in_the_other_version() {
    for_seeds(40, |seed| {
        let (mut scene, script) = scene(seed, whole(seed));
        let pipeline: [&[&[u8]]; 12] = [
            &[b"MGET", b"a", b"b", b"c"],
            &[b"HELLO", b"3"],
            &[b"MGET", b"a"],
            &[b"INCR", b"counter"],
            &[b"HELLO", b"2"],
            &[b"INCR", b"counter"],
            &[b"HELLO", b"3"],
            &[b"INCR", b"counter"],
            &[b"GET", b"a"],
            &[b"HELLO", b"2"],
            &[b"GET", b"a"],
            &[b"GET", b"counter"],
        ];
        pipeline.iter().for_each(|words| send(&mut scene, script, words));
        scene.world.run_for(60 * SECOND);
        let mut answers = Vec::new();
        let (mut at, received) = (0, &scene.world.host(script).received);
        let mut scanner = shunt_wire::resp::Scanner::new(1 << 20);
        while let Some(length) = scanner.find(&received[at..]).expect("the sidecar speaks RESP") {
            let answer = &received[at..at + length];
            // The answer to HELLO contains an id; its first byte tells the version.
            let shown = if length > 60 { &answer[..1] } else { answer };
            answers.push(String::from_utf8_lossy(shown).into_owned());
            at += length;
        }
        let expected = [
            "*3\r\n$-1\r\n$-1\r\n$-1\r\n",
            "%",
            "*1\r\n_\r\n",
            ":1\r\n",
            "*",
            ":2\r\n",
            "%",
            ":3\r\n",
            "_\r\n",
            "*",
            "$-1\r\n",
            "$1\r\n3\r\n",
        ];
        assert_eq!(answers, expected);
    });
}

/// Writes a large value.
fn write(scene: &mut Scene, script: HostId<Script>) {
    send(scene, script, &[b"SET", b"large", &vec![b'v'; LARGE]]);
    scene.world.run_for(10 * SECOND);
    assert_eq!(scene.world.host(script).received, b"+OK\r\n");
    scene.world.with(script, |script, _| script.received.clear());
}

fn mget(times: usize) -> Vec<&'static [u8]> {
    std::iter::once(&b"MGET"[..]).chain(std::iter::repeat_n(&b"large"[..], times)).collect()
}

#[test]
fn one_large_value_asked_for_many_times_is_an_error() {
    let (mut scene, script) = scene(3, Options::calm());
    write(&mut scene, script);
    send(&mut scene, script, &mget(limits::COMMAND_BYTES_MAX / LARGE + 1));
    send(&mut scene, script, &[b"PING"]);
    scene.world.run_for(60 * SECOND);
    let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
    assert!(
        answers.starts_with("-ERR the answer has 67"),
        "{}",
        &answers[..answers.len().min(200)]
    );
    assert!(answers.ends_with("ask for fewer keys at a time\r\n+PONG\r\n"));
}

#[test]
fn a_client_with_too_many_unread_answers_is_closed() {
    let (mut scene, script) = scene(4, Options::calm());
    write(&mut scene, script);
    freeze(&mut scene);
    let times = limits::COMMAND_BYTES_MAX / LARGE - 1;
    for _ in 0..=limits::APP_BYTES_MAX / (times * LARGE) {
        send(&mut scene, script, &mget(times));
    }
    scene.world.run_for(SECOND);
    scene.world.with(script, Script::pause);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!((metrics.clients.get(), metrics.clients_closed.get()), (1, 0));
    thaw(&mut scene);
    scene.world.run_for(10 * SECOND);
    assert_eq!((metrics.clients.get(), metrics.clients_closed.get()), (0, 1));
    assert_eq!(scene.world.held(scene.sidecar).backlog, 0);
}

#[test]
fn a_client_with_large_requests_is_not_read_until_their_answers() {
    // As many keys as one multiget may have, and long ones: two halves of the former are admitted,
    // a few MiB of the latter.
    for (count, bytes, most) in [(limits::KEYS_MAX / 2, 8, 2), (1_000, 1_000, 5)] {
        let (mut scene, script) = scene(5, Options::calm());
        freeze(&mut scene);
        let keys: Vec<Vec<u8>> =
            (0..count).map(|key| format!("{key:0bytes$}").into_bytes()).collect();
        let words: Vec<&[u8]> =
            std::iter::once(&b"MGET"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
        for _ in 0..20 {
            send(&mut scene, script, &words);
        }
        scene.world.run_for(2 * SECOND);
        let metrics = scene.world.host(scene.sidecar).metrics();
        assert_eq!(metrics.under_way.get(), most, "{count} keys of {bytes} bytes");
        thaw(&mut scene);
        scene.world.run_for(60 * SECOND);
        let expected = format!("*{count}\r\n{}", "$-1\r\n".repeat(count)).repeat(20);
        assert!(
            scene.world.host(script).received == expected.as_bytes(),
            "{count} keys of {bytes} bytes"
        );
    }
}

#[test]
fn requests_of_a_closed_application_are_given_up() {
    let (mut scene, script) = scene(6, Options::calm());
    freeze(&mut scene);
    send(&mut scene, script, &[b"MGET", b"a", b"b", b"c"]);
    scene.world.run_for(SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!(metrics.under_way.get(), 1);
    scene.world.with(script, Script::leave);
    scene.world.run_for(SECOND);
    assert_eq!((metrics.clients.get(), metrics.under_way.get()), (0, 0));
    thaw(&mut scene);
    scene.world.run_for(10 * SECOND);
    assert_eq!(metrics.errors.get(), 0);
}

/// One application requests a value of this byte that is longer than an answer may be; another one
/// requests a short value of the same server over the same connection.
fn asks_for_too_much(version: &[u8], byte: u8) {
    let (mut scene, script) = scene(7, Options::calm());
    let other = scene.world.add("other", Script::new(listen_address()));
    for server in scene.servers.clone() {
        scene.world.with(server, |server, _| {
            server.values.insert(b"huge".to_vec(), vec![byte; limits::COMMAND_BYTES_MAX]);
        });
    }
    scene.world.run_for(SECOND);
    for script in [script, other] {
        send(&mut scene, script, &[b"HELLO", version]);
        scene.world.run_for(SECOND);
        scene.world.with(script, |script, _| script.received.clear());
    }
    send(&mut scene, script, &[b"GETRANGE", b"huge", b"0", b"-1"]);
    send(&mut scene, script, &[b"GET", b"huge"]);
    send(&mut scene, other, &[b"INCR", b"{huge}:counter"]);
    send(&mut scene, other, &[b"GET", b"{huge}:counter"]);
    scene.world.run_for(60 * SECOND);
    let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
    assert_eq!(
        answers
            .matches("-ERR the server 192.0.2.10:6379 has answered with more than 67108864 bytes")
            .count(),
        2,
        "{answers}"
    );
    assert_eq!(String::from_utf8_lossy(&scene.world.host(other).received), ":1\r\n$1\r\n1\r\n");
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!(metrics.links_lost.get(), 0);
    assert!(scene.world.held(scene.sidecar).unread < 1 << 20);
}

#[test]
fn an_answer_that_is_too_long_is_an_error_to_who_asked_and_to_nobody_else() {
    asks_for_too_much(b"2", b'v');
}

#[test]
fn a_value_that_is_too_long_is_not_taken_for_what_a_server_says_by_itself() {
    for version in [b"2", b"3"] {
        asks_for_too_much(version, b'>');
    }
}

#[test]
fn clients_at_their_limit_cost_others_time_and_no_error() {
    let (mut scene, greedy) = scene(8, Options::calm());
    let mut all = vec![greedy];
    all.extend((0..4).map(|_| scene.world.add("greedy", Script::new(listen_address()))));
    let other = scene.world.add("other", Script::new(listen_address()));
    scene.world.run_for(SECOND);
    freeze(&mut scene);
    let elsewhere = key_elsewhere(&scene, b"key");
    for (script, key) in all.iter().zip([b"key", elsewhere.as_slice()].into_iter().cycle()) {
        (0..2 * limits::PIPELINE_MAX).for_each(|_| send(&mut scene, *script, &[b"GET", key]));
    }
    scene.world.run_for(SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!(metrics.under_way.get(), limits::MULTIGETS_MAX as u64);
    // It comes last, and its next command waits for no other application's remaining ones.
    send(&mut scene, other, &[b"GET", b"key"]);
    scene.world.run_for(SECOND);
    thaw(&mut scene);
    scene.world.run_for(60 * SECOND);
    assert_eq!(String::from_utf8_lossy(&scene.world.host(other).received), "$-1\r\n");
    for script in all {
        assert!(scene.world.host(script).received == b"$-1\r\n".repeat(2 * limits::PIPELINE_MAX));
    }
    assert_eq!((metrics.errors.get(), metrics.under_way.get()), (0, 0));
}

#[test]
fn a_turn_that_is_not_used_is_given_to_the_next() {
    let (mut scene, first) = scene(9, Options::calm());
    let mut all = vec![first];
    all.extend((0..9).map(|_| scene.world.add("greedy", Script::new(listen_address()))));
    scene.world.run_for(SECOND);
    freeze(&mut scene);
    for script in all.clone() {
        (0..limits::PIPELINE_MAX).for_each(|_| send(&mut scene, script, &[b"GET", b"key"]));
    }
    scene.world.run_for(SECOND);
    // Some that leave have commands under way, others wait for them; those that stay get all their
    // answers.
    for script in all.iter().step_by(2) {
        scene.world.with(*script, Script::leave);
    }
    scene.world.run_for(SECOND);
    thaw(&mut scene);
    scene.world.run_for(60 * SECOND);
    for script in all.iter().skip(1).step_by(2) {
        assert!(scene.world.host(*script).received == b"$-1\r\n".repeat(limits::PIPELINE_MAX));
    }
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!((metrics.errors.get(), metrics.under_way.get()), (0, 0));
}

/// Applications within their own limits that together far exceed the common one.
const MANY: usize = 12;
const ALL_BYTES_MAX: usize = 8 << 20;

/// A sidecar with so little room, many applications, and one that must not suffer from them.
fn crowd(seed: u64) -> (Scene, Vec<HostId<Script>>, HostId<Script>) {
    let (mut scene, other) = scene(seed, Options::calm());
    scene.world.with(scene.sidecar, |sidecar, _| sidecar.set_apps_bytes_max(ALL_BYTES_MAX));
    write(&mut scene, other);
    let many = (0..MANY).map(|_| scene.world.add("many", Script::new(listen_address()))).collect();
    scene.world.run_for(SECOND);
    (scene, many, other)
}

/// Asserts that there is room again, only those with the most are closed, and the other one is
/// answered.
fn has_room(scene: &mut Scene, other: HostId<Script>) {
    let metrics = scene.world.host(scene.sidecar).metrics();
    let closed = metrics.clients_closed.get() as usize;
    assert!(closed > 0 && closed < MANY, "{closed} are closed");
    assert_eq!(metrics.clients.get() as usize, MANY + 1 - closed);
    let held = scene.world.held(scene.sidecar);
    assert!(held.backlog + held.unread <= ALL_BYTES_MAX, "{held:?}");
    scene.world.with(other, |other, _| other.received.clear());
    send(scene, other, &[b"GET", b"key"]);
    scene.world.run_for(SECOND);
    assert_eq!(String::from_utf8_lossy(&scene.world.host(other).received), "$-1\r\n");
}

#[test]
fn clients_that_read_nothing_and_hold_the_most_are_closed() {
    let (mut scene, many, other) = crowd(10);
    for script in many {
        scene.world.with(script, Script::pause);
        send(&mut scene, script, &mget(3));
    }
    scene.world.run_for(10 * SECOND);
    has_room(&mut scene, other);
}

#[test]
fn the_longest_of_many_incomplete_commands_are_given_up() {
    let (mut scene, many, other) = crowd(11);
    for script in many {
        let mut begun = b"*2\r\n$4\r\nECHO\r\n$8000000\r\n".to_vec();
        begun.resize(2_000_000, b'x');
        scene.world.with(script, |script, io| script.send_raw(io, &begun));
    }
    scene.world.run_for(10 * SECOND);
    has_room(&mut scene, other);
}

/// The keys of TLS, and records that never end, take memory as answers do.
#[test]
fn the_encryption_of_applications_counts() {
    for (sealed, closed) in [(false, 0), (true, MANY)] {
        let mut scene = Scene::new(13, Options { sealed, ..Options::calm() }, 0);
        scene.world.with(scene.sidecar, |sidecar, _| sidecar.set_apps_bytes_max(1));
        for _ in 0..MANY {
            scene.world.add("many", Script::new(listen_address()));
        }
        scene.world.run_for(SECOND);
        let metrics = scene.world.host(scene.sidecar).metrics();
        assert_eq!(metrics.clients_closed.get() as usize, closed, "encrypted: {sealed}");
    }
}

#[test]
fn values_that_wait_for_others_of_their_multiget_count() {
    let (mut scene, many, other) = crowd(12);
    let places = Places::Equal(scene.servers.len());
    let slow = key_elsewhere(&scene, b"large");
    scene.world.freeze(scene.servers[places.server(&slow)]);
    for script in many {
        (0..2).for_each(|_| send(&mut scene, script, &[b"MGET", b"large", &slow]));
    }
    scene.world.run_for(2 * SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert!(
        metrics.under_way.get() as usize * LARGE <= ALL_BYTES_MAX,
        "{} are under way",
        metrics.under_way.get()
    );
    thaw(&mut scene);
    scene.world.run_for(10 * SECOND);
    has_room(&mut scene, other);
}

#[test]
fn unsolicited_server_messages_are_nobodys_answer() {
    for_seeds(20, |seed| {
        let (mut scene, first) = scene(seed, whole(seed));
        let second = scene.world.add("script", Script::new(listen_address()));
        for server in scene.servers.clone() {
            scene.world.with(server, |server, _| server.speaks_up = true);
        }
        scene.world.run_for(SECOND);
        for (script, key) in [(first, b"one"), (second, b"two")] {
            send(&mut scene, script, &[b"HELLO", b"3"]);
            send(&mut scene, script, &[b"SET", key, key]);
            send(&mut scene, script, &[b"GET", key]);
            send(&mut scene, script, &[b"GETRANGE", key, b"0", b"-1"]);
        }
        scene.world.run_for(60 * SECOND);
        for (script, key) in [(first, "one"), (second, "two")] {
            let received = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
            let value = format!("$3\r\n{key}\r\n");
            assert!(received.ends_with(&format!("+OK\r\n{value}{value}")), "{received:?}");
        }
    });
}
