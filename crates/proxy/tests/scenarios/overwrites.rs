//! The same keys overwritten again and again while a node is paused, and comes back with its old
//! requests.
//!
//! A paused node has requests in its buffers, and executes them when it goes on, long after others
//! were asked instead and answered. A timestamp that it gives then is newer than all writes
//! acknowledged meanwhile.

use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

/// Few enough that each register is overwritten while the node is paused.
const REGISTERS: u32 = 8;

/// Clients overwrite registers, a node is paused for longer than its links may be silent, the
/// clients end, it goes on.
fn stopped_and_back(seed: u64, timestamps: bool) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.aggregate = vec![seed.is_multiple_of(2); 3];
    // Links are given up before the queries on them are.
    options.config.query_timeout_ms = 12_000;
    let mut scene = Scene::new(options);
    for number in 0..4 {
        scene.add_client(|client| {
            client.version = 3 + number % 3;
            client.registers_shared = REGISTERS;
            client.timestamps = timestamps;
            client.outstanding = 3;
            client.think_ns = 5 * MILLISECOND;
            client.uses_keyspace = number == 1;
        });
    }
    scene.wait_ready(20 * SECOND);
    scene.mail_clients(ClientMail::More(40));
    scene.world.run_for(50 * MILLISECOND);
    let node = scene.nodes[seed as usize % 3];
    scene.world.freeze(node);
    scene.wait_idle(60 * SECOND);
    scene.work(40, 60 * SECOND);
    scene.world.thaw(node);
    scene.world.run_for(15 * SECOND);
    scene
}

#[test]
fn no_acknowledged_value_is_lost_without_timestamps() {
    for_seeds(20, |seed| {
        let mut scene = stopped_and_back(seed, false);
        scene.check_registers(REGISTERS);
        scene.check_at_rest();
    });
}

/// Clients that give timestamps do not even notice that the node was paused.
#[test]
fn no_acknowledged_value_is_lost_with_timestamps() {
    for_seeds(20, |seed| {
        let mut scene = stopped_and_back(seed, true);
        scene.check_registers(REGISTERS);
        if scene.sum(|client| client.tally.refused) > 0 {
            scene.show_clients();
            panic!("the clients noticed");
        }
        scene.check_at_rest();
    });
}
