//! The file format of a scenario: a TOML file with the servers, the compared arms, the load, and
//! the claims to check.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Longest chain of relative rates: a rate is a share, or a share of a share, of a rate reached
/// without a limit.
pub(super) const BASES_MAX: usize = 2;

/// One experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the experiment and of its file.
    pub name: String,
    /// Title in the report.
    pub title: String,
    /// The question of the experiment, one sentence.
    pub question: String,
    /// The method, one or two sentences.
    pub setup: String,
    /// Source of the experiment.
    pub source: Option<String>,
    /// Runs only if named: it takes too long for a run of all, or needs more arguments.
    #[serde(default)]
    pub only_named: bool,
    /// Number of rounds; each measures every arm at every point, in a new random order.
    #[serde(default = "default_rounds")]
    pub rounds: u32,
    /// Seconds of each measurement.
    #[serde(default = "default_duration")]
    pub duration: f64,
    /// Seconds of load before each measurement.
    #[serde(default = "default_warm_up")]
    pub warm_up: f64,
    /// Seconds of load on every arm before the first round, for nodes with a just-in-time compiler.
    #[serde(default)]
    pub warm_up_once: f64,
    /// Axis of the points.
    pub axis: Axis,
    /// The servers, in the order of their start.
    #[serde(default)]
    pub servers: Vec<Server>,
    /// The compared arms.
    pub arms: Vec<Arm>,
    /// Arguments of `shunt bench load` for all arms and points, with `_` for `-`.
    #[serde(default)]
    pub load: Arguments,
    /// Further arguments of each arm's first load, before the rounds: create the table, write all
    /// keys.
    #[serde(default)]
    pub prepare: Arguments,
    /// The loads.
    #[serde(default)]
    pub points: Vec<Point>,
    /// A program that makes all measurements, in place of servers, load and points.
    pub program: Option<Program>,
    /// The figures of each measurement.
    pub figures: Vec<Figure>,
    /// Pairs of arms whose ratio is reported.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// The claims to check against the figures.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// The plots in the report.
    #[serde(default)]
    pub plots: Vec<Plot>,
    /// Sentences for readers of the report.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The short form, which only tests that everything works.
    #[serde(default)]
    pub smoke: Smoke,
}

/// Arguments of a command: numbers and texts, or `true` for a flag.
pub type Arguments = BTreeMap<String, toml::Value>;

/// Axis of the points.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Title of the axis.
    pub title: String,
    /// Scale of the axis.
    pub scale: Scale,
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Logarithmic.
    Log,
    /// Linear.
    Linear,
    /// One place per point, with its label.
    Category,
}

/// One or several processes that run during the scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Name for arms and other servers to refer to.
    pub name: String,
    /// The kind of server.
    pub kind: ServerKind,
    /// Number of nodes of a stub or Cassandra.
    #[serde(default = "default_nodes")]
    pub nodes: u16,
    /// The server whose nodes a proxy serves.
    pub of: Option<String>,
    /// Program and arguments of another proxy; `{listen}` is its address, `{hosts}` the nodes' IP
    /// addresses joined by commas and `{port}` their port.
    #[serde(default)]
    pub command: Vec<String>,
    /// CPU of the server, counted from 0 among the allowed ones; all if not given.
    pub cpu: Option<usize>,
    /// Further arguments of the command.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// True if it serves TLS in place of clear text (a stub, a proxy, HAProxy). A proxy in front of
    /// it then connects to it with TLS.
    #[serde(default)]
    pub tls: bool,
    /// True if it runs the binary of `--base` in place of the measured one.
    #[serde(default)]
    pub base: bool,
    /// Environment variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// The kinds of servers.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// `shunt bench stub`.
    Stub,
    /// `shunt proxy`.
    Proxy,
    /// `shunt node`.
    Node,
    /// HAProxy in TCP mode.
    Haproxy,
    /// Another proxy that speaks CQL, from `target/peers` or the path.
    Other,
    /// A ring of Cassandra nodes, by the project's `scripts/ring`.
    Cassandra,
}

/// One of the compared variants.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Name for comparisons and claims to refer to.
    pub name: String,
    /// Title in the report.
    pub title: String,
    /// The server that clients connect to.
    #[serde(default)]
    pub target: String,
    /// The servers whose CPU time and memory are counted.
    #[serde(default)]
    pub measure: Vec<String>,
    /// Arguments of `shunt bench load` for this arm.
    #[serde(default)]
    pub load: Arguments,
    /// Labels of points at which this arm is not measured.
    #[serde(default)]
    pub skip: Vec<String>,
}

/// One load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Label for claims to refer to.
    pub label: String,
    /// Position on the axis.
    pub x: Option<f64>,
    /// Arguments of `shunt bench load` at this point.
    #[serde(default)]
    pub load: Arguments,
    /// Open loop at a share of the rate reached at another point.
    pub rate: Option<RateOf>,
}

/// A rate relative to a measured rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateOf {
    /// The share, 1 for the whole.
    pub share: f64,
    /// The point whose median so far is used: one without a rate, or with a share of such a point.
    pub point: String,
    /// The arm whose median is used; the same arm if not given.
    pub arm: Option<String>,
}

/// A program of the project that runs a whole experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Command and arguments, run in the project's directory. Lines of its standard output that are
    /// JSON objects with `arm`, `point`, `round` and `figures` are measurements. Exit code 3 means
    /// that this machine lacks a requirement, which the last line of standard error names.
    pub command: Vec<String>,
    /// Arguments of the short form, in place of the command's.
    pub smoke: Option<Vec<String>>,
    /// Approximate duration.
    pub seconds: f64,
}

/// A number from every measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name for comparisons, claims and plots to refer to.
    pub name: String,
    /// Title in the report.
    pub title: String,
    /// Unit of the figure.
    pub unit: String,
    /// The better direction.
    #[serde(default)]
    pub better: Better,
    /// Path in the report of `shunt bench load --json`, names joined by dots; `cpu` and `memory`
    /// are sums over the measured servers. Programs put the value under the figure's own name, the
    /// default.
    pub from: Option<String>,
}

/// The better direction of a figure.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Less,
    /// More is better.
    More,
    /// Neither direction is better.
    #[default]
    Neither,
}

/// Arms whose ratio is reported at every point that both have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The figure.
    pub figure: String,
    /// The arm in the denominator.
    pub base: String,
    /// The arms in the numerator, one ratio each.
    pub arms: Vec<String>,
}

/// A statement to check against a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim as a whole sentence.
    pub text: String,
    /// Source of the claim.
    pub source: Option<String>,
    /// The result in that source.
    pub theirs: Option<String>,
    /// The figure.
    pub figure: String,
    /// The arm.
    pub arm: String,
    /// If given, the claim is about the ratio to this arm, not about the figure itself.
    pub base: Option<String>,
    /// The point.
    pub point: String,
    /// `> NUMBER` or `< NUMBER`.
    pub wanted: String,
    /// Fewest rounds that show the claim; one is enough for a count.
    #[serde(default = "default_claim_rounds")]
    pub rounds: usize,
    /// The known reason for a shortfall.
    pub why: Option<String>,
}

/// A plot in the report.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The figure of the plot.
    pub figure: String,
    /// The plain sentence under the plot.
    pub sentence: String,
    /// True if the page of kept runs has its medians too, in addition to those of the first plot.
    #[serde(default)]
    pub on_page: bool,
}

/// The short form: one short round at few points.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smoke {
    /// The points of the short form; all if empty.
    #[serde(default)]
    pub points: Vec<String>,
    /// Arguments of `shunt bench load` in place of the regular ones.
    #[serde(default)]
    pub load: Arguments,
}

fn default_rounds() -> u32 {
    5
}

fn default_duration() -> f64 {
    2.0
}

fn default_warm_up() -> f64 {
    0.5
}

fn default_claim_rounds() -> usize {
    crate::measure::statistics::ROUNDS_MIN
}

fn default_nodes() -> u16 {
    3
}

impl Scenario {
    /// Parses a scenario.
    ///
    /// # Errors
    /// The text is not TOML, has unknown or missing parts, or refers to a name that it does not
    /// define.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        super::check::check(&scenario)?;
        Ok(scenario)
    }

    /// Returns the point that this point's rate is a share of, then that point's base, and so on.
    pub(super) fn bases<'s>(&'s self, point: &'s Point) -> impl Iterator<Item = &'s Point> {
        let base = |of: &&Point| {
            let label = &of.rate.as_ref()?.point;
            self.points.iter().find(|other| other.label == *label)
        };
        std::iter::successors(Some(point), base).skip(1).take(BASES_MAX + 1)
    }

    /// Returns the arm of this name.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}
