//! The order of measurements, with arms side by side in random order, and their total duration.

use std::collections::BTreeMap;

use super::file::{Arm, Point, Scenario, ServerKind};
use crate::random::Random;

/// One measurement to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'s> {
    pub(super) round: u32,
    pub(super) arm: &'s Arm,
    pub(super) point: &'s Point,
}

/// Seconds that connecting, preparing and draining add to a measurement.
const AROUND_EACH: f64 = 0.3;
/// Seconds until a ring serves.
const RING_STARTS: f64 = 60.0;

/// Returns all measurements, round after round. In a round the points are in random order, except
/// that a point comes after those that its rate refers to. At each point the arms are in random
/// order, so that compared arms are measured close together.
pub(super) fn slots<'s>(
    scenario: &'s Scenario,
    missing: &BTreeMap<String, String>,
    random: &mut Random,
) -> Vec<Slot<'s>> {
    let mut slots = Vec::new();
    for round in 0..scenario.rounds {
        let mut points: Vec<&Point> = scenario.points.iter().collect();
        random.shuffle(&mut points);
        points.sort_by_key(|point| scenario.bases(point).count());
        for point in points {
            let mut arms: Vec<&Arm> =
                scenario.arms.iter().filter(|arm| is_measured(arm, point, missing)).collect();
            random.shuffle(&mut arms);
            slots.extend(arms.into_iter().map(|arm| Slot { round, arm, point }));
        }
    }
    slots
}

fn is_measured(arm: &Arm, point: &Point, missing: &BTreeMap<String, String>) -> bool {
    !missing.contains_key(&arm.name)
        && !arm.skip.contains(&point.label)
        && needs_missing(point, missing).is_none()
}

/// Returns the missing arm whose rate this point's rate refers to.
pub(super) fn needs_missing<'p>(
    point: &'p Point,
    missing: &BTreeMap<String, String>,
) -> Option<&'p str> {
    let arm = point.rate.as_ref()?.arm.as_deref()?;
    missing.contains_key(arm).then_some(arm)
}

/// Returns each arm once, at its first point with an absolute rate.
pub(super) fn warm_up<'s>(
    scenario: &'s Scenario,
    missing: &BTreeMap<String, String>,
) -> Vec<(&'s Arm, &'s Point)> {
    let first = |arm: &'s Arm| {
        let point = scenario
            .points
            .iter()
            .find(|point| point.rate.is_none() && is_measured(arm, point, missing));
        point.map(|point| (arm, point))
    };
    scenario.arms.iter().filter_map(first).collect()
}

/// Returns the approximate duration of a scenario.
pub(super) fn seconds(scenario: &Scenario) -> f64 {
    if let Some(program) = &scenario.program {
        return program.seconds;
    }
    let count = slots(scenario, &BTreeMap::new(), &mut Random::new(1)).len() as f64;
    let rings =
        scenario.servers.iter().filter(|server| server.kind == ServerKind::Cassandra).count()
            as f64;
    let warm_up = scenario.warm_up_once * scenario.arms.len() as f64;
    count * (scenario.duration + scenario.warm_up + AROUND_EACH)
        + rings * RING_STARTS
        + warm_up
        + scenario.servers.len() as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{needs_missing, slots, warm_up};
    use crate::{random::Random, scenario::file::Scenario};

    const SCENARIO: &str = r#"
        name = "s"
        title = "t"
        question = "q"
        setup = "s"
        rounds = 3
        axis = { title = "connections", scale = "log" }
        servers = [{ name = "ring", kind = "stub" }]
        arms = [{ name = "a", title = "A", target = "ring" }, { name = "b", title = "B", target = "ring", skip = ["1"] },
                { name = "c", title = "C", target = "ring" }]
        points = [{ label = "half", rate = { share = 0.5, point = "1" } }, { label = "1" }, { label = "2" }]
        figures = [{ name = "f", title = "F", unit = "us", from = "cpu" }]
    "#;

    #[test]
    fn a_round_measures_each_once_and_a_rate_after_its_base() {
        let scenario = Scenario::parse(SCENARIO).expect("valid");
        let missing = BTreeMap::from([("c".to_owned(), "not installed".to_owned())]);
        let slots = slots(&scenario, &missing, &mut Random::new(3));
        assert_eq!(slots.len(), 3 * (2 + 1 + 2));
        for round in 0..3 {
            let of_round: Vec<_> = slots.iter().filter(|slot| slot.round == round).collect();
            let seen: std::collections::BTreeSet<_> = of_round
                .iter()
                .map(|slot| (slot.arm.name.as_str(), slot.point.label.as_str()))
                .collect();
            assert_eq!(seen.len(), 5, "each once");
            let half =
                of_round.iter().position(|slot| slot.point.label == "half").expect("measured");
            assert!(of_round[half..].iter().all(|slot| slot.point.label == "half"));
            assert!(!seen.contains(&("b", "1")) && seen.iter().all(|(arm, _)| *arm != "c"));
        }
    }

    #[test]
    fn a_share_of_a_share_comes_after_it() {
        let text = SCENARIO.replace(
            "points = [",
            "points = [{ label = \"quarter\", rate = { share = 0.5, point = \"half\" } }, ",
        );
        let scenario = Scenario::parse(&text).expect("valid");
        for seed in 1..20 {
            let slots = slots(&scenario, &BTreeMap::new(), &mut Random::new(seed));
            let first =
                |label| slots.iter().position(|slot| slot.point.label == label).expect("measured");
            assert!(first("1") < first("half") && first("half") < first("quarter"));
        }
    }

    #[test]
    fn a_share_of_what_a_missing_arm_reaches_is_left_out() {
        let text = SCENARIO.replace(r#"point = "1" }"#, r#"point = "1", arm = "c" }"#);
        let scenario = Scenario::parse(&text).expect("valid");
        let missing = BTreeMap::from([("c".to_owned(), "not installed".to_owned())]);
        assert_eq!(needs_missing(&scenario.points[0], &missing), Some("c"));
        let slots = slots(&scenario, &missing, &mut Random::new(3));
        assert!(slots.len() == 3 * (1 + 2) && slots.iter().all(|slot| slot.point.label != "half"));
    }

    #[test]
    fn warm_up_takes_a_point_that_the_arm_has() {
        let scenario = Scenario::parse(SCENARIO).expect("valid");
        let all = warm_up(&scenario, &BTreeMap::new());
        let labels: Vec<_> =
            all.iter().map(|(arm, point)| (arm.name.as_str(), point.label.as_str())).collect();
        assert_eq!(labels, [("a", "1"), ("b", "2"), ("c", "1")]);
    }
}
