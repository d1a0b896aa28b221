//! What a member tells its operator.

use super::Member;
use crate::answer::{FleetRow, Outcome};
use crate::config::Config;
use crate::ids::{Incarnation, Shards, View};
use crate::output::{Alarm, Output, StatementId};
use crate::statement::{Level, Statement};

fn row(ts_floor_us: i64) -> FleetRow {
    FleetRow {
        format: 1,
        level: Level::Serial,
        datacentre: String::new(),
        max_ttl_ms: 30_000,
        lease_ms: 6_000,
        epoch: 1,
        view: View::default(),
        ts_floor_us,
        handed_over: Shards::ALL,
    }
}

fn alarms_of(ts_floor_us: i64, wall_us: i64) -> Vec<Alarm> {
    let mut member = Member::new(Config::new("main", "10.0.0.1:9042"), Incarnation([1; 16])).expect("settings");
    let mut outputs = Vec::new();
    member.start(0, wall_us, &mut outputs);
    let asked = |output: &Output| match output {
        Output::Send { id, statement: Statement::ReadFleet { .. }, .. } => Some(*id),
        _ => None,
    };
    let id: StatementId = outputs.iter().find_map(asked).expect("the fleet is read first");
    member.outcome(id, Outcome::Fleet(Some(Box::new(row(ts_floor_us)))), 1, wall_us, &mut outputs);
    (2..9).for_each(|now_ns| member.tick(now_ns, wall_us, &mut outputs));
    let alarm = |output| match output {
        Output::Alarm(alarm) => Some(alarm),
        _ => None,
    };
    outputs.into_iter().filter_map(alarm).collect()
}

/// A member's clock was a year ahead: the fences of all are from now on, and nothing else would say so.
#[test]
fn fences_far_ahead_of_the_clock_are_told_once() {
    const HOUR_US: i64 = 3_600_000_000;
    let wall_us = 500_000 * HOUR_US;
    assert_eq!(alarms_of(wall_us + HOUR_US, wall_us), []);
    let year_us = 8_760 * HOUR_US;
    assert_eq!(alarms_of(wall_us + year_us, wall_us), [Alarm::FencesAhead(year_us)]);
    assert_eq!(alarms_of(wall_us, wall_us - year_us), [Alarm::FencesAhead(year_us)], "or this clock is behind");
}
