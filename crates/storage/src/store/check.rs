//! Verifies a closed data directory: every checksum, every key, every record.

use super::directory::{DirectoryLock, Layout, name_logs};
use super::error::{StoreError, describe};
use super::marker::{check_logs, check_manifest, is_damaged, missing};
use super::metadata::check_schemas;
use super::options::StoreOptions;
use super::scan::malformed_key;
use super::shared::Shared;
use crate::catalogue::{Catalogue, DecodeError, decode_header, decode_row};
use crate::engine::{DataFile, Engine, EngineError, ReadTier, RocksEngine, Span};
use crate::key::{self, Target};
use crate::merger::{GraceTimes, RowMerger};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Most problems reported.
const PROBLEMS_MAX: usize = 100;

/// A fault in a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A file, or a record by table, partition and place.
    pub place: String,
    /// Description of the fault.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Reads everything in a data directory and changes nothing. Returns an empty list for a sound
/// directory; an error means that there is nothing to check, or that another process has it open.
pub fn check(directory: &Path, options: &StoreOptions) -> Result<Vec<Problem>, StoreError> {
    let layout = Layout::new(directory);
    let broken = |place: &Path, what: &dyn fmt::Display| {
        vec![Problem { place: place.display().to_string(), what: what.to_string() }]
    };
    let refused = |error: StoreError| match error {
        StoreError::Format { path, found } => Ok(broken(&path, &found)),
        error => Err(error),
    };
    if let Err(error) = layout.check_format(false) {
        return refused(error);
    }
    let _lock = DirectoryLock::take_to_read(directory)?;
    if let Err(error) = layout.check_parts(false) {
        return refused(error);
    }
    if let Err(error) = check_manifest(&layout.marker(), &layout.engine()) {
        return Ok(broken(&layout.engine(), &error));
    }
    if let Err(error) = check_logs(&layout.marker(), &layout.engine()) {
        return Ok(broken(&layout.engine(), &error));
    }
    let catalogue = match Catalogue::open_read_only(&layout.catalogue(), options.catalogue) {
        Ok(catalogue) => Arc::new(catalogue),
        Err(error) => return Ok(broken(&layout.catalogue(), &error)),
    };
    let next_id = catalogue.next_id();
    let merger = RowMerger {
        catalogue: Arc::clone(&catalogue),
        grace: Arc::new(GraceTimes::default()),
        clock: Arc::clone(&options.clock),
        rewrites: None,
        broken: Default::default(),
        looks_for_schemas: Default::default(),
    };
    match RocksEngine::open_read_only(&layout.engine(), &options.engine, Arc::new(merger)) {
        Ok(engine) => {
            let mut problems = check_records(&engine, &catalogue);
            if let Err(error) = check_schemas(&engine, next_id, &layout.catalogue()) {
                problems.push(Problem {
                    place: layout.catalogue().display().to_string(),
                    what: error.to_string(),
                });
            }
            if let Some(what) = missing(&layout.marker(), &engine, &layout.logs())? {
                problems.push(Problem { place: "log".to_owned(), what });
            }
            if is_damaged(&layout.marker())? {
                let what = "damaged; the next start writes it anew".to_owned();
                problems.push(Problem { place: layout.marker().display().to_string(), what });
            }
            Ok(problems)
        }
        Err(error) => Ok(broken(&layout.engine(), &name_logs(error, &layout.logs()))),
    }
}

fn check_records(engine: &dyn Engine, catalogue: &Catalogue) -> Vec<Problem> {
    let mut problems = Vec::new();
    let from = Vec::new();
    // No valid key begins with this many of these bytes.
    let to = vec![u8::MAX; key::KEY_BYTES_MAX];
    let mut cursor = engine.cursor(&Span {
        from: from.clone(),
        to,
        one_partition: false,
        cache: false,
        tier: ReadTier::Disk,
    });
    cursor.seek(&from);
    let files = engine.files().unwrap_or_default();
    let mut named: Vec<String> = Vec::new();
    while problems.len() < PROBLEMS_MAX {
        match cursor.entry() {
            Ok(None) => break,
            Ok(Some((key, record))) => {
                if let Err(what) = check_record(key, record, catalogue) {
                    problems.push(Problem { place: describe(key), what: what.to_string() });
                }
                cursor.next();
            }
            Err(error) => {
                let file = file_named(&files, &error).filter(|file| !named.contains(&file.name));
                let place = file.map_or("data files".to_owned(), |file| file.name.clone());
                problems.push(Problem { place, what: error.to_string() });
                // Continues behind the broken file, skipping the rest of its range.
                let Some(file) = file else { break };
                named.push(file.name.clone());
                cursor.seek(&[&file.to[..], &[0]].concat());
            }
        }
    }
    problems
}

/// RocksDB names the file in its message.
fn file_named<'a>(files: &'a [DataFile], error: &EngineError) -> Option<&'a DataFile> {
    let text = error.to_string();
    files.iter().find(|file| text.contains(&file.name))
}

fn check_record(key: &[u8], record: &[u8], catalogue: &Catalogue) -> Result<(), DecodeError> {
    if Shared::is_own(key) {
        return Ok(());
    }
    match key::split(key) {
        Some((_, _, Target::Header)) => decode_header(record).map(drop),
        Some((_, _, Target::Static | Target::Row(_))) => decode_row(record, catalogue).map(drop),
        None => Err(malformed_key()),
    }
}
