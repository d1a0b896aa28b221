//! `shunt --version`; with `-v` everything that a bug report needs.

use shunt_reactor::{IoChoice, probe_uring};

/// Returns one line, or several with `verbose`.
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
    let programs = kernel_programs(shunt_steering::MISSING_PROGRAMS);
    format!(
        "{version}commit: {}\ncompiler: {}\nCQL protocol versions: 3, 4, 5\nembedded node: {node}\nkernel programs: {programs}\nI/O drivers (auto is {}):\n  epoll: available\n  uring: {uring}\n",
        env!("SHUNT_COMMIT"),
        env!("SHUNT_RUSTC"),
        IoChoice::Auto.driver_name(),
    )
}

/// Describes whether this build can steer packets; `missing` is what the build could not compile.
fn kernel_programs(missing: &str) -> String {
    match missing {
        "" => "yes".to_owned(),
        _ => format!(
            "no, built without a clang that compiles {missing}: `shunt switch load` is refused, and large answers are relayed"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::kernel_programs;

    #[test]
    fn programs_that_are_missing_are_named() {
        assert_eq!(kernel_programs(""), "yes");
        let text = kernel_programs("handover, multiget");
        assert!(
            text.starts_with("no, ")
                && text.contains("handover, multiget")
                && text.contains("relayed"),
            "{text}"
        );
    }
}
