//! `shunt bench run` and `compare` from the command line: a scenario from a file, run to its end
//! and interrupted, and two binaries side by side.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Stub, eventually, in_time, output, shunt, signal};

/// A stub and a proxy, each an arm. A scenario has fixed ports, so each test uses different ones.
/// The second point has few enough arrivals for a machine that became ten times slower since the
/// first.
fn scenario(directory: &Path, name: &str, duration: f64) -> String {
    let path = directory.join(format!("{name}.toml"));
    let text = format!(
        r#"
        name = "{name}"
        title = "t"
        question = "q"
        setup = "s"
        rounds = 2
        duration = {duration}
        warm_up = 0.05
        axis = {{ title = "clients", scale = "log" }}
        servers = [{{ name = "nodes", kind = "stub" }}, {{ name = "shunt", kind = "proxy", of = "nodes" }},
                   {{ name = "gone", kind = "other", of = "nodes", command = ["no-such-proxy", "{{listen}}"] }}]
        arms = [{{ name = "direct", title = "Direct", target = "nodes", measure = ["nodes"] }},
                {{ name = "proxy", title = "Proxy", target = "shunt", measure = ["shunt"] }},
                {{ name = "gone", title = "Gone", target = "gone" }}]
        points = [{{ label = "4", x = 4, load = {{ connections = 4 }} }},
                  {{ label = "tenth", load = {{ connections = 4 }}, rate = {{ share = 0.1, point = "4" }} }}]
        figures = [{{ name = "cpu_us", title = "CPU", unit = "us", from = "cpu" }},
                   {{ name = "p99_us", title = "p99", unit = "us", from = "latency_us.p99" }}]
        comparisons = [{{ figure = "cpu_us", base = "direct", arms = ["proxy", "gone"] }}]
        claims = [{{ text = "c", figure = "p99_us", arm = "proxy", point = "tenth", wanted = "> 0", rounds = 2 }}]
        "#
    );
    fs::write(&path, text).expect("write");
    path.display().to_string()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

fn of_kind<'l>(lines: &'l [Value], kind: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

/// True if a figure is present and above zero. A round in which the machine stood still has none.
fn is_more(figure: &Value) -> bool {
    figure.as_f64() > Some(0.0)
}

#[test]
fn a_scenario_is_measured_compared_and_judged() {
    in_time(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("results.jsonl");
        let file = scenario(directory.path(), "small", 0.2);
        let (code, said, complained) = output(&[
            "bench",
            "run",
            &file,
            "--port",
            "23142",
            "--out",
            &out.display().to_string(),
        ]);
        assert_eq!(code, 0, "{said}{complained}");
        assert!(
            complained.contains("'Gone' is left out: no-such-proxy is not installed"),
            "{complained}"
        );
        let lines = lines(&out);
        assert_eq!(
            (lines[0]["kind"].as_str(), lines[0]["smoke"].as_bool()),
            (Some("run"), Some(false))
        );
        let arms = &of_kind(&lines, "scenario")[0]["arms"];
        assert_eq!(
            (&arms[1]["missing"], arms[2]["missing"].as_str()),
            (&Value::Null, Some("no-such-proxy is not installed"))
        );
        let measured = of_kind(&lines, "measurement");
        let figures = measured.iter().map(|measurement| &measurement["figures"]);
        let are_whole = figures
            .clone()
            .all(|figures| is_more(&figures["cpu_us"]) && is_more(&figures["p99_us"]));
        // Rounds, points, arms.
        if measured.len() != 2 * 2 * 2 || !are_whole {
            return Err(format!("{:?} {complained}", figures.collect::<Vec<_>>()));
        }
        assert!(said.contains("met  c"), "{said}{complained}");
        let compared = of_kind(&lines, "comparison");
        assert_eq!(compared.len(), 2, "one arm over another at two points");
        assert!(
            compared.iter().all(|line| is_more(&line["ratio"]) && line["shown"] == false),
            "too few rounds"
        );
        assert_eq!(of_kind(&lines, "claim")[0]["verdict"], "met");
        assert_eq!(lines.last().map(|line| &line["complete"]), Some(&Value::Bool(true)));
        Ok(())
    });
}

#[test]
fn two_binaries_are_measured_in_turns_and_their_ratio_is_printed() {
    let binary = env!("CARGO_BIN_EXE_shunt");
    in_time(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("results.jsonl");
        let out_argument = out.display().to_string();
        let short = [
            "--points",
            "64x1,8x128",
            "--rounds",
            "1",
            "--duration",
            "0.2",
            "--warm-up",
            "0.05",
            "--port",
            "23342",
        ];
        let (code, said, complained) = output(
            &[&["bench", "compare", binary, binary, "--out", &out_argument], short.as_slice()]
                .concat(),
        );
        assert_eq!(code, 0, "{said}{complained}");
        let lines = lines(&out);
        let of_cost = |line: &&&Value| {
            line["figure"] == "cpu_us" && line["arm"] == "shunt" && line["base"] == "base"
        };
        let compared = of_kind(&lines, "comparison");
        for point in ["64x1", "8x128"] {
            let is_printed = said
                .lines()
                .any(|line| line.trim().starts_with(point) && line.ends_with(", one round"));
            if !is_printed || !compared.iter().filter(of_cost).any(|line| line["point"] == point) {
                return Err(format!("{point}: {said} {complained} {compared:?}"));
            }
        }
        Ok(())
    });
    let (code, _, complained) = output(&["bench", "compare", "/nowhere/shunt"]);
    assert!(
        code == 1 && complained.contains("/nowhere/shunt: No such file"),
        "{code} {complained}"
    );
}

/// Ends a run that a failed test leaves behind.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_run_keeps_its_results_and_leaves_nothing_running() {
    in_time(break_off);
}

fn break_off() -> Result<(), String> {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("results.jsonl");
    let file = scenario(directory.path(), "long", 0.3);
    let mut command = shunt(&["bench", "run", &file, "--rounds", "1000", "--port", "23242"]);
    command.arg("--out").arg(&out).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Run(command.spawn().expect("start"));
    eventually(|| fs::read_to_string(&out).unwrap_or_default().contains("\"measurement\""));
    assert!(
        TcpStream::connect("127.0.0.1:23242").is_ok()
            && TcpStream::connect("127.0.0.1:23252").is_ok()
    );
    signal(&run.0, "INT");
    assert_eq!(run.0.wait().expect("ended").code(), Some(2));
    assert!(
        TcpStream::connect("127.0.0.1:23242").is_err()
            && TcpStream::connect("127.0.0.1:23252").is_err()
    );
    let lines = lines(&out);
    assert!(!of_kind(&lines, "measurement").is_empty() && !of_kind(&lines, "summary").is_empty());
    assert_eq!(lines.last().map(|line| &line["complete"]), Some(&Value::Bool(false)));
    let notes = of_kind(&lines, "note");
    // An interrupted run is no failure. The note about a bad measurement comes from a machine that
    // stood still.
    if notes.is_empty() { Ok(()) } else { Err(format!("{notes:?}")) }
}

#[test]
fn a_wrong_scenario_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = scenario(directory.path(), "wrong", 0.1);
    let text =
        fs::read_to_string(&file).expect("read").replace("target = \"shunt\"", "target = \"shnt\"");
    fs::write(&file, text).expect("write");
    let (code, _, complained) = output(&["bench", "run", &file]);
    assert!(code == 1 && complained.contains("there is no server 'shnt'"), "{code} {complained}");
    let (code, _, complained) = output(&["bench", "run", "no-such-scenario"]);
    assert!(
        code == 1 && complained.contains("there is no scenario 'no-such-scenario'; there are "),
        "{code} {complained}"
    );
}

/// A user who watches a run of hours sees each round when it ends, and has it even if the rest is
/// interrupted.
#[test]
fn a_round_of_load_is_printed_when_it_is_over() {
    let stub = Stub::start();
    let target = stub.address.to_string();
    let mut command = shunt(&[
        "bench",
        "load",
        "--target",
        &target,
        "--connections",
        "2",
        "--json",
        "--warm-up",
        "0",
    ]);
    let mut child = command
        .args(["--rounds", "100", "--duration", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut rounds =
        lines.map(|line| serde_json::from_str::<Value>(&line.expect("read")).expect("JSON"));
    // A round in which the machine stands still has no queries.
    rounds.find(|round| round["queries"].as_u64() > Some(0)).expect("a round with queries");
    assert!(matches!(child.try_wait(), Ok(None)), "it was over before it said anything");
    let _ = child.kill();
    let _ = child.wait();
}
