//! `shunt bench overhead`: what a query costs on the way through a machine.
//!
//! All ways are up all the time; in each round, shape after shape, all of them are measured in random order, so that
//! what slows the machine for a while hits them alike. What is measured has one CPU to itself, load generator and nodes
//! share another ([`rig`]).

mod args;
mod arms;
pub mod figures;
mod idle;
mod rig;
mod table;

use std::{
    fs, io,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use shunt_reactor::raise_fd_limit;

pub use self::args::{Arm, OverheadArgs, Shape};
use self::{
    arms::{Places, Running},
    figures::{Figures, Measurement},
    rig::{OnMark, Rig},
};
use crate::{
    load::{LoadOptions, Mark, RoundReport, template::Layout},
    measure::{Calibration, Watch, cpu},
    random::Random,
};

/// Runs the comparison and prints it.
///
/// # Errors
/// A process cannot be started, a port is in use, or a load could not run to its end.
pub fn run(args: &OverheadArgs) -> io::Result<ExitCode> {
    raise_fd_limit(1 << 16);
    for wanted in [args.cpu, args.load_cpu] {
        if !cpu::allowed().contains(&wanted) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("CPU {wanted} is not to be had here")));
        }
    }
    let choice = args.io.parse().map_err(|problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    let places = Places::new(args.port);
    let rig = Rig::start(&places.ring(), false, args.load_cpu, choice)?;
    if let Some(clients) = args.idle {
        return idle::run(args, clients, &rig, places).map(|()| ExitCode::SUCCESS);
    }
    let aggregating = if args.arms.contains(&Arm::Aggregate) {
        Some(Rig::start(&places.aggregating_ring(), true, args.load_cpu, choice)?)
    } else {
        None
    };
    let mut running = start_arms(args, places)?;
    let mut figures = Figures::default();
    let mut sound = true;
    let mut random = Random::new(args.seed);
    for round in 0..args.rounds {
        let order = order(args, running.len(), &mut random);
        for (position, shape) in order {
            let way = &mut running[position];
            let rig = if way.arm == Arm::Aggregate { aggregating.as_ref().unwrap_or(&rig) } else { &rig };
            let measurement = measure(args, way, shape, round, rig)?;
            sound &= measurement.report.wrong_answers == 0 && measurement.report.errors.is_empty();
            if args.json {
                println!("{}", serde_json::to_string(&measurement)?);
            } else {
                eprintln!("{}", progress(&measurement));
            }
            figures.add(measurement);
        }
    }
    if !args.json {
        print!("{}", table::render(&figures, &args.shapes, &args.arms));
    }
    if !sound {
        eprintln!("some answers were wrong or errors: the figures above are not to be trusted");
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Shapes in random order, and at each shape all ways in random order: what is compared is measured close together.
fn order(args: &OverheadArgs, ways: usize, random: &mut Random) -> Vec<(usize, Shape)> {
    let mut shapes = args.shapes.clone();
    random.shuffle(&mut shapes);
    let mut order = Vec::new();
    for shape in shapes {
        let mut positions: Vec<usize> = (0..ways).collect();
        random.shuffle(&mut positions);
        order.extend(positions.into_iter().map(|position| (position, shape)));
    }
    order
}

fn start_arms(args: &OverheadArgs, places: Places) -> io::Result<Vec<Running>> {
    let mut running = Vec::new();
    for &arm in &args.arms {
        match arms::start(arm, args, places)? {
            Some(way) => running.push(way),
            None => eprintln!(
                "HAProxy ({}) is not installed, so its column stays empty (Debian: apt-get install haproxy)",
                args.haproxy.display()
            ),
        }
    }
    Ok(running)
}

/// The load of every measurement, without shape and target.
fn template_options(args: &OverheadArgs) -> LoadOptions {
    LoadOptions {
        reads: args.reads,
        layout: Layout {
            version: args.protocol,
            consistency: 1,
            key_bytes: 16,
            value_bytes: args.value_bytes as usize,
        },
        warm_up_ns: (args.warm_up.max(0.0) * 1e9) as u64,
        duration_ns: (args.duration.max(0.01) * 1e9) as u64,
        seed: args.seed,
        ..LoadOptions::default()
    }
}

fn measure(args: &OverheadArgs, way: &mut Running, shape: Shape, round: u32, rig: &Rig) -> io::Result<Measurement> {
    let name = way.arm.name();
    if way.process.has_ended() {
        return Err(io::Error::other(format!("{name} has ended in the middle of the comparison")));
    }
    let options = LoadOptions {
        targets: way.targets.clone(),
        connections: shape.connections,
        outstanding: shape.outstanding,
        ..template_options(args)
    };
    let mut watch = Watch::default();
    watch.pids = [Some(way.process.pid()), cpu::softirq_thread(args.cpu)].into_iter().flatten().collect();
    watch.proxy_admin = way.admin;
    watch.calibration = Some(Calibration::new()?);
    let on_mark = match &args.perf {
        Some(directory) if round + 1 == args.rounds => record(directory, way, shape, args.duration)?,
        _ => Box::new(|_| {}) as OnMark,
    };
    let report = rig
        .run(options, watch, on_mark)
        .map_err(|error| io::Error::new(error.kind(), format!("{name} at {shape}: {error}")))?;
    Ok(measurement(way, shape, round, report))
}

fn measurement(way: &Running, shape: Shape, round: u32, report: RoundReport) -> Measurement {
    let cpu_us =
        |pid: u32| report.processes.iter().find(|process| process.pid == pid).map(|found| found.cpu_us_per_query);
    let own = cpu_us(way.process.pid()).unwrap_or(f64::NAN);
    let softirq = report.processes.iter().find(|process| process.pid != way.process.pid());
    Measurement {
        arm: way.arm.name(),
        shape: shape.to_string(),
        round,
        cpu_us: own,
        cpu_units: own / report.calibration_us.unwrap_or(f64::NAN),
        rest_cpu_us: report.own.map_or(f64::NAN, |process| process.cpu_us_per_query),
        softirq_us: softirq.map_or(0.0, |process| process.cpu_us_per_query),
        report,
    }
}

fn progress(measurement: &Measurement) -> String {
    format!(
        "round {} {:>9} {:>8}: {:.3} us, {:.3} units, {:.0} queries/s",
        measurement.round,
        measurement.arm,
        measurement.shape,
        measurement.cpu_us,
        measurement.cpu_units,
        measurement.report.rate
    )
}

/// Samples the measured process with `perf` while the round lasts.
fn record(directory: &Path, way: &Running, shape: Shape, seconds: f64) -> io::Result<OnMark> {
    fs::create_dir_all(directory)?;
    let file = directory.join(format!("{}-{shape}.data", way.arm.name()));
    let pid = way.process.pid().to_string();
    Ok(Box::new(move |mark| {
        if !matches!(mark, Mark::RoundStart(_)) {
            return;
        }
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-F", "2999", "-e", "cpu-clock", "-g", "-p", &pid, "-o"]).arg(&file);
        command.args(["--", "sleep", &seconds.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        // Without perf the measurement is as good; only its samples are missing.
        if command.spawn().is_err() {
            eprintln!("perf cannot be started");
        }
    }))
}
