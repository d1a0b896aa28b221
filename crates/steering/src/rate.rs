//! Rate limit of a gateway on each source's multigets: the model of bpf/multiget.bpf.c.
//!
//! The only state for a source is the time at which the cost of all its requests is paid off. So a
//! processor needs one exchange for a request and no lock, and a source silent for a second is
//! equal to an unknown one: its entry may be evicted.

const SECOND_NS: u64 = 1_000_000_000;

/// Requests per second, all of which may come at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds of each second that a request uses; 0: no limit.
    cost_ns: u64,
}

impl Rate {
    /// Limits a source to this many requests per second; 0: no limit.
    #[must_use]
    pub fn new(requests: u32) -> Self {
        Self { cost_ns: SECOND_NS.checked_div(u64::from(requests)).unwrap_or(0) }
    }

    pub(crate) fn of_cost(cost_ns: u64) -> Self {
        Self { cost_ns }
    }

    pub(crate) fn cost_ns(self) -> u64 {
        self.cost_ns
    }

    /// Requests per second, rounded; `None`: no limit.
    #[must_use]
    pub fn requests(self) -> Option<u64> {
        SECOND_NS.checked_div(self.cost_ns)
    }

    /// True if a request is admitted now. `due_ns` is when the cost of its source's requests is
    /// paid off; 0 for a new source.
    pub fn admit(self, due_ns: &mut u64, now_ns: u64) -> bool {
        let after_ns = now_ns.max(*due_ns) + self.cost_ns;
        let is_let_in = after_ns - now_ns <= SECOND_NS;
        if is_let_in {
            *due_ns = after_ns;
        }
        is_let_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn let_in(rate: Rate, due_ns: &mut u64, now_ns: u64, times: usize) -> usize {
        (0..times).filter(|_| rate.admit(due_ns, now_ns)).count()
    }

    #[test]
    fn a_second_has_so_many_and_they_may_come_at_once() {
        let (rate, mut due_ns, now_ns) = (Rate::new(10), 0, 77 * SECOND_NS);
        assert_eq!(let_in(rate, &mut due_ns, now_ns, 30), 10);
        assert_eq!(let_in(rate, &mut due_ns, now_ns + SECOND_NS / 2, 30), 5);
        assert_eq!(let_in(rate, &mut due_ns, now_ns + SECOND_NS * 6 / 10, 30), 1);
        // A silent source saves up no more than one second's worth.
        assert_eq!(let_in(rate, &mut due_ns, now_ns + 60 * SECOND_NS, 30), 10);
        assert_eq!(let_in(Rate::new(1), &mut 0, now_ns, 30), 1);
    }

    #[test]
    fn without_a_rate_all_are_let_in_and_a_rate_is_what_was_given() {
        assert_eq!(let_in(Rate::default(), &mut 0, 1, 1_000), 1_000);
        for (given, found) in [(0, None), (1, Some(1)), (200_000, Some(200_000))] {
            assert_eq!(Rate::new(given).requests(), found);
            assert_eq!(Rate::of_cost(Rate::new(given).cost_ns()), Rate::new(given));
        }
    }
}
