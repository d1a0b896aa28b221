//! Verdicts of nodes on the rights of logins.

use std::collections::HashMap;

use super::right::Right;

/// Verdicts that a core keeps; beyond that it forgets all of them.
const VERDICTS_MAX: usize = 16_384;
/// Bytes that are kept of a node's refusal.
const REFUSAL_BYTES_MAX: usize = 512;

/// A node's verdict on a right. Requests on locks are refused by one that was kept. Transactions
/// have a refusal confirmed each time: the right may have been granted since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    /// With the node's message.
    Refused(Box<str>),
}

impl Verdict {
    /// A refusal with the start of the node's message.
    pub(super) fn refused(message: &str) -> Verdict {
        let end = message.floor_char_boundary(REFUSAL_BYTES_MAX);
        Verdict::Refused(message[..end].into())
    }
}

/// Verdicts by right, with the time at which the question was sent.
#[derive(Default)]
pub(super) struct Verdicts(HashMap<Right, (Verdict, u64)>);

impl Verdicts {
    /// The verdict for a request that came at this time.
    pub(super) fn verdict(&self, right: &Right, came_ns: u64, cache_ns: u64) -> Option<&Verdict> {
        let (verdict, asked_ns) = self.0.get(right)?;
        (came_ns <= asked_ns.saturating_add(cache_ns)).then_some(verdict)
    }

    /// True if there is no verdict, or one older than half of the time that it counts for.
    pub(super) fn is_aging(&self, right: &Right, came_ns: u64, cache_ns: u64) -> bool {
        let known = self.0.get(right);
        known.is_none_or(|(_, asked_ns)| came_ns > asked_ns.saturating_add(cache_ns / 2))
    }

    /// Keeps a verdict, unless a later question was answered before.
    pub(super) fn keep(&mut self, right: &Right, verdict: Verdict, asked_ns: u64) {
        if self.0.get(right).is_some_and(|(_, known_ns)| *known_ns > asked_ns) {
            return;
        }
        if self.0.len() >= VERDICTS_MAX && !self.0.contains_key(right) {
            self.0.clear();
        }
        self.0.insert(right.clone(), (verdict, asked_ns));
    }
}

#[cfg(test)]
mod tests {
    use shunt_language::lock_tables::Table;

    use super::super::right::Action;
    use super::*;

    const CACHE_NS: u64 = 2_000;

    fn locks() -> Right {
        Right { login: None, action: Action::UseLocks(Table::Locks) }
    }

    fn known(right: &Right, verdict: Verdict, asked_ns: u64) -> Verdicts {
        let mut verdicts = Verdicts::default();
        verdicts.keep(right, verdict, asked_ns);
        verdicts
    }

    #[test]
    fn a_verdict_counts_for_what_came_before_its_question_grew_too_old() {
        let known = known(&locks(), Verdict::Granted, 10_000);
        for (came_ns, said) in [(0, true), (9_999, true), (12_000, true), (12_001, false)] {
            assert_eq!(known.verdict(&locks(), came_ns, CACHE_NS).is_some(), said, "{came_ns}");
        }
        // Without a cache: what had come when the question was sent, and nothing else.
        assert!(known.verdict(&locks(), 10_000, 0).is_some());
        assert!(known.verdict(&locks(), 10_001, 0).is_none());
    }

    #[test]
    fn a_verdict_is_renewed_before_it_is_too_old() {
        let known = known(&locks(), Verdict::refused("no"), 10_000);
        assert!(!known.is_aging(&locks(), 11_000, CACHE_NS));
        assert!(known.is_aging(&locks(), 11_001, CACHE_NS));
        assert!(Verdicts::default().is_aging(&locks(), 0, CACHE_NS));
    }

    /// The answer to the older of two questions may come last.
    #[test]
    fn the_answer_to_a_later_question_counts() {
        for right in [locks(), Right { login: None, action: Action::Write("ks.t".into()) }] {
            let mut known = known(&right, Verdict::Granted, 7);
            known.keep(&right, Verdict::Granted, 5);
            assert!(known.verdict(&right, 7, 0).is_some() && known.verdict(&right, 8, 0).is_none());
            known.keep(&right, Verdict::refused("no"), 6);
            assert_eq!(known.verdict(&right, 7, 0), Some(&Verdict::Granted));
            known.keep(&right, Verdict::refused("no"), 8);
            known.keep(&right, Verdict::Granted, 7);
            assert_eq!(known.verdict(&right, 8, 0), Some(&Verdict::refused("no")));
        }
    }

    /// The verdict on one login, or on one action, counts for no other.
    #[test]
    fn a_verdict_counts_for_its_own_login_and_action_only() {
        let right = |login: &[u8], action: Action| Right { login: Some(login.into()), action };
        let known = known(&right(b"ann", Action::Read("ks.t".into())), Verdict::Granted, 7);
        for (login, action, is_known) in [
            (&b"ann"[..], Action::Read("ks.t".into()), true),
            (b"bob", Action::Read("ks.t".into()), false),
            (b"ann", Action::Write("ks.t".into()), false),
            (b"ann", Action::Read("ks.u".into()), false),
            (b"ann", Action::UseLocks(Table::Locks), false),
        ] {
            let right = right(login, action);
            assert_eq!(known.verdict(&right, 0, CACHE_NS).is_some(), is_known, "{right:?}");
        }
    }

    #[test]
    fn a_core_keeps_so_many_verdicts_at_most() {
        let mut known = Verdicts::default();
        for number in 0..=VERDICTS_MAX {
            let action = Action::Read(format!("ks.t{number}").into());
            known.keep(&Right { login: None, action }, Verdict::Granted, 1);
            assert!(known.0.len() <= VERDICTS_MAX);
        }
        let long = "é".repeat(REFUSAL_BYTES_MAX);
        known.keep(&locks(), Verdict::refused(&long), 1);
        let kept = known.verdict(&locks(), 0, 0);
        assert!(matches!(kept, Some(Verdict::Refused(words)) if words.len() == REFUSAL_BYTES_MAX));
    }
}
