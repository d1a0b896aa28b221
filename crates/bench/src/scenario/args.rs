//! Arguments of `shunt bench run` and `shunt bench compare`.

use std::path::PathBuf;

use clap::Args;

/// `shunt bench run`: the experiments, their form, and the file for the results.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Names of scenarios (--list shows them), or paths of TOML files [default: all that need not
    /// be named]
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Only list the built-in scenarios
    #[arg(long)]
    pub list: bool,
    /// Run the short form: one quick round at few points, which tests that everything works but
    /// measures nothing
    #[arg(long)]
    pub smoke: bool,
    /// Print medians and ratios as well
    #[arg(long)]
    pub table: bool,
    /// Names of the arms to measure, joined by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// Directory of the project, for Cassandra rings and experiments that are separate programs
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub project: PathBuf,
    /// The shunt binary to measure [default: this one]. This binary runs the load generator and the
    /// stub nodes in any case
    #[arg(long, value_name = "FILE")]
    pub shunt: Option<PathBuf>,
    /// Another shunt binary, for scenarios that compare two
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// The extent of the measurements.
    #[command(flatten)]
    pub form: FormArgs,
}

/// The extent of the measurements, and the file for the results.
#[derive(Args, Clone, Debug)]
pub struct FormArgs {
    /// Labels of the points to measure, joined by commas [default: all]
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub points: Vec<String>,
    /// Rounds, instead of each scenario's own number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds of each measurement, instead of each scenario's own
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Seconds of load before each measurement, instead of each scenario's own
    #[arg(long, value_name = "SECONDS")]
    pub warm_up: Option<f64>,
    /// File for the results, one JSON object per line [default: target/bench/results-TIME.jsonl]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// First port of the servers; they use the following ports too
    #[arg(long, default_value_t = 21_042)]
    pub port: u16,
    /// Seed of the order of measurements and of the loads
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `shunt bench compare`: two binaries, the points, and the extent of the measurements.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The shunt binary to compare with, for example one built before a change
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// The shunt binary to measure [default: this one]
    #[arg(value_name = "SHUNT")]
    pub shunt: Option<PathBuf>,
    /// The scenario: a name, or the path of a TOML file with servers that have `base = true`
    #[arg(long, default_value = "binaries")]
    pub scenario: String,
    /// The extent of the measurements.
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
