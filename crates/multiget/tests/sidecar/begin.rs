//! Commands that clients send at their start by themselves: libraries with their defaults, tools,
//! health checks.

use shunt_reactor::sim::{SECOND, for_seeds};
use shunt_wire::resp::Scanner;

use crate::script::Script;
use crate::{Scene, listen_address, whole};

#[test]
fn the_first_commands_of_client_libraries_are_answered() {
    for_seeds(10, |seed| {
        let mut scene = Scene::new(seed, whole(seed), 0);
        let script = scene.world.add("script", Script::new(listen_address()));
        let pipeline: [(&[&[u8]], &str); 17] = [
            // ioredis waits until loading has ended.
            (&[b"INFO"], "loading:0\r\n"),
            (&[b"INFO"], "redis_version:7.0.0\r\n"),
            (
                &[b"info", b"server"],
                "$54\r\n# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n\r\n",
            ),
            (&[b"INFO", b"keyspace"], "$0\r\n\r\n"),
            (&[b"INFO", b"everything"], "# Cluster\r\ncluster_enabled:0\r\n"),
            (&[b"CONFIG", b"GET", b"maxmemory*"], "*0\r\n"),
            (&[b"CONFIG", b"SET", b"save", b""], "-ERR the sidecar answers only CONFIG GET"),
            (&[b"COMMAND"], "*0\r\n"),
            (&[b"COMMAND", b"COUNT"], ":0\r\n"),
            (&[b"COMMAND", b"INFO", b"get", b"set"], "*2\r\n$-1\r\n$-1\r\n"),
            (&[b"COMMAND", b"GETKEYS", b"get", b"a"], "-ERR of COMMAND"),
            (&[b"CLIENT", b"SETINFO", b"LIB-NAME", b"ioredis"], "+OK\r\n"),
            (&[b"CLIENT", b"INFO"], " resp=2\n"),
            (&[b"CLIENT", b"REPLY", b"OFF"], "-ERR of CLIENT"),
            (&[b"HELLO", b"3"], "%7\r\n"),
            (&[b"COMMAND", b"DOCS"], "%0\r\n"),
            (&[b"CONFIG", b"GET", b"save"], "%0\r\n"),
        ];
        for (words, _) in &pipeline {
            scene.world.with(script, |script, io| script.send(io, words));
        }
        scene.world.run_for(10 * SECOND);
        let mut received = &scene.world.host(script).received[..];
        let mut scanner = Scanner::new(1 << 20);
        for (words, expected) in &pipeline {
            let length =
                scanner.find(received).expect("the sidecar speaks RESP").expect("an answer");
            let answer = String::from_utf8_lossy(&received[..length]).into_owned();
            let asked = words
                .iter()
                .map(|word| String::from_utf8_lossy(word))
                .collect::<Vec<_>>()
                .join(" ");
            assert!(answer.contains(expected), "{asked}: {answer}");
            received = &received[length..];
        }
        assert!(received.is_empty());
    });
}
