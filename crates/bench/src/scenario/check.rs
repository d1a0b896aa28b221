//! Checks that a scenario is complete: each name in it is defined, and `shunt bench load` accepts
//! each load.

use std::collections::BTreeSet;

use clap::Parser;

use super::file::{Arguments, Arm, BASES_MAX, Point, Scenario, Server, ServerKind};
use crate::{
    load::{LoadArgs, LoadOptions},
    measure::statistics::Wanted,
};

/// The command line of `shunt bench load` alone, to check arguments.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct LoadCommand {
    #[command(flatten)]
    args: LoadArgs,
}

pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    names(scenario)?;
    servers(&scenario.servers)?;
    let figures: BTreeSet<&str> =
        scenario.figures.iter().map(|figure| figure.name.as_str()).collect();
    let named = scenario.comparisons.iter().map(|comparison| &comparison.figure);
    let named = named.chain(scenario.claims.iter().map(|claim| &claim.figure));
    for figure in named.chain(scenario.plots.iter().map(|plot| &plot.figure)) {
        known(figures.contains(figure.as_str()), "figure", figure)?;
    }
    let in_comparisons = scenario
        .comparisons
        .iter()
        .flat_map(|comparison| comparison.arms.iter().chain([&comparison.base]));
    let in_claims = scenario.claims.iter().flat_map(|claim| claim.base.iter().chain([&claim.arm]));
    for arm in in_comparisons.chain(in_claims) {
        known(scenario.arm(arm).is_some(), "arm", arm)?;
    }
    for claim in &scenario.claims {
        Wanted::parse(&claim.wanted)?;
        if scenario.program.is_none() {
            known(
                scenario.points.iter().any(|point| point.label == claim.point),
                "point",
                &claim.point,
            )?;
        }
    }
    if scenario.program.is_none() { loads(scenario) } else { Ok(()) }
}

fn names(scenario: &Scenario) -> Result<(), String> {
    let plain = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if !plain(&scenario.name) {
        return Err(format!("'{}' is not a plain name (letters, digits, - _ .)", scenario.name));
    }
    unique("arm", scenario.arms.iter().map(|arm| arm.name.as_str()))?;
    unique("point", scenario.points.iter().map(|point| point.label.as_str()))?;
    unique("figure", scenario.figures.iter().map(|figure| figure.name.as_str()))?;
    unique("server", scenario.servers.iter().map(|server| server.name.as_str()))?;
    if scenario.program.is_none() && scenario.points.is_empty() {
        return Err("there are no [[points]]".into());
    }
    if !(scenario.duration > 0.0
        && scenario.warm_up >= 0.0
        && (1..=1000).contains(&scenario.rounds))
    {
        return Err("rounds is 1 to 1000, duration above 0, warm_up not below 0".into());
    }
    Ok(())
}

fn servers(servers: &[Server]) -> Result<(), String> {
    for (position, server) in servers.iter().enumerate() {
        if server.base && !matches!(server.kind, ServerKind::Proxy | ServerKind::Node) {
            return Err(format!(
                "server {}: `base` is for the kinds `proxy` and `node`",
                server.name
            ));
        }
        if server.tls && !has_tls(server.kind) {
            return Err(format!(
                "server {}: only a stub, a proxy or HAProxy can have `tls`",
                server.name
            ));
        }
        let behind = match (&server.of, server.kind) {
            (Some(of), ServerKind::Proxy | ServerKind::Haproxy | ServerKind::Other) => of,
            (None, ServerKind::Proxy | ServerKind::Haproxy | ServerKind::Other) => {
                return Err(format!(
                    "server {}: a proxy needs `of`, the server behind it",
                    server.name
                ));
            }
            (Some(_), _) => return Err(format!("server {}: only a proxy has `of`", server.name)),
            (None, _) => continue,
        };
        if server.command.is_empty() == (server.kind == ServerKind::Other) {
            return Err(format!(
                "server {}: `command` is for the kind `other`, which needs it",
                server.name
            ));
        }
        let Some(behind) = servers[..position].iter().find(|earlier| earlier.name == *behind)
        else {
            return Err(format!(
                "server {}: `of = \"{behind}\"` is no server above it",
                server.name
            ));
        };
        if behind.tls && !has_tls(server.kind) {
            return Err(format!(
                "server {}: this kind cannot connect to {} with TLS",
                server.name, behind.name
            ));
        }
    }
    Ok(())
}

/// True if a scenario can have TLS with servers of this kind, and from them to those behind.
fn has_tls(kind: ServerKind) -> bool {
    matches!(kind, ServerKind::Stub | ServerKind::Proxy | ServerKind::Haproxy)
}

fn loads(scenario: &Scenario) -> Result<(), String> {
    for arm in &scenario.arms {
        for server in arm.measure.iter().chain([&arm.target]) {
            known(scenario.servers.iter().any(|found| found.name == *server), "server", server)?;
        }
        for label in &arm.skip {
            known(scenario.points.iter().any(|point| point.label == *label), "point", label)?;
        }
        for point in &scenario.points {
            load_arguments(scenario, arm, point)
                .and_then(|arguments| try_load(&arguments))
                .and_then(|()| prepare_arguments(scenario, arm, point))
                .and_then(|arguments| try_load(&arguments))
                .map_err(|problem| format!("arm {}, point {}: {problem}", arm.name, point.label))?;
        }
    }
    for point in &scenario.points {
        let Some(rate) = &point.rate else { continue };
        let bases: Vec<_> = scenario.bases(point).collect();
        let found =
            bases.len() <= BASES_MAX && bases.last().is_some_and(|last| last.rate.is_none());
        // A base point whose rate refers to an arm might not be measured.
        let own = bases.iter().all(|base| base.rate.as_ref().is_none_or(|rate| rate.arm.is_none()));
        known(found && own, "point whose rate is found first", &rate.point)?;
        if let Some(arm) = &rate.arm {
            known(scenario.arm(arm).is_some(), "arm", arm)?;
        }
    }
    Ok(())
}

/// Checks that `shunt bench load` takes these arguments.
fn try_load(arguments: &[String]) -> Result<(), String> {
    let parsed =
        LoadCommand::try_parse_from(arguments).map_err(|error| error.render().to_string())?;
    LoadOptions::from_args(&parsed.args).map(|_| ())
}

/// Returns the arguments of `shunt bench load` for an arm at a point: the scenario's, then the
/// arm's, then the point's.
pub(super) fn load_arguments(
    scenario: &Scenario,
    arm: &Arm,
    point: &Point,
) -> Result<Vec<String>, String> {
    merged(scenario.load.clone(), arm, point)
}

/// Returns the arguments for an arm's first load.
pub(super) fn prepare_arguments(
    scenario: &Scenario,
    arm: &Arm,
    point: &Point,
) -> Result<Vec<String>, String> {
    let mut base = scenario.load.clone();
    base.extend(scenario.prepare.clone());
    merged(base, arm, point)
}

fn merged(mut merged: Arguments, arm: &Arm, point: &Point) -> Result<Vec<String>, String> {
    merged.extend(arm.load.clone());
    merged.extend(point.load.clone());
    to_arguments(&merged)
}

fn to_arguments(table: &Arguments) -> Result<Vec<String>, String> {
    let mut arguments = Vec::new();
    for (name, value) in table {
        let text = match value {
            toml::Value::Boolean(false) => continue,
            toml::Value::Boolean(true) => None,
            toml::Value::String(text) => Some(text.clone()),
            toml::Value::Integer(number) => Some(number.to_string()),
            toml::Value::Float(number) => Some(number.to_string()),
            other => return Err(format!("{name} = {other} is neither number, text nor true")),
        };
        arguments.push(format!("--{}", name.replace('_', "-")));
        arguments.extend(text);
    }
    Ok(arguments)
}

fn known(is_known: bool, what: &str, name: &str) -> Result<(), String> {
    if is_known { Ok(()) } else { Err(format!("there is no {what} '{name}'")) }
}

fn unique<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("there are two {what}s '{name}'"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::scenario::file::Scenario;

    const SMALL: &str = r#"
        name = "small"
        title = "t"
        question = "q"
        setup = "s"
        axis = { title = "connections", scale = "log" }
        load = { keys = 100, reads = 0.5 }
        servers = [{ name = "ring", kind = "stub" }, { name = "shunt", kind = "proxy", of = "ring" }]
        arms = [{ name = "direct", title = "d", target = "ring", measure = ["ring"] },
                { name = "proxy", title = "p", target = "shunt", measure = ["shunt"], load = { verify = true } }]
        points = [{ label = "1", x = 1, load = { connections = 1 } },
                  { label = "half", rate = { share = 0.5, point = "1" } }]
        figures = [{ name = "cpu_us", title = "CPU", unit = "us", from = "cpu" }]
        comparisons = [{ figure = "cpu_us", base = "direct", arms = ["proxy"] }]
        claims = [{ text = "t", figure = "cpu_us", arm = "proxy", base = "direct", point = "1", wanted = "< 1.5" }]
    "#;

    #[test]
    fn a_whole_scenario_is_taken() {
        let scenario = Scenario::parse(SMALL).expect("valid");
        let arguments = super::load_arguments(&scenario, &scenario.arms[1], &scenario.points[0])
            .expect("valid");
        assert_eq!(
            arguments,
            ["--connections", "1", "--keys", "100", "--reads", "0.5", "--verify"]
        );
    }

    #[test]
    fn the_short_form_keeps_the_points_that_rates_are_taken_from() {
        let text = SMALL.replacen(
            "points = [",
            "smoke = { points = [\"half\"] }\npoints = [{ label = \"2\" }, ",
            1,
        );
        let smoke = Scenario::parse(&text).expect("valid").smoke();
        let labels: Vec<&str> = smoke.points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!((labels, smoke.rounds), (vec!["1", "half"], 1));
    }

    #[test]
    fn a_rate_may_be_a_share_of_one_that_is_a_share() {
        let points = [("quarter", "half"), ("eighth", "quarter")].map(|(label, base)| {
            format!("{{ label = \"{label}\", rate = {{ share = 0.5, point = \"{base}\" }} }}, ")
        });
        let with = |points: &str| {
            SMALL.replacen(
                "points = [",
                &format!("smoke = {{ points = [\"quarter\"] }}\npoints = [{points}"),
                1,
            )
        };
        let smoke = Scenario::parse(&with(&points[0])).expect("valid").smoke();
        let labels: Vec<&str> = smoke.points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(labels, ["quarter", "1", "half"]);
        let error = Scenario::parse(&with(&points.concat())).expect_err("three");
        assert!(error.contains("'quarter'"), "{error}");
        let armed =
            with(&points[0]).replacen("point = \"1\" }", "point = \"1\", arm = \"direct\" }", 1);
        let error = Scenario::parse(&armed).expect_err("an arm");
        assert!(error.contains("'half'"), "{error}");
    }

    #[test]
    fn a_proxy_in_front_of_tls_must_have_it() {
        let tls = SMALL.replacen("kind = \"stub\"", "kind = \"stub\", tls = true", 1);
        Scenario::parse(&tls).expect("valid");
        let other = "kind = \"other\", command = [\"x\"], of";
        let error = Scenario::parse(&tls.replacen("kind = \"proxy\", of", other, 1));
        let error = error.expect_err("clear text to nodes with TLS");
        assert!(error.contains("cannot connect to ring with TLS"), "{error}");
    }

    #[test]
    fn errors_name_the_fault() {
        for (part, instead, problem) in [
            ("target = \"shunt\"", "target = \"other\"", "no server 'other'"),
            ("of = \"ring\"", "of = \"later\"", "is no server above it"),
            (", of = \"ring\"", "", "needs `of`"),
            ("base = \"direct\", arms", "base = \"x\", arms", "no arm 'x'"),
            ("keys = 100", "kays = 100", "--kays"),
            ("keys = 100", "keys = 0", "arm direct, point 1"),
            (
                "point = \"1\" } }",
                "point = \"half\" } }",
                "no point whose rate is found first 'half'",
            ),
            ("\"< 1.5\"", "\"1.5\"", "is not '> NUMBER'"),
            ("kind = \"stub\"", "kind = \"stub\", of = \"x\"", "only a proxy has `of`"),
            ("kind = \"stub\"", "kind = \"stub\", base = true", "`base` is for the kinds"),
            ("kind = \"stub\"", "kind = \"node\", tls = true", "can have `tls`"),
            ("label = \"half\"", "label = \"1\"", "two points '1'"),
            ("title = \"t\"", "titel = \"t\"", "titel"),
        ] {
            assert!(SMALL.contains(part), "{part}");
            let error = Scenario::parse(&SMALL.replacen(part, instead, 1)).expect_err(part);
            assert!(error.contains(problem), "{part} -> {instead}: {error}");
        }
    }
}
