//! `shunt config`: the options in force, where they come from, and what waits for a restart.

use clap::Args;
use serde_json::Value;

use super::http::{AdminAccess, complain, get};
use super::table::{self, Column, Form};
use super::views;
use crate::exit::{Exit, Failure};
use crate::print;

const COLUMNS: &[Column] = &[
    Column("option", "/key", Form::Word),
    Column("value", "/value", Form::Text),
    Column("source", "/source", Form::Word),
    Column("default", "/default", Form::Text),
    Column("after a restart", "/value_after_restart", Form::Text),
];

/// `shunt config`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    access: AdminAccess,
    /// Show only options that were given, or whose new value waits for a restart
    #[arg(long)]
    changed: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Prints the options.
    pub(crate) fn run(&self) -> Exit {
        self.show().unwrap_or_else(|failure| complain(&failure))
    }

    fn show(&self) -> Result<Exit, Failure> {
        let page = get(&self.access, "/config")?;
        let mut rows = views::rows(&page, "/options");
        rows.retain(|row| !self.changed || is_given(row));
        if self.json {
            rows.iter().for_each(|row| print(&table::json(row)));
        } else {
            print(&table::text(COLUMNS, &rows, table::width()));
        }
        let problems = views::rows(&page, "/reload/problems");
        if !problems.is_empty() {
            eprintln!("warning: the configuration that was read last was refused:");
            let lines = problems.iter().filter_map(|problem| problem.as_str());
            lines.for_each(|line| eprintln!("  {}", table::printable(line)));
        }
        Ok(Exit::Done)
    }
}

fn is_given(row: &Value) -> bool {
    row["source"] != "default" || row["restart_needed"] == true
}
