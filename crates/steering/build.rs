//! Compiles the programs in bpf/ if there is a clang. Without one the crate still builds, and
//! reports at run time which programs are missing.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    let directory = Path::new("../../bpf");
    for name in ["packet.h", "sources.h", "handover.bpf.c", "gateway.bpf.c", "multiget.bpf.c"] {
        println!("cargo:rerun-if-changed={}", directory.join(name).display());
    }
    println!("cargo:rerun-if-env-changed=SHUNT_CLANG");
    println!("cargo:rustc-check-cfg=cfg(has_programs)");
    let (Ok(out), Ok(architecture)) = (env::var("OUT_DIR"), env::var("CARGO_CFG_TARGET_ARCH"))
    else {
        return;
    };
    let clang = env::var("SHUNT_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let headers = format!("-I/usr/include/{architecture}-linux-gnu");
    let options = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", &headers, "-c"];
    let compile = |name: &str| {
        let (source, object) = (
            directory.join(name).with_extension("bpf.c"),
            Path::new(&out).join(name).with_extension("bpf.o"),
        );
        let done = Command::new(&clang).args(options).arg(&source).arg("-o").arg(&object).status();
        if done.as_ref().is_ok_and(std::process::ExitStatus::success) {
            return true;
        }
        // A missing compiler must not break the build of the rest. An old object may come from
        // another source: remove it.
        let _ = fs::remove_file(object);
        match done {
            Ok(done) => {
                let source = source.display();
                println!(
                    "cargo:warning={clang} cannot compile {source}, and this build cannot steer: {done}"
                );
            }
            Err(error) => {
                println!(
                    "cargo:warning={clang} cannot be run ({error}), and this build cannot steer packets"
                )
            }
        }
        false
    };
    let missing: Vec<&str> =
        ["handover", "gateway", "multiget"].into_iter().filter(|name| !compile(name)).collect();
    println!("cargo:rustc-env=SHUNT_MISSING_PROGRAMS={}", missing.join(", "));
    if missing.is_empty() {
        println!("cargo:rustc-cfg=has_programs");
        return;
    }
    // Build again once a compiler is installed.
    let path = env::var_os("PATH").unwrap_or_default();
    for directory in env::split_paths(&path).filter(|directory| directory.is_dir()) {
        println!("cargo:rerun-if-changed={}", directory.display());
    }
}
