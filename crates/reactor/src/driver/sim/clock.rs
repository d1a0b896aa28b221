//! The clocks of one simulated host: their rate, and their distance from the world's time.

/// Default lead of a simulated host's wall clock over the other, microseconds: it is November 2023.
const WALL_OFFSET_US: i64 = 1_700_000_000_000_000;

const MILLION: u128 = 1_000_000;

/// The clocks of a host. Neither knows the world's time.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Clock {
    /// Millionths of a second that pass on both clocks in one second of the world.
    pub rate_ppm: u64,
    /// Reading of the clock that never goes back at the world's beginning, nanoseconds.
    pub boot_offset_ns: u64,
    /// Lead of the wall clock over that one, microseconds.
    pub wall_offset_us: i64,
}

impl Default for Clock {
    /// Clocks at the right rate.
    fn default() -> Clock {
        Clock { rate_ppm: 1_000_000, boot_offset_ns: 0, wall_offset_us: WALL_OFFSET_US }
    }
}

impl Clock {
    /// Reading of the clock that never goes back, at this time of the world.
    pub fn local_ns(&self, world_ns: u64) -> u64 {
        self.boot_offset_ns + (u128::from(world_ns) * u128::from(self.rate_ppm) / MILLION) as u64
    }

    /// The first time of the world at which that clock reads this, or more.
    pub(super) fn world_ns(&self, local_ns: u64) -> u64 {
        let passed = u128::from(local_ns.saturating_sub(self.boot_offset_ns)) * MILLION;
        u64::try_from(passed.div_ceil(u128::from(self.rate_ppm.max(1)))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn a_timer_of_a_clock_is_due_when_the_clock_shows_its_time_and_not_before() {
        for rate_ppm in [900_000, 990_001, 1_000_000, 1_009_999, 1_100_000] {
            let clock = Clock { rate_ppm, boot_offset_ns: 77, ..Clock::default() };
            for local_ns in [77, 78, 1_000_000_007, 123_456_789_012_345] {
                let due_ns = clock.world_ns(local_ns);
                assert!(clock.local_ns(due_ns) >= local_ns);
                assert!(due_ns == 0 || clock.local_ns(due_ns - 1) < local_ns);
            }
        }
        assert_eq!(Clock::default().world_ns(u64::MAX), u64::MAX);
    }
}
