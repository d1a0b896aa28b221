//! Commands that ask a running proxy at its admin address: tables of its clients, nodes and
//! queries, its options, and changes.

mod control;
mod http;
mod options;
mod table;
mod views;

use clap::Args;
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::print;
pub(crate) use control::{Kick, LogLevel, Reload};
use http::{AdminAccess, get, refused};
pub(crate) use options::Options;
use views::{Order, View};

/// A table of a running proxy.
#[derive(Args, Debug)]
pub(crate) struct Listing {
    #[command(flatten)]
    access: AdminAccess,
    /// Most rows to show
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print one JSON object per line, with all that the proxy says about each
    #[arg(long)]
    json: bool,
}

/// Defines the arguments of a command: its table and its orders.
macro_rules! listing {
    ($(#[doc = $doc:literal])+ $name:ident, $view:ident, [$first:literal $(, $order:literal)*]) => {
        $(#[doc = $doc])+
        #[derive(Args, Debug)]
        pub(crate) struct $name {
            #[command(flatten)]
            listing: Listing,
            /// Order of the rows, which also says what is shown if not all rows are
            #[arg(long, value_name = "BY", default_value = $first, value_parser = [$first $(, $order)*])]
            sort: String,
        }

        impl $name {
            /// Prints the table.
            pub(crate) fn run(&self) -> Exit {
                self.listing.run(&views::$view, &self.sort)
            }
        }
    };
}

listing! {
    /// `shunt clients`.
    Clients, CLIENTS,
    ["rate", "queries", "clients", "in-flight", "paused", "role", "errors", "p99", "address", "application"]
}
listing! {
    /// `shunt nodes`.
    Nodes, NODES, ["p99", "in-flight", "queries", "address", "state"]
}
listing! {
    /// `shunt slow`.
    Slow, SLOW, ["latest", "total", "node", "wait"]
}
listing! {
    /// `shunt queries`.
    Queries, QUERIES, ["time", "count", "errors", "p99"]
}
listing! {
    /// `shunt hot`.
    Hot, HOT, ["reads", "writes", "table"]
}

impl Listing {
    fn run(&self, view: &View, sort: &str) -> Exit {
        let order = view.orders.iter().find(|Order(name, ..)| *name == sort);
        let page = order.ok_or_else(|| refused(format!("--sort: there is no order `{sort}`")));
        match page.and_then(|order| Ok((order, get(&self.access, view.page, view.subject)?))) {
            Ok((order, page)) => {
                self.show(view, order, &page);
                Exit::Done
            }
            Err(failure) => complain(&failure),
        }
    }

    fn show(&self, view: &View, order: &Order, page: &Value) {
        let mut rows = views::rows(page, view.rows);
        views::sort(&mut rows, order);
        let more = rows.len().saturating_sub(self.limit as usize);
        rows.truncate(self.limit as usize);
        if self.json {
            rows.iter().for_each(|row| print(&table::json(row)));
        } else if rows.is_empty() {
            print(&format!("the proxy shows no {}\n", view.subject));
        } else {
            print(&table::text(view.columns, &rows, table::width()));
        }
        if more > 0 {
            eprintln!("there are {more} more: see --limit");
        }
        let missing = page.pointer(view.missing).and_then(Value::as_array);
        if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
            let cores: Vec<String> = missing.iter().map(ToString::to_string).collect();
            eprintln!("warning: these cores have not answered in time: {}", cores.join(", "));
        }
    }
}

/// Prints a failure.
fn complain(failure: &Failure) -> Exit {
    eprintln!("error: {}", table::printable(&failure.message));
    failure.exit
}
