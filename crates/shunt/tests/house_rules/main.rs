//! The house rules as a test, so that no reviewer has to enforce them.
//!
//! Text-level checks of the repository's own sources: simple, fast, and with file and line in each
//! message.

#![allow(clippy::unwrap_used, reason = "a source that cannot be read fails the test, as it should")]

mod circles;
mod data_path;
mod names;
mod paths;
mod prose;
mod walks;

use std::fs;
use std::path::{Path, PathBuf};

/// A longer file has more than one subject.
const FILE_LINES_MAX: usize = 600;
/// A longer function does not fit a screen.
const FUNCTION_LINES_MAX: usize = 80;
/// Largest committed file, except lock files and recorded results.
const FILE_BYTES_MAX: u64 = 512 * 1024;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Returns the repository's files with one of these endings, without build output.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if ![
                    "target",
                    ".git",
                    "node_modules",
                    ".venv",
                    "corpus",
                    "__pycache__",
                    "artifacts",
                ]
                .contains(&&*name)
                {
                    open.push(path);
                }
            } else if endings.is_empty() || endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn rust_files() -> Vec<(PathBuf, String)> {
    let sources: Vec<_> = files(&[".rs"])
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path.strip_prefix(root()).unwrap().to_owned(), text)
        })
        .collect();
    assert!(sources.len() > 50, "the search for sources found {} files only", sources.len());
    sources
}

fn assert_none(rule: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent = rust_files().into_iter().filter(|(_, text)| !text.trim_start().starts_with("//!"));
    assert_none(
        "files without a //! paragraph at their head",
        silent.map(|(path, _)| path.display().to_string()).collect(),
    );
}

#[test]
fn no_file_is_two_things() {
    let long = rust_files().into_iter().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > FILE_LINES_MAX)
            .then(|| format!("{}: {lines} lines, at most {FILE_LINES_MAX}", path.display()))
    });
    assert_none("files that are too long", long.collect());
}

#[test]
fn functions_fit_a_screen() {
    let mut long = Vec::new();
    // A table of cases in a test may have any length.
    let tables = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    for (path, text) in rust_files().into_iter().filter(|(path, _)| !tables(path)) {
        let mut open: Option<(usize, usize, String)> = None;
        let mut is_test = false;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let code = line.trim_start();
            is_test |= code == "#[test]";
            let starts = [
                "fn ",
                "pub fn ",
                "pub(crate) fn ",
                "pub(super) fn ",
                "async fn ",
                "pub async fn ",
            ];
            if open.is_none()
                && starts.iter().any(|start| code.starts_with(start))
                && !code.ends_with(';')
            {
                open = (!is_test).then(|| (number, indent, code.to_owned()));
                is_test = false;
            } else if let Some((start, depth, head)) = &open
                && indent == *depth
                && code.starts_with('}')
            {
                let lines = number - start + 1;
                if lines > FUNCTION_LINES_MAX {
                    long.push(format!("{}:{}: {lines} lines: {head}", path.display(), start + 1));
                }
                open = None;
            }
        }
    }
    assert_none("functions that do not fit a screen", long);
}

#[test]
fn unsafe_lives_in_the_reactor_alone_and_says_why() {
    let mut offenders = Vec::new();
    for (path, text) in rust_files() {
        let mut safety_at = None;
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if line.contains("SAFETY:") || line.contains("# Safety") {
                safety_at = Some(number);
            }
            let uses = code.contains("unsafe {")
                || code.contains("unsafe fn")
                || code.contains("unsafe impl");
            if !uses || path.ends_with("house_rules/main.rs") {
                continue;
            }
            if !path.starts_with("crates/reactor") {
                offenders.push(format!(
                    "{}:{}: outside crates/reactor",
                    path.display(),
                    number + 1
                ));
            } else if safety_at.is_none_or(|at| number - at > 8) {
                offenders.push(format!(
                    "{}:{}: without a SAFETY reason",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    assert_none("unsafe where it may not be", offenders);
}

#[test]
fn nothing_is_left_half_done() {
    // Assembled here so that this file does not match itself.
    let banned = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let marks = [["FIX", "ME"].concat(), ["XX", "X"].concat()];
    let mut offenders = Vec::new();
    for (path, text) in rust_files() {
        for (number, line) in text.lines().enumerate() {
            if banned.iter().chain(&marks).any(|word| line.contains(word.as_str())) {
                offenders.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert_none("unfinished places", offenders);
}

#[test]
fn the_repository_stands_alone() {
    let foreign = [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat(), ["/ho", "me/"].concat()];
    let mut offenders = Vec::new();
    for path in files(&[
        ".rs", ".md", ".toml", ".py", ".sh", ".go", ".java", ".xml", ".yaml", "Makefile", "run",
    ]) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if foreign.iter().any(|place| line.contains(place.as_str())) {
                offenders.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert_none("paths outside the repository", offenders);
}

#[test]
fn nothing_large_is_committed() {
    let large = files(&[]).into_iter().filter_map(|path| {
        let bytes = fs::metadata(&path).unwrap().len();
        let exempt = path.ends_with("Cargo.lock")
            || path.components().any(|part| part.as_os_str() == "results");
        (bytes > FILE_BYTES_MAX && !exempt).then(|| format!("{}: {bytes} bytes", path.display()))
    });
    assert_none("large files", large.collect());
}
