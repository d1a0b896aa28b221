//! Rules of the proxy's data path: the modules that a query and its answer pass between client and
//! node.

use std::fs;

use super::{assert_none, paths, root, rust_files};

/// The steps in order, and the state that they work on. Every query passes each of these files.
const DATA_PATH: [&str; 21] = [
    "service.rs",
    "intake.rs",
    "decode.rs",
    "route.rs",
    "aggregate.rs",
    "flush.rs",
    "disaggregate.rs",
    "reply.rs",
    "client/mod.rs",
    "client/clients.rs",
    "link/mod.rs",
    "link/links.rs",
    "link/pool.rs",
    "link/pool_table.rs",
    "link/streams.rs",
    "core.rs",
    "fault.rs",
    "ids.rs",
    "plan.rs",
    "retained.rs",
    "window.rs",
];

/// Modules that a request or an answer passes now and then; they must not block either.
const ROOMS: [&str; 4] = ["answers", "client", "link", "retry"];

/// Most fields of the core: the owners, and a few without an owner.
const CORE_FIELDS_MAX: usize = 12;

#[test]
fn the_data_path_has_no_locks_tasks_or_channels() {
    let mut offenders = Vec::new();
    for step in DATA_PATH {
        let text = fs::read_to_string(root().join("crates/proxy/src").join(step)).unwrap();
        // A client that joins finds a pool by its key; every query finds it by its number.
        let allowed: &[&str] = match step {
            "link/pool_table.rs" => &["HashMap"],
            // The inputs of a core include the channel to the control plane.
            "core.rs" => &["tokio", "mpsc"],
            _ => &[],
        };
        for word in ["Mutex", "RwLock", "tokio", "mpsc", "thread", "async ", "HashMap"] {
            let uses = |line: &str| !line.trim_start().starts_with("//") && line.contains(word);
            if !allowed.contains(&word) && text.lines().any(uses) {
                offenders.push(format!("{step} uses {word}"));
            }
        }
    }
    assert_none("the data path", offenders);
}

#[test]
fn nothing_blocks_beside_the_data_path() {
    let mut offenders = Vec::new();
    for room in ROOMS {
        let directory = root().join("crates/proxy/src").join(room);
        let prefix = directory.strip_prefix(root()).unwrap().to_owned();
        let files: Vec<_> =
            rust_files().into_iter().filter(|(path, _)| path.starts_with(&prefix)).collect();
        assert!(!files.is_empty(), "{} is gone: name its successor here", prefix.display());
        for (path, text) in files {
            for word in paths::product_tokens(&text) {
                let blocks = ["Mutex", "RwLock", "thread", "async"].contains(&word.as_str())
                    || word.starts_with("blocking_");
                if blocks {
                    offenders.push(format!("{} uses {word}", path.display()));
                }
            }
        }
    }
    assert_none("beside the data path", offenders);
}

/// A method of the core could write every field of it, so the core has almost none. Steps are
/// functions that take the owners they need.
#[test]
fn the_core_has_owners_and_no_methods() {
    let with_methods: Vec<String> = rust_files()
        .into_iter()
        .filter(|(path, text)| {
            let is_core = |line: &str| {
                line == "impl Core {" || line.starts_with("impl ") && line.ends_with(" for Core {")
            };
            path.starts_with("crates/proxy/src") && text.lines().any(is_core)
        })
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert_eq!(with_methods, ["crates/proxy/src/core.rs", "crates/proxy/src/service.rs"]);
    let text = fs::read_to_string(root().join("crates/proxy/src/core.rs")).unwrap();
    let body = text.split("pub struct Core {").nth(1).unwrap().split("\n}").next().unwrap();
    let fields = body.lines().filter(|line| line.trim_start().starts_with("pub")).count();
    assert!((1..=CORE_FIELDS_MAX).contains(&fields), "{fields} fields, at most {CORE_FIELDS_MAX}");
}
