//! A file is named by a noun that says what it is about: no participle, pronoun or adverb, which
//! say something only to who has read the file.

use super::{assert_none, rust_files};

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
