//! `shunt config`: the options in force, where they come from, and what waits for a restart; and
//! the change of one.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

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
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    change: Option<OptionChange>,
    #[command(flatten)]
    access: AdminAccess,
    /// Show only options that were given, or whose new value waits for a restart
    #[arg(long)]
    changed: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A change of an option.
#[derive(Subcommand, Debug)]
enum OptionChange {
    /// Give an option a value, until the next successful reload or a restart
    Set {
        /// Name of the option, as in `shunt config`
        #[arg(value_name = "NAME")]
        name: String,
        /// Value, written as for a flag
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        form: ChangeForm,
    },
    /// Give an option the value from flags and file again
    Reset {
        /// Name of the option, as in `shunt config`
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        form: ChangeForm,
    },
}

/// The address of the proxy, and the form of the output.
#[derive(Args, Debug)]
struct ChangeForm {
    #[command(flatten)]
    access: AdminAccess,
    /// Print the outcome as a JSON object
    #[arg(long)]
    json: bool,
}

impl OptionChange {
    fn run(&self) -> Result<Exit, Failure> {
        let (name, value, form) = match self {
            OptionChange::Set { name, value, form } => (name, Some(value), form),
            OptionChange::Reset { name, form } => (name, None, form),
        };
        // The name of the flag works like the key.
        let name = name.trim_start_matches("--").replace('-', "_");
        let answer = form.access.post("/set_option", &json!({ "name": name, "value": value }))?;
        let outcome = answer.page()?;
        if form.json {
            print(&table::json(&outcome));
            return Ok(Exit::Done);
        }
        let text = |key: &str| outcome[key].as_str().map_or("-".to_owned(), table::printable);
        let change = match outcome["changed"] == true {
            true => format!("{name}: {} (was {})\n", text("value"), text("old")),
            false => format!("{name}: {} already\n", text("value")),
        };
        print(&change);
        Ok(Exit::Done)
    }
}

impl Options {
    /// Prints the options, or makes the change.
    pub(crate) fn run(&self) -> Exit {
        let outcome = match &self.change {
            Some(change) => change.run(),
            None => self.show(),
        };
        outcome.unwrap_or_else(|failure| complain(&failure))
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
