//! Commands that several servers carry out in parts: one answer, errors that say how many keys were
//! changed, and no part carried out twice.

use shunt_multiget::limits;
use shunt_multiget::place::Places;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND, for_seeds};

use crate::bounds::{freeze, key_elsewhere, scene, send, thaw};
use crate::script::Script;
use crate::server::Server;
use crate::{Scene, listen_address, whole};

fn server_of(scene: &Scene, key: &[u8]) -> HostId<Server> {
    scene.servers[Places::Equal(scene.servers.len()).server(key)]
}

fn carried_out(scene: &Scene, key: &[u8]) -> usize {
    scene.world.host(server_of(scene, key)).carried_out.get(key).copied().unwrap_or_default()
}

/// Takes the bytes that a script has received.
fn received(scene: &mut Scene, script: HostId<Script>) -> String {
    let bytes = scene.world.with(script, |script, _| std::mem::take(&mut script.received));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A scene whose script has written these two keys, which are on different servers.
fn written(seed: u64) -> (Scene, HostId<Script>, Vec<u8>) {
    let (mut scene, script) = scene(seed, Options::calm());
    let elsewhere = key_elsewhere(&scene, b"key");
    send(&mut scene, script, &[b"MSET", b"key", b"1", &elsewhere, b"2"]);
    scene.world.run_for(SECOND);
    assert_eq!(received(&mut scene, script), "+OK\r\n");
    for server in scene.servers.clone() {
        scene.world.with(server, |server, _| server.carried_out.clear());
    }
    (scene, script, elsewhere)
}

#[test]
fn parts_make_one_answer_in_its_turn() {
    for_seeds(20, |seed| {
        let (mut scene, script) = scene(seed, whole(seed));
        let version: &[u8] = if seed.is_multiple_of(2) { b"2" } else { b"3" };
        send(&mut scene, script, &[b"HELLO", version]);
        scene.world.run_for(20 * SECOND);
        received(&mut scene, script);
        let pipeline: [(&[&[u8]], &str); 11] = [
            (&[b"MSET", b"a", b"1", b"b", b"2", b"c", b"3", b"d", b"4", b"a", b"5"], "+OK\r\n"),
            (&[b"MGET", b"a", b"d"], "*2\r\n$1\r\n5\r\n$1\r\n4\r\n"),
            (&[b"exists", b"a", b"b", b"none", b"a", b"c"], ":4\r\n"),
            (&[b"TOUCH", b"d", b"none", b"c", b"b"], ":3\r\n"),
            (&[b"PING"], "+PONG\r\n"),
            (
                &[b"MSETNX", b"a", b"1", b"b", b"1", b"c", b"1", b"d", b"1"],
                "-CROSSSLOT the keys of 'msetnx' are on several servers, which cannot set all of them or none: keep them together with {tags}\r\n",
            ),
            (&[b"DEL", b"a", b"a", b"b", b"none"], ":2\r\n"),
            (&[b"UNLINK", b"a", b"c", b"b", b"none"], ":1\r\n"),
            (&[b"EXISTS", b"a", b"b", b"c", b"d"], ":1\r\n"),
            (&[b"MSET", b"a", b"1", b"b"], "-ERR wrong number of arguments for 'mset' command\r\n"),
            (
                &[b"MULTI"],
                "-ERR 'multi' is not passed on by shunt multiget: send it to the server that it is for\r\n",
            ),
        ];
        pipeline.iter().for_each(|(words, _)| send(&mut scene, script, words));
        scene.world.run_for(60 * SECOND);
        let expected: String = pipeline.iter().map(|(_, answer)| *answer).collect();
        assert_eq!(received(&mut scene, script), expected);
        scene.world.with(script, Script::leave);
        scene.is_at_rest();
    });
}

#[test]
fn a_part_that_was_lost_is_not_repeated() {
    let (mut scene, script, elsewhere) = written(1);
    let silent = server_of(&scene, b"key");
    // The server carries the part out, and its answer never comes.
    scene.world.with(silent, |server, _| server.answer = Some(Vec::new()));
    send(&mut scene, script, &[b"DEL", b"key", &elsewhere]);
    scene.world.run_for(20 * SECOND);
    let answer = received(&mut scene, script);
    let expected = "-ERR DEL was carried out for 1 of 2 keys (1 of them existed), perhaps for 1: the server 192.0.2.12:6379 has not answered within 5000 ms (--timeout-ms)\r\n";
    assert_eq!(answer, expected);
    assert_eq!((carried_out(&scene, b"key"), carried_out(&scene, &elsewhere)), (1, 1));
    // MSET, to a paused server.
    scene.world.freeze(silent);
    send(&mut scene, script, &[b"MSET", b"key", b"3", &elsewhere, b"4"]);
    scene.world.run_for(20 * SECOND);
    scene.world.thaw(silent);
    scene.world.run_for(20 * SECOND);
    let answer = received(&mut scene, script);
    assert!(
        answer.starts_with(
            "-ERR MSET was carried out for 1 of 2 keys, perhaps for 1: the server 192"
        ),
        "{answer}"
    );
    assert!(carried_out(&scene, b"key") <= 2);
    assert_eq!(carried_out(&scene, &elsewhere), 2);
    // EXISTS changes nothing.
    scene.world.freeze(silent);
    send(&mut scene, script, &[b"EXISTS", b"key", &elsewhere]);
    scene.world.run_for(20 * SECOND);
    let answer = received(&mut scene, script);
    assert!(
        answer.starts_with("-ERR the server 192.0.2.12:6379 has not answered within 5000 ms"),
        "{answer}"
    );
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!((metrics.split.get(), metrics.split_failed.get(), metrics.splits.get()), (4, 3, 0));
}

#[test]
fn nothing_is_sent_if_a_server_is_known_to_refuse() {
    let (mut scene, script, elsewhere) = written(2);
    let gone = server_of(&scene, b"key");
    scene.world.kill(gone);
    scene.world.run_for(SECOND);
    let is_out = "the server 192.0.2.12:6379 refuses connections: is it running, and is this its address?\r\n";
    // An unknown failure costs one command its parts elsewhere.
    send(&mut scene, script, &[b"UNLINK", b"key", &elsewhere, b"key"]);
    scene.world.run_for(50 * MILLISECOND);
    let answer = received(&mut scene, script);
    assert_eq!(
        answer,
        format!(
            "-ERR UNLINK was carried out for 1 of 3 keys (1 of them existed), not for 2: {is_out}"
        )
    );
    for words in
        [&[&b"DEL"[..], &elsewhere, b"key"][..], &[b"MSET", &elsewhere, b"3", b"key", b"4"]]
    {
        send(&mut scene, script, words);
        scene.world.run_for(10 * MILLISECOND);
        assert_eq!(received(&mut scene, script), format!("-ERR {is_out}"));
    }
    assert_eq!(carried_out(&scene, &elsewhere), 1);
}

#[test]
fn an_answer_of_another_kind_is_no_outcome() {
    let (mut scene, script, elsewhere) = written(3);
    let hostile = server_of(&scene, b"key");
    let long =
        format!("${}\r\n{}\r\n", limits::COMMAND_BYTES_MAX, "-".repeat(limits::COMMAND_BYTES_MAX));
    let many = "*3\r\n:1\r\n:1\r\n:1\r\n";
    for answer in ["+OK\r\n", ":2\r\n", ":-1\r\n", "$-1\r\n", "$1\r\n1\r\n", many, &long, "?\r\n"] {
        scene.world.with(hostile, |server, _| server.answer = Some(answer.as_bytes().to_vec()));
        send(&mut scene, script, &[b"DEL", b"key", &elsewhere]);
        send(&mut scene, script, &[b"PING"]);
        scene.world.run_for(10 * SECOND);
        let text = received(&mut scene, script);
        let shown = &answer[..answer.len().min(30)];
        assert!(text.starts_with("-ERR DEL was carried out for 1 of 2 keys ("), "{shown}: {text}");
        assert!(
            text.contains(" existed), perhaps for 1: the ") && text.ends_with("\r\n+PONG\r\n"),
            "{shown}: {text}"
        );
    }
    // The server's message is passed on, but not its code, because keys were changed.
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    scene.world.with(hostile, |server, _| server.answer = Some(refused.as_bytes().to_vec()));
    send(&mut scene, script, &[b"DEL", b"key", &elsewhere]);
    scene.world.run_for(SECOND);
    let text = received(&mut scene, script);
    let expected = "-ERR DEL was carried out for 1 of 2 keys (0 of them existed), not for 1: the server 192.0.2.12:6379 has answered OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(text, expected);
    assert_eq!(scene.world.host(scene.sidecar).metrics().splits.get(), 0);
}

#[test]
fn split_commands_of_an_application_that_is_gone_leave_nothing_behind() {
    let (mut scene, script, elsewhere) = written(4);
    let other = scene.world.add("other", Script::new(listen_address()));
    freeze(&mut scene);
    (0..50).for_each(|_| send(&mut scene, script, &[b"DEL", b"key", &elsewhere]));
    scene.world.run_for(SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!(metrics.splits.get(), 50);
    scene.world.with(script, Script::leave);
    scene.world.run_for(SECOND);
    thaw(&mut scene);
    scene.world.run_for(SECOND);
    assert_eq!((metrics.splits.get(), metrics.errors.get()), (0, 0));
    send(&mut scene, other, &[b"EXISTS", b"key", &elsewhere]);
    scene.world.run_for(SECOND);
    assert_eq!(received(&mut scene, other), ":0\r\n");
}

#[test]
fn an_application_that_splits_many_commands_costs_others_time_and_no_error() {
    let (mut scene, first) = scene(5, Options::calm());
    let mut all = vec![first];
    let many = 2 * limits::LINK_COMMANDS_MAX / limits::PIPELINE_MAX + 6;
    all.extend((1..many).map(|_| scene.world.add("greedy", Script::new(listen_address()))));
    let other = scene.world.add("other", Script::new(listen_address()));
    scene.world.run_for(SECOND);
    freeze(&mut scene);
    let elsewhere = key_elsewhere(&scene, b"key");
    // Some commands involve both servers, others one: none blocks another for ever.
    let asked: [&[&[u8]]; 3] = [
        &[b"DEL", b"key", &elsewhere],
        &[b"DEL", b"key"],
        &[b"DEL", &elsewhere, &elsewhere, &elsewhere],
    ];
    for (script, words) in all.iter().zip(asked.iter().cycle()) {
        (0..limits::PIPELINE_MAX).for_each(|_| send(&mut scene, *script, words));
    }
    scene.world.run_for(SECOND);
    send(&mut scene, other, &[b"TOUCH", b"key", &elsewhere]);
    scene.world.run_for(SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!(metrics.errors.get(), 0);
    thaw(&mut scene);
    scene.world.run_for(60 * SECOND);
    assert_eq!(received(&mut scene, other), ":0\r\n");
    for script in all {
        assert!(scene.world.host(script).received == b":0\r\n".repeat(limits::PIPELINE_MAX));
    }
    assert_eq!((metrics.errors.get(), metrics.links_lost.get(), metrics.splits.get()), (0, 0, 0));
}
