//! Comments and documents are prose: a line has at most 100 columns, and a doc comment begins with
//! its subject. Programs and files of scripts/ and packaging/ follow the same rules, and so do the
//! docstrings of all Python programs.
//!
//! A comment that opens with a clause, a pronoun or a bare quantifier makes the reader look for the
//! subject. The share of such openings is held low, as no rule of grammar can be checked by machine
//! without false alarms: quinn has 5.7 %, rustls 4.7 %, s2n-quic 1.3 %.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{assert_none, files, root, rust_files};

const COLUMNS_MAX: usize = 100;

/// Most openings that are allowed, in percent of a crate's doc comments.
const PERCENT_MAX: usize = 5;

/// Words with which a doc comment does not begin.
const OPENERS: &[&str] = &[
    "What",
    "Of",
    "Who",
    "Whom",
    "Whose",
    "It",
    "Its",
    "They",
    "Their",
    "Them",
    "Those",
    "These",
    "That",
    "Such",
    "So",
    "Where",
    "When",
    "As",
    "Which",
    "How",
    "And",
    "But",
    "Or",
    "Nor",
    "All",
    "Not",
    "Nothing",
    "None",
    "Nobody",
    "Now",
    "Then",
    "There",
    "Here",
    "Everything",
    "Whatever",
    "Whoever",
];

/// Doc comments of a source: the line number, from 1, and the text of the first line of each.
fn openings(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut before = "";
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let mark = ["///", "//!"].into_iter().find(|mark| code.starts_with(mark)).unwrap_or("");
        if !mark.is_empty() && before != mark {
            found.push((number + 1, code[mark.len()..].trim_start()));
        }
        before = mark;
    }
    found
}

/// Returns true if a doc comment begins with one of [`OPENERS`].
fn is_bare(text: &str) -> bool {
    let text = text.trim_start_matches(['[', '`', '*', '(']);
    let end = text.find(|c: char| !c.is_alphabetic()).unwrap_or(text.len());
    OPENERS.contains(&&text[..end])
}

#[test]
fn openings_are_found() {
    let source =
        "//! Of a module.\n\n/// A thing.\n/// It is large.\nfn thing() {}\n    /// Its size.\n";
    let bare: Vec<_> = openings(source).into_iter().filter(|(_, text)| is_bare(text)).collect();
    assert_eq!(openings(source).len(), 3);
    assert_eq!(bare, [(1, "Of a module."), (6, "Its size.")]);
    assert!(!is_bare("Ofen") && !is_bare("Items of a list") && is_bare("`What` follows"));
}

#[test]
fn doc_comments_begin_with_their_subject() {
    let mut crates: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for (path, text) in rust_files() {
        let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
        let name = match parts.next().as_deref() {
            Some("crates") => parts.next().unwrap_or_default(),
            Some(other) => other.to_owned(),
            None => continue,
        };
        let (count, bare) = crates.entry(name).or_default();
        for (number, text) in openings(&text) {
            *count += 1;
            if is_bare(text) {
                bare.push(format!("{}:{number}: {text}", path.display()));
            }
        }
    }
    for (name, (count, bare)) in crates {
        let most = count * PERCENT_MAX / 100;
        if bare.len() > most {
            let rule = format!("{name}: {} of {count} doc comments, at most {most}", bare.len());
            assert_none(&rule, bare);
        }
    }
}

#[test]
fn comments_have_at_most_a_hundred_columns() {
    let mut long = Vec::new();
    for (path, text) in rust_files() {
        // Diagrams, tables and code in comments keep their lines.
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if !code.starts_with("//") {
                continue;
            }
            let words = code.trim_start_matches(['/', '!']).trim_start();
            is_code ^= words.starts_with("```");
            let is_prose = !is_code && !words.starts_with('|') && words.contains(' ');
            if is_prose && line.chars().count() > COLUMNS_MAX {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert_none("comments with more than 100 columns", long);
}

/// Numbers, from 1, of the lines of a document that are too long to read. Code, tables, images, and
/// lines of one word, such as a long path, cannot be wrapped.
fn long_lines(document: &str) -> Vec<usize> {
    let mut long = Vec::new();
    let mut is_code = false;
    for (number, line) in document.lines().enumerate() {
        let text = line.trim_start();
        is_code ^= text.starts_with("```");
        let is_prose = !is_code && !text.starts_with(['|', '!']) && text.contains(' ');
        if is_prose && line.chars().count() > COLUMNS_MAX {
            long.push(number + 1);
        }
    }
    long
}

#[test]
fn long_lines_of_documents_are_found() {
    let long = "word ".repeat(COLUMNS_MAX / 5) + "a";
    let path = "`-javaagent:/opt/".repeat(COLUMNS_MAX / 10);
    let document =
        format!("{long}\n\n```sh\n{long}\n```\n\n| {long}\n![{long}\n  {path}\n- {long}\n");
    assert_eq!(long_lines(&document), [1, 10]);
    assert_eq!(long_lines(&long[..COLUMNS_MAX]), []);
}

#[test]
fn documents_have_at_most_a_hundred_columns() {
    let mut long = Vec::new();
    for path in files(&[".md"]) {
        // Each run of `shunt bench` writes this page.
        if path.ends_with("docs/results/README.md") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root()).unwrap().display();
        long.extend(long_lines(&text).into_iter().map(|number| format!("{path}:{number}")));
    }
    assert_none("lines of documents with more than 100 columns", long);
}

/// Comments of a program or of a file of options, and docstrings if it is Python: the line number,
/// from 1, and the line.
fn comments_behind_hashes(text: &str) -> Vec<(usize, &str)> {
    let mut comments = Vec::new();
    let mut is_docstring = false;
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let quotes = line.matches("\"\"\"").count();
        let opens = !is_docstring && code.starts_with("\"\"\"");
        let is_comment = code.starts_with('#') && !code.starts_with("#!");
        if is_docstring || opens || is_comment {
            comments.push((number + 1, line));
        }
        is_docstring = (is_docstring || opens) && (quotes.is_multiple_of(2) == is_docstring);
    }
    comments
}

#[test]
fn comments_behind_hashes_are_found() {
    let source =
        "#!/bin/sh\n# One.\nx = 1  # no\n\"\"\"Two.\"\"\"\n    \"\"\"Three\n    four.\"\"\"\ny\n";
    let numbers: Vec<_> = comments_behind_hashes(source).iter().map(|(at, _)| *at).collect();
    assert_eq!(numbers, [2, 4, 5, 6]);
}

/// Files with comments behind `#` in these directories, and all manifests.
fn programs(places: &[&str]) -> Vec<(PathBuf, String)> {
    let is_read = |path: &Path| {
        let is_manifest = path.ends_with("Cargo.toml");
        let is_data = path.extension().is_some_and(|kind| kind == "json" || kind == "md");
        is_manifest || !is_data && places.iter().any(|place| path.starts_with(place))
    };
    let root = root();
    let relative = |path: PathBuf| path.strip_prefix(&root).unwrap().to_owned();
    let paths = files(&[]).into_iter().map(relative).filter(|path| is_read(path));
    let texts: Vec<_> = paths
        .filter_map(|path| Some((path.clone(), fs::read_to_string(root.join(&path)).ok()?)))
        .collect();
    assert!(texts.len() > 25, "the search for programs found {} files only", texts.len());
    texts
}

#[test]
fn comments_of_programs_have_at_most_a_hundred_columns() {
    let mut long = Vec::new();
    for (path, text) in programs(&["scripts", "packaging"]) {
        let lines = comments_behind_hashes(&text).into_iter();
        let is_long = |line: &str| line.trim().contains(' ') && line.chars().count() > COLUMNS_MAX;
        let lines = lines.filter(|(_, line)| is_long(line));
        long.extend(lines.map(|(number, _)| format!("{}:{number}", path.display())));
    }
    assert_none("comments with more than 100 columns", long);
}

#[test]
fn docstrings_of_programs_begin_with_their_subject() {
    for place in ["scripts", "packaging", "experiments", "tests"] {
        let (mut count, mut bare) = (0, Vec::new());
        for (path, text) in programs(&[place]).iter().filter(|(path, _)| path.starts_with(place)) {
            for (number, line) in comments_behind_hashes(text) {
                let Some(opening) = line.trim_start().strip_prefix("\"\"\"") else { continue };
                count += 1;
                if is_bare(opening) {
                    bare.push(format!("{}:{number}: {}", path.display(), line.trim()));
                }
            }
        }
        let most = count * PERCENT_MAX / 100;
        if bare.len() > most {
            assert_none(&format!("{place}: {count} docstrings, at most {most} of these"), bare);
        }
    }
}
