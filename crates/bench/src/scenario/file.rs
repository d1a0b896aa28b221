//! A scenario as it is written down: one TOML file says what is started, what is compared, under
//! which load, and which claim that checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many points a rate may go back to: it is a share, or a share of a share, of what was reached
/// without one.
pub(super) const BASES_MAX: usize = 2;

/// One experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, also the name of its file.
    pub name: String,
    /// For a reader.
    pub title: String,
    /// The question that it asks, one sentence.
    pub question: String,
    /// How it is measured, one or two sentences.
    pub setup: String,
    /// Where the experiment comes from.
    pub source: Option<String>,
    /// Runs only when it is named: it takes too long for a run of all, or needs to be told
    /// something.
    #[serde(default)]
    pub only_named: bool,
    /// Rounds; in each, every arm at every point in a new random order.
    #[serde(default = "default_rounds")]
    pub rounds: u32,
    /// Seconds of a measurement.
    #[serde(default = "default_duration")]
    pub duration: f64,
    /// Seconds of load before it.
    #[serde(default = "default_warm_up")]
    pub warm_up: f64,
    /// Seconds of load on every arm before the first round; nodes with compilers need them.
    #[serde(default)]
    pub warm_up_once: f64,
    /// The axis that the points lie on.
    pub axis: Axis,
    /// The servers that are started, in this order.
    #[serde(default)]
    pub servers: Vec<Server>,
    /// The arms that are compared.
    pub arms: Vec<Arm>,
    /// Arguments of `shunt bench load` for all arms and points, `_` for `-`.
    #[serde(default)]
    pub load: Arguments,
    /// Further arguments of each arm's first load, before the rounds: create the table, write all
    /// keys.
    #[serde(default)]
    pub prepare: Arguments,
    /// The loads.
    #[serde(default)]
    pub points: Vec<Point>,
    /// A program that measures by itself, in place of servers, load and points.
    pub program: Option<Program>,
    /// The figures that are taken from each measurement.
    pub figures: Vec<Figure>,
    /// Pairs of arms whose ratio is reported.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// The claims that the figures are to show.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// The plots that the report draws.
    #[serde(default)]
    pub plots: Vec<Plot>,
    /// Sentences for the reader of the report.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The short form that only shows that everything works.
    #[serde(default)]
    pub smoke: Smoke,
}

/// Arguments of a command: numbers and texts as they are, `true` for a flag.
pub type Arguments = BTreeMap<String, toml::Value>;

/// The axis of the points.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The quantity that it counts.
    pub title: String,
    /// How it is drawn.
    pub scale: Scale,
}

/// How an axis is drawn.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal ratios, equal lengths.
    Log,
    /// Equal differences, equal lengths.
    Linear,
    /// One place per point, by its label.
    Category,
}

/// A process, or several, that is up while the scenario runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// By which arms and other servers name it.
    pub name: String,
    /// The kind of server.
    pub kind: ServerKind,
    /// The number of nodes of a stub or Cassandra.
    #[serde(default = "default_nodes")]
    pub nodes: u16,
    /// The server whose nodes a proxy serves.
    pub of: Option<String>,
    /// Program and arguments of another proxy; `{listen}` is its address, `{hosts}` the nodes' IP
    /// addresses joined by commas and `{port}` their port.
    #[serde(default)]
    pub command: Vec<String>,
    /// The CPU that it runs on; the first one allowed is 0. All if not given.
    pub cpu: Option<usize>,
    /// Further arguments of its command.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// It runs the binary of `--base`, in place of the one that is measured.
    #[serde(default)]
    pub base: bool,
    /// Environment variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// The kinds of servers that can be started.
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

/// One of the ways that are compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// By which comparisons and claims name it.
    pub name: String,
    /// For a reader.
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
    /// Labels of points that this arm is left out at.
    #[serde(default)]
    pub skip: Vec<String>,
}

/// One load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// By which claims name it.
    pub label: String,
    /// Its place on the axis.
    pub x: Option<f64>,
    /// Arguments of `shunt bench load` at this point.
    #[serde(default)]
    pub load: Arguments,
    /// Open loop at a share of what was reached at another point.
    pub rate: Option<RateOf>,
}

/// A rate relative to a measured one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateOf {
    /// The share, of 1.
    pub share: f64,
    /// The point at which the median so far is taken: one without a rate, or with a share of that
    /// of one without.
    pub point: String,
    /// The arm whose median it is; the same arm if not given.
    pub arm: Option<String>,
}

/// A program of the project that runs a whole experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Command and arguments, run in the project's directory. Its lines on standard output that are
    /// JSON objects with `arm`, `point`, `round` and `figures` are the measurements. Exit code 3:
    /// this machine lacks what it needs, and its last line on standard error says what.
    pub command: Vec<String>,
    /// Arguments of the short form, in place of the command's.
    pub smoke: Option<Vec<String>>,
    /// About how long it takes.
    pub seconds: f64,
}

/// A number that is taken from every measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// By which comparisons, claims and plots name it.
    pub name: String,
    /// For a reader.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// Which direction is good.
    #[serde(default)]
    pub better: Better,
    /// Where it is in the report of `shunt bench load --json`, names joined by dots; `cpu` and
    /// `memory` are sums over the measured servers. The figure's own name if not given, which is
    /// where programs put it.
    pub from: Option<String>,
}

/// Which direction of a figure is good.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Small is good.
    Less,
    /// Large is good.
    More,
    /// It only describes.
    #[default]
    Neither,
}

/// Two arms whose ratio is reported at every point that both have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The figure.
    pub figure: String,
    /// Over this arm.
    pub base: String,
    /// These arms, each.
    pub arms: Vec<String>,
}

/// A statement that a figure is to show.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A whole sentence.
    pub text: String,
    /// Where the claim comes from.
    pub source: Option<String>,
    /// The result that was reached there.
    pub theirs: Option<String>,
    /// The figure.
    pub figure: String,
    /// The arm.
    pub arm: String,
    /// The ratio to this arm is meant, not the figure itself.
    pub base: Option<String>,
    /// The point.
    pub point: String,
    /// `> NUMBER` or `< NUMBER`.
    pub wanted: String,
    /// With fewer rounds it is not shown; one is enough for a count.
    #[serde(default = "default_claim_rounds")]
    pub rounds: usize,
    /// The reason that was found where it falls short.
    pub why: Option<String>,
}

/// A picture in the report.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The figure it shows.
    pub figure: String,
    /// The plain sentence under it.
    pub sentence: String,
    /// The page of kept runs has its medians as well, as it has those of the first.
    #[serde(default)]
    pub on_page: bool,
}

/// The short form: one round, quick, at few points.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smoke {
    /// Only these points; all if there are none.
    #[serde(default)]
    pub points: Vec<String>,
    /// Arguments of `shunt bench load` in place of the usual ones.
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
    /// Reads a scenario.
    ///
    /// # Errors
    /// It is not TOML, has unknown or missing parts, or names something that it does not define.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        super::check::check(&scenario)?;
        Ok(scenario)
    }

    /// The point that this one's rate is a share of, the one that its rate is a share of, and so
    /// on.
    pub(super) fn bases<'s>(&'s self, point: &'s Point) -> impl Iterator<Item = &'s Point> {
        let base = |of: &&Point| {
            let label = &of.rate.as_ref()?.point;
            self.points.iter().find(|other| other.label == *label)
        };
        std::iter::successors(Some(point), base).skip(1).take(BASES_MAX + 1)
    }

    /// The arm of that name.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}
