//! `shunt nodes`: the list of nodes, and the changes that take a node out of routing and back.

use clap::{Args, Subcommand};
use serde_json::json;

use super::http::{AdminAccess, complain};
use super::{NodeList, table};
use crate::exit::Exit;
use crate::help;
use crate::print;

const DRAIN_EXAMPLE: &str = "\
Example:
  shunt nodes drain 10.0.0.7
      Sends no new queries to this node while other nodes can take them. Queries under way finish:
      the node is idle when `shunt nodes` shows 0 in flight.
";

/// `shunt nodes`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Nodes {
    #[command(subcommand)]
    change: Option<NodeChange>,
    #[command(flatten)]
    list: NodeList,
}

/// A change of the routing.
#[derive(Subcommand, Debug)]
enum NodeChange {
    /// Take a node out of routing, until `undrain` or the end of the proxy
    #[command(after_help = help::ending(DRAIN_EXAMPLE, "nodes"))]
    Drain(NodeArgs),
    /// Take a drained node back into routing
    Undrain(NodeArgs),
}

/// The node of a change.
#[derive(Args, Debug)]
struct NodeArgs {
    /// Address of the node, as in `shunt nodes`; its port may be left out
    #[arg(value_name = "ADDRESS")]
    address: String,
    #[command(flatten)]
    access: AdminAccess,
    /// Print the outcome as a JSON object
    #[arg(long)]
    json: bool,
}

impl Nodes {
    /// Prints the list, or makes the change.
    pub(crate) fn run(&self) -> Exit {
        match &self.change {
            None => self.list.run(),
            Some(NodeChange::Drain(node)) => node.change("/drain_node"),
            Some(NodeChange::Undrain(node)) => node.change("/undrain_node"),
        }
    }
}

impl NodeArgs {
    fn change(&self, path: &str) -> Exit {
        let answer = self.access.post(path, &json!({ "node": self.address }));
        match answer.and_then(|answer| answer.page()) {
            Ok(outcome) if self.json => print(&table::json(&outcome)),
            Ok(outcome) => {
                let node = table::printable(outcome["node"].as_str().unwrap_or_default());
                match outcome["drained"] == true {
                    true => {
                        let in_flight = &outcome["in_flight"];
                        print(&format!("drained {node}; queries in flight there: {in_flight}\n"));
                    }
                    false => print(&format!("took {node} back into routing\n")),
                }
            }
            Err(failure) => return complain(&failure),
        }
        Exit::Done
    }
}
