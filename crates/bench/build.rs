//! Lists the scenarios, so that a new scenario needs only its file.

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    let package = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let directory = Path::new(&package).join("../../experiments/scenarios").canonicalize()?;
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut files: Vec<_> = fs::read_dir(&directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        list += &format!("    ({name:?}, include_str!({:?})),\n", file.display().to_string());
    }
    list += "]\n";
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("scenarios.rs"), list)
}
