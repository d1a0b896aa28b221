//! Mutates a target's corpus with a seeded generator: fuzzing without coverage, but on every
//! platform and deterministic.

use std::ops::Range;
use std::path::PathBuf;

use crate::Target;

/// Most inputs kept for further mutation, beside the corpus.
const POOL_MAX: usize = 500;
/// Longest generated input.
const BYTES_MAX: usize = 20_000;

/// Runs `target` on every file of its corpus and then on `iterations` mutations of them.
///
/// # Panics
/// If a property does not hold; the input is printed to standard error first, as hex.
pub fn run(target: Target, iterations: u64, seed: u64) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "no corpus for {}", target.name);
    for input in &corpus {
        attempt(target, input);
    }
    let mut random = Random(seed);
    let mut pool: Vec<Vec<u8>> = Vec::new();
    for _ in 0..iterations {
        let start = if pool.is_empty() || random.below(3) > 0 { &corpus } else { &pool };
        let mut input = random.pick(start).clone();
        for _ in 0..=random.below(5) {
            mutate(&mut random, &mut input, &corpus);
        }
        input.truncate(BYTES_MAX);
        attempt(target, &input);
        // Some mutations are mutated again, so that inputs drift away from the corpus.
        if pool.len() < POOL_MAX {
            pool.push(input);
        } else if random.below(10) == 0 {
            let index = random.below(pool.len());
            pool[index] = input;
        }
    }
}

/// Inputs in `corpus/TARGET/`, sorted by name.
fn corpus(target: Target) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

/// Directory of a target's corpus.
pub fn folder(target: Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

fn attempt(target: Target, input: &[u8]) {
    let report = Report { target, input };
    (target.run)(input);
    std::mem::forget(report);
}

/// Prints its input when dropped, which happens only while a panic unwinds.
struct Report<'a> {
    target: Target,
    input: &'a [u8],
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        let hex: String = self.input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!(
            "target {} failed on this input ({} bytes): {hex}",
            self.target.name,
            self.input.len()
        );
    }
}

fn mutate(random: &mut Random, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let mut at = random.below(input.len() + 1);
    let mut kind = random.below(20);
    if random.below(8) > 0
        && input.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
    {
        // Texts with changed bytes are almost never valid: pieces are inserted, removed and
        // exchanged instead.
        let (own, other) = (piece(random, input), random.pick(corpus));
        match random.below(4) {
            0 => (at, kind) = (own.end, 13 + random.below(7)),
            1 => return drop(input.splice(own.end..own.end, input[own].to_vec())),
            _ => {
                let found = piece(random, other);
                return drop(input.splice(own, other[found].iter().copied()));
            }
        }
    }
    let room = input.len() - at;
    let length = random.below(room.min(32) + 1);
    match kind {
        0..4 if room > 0 => input[at] ^= 1 << random.below(8),
        4..7 if room > 0 => input[at] = random.next() as u8,
        7..12 => put_number(random, &mut input[at..]),
        12 => input.insert(at, random.next() as u8),
        13 => drop(input.drain(at..at + length)),
        14 => {
            let copy = input[at..at + length].to_vec();
            input.splice(at..at, copy);
        }
        15 => {
            let other = random.pick(corpus);
            let from = random.below(other.len() + 1);
            let to = from + random.below(other.len() - from + 1);
            input.splice(at..at, other[from..to].iter().copied());
        }
        16 => input.truncate(at),
        17 => input.extend(random.pick(corpus)),
        _ => {
            let word = random.pick(&WORDS);
            input.splice(at..at, word.bytes());
        }
    }
}

/// A word of a text, or a bracket with its content.
fn piece(random: &mut Random, text: &[u8]) -> Range<usize> {
    let start = random.below(text.len() + 1);
    let rest = &text[start..];
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let skipped = rest.iter().take_while(|byte| word(byte)).count();
    let blanks = rest[skipped..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let start = start + skipped + blanks;
    let rest = &text[start..];
    let mut depth = 0;
    let closing = rest.iter().position(|byte| {
        depth += i32::from(b"([{<".contains(byte)) - i32::from(b")]}>".contains(byte));
        depth <= 0
    });
    let length = match rest.first() {
        Some(b'(' | b'[' | b'{' | b'<') => closing.map_or(rest.len(), |closing| closing + 1),
        Some(_) => rest.iter().take_while(|byte| word(byte)).count().max(1),
        None => 0,
    };
    start..start + length
}

/// Overwrites the start of `room` with a number that often breaks lengths and counts, big-endian.
fn put_number(random: &mut Random, room: &mut [u8]) {
    const NUMBERS: [i32; 14] =
        [0, 1, 2, 4, 127, 128, 255, 256, 65_535, 65_536, -1, -2, i32::MAX, i32::MIN];
    let number = random.pick(&NUMBERS).to_be_bytes();
    let bytes = *random.pick(&[&number[..], &number[2..], &number[3..]]);
    for (place, byte) in room.iter_mut().zip(bytes) {
        *place = *byte;
    }
}

/// Words of query text, which mutations of bytes would not find.
const WORDS: [&str; 44] = [
    "SELECT ",
    "INSERT INTO ",
    "UPDATE ",
    "DELETE ",
    " WHERE ",
    " AND ",
    " IF ",
    " USING ",
    "BEGIN BATCH ",
    "'",
    "\"",
    "$$",
    "/*",
    "*/",
    "--",
    "\n",
    "?",
    ":a",
    "(",
    ")",
    "=",
    ",",
    "now()",
    "0x",
    "frozen<",
    "list<int>",
    "map<text, ",
    "tuple<",
    "vector<float, 3>",
    ">",
    "[",
    "]",
    "{",
    "}",
    ":",
    "..",
    "-",
    "+",
    "*",
    "cast(",
    " as text)",
    "(int)",
    "null",
    "1.5e3",
];

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Draws one of `choices`, of which there is at least one.
    fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }

    /// Draws a number from 0 to `bound` - 1; `bound` is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
