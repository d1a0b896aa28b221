//! What lies where in a data directory:
//!
//! ```text
//! nodes         how many nodes the data was divided among
//! schema.json   keyspaces, tables and types
//! node-0/ ...   the store of each node
//! control.sock  while nodes run on it: see `control`
//! ```

use std::path::{Path, PathBuf};

/// Where the store of a node is.
pub(crate) fn node_directory(directory: &Path, index: usize) -> PathBuf {
    directory.join(format!("node-{index}"))
}

/// Where nodes that run take orders.
pub(crate) fn control_socket(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}

/// Among how many nodes the data of a directory is divided; `None` if there is no data.
///
/// # Errors
/// A file that cannot be read or is not a number; the message names it.
pub fn nodes_of(directory: &Path) -> Result<Option<usize>, String> {
    let path = directory.join("nodes");
    match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(nodes) if nodes > 0 => Ok(Some(nodes)),
            _ => Err(format!("{}: damaged, it should hold the number of nodes", path.display())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Writes down among how many nodes the data is divided.
pub(crate) fn set_nodes(directory: &Path, nodes: usize) -> Result<(), String> {
    let path = directory.join("nodes");
    let write = || {
        use std::io::Write;
        let mut file = std::fs::File::create(&path)?;
        writeln!(file, "{nodes}")?;
        file.sync_all()?;
        std::fs::File::open(directory)?.sync_all()
    };
    write().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))
}

/// Rows lie with the node that owns their token, and who owns it depends on the number of nodes.
pub(crate) fn claim(directory: &Path, nodes: usize) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    match nodes_of(directory)? {
        None => set_nodes(directory, nodes),
        Some(before) if before == nodes => Ok(()),
        Some(before) => Err(format!(
            "{} has the data of {before} node(s) and cannot be opened with {nodes}; use --nodes {before} or another directory",
            directory.display()
        )),
    }
}
