//! Byte streams through a simulated network: whole under every kind of delay and cut, and restarted
//! after losses.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

mod sim_support;

use shunt_reactor::sim::{HostId, Options, SECOND, World, for_seeds};
use sim_support::checked::Checked;
use sim_support::echo::{Client, Echo};
use std::net::SocketAddr;

struct Scene {
    world: World,
    server: HostId<Checked<Echo>>,
    clients: Vec<HostId<Checked<Client>>>,
}

fn scene(seed: u64, options: Options, frames: u32, frame_bytes_max: u64) -> Scene {
    let mut world = World::new(seed, options);
    let address: SocketAddr = "10.9.9.9:7".parse().unwrap();
    let server = world.add("server", Checked::new(Echo::default()));
    world.listen(server, address);
    let clients = (0..5)
        .map(|number| {
            let client = Client::new(seed ^ number << 32, address, frames, frame_bytes_max);
            world.add(&format!("client {number}"), Checked::new(client))
        })
        .collect();
    Scene { world, server, clients }
}

impl Scene {
    fn run(&mut self, seconds: u64) {
        let clients = self.clients.clone();
        let all_done =
            |world: &mut World| clients.iter().all(|&client| world.host(client).inner.done());
        assert!(self.world.run_until(seconds * SECOND, all_done), "clients are stuck");
    }

    fn losses(&self) -> u32 {
        self.clients.iter().map(|&client| self.world.host(client).inner.losses).sum()
    }
}

#[test]
fn streams_come_through_whole_in_crumbs() {
    let (mut partial, mut paused) = (0, 0);
    for_seeds(60, |seed| {
        let mut scene = scene(seed, Options::crumbs(), 40, 3000);
        scene.run(600);
        assert_eq!(scene.losses(), 0);
        let server = &scene.world.host(scene.server).inner;
        assert_eq!(server.frames, 5 * 40);
        // The server exceeds the bound by one frame at most, because it checks after every frame.
        assert!(server.backlog_most <= 4096 + 3004);
        paused += server.paused;
        partial += scene
            .clients
            .iter()
            .map(|&client| scene.world.host(client).inner.partial_answers)
            .sum::<u32>();
    });
    assert!(
        partial > 0 && paused > 0,
        "the world was too smooth: {partial} partial answers, {paused} pauses"
    );
}

#[test]
fn large_frames_are_gathered() {
    for_seeds(10, |seed| {
        let mut scene =
            scene(seed, Options { window_bytes: 4096..65_536, ..Options::crumbs() }, 6, 300_000);
        scene.run(3600);
        assert_eq!(scene.losses(), 0);
    });
}

#[test]
fn every_client_finishes_with_every_fault_on() {
    let mut losses = 0;
    for_seeds(60, |seed| {
        let mut scene = scene(seed, Options::rough(), 40, 1000);
        scene.run(3600);
        losses += scene.losses();
    });
    assert!(losses > 40, "the world was too smooth: {losses} losses");
}

#[test]
fn every_mixture_of_faults_ends_once_they_cease() {
    for_seeds(60, |seed| {
        let mut scene = scene(seed, Options::mixed(seed), 60, 1000);
        scene.world.run_for(2 * SECOND);
        scene.world.calm();
        scene.run(120);
    });
}

#[test]
fn encrypted_streams_come_through_whole_in_crumbs() {
    for_seeds(60, |seed| {
        let mut scene = scene(seed, Options::crumbs().sealed(), 40, 3000);
        scene.run(600);
        assert_eq!(scene.losses(), 0);
        let server = &scene.world.host(scene.server).inner;
        assert_eq!(server.frames, 5 * 40);
    });
}

#[test]
fn large_encrypted_frames_are_gathered() {
    for_seeds(10, |seed| {
        let options = Options { window_bytes: 4096..65_536, ..Options::crumbs().sealed() };
        let mut scene = scene(seed, options, 6, 900_000);
        scene.run(3600);
        assert_eq!(scene.losses(), 0);
    });
}

#[test]
fn every_encrypted_client_finishes_with_every_mixture_of_faults() {
    let mut losses = 0;
    for_seeds(60, |seed| {
        let mut scene = scene(seed, Options::rough().sealed(), 40, 1000);
        scene.run(3600);
        losses += scene.losses();
    });
    assert!(losses > 40, "the world was too smooth: {losses} losses");
    for_seeds(60, |seed| {
        let mut scene = scene(seed, Options::mixed(seed).sealed(), 60, 1000);
        scene.world.run_for(2 * SECOND);
        scene.world.calm();
        scene.run(120);
    });
}
