//! The layout of a data directory:
//!
//! ```text
//! nodes         number of nodes that the data is divided among, and the store's id
//! schema.json   keyspaces, tables and types
//! node-0/ ...   the store of each node
//! control.sock  exists while nodes run on the directory: see `control`
//! ```
//!
//! A directory is *begun* until all of that exists for the first time. From then on a missing part
//! has been lost, in an unfinished copy for example, and is never silently recreated.

use std::fs::{File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use shunt_storage::files;

use crate::schema::Uuid;

/// Follows the number of nodes while the directory is begun.
const BEGUN: &str = "begun";

/// The contents of the file `nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Number of nodes that the data is divided among.
    pub(crate) nodes: usize,
    /// True if the directory was complete once.
    pub(crate) complete: bool,
    /// The store's id, from which its nodes derive their host ids: random, created with the
    /// directory, never changed. Only copies of the directory share it. Directories older than this
    /// id have none and get none, as proxies know their nodes by the existing host ids.
    pub(crate) store: Option<Uuid>,
}

/// Directory of a node's store.
pub(crate) fn node_directory(directory: &Path, index: usize) -> PathBuf {
    directory.join(format!("node-{index}"))
}

/// Socket of running nodes for commands.
pub(crate) fn control_socket(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}

/// Number of nodes that the data of a directory is divided among; `None` if there is no data.
///
/// # Errors
/// A missing, unreadable or damaged file; the message names it.
pub fn nodes_of(directory: &Path) -> Result<Option<usize>, String> {
    Ok(claim_of(directory)?.map(|claim| claim.nodes))
}

/// Reads the file `nodes` of a directory; `None` if there is no data.
pub(crate) fn claim_of(directory: &Path) -> Result<Option<Claim>, String> {
    let path = directory.join("nodes");
    match std::fs::read(&path) {
        Ok(bytes) => match std::str::from_utf8(&bytes).ok().and_then(parse) {
            Some(claim) => Ok(Some(claim)),
            None => Err(format!(
                "{}: damaged, it should hold the number of nodes and its checksum",
                path.display()
            )),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Creating a directory starts with this file.
            let left = ["node-0", "schema.json"].iter().find(|name| directory.join(name).exists());
            left.map_or(Ok(None), |left| {
                Err(format!(
                    "{}: the file is missing, although {left} is there: half a copy?",
                    path.display()
                ))
            })
        }
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Parses a line: the number of nodes, `begun` or nothing, the store's id in 32 hexadecimal digits
/// or nothing, and a checksum of the preceding text. Files older than checksums have the number
/// alone.
fn parse(text: &str) -> Option<Claim> {
    let line = text.strip_suffix('\n')?;
    let Some((said, checksum)) = line.rsplit_once(' ') else {
        return Some(Claim { nodes: number(line)?, complete: false, store: None });
    };
    (checksum == sum(said)).then_some(())?;
    let mut words = said.split(' ').peekable();
    let nodes = number(words.next()?)?;
    let complete = words.next_if_eq(&BEGUN).is_none();
    let store = match words.next() {
        Some(digits) => Some(id(digits)?),
        None => None,
    };
    words.next().is_none().then_some(Claim { nodes, complete, store })
}

fn number(digits: &str) -> Option<usize> {
    digits.parse().ok().filter(|nodes| *nodes > 0)
}

fn id(digits: &str) -> Option<Uuid> {
    let all = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    all.then(|| u128::from_str_radix(digits, 16).ok()).flatten().map(u128::to_be_bytes)
}

/// Id of a new store: 128 random bits.
fn new_id() -> Uuid {
    // Each has different keys; the first of a thread uses the system's random numbers.
    let half = || u128::from(RandomState::new().hash_one(()));
    (half() << 64 | half()).to_be_bytes()
}

fn sum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

/// Records the number of nodes, whether the directory is complete, and the store's id.
pub(crate) fn set_nodes(directory: &Path, claim: Claim) -> Result<(), String> {
    let path = directory.join("nodes");
    let mut said = claim.nodes.to_string();
    if !claim.complete {
        said = format!("{said} {BEGUN}");
    }
    if let Some(store) = claim.store {
        said = format!("{said} {:032x}", u128::from_be_bytes(store));
    }
    let line = format!("{said} {}\n", sum(&said));
    files::replace(&path, line.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))
}

/// Rows are stored with the node that owns their token, and ownership depends on the number of
/// nodes.
pub(crate) fn claim(directory: &Path, nodes: usize) -> Result<Claim, String> {
    files::create_directory(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    match claim_of(directory)? {
        None => begin(directory, nodes),
        Some(before) if before.nodes == nodes => Ok(before),
        Some(Claim { nodes: before, .. }) => Err(format!(
            "{} has the data of {before} node(s) and cannot be opened with {nodes}; use --nodes {before} or another directory",
            directory.display()
        )),
    }
}

/// Two processes that create a directory at once must not end up with two ids; the store's own
/// locks are taken later.
fn begin(directory: &Path, nodes: usize) -> Result<Claim, String> {
    let failed = |error: io::Error| format!("{}: {error}", directory.display());
    let held = File::open(directory).map_err(failed)?;
    match held.try_lock() {
        Err(TryLockError::WouldBlock) => {
            return Err(format!(
                "{}: another process begins it or keeps it locked",
                directory.display()
            ));
        }
        // Some network file systems cannot lock directories; a single process needs no lock there.
        Err(TryLockError::Error(error)) => {
            tracing::debug!(directory = %directory.display(), %error, "a directory cannot be locked");
        }
        Ok(()) => {}
    }
    if claim_of(directory)?.is_some() {
        return Err(format!("{}: another process has just begun it", directory.display()));
    }
    let claim = Claim { nodes, complete: false, store: Some(new_id()) };
    set_nodes(directory, claim).map(|()| claim)
}

/// Refuses a target inside the directory to be copied.
pub(crate) fn check_apart(directory: &Path, to: &Path) -> Result<(), String> {
    let real =
        |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    let (own, above) = (real(directory)?, real(files::parent(to))?);
    if above.starts_with(&own) {
        return Err(format!(
            "{}: inside of the data directory; copy to a place outside of it",
            to.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of every earlier version. A new version must keep these readable: see "Changing a
    /// format" in CONTRIBUTING.md.
    #[test]
    fn files_of_every_version_are_read() {
        let claim = |complete, store| Claim { nodes: 3, complete, store };
        let id = Some([0xa5; 16]);
        let files = [
            ("3\n", claim(false, None), false),
            ("3 begun 599b5ad2\n", claim(false, None), true),
            ("3 6dd28e9b\n", claim(true, None), true),
            ("3 begun a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 7fcde8ef\n", claim(false, id), true),
            ("3 a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 111e1d1d\n", claim(true, id), true),
        ];
        let directory = tempfile::tempdir().unwrap();
        for (file, claim, is_written) in files {
            assert_eq!(parse(file), Some(claim), "{file}");
            set_nodes(directory.path(), claim).unwrap();
            let written = std::fs::read_to_string(directory.path().join("nodes")).unwrap();
            assert!(!is_written || written == file, "{written}");
        }
    }

    #[test]
    fn a_claim_reads_back_and_a_flipped_bit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let claims = [
            (3, false, None),
            (254, true, None),
            (3, false, Some([0xa5; 16])),
            (1, true, Some([0; 16])),
        ];
        for claim in claims.map(|(nodes, complete, store)| Claim { nodes, complete, store }) {
            set_nodes(directory.path(), claim).unwrap();
            assert_eq!(claim_of(directory.path()), Ok(Some(claim)));
            let path = directory.path().join("nodes");
            let whole = std::fs::read(&path).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &flipped).unwrap();
                let said = claim_of(directory.path());
                let error = said.expect_err(&format!("{:?}", String::from_utf8_lossy(&flipped)));
                assert!(error.contains("nodes: damaged"), "{error}");
            }
            for end in 0..whole.len() {
                std::fs::write(&path, &whole[..end]).unwrap();
                claim_of(directory.path()).unwrap_err();
            }
        }
        std::fs::write(directory.path().join("nodes"), "3\n").unwrap();
        assert_eq!(
            claim_of(directory.path()),
            Ok(Some(Claim { nodes: 3, complete: false, store: None }))
        );
        for said in
            ["3 begun x", "3 a5", "3 begun begun", &format!("3 {0} {0}", "a5".repeat(16)), "3 "]
        {
            assert_eq!(parse(&format!("{said} {}\n", sum(said))), None, "{said}");
        }
    }
}
