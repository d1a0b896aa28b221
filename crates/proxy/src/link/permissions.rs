//! What nodes said of the right of a pool's login to use locks, by table.
//! [`crate::locks::permission`] asks, and says what must never happen.

use shunt_language::facade::Table;

/// A question that is not answered for so long is asked anew, nanoseconds.
pub(crate) const WAIT_NS: u64 = 1_500_000_000;
/// After a question that came to nothing the next is asked so much later.
const PAUSE_NS: u64 = 100_000_000;

/// What nodes said of the login of a pool, by table.
#[derive(Default)]
pub(crate) struct Permissions([Known; Table::ALL.len()]);

impl Permissions {
    #[inline]
    pub(crate) fn on(&self, table: Table) -> &Known {
        &self.0[table as usize]
    }

    pub(crate) fn on_mut(&mut self, table: Table) -> &mut Known {
        &mut self.0[table as usize]
    }
}

/// What is known of one table.
#[derive(Default)]
pub(crate) struct Known {
    said: Option<Said>,
    /// When the question was sent that this is the answer to.
    asked_ns: u64,
    /// The question that is on its way: its number, and when it was sent.
    asking: Option<(u64, u64)>,
    /// No question before this time.
    again_ns: u64,
}

/// A node's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Yes,
    /// With what it said.
    No(Box<str>),
}

impl Known {
    /// What is to be said of a request that came at this time.
    pub(crate) fn said_of(&self, came_ns: u64, cache_ns: u64) -> Option<&Said> {
        self.said.as_ref().filter(|_| came_ns <= self.asked_ns.saturating_add(cache_ns))
    }

    /// True if a node is to be asked: what is known is more than half as old as it may be, and
    /// nobody has asked.
    pub(crate) fn is_to_be_asked(&self, came_ns: u64, now_ns: u64, cache_ns: u64) -> bool {
        let is_old = self.said.is_none() || came_ns > self.asked_ns.saturating_add(cache_ns / 2);
        let is_asked = self.asking.is_some_and(|(_, at_ns)| now_ns.saturating_sub(at_ns) < WAIT_NS);
        is_old && !is_asked && now_ns >= self.again_ns
    }

    /// The question with this number was sent at this time; none before it is waited for any more.
    pub(crate) fn asks(&mut self, number: u64, at_ns: u64) {
        self.asking = Some((number, at_ns));
    }

    /// There was no link for the question: the next who wants to know has it asked.
    pub(crate) fn is_unasked(&mut self, again_ns: u64) {
        self.again_ns = again_ns;
    }

    /// The question with this number has come to something: when it was sent, if it is the one that
    /// is waited for.
    pub(crate) fn answered(&mut self, number: u64) -> Option<u64> {
        self.asking.take_if(|(asked, _)| *asked == number).map(|(_, at_ns)| at_ns)
    }

    /// A node's word, in answer to what was asked then.
    pub(crate) fn learn(&mut self, said: Said, asked_ns: u64) {
        (self.said, self.asked_ns) = (Some(said), asked_ns);
    }

    /// No node's word.
    pub(crate) fn failed(&mut self, now_ns: u64) {
        self.again_ns = now_ns + PAUSE_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE_NS: u64 = 2_000;

    fn known(said: Said) -> Known {
        Known { said: Some(said), asked_ns: 10_000, asking: None, again_ns: 0 }
    }

    #[test]
    fn a_verdict_counts_for_what_came_before_its_question_grew_too_old() {
        let known = known(Said::Yes);
        for (came_ns, said) in [(0, true), (9_999, true), (12_000, true), (12_001, false)] {
            assert_eq!(known.said_of(came_ns, CACHE_NS).is_some(), said, "{came_ns}");
        }
        // Without a cache: what had come when the question was sent, and nothing else.
        assert!(known.said_of(10_000, 0).is_some() && known.said_of(10_001, 0).is_none());
    }

    #[test]
    fn a_node_is_asked_once_and_before_the_verdict_is_too_old() {
        let mut known = known(Said::No("no".into()));
        let asks = |known: &Known, at_ns| known.is_to_be_asked(at_ns, at_ns, CACHE_NS);
        assert!(!asks(&known, 11_000) && asks(&known, 11_001) && asks(&Known::default(), 0));
        known.asks(1, 11_001);
        assert!(
            !asks(&known, 11_002)
                && !asks(&known, 11_000 + WAIT_NS)
                && asks(&known, 11_001 + WAIT_NS)
        );
        known = Known { asking: None, again_ns: 30_000, ..known };
        assert!(!asks(&known, 29_999) && asks(&known, 30_000));
    }

    /// Of another pool in the same place, say, or of this one and too late.
    #[test]
    fn an_answer_counts_for_its_own_question_only() {
        let mut known = Known::default();
        known.asks(7, 20_000);
        assert_eq!((known.answered(6), known.answered(8)), (None, None));
        known.asks(9, 30_000);
        assert_eq!(
            (known.answered(7), known.answered(9), known.answered(9)),
            (None, Some(30_000), None)
        );
    }
}
