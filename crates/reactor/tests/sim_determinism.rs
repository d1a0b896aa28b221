//! A seed names one run and no other.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

mod sim_support;

use shunt_reactor::sim::{Options, SECOND, World, for_seeds};
use sim_support::checked::Checked;
use sim_support::echo::{Client, Echo};
use std::collections::HashSet;

fn digest_of(seed: u64) -> (u64, u64) {
    let mut world = World::new(seed, Options::mixed(seed));
    let address = std::net::SocketAddr::from(([10, 9, 9, 9], 7));
    let server = world.add("server", Checked::new(Echo::default()));
    world.listen(server, address);
    for number in 0..4 {
        world.add("client", Checked::new(Client::new(number, address, 30, 2000)));
    }
    world.run_for(SECOND / 2);
    world.freeze(server);
    world.run_for(SECOND / 2);
    world.thaw(server);
    world.run_for(SECOND / 2);
    world.kill(server);
    world.run_for(SECOND / 2);
    world.restart(server, Checked::new(Echo::default()));
    world.run_for(5 * SECOND);
    (world.digest(), world.events())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut digests = HashSet::new();
    for_seeds(100, |seed| {
        let first = digest_of(seed);
        assert_eq!(first, digest_of(seed));
        assert!(first.1 > 100, "nothing happened");
        digests.insert(first.0);
    });
    assert!(digests.len() == 1 || digests.len() >= 100, "different seeds must give different runs");
}
