//! Connections that move between simulated hosts: under traffic and faults, and at the moments when
//! a move fails.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

mod sim_support;

use shunt_reactor::moving::{Frozen, FrozenLimits, NotFrozen};
use shunt_reactor::sim::{HostId, MILLISECOND, Options, Random, SECOND, World, for_seeds};
use shunt_reactor::{CloseReason, ConnId, LoopOptions};
use sim_support::checked::Checked;
use sim_support::echo::Client;
use sim_support::script::Script;
use sim_support::station::Station;
use std::io::ErrorKind;
use std::net::SocketAddr;

const VIRTUAL: &str = "10.9.9.9:7";
const MOVES: u32 = 100;

fn address() -> SocketAddr {
    VIRTUAL.parse().unwrap()
}

/// Moves one connection to and fro while its client sends frames and checks the answers.
struct Journey {
    world: World,
    client: HostId<Checked<Client>>,
    stations: [HostId<Checked<Station>>; 2],
    random: Random,
    /// Index of its present or last host.
    at: usize,
    moves: u32,
    refused: u32,
    restore_failures: usize,
    /// A copy of the connection that is being restored, in case that fails.
    kept: Option<Frozen>,
}

impl Journey {
    fn new(seed: u64, options: Options) -> Journey {
        let mut world = World::new(seed, options);
        let stations = ["one", "two"].map(|name| world.add(name, Checked::new(Station::default())));
        world.listen(stations[0], address());
        let client =
            world.add("client", Checked::new(Client::new(seed, address(), u32::MAX, 3000)));
        let here = stations[0];
        assert!(world.run_until(10 * SECOND, |world| world.host(here).inner.conn.is_some()));
        let random = Random::new(seed ^ 0x6a6f_7572);
        Journey {
            world,
            client,
            stations,
            random,
            at: 0,
            moves: 0,
            refused: 0,
            restore_failures: 0,
            kept: None,
        }
    }

    fn station(&self, at: usize) -> &Station {
        &self.world.host(self.stations[at]).inner
    }

    /// Makes one move; false if the connection has ended.
    fn step(&mut self) -> bool {
        self.world.run_for(self.random.range(&(0..20 * MILLISECOND)));
        if self.station(self.at).conn.is_none() {
            return false;
        }
        let (here, before) = (self.stations[self.at], self.station(self.at).not_frozen.len());
        self.world.with(here, |station, io| station.inner.freeze(io));
        let told = |world: &mut World| {
            let station = &world.host(here).inner;
            station.frozen.is_some() || station.not_frozen.len() > before || station.conn.is_none()
        };
        assert!(self.world.run_until(SECOND, told), "neither frozen nor refused");
        let Some(frozen) = self.world.with(here, |station, _| station.inner.frozen.take()) else {
            self.refused += 1;
            return self.station(self.at).conn.is_some();
        };
        self.kept = Some(frozen);
        // Return to the same host once in a while.
        self.at = if self.random.chance(0.2) { self.at } else { 1 - self.at };
        self.world.run_for(self.random.range(&(0..50 * MILLISECOND)));
        while !self.restore() {
            if self.restore_failures > 10_000 || self.kept.is_none() {
                return false;
            }
        }
        self.moves += 1;
        true
    }

    fn restore(&mut self) -> bool {
        let there = self.stations[self.at];
        let frozen = self.kept.clone().unwrap();
        let (restored, closed) =
            (self.station(self.at).restored.len(), self.station(self.at).closed.len());
        self.world.with(there, |_, io| io.restore(frozen));
        let told = |world: &mut World| {
            let station = &world.host(there).inner;
            station.restored.len() > restored || station.closed.len() > closed
        };
        assert!(self.world.run_until(SECOND, told), "neither restored nor closed");
        if self.station(self.at).restored.len() > restored {
            return true;
        }
        let reason = *self.station(self.at).closed.last().unwrap();
        if reason == CloseReason::ConnectFailed(ErrorKind::OutOfMemory) {
            self.restore_failures += 1;
        } else {
            assert_eq!(reason, CloseReason::ConnectFailed(ErrorKind::ConnectionReset));
            self.kept = None;
        }
        false
    }

    fn frames(&self) -> u64 {
        (0..2).map(|at| self.station(at).echo.frames).sum()
    }
}

#[test]
fn a_connection_moves_a_hundred_times_under_traffic_and_no_byte_is_lost_or_doubled() {
    let mut refused = 0;
    for_seeds(10, |seed| {
        let mut journey = Journey::new(seed, Options::crumbs());
        while journey.moves < MOVES {
            assert!(journey.step(), "the connection ended");
        }
        let before = journey.frames();
        assert!(
            journey.world.run_until(60 * SECOND, |world| world
                .host(journey.client)
                .inner
                .conn()
                .is_some())
        );
        journey.world.run_for(10 * SECOND);
        assert!(journey.frames() > before + 10, "traffic stands still after the moves");
        assert_eq!(journey.world.host(journey.client).inner.losses, 0);
        refused += journey.refused;
    });
    assert!(refused > 0, "no freeze was refused: the world was too smooth");
}

#[test]
fn under_every_mixture_of_faults_a_move_keeps_the_bytes_right_or_ends_the_connection() {
    let (mut moves, mut failures, mut ends) = (0, 0, 0);
    for_seeds(60, |seed| {
        let mut options = Options::mixed(seed);
        options.connect_lost = 0.0;
        options.connect_refused = 0.0;
        options.give_up_ns = 5 * SECOND;
        let mut journey = Journey::new(seed, options);
        while journey.moves + journey.refused < MOVES && journey.step() {}
        moves += journey.moves;
        failures += journey.restore_failures;
        ends += u32::from(journey.moves + journey.refused < MOVES);
    });
    assert!(
        moves > 500 && failures > 0 && ends > 0,
        "{moves} moves, {failures} failures, {ends} ends"
    );
}

#[test]
fn the_same_seed_gives_the_same_moves() {
    let run = |seed| {
        let mut journey = Journey::new(seed, Options::crumbs());
        (0..20).for_each(|_| assert!(journey.step()));
        (journey.world.digest(), journey.moves, journey.refused)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

/// A silent client, a connection frozen at the first of two stations, and the second.
struct Scene {
    world: World,
    client: HostId<Checked<Script>>,
    out: ConnId,
    stations: [HostId<Checked<Station>>; 2],
}

impl Scene {
    fn new() -> Scene {
        Scene::with(Options::calm(), LoopOptions::default())
    }

    fn with(options: Options, loop_options: LoopOptions) -> Scene {
        let mut world = World::new(1, options);
        let stations = ["one", "two"].map(|name| {
            world.add_with(name, loop_options.clone(), Checked::new(Station::default()))
        });
        world.listen(stations[0], address());
        let client = world.add("client", Checked::new(Script::new()));
        let out = world.with(client, |_, io| io.connect(address(), SECOND));
        world.run_for(SECOND);
        Scene { world, client, out, stations }
    }

    fn freeze(&mut self) -> Option<Frozen> {
        self.world.with(self.stations[0], |station, io| station.inner.freeze(io));
        self.world.run_for(MILLISECOND);
        self.world.with(self.stations[0], |station, _| station.inner.frozen.take())
    }

    fn restore(&mut self, at: usize, frozen: Frozen) -> ConnId {
        let conn = self.world.with(self.stations[at], |_, io| io.restore(frozen));
        self.world.run_for(SECOND);
        conn
    }

    fn client_sends(&mut self, bytes: &[u8]) {
        let out = self.out;
        self.world.with(self.client, |_, io| io.output(out).extend_from_slice(bytes));
    }

    fn client(&self) -> &Script {
        &self.world.host(self.client).inner
    }

    fn station(&self, at: usize) -> &Station {
        &self.world.host(self.stations[at]).inner
    }
}

fn frame(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

#[test]
fn a_frozen_connection_that_is_dropped_is_missed_by_its_peer_only_when_time_runs_out() {
    let mut scene = Scene::new();
    drop(scene.freeze().unwrap());
    scene.client_sends(&frame(b"hello"));
    scene.world.run_for(59 * SECOND);
    assert_eq!(scene.client().closed(), []);
    scene.world.run_for(20 * SECOND);
    assert_eq!(scene.client().closed(), [CloseReason::Error(ErrorKind::TimedOut)]);
}

#[test]
fn bytes_that_arrive_during_a_move_are_there_after_the_restore() {
    let mut scene = Scene::new();
    let frozen = scene.freeze().unwrap();
    scene.client_sends(&frame(b"hello"));
    scene.world.run_for(10 * SECOND);
    assert_eq!(scene.client().bytes(), b"");
    scene.restore(1, frozen);
    assert_eq!(scene.client().bytes(), frame(b"hello"));
    assert_eq!(scene.station(1).echo.frames, 1);
    scene.world.run_for(100 * SECOND);
    assert_eq!(scene.client().closed(), [], "the time of silence is over");
}

#[test]
fn an_end_of_stream_that_arrives_while_a_connection_is_nowhere_comes_after_the_bytes() {
    let mut scene = Scene::new();
    let (frozen, out) = (scene.freeze().unwrap(), scene.out);
    scene.client_sends(&frame(b"last"));
    scene.world.with(scene.client, |_, io| io.close(out));
    scene.world.run_for(SECOND);
    scene.restore(1, frozen);
    assert_eq!(
        (scene.station(1).echo.frames, &*scene.station(1).closed),
        (1, &[CloseReason::Peer][..])
    );
}

#[test]
fn a_reset_that_arrives_while_a_connection_is_nowhere_is_found_out_by_the_restore() {
    let mut scene = Scene::new();
    let (frozen, out) = (scene.freeze().unwrap(), scene.out);
    scene.world.with(scene.client, |_, io| io.abort(out));
    scene.world.run_for(SECOND);
    scene.restore(1, frozen);
    assert_eq!(scene.station(1).closed.len(), 1);
    assert!(scene.station(1).conn.is_none());
}

#[test]
fn a_connection_has_one_end_only() {
    let mut scene = Scene::new();
    let frozen = scene.freeze().unwrap();
    scene.restore(1, frozen.clone());
    assert_eq!(scene.station(1).restored.len(), 1);
    scene.restore(0, frozen.clone());
    assert_eq!(scene.station(0).closed, [CloseReason::ConnectFailed(ErrorKind::AddrInUse)]);
    let moved_on = scene.world.with(scene.stations[1], |station, io| {
        io.output(station.inner.conn.unwrap()).extend_from_slice(b"more");
        station.inner.conn.unwrap()
    });
    scene.world.run_for(SECOND);
    scene.world.with(scene.stations[1], |_, io| io.freeze(moved_on));
    scene.world.run_for(SECOND);
    scene.restore(0, frozen);
    let old = CloseReason::ConnectFailed(ErrorKind::InvalidData);
    assert_eq!(
        scene.station(0).closed.last(),
        Some(&old),
        "a state from before the bytes that were sent since"
    );
}

#[test]
fn bytes_that_are_not_the_connections_own_are_refused() {
    let mut scene = Scene::new();
    scene.world.set_options(Options { latency_ns: SECOND..SECOND + 1, ..Options::calm() });
    scene.world.with(scene.stations[0], |station, io| {
        io.output(station.inner.conn.unwrap()).extend_from_slice(b"on its way");
    });
    let frozen = scene.freeze().unwrap();
    assert_eq!(frozen.unacknowledged, b"on its way");
    let spoilt = |spoil: &dyn Fn(&mut Frozen)| {
        let mut frozen = frozen.clone();
        spoil(&mut frozen);
        frozen
    };
    let cases = [
        spoilt(&|frozen| frozen.unacknowledged[3] ^= 1),
        spoilt(&|frozen| frozen.unacknowledged.truncate(9)),
        spoilt(&|frozen| frozen.unread.push(b'x')),
        spoilt(&|frozen| frozen.state.send_sequence = frozen.state.send_sequence.wrapping_add(1)),
    ];
    for spoilt in cases {
        scene.restore(1, spoilt);
        assert_eq!(
            scene.station(1).closed.last(),
            Some(&CloseReason::ConnectFailed(ErrorKind::InvalidData))
        );
    }
    scene.restore(1, frozen);
    scene.world.run_for(5 * SECOND);
    assert_eq!(scene.client().bytes(), b"on its way");
}

#[test]
fn output_written_before_the_notice_moves_too() {
    let mut scene = Scene::new();
    let conn = scene.station(0).conn.unwrap();
    scene.world.with(scene.stations[0], |_, io| {
        io.freeze(conn);
        io.output(conn).extend_from_slice(b"before the end of the turn, ");
    });
    scene.world.with(scene.stations[0], |_, io| {
        io.close(conn);
        io.output(conn).extend_from_slice(b"after it");
    });
    scene.world.run_for(MILLISECOND);
    let frozen =
        scene.world.with(scene.stations[0], |station, _| station.inner.frozen.take()).unwrap();
    assert_eq!(frozen.unsent, b"after it");
    scene.restore(1, frozen);
    assert_eq!(scene.client().bytes(), b"before the end of the turn, after it");
    assert_eq!(scene.world.io(scene.stations[0]).connections(), 0);
}

#[test]
fn consumed_unread_bytes_move_the_connection_past_them() {
    let mut scene = Scene::new();
    scene.client_sends(b"\0\0");
    scene.world.run_for(SECOND);
    let mut frozen = scene.freeze().unwrap();
    assert_eq!(frozen.take_unread(), b"\0\0");
    scene.client_sends(&frame(b"next"));
    scene.restore(1, frozen);
    assert_eq!(scene.client().bytes(), frame(b"next"));
}

#[test]
fn a_connection_closed_before_it_is_restored_is_closed_towards_its_peer() {
    for abort in [false, true] {
        let mut scene = Scene::new();
        let mut frozen = scene.freeze().unwrap();
        frozen.unsent = b"the rest".to_vec();
        scene.world.with(scene.stations[1], |_, io| {
            let conn = io.restore(frozen);
            io.output(conn).extend_from_slice(b" and the end");
            if abort {
                io.abort(conn)
            } else {
                io.close(conn)
            }
            assert!(!io.is_open(conn));
        });
        scene.world.run_for(10 * SECOND);
        let (bytes, reason) = if abort {
            (&b""[..], CloseReason::Reset)
        } else {
            (&b"the rest and the end"[..], CloseReason::Peer)
        };
        assert_eq!(
            (scene.client().bytes().as_slice(), scene.client().closed().as_slice()),
            (bytes, &[reason][..])
        );
        assert_eq!((scene.station(1).restored.len(), scene.station(1).closed.len()), (0, 0));
        assert_eq!(scene.world.io(scene.stations[1]).connections(), 0);
    }
}

#[test]
fn a_connection_that_its_peer_has_ended_is_not_frozen() {
    let mut scene = Scene::new();
    let (conn, out) = (scene.station(0).conn.unwrap(), scene.out);
    scene.world.with(scene.stations[0], |_, io| io.pause_reading(conn));
    scene.world.with(scene.client, |_, io| io.close(out));
    scene.world.run_for(SECOND);
    assert_eq!(scene.freeze(), None);
    assert_eq!(scene.station(0).not_frozen, [NotFrozen::NotEstablished]);
    assert_eq!(scene.station(0).conn, Some(conn), "it goes on");
}

#[test]
fn a_connection_with_long_queues_is_not_frozen_and_goes_on() {
    let limits = FrozenLimits { output_bytes_max: 1000, unread_bytes_max: 1000 };
    let mut scene = Scene::with(
        Options::calm(),
        LoopOptions { frozen_limits: limits, ..LoopOptions::default() },
    );
    let conn = scene.station(0).conn.unwrap();
    scene.world.with(scene.stations[0], |_, io| io.pause_reading(conn));
    let text = [b'x'; 1200];
    scene.client_sends(&frame(&text));
    scene.world.run_for(SECOND);
    assert_eq!(scene.freeze(), None);
    scene.world.with(scene.stations[0], |_, io| {
        io.resume_reading(conn);
        io.hold(conn, true);
    });
    scene.world.run_for(SECOND);
    assert_eq!(scene.freeze(), None);
    assert!(matches!(
        scene.station(0).not_frozen[..],
        [NotFrozen::TooLong(_), NotFrozen::TooLong(_)]
    ));
    scene.world.with(scene.stations[0], |_, io| io.hold(conn, false));
    scene.world.run_for(SECOND);
    assert_eq!(scene.client().bytes(), frame(&text));
}
