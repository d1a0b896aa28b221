//! Files that use one another in a circle cannot be read one after the other: a circle has at most
//! four of them.
//!
//! A file uses another if it names it, or something in it, in a path that begins with `crate`,
//! `super`, `self` or a child module. What is re-exported belongs to the file that re-exports it,
//! unless that is the root of the crate. Declarations (`mod x;`) and tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{assert_none, root, rust_files};

const FILES_MAX: usize = 4;

type Module = Vec<String>;

/// The modules of a crate, each with those that it uses.
fn uses_of(name: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let source = format!("crates/{name}/src/");
    let files: Vec<(Module, String)> = rust_files()
        .into_iter()
        .filter_map(|(path, text)| {
            let path = path.to_str()?.strip_prefix(&source)?.strip_suffix(".rs")?.to_owned();
            let mut module: Module = path.split('/').map(str::to_owned).collect();
            if module.iter().any(|part| part == "tests") {
                return None;
            }
            if ["mod", "lib", "main"].contains(&module.last()?.as_str()) {
                module.pop();
            }
            // The root of a crate is its table of contents.
            (!module.is_empty()).then_some((module, text))
        })
        .collect();
    let modules: BTreeSet<Module> = files.iter().map(|(module, _)| module.clone()).collect();
    files.iter().map(|(module, text)| (module.clone(), used_in(module, text, &modules))).collect()
}

fn used_in(module: &Module, text: &str, modules: &BTreeSet<Module>) -> BTreeSet<Module> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: String = product
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join(" ");
    let mut paths = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        match statement.rsplit_once("use ") {
            Some((before, tree)) if before.is_empty() || before.ends_with([' ', '(', ')', '}']) => {
                expand(tree.trim_end_matches(';'), "", &mut paths);
                rest.push_str(before);
            }
            _ => rest.push_str(statement),
        }
    }
    let words = rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    paths.extend(
        words
            .filter(|word| word.starts_with("crate::") || word.starts_with("super::"))
            .map(str::to_owned),
    );
    paths
        .iter()
        .filter_map(|path| resolve(module, path, modules))
        .filter(|used| used != module)
        .collect()
}

/// The paths in a `use` tree, braces multiplied out.
fn expand(tree: &str, prefix: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let leaf = tree.split(" as ").next().unwrap_or_default().trim();
        paths.push(if leaf == "self" {
            prefix.trim_end_matches("::").to_owned()
        } else {
            format!("{prefix}{leaf}")
        });
        return;
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&inner[start..at], &prefix, paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        expand(&inner[start..], &prefix, paths);
    }
}

/// The module that a path leads into, seen from another.
fn resolve(from: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut parts = path.split("::").map(|part| part.trim().to_owned()).peekable();
    let mut full: Module = match parts.peek()?.as_str() {
        "crate" => {
            parts.next();
            Vec::new()
        }
        "super" => {
            let mut up = from.clone();
            while parts.next_if(|part| part == "super").is_some() {
                up.pop();
            }
            up
        }
        "self" => {
            parts.next();
            from.clone()
        }
        child => {
            let mut own = from.clone();
            own.push(child.to_owned());
            if !modules.contains(&own) {
                return None;
            }
            from.clone()
        }
    };
    full.extend(parts);
    while !full.is_empty() && !modules.contains(&full) {
        full.pop();
    }
    (!full.is_empty()).then_some(full)
}

/// Everything that can be reached from a module.
fn reached(from: &Module, uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if found.insert(used.clone()) {
                open.push(used);
            }
        }
    }
    found
}

/// The circles of a crate, each with its modules.
fn circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        uses.keys().map(|module| (module, reached(module, uses))).collect();
    let in_circle = uses.keys().filter(|module| reached[module].contains(*module));
    in_circle
        .map(|module| {
            reached[module]
                .iter()
                .filter(|other| reached[other].contains(module))
                .cloned()
                .collect()
        })
        .collect()
}

#[test]
fn no_circle_has_more_than_four_files() {
    let mut offenders = Vec::new();
    let mut crates = 0;
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let uses = uses_of(&name);
        crates += usize::from(uses.values().any(|used| !used.is_empty()));
        for circle in circles(&uses).into_iter().filter(|circle| circle.len() > FILES_MAX) {
            let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            offenders.push(format!("{name}: {} files: {}", files.len(), files.join(", ")));
        }
    }
    assert!(crates > 8, "uses were found in {crates} crates only");
    assert_none("circles of more than four files", offenders);
}

#[test]
fn circles_are_found_through_braces_parents_and_children() {
    let module = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
    let modules: BTreeSet<Module> = ["a", "a::b", "c"].map(module).into();
    let used = |from: &str, text: &str| used_in(&module(from), text, &modules);
    assert_eq!(
        used("c", "use crate::{a::{self, b::Thing}, c};"),
        [module("a"), module("a::b")].into()
    );
    assert_eq!(used("a::b", "use std::fs;\nfn f() { super::super::c::g() }"), [module("c")].into());
    assert_eq!(used("a", "pub(crate) use b::Thing;"), [module("a::b")].into());
    assert_eq!(
        used("a", "// use crate::c;\nmod b;\n#[cfg(test)]\nmod tests { use crate::c; }"),
        BTreeSet::new()
    );
    let uses: BTreeMap<Module, BTreeSet<Module>> = [
        (module("a"), [module("a::b")].into()),
        (module("a::b"), [module("c")].into()),
        (module("c"), [module("a")].into()),
        (module("d"), [module("a")].into()),
    ]
    .into();
    assert_eq!(circles(&uses), [[module("a"), module("a::b"), module("c")].into()].into());
}
