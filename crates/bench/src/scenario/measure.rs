//! One measurement: `shunt bench load` against an arm at a point, and the figures from its report.

use std::{collections::BTreeMap, io, process::Command, time::Duration};

use serde_json::Value;

use super::{
    check,
    child::{self, Stop},
    file::{Arm, Figure, Point, Scenario},
    measured,
    outcome::Outcome,
    plan::Slot,
    record::Measurement,
    servers::{Running, Surroundings},
};

/// The figure that relative rates refer to, whatever figures a scenario has.
const RATE: &str = "rate_per_s";

/// Measures one arm at one point.
///
/// # Errors
/// The load could not run, or got wrong answers or errors, which make its figures worthless.
pub(super) fn measure(
    around: &Surroundings,
    stop: &Stop,
    servers: &[Running],
    scenario: &Scenario,
    slot: &Slot<'_>,
    outcome: &Outcome<'_>,
    seed: u64,
) -> io::Result<Measurement> {
    let Slot { round, arm, point } = *slot;
    let arguments = check::load_arguments(scenario, arm, point);
    let mut command = load(around, servers, scenario, arm, arguments)?;
    let seconds = |value: f64| value.max(0.0).to_string();
    command.args([
        "--warm-up",
        &seconds(scenario.warm_up),
        "--duration",
        &seconds(scenario.duration),
    ]);
    command.args(["--seed", &seed.to_string()]);
    if let Some(rate) = &point.rate {
        let of = rate.arm.as_deref().unwrap_or(&arm.name);
        let found = outcome.median(of, &rate.point, RATE).ok_or_else(|| {
            io::Error::other(format!("no rate of {of} at {} was measured before", rate.point))
        })?;
        command.args(["--rate", &(rate.share * found).to_string()]);
    }
    let report = report_of(&mut command, stop)?;
    let mut figures =
        BTreeMap::from([(RATE.to_owned(), number(&report, "rate").unwrap_or(f64::NAN))]);
    for figure in &scenario.figures {
        if let Some(value) = value(figure, &report, servers, arm) {
            figures.insert(figure.name.clone(), value);
        }
    }
    figures.retain(|_, value| value.is_finite());
    Ok(Measurement {
        scenario: scenario.name.clone(),
        arm: arm.name.clone(),
        point: point.label.clone(),
        x: point.x,
        round,
        figures,
        detail: report,
    })
}

/// Runs a load before the first round, for servers that get faster with use. It also creates the
/// table.
pub(super) fn warm_up(
    around: &Surroundings,
    stop: &Stop,
    servers: &[Running],
    scenario: &Scenario,
    arm: &Arm,
    point: &Point,
    time: Duration,
) -> io::Result<()> {
    let mut command =
        load(around, servers, scenario, arm, check::prepare_arguments(scenario, arm, point))?;
    command.args(["--warm-up", "0", "--duration", &time.as_secs_f64().to_string()]);
    report_of(&mut command, stop).map(|_| ())
}

fn load(
    around: &Surroundings,
    servers: &[Running],
    scenario: &Scenario,
    arm: &Arm,
    arguments: Result<Vec<String>, String>,
) -> io::Result<Command> {
    let target = servers.iter().find(|server| server.name == arm.target);
    let target = target.ok_or_else(|| io::Error::other(format!("{} does not run", arm.target)))?;
    let mut command = Command::new(&around.bench);
    command.args(["bench", "load", "--json"]);
    for address in &target.addresses {
        command.args(["--target", &address.to_string()]);
    }
    command
        .args(arguments.map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?);
    for pid in measured(servers, &arm.measure).flat_map(Running::pids) {
        command.args(["--pid", &pid.to_string()]);
    }
    if let Some(authority) = &target.authority {
        command.arg("--tls-ca").arg(authority);
    }
    if let Some(admin) = target.admin {
        command.args(["--proxy-admin", &admin.to_string()]);
    }
    // The nodes' own count: that of the stub that the arm ends at, behind a proxy or not.
    if let Some(statistics) = target.statistics.or_else(|| behind(scenario, servers, &arm.target)) {
        command.args(["--stub-statistics", &statistics.to_string()]);
    }
    Ok(command)
}

/// Returns the statistics address of the stub behind a proxy.
fn behind(scenario: &Scenario, servers: &[Running], target: &str) -> Option<std::net::SocketAddr> {
    let of = scenario.servers.iter().find(|server| server.name == target)?.of.as_deref()?;
    servers.iter().find(|server| server.name == of)?.statistics
}

/// Runs the load and reads its single report.
fn report_of(command: &mut Command, stop: &Stop) -> io::Result<Value> {
    let mut report = None;
    let ended = child::run(command, stop, |line| {
        report = Some(serde_json::from_str::<Value>(line)?);
        Ok(())
    })?;
    let report = match (ended.code, report) {
        (Some(0), Some(report)) => report,
        (Some(2), Some(_)) => return Err(io::Error::other("some answers were wrong")),
        _ => return Err(io::Error::other(format!("the load did not run: {}", ended.complaint))),
    };
    if let Some(share) = number(&report, "error_share").filter(|share| *share > 0.0) {
        let errors = report.get("errors").map(Value::to_string).unwrap_or_default();
        return Err(io::Error::other(format!(
            "{:.2} % of the answers were errors: {errors}",
            share * 100.0
        )));
    }
    let count = |name| number(&report, name).unwrap_or(0.0);
    let (connections, queries) = (count("connections_lost"), count("queries_lost"));
    if connections + queries > 0.0 {
        let problem =
            format!("{connections} connections were lost, {queries} queries had no answer");
        return Err(io::Error::other(problem));
    }
    Ok(report)
}

/// Returns the arrivals of an open loop that no latency includes, because they still waited when
/// the round ended or were dropped, if they exceed one in a hundred. The 99th percentile then
/// excludes them.
pub(super) fn left_out(report: &Value) -> Option<u64> {
    let count = |name| report.get(name).and_then(Value::as_u64).unwrap_or(0);
    let left_out = count("waiting") + count("shed");
    (left_out > count("queries") / 100).then_some(left_out)
}

/// Returns a figure of an arm from the load's report.
fn value(figure: &Figure, report: &Value, servers: &[Running], arm: &Arm) -> Option<f64> {
    match figure.from.as_deref().unwrap_or(&figure.name) {
        "cpu" => sum(report, servers, arm, "cpu_us_per_query"),
        "memory" => sum(report, servers, arm, "resident_bytes"),
        path => number(report, path),
    }
}

/// Returns the sum of a number over all measured processes.
fn sum(report: &Value, servers: &[Running], arm: &Arm, field: &str) -> Option<f64> {
    let pids: Vec<u32> = measured(servers, &arm.measure).flat_map(Running::pids).collect();
    let processes = report.get("processes")?.as_array()?;
    let of = |pid: &u32| {
        let found = processes
            .iter()
            .find(|process| process.get("pid").and_then(Value::as_u64) == Some(u64::from(*pid)));
        found?.get(field)?.as_f64()
    };
    // A missing process would make the sum wrong.
    pids.iter().map(of).sum::<Option<f64>>().filter(|_| !pids.is_empty())
}

/// Returns the number at a path of names joined by dots.
fn number(report: &Value, path: &str) -> Option<f64> {
    path.split('.').try_fold(report, |value, name| value.get(name))?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::{left_out, number};

    #[test]
    fn a_rate_that_was_not_kept_is_seen() {
        let report =
            |waiting, shed| serde_json::json!({"queries": 1000, "waiting": waiting, "shed": shed});
        assert_eq!((left_out(&report(10, 0)), left_out(&report(8, 3))), (None, Some(11)));
        assert_eq!(left_out(&serde_json::json!({"queries": 0})), None);
    }

    #[test]
    fn numbers_by_path() {
        let report = serde_json::json!({"rate": 5, "latency_us": {"p99": 1.5}, "nodes": {"connections": null}});
        assert_eq!(
            (number(&report, "rate"), number(&report, "latency_us.p99")),
            (Some(5.0), Some(1.5))
        );
        assert_eq!((number(&report, "nodes.connections"), number(&report, "x.y")), (None, None));
    }
}
