//! A file is named by a noun that says what it is about. Participles, pronouns and adverbs mean
//! something only to a reader who knows the file. Documents name files that exist.

use std::fs;
use std::path::{Path, PathBuf};

use super::{assert_none, files, root, rust_files};

const BARRED: [&str; 45] = [
    "allowed",
    "alone",
    "asked",
    "besides",
    "carry",
    "carry_out",
    "elsewhere",
    "ends",
    "found",
    "gathered",
    "gone",
    "heard",
    "in_text",
    "keep",
    "kept",
    "known",
    "lone",
    "look",
    "looks",
    "missed",
    "moved",
    "named",
    "newcomers",
    "noted",
    "orders",
    "own",
    "question",
    "recognise",
    "room",
    "ruled",
    "said",
    "sent",
    "shown",
    "still",
    "survey",
    "swept",
    "take",
    "taken",
    "told",
    "unsent",
    "way",
    "who",
    "withdrawn",
    "word",
    "words",
];

#[test]
fn files_are_named_by_nouns() {
    let sources = rust_files().into_iter().filter_map(|(path, _)| path.to_str().map(str::to_owned));
    let barred = |path: &String| {
        let name = path.trim_end_matches("/mod.rs").trim_end_matches(".rs").rsplit('/').next();
        let is_source = path.starts_with("crates/") && path.contains("/src/");
        is_source && name.is_some_and(|name| BARRED.contains(&name))
    };
    assert_none("files whose name is no noun", sources.filter(barred).collect());
}

/// Terms of the glossary's list of words that we do not use, as far as they have no other meaning
/// in our documents.
const UNUSED_TERMS: [&str; 13] = [
    "data center",
    "direct return",
    "failover",
    "fan-out",
    "fencing id",
    "intent",
    "journal entry",
    "mutex",
    "region",
    "scatter-gather",
    "splice",
    "super-frame",
    "wal",
];

/// The terms that a text uses, as words of their own.
fn unused_terms(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    let is_word = move |term: &&str| {
        text.match_indices(*term).any(|(at, _)| {
            let (before, after) = (&text[..at], text[at + term.len()..].trim_start_matches('s'));
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
    };
    UNUSED_TERMS.into_iter().filter(is_word)
}

#[test]
fn the_glossary_has_the_terms_that_we_do_not_use() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).unwrap().to_lowercase();
    let table = glossary.split("## words that we do not use").nth(1).unwrap();
    let listed: Vec<_> = unused_terms(table).collect();
    assert_eq!(listed, UNUSED_TERMS);
    assert_eq!(unused_terms("walk a wall, Failovers").collect::<Vec<_>>(), ["failover"]);
}

#[test]
fn documents_and_comments_use_the_terms_of_the_glossary() {
    let mut offenders = Vec::new();
    let documents = files(&[".md"]).into_iter().filter(|path| !path.ends_with("glossary.md"));
    let documents = documents.map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        (text, path.strip_prefix(root()).unwrap().to_owned())
    });
    let sources = rust_files().into_iter().map(|(path, text)| (text, path));
    for (text, path) in documents.chain(sources) {
        let is_source = path.extension().is_some_and(|kind| kind == "rs");
        for (number, line) in text.lines().enumerate() {
            let prose = !is_source || line.trim_start().starts_with("//");
            for term in unused_terms(line).filter(|_| prose) {
                offenders.push(format!("{}:{}: {term}", path.display(), number + 1));
            }
        }
    }
    assert_none("terms that docs/glossary.md replaces by others", offenders);
}

/// The sources that a line of a document names in backticks, such as `core.rs`.
fn sources_named(line: &str) -> impl Iterator<Item = &str> {
    let is_source = |text: &&str| {
        let is_path = |c: char| c.is_ascii_alphanumeric() || ['/', '_', '-', '.'].contains(&c);
        text.ends_with(".rs") && text.len() > 3 && text.chars().all(is_path)
    };
    line.split('`').skip(1).step_by(2).filter(is_source)
}

#[test]
fn sources_in_backticks_are_found() {
    let line = "`a/b.rs`, c.rs and `let x = y.rs;` or `.rs`, `d_e.rs`";
    assert_eq!(sources_named(line).collect::<Vec<_>>(), ["a/b.rs", "d_e.rs"]);
}

#[test]
fn sources_that_documents_name_exist() {
    let sources: Vec<PathBuf> = rust_files().into_iter().map(|(path, _)| path).collect();
    let (mut found, mut missing) = (0, Vec::new());
    for path in files(&[".md"]) {
        let text = fs::read_to_string(&path).unwrap();
        let place = path.strip_prefix(root()).unwrap().display();
        for (number, line) in text.lines().enumerate() {
            for name in sources_named(line) {
                found += 1;
                if !sources.iter().any(|source| source.ends_with(Path::new(name))) {
                    missing.push(format!("{place}:{}: {name}", number + 1));
                }
            }
        }
    }
    assert!(found > 100, "only {found} names of sources were found in documents");
    assert_none("sources that documents name, and that do not exist", missing);
}
