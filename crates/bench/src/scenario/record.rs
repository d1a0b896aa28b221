//! The file of results: one JSON object per line, each written as soon as it is known, so that an
//! interrupted run keeps its results.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::file::{Arm, Axis, Better, Plot, Scenario};
use crate::measure::statistics::{Ratio, Spread, Verdict};

/// A line of the results.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Line<'r> {
    /// The first line: programs and machine.
    Run {
        shunt: &'static str,
        commit: Option<String>,
        started: String,
        smoke: bool,
        seed: u64,
        machine: Machine,
        versions: BTreeMap<&'static str, String>,
    },
    /// The begin of a scenario.
    Scenario {
        name: &'r str,
        title: &'r str,
        question: &'r str,
        setup: &'r str,
        source: Option<&'r str>,
        axis: &'r Axis,
        arms: Vec<ArmLine<'r>>,
        figures: Vec<FigureLine<'r>>,
        plots: &'r [Plot],
    },
    /// A measurement of an arm at a point in a round.
    Measurement(&'r Measurement),
    /// A time series or a distribution, from a program.
    Series(Value),
    /// A finished drawing, from a program.
    Picture {
        scenario: &'r str,
        #[serde(flatten)]
        picture: &'r Picture,
    },
    /// The summary of an arm at a point over all rounds.
    Summary {
        scenario: &'r str,
        arm: &'r str,
        point: &'r str,
        x: Option<f64>,
        figure: &'r str,
        #[serde(flatten)]
        spread: Spread,
        rounds: usize,
    },
    /// The comparison of two arms at a point.
    Comparison {
        scenario: &'r str,
        point: &'r str,
        x: Option<f64>,
        figure: &'r str,
        arm: &'r str,
        base: &'r str,
        #[serde(flatten)]
        ratio: Ratio,
    },
    /// A claim and its verdict.
    Claim {
        scenario: &'r str,
        text: &'r str,
        source: Option<&'r str>,
        theirs: Option<&'r str>,
        ours: Option<String>,
        how: String,
        verdict: Verdict,
        why: Option<&'r str>,
    },
    /// A sentence for the reader.
    Note { scenario: Option<&'r str>, text: &'r str },
    /// The last line.
    End { complete: bool, seconds: f64 },
}

/// One arm at one point in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    pub(super) scenario: String,
    pub(super) arm: String,
    pub(super) point: String,
    pub(super) x: Option<f64>,
    pub(super) round: u32,
    pub(super) figures: BTreeMap<String, f64>,
    /// Further measured values.
    pub(super) detail: Value,
}

/// A drawing that a program made, such as a flame graph.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Picture {
    /// Name of its file, without directory and extension.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) svg: String,
}

/// An arm, and the reason if it is missing.
#[derive(Debug, Serialize)]
pub(super) struct ArmLine<'r> {
    name: &'r str,
    title: &'r str,
    missing: Option<&'r str>,
}

/// A figure, without its path in the report.
#[derive(Debug, Serialize)]
pub(super) struct FigureLine<'r> {
    name: &'r str,
    title: &'r str,
    unit: &'r str,
    better: Better,
}

/// The machine of the run, as far as readers need it.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    processor: String,
    processors: usize,
    memory_bytes: u64,
    kernel: String,
    /// True if it is a virtual machine.
    #[serde(rename = "virtual")]
    is_virtual: bool,
}

impl Machine {
    fn here() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpu.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = memory
            .lines()
            .next()
            .and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes.unwrap_or(0) * 1024,
            kernel: format!("Linux {}", release.trim()),
            is_virtual: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

impl Line<'_> {
    pub(super) fn run(project: &Path, smoke: bool, seed: u64) -> Self {
        let first_line = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(project).stdin(Stdio::null()).stderr(Stdio::null());
            let output = command.output().ok().filter(|output| output.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
        };
        let mut versions = BTreeMap::new();
        let haproxy = first_line("haproxy", &["-v"]);
        if let Some(version) = haproxy.as_deref().and_then(|line| line.split_whitespace().nth(2)) {
            versions.insert("haproxy", version.to_owned());
        }
        if let Some(version) = cassandra_version(project) {
            versions.insert("cassandra", version);
        }
        Self::Run {
            shunt: env!("CARGO_PKG_VERSION"),
            commit: first_line("git", &["describe", "--always", "--dirty"]),
            started: now_in_utc(),
            smoke,
            seed,
            machine: Machine::here(),
            versions,
        }
    }
}

/// Returns the time in the form of RFC 3339, to the second.
fn now_in_utc() -> String {
    let now = OffsetDateTime::now_utc();
    let (hour, minute, second) = now.to_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", now.date())
}

/// Returns the version that the project's rings run, from the only place that names it.
fn cassandra_version(project: &Path) -> Option<String> {
    let pom = fs::read_to_string(project.join("java/pom.xml")).ok()?;
    let (_, rest) = pom.split_once("<cassandra.version>")?;
    Some(rest.split_once('<')?.0.to_owned())
}

impl<'r> Line<'r> {
    /// Builds the scenario's line; `missing` has the reason of each arm that is not measured.
    pub(super) fn scenario(scenario: &'r Scenario, missing: &'r BTreeMap<String, String>) -> Self {
        let arm = |arm: &'r Arm| ArmLine {
            name: &arm.name,
            title: &arm.title,
            missing: missing.get(&arm.name).map(String::as_str),
        };
        let figures = scenario.figures.iter().map(|figure| FigureLine {
            name: &figure.name,
            title: &figure.title,
            unit: &figure.unit,
            better: figure.better,
        });
        Self::Scenario {
            name: &scenario.name,
            title: &scenario.title,
            question: &scenario.question,
            setup: &scenario.setup,
            source: scenario.source.as_deref(),
            axis: &scenario.axis,
            arms: scenario.arms.iter().map(arm).collect(),
            figures: figures.collect(),
            plots: &scenario.plots,
        }
    }
}

/// The result file of a run.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
}

impl Record {
    /// Creates the file, overwriting any earlier content.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(named)?;
        }
        Ok(Self { file: File::create(path).map_err(named)? })
    }

    /// Writes a line immediately.
    pub(super) fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }
}
