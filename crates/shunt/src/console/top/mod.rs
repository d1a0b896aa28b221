//! `shunt top`: the tables of a running proxy in a terminal, asked again every two seconds.
//!
//! `state` decides what each key does, without I/O; `frame` draws a state; `screen` has the
//! terminal and the requests.

mod frame;
mod screen;
mod state;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value};

use super::http::{AdminAccess, complain, get};
use super::{table, views};
use crate::exit::{Exit, Failure};
use crate::print;
use state::{State, TABLES, Table};

/// `shunt top`.
#[derive(Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    access: AdminAccess,
    /// Table to begin with
    #[arg(long, value_name = "TABLE", default_value = TABLES[0].name, value_parser = table_names())]
    table: String,
    /// Print the table once as text, for a pipe or a file
    #[arg(long)]
    once: bool,
    /// With --once: print one JSON object with all tables
    #[arg(long, requires = "once")]
    json: bool,
}

fn table_names() -> PossibleValuesParser {
    TABLES.iter().map(|table| table.name).into()
}

impl Top {
    /// Shows the tables until the operator leaves.
    pub(crate) fn run(self) -> Exit {
        self.show().unwrap_or_else(|failure| complain(&failure))
    }

    fn show(self) -> Result<Exit, Failure> {
        let chosen = TABLES.iter().position(|table| table.name == self.table).unwrap_or(0);
        if !self.once {
            return screen::run(self.access, chosen);
        }
        if self.json {
            print(&table::json(&all_tables(&self.access)?));
            return Ok(Exit::Done);
        }
        let mut state = State::new(chosen);
        state.set_pages(pages(&self.access, &TABLES[chosen])?);
        print(&frame::text(&state, table::width()));
        Ok(Exit::Done)
    }
}

/// The pages that a table needs: its own, and the summary's.
fn pages(access: &AdminAccess, table: &Table) -> Result<Vec<(&'static str, Value)>, Failure> {
    let status = get(access, state::SUMMARY)?;
    if status.pointer(views::CLIENTS.rows).is_none() {
        return Err(access.lacks("clients"));
    }
    let mut pages = vec![(state::SUMMARY, status)];
    if table.view.page != state::SUMMARY {
        pages.push((table.view.page, get(access, table.view.page)?));
    }
    Ok(pages)
}

/// The summary and the rows of each table, for programs.
fn all_tables(access: &AdminAccess) -> Result<Value, Failure> {
    let mut all = Map::new();
    for (index, table) in TABLES.iter().enumerate() {
        let mut state = State::new(index);
        state.set_pages(pages(access, table)?);
        if index == 0 {
            all.insert("summary".to_owned(), frame::summary_object(&state));
        }
        let rows: Vec<Value> = state.rows().into_iter().cloned().collect();
        all.insert(table.name.to_owned(), rows.into());
    }
    Ok(Value::Object(all))
}
