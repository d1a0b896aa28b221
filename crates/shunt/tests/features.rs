//! A build without the embedded node contains no part of RocksDB, so it needs no C++ compiler and
//! no libclang.

use std::process::Command;

/// The store's crates, and crates whose build needs a C++ compiler or libclang.
const OF_THE_STORE: [&str; 6] =
    ["shunt-node", "shunt-storage", "rocksdb", "librocksdb-sys", "bindgen", "clang-sys"];

/// Names of all crates that the binary is built from, build dependencies included.
fn crates(features: &[&str]) -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "tree",
        "-p",
        "shunt",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let output =
        cargo.arg("--locked").args(features).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn without_the_embedded_node_nothing_of_its_store_is_built() {
    let (with, without) = (crates(&[]), crates(&["--no-default-features"]));
    for name in OF_THE_STORE {
        assert!(
            with.iter().any(|built| built == name),
            "{name} is not among what the node needs: {with:?}"
        );
        assert!(!without.iter().any(|built| built == name), "{name} is built without the node");
    }
    assert!(without.iter().any(|built| built == "shunt-proxy"), "{without:?}");
}
