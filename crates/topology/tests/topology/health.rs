//! Selection of usable nodes, and times of retries.

use std::time::Duration;

use proptest::prelude::*;
use shunt_topology::health::Status;
use shunt_topology::{Backoff, Health, NodeId};

const NODE: NodeId = NodeId(3);
const BASE: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(10);
/// The longest delay: the ceiling (all but a nanosecond).
const LATEST: u64 = u64::MAX;
const MS: u64 = 1_000_000;

#[test]
fn delays_double_up_to_the_maximum_and_start_again_after_a_success() {
    let mut backoff = Backoff::new(BASE, MAX);
    let ceilings_ms: Vec<u128> =
        (0..9).map(|_| backoff.next(LATEST).as_nanos().div_ceil(u128::from(MS))).collect();
    assert_eq!(ceilings_ms, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    backoff.reset();
    assert_eq!(backoff.next(0), BASE / 2);
}

#[test]
fn a_node_is_usable_until_it_fails_and_again_when_its_time_has_come() {
    let mut health = Health::new(BASE, MAX);
    assert_eq!(health.status(NODE), Status::Usable);
    let until_ns = health.failed(NODE, 1_000, 0);
    assert_eq!(until_ns, 1_000 + 50 * MS);
    assert_eq!(health.status(NODE), Status::Waiting { until_ns });
    assert!(!health.is_usable(NODE, until_ns - 1));
    assert!(health.is_usable(NODE, until_ns));
    assert!(
        health.is_usable(NodeId(2), 0) && health.is_usable(NodeId(900), 0),
        "others are not touched"
    );
    health.link_opened(NODE);
    assert_eq!(health.status(NODE), Status::Usable);
}

#[test]
fn a_node_that_refuses_new_links_is_left_alone_although_old_ones_work() {
    let mut health = Health::new(BASE, MAX);
    health.link_opened(NODE);
    health.link_opened(NODE);
    let until_ns = health.failed(NODE, 0, 0);
    assert_eq!((until_ns, health.status(NODE)), (50 * MS, Status::Waiting { until_ns }));
    assert_eq!(health.failed(NODE, until_ns, 0), until_ns + 100 * MS);
}

#[test]
fn links_that_open_and_break_at_once_are_tried_ever_more_rarely() {
    let mut health = Health::new(BASE, MAX);
    let mut now_ns = 0;
    for expected_ms in [50, 100, 200] {
        health.link_opened(NODE);
        let until_ns = health.failed(NODE, now_ns, 0);
        assert_eq!(until_ns - now_ns, expected_ms * MS);
        now_ns = until_ns;
    }
    health.link_opened(NODE);
    health.link_lasted(NODE);
    assert_eq!(health.failed(NODE, now_ns, 0) - now_ns, 50 * MS);
}

#[test]
fn links_that_break_together_count_once() {
    let mut health = Health::new(BASE, MAX);
    (0..10).for_each(|_| health.link_opened(NODE));
    let until_ns = health.failed(NODE, 0, 0);
    (0..9).for_each(|_| assert_eq!(health.failed(NODE, 1, 0), until_ns));
    assert_eq!(
        health.failed(NODE, until_ns, 0),
        until_ns + 100 * MS,
        "the second delay, not the eleventh"
    );
}

#[test]
fn a_node_the_ring_says_is_up_is_tried_at_once() {
    let mut health = Health::new(BASE, MAX);
    let until_ns = health.failed(NODE, 0, 0);
    assert_eq!(health.status(NODE), Status::Waiting { until_ns });
    health.event_up(NODE);
    assert_eq!(health.status(NODE), Status::Usable);
    assert_eq!(health.failed(NODE, 0, 0), 50 * MS, "from the base again");
}

proptest! {
    #[test]
    fn a_delay_lies_in_the_upper_half_of_its_ceiling(
        base_ns in 1u64..1 << 40,
        max_ns in 1u64..1 << 50,
        randoms in prop::collection::vec(any::<u64>(), 1..80),
    ) {
        let mut backoff = Backoff::new(Duration::from_nanos(base_ns), Duration::from_nanos(max_ns));
        for (attempt, random) in randoms.into_iter().enumerate() {
            let doubled = if attempt < 30 { u128::from(base_ns) << attempt } else { u128::MAX };
            let ceiling = doubled.min(u128::from(max_ns));
            let delay = backoff.next(random).as_nanos();
            if attempt < 30 {
                prop_assert!(delay >= ceiling / 2 && delay <= ceiling, "{} of {}", delay, ceiling);
            }
            prop_assert!(delay <= u128::from(max_ns));
        }
    }
}
