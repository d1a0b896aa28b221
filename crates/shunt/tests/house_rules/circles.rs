//! Files that use one another in a circle cannot be read one after the other. A circle may have at
//! most four files.
//!
//! A file uses another if it names the file or an item in it through a path that begins with
//! `crate`, `super`, `self`, a child module or an imported name, or if it calls a macro of the
//! other file. A re-exported item belongs to the file that re-exports it, unless that is the root
//! of the crate. Declarations (`mod x;`) and tests do not count, nor do methods of a value whose
//! type is not named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::paths::{self, Named, Source};
use super::{assert_none, root, rust_files};

const FILES_MAX: usize = 4;

type Module = paths::Path;
type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// Length of the longest chain of imports that is followed.
const IMPORTS_MAX: usize = 4;

/// The files of a crate, without test files; the root has the empty path.
struct Crate {
    files: BTreeMap<Module, Source>,
    macros: BTreeMap<String, Module>,
}

impl Crate {
    fn new(files: impl IntoIterator<Item = (Module, String)>) -> Self {
        let mut files: BTreeMap<Module, Source> =
            files.into_iter().map(|(module, text)| (module, paths::read(&text))).collect();
        let mut tests = Vec::new();
        for (module, source) in &files {
            for name in &source.test_modules {
                tests.push([module.as_slice(), std::slice::from_ref(name)].concat());
            }
        }
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        let mut macros = BTreeMap::new();
        for (module, source) in &files {
            for name in &source.macros_defined {
                macros.insert(name.clone(), module.clone());
            }
        }
        Self { files, macros }
    }

    /// Returns the modules, each with the modules that it uses. The root of a crate does not count:
    /// it is a table of contents.
    fn uses(&self) -> Uses {
        let modules = self.files.keys().filter(|module| !module.is_empty());
        modules.map(|module| (module.clone(), self.used_by(module))).collect()
    }

    fn used_by(&self, module: &Module) -> BTreeSet<Module> {
        let source = &self.files[module];
        let imported = source.imports.iter().map(|import| &import.from);
        let paths = imported.chain(&source.named).filter_map(|named| self.module_of(module, named));
        let macros = source.macros_called.iter().filter_map(|name| self.macros.get(name).cloned());
        paths.chain(macros).filter(|used| used != module && !used.is_empty()).collect()
    }

    /// Returns the module that a path in `from` leads to.
    fn module_of(&self, from: &Module, named: &Named) -> Option<Module> {
        let path = self.absolute(from, named, IMPORTS_MAX)?;
        let module = self.longest_module(&path);
        if !module.is_empty() {
            return Some(module);
        }
        // An item that the root re-exports belongs to its original file.
        let from_root = Named { within: Vec::new(), path };
        self.files.get(&module)?;
        Some(self.longest_module(&self.through_imports(&module, &from_root, IMPORTS_MAX)?))
    }

    fn longest_module(&self, path: &[String]) -> Module {
        let lengths = (0..=path.len()).rev();
        let modules = lengths.map(|length| &path[..length]);
        modules.into_iter().find(|module| self.files.contains_key(*module)).unwrap_or(&[]).to_vec()
    }

    /// Resolves a path from the root of the crate; `None` if it leads out of the crate.
    fn absolute(&self, from: &Module, named: &Named, imports: usize) -> Option<Module> {
        let mut parts = named.path.iter().peekable();
        let mut place = [from.as_slice(), &named.within].concat();
        match parts.peek()?.as_str() {
            "crate" => {
                parts.next();
                place.clear();
            }
            "super" | "self" => {
                parts.next_if(|part| *part == "self");
                while parts.next_if(|part| *part == "super").is_some() {
                    place.pop();
                }
            }
            child => {
                place.clone_from(from);
                place.push(child.to_owned());
                if !self.files.contains_key(&place) {
                    return self.through_imports(from, named, imports);
                }
                parts.next();
            }
        }
        place.extend(parts.cloned());
        Some(place)
    }

    /// Resolves a path that begins with an imported name.
    fn through_imports(&self, file: &Module, named: &Named, imports: usize) -> Option<Module> {
        let (first, rest) = named.path.split_first()?;
        let imports = imports.checked_sub(1)?;
        self.files[file].imports.iter().find_map(|import| {
            let is_itself = import.from.path.first() == Some(first);
            if is_itself || import.name != *first && import.name != "*" {
                return None;
            }
            let mut place = self.absolute(file, &import.from, imports)?;
            if import.name == "*" {
                place.pop();
                place.push(first.clone());
                self.files.get(&place)?;
            }
            place.extend(rest.iter().cloned());
            Some(place)
        })
    }
}

/// Reads the files below `crates/NAME/src`.
fn read_crate(name: &str) -> Crate {
    let source = format!("crates/{name}/src/");
    Crate::new(rust_files().into_iter().filter_map(|(path, text)| {
        let path = path.to_str()?.strip_prefix(&source)?.strip_suffix(".rs")?.to_owned();
        let mut module: Module = path.split('/').map(str::to_owned).collect();
        if module == ["lib"] || module == ["main"] || module.last()? == "mod" {
            module.pop();
        }
        (!module.iter().any(|part| part == "tests")).then_some((module, text))
    }))
}

/// Returns all modules that a module uses directly or indirectly.
fn reached(from: &Module, uses: &Uses) -> BTreeSet<Module> {
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

/// Returns the circles of a crate, each as a set of modules.
fn circles(uses: &Uses) -> BTreeSet<BTreeSet<Module>> {
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
        let uses = read_crate(&name).uses();
        crates += usize::from(uses.values().any(|used| !used.is_empty()));
        for circle in circles(&uses).into_iter().filter(|circle| circle.len() > FILES_MAX) {
            let mut lines = vec![format!("{name}: {} files", circle.len())];
            for module in &circle {
                let used: Vec<String> =
                    uses[module].intersection(&circle).map(|module| module.join("::")).collect();
                lines.push(format!("    {} uses {}", module.join("::"), used.join(", ")));
            }
            offenders.push(lines.join("\n  "));
        }
    }
    assert!(crates > 8, "uses were found in {crates} crates only");
    assert_none("circles of more than four files", offenders);
}

fn module(path: &str) -> Module {
    path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns the modules that a file with this text uses, in a crate with the modules `a`, `a::b`,
/// `a::b::d` and `c`, whose root re-exports a name of `c`.
fn used(from: &str, text: &str) -> Vec<String> {
    let mut files: BTreeMap<Module, String> =
        ["a", "a::b", "a::b::d"].map(|path| (module(path), String::new())).into();
    files.insert(module("c"), "macro_rules! of_c { () => {} }".to_owned());
    files.insert(module(""), "mod a;\npub use c::Thing as OfRoot;".to_owned());
    files.insert(module(from), text.to_owned());
    Crate::new(files).used_by(&module(from)).iter().map(|module| module.join("::")).collect()
}

#[test]
fn uses_are_found_in_imports() {
    assert_eq!(used("c", "use crate::{a::{self, b::Thing}, c};"), ["a", "a::b"]);
    assert_eq!(used("a", "pub(crate) use b::Thing;"), ["a::b"]);
    assert_eq!(used("a", "pub(in crate::c) fn f() {}"), [""; 0]);
    assert_eq!(used("a::b", "use super::*;\nuse d::*;"), ["a", "a::b::d"]);
    assert_eq!(used("a::b", "use crate::OfRoot;"), ["c"]);
    assert_eq!(
        used("a", "mod inner {\n    use super::super::c;\n}\nuse self::b::d;"),
        ["a::b::d", "c"]
    );
    assert_eq!(used("a", "fn f() {\n    use std::fs;\n    use crate::c;\n}"), ["c"]);
}

#[test]
fn uses_are_found_in_code() {
    assert_eq!(used("a::b", "use std::fs;\nfn f() { super::super::c::g() }"), ["c"]);
    assert_eq!(used("a::b", "fn f() { d::g::<u8>(); self::d::h(); }"), ["a::b::d"]);
    assert_eq!(used("c", "fn f(x: &<crate::a::b::d::T as Clone>::U) {}"), ["a::b::d"]);
    assert_eq!(
        used("c", "use crate::a;\nuse crate::a::b as other;\nother::d::f();"),
        ["a", "a::b", "a::b::d"]
    );
    assert_eq!(used("c", "use crate::a::*;\nfn f() { b::g() }"), ["a", "a::b"]);
    assert_eq!(used("a", "of_c!(1);"), ["c"]);
    assert_eq!(used("a", "print!(\"{}\", crate::c::f());"), ["c"]);
    assert_eq!(used("c", "use std::a;\nfn f() { a::g(); other::a::b() }"), [""; 0]);
}

#[test]
fn comments_texts_and_tests_use_nothing() {
    assert_eq!(used("a", "// crate::c\n/* crate::c /* */ crate::c */"), [""; 0]);
    assert_eq!(
        used("a", "const A: &str = \"crate::c\"; const B: &str = r#\"\" crate::c\"#;"),
        [""; 0]
    );
    assert_eq!(
        used("a", "fn f<'a>(c: char) -> bool { c == '\"' || c == '\\'' } // \" crate::c"),
        [""; 0]
    );
    assert_eq!(used("a", "mod b;\n#[cfg(test)]\nmod tests { use crate::c; }"), [""; 0]);
    // A declaration ends nothing: this mistake once hid the imports after it in 37 files.
    assert_eq!(used("a", "#[cfg(test)]\nmod tests;\nmod b;\n\nuse crate::c;"), ["c"]);
    assert_eq!(used("a", "#[cfg(test)]\nuse crate::{c};\nuse b::d;"), ["a::b::d"]);
    assert_eq!(
        used("a", "#[cfg(all(test, unix))]\n#[allow(x)]\npub(crate) fn f() { crate::c::g() }"),
        [""; 0]
    );
    assert_eq!(used("a", "struct A {\n#[cfg(test)]\nx: crate::c::X,\ny: b::Y }"), ["a::b"]);
    assert_eq!(used("a", "#[cfg(not(test))]\nuse crate::c;"), ["c"]);
    assert_eq!(used("a::b", "fn f() {}\n#[cfg(test)]\nmod d;"), [""; 0]);
    let models = [("", ""), ("a", "#[cfg(test)]\nmod models;"), ("a::models", "use super::X;")];
    let models = Crate::new(models.map(|(path, text)| (module(path), text.to_owned())));
    assert_eq!(models.uses().len(), 1);
}

#[test]
fn circles_are_found() {
    let uses: Uses = [
        (module("a"), [module("a::b")].into()),
        (module("a::b"), [module("c")].into()),
        (module("c"), [module("a")].into()),
        (module("d"), [module("a")].into()),
    ]
    .into();
    assert_eq!(circles(&uses), [[module("a"), module("a::b"), module("c")].into()].into());
}
