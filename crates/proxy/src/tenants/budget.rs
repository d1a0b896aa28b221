//! Budgets of tokens per second that the cores of a process share without a lock.
//!
//! The cores share one word per budget: the time up to which its tokens are handed out
//! ([`Shared`]). A core takes a slice of tokens at once and spends it by itself ([`Slice`]). It
//! has a sixteenth of a second's tokens, divided by the number of cores, and at least one. A core
//! that finds none reserves the next slice: cores whose clients wait are served in the order in
//! which they asked, however fast each of them runs.
//!
//! In any time, the cores spend at most the burst, the rate for this time, and one slice for each
//! core, which it may have taken before. A core that does not use its slice gives it back at the
//! next tick. A budget of bytes may go into debt, because the length of an answer is unknown until
//! it comes: what follows waits until the debt is paid.
//!
//! This must never:
//! - hand out a token twice, or one of a later time as one of now;
//! - let a core keep tokens that it does not use for longer than a tick;
//! - let a fast core take each token before a slower one that waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits;

/// Added to each time, so that a budget that is full at time 0 begins before it.
const EPOCH_NS: u64 = 1 << 62;
/// Longest time for which a budget saves up tokens.
const BURST_NS_MAX: u64 = EPOCH_NS / 2;

/// Tokens per second, and the most that a budget saves up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    per_second: u64,
    burst_ns: u64,
    /// Tokens that a core takes at once.
    slice: u64,
}

impl Rate {
    pub(crate) fn new(per_second: u64, burst: u64, cores: usize) -> Rate {
        let per_second = per_second.max(1);
        let parts = limits::TENANT_SLICES_PER_SECOND * cores.max(1) as u64;
        let slice = (per_second / parts).clamp(1, burst.max(1));
        let mut rate = Rate { per_second, burst_ns: 0, slice };
        rate.burst_ns = rate.time_ns(burst.max(1)).min(BURST_NS_MAX);
        rate
    }

    /// The time in which so many tokens arise, rounded up.
    fn time_ns(&self, tokens: u64) -> u64 {
        let time_ns = u128::from(tokens) * u128::from(limits::SECOND_NS);
        u64::try_from(time_ns.div_ceil(self.per_second.into())).unwrap_or(u64::MAX)
    }

    /// The whole tokens that arise in a time.
    fn tokens(&self, time_ns: u64) -> u64 {
        let tokens = u128::from(time_ns) * u128::from(self.per_second);
        u64::try_from(tokens / u128::from(limits::SECOND_NS)).unwrap_or(u64::MAX)
    }
}

/// The part of a budget that cores share: the time up to which its tokens are handed out.
#[derive(Debug, Default)]
pub(crate) struct Shared(AtomicU64);

impl Shared {
    /// Moves the time from which tokens are there. `next` gets that time and says the new one.
    fn advance(&self, rate: &Rate, now_ns: u64, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let full = EPOCH_NS + now_ns - rate.burst_ns;
        let order = Ordering::Relaxed;
        let moved = self.0.fetch_update(order, order, |handed_out| next(handed_out.max(full)));
        moved.ok().map(|handed_out| handed_out.max(full))
    }

    /// Takes as many tokens as there are, up to `most`.
    fn take(&self, rate: &Rate, now_ns: u64, most: u64) -> u64 {
        let now = EPOCH_NS + now_ns;
        let there = |from: u64| rate.tokens(now.saturating_sub(from)).min(most);
        let next = |from: u64| match there(from) {
            0 => None,
            tokens => Some(from + rate.time_ns(tokens)),
        };
        self.advance(rate, now_ns, next).map_or(0, there)
    }

    /// Takes tokens of the time to come; returns the time at which they are there.
    fn reserve(&self, rate: &Rate, now_ns: u64, tokens: u64) -> u64 {
        let time_ns = rate.time_ns(tokens);
        let from = self.advance(rate, now_ns, |from| Some(from.saturating_add(time_ns)));
        from.map_or(now_ns, |from| from.saturating_add(time_ns).saturating_sub(EPOCH_NS))
    }

    /// The time at which so many tokens are there, if nobody takes any before.
    fn next_ns(&self, rate: &Rate, now_ns: u64, tokens: u64) -> u64 {
        let from = self.0.load(Ordering::Relaxed).max(EPOCH_NS + now_ns - rate.burst_ns);
        from.saturating_add(rate.time_ns(tokens)).saturating_sub(EPOCH_NS)
    }

    fn give_back(&self, rate: &Rate, tokens: u64) {
        // Rounded down, so that no token arises.
        let time_ns = u128::from(tokens) * u128::from(limits::SECOND_NS);
        let time_ns = u64::try_from(time_ns / u128::from(rate.per_second)).unwrap_or(u64::MAX);
        let order = Ordering::Relaxed;
        // The closure never refuses.
        let _ = self.0.fetch_update(order, order, |from| Some(from.saturating_sub(time_ns)));
    }
}

/// The tokens of one core.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// Below 0: a debt.
    left: i64,
    /// Tokens that are there at `ready_ns`.
    reserved: u64,
    ready_ns: u64,
    /// True if it was used since the last tick.
    is_used: bool,
}

impl Slice {
    /// Finds a token, here or among the shared ones.
    ///
    /// # Errors
    /// There is none before this time. With `reserves`, one is reserved for it.
    #[inline]
    pub(crate) fn find(
        &mut self,
        shared: &Shared,
        rate: &Rate,
        now_ns: u64,
        reserves: bool,
    ) -> Result<(), u64> {
        if self.left > 0 { Ok(()) } else { self.refill(shared, rate, now_ns, reserves) }
    }

    fn refill(
        &mut self,
        shared: &Shared,
        rate: &Rate,
        now_ns: u64,
        reserves: bool,
    ) -> Result<(), u64> {
        if self.reserved > 0 {
            if now_ns < self.ready_ns {
                return Err(self.ready_ns);
            }
            self.left = self.left.saturating_add_unsigned(std::mem::take(&mut self.reserved));
        }
        if self.left <= 0 {
            let wanted = self.left.unsigned_abs().saturating_add(rate.slice);
            self.left = self.left.saturating_add_unsigned(shared.take(rate, now_ns, wanted));
        }
        if self.left > 0 {
            return Ok(());
        }
        if !reserves {
            let missing = self.left.unsigned_abs().saturating_add(1);
            return Err(shared.next_ns(rate, now_ns, missing));
        }
        self.reserved = rate.slice;
        self.ready_ns = shared.reserve(rate, now_ns, self.reserved);
        Err(self.ready_ns)
    }

    /// True if a token is in the slice.
    pub(crate) fn has_token(&self) -> bool {
        self.left > 0
    }

    #[inline]
    pub(crate) fn spend(&mut self, tokens: u64) {
        self.left = self.left.saturating_sub_unsigned(tokens);
        self.is_used = true;
    }

    /// Gives tokens back that were not used since the last tick. Reserved ones, for which a client
    /// waits, stay until the next.
    pub(crate) fn tick(&mut self, shared: &Shared, rate: &Rate, now_ns: u64) {
        if self.reserved > 0 && now_ns >= self.ready_ns {
            self.left = self.left.saturating_add_unsigned(std::mem::take(&mut self.reserved));
            self.is_used = true;
        }
        if !std::mem::take(&mut self.is_used) && self.left > 0 {
            shared.give_back(rate, self.left.unsigned_abs());
            self.left = 0;
        }
    }

    /// The slice at another rate. Tokens go back, and a debt stays; it does not grow, and is paid
    /// no later than before.
    pub(crate) fn renewed(self, shared: &Shared, former: &Rate, rate: &Rate) -> Slice {
        let left = u64::try_from(self.left).unwrap_or(0);
        shared.give_back(former, left.saturating_add(self.reserved));
        let debt = self.left.min(0).unsigned_abs();
        let debt = debt.min(rate.tokens(former.time_ns(debt)));
        Slice { left: 0i64.saturating_sub_unsigned(debt), ..Slice::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Has cores ask in turn, each at its own pace, for `seconds`; returns the times of all tokens.
    fn spent(rate: &Rate, paces_ns: &[u64], seconds: u64, reserves: bool) -> Vec<(usize, u64)> {
        let shared = Shared::default();
        let mut cores: Vec<(Slice, u64)> =
            paces_ns.iter().map(|pace_ns| (Slice::default(), *pace_ns)).collect();
        let mut times = Vec::new();
        let mut tick_ns = limits::TICK_NS;
        loop {
            let next = cores.iter().enumerate().min_by_key(|(_, (_, at_ns))| *at_ns);
            let (number, now_ns) = next.map(|(number, (_, at_ns))| (number, *at_ns)).expect("one");
            if now_ns >= seconds * limits::SECOND_NS {
                return times;
            }
            while tick_ns <= now_ns {
                cores.iter_mut().for_each(|(slice, _)| slice.tick(&shared, rate, tick_ns));
                tick_ns += limits::TICK_NS;
            }
            let (slice, at_ns) = &mut cores[number];
            match slice.find(&shared, rate, now_ns, reserves) {
                Ok(()) => {
                    slice.spend(1);
                    times.push((number, now_ns));
                    *at_ns = now_ns + paces_ns[number];
                }
                // A core hears of a time at the earliest then, and never at once.
                Err(ready_ns) => *at_ns = ready_ns.max(now_ns) + paces_ns[number],
            }
        }
    }

    /// Most tokens beyond the rate in any time.
    fn excess(times: &[(usize, u64)], per_second: u64) -> u64 {
        let mut most = 0;
        for (first, (_, from_ns)) in times.iter().enumerate() {
            for (last, (_, to_ns)) in times.iter().enumerate().skip(first) {
                let due = u128::from(to_ns - from_ns) * u128::from(per_second)
                    / u128::from(limits::SECOND_NS);
                most = most.max(((last - first + 1) as u64).saturating_sub(due as u64));
            }
        }
        most
    }

    #[test]
    fn cores_never_spend_more_than_the_burst_the_rate_and_a_slice_each() {
        for (per_second, burst) in [(100, 100), (100, 1), (1_000, 20), (3, 2), (400, 800)] {
            for cores in [1, 2, 4, 8] {
                let rate = Rate::new(per_second, burst, cores);
                let paces_ns: Vec<u64> =
                    (0..cores as u64).map(|core| MS / 3 + core * 7_919).collect();
                for reserves in [false, true] {
                    let times = spent(&rate, &paces_ns, 4, reserves);
                    let bound = burst + cores as u64 * rate.slice + 1;
                    let most = excess(&times, per_second);
                    assert!(most <= bound, "{per_second} {burst} {cores}: {most} > {bound}");
                    // Without a reservation, the time from a token to the next question is lost
                    // as soon as the burst is saved up.
                    let least = 4 * per_second - cores as u64 * rate.slice;
                    let count = times.len() as u64;
                    assert!(!reserves || count >= least, "{per_second}: {count} < {least}");
                }
            }
        }
    }

    #[test]
    fn a_slow_core_has_its_part_beside_a_fast_one() {
        let rate = Rate::new(100, 1, 2);
        let times = spent(&rate, &[1_000, 3 * MS], 10, true);
        let slow = times.iter().filter(|(core, _)| *core == 1).count();
        assert!(slow * 3 >= times.len(), "{slow} of {}", times.len());
    }

    #[test]
    fn an_idle_core_gives_its_tokens_back() {
        let (shared, rate) = (Shared::default(), Rate::new(32, 32, 1));
        let (mut idle, mut busy) = (Slice::default(), Slice::default());
        assert!(idle.find(&shared, &rate, 0, false).is_ok() && idle.has_token());
        let mut drained = 0;
        while busy.find(&shared, &rate, 0, false).is_ok() {
            busy.spend(1);
            drained += 1;
        }
        assert_eq!(drained, 30, "the burst without the slice of the other");
        idle.tick(&shared, &rate, 0);
        assert!(!idle.has_token());
        assert!(busy.find(&shared, &rate, 1, false).is_ok(), "as fast as a tick");
    }

    #[test]
    fn a_tick_takes_no_token_away_from_a_client_that_waits_for_it() {
        for per_second in [1, 3, 1_000] {
            let (shared, rate) = (Shared::default(), Rate::new(per_second, 1, 1));
            let mut slice = Slice::default();
            assert!(slice.find(&shared, &rate, 0, true).is_ok());
            slice.spend(1);
            let ready_ns = slice.find(&shared, &rate, 0, true).expect_err("none is left");
            slice.tick(&shared, &rate, ready_ns);
            assert!(slice.find(&shared, &rate, ready_ns, true).is_ok(), "{per_second}");
            slice.tick(&shared, &rate, ready_ns);
            slice.tick(&shared, &rate, ready_ns);
            assert!(!slice.has_token(), "one that nobody uses goes back");
        }
    }

    #[test]
    fn a_debt_is_paid_before_anything_else() {
        let (shared, rate) = (Shared::default(), Rate::new(1_000, 1_000, 1));
        let mut slice = Slice::default();
        assert!(slice.find(&shared, &rate, 0, true).is_ok());
        slice.spend(5_000);
        let mut now_ns = 0;
        while let Err(ready_ns) = slice.find(&shared, &rate, now_ns, true) {
            assert!(ready_ns > now_ns, "a wait must end later than it begins");
            now_ns = ready_ns;
        }
        assert!((3_900..4_200).contains(&(now_ns / MS)), "{} ms", now_ns / MS);
    }

    #[test]
    fn a_new_rate_forgives_no_debt_and_makes_it_last_no_longer() {
        for (per_second, expected_ms) in [(1_000, 5_000), (4_000, 1_250), (10, 5_000)] {
            let (shared, former) = (Shared::default(), Rate::new(1_000, 1, 1));
            let mut slice = Slice::default();
            assert!(slice.find(&shared, &former, 0, true).is_ok());
            slice.spend(5_000);
            let rate = Rate::new(per_second, 1, 1);
            let mut slice = slice.renewed(&shared, &former, &rate);
            let mut now_ns = 0;
            while let Err(ready_ns) = slice.find(&shared, &rate, now_ns, true) {
                now_ns = ready_ns;
            }
            let took_ms = now_ns / MS;
            let bounds = expected_ms * 9 / 10..=expected_ms * 11 / 10;
            assert!(bounds.contains(&took_ms), "{per_second}: {took_ms} ms");
        }
    }

    #[test]
    fn an_idle_budget_saves_its_burst_and_no_more() {
        let (shared, rate) = (Shared::default(), Rate::new(1_000_000_000, 7, 1));
        assert_eq!(shared.take(&rate, 0, u64::MAX), 7);
        assert_eq!(shared.take(&rate, 3_600 * limits::SECOND_NS, u64::MAX), 7);
        let huge = Rate::new(1, u64::MAX, 1);
        assert!(shared.take(&huge, 0, 1) <= 1, "no burst overflows the clock");
    }

    #[test]
    fn threads_hand_out_no_token_twice() {
        let (shared, rate) = (Shared::default(), Rate::new(1_000, 10_000, 4));
        let taken: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut slice, mut taken) = (Slice::default(), 0);
                        while slice.find(&shared, &rate, 0, false).is_ok() {
                            slice.spend(1);
                            taken += 1;
                        }
                        taken
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
        });
        assert_eq!(taken, 10_000);
    }
}
