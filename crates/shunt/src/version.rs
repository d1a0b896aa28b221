//! `shunt --version`, with `-v` everything a bug report needs.

use shunt_reactor::{IoChoice, probe_uring};

/// One line, or with `verbose` several.
pub(crate) fn text(verbose: bool) -> String {
    let version = format!("shunt {}\n", env!("CARGO_PKG_VERSION"));
    if !verbose {
        return version;
    }
    let uring = match probe_uring() {
        Ok(()) => "available".to_owned(),
        Err(why) => format!("not available: {why}"),
    };
    let node = if cfg!(feature = "node") { "yes" } else { "no, built without the feature `node`" };
    format!(
        "{version}commit: {}\ncompiler: {}\nCQL protocol versions: 3, 4, 5\nembedded node: {node}\nI/O drivers (auto is {}):\n  epoll: available\n  uring: {uring}\n",
        env!("SHUNT_COMMIT"),
        env!("SHUNT_RUSTC"),
        IoChoice::Auto.driver_name(),
    )
}
