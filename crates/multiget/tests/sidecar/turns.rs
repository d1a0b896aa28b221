//! Silent or fully loaded servers, and turns meanwhile.

use shunt_multiget::limits;
use shunt_multiget::place::Places;
use shunt_reactor::sim::{MILLISECOND, Options, SECOND};

use crate::bounds::{freeze, key_elsewhere, scene, send, thaw};
use crate::script::Script;
use crate::{Scene, listen_address};

#[test]
fn a_silent_server_holds_up_those_who_ask_it_and_nobody_else() {
    let (mut scene, first) = scene(13, Options::calm());
    let mut all = vec![first];
    all.extend((0..4).map(|_| scene.world.add("greedy", Script::new(listen_address()))));
    let other = scene.world.add("other", Script::new(listen_address()));
    scene.world.run_for(SECOND);
    let places = Places::Equal(scene.servers.len());
    let silent = scene.servers[places.server(b"key")];
    scene.world.freeze(silent);
    let elsewhere = key_elsewhere(&scene, b"key");
    for (index, script) in all.iter().enumerate() {
        // Some ask both servers, and answered keys do not count as under way.
        let words: &[&[u8]] =
            if index == 0 { &[b"MGET", b"key", &elsewhere] } else { &[b"GET", b"key"] };
        (0..limits::PIPELINE_MAX).for_each(|_| send(&mut scene, *script, words));
    }
    scene.world.run_for(SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!(metrics.under_way.get(), limits::SERVER_MULTIGETS_MAX as u64);
    (0..3).for_each(|_| send(&mut scene, other, &[b"MGET", &elsewhere]));
    scene.world.run_for(SECOND);
    assert_eq!(
        String::from_utf8_lossy(&scene.world.host(other).received),
        "*1\r\n$-1\r\n".repeat(3)
    );
    // None of the multigets was given up.
    assert_eq!(
        (metrics.errors.get(), metrics.under_way.get()),
        (0, limits::SERVER_MULTIGETS_MAX as u64)
    );
    scene.world.thaw(silent);
    scene.world.run_for(60 * SECOND);
    for (index, script) in all.into_iter().enumerate() {
        let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
        let values = if index == 0 { 2 } else { 1 };
        assert_eq!(answers.matches("$-1\r\n").count(), values * limits::PIPELINE_MAX);
    }
    assert_eq!((metrics.errors.get(), metrics.under_way.get()), (0, 0));
}

#[test]
fn a_server_that_was_silent_is_tried_by_one_command_at_a_time() {
    let (mut scene, script) = scene(14, Options::calm());
    let places = Places::Equal(scene.servers.len());
    let silent = scene.servers[places.server(b"key")];
    scene.world.freeze(silent);
    let metrics = scene.world.host(scene.sidecar).metrics();
    let ask = |scene: &mut Scene| {
        (0..10).for_each(|_| send(scene, script, &[b"GET", b"key"]));
        scene.world.run_for(50 * MILLISECOND);
    };
    while metrics.links_lost.get() == 0 {
        ask(&mut scene);
    }
    // The server is tried again and again, and each time others get their errors at once.
    while metrics.links_lost.get() < 6 {
        ask(&mut scene);
        assert!(metrics.under_way.get() <= 1, "{} wait", metrics.under_way.get());
    }
    let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
    assert!(
        answers.ends_with(
            "ms (--timeout-ms) - until it answers, one command at a time is sent to it\r\n"
        ),
        "{answers}"
    );
    scene.world.thaw(silent);
    for _ in 0..200 {
        ask(&mut scene);
    }
    scene.world.run_for(SECOND);
    let errors = metrics.errors.get();
    scene.world.with(script, |script, _| script.received.clear());
    ask(&mut scene);
    assert_eq!(String::from_utf8_lossy(&scene.world.host(script).received), "$-1\r\n".repeat(10));
    assert_eq!((metrics.errors.get(), metrics.links_lost.get()), (errors, 6));
}

#[test]
fn a_client_of_two_full_servers_gets_its_turn() {
    let (mut scene, first) = scene(15, Options::calm());
    let mut all = vec![first];
    all.extend((0..17).map(|_| scene.world.add("greedy", Script::new(listen_address()))));
    scene.world.run_for(SECOND);
    freeze(&mut scene);
    let elsewhere = key_elsewhere(&scene, b"key");
    let asked: [&[&[u8]]; 3] =
        [&[b"MGET", b"key"], &[b"MGET", &elsewhere], &[b"MGET", b"key", &elsewhere]];
    for (script, words) in all.iter().zip(asked.iter().cycle()) {
        (0..limits::PIPELINE_MAX).for_each(|_| send(&mut scene, *script, words));
    }
    scene.world.run_for(SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert!(metrics.under_way.get() >= limits::SERVER_MULTIGETS_MAX as u64);
    thaw(&mut scene);
    scene.world.run_for(60 * SECOND);
    for (script, words) in all.iter().zip(asked.iter().cycle()) {
        let answer = format!("*{}\r\n{}", words.len() - 1, "$-1\r\n".repeat(words.len() - 1));
        let received = &scene.world.host(*script).received;
        assert!(
            *received == answer.repeat(limits::PIPELINE_MAX).as_bytes(),
            "{} bytes",
            received.len()
        );
    }
    assert_eq!((metrics.errors.get(), metrics.under_way.get()), (0, 0));
}

/// `many` applications each send this command `times` times to a paused server, then another one
/// sends one. All are answered, and none gets an error.
fn many_send(seed: u64, many: usize, times: usize, words: &[&[u8]]) {
    let (mut scene, first) = scene(seed, Options::calm());
    let mut all = vec![first];
    all.extend((1..many).map(|_| scene.world.add("greedy", Script::new(listen_address()))));
    let other = scene.world.add("other", Script::new(listen_address()));
    let late = scene.world.add("late", Script::new(listen_address()));
    scene.world.run_for(SECOND);
    freeze(&mut scene);
    for script in all.clone() {
        (0..times).for_each(|_| send(&mut scene, script, words));
    }
    scene.world.run_for(SECOND);
    send(&mut scene, other, &[b"INCR", b"{key}:counter"]);
    send(&mut scene, late, &[b"GET", b"{key}:counter"]);
    scene.world.run_for(SECOND);
    let metrics = scene.world.host(scene.sidecar).metrics();
    assert_eq!(metrics.errors.get(), 0);
    thaw(&mut scene);
    scene.world.run_for(60 * SECOND);
    assert_eq!(String::from_utf8_lossy(&scene.world.host(other).received), ":1\r\n");
    assert!(scene.world.host(late).received.starts_with(b"$"));
    for script in all {
        assert!(scene.world.host(script).received == b"+OK\r\n".repeat(times));
    }
    assert_eq!((metrics.errors.get(), metrics.links_lost.get()), (0, 0));
}

#[test]
fn too_many_commands_for_one_server_cost_others_time_and_no_error() {
    let scripts = limits::LINK_COMMANDS_MAX / limits::PIPELINE_MAX + 6;
    many_send(16, scripts, 2 * limits::PIPELINE_MAX, &[b"SET", b"key", b"value"]);
}

#[test]
fn too_many_bytes_for_one_server_cost_others_time_and_no_error() {
    let value = vec![b'v'; 900_000];
    let scripts = 2 * limits::LINK_BACKLOG_BYTES_MAX / limits::APP_ASKED_BYTES_MAX;
    many_send(17, scripts, 10, &[b"SET", b"key", &value]);
}
