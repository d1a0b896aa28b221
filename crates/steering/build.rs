//! Compiles bpf/handover.bpf.c, where there is a clang. Without one the crate is built all the same, and says at run time what is missing.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    let source = Path::new("../../bpf/handover.bpf.c");
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-env-changed=SHUNT_CLANG");
    println!("cargo:rustc-check-cfg=cfg(has_programs)");
    let (Ok(out), Ok(architecture)) = (env::var("OUT_DIR"), env::var("CARGO_CFG_TARGET_ARCH")) else { return };
    let clang = env::var("SHUNT_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let object = Path::new(&out).join("handover.bpf.o");
    let headers = format!("-I/usr/include/{architecture}-linux-gnu");
    let options = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", &headers, "-c"];
    match Command::new(&clang).args(options).arg(source).arg("-o").arg(&object).status() {
        Ok(done) if done.success() => println!("cargo:rustc-cfg=has_programs"),
        done => {
            // A compiler that nobody but these programs needs must not keep anybody from the rest. What there was may be of another source.
            let _ = fs::remove_file(object);
            if let Ok(done) = done {
                println!(
                    "cargo:warning={clang} cannot compile {}, and this build cannot steer: {done}",
                    source.display()
                );
            }
        }
    }
}
