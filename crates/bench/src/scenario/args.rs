//! Arguments of `shunt bench run`.

use std::path::PathBuf;

use clap::Args;

/// `shunt bench run`: which experiments, in which form, and where the results go.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Names of scenarios (--list shows them), or paths of TOML files; all that do not take hours if none is given
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Only list the scenarios that are built in
    #[arg(long)]
    pub list: bool,
    /// The short form: one quick round at few points; shows that everything works and measures nothing
    #[arg(long)]
    pub smoke: bool,
    /// Rounds, in place of each scenario's own number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds of each measurement, in place of each scenario's own
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Where the results go, one JSON object per line [default: target/bench/results-TIME.jsonl]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The project's directory, for Cassandra rings and the experiments that are programs of their own
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub project: PathBuf,
    /// The shunt binary that is measured; this one if not given
    #[arg(long, value_name = "FILE")]
    pub shunt: Option<PathBuf>,
    /// First port of what is started; the following ones are used too
    #[arg(long, default_value_t = 21_042)]
    pub port: u16,
    /// Seed of the order of measurements and of the loads
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
