//! Arguments of `shunt bench run` and `shunt bench compare`.

use std::path::PathBuf;

use clap::Args;

/// `shunt bench run`: which experiments, in which form, and where the results go.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Names of scenarios (--list shows them), or paths of TOML files; all that run without being
    /// named if none is given
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Only list the scenarios that are built in
    #[arg(long)]
    pub list: bool,
    /// The short form: one quick round at few points; shows that everything works and measures
    /// nothing
    #[arg(long)]
    pub smoke: bool,
    /// Print medians, and the ratios of what is compared, as well
    #[arg(long)]
    pub table: bool,
    /// Names of the arms to measure, joined by commas; all if not given
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// The project's directory, for Cassandra rings and the experiments that are programs of their
    /// own
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub project: PathBuf,
    /// The shunt binary that is measured; this one if not given. Load generator and stub nodes are
    /// this one's
    #[arg(long, value_name = "FILE")]
    pub shunt: Option<PathBuf>,
    /// Another shunt binary, for scenarios that compare two
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// How much of it is measured.
    #[command(flatten)]
    pub form: FormArgs,
}

/// How much of a scenario is measured, how often and for how long, and where the results go.
#[derive(Args, Clone, Debug)]
pub struct FormArgs {
    /// Labels of the points to measure, joined by commas; all if not given
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub points: Vec<String>,
    /// Rounds, in place of each scenario's own number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds of each measurement, in place of each scenario's own
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Seconds of load before each measurement, in place of each scenario's own
    #[arg(long, value_name = "SECONDS")]
    pub warm_up: Option<f64>,
    /// Where the results go, one JSON object per line [default: target/bench/results-TIME.jsonl]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// First port of what is started; the following ones are used too
    #[arg(long, default_value_t = 21_042)]
    pub port: u16,
    /// Seed of the order of measurements and of the loads
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `shunt bench compare`: which binaries, at which shapes, how often.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The shunt binary to compare with, such as one that was built before a change
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// The shunt binary that is measured; this one if not given
    #[arg(value_name = "SHUNT")]
    pub shunt: Option<PathBuf>,
    /// The scenario: a name, or the path of a TOML file with servers that have `base = true`
    #[arg(long, default_value = "binaries")]
    pub scenario: String,
    /// How much of it is measured.
    #[command(flatten)]
    pub form: FormArgs,
}

impl From<CompareArgs> for RunArgs {
    fn from(args: CompareArgs) -> Self {
        Self {
            scenarios: vec![args.scenario],
            list: false,
            smoke: false,
            table: true,
            arms: Vec::new(),
            project: ".".into(),
            shunt: args.shunt,
            base: Some(args.base),
            form: args.form,
        }
    }
}
