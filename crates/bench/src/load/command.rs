//! `shunt bench load`: the generator on sockets, with the watch around its rounds.

use std::{cell::RefCell, io, process::ExitCode, rc::Rc};

use shunt_reactor::{IoChoice, LoopOptions, mailbox, raise_fd_limit, run as run_loop};

use crate::{
    load::{Load, LoadArgs, LoadOptions, Mark, RoundReport},
    measure::{Calibration, Watch, cpu},
};

/// Runs the load and prints its rounds. Exit code 2 when answers were wrong.
///
/// # Errors
/// Wrong arguments, or the load could not run to its end.
pub fn run(args: &LoadArgs) -> io::Result<ExitCode> {
    let options =
        LoadOptions::from_args(args).map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    let choice = args.io.parse().map_err(|problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
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
    let mut sound = true;
    for report in run_watched(options, choice, watch, |_| {})? {
        sound &= report.wrong_answers == 0 && report.wrong_values == 0;
        if args.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            print!("{report}");
        }
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Runs a load on this thread with `watch` around its rounds; `extra` is told of every mark as well.
///
/// # Errors
/// The load could not run to its end.
pub fn run_watched(
    options: LoadOptions,
    choice: IoChoice,
    watch: Watch,
    mut extra: impl FnMut(Mark) + 'static,
) -> io::Result<Vec<RoundReport>> {
    let watch = Rc::new(RefCell::new(watch));
    let watching = watch.clone();
    let observer = Box::new(move |mark| {
        match mark {
            Mark::Ready => {}
            Mark::RoundStart(_) => watching.borrow_mut().begin(),
            Mark::RoundEnd(_) => watching.borrow_mut().end(),
        }
        extra(mark);
    });
    let mut load = Load::new(options, observer);
    let (_mailer, inbox) = mailbox(1)?;
    run_loop(choice, LoopOptions::default(), &mut load, inbox)?;
    if let Some(failure) = load.failure() {
        return Err(io::Error::other(failure.to_owned()));
    }
    let watch = watch.borrow();
    let reports = load.rounds().iter().enumerate().map(|(position, round)| {
        let mut report = RoundReport::new(round);
        watch.complete(position, &mut report);
        report
    });
    Ok(reports.collect())
}
