//! Shows the running step and the remaining time on a terminal; on any other output a line per
//! scenario and a few in between.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use crate::measure::statistics::Verdict;

/// Without a terminal, shortest time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Progress of one scenario.
#[derive(Debug)]
pub(super) struct Progress {
    name: String,
    steps: usize,
    done: usize,
    begun: Instant,
    is_terminal: bool,
    said: Option<Instant>,
}

impl Progress {
    /// Starts the progress of a scenario with this number of steps; 0 if unknown.
    pub(super) fn new(name: &str, steps: usize) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            name: name.to_owned(),
            steps,
            done: 0,
            begun: Instant::now(),
            is_terminal,
            said: None,
        }
    }

    /// Begins the next step.
    pub(super) fn step(&mut self, what: &str) {
        let left = self.left();
        self.done += 1;
        self.say(&format!("{}/{}{left}: {what}", self.done, self.steps));
    }

    /// Shows an activity that is not a step.
    pub(super) fn say(&mut self, what: &str) {
        if !self.is_terminal && self.said.is_some_and(|said| said.elapsed() < LINE_EVERY) {
            return;
        }
        self.said = Some(Instant::now());
        let mut out = io::stderr().lock();
        // An error of the terminal changes nothing.
        let _ = if self.is_terminal {
            write!(out, "\r\x1b[2K{} {what}", self.name).and_then(|()| out.flush())
        } else {
            writeln!(out, "{} {what}", self.name)
        };
    }

    /// Estimates the remaining time from the steps so far.
    fn left(&self) -> String {
        if self.done == 0 {
            return String::new();
        }
        let each = self.begun.elapsed().as_secs_f64() / self.done as f64;
        format!(", {} left", super::minutes(each * (self.steps - self.done) as f64))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

/// A verdict in words.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::NotMet => "not met",
        Verdict::NotShown => "not shown",
        Verdict::NotMeasured => "not measured",
    }
}
