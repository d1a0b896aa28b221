//! In steady state, a query costs the load generator no allocation, for any operation, distribution
//! and route to the nodes.

use allocation_counter::measure;
use shunt_bench::load::{Distribution, Load, LoadOptions, Mix, Phase, template::Layout};
use shunt_bench::stub::{Ring, Stub, StubOptions};
use shunt_reactor::sim::{Options, SECOND, World};
use shunt_testing::Watched;

/// Most windows until steady state. Buffers and queues grow to their size, often at first and then
/// ever more rarely; steady state is a whole window without an allocation.
const WINDOWS_MAX: usize = 8;
const WINDOW_NS: u64 = SECOND / 40;
/// Fewest answers that make a window meaningful.
const ANSWERS_MIN: u64 = 200;

fn assert_no_allocation(what: &str, change: impl FnOnce(&mut LoadOptions)) {
    let mut world = World::new(1, Options::calm());
    let ring: Vec<_> = (1..=3u8).map(|last| ([10, 9, 9, last], 9042).into()).collect();
    let stub = world.add("stub", Stub::new(StubOptions::new(Ring::even(&ring, 2))));
    for &address in &ring {
        world.listen(stub, address);
    }
    let mut options = LoadOptions {
        targets: ring,
        connections: 6,
        outstanding: 4,
        keys: 500,
        multiget: 5,
        layout: Layout { version: 4, consistency: 1, key_bytes: 16, value_bytes: 40 },
        warm_up_ns: WINDOW_NS,
        duration_ns: 1000 * SECOND,
        stops_loop: false,
        ..LoadOptions::default()
    };
    change(&mut options);
    let load = Load::new(options, Box::new(|_| {}));
    let watched = world.add("load", Watched::new(load, |call| measure(call).count_total));
    world.run_for(3 * WINDOW_NS);
    assert_eq!(world.host(watched).service.phase(), Phase::Round(0), "{what}");
    let mut found = Vec::new();
    for _ in 0..WINDOWS_MAX {
        let answered = world.host(watched).service.counts().answered;
        world.with(watched, |watched, _| (watched.counting, watched.allocations) = (true, 0));
        world.run_for(WINDOW_NS);
        let host = world.host(watched);
        assert!(
            host.service.counts().answered - answered > ANSWERS_MIN
                && host.service.counts().is_sound(),
            "{what}"
        );
        if host.allocations == 0 {
            return;
        }
        found.push(host.allocations);
    }
    panic!("{what}: {found:?} allocations in windows of 25 ms");
}

#[test]
fn a_query_allocates_nothing() {
    let all: Mix =
        "read=0.2,update=0.2,insert=0.1,rmw=0.2,scan=0.1,multiget=0.2".parse().expect("a mix");
    assert_no_allocation("reads and updates", |_| {});
    assert_no_allocation("all operations", |options| options.mix = Some(all));
    assert_no_allocation("churn", |options| {
        options.distribution = Distribution::Churn { exponent: 0.99, period_ns: WINDOW_NS / 10 };
    });
    assert_no_allocation("latest, token-aware", |options| {
        options.mix = Some(all);
        options.distribution = Distribution::Latest { exponent: 0.99 };
        options.token_aware = true;
    });
    assert_no_allocation("an open loop, token-aware", |options| {
        options.mix = Some(all);
        options.rate = Some(20_000.0);
        options.token_aware = true;
    });
}
