//! The events of a run: always folded into a digest, and printed line by line on request.
//!
//! Two runs of one seed must give the same digest; if they do not, something outside the world (a
//! clock, the address of an allocation, the order of a randomly seeded map) has an influence and
//! the seed would not replay.

use std::fmt;

/// The running digest of a world.
#[derive(Debug)]
pub(super) struct Trace {
    digest: u64,
    events: u64,
    printed: bool,
}

impl Trace {
    /// Prints if `SHUNT_SIM_TRACE` is set to a value other than `0` or nothing.
    pub(super) fn new() -> Trace {
        let printed =
            std::env::var("SHUNT_SIM_TRACE").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
        Trace { digest: 0xcbf2_9ce4_8422_2325, events: 0, printed }
    }

    /// Folds one event in. `text` is only built when traces are printed; `facts` must contain all
    /// that matters.
    pub(super) fn note(
        &mut self,
        now_ns: u64,
        what: &'static str,
        facts: &[u64],
        text: impl FnOnce() -> String,
    ) {
        self.events += 1;
        self.fold(now_ns);
        self.fold_bytes(what.as_bytes());
        for &fact in facts {
            self.fold(fact);
        }
        if self.printed {
            println!("{:>14} {what:<10} {}", Seconds(now_ns), text());
        }
    }

    /// Folds the content of a stream in.
    pub(super) fn fold_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word) ^ 8);
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.fold(u64::from_le_bytes(word) ^ rest.len() as u64);
        }
    }

    fn fold(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }
}

struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        f.pad(&text)
    }
}
