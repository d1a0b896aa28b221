//! Load generator and stub as hosts of the simulated world: every answer is checked, for any
//! behaviour of the network.

use crate::talk::addresses;
use shunt_bench::load::{Load, LoadOptions, Phase, template::Layout};
use shunt_bench::stub::{Ring, Stub, StubOptions};
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND, World, for_seeds};
use shunt_wire::cql::compression::Algorithm;

fn world(seed: u64, network: Options, load: LoadOptions) -> (World, HostId<Load>, HostId<Stub>) {
    let mut world = World::new(seed, network);
    let ring = addresses(3);
    let options =
        StubOptions { memory: Some(Default::default()), ..StubOptions::new(Ring::even(&ring, 2)) };
    let stub = world.add("stub", Stub::new(options));
    for &address in &ring {
        world.listen(stub, address);
    }
    let load = LoadOptions { targets: ring, stops_loop: false, verify: true, ..load };
    let load = world.add("load", Load::new(load, Box::new(|_| {})));
    (world, load, stub)
}

fn small(version: u8, compression: Option<Algorithm>) -> LoadOptions {
    LoadOptions {
        connections: 5,
        outstanding: 3,
        keys: 20,
        layout: Layout { version, consistency: 1, key_bytes: 16, value_bytes: 40 },
        compression,
        warm_up_ns: 100 * MILLISECOND,
        duration_ns: 400 * MILLISECOND,
        ..LoadOptions::default()
    }
}

fn finished(world: &mut World, load: HostId<Load>) -> bool {
    world.run_until(200 * SECOND, |world| world.host(load).phase() == Phase::Done)
}

#[test]
fn closed_loop_in_all_framings_over_a_crumbling_network() {
    for_seeds(12, |seed| {
        let (version, compression) = [
            (3, None),
            (4, Some(Algorithm::Lz4)),
            (4, Some(Algorithm::Snappy)),
            (5, None),
            (5, Some(Algorithm::Lz4)),
            (4, None),
        ][seed as usize % 6];
        let (mut world, load, stub) = world(seed, Options::crumbs(), small(version, compression));
        assert!(finished(&mut world, load));
        let service = world.host(load);
        assert_eq!(service.failure(), None);
        let counts = service.counts();
        assert!(
            counts.is_sound() && counts.errors.is_empty() && counts.connections_lost == 0,
            "{counts:?}"
        );
        assert!(counts.selects > 0 && counts.answered > counts.selects, "{counts:?}");
        assert_eq!(world.host(stub).counts().queries, counts.answered);
        assert_eq!(service.rounds().len(), 1);
    });
}

#[test]
fn open_loop_keeps_its_rate() {
    let options = LoadOptions {
        rate: Some(2000.0),
        outstanding: 64,
        duration_ns: 4 * SECOND,
        ..small(4, None)
    };
    let (mut world, load, _) = world(1, Options::calm(), options);
    assert!(finished(&mut world, load));
    let round = &world.host(load).rounds()[0];
    assert!((7600..8400).contains(&round.counts.answered), "{}", round.counts.answered);
}

#[test]
fn arrivals_dropped_in_the_warm_up_are_not_those_of_the_round() {
    // Two million arrivals come in the warm-up, of which about one million may wait; 400,000 come
    // in the round.
    let options =
        LoadOptions { rate: Some(20e6), connections: 1, outstanding: 1, ..small(4, None) };
    let options = LoadOptions { duration_ns: 20 * MILLISECOND, ..options };
    let (mut world, load, _) = world(1, Options::calm(), options);
    assert!(finished(&mut world, load));
    let counts = &world.host(load).rounds()[0].counts;
    assert!((300_000..500_000).contains(&counts.shed), "{counts:?}");
    assert!(counts.waiting > 1_000_000, "{counts:?}");
}

#[test]
fn populating_writes_every_key_once() {
    let options =
        LoadOptions { populate: true, reads: 1.0, keys: 200, create: Some(1), ..small(5, None) };
    let (mut world, load, _) = world(2, Options::crumbs(), options);
    assert!(finished(&mut world, load));
    let counts = world.host(load).counts();
    assert_eq!(
        (counts.answered - counts.selects, counts.not_found, counts.wrong_values),
        (200, 0, 0)
    );
}

#[test]
fn lost_connections_are_counted_and_made_again() {
    for_seeds(20, |seed| {
        let network = Options { half_open: 0.0, connect_lost: 0.0, ..Options::rough() };
        let options = LoadOptions { duration_ns: 3 * SECOND, ..small(4, None) };
        let (mut world, load, _) = world(seed, network, options);
        let done = finished(&mut world, load);
        let service = world.host(load);
        assert!(done, "{:?} {:?}", service.phase(), service.counts());
        assert!(service.counts().is_sound(), "{:?}", service.counts());
    });
}

#[test]
fn a_ring_that_is_not_there_ends_the_run_with_a_reason() {
    let mut world = World::new(1, Options::calm());
    let options = LoadOptions { targets: addresses(1), stops_loop: false, ..small(4, None) };
    let load = world.add("load", Load::new(options, Box::new(|_| {})));
    assert!(finished(&mut world, load));
    assert!(
        world
            .host(load)
            .failure()
            .is_some_and(|why| why.contains("no usable connection to 10.9.9.1:9042"))
    );
}
