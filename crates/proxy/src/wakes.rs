//! Wake-up times of a core for one purpose.
//!
//! A timer of the loop cannot be cancelled. If each earlier time set one, and each expiry another,
//! timers would accumulate and all expire together. So this table knows the timers that are set,
//! and sets only one that is earlier than all of them.
//!
//! This must never leave a requested time without a timer at it or before it; after a wake-up the
//! caller requests the next time again.

/// Timers that are set.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    /// Expiry times, each earlier than the one before.
    times_ns: Vec<u64>,
}

impl Wakes {
    /// Requests a wake-up at this time at the latest. `true`: the caller must set a timer for it.
    #[must_use]
    pub(crate) fn wants(&mut self, at_ns: u64) -> bool {
        let is_earlier = self.times_ns.last().is_none_or(|first| at_ns < *first);
        if is_earlier {
            self.times_ns.push(at_ns);
        }
        is_earlier
    }

    /// Removes the timers up to this time, which have expired or are about to.
    pub(crate) fn passed(&mut self, now_ns: u64) {
        while self.times_ns.pop_if(|first| *first <= now_ns).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use super::*;

    /// A short time comes up again and again while a long one is due: a wait beside a hold, or an
    /// answer before a heartbeat.
    #[test]
    fn timers_do_not_add_up_and_none_is_missing() {
        let (mut wakes, mut timers) = (Wakes::default(), BinaryHeap::new());
        let (mut long_ns, mut short_ns, mut most) = (10_000, u64::MAX, 0);
        timers.extend(wakes.wants(long_ns).then_some(std::cmp::Reverse(long_ns)));
        for now_ns in 1..100_000_u64 {
            while timers.peek().is_some_and(|std::cmp::Reverse(at_ns)| *at_ns <= now_ns) {
                timers.pop();
                wakes.passed(now_ns);
                long_ns = if long_ns <= now_ns { now_ns + 10_000 } else { long_ns };
                short_ns = if short_ns <= now_ns { u64::MAX } else { short_ns };
                if wakes.wants(long_ns.min(short_ns)) {
                    timers.push(std::cmp::Reverse(long_ns.min(short_ns)));
                }
            }
            if now_ns % 3 == 0 {
                short_ns = now_ns + 1 + now_ns % 7;
                if wakes.wants(short_ns) {
                    timers.push(std::cmp::Reverse(short_ns));
                }
            }
            let due_ns = long_ns.min(short_ns);
            assert!(timers.peek().is_some_and(|std::cmp::Reverse(at_ns)| *at_ns <= due_ns));
            most = most.max(timers.len());
        }
        assert!(most < 12, "{most}");
    }
}
