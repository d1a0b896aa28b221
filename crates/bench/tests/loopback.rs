//! Stub and load generator on real sockets, in one process, for a short time.

use shunt_bench::load::watch::Watch;
use shunt_bench::load::{
    LoadArgs, LoadOptions, RoundReport, command::run_watched, template::Layout,
};
use shunt_bench::measure::Calibration;
use shunt_bench::stub::StubArgs;
use shunt_bench::stub::serve::Running;
use shunt_reactor::IoChoice;

use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    stub: StubArgs,
}

fn stub(arguments: &[&str]) -> Running {
    let all = ["stub", "--listen", "127.0.0.1:0", "--one-address"].iter().chain(arguments);
    Running::start(&Command::parse_from(all).stub).expect("loopback")
}

fn options(stub: &Running, version: u8) -> LoadOptions {
    LoadOptions {
        targets: stub.addresses().to_vec(),
        connections: 6,
        outstanding: 4,
        keys: 50,
        layout: Layout { version, consistency: 1, key_bytes: 16, value_bytes: 64 },
        warm_up_ns: 50_000_000,
        duration_ns: 150_000_000,
        rounds: ROUNDS,
        ..LoadOptions::default()
    }
}

/// Rounds of each case. A pause of the machine spoils one; another one is good.
const ROUNDS: u32 = 3;

fn some(reports: &[RoundReport], is_so: impl Fn(&RoundReport) -> bool) {
    assert_eq!(reports.len(), ROUNDS as usize);
    assert!(
        reports.iter().any(is_so),
        "{}",
        reports.iter().map(ToString::to_string).collect::<String>()
    );
}

fn is_right(report: &RoundReport) {
    let wrong = (report.wrong_answers, report.wrong_values, report.not_found);
    assert!(wrong == (0, 0, 0) && report.errors.is_empty(), "{report}");
}

#[test]
fn rounds_with_verified_values() {
    let stub = stub(&["--remember"]);
    for version in [3, 4, 5] {
        let load = LoadOptions {
            verify: true,
            populate: true,
            create: Some(1),
            ..options(&stub, version)
        };
        let mut watch = Watch::default();
        watch.pids = vec![std::process::id()];
        watch.calibration = Some(Calibration::new().expect("loopback"));
        let reports = run_watched(load, IoChoice::Epoll, watch, |_| {}).expect("runs");
        reports.iter().for_each(is_right);
        some(&reports, |report| {
            report.processes[0].cpu_us_per_query > 0.0 && report.calibration_us > Some(0.0)
        });
        some(&reports, |report| report.queries > 0);
    }
    assert!(stub.report().total().queries > 0);
}

#[test]
fn faults_are_seen_as_errors_and_lost_connections() {
    let stub = stub(&["--fault", "overloaded=0.1", "--fault", "close=0.001", "--cores", "2"]);
    let reports =
        run_watched(options(&stub, 4), IoChoice::Epoll, Watch::default(), |_| {}).expect("runs");
    some(&reports, |report| {
        let overloaded = report.errors.get("0x1001").copied().unwrap_or_default();
        overloaded > 0 && overloaded < report.queries / 2
    });
    assert!(reports.iter().all(|report| report.wrong_answers == 0));
}

#[test]
fn an_echo_answers_both_statements_rightly() {
    let stub = stub(&["--echo"]);
    let reports =
        run_watched(options(&stub, 4), IoChoice::Epoll, Watch::default(), |_| {}).expect("runs");
    reports.iter().for_each(is_right);
    some(&reports, |report| report.queries > 0);
}

#[test]
fn an_open_loop_on_sockets() {
    let stub = stub(&[]);
    let load = LoadOptions { rate: Some(1000.0), ..options(&stub, 4) };
    let reports = run_watched(load, IoChoice::Epoll, Watch::default(), |_| {}).expect("runs");
    reports.iter().for_each(is_right);
    some(&reports, |report| report.queries > 50);
}

#[derive(Parser)]
struct LoadCommand {
    #[command(flatten)]
    load: LoadArgs,
}

#[test]
fn every_named_workload_finds_what_it_wrote() {
    let stub = stub(&["--remember", "--nodes", "3"]);
    let workloads = [
        ("--workload ycsb-a", vec!["read", "update"]),
        ("--workload ycsb-b --token-aware", vec!["read", "update"]),
        ("--workload ycsb-c", vec![]),
        ("--workload ycsb-d --token-aware --protocol 5", vec!["insert", "read"]),
        ("--workload ycsb-e", vec!["insert", "scan"]),
        // A low rate, so that queries do not pile up on a busy machine, where the second halves
        // would wait behind them.
        ("--workload ycsb-f --rate 100", vec!["read", "rmw"]),
        ("--multiget 7 --distribution hotset:0.1:0.9", vec!["multiget", "update"]),
        ("--reads 0.9 --distribution churn:0.99:0.05", vec!["read", "update"]),
    ];
    for (arguments, operations) in workloads {
        let fixed = "load --create --populate --verify --keys 200 --connections 6 --warm-up 0.05 --duration 0.15 --rounds 3";
        let words = fixed.split_whitespace().chain(arguments.split_whitespace());
        let options = LoadOptions::from_args(&LoadCommand::parse_from(words).load).expect("valid");
        let options = LoadOptions { targets: stub.addresses().to_vec(), ..options };
        let reports =
            run_watched(options, IoChoice::Epoll, Watch::default(), |_| {}).expect(arguments);
        println!("{arguments}");
        reports.iter().for_each(is_right);
        some(&reports, |report| {
            report.queries > 0
                && report.operations.keys().copied().eq(operations.iter().copied())
                && report.operations.values().all(|operation| operation.count > 0)
        });
        for report in &reports {
            let text = serde_json::to_value(report).expect("JSON");
            assert_eq!(text.get("operations").is_some(), !report.operations.is_empty());
            assert!(text["latency_us"]["min"].as_f64() <= text["latency_us"]["p50"].as_f64());
        }
    }
}
