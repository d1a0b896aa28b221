//! `shunt bench load`: the generator on sockets, with measurements around its rounds.

use std::{
    cell::RefCell,
    io::{self, Write},
    process::ExitCode,
    rc::Rc,
};

use shunt_reactor::{IoChoice, LoopOptions, mailbox, raise_fd_limit, run as run_loop};

use crate::{
    load::{Load, LoadArgs, LoadOptions, Mark, RoundReport, watch::Watch},
    measure::{Calibration, cpu},
};

/// Runs the load and prints its rounds. The exit code is 2 if answers were wrong.
///
/// # Errors
/// Wrong arguments, or the load could not run to its end.
pub fn run(args: &LoadArgs) -> io::Result<ExitCode> {
    let options = LoadOptions::from_args(args)
        .map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    let choice = args
        .io
        .parse()
        .map_err(|problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    if let Some(cpu) = args.cpu {
        cpu::pin(&[cpu])?;
    }
    raise_fd_limit(1 << 16);
    let mut watch = Watch::default();
    watch.pids.clone_from(&args.pids);
    watch.stub_statistics = args.stub_statistics;
    watch.proxy_admin = args.proxy_admin;
    if args.rate.is_none() {
        // In an open loop the pause would show up as latency.
        watch.calibration = Some(Calibration::new()?);
    }
    let json = args.json;
    // A lock without competition is granted, and accounts have enough: any other answer is a fault.
    let all_applied =
        args.locks.is_some() || args.transfers.is_some_and(|kind| !kind.is_repeated());
    let reports = run_watched(options, choice, watch, move |report| print(report, json))?;
    let faults = |report: &RoundReport| {
        if all_applied { report.not_applied + report.errors.values().sum::<u64>() } else { 0 }
    };
    let sound = |report: &RoundReport| {
        report.wrong_answers == 0 && report.wrong_values == 0 && faults(report) == 0
    };
    let sound = reports.iter().all(sound);
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Prints each round at once, so that an interrupted run keeps its measurements.
fn print(report: &RoundReport, json: bool) {
    let mut out = io::stdout().lock();
    // A closed output does not end the run; only its exit code is left then.
    let _ = if json {
        serde_json::to_string(report)
            .map_err(io::Error::from)
            .and_then(|line| writeln!(out, "{line}"))
    } else {
        write!(out, "{report}")
    }
    .and_then(|()| out.flush());
}

/// Runs a load on this thread with `watch` around its rounds. Calls `each` with a round's report
/// when the round is over.
///
/// # Errors
/// The load could not run to its end.
pub fn run_watched(
    options: LoadOptions,
    choice: IoChoice,
    watch: Watch,
    mut each: impl FnMut(&RoundReport) + 'static,
) -> io::Result<Vec<RoundReport>> {
    let watch = Rc::new(RefCell::new(watch));
    let watching = watch.clone();
    let observer = Box::new(move |mark| match mark {
        Mark::Ready => {}
        Mark::RoundStart(_) => watching.borrow_mut().begin(),
        Mark::RoundEnd(_) => watching.borrow_mut().end(),
    });
    let reports = Rc::new(RefCell::new(Vec::new()));
    let (kept, watched) = (reports.clone(), watch.clone());
    let mut load = Load::new(options, observer).with_reader(move |round| {
        let mut report = RoundReport::new(round);
        watched.borrow().complete(kept.borrow().len(), &mut report);
        each(&report);
        kept.borrow_mut().push(report);
    });
    let (_mailer, inbox) = mailbox(1)?;
    run_loop(choice, LoopOptions::default(), &mut load, inbox)?;
    if let Some(failure) = load.failure() {
        return Err(io::Error::other(failure.to_owned()));
    }
    Ok(reports.take())
}
