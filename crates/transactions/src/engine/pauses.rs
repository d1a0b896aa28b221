//! How long an attempt that failed waits for the next: longer each time, up to a bound, and never
//! all of them equally long.

/// Before the second attempt.
const FIRST_MS: u64 = 200;
/// The longest.
const LONGEST_MS: u64 = 5_000;

/// Pauses of one opening. Many shards change hands at once, and what fails for one fails for all:
/// were their pauses equally long, all would try again at once each time.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Pauses(u64);

impl Pauses {
    /// `random`: another number for each opening.
    pub(crate) fn new(random: u128) -> Self {
        // Never 0, or there would be no other.
        Self((random ^ random >> 64) as u64 | 1)
    }

    /// The pause after so many attempts in a row that failed, milliseconds.
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
