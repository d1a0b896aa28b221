//! Commands that ask a running proxy at its admin address: tables of its clients, nodes and
//! queries, its options, and changes.

mod control;
mod http;
mod nodes;
mod options;
mod readiness;
mod table;
mod top;
mod views;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::print;
pub(crate) use control::{Drain, Kick, LogLevel, Reload};
use http::{AdminAccess, complain, get, refused};
pub(crate) use nodes::Nodes;
pub(crate) use options::Options;
pub(crate) use readiness::Ready;
pub(crate) use top::Top;
use views::{Order, View};

/// A table of a running proxy.
#[derive(Args, Debug)]
pub(crate) struct Listing {
    #[command(flatten)]
    access: AdminAccess,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print one JSON object per line, with all that the proxy says about each
    #[arg(long)]
    json: bool,
}

/// Defines the arguments of a command by its table.
macro_rules! listing {
    ($(#[doc = $doc:literal])+ $name:ident, $view:ident) => {
        $(#[doc = $doc])+
        #[derive(Args, Debug)]
        pub(crate) struct $name {
            #[command(flatten)]
            listing: Listing,
            /// Sort order; decides which rows remain under --limit
            #[arg(long, value_name = "BY", default_value = views::$view.orders[0].0, value_parser = order_names(&views::$view))]
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
    Clients, CLIENTS
}
listing! {
    /// `shunt connections`.
    Connections, CONNECTIONS
}
listing! {
    /// `shunt failed-logins`.
    FailedLogins, LOGINS
}
listing! {
    /// The list of `shunt nodes`.
    NodeList, NODES
}
listing! {
    /// `shunt slow`.
    Slow, SLOW
}
listing! {
    /// `shunt queries`.
    Queries, QUERIES
}
listing! {
    /// `shunt hot`.
    Hot, HOT
}
listing! {
    /// `shunt rules`.
    Rules, RULES
}
listing! {
    /// `shunt tenants`.
    Tenants, TENANTS
}
listing! {
    /// `shunt alerts`.
    Alerts, ALERTS
}

/// The names of the sort orders of a table.
fn order_names(view: &View) -> PossibleValuesParser {
    view.orders.iter().map(|Order(name, ..)| *name).into()
}

impl Listing {
    fn run(&self, view: &View, sort: &str) -> Exit {
        match self.page(view, sort) {
            Ok((order, page)) => {
                self.show(view, order, &page);
                Exit::Done
            }
            Err(failure) => complain(&failure),
        }
    }

    /// The sort order of this name, and the page.
    fn page<'v>(&self, view: &'v View, sort: &str) -> Result<(&'v Order, Value), Failure> {
        let order = view.orders.iter().find(|Order(name, ..)| *name == sort);
        let order = order.ok_or_else(|| refused(format!("--sort: there is no order `{sort}`")))?;
        let page = get(&self.access, view.page)?;
        // Other processes of Shunt have a page of this name without these rows.
        let has_rows = page.pointer(view.rows).is_some_and(Value::is_array);
        if !has_rows && (view.absence)(&page).is_none() {
            return Err(self.access.lacks(&format!("{} on its page {}", view.subject, view.page)));
        }
        Ok((order, page))
    }

    fn show(&self, view: &View, order: &Order, page: &Value) {
        let mut rows = views::rows(page, view.rows);
        views::sort(&mut rows, order);
        let more = rows.len().saturating_sub(self.limit as usize);
        rows.truncate(self.limit as usize);
        let others = views::others(page, view, !self.json);
        rows.extend(&others);
        if self.json {
            rows.iter().for_each(|row| print(&table::json(row)));
        } else if rows.is_empty() {
            match (view.absence)(page) {
                Some(reason) => print(&format!("{reason}\n")),
                None => print(&format!("the proxy shows no {}\n", view.subject)),
            }
        } else {
            print(&table::text(view.columns, &rows, table::width()));
        }
        if more > 0 {
            eprintln!("{more} more: see --limit");
        }
        let missing = page.pointer(view.missing).and_then(Value::as_array);
        if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
            let cores: Vec<String> = missing.iter().map(ToString::to_string).collect();
            eprintln!("warning: these cores did not answer in time: {}", cores.join(", "));
        }
    }
}
