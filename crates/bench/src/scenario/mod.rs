//! `shunt bench run`: measures experiments that are written as files, side by side, and checks
//! their claims.
//!
//! ```text
//! scenarios/NAME.toml -> file, check (everything it names is there)
//!   -> servers (start)
//!   -> round, round, ..: every arm at every point, in random order -> child (`shunt bench load`) -> figures
//!   -> outcome (medians, ratios with their interval, verdicts)
//!   => record (JSON lines)
//! ```
//!
//! An experiment that needs more than a load, such as restarts of nodes, is a program of the
//! project. Its measurements are treated as those made here.

mod args;
mod check;
mod certificates;
mod child;
pub mod file;
mod form;
mod library;
mod measure;
mod outcome;
mod plan;
mod program;
mod progress;
mod record;
mod servers;
mod table;

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use shunt_reactor::raise_fd_limit;
use time::OffsetDateTime;

pub use self::args::{CompareArgs, RunArgs};
use self::{
    child::Stop,
    file::Scenario,
    outcome::Outcome,
    progress::Progress,
    record::{Line, Record},
    servers::{NotStarted, Running, Surroundings},
};
use crate::{
    measure::{cpu, statistics::Verdict},
    random::Random,
};

/// Runs the scenarios and writes their measurements. The exit code is 2 if an experiment could not
/// run to its end.
///
/// # Errors
/// A scenario is missing or invalid, or the results cannot be written.
pub fn run(args: &RunArgs) -> io::Result<ExitCode> {
    if args.list {
        return list().map(|()| ExitCode::SUCCESS);
    }
    let scenarios = chosen(args)?;
    raise_fd_limit(1 << 16);
    let stop = Stop::on_signals()?;
    let project = args.project.canonicalize().map_err(|error| {
        io::Error::new(error.kind(), format!("--project {}: {error}", args.project.display()))
    })?;
    let out = args.form.out.clone().unwrap_or_else(|| default_out(&project));
    let mut bench = Bench {
        around: surroundings(args, project)?,
        stop,
        record: Record::create(&out)?,
        seed: args.form.seed,
        prints_table: args.table,
        failed: false,
    };
    let begun = Instant::now();
    bench.record.write(&Line::run(&bench.around.project, args.smoke, args.form.seed))?;
    let mut verdicts = Vec::new();
    let total: f64 = scenarios.iter().map(plan::seconds).sum();
    eprintln!(
        "{} scenarios, about {}; results in {}",
        scenarios.len(),
        minutes(total),
        out.display()
    );
    for scenario in &scenarios {
        if bench.stop.is_set() {
            break;
        }
        verdicts.extend(bench.scenario(scenario)?);
    }
    let complete = !bench.stop.is_set();
    bench.record.write(&Line::End { complete, seconds: begun.elapsed().as_secs_f64() })?;
    for (text, verdict) in &verdicts {
        println!("{:>12}  {text}", progress::verdict(*verdict));
    }
    println!("results: {}", out.display());
    if !complete {
        eprintln!("interrupted; the results have what was finished");
    }
    Ok(if bench.failed || !complete { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn surroundings(args: &RunArgs, project: PathBuf) -> io::Result<Surroundings> {
    let bench = std::env::current_exe()?;
    let found = |path: &PathBuf| {
        path.canonicalize()
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    };
    let shunt = args.shunt.as_ref().map_or_else(|| Ok(bench.clone()), found)?;
    // The short form measures nothing, so one binary can take both places.
    let base =
        args.base.as_ref().map(found).transpose()?.or_else(|| args.smoke.then(|| shunt.clone()));
    let (port, is_smoke, cpus) = (args.form.port, args.smoke, cpu::allowed());
    Ok(Surroundings { bench, shunt, base, project, port, is_smoke, cpus })
}

fn list() -> io::Result<()> {
    for scenario in library::all()? {
        let when = if scenario.only_named { ", only when named" } else { "" };
        println!(
            "{:24} about {:>7}  {}{when}",
            scenario.name,
            minutes(plan::seconds(&scenario)),
            scenario.title
        );
    }
    Ok(())
}

/// Returns the requested scenarios in the requested form.
fn chosen(args: &RunArgs) -> io::Result<Vec<Scenario>> {
    let found = if args.scenarios.is_empty() {
        library::all()?.into_iter().filter(|scenario| args.smoke || !scenario.only_named).collect()
    } else {
        args.scenarios.iter().map(|name| library::find(name)).collect::<io::Result<Vec<_>>>()?
    };
    let form = &args.form;
    let seconds = |given: Option<f64>, least: f64| {
        given.filter(|seconds| *seconds >= least && seconds.is_finite())
    };
    let shaped = found.into_iter().map(|scenario| {
        let scenario = if args.smoke { scenario.smoke() } else { scenario };
        let mut scenario = scenario.only(&form.points, &args.arms)?;
        scenario.rounds = form.rounds.unwrap_or(scenario.rounds);
        scenario.duration = seconds(form.duration, f64::MIN_POSITIVE).unwrap_or(scenario.duration);
        scenario.warm_up = seconds(form.warm_up, 0.0).unwrap_or(scenario.warm_up);
        Ok(scenario)
    });
    let named = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
    shaped.collect::<Result<_, String>>().map_err(named)
}

fn default_out(project: &std::path::Path) -> PathBuf {
    let now = OffsetDateTime::now_utc();
    let (date, (hour, minute, second)) = (now.date(), now.to_hms());
    project.join(format!("target/bench/results-{date}-{hour:02}{minute:02}{second:02}.jsonl"))
}

fn minutes(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// A run of some scenarios.
struct Bench {
    around: Surroundings,
    stop: Stop,
    record: Record,
    seed: u64,
    /// True if medians and ratios are printed as well.
    prints_table: bool,
    /// True if an experiment could not run to its end.
    failed: bool,
}

impl Bench {
    /// Runs one scenario. A failure is noted and ends only this scenario.
    fn scenario(&mut self, scenario: &Scenario) -> io::Result<Vec<(String, Verdict)>> {
        let mut missing = BTreeMap::new();
        let mut servers = Vec::new();
        if scenario.program.is_none() {
            let mut progress = Progress::new(&scenario.name, scenario.servers.len());
            servers = self.start_servers(scenario, &mut missing, &mut progress)?;
        }
        self.record.write(&Line::scenario(scenario, &missing))?;
        for text in &scenario.notes {
            self.record.write(&Line::Note { scenario: Some(&scenario.name), text })?;
        }
        for point in &scenario.points {
            if let Some(arm) = plan::needs_missing(point, &missing) {
                let text = format!(
                    "'{}' is left out: its rate is a share of that of {arm}, which is missing.",
                    point.label
                );
                eprintln!("{}: {text}", scenario.name);
                self.record.write(&Line::Note { scenario: Some(&scenario.name), text: &text })?;
            }
        }
        let mut outcome = Outcome::new(scenario);
        let measured = match &scenario.program {
            Some(program) => self.run_program(scenario, program, &mut outcome),
            None => self.measure_rounds(scenario, &missing, &mut servers, &mut outcome),
        };
        // Proxies end before the nodes behind them; otherwise they would report lost nodes.
        while servers.pop().is_some() {}
        if let Err(error) = measured
            && !self.stop.is_set()
        {
            self.note_failure(scenario, &error.to_string())?;
        }
        let verdicts = outcome.conclude(&mut self.record)?;
        if self.prints_table {
            print!("{}", table::of(&outcome));
        }
        Ok(verdicts)
    }

    fn note_failure(&mut self, scenario: &Scenario, problem: &str) -> io::Result<()> {
        self.failed = true;
        eprintln!("{}: {problem}", scenario.name);
        let text = format!("Not run to its end: {problem}");
        self.record.write(&Line::Note { scenario: Some(&scenario.name), text: &text })
    }

    /// Starts all servers that can start. Adds each arm to `missing` whose server, or a server
    /// behind it, is missing.
    fn start_servers(
        &mut self,
        scenario: &Scenario,
        missing: &mut BTreeMap<String, String>,
        progress: &mut Progress,
    ) -> io::Result<Vec<Running>> {
        let mut running: Vec<Running> = Vec::new();
        let mut reasons: BTreeMap<&str, String> = BTreeMap::new();
        for (position, server) in scenario.servers.iter().enumerate() {
            progress.step(&format!("starting {}", server.name));
            if let Some(reason) = server.of.as_deref().and_then(|of| reasons.get(of)).cloned() {
                reasons.insert(&server.name, reason);
                continue;
            }
            let behind =
                server.of.as_deref().and_then(|of| running.iter().find(|found| found.name == of));
            match servers::start(server, position as u16, behind, &self.around) {
                Ok(started) => running.push(started),
                Err(NotStarted::Missing(reason)) => {
                    reasons.insert(&server.name, reason);
                }
                Err(NotStarted::Failed(error)) => {
                    self.note_failure(
                        scenario,
                        &format!("{} cannot be started: {error}", server.name),
                    )?;
                    reasons.insert(&server.name, error.to_string());
                }
            }
        }
        for arm in &scenario.arms {
            let mut needed = arm.measure.iter().chain([&arm.target]);
            if let Some(reason) = needed.find_map(|name| reasons.get(name.as_str())) {
                eprintln!("{}: '{}' is left out: {reason}", scenario.name, arm.title);
                missing.insert(arm.name.clone(), reason.clone());
            }
        }
        Ok(running)
    }

    /// Measures every arm at every point in every round. The order is random, except for points
    /// that others depend on.
    fn measure_rounds(
        &mut self,
        scenario: &Scenario,
        missing: &BTreeMap<String, String>,
        servers: &mut [Running],
        outcome: &mut Outcome<'_>,
    ) -> io::Result<()> {
        let mut random = Random::new(self.seed);
        let slots = plan::slots(scenario, missing, &mut random);
        let mut progress = Progress::new(&scenario.name, slots.len());
        if scenario.warm_up_once > 0.0 || !scenario.prepare.is_empty() {
            let each = Duration::from_secs_f64(scenario.warm_up_once.max(0.1));
            for (arm, point) in plan::warm_up(scenario, missing) {
                progress.say(&format!("warming up {}", arm.title));
                measure::warm_up(&self.around, &self.stop, servers, scenario, arm, point, each)?;
            }
        }
        // By arm and point, the maximum over all rounds.
        let mut left_out = BTreeMap::<_, u64>::new();
        for slot in slots {
            if self.stop.is_set() {
                return Ok(());
            }
            progress.step(&format!(
                "round {}, {}, {}",
                slot.round + 1,
                slot.point.label,
                slot.arm.title
            ));
            if let Some(ended) = servers
                .iter_mut()
                .find_map(|server| server.has_ended().then(|| server.name.clone()))
            {
                return Err(io::Error::other(format!(
                    "{ended} has ended in the middle of the scenario"
                )));
            }
            let seed = self.seed.wrapping_add(u64::from(slot.round) << 16);
            match measure::measure(
                &self.around,
                &self.stop,
                servers,
                scenario,
                &slot,
                outcome,
                seed,
            ) {
                Ok(measurement) => {
                    self.record.write(&Line::Measurement(&measurement))?;
                    if let Some(count) = measure::left_out(&measurement.detail) {
                        let most =
                            left_out.entry((&slot.arm.title, &slot.point.label)).or_default();
                        *most = count.max(*most);
                    }
                    outcome.add(measurement);
                }
                Err(_) if self.stop.is_set() => return Ok(()),
                Err(error) => {
                    let at = format!("{} at {}: {error}", slot.arm.title, slot.point.label);
                    self.note_failure(scenario, &at)?;
                }
            }
        }
        for ((arm, point), count) in left_out {
            let text = format!(
                "{arm} at {point} did not keep up with the rate: when a round ended, up to {count} arrivals still waited or \
                 had been dropped, and are in no latency."
            );
            self.record.write(&Line::Note { scenario: Some(&scenario.name), text: &text })?;
        }
        Ok(())
    }

    fn run_program(
        &mut self,
        scenario: &Scenario,
        program: &file::Program,
        outcome: &mut Outcome<'_>,
    ) -> io::Result<()> {
        let Self { around, stop, record, .. } = self;
        let mut progress = Progress::new(&scenario.name, 0);
        progress.say(&format!("a program of its own, about {}", minutes(plan::seconds(scenario))));
        let ended = program::run(around, stop, program, |line| {
            match program::read(&scenario.name, line)? {
                program::Said::Measurement(measurement) => {
                    progress.say(&format!(
                        "round {}, {}, {}",
                        measurement.round + 1,
                        measurement.point,
                        measurement.arm
                    ));
                    record.write(&Line::Measurement(&measurement))?;
                    outcome.add(*measurement);
                }
                program::Said::Series(series) => record.write(&Line::Series(series))?,
                program::Said::Picture(picture) => {
                    record.write(&Line::Picture { scenario: &scenario.name, picture: &picture })?
                }
                program::Said::Note(text) => {
                    record.write(&Line::Note { scenario: Some(&scenario.name), text: &text })?
                }
                program::Said::Nothing => {}
            }
            Ok(())
        })?;
        match ended {
            program::Verdict::Done => Ok(()),
            program::Verdict::Missing(reason) => {
                eprintln!("{}: left out: {reason}", scenario.name);
                let text = format!("Not measured: {reason}");
                self.record.write(&Line::Note { scenario: Some(&scenario.name), text: &text })
            }
        }
    }
}

/// Returns the measured servers of an arm.
fn measured<'r>(servers: &'r [Running], names: &'r [String]) -> impl Iterator<Item = &'r Running> {
    servers.iter().filter(move |server| names.contains(&server.name))
}
