//! Maintenance of a data directory by operators: copying it while nodes run, and verifying it while
//! none do.

use std::path::Path;

use shunt_storage::StoreOptions;
use shunt_storage::store;

use crate::cluster::ClusterInfo;
use crate::control;
use crate::layout::{Claim, claim_of, node_directory};
use crate::schema::persist;
use crate::shared::Shared;

/// Writes a copy of a data directory to a new directory, whether nodes run on it or not. The copy
/// can be opened like the original. Files are linked if both are on one file system: the copy takes
/// room only as the original changes.
///
/// # Errors
/// The obstacle, with its path. A failed copy is removed, unless the process is killed: the remains
/// then cannot be opened.
pub fn snapshot(directory: &Path, to: &Path) -> Result<(), String> {
    let to = std::path::absolute(to).map_err(|error| format!("{}: {error}", to.display()))?;
    if to.as_os_str().as_encoded_bytes().contains(&b'\n') {
        return Err("the name of the copy has a line break".to_owned());
    }
    if let Some(done) = control::ask_snapshot(directory, &to) {
        return done;
    }
    let nodes = data_in(directory)?.nodes;
    // There are no connections: addresses matter only to clients.
    let addresses = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 0)); nodes];
    let info = ClusterInfo::new("snapshot", &addresses);
    Shared::open(directory, info, &StoreOptions::default())?.snapshot(&to)
}

/// Reads everything in a data directory on which no node runs, and changes nothing. Returns one
/// line per fault.
///
/// # Errors
/// There is no data, or another process has it open.
pub fn check(directory: &Path) -> Result<Vec<String>, String> {
    let claim = data_in(directory)?;
    let mut problems = Vec::new();
    match persist::load(directory) {
        Ok(None) if claim.complete => {
            problems
                .push(format!("{}: the file is missing", directory.join(persist::FILE).display()));
        }
        Ok(_) => {}
        Err(error) => problems.push(error.to_string()),
    }
    for index in 0..claim.nodes {
        let path = node_directory(directory, index);
        if !claim.complete && !path.exists() {
            continue;
        }
        let found = store::check(&path, &StoreOptions::default());
        let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
        problems.extend(found.iter().map(|problem| format!("{}: {problem}", path.display())));
    }
    Ok(problems)
}

fn data_in(directory: &Path) -> Result<Claim, String> {
    claim_of(directory)?.ok_or_else(|| format!("{}: no data of a node here", directory.display()))
}
