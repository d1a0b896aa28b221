//! A data directory that is damaged while no node runs on it: a flipped bit, a missing file or a
//! truncated file, one at a time, in every file. Allowed outcomes: the node starts and all data is
//! as written; or reads of the damaged part return an error; or the node does not start and names
//! the file. If the damage had any effect, `shunt node check` names the file as well.
//!
//! `SHUNT_DAMAGE_FLIPS` sets the number of flips for each file. Files of rows get twice as many.

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::Random;
use crate::plain::Plain;
use crate::process::{Kind, Running, check};
use crate::{directory, from_environment, seed};

/// Default number of flips for each file; files of rows get twice as many.
const FLIPS: u64 = 1;
/// Number of files of rows that are damaged; they are all alike.
const TABLES_MAX: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip(u64),
    CutOff,
    Gone,
}

impl Damage {
    fn to(self, path: &Path) {
        let mut bytes = fs::read(path).expect("read");
        match self {
            Damage::Flip(bit) => bytes[(bit / 8) as usize] ^= 1 << (bit % 8),
            Damage::CutOff => bytes.truncate(bytes.len() / 2),
            Damage::Gone => return fs::remove_file(path).expect("remove"),
        }
        fs::write(path, bytes).expect("write");
    }
}

pub(crate) fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).expect("directory");
    for entry in fs::read_dir(from).expect("directory") {
        let (path, kind) =
            entry.map(|entry| (entry.path(), entry.file_type().expect("kind"))).expect("entry");
        let target = to.join(path.file_name().expect("name"));
        if kind.is_dir() {
            copy_all(&path, &target);
        } else if kind.is_file() {
            fs::copy(&path, target).expect("copy");
        }
    }
}

/// Returns all files, relative to the directory.
fn files(root: &Path, below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(below)).expect("directory").flatten() {
        let (path, kind) = (below.join(entry.file_name()), entry.file_type().expect("kind"));
        if kind.is_dir() {
            found.extend(files(root, &path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found.sort();
    let mut tables = 0;
    found.retain(|path| {
        let table = is_table(path);
        tables += usize::from(table);
        !table || tables <= TABLES_MAX
    });
    found
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "sst")
}

/// Message for a damaged table.
const OUT_OF_ORDER: &str = "properties unsorted in file";
/// Part of the error for a log that the store relies on and does not find.
const LOG_GONE: &str = "acknowledged writes are missing";

#[test]
fn damage_is_never_served_and_always_named() {
    let (seed, flips) = (seed(), from_environment("SHUNT_DAMAGE_FLIPS").unwrap_or(FLIPS));
    println!("damage: {flips} flips in each file, SHUNT_CRASH_SEED={seed}");
    let mut random = Random::new(seed);
    let directory = directory(Kind::Node);
    let (data, log, copy) = (
        directory.path().join("data"),
        directory.path().join("log"),
        directory.path().join("copy"),
    );
    let mut plain = Plain::default();
    let running = Running::start(Kind::Node, &data, &log);
    Plain::prepare(&mut running.client());
    plain.run(running.clients, 40);
    assert_eq!(running.stop(), Some(0));
    let (mut refused, mut failed, mut harmless) = (0, 0, 0);
    let mut problems = Vec::new();
    for file in files(&data, Path::new("")) {
        let bits = 8 * data.join(&file).metadata().expect("file").len();
        // Most damage in rows shows when they are read, not when the node starts.
        let flips = if is_table(&file) { 2 * flips } else { flips };
        let flips =
            (0..flips).filter(|_| bits > 0).map(|_| Damage::Flip(random.below(bits.max(1))));
        for damage in flips.chain([Damage::CutOff, Damage::Gone]).collect::<Vec<_>>() {
            println!("{damage:?} {}", file.display());
            copy_all(&data, &copy);
            damage.to(&copy.join(&file));
            let said = check(&copy);
            let name = file.file_name().and_then(|name| name.to_str()).expect("name");
            // RocksDB names the manifest if a flipped bit in a name of a table's property block
            // breaks their order. A manifest whose end cannot be read may lack the number of a log,
            // which is then named.
            let is_named = |text: &str| {
                text.contains(name)
                    || is_table(&file) && text.contains(OUT_OF_ORDER)
                    || name.starts_with("MANIFEST") && text.contains(LOG_GONE)
            };
            let named = said.as_ref().is_some_and(|said| is_named(said));
            match Running::try_start(Kind::Node.command(&copy), &log) {
                None => {
                    let why = fs::read_to_string(&log).expect("log");
                    if !is_named(&why) {
                        problems.push(format!(
                            "{damage:?} {}: refused and not named: {why}",
                            file.display()
                        ));
                    }
                    if !named {
                        problems.push(format!(
                            "{damage:?} {}: refused, check says {said:?}: {why}",
                            file.display()
                        ));
                    }
                    refused += 1;
                }
                Some(running) => {
                    let errors = plain.verify(&mut running.client());
                    if !errors.is_empty() && !named {
                        problems.push(format!(
                            "{damage:?} {}: {errors:?}, check says {said:?}",
                            file.display()
                        ));
                    }
                    failed += usize::from(!errors.is_empty());
                    harmless += usize::from(errors.is_empty());
                }
            }
            fs::remove_dir_all(&copy).expect("remove");
        }
    }
    println!(
        "{refused} times refused to start, {failed} times reads failed, {harmless} times nothing came of it"
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(refused > 10 && failed > 0);
}
