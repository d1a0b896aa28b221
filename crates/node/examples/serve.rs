//! Nodes on loopback until standard input closes: `cargo run -p shunt-node --example serve --
//! DIRECTORY ADDRESS...`

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use shunt_node::run::{Nodes, NodesOptions};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        arguments.next().map(PathBuf::from).ok_or("usage: serve DIRECTORY ADDRESS...")?;
    let listen: Vec<SocketAddr> = arguments
        .map(|text| text.parse().map_err(|error| format!("{text}: {error}")))
        .collect::<Result<_, String>>()?;
    let nodes =
        Nodes::start(NodesOptions::new(directory, listen)).map_err(|error| error.to_string())?;
    println!("listening on {:?}", nodes.addresses());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    nodes.stop(Duration::from_secs(10));
    Ok(())
}
