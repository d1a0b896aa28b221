//! How often a source may have multigets split by a gateway: the model of what bpf/multiget.bpf.c
//! does.
//!
//! Of each source one number is kept, the time at which all is used up that it has asked for. So a
//! processor needs one exchange for a request and no lock, and what was not heard of for a second
//! is as if it had never been there: it may be forgotten.

const SECOND_NS: u64 = 1_000_000_000;

/// So many requests a second, and as many at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// What a request uses up of a second; 0: nothing.
    cost_ns: u64,
}

impl Rate {
    /// So many; 0: as many as they like.
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

    /// How many requests, about; none: as many as they like.
    #[must_use]
    pub fn requests(self) -> Option<u64> {
        SECOND_NS.checked_div(self.cost_ns)
    }

    /// True if a request is let in now; `due_ns` is when all is used up that its source has asked
    /// for, 0 of one that was not seen.
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
        // Who is quiet saves up no more than that.
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
