//! Pauses between attempts: longer each time, up to a bound, and never the same for all.

/// Pause before the second attempt.
const FIRST_MS: u64 = 200;
/// The longest pause.
const LONGEST_MS: u64 = 5_000;

/// Pauses of one opening. Many shards change hands at once, and fail at once: with equal pauses
/// they would all try again at once each time.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Pauses(u64);

impl Pauses {
    /// `random` is another number for each opening.
    pub(crate) fn new(random: u128) -> Self {
        // 0 would stay 0.
        Self((random ^ random >> 64) as u64 | 1)
    }

    /// The pause after so many failed attempts in a row, milliseconds.
    pub(crate) fn after(&mut self, attempts: u32) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let longest_ms = (FIRST_MS << attempts.saturating_sub(1).min(16)).min(LONGEST_MS);
        // Between three quarters of it and all of it.
        longest_ms - (self.0 >> 11) % (longest_ms / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_get_longer_up_to_a_bound_and_differ_from_each_other() {
        for random in [0, 1, u128::MAX] {
            let mut pauses = Pauses::new(random);
            let all: Vec<u64> = (1..40).map(|attempts| pauses.after(attempts)).collect();
            for (attempt, pause_ms) in all.iter().enumerate() {
                let longest_ms = (200 << attempt.min(16)).min(5_000);
                assert!(
                    (longest_ms * 3 / 4..=longest_ms).contains(pause_ms),
                    "{attempt}: {pause_ms}"
                );
            }
            let different: std::collections::HashSet<&u64> = all[10..].iter().collect();
            assert!(different.len() > 20, "{all:?}");
        }
    }
}
