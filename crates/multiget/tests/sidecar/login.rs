//! First commands of connections to servers: a command before their answers would run as another
//! user, or on another database.

use shunt_multiget::Login;
use shunt_reactor::sim::{Options, SECOND, for_seeds};

use crate::script::Script;
use crate::{Scene, listen_address, whole};

#[test]
fn nothing_is_carried_out_on_a_connection_that_the_server_does_not_let_begin() {
    for_seeds(40, |seed| {
        let login = Login { database: 3, ..Login::default() };
        let mut scene = Scene::with_login(seed, whole(seed), 0, login);
        let script = scene.world.add("script", Script::new(listen_address()));
        let pipeline: [&[&[u8]]; 4] = [
            &[b"SET", b"key", b"value"],
            &[b"HELLO", b"3"],
            &[b"SET", b"key", b"value"],
            &[b"MGET", b"key"],
        ];
        for words in pipeline {
            scene.world.with(script, |script, io| script.send(io, words));
        }
        scene.world.run_for(60 * SECOND);
        let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
        assert_eq!(answers.matches("refuses the database").count(), 3, "{answers}");
        // None of the commands was sent.
        assert!(!answers.contains("may have been carried out"), "{answers}");
        for server in scene.servers.clone() {
            assert!(
                scene.world.host(server).values.is_empty(),
                "it was written to the database that nobody asked for"
            );
        }
        // Once the database exists, they are.
        for server in scene.servers.clone() {
            scene.world.with(server, |server, _| server.databases = 15);
        }
        scene.world.with(script, |script, io| {
            script.received.clear();
            script.send(io, &[b"SET", b"key", b"value"]);
            script.send(io, &[b"MGET", b"key"]);
        });
        scene.world.run_for(60 * SECOND);
        let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
        assert_eq!(answers, "+OK\r\n*1\r\n$5\r\nvalue\r\n");
    });
}

#[test]
fn a_connection_that_is_lost_while_it_begins_leaves_nothing_behind() {
    let login = Login { database: 3, ..Login::default() };
    let mut scene = Scene::with_login(1, Options::calm(), 0, login);
    let script = scene.world.add("script", Script::new(listen_address()));
    for server in scene.servers.clone() {
        scene.world.with(server, |server, _| server.databases = 15);
        scene.world.freeze(server);
    }
    scene.world.run_for(SECOND);
    scene.world.with(script, |script, io| script.send(io, &[b"SET", b"key", b"old"]));
    // The server did not answer in time, and the waiting command is not sent later.
    scene.world.run_for(20 * SECOND);
    let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
    assert!(answers.contains("has not answered within 5000 ms"), "{answers}");
    for server in scene.servers.clone() {
        scene.world.thaw(server);
    }
    scene.world.run_for(20 * SECOND);
    scene.world.with(script, |script, io| {
        script.received.clear();
        script.send(io, &[b"GET", b"key"]);
    });
    scene.world.run_for(20 * SECOND);
    assert_eq!(String::from_utf8_lossy(&scene.world.host(script).received), "$-1\r\n");
}

#[test]
fn a_command_without_a_server_is_not_carried_out() {
    let (mut scene, login) =
        (Scene::new(1, Options::calm(), 0), Login { database: 3, ..Login::default() });
    let mut with_login = Scene::with_login(1, Options::calm(), 0, login);
    for scene in [&mut scene, &mut with_login] {
        let script = scene.world.add("script", Script::new(listen_address()));
        for server in scene.servers.clone() {
            scene.world.kill(server);
        }
        scene.world.run_for(SECOND);
        scene.world.with(script, |script, io| script.send(io, &[b"SET", b"key", b"value"]));
        scene.world.run_for(20 * SECOND);
        let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
        assert!(answers.ends_with("is it running, and is this its address?\r\n"), "{answers}");
    }
}

#[test]
fn no_copy_leaves_the_database() {
    let login = Login { database: 3, ..Login::default() };
    let mut scene = Scene::with_login(1, Options::calm(), 0, login);
    for server in scene.servers.clone() {
        scene.world.with(server, |server, _| server.databases = 15);
    }
    let script = scene.world.add("script", Script::new(listen_address()));
    scene.world.with(script, |script, io| {
        script.send(io, &[b"COPY", b"{a}1", b"{a}2", b"REPLACE", b"db", b"5"]);
        script.send(io, &[b"COPY", b"{a}1", b"{a}2", b"DB", b"3"]);
    });
    scene.world.run_for(20 * SECOND);
    let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
    assert_eq!(answers.matches("there is database 3 alone").count(), 1, "{answers}");
    assert!(answers.starts_with("-ERR there is database 3 alone"), "{answers}");
}
