//! What operators do with a data directory: copy it while nodes run on it, and verify it while none do.

use std::path::Path;

use shunt_storage::StoreOptions;
use shunt_storage::store;

use crate::cluster::ClusterInfo;
use crate::control;
use crate::layout::{node_directory, nodes_of};
use crate::schema::persist;
use crate::shared::Shared;

/// Writes a copy of a data directory to an absent directory, whether nodes run on it or not. The copy can be opened like
/// the original. Files are linked where both are on one file system: it takes room only as the original changes.
///
/// # Errors
/// What stands in the way, with its path. What was written until then stays and is no complete copy.
pub fn snapshot(directory: &Path, to: &Path) -> Result<(), String> {
    let to = std::path::absolute(to).map_err(|error| format!("{}: {error}", to.display()))?;
    if to.as_os_str().as_encoded_bytes().contains(&b'\n') {
        return Err("the name of the copy has a line break".to_owned());
    }
    if let Some(done) = control::ask_snapshot(directory, &to) {
        return done;
    }
    let nodes = data_in(directory)?;
    // Nobody connects: addresses matter to clients only.
    let addresses = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 0)); nodes];
    let info = ClusterInfo::new("snapshot", &addresses);
    Shared::open(directory, info, &StoreOptions::default())?.snapshot(&to)
}

/// Reads everything in a data directory on which no node runs, and changes nothing. Every line of the answer is
/// something broken.
///
/// # Errors
/// There is no data, or somebody has it open.
pub fn check(directory: &Path) -> Result<Vec<String>, String> {
    let nodes = data_in(directory)?;
    let mut problems = Vec::new();
    if let Err(error) = persist::load(directory) {
        problems.push(error.to_string());
    }
    for index in 0..nodes {
        let path = node_directory(directory, index);
        let found = store::check(&path, &StoreOptions::default());
        let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
        problems.extend(found.iter().map(|problem| format!("{}: {problem}", path.display())));
    }
    Ok(problems)
}

fn data_in(directory: &Path) -> Result<usize, String> {
    nodes_of(directory)?.ok_or_else(|| format!("{}: no data of a node here", directory.display()))
}
