//! `shunt reload`, `shunt log-level`, `shunt kick`, `shunt drain` and `shunt undrain`: changes of a
//! running proxy.

use clap::Args;
use serde_json::{Map, Value, json};

use super::http::{AdminAccess, complain, get, refused};
use super::{table, views};
use crate::exit::{Exit, Failure};
use crate::{logging, print};
use hyper::StatusCode;

/// `shunt reload`.
#[derive(Args, Debug)]
pub(crate) struct Reload {
    #[command(flatten)]
    access: AdminAccess,
    /// Print the outcome as a JSON object
    #[arg(long)]
    json: bool,
}

impl Reload {
    /// Has the proxy read its configuration again, and prints the outcome.
    pub(crate) fn run(&self) -> Exit {
        self.order().unwrap_or_else(|failure| complain(&failure))
    }

    fn order(&self) -> Result<Exit, Failure> {
        let answer = self.access.post("/reload", &json!({}))?;
        let is_applied = answer.status.is_success();
        if !is_applied && answer.status != StatusCode::CONFLICT {
            return Err(answer.refusal());
        }
        if self.json {
            print(&table::json(&answer.body));
        } else if is_applied {
            let names = |place| {
                let names = views::rows(&answer.body, place).into_iter().filter_map(Value::as_str);
                names.map(table::printable).collect::<Vec<_>>().join(", ")
            };
            match names("/applied").as_str() {
                "" => print("no options have changed\n"),
                applied => print(&format!("applied: {applied}\n")),
            }
            match names("/needs_restart").as_str() {
                "" => {}
                waiting => print(&format!("needs a restart: {waiting}\n")),
            }
        } else {
            let error = answer.body["error"].as_str().unwrap_or("refused");
            eprintln!("error: {}", table::printable(error));
            let problems = views::rows(&answer.body, "/problems");
            for problem in problems.iter().filter_map(|problem| problem.as_str()) {
                eprintln!("error: {}", table::printable(problem));
            }
        }
        Ok(if is_applied { Exit::Done } else { Exit::Failed })
    }
}

/// `shunt log-level`.
#[derive(Args, Debug)]
pub(crate) struct LogLevel {
    #[command(flatten)]
    access: AdminAccess,
    /// Print the level as a JSON object
    #[arg(long)]
    json: bool,
    /// The new level: error, warn, info, debug, trace or off; or directives. The level holds until
    /// the next successful reload [default: show the present one]
    #[arg(value_name = "LEVEL", value_parser = level)]
    level: Option<String>,
}

impl LogLevel {
    /// Shows or sets the level.
    pub(crate) fn run(&self) -> Exit {
        let level = match &self.level {
            None => self.present(),
            Some(level) => self
                .access
                .post("/log_level", &json!({ "level": level }))
                .and_then(|answer| answer.page()),
        };
        match level {
            Ok(level) if self.json => print(&table::json(&level)),
            Ok(level) => {
                let level = level["level"].as_str().unwrap_or_default();
                print(&format!("{}\n", table::printable(level)));
            }
            Err(failure) => return complain(&failure),
        }
        Exit::Done
    }

    fn present(&self) -> Result<Value, Failure> {
        let page = get(&self.access, "/config")?;
        let option = views::rows(&page, "/options").into_iter().find(|row| row["key"] == "log");
        let option = option.ok_or_else(|| refused("the proxy shows no level".to_owned()))?;
        Ok(json!({ "level": option["value"], "source": option["source"] }))
    }
}

/// `shunt kick`.
#[derive(Args, Debug)]
#[group(id = "conditions", required = true, multiple = true)]
pub(crate) struct Conditions {
    /// Clients with this role
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Clients without a login
    #[arg(long, conflicts_with = "role")]
    without_role: bool,
    /// Clients of this address or network, such as 10.0.4.7 or 10.0.4.0/24
    #[arg(long, value_name = "ADDR")]
    address: Option<String>,
    /// Clients of this application
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Clients that name no application
    #[arg(long, conflicts_with = "application")]
    without_application: bool,
    /// The client at this address and port, as in the log and in `shunt slow`
    #[arg(long, value_name = "ADDR:PORT")]
    id: Option<String>,
    /// Every client
    #[arg(long, conflicts_with_all = ["role", "without_role", "address", "application", "without_application", "id"])]
    all: bool,
}

/// `shunt kick`.
#[derive(Args, Debug)]
pub(crate) struct Kick {
    #[command(flatten)]
    conditions: Conditions,
    #[command(flatten)]
    access: AdminAccess,
    /// Print the outcome as a JSON object
    #[arg(long)]
    json: bool,
}

impl Kick {
    /// Closes the clients, and prints their number.
    pub(crate) fn run(&self) -> Exit {
        let Conditions { role, without_role, address, application, without_application, id, all } =
            &self.conditions;
        let given =
            [("role", role), ("address", address), ("application", application), ("id", id)];
        let given =
            given.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?.into())));
        let mut parameters: Map<String, Value> =
            given.map(|(key, text): (&str, Value)| (key.to_owned(), text)).collect();
        for (key, is_given) in [
            ("without_role", without_role),
            ("without_application", without_application),
            ("all", all),
        ] {
            if *is_given {
                parameters.insert(key.to_owned(), true.into());
            }
        }
        let answer = self.access.post("/kick", &parameters.into());
        match answer.and_then(|answer| answer.page()) {
            Ok(outcome) => {
                match (self.json, &outcome["closed"]) {
                    (true, _) => print(&table::json(&outcome)),
                    (false, closed) if *closed == 1 => print("closed 1 client\n"),
                    (false, closed) => print(&format!("closed {closed} clients\n")),
                }
                let is_whole = views::rows(&outcome, "/cores_missing").is_empty();
                if !is_whole {
                    eprintln!("error: some cores did not answer in time; run the command again");
                }
                if is_whole { Exit::Done } else { Exit::Failed }
            }
            Err(failure) => complain(&failure),
        }
    }
}

/// `shunt drain` and `shunt undrain`.
#[derive(Args, Debug)]
pub(crate) struct Drain {
    #[command(flatten)]
    access: AdminAccess,
    /// Print the outcome as a JSON object
    #[arg(long)]
    json: bool,
}

impl Drain {
    /// Has the proxy send its clients to others, or has it stop that.
    pub(crate) fn run(&self, drains: bool) -> Exit {
        let path = if drains { "/drain" } else { "/undrain" };
        match self.access.post(path, &json!({})).and_then(|answer| answer.page()) {
            Ok(outcome) if self.json => print(&table::json(&outcome)),
            Ok(_) if drains => print("draining; `shunt undrain` takes the drain back\n"),
            Ok(_) => print("serving\n"),
            Err(failure) => return complain(&failure),
        }
        Exit::Done
    }
}

fn level(text: &str) -> Result<String, String> {
    logging::filter(text).map(|_| text.to_owned())
}
