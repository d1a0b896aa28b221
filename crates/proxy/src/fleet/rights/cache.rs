//! Verdicts of nodes on the rights of logins. No verdict keeps a token, which may have 64 KiB, and
//! no role can displace the verdicts on others.

use std::collections::HashMap;

use super::inquiries::WAIT_NS;
use super::right::Right;
use crate::client::account::Account;
use crate::limits::SECOND_NS;

/// Most verdicts of a core. Beyond that, the role with the most loses the older half of its own.
const VERDICTS_MAX: usize = 16_384;
/// Interval at which a core forgets outdated verdicts.
const SWEEP_NS: u64 = 60 * SECOND_NS;
/// Time for which requests may use a verdict that was valid when they came.
const OUTDATED_NS: u64 = 2 * WAIT_NS;
/// Bytes kept of a node's refusal.
const REFUSAL_BYTES_MAX: usize = 512;

/// A node's verdict on a right. A refusal that is kept refuses requests for locks. For a
/// transaction a node confirms each refusal, because the right may have been granted since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    /// A refusal, with the node's message.
    Refused(Box<str>),
}

impl Verdict {
    /// Makes a refusal with the start of the node's message.
    pub(super) fn refused(message: &str) -> Verdict {
        let end = message.floor_char_boundary(REFUSAL_BYTES_MAX);
        Verdict::Refused(message[..end].into())
    }
}

/// Verdicts by role and right, with the time at which the question was sent.
#[derive(Default)]
pub(super) struct Verdicts {
    by_role: HashMap<Account, HashMap<Right, (Verdict, u64)>>,
    count: usize,
    /// Time at which outdated verdicts were last forgotten.
    swept_ns: u64,
}

impl Verdicts {
    fn get(&self, right: &Right) -> Option<&(Verdict, u64)> {
        self.by_role.get(&right.login.account())?.get(right)
    }

    /// The verdict for a request that came at this time.
    pub(super) fn verdict(&self, right: &Right, came_ns: u64, cache_ns: u64) -> Option<&Verdict> {
        let (verdict, asked_ns) = self.get(right)?;
        (came_ns <= asked_ns.saturating_add(cache_ns)).then_some(verdict)
    }

    /// True if there is no verdict, or one older than half of the time that it counts for.
    pub(super) fn is_aging(&self, right: &Right, came_ns: u64, cache_ns: u64) -> bool {
        let known = self.get(right);
        known.is_none_or(|(_, asked_ns)| came_ns > asked_ns.saturating_add(cache_ns / 2))
    }

    /// Keeps a verdict, unless a later question was answered before.
    pub(super) fn keep(&mut self, right: &Right, verdict: Verdict, asked_ns: u64, cache_ns: u64) {
        let known = self.get(right).map(|(_, known_ns)| *known_ns);
        if known.is_some_and(|known_ns| known_ns > asked_ns) {
            return;
        }
        let is_full = self.count >= VERDICTS_MAX && known.is_none();
        if is_full || asked_ns >= self.swept_ns.saturating_add(SWEEP_NS) {
            self.swept_ns = asked_ns;
            self.forget(|asked| asked.saturating_add(cache_ns + OUTDATED_NS) < asked_ns);
        }
        if self.count >= VERDICTS_MAX && known.is_none() {
            self.halve_largest();
        }
        let of_role = self.by_role.entry(right.login.account()).or_default();
        of_role.insert(right.clone(), (verdict, asked_ns));
        self.recount();
    }

    /// Forgets verdicts by the time of their questions.
    fn forget(&mut self, is_outdated: impl Fn(u64) -> bool) {
        for of_role in self.by_role.values_mut() {
            of_role.retain(|_, (_, asked_ns)| !is_outdated(*asked_ns));
        }
        self.by_role.retain(|_, of_role| !of_role.is_empty());
        self.recount();
    }

    /// Drops the older half of the verdicts of the role with the most.
    fn halve_largest(&mut self) {
        let largest = self.by_role.values_mut().max_by_key(|of_role| of_role.len());
        let Some(of_role) = largest else { return };
        let mut times: Vec<u64> = of_role.values().map(|(_, asked_ns)| *asked_ns).collect();
        times.sort_unstable();
        let Some(median) = times.get(times.len() / 2).copied() else { return };
        // Many questions may have been sent at the same time.
        let mut spare = times.len().div_ceil(2);
        of_role.retain(|_, (_, asked_ns)| {
            let leaves = *asked_ns <= median && spare > 0;
            spare -= usize::from(leaves);
            !leaves
        });
        self.recount();
    }

    fn recount(&mut self) {
        self.count = self.by_role.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use shunt_language::lock_tables::Table;

    use super::super::right::Action;
    use super::*;
    use crate::client::account::LoginId;

    const CACHE_NS: u64 = 2_000;

    fn locks() -> Right {
        Right { login: LoginId::default(), action: Action::UseLocks(Table::Locks) }
    }

    fn known(right: &Right, verdict: Verdict, asked_ns: u64) -> Verdicts {
        let mut verdicts = Verdicts::default();
        verdicts.keep(right, verdict, asked_ns, CACHE_NS);
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
        for right in
            [locks(), Right { login: LoginId::default(), action: Action::Write("ks.t".into()) }]
        {
            let mut known = known(&right, Verdict::Granted, 7);
            known.keep(&right, Verdict::Granted, 5, CACHE_NS);
            assert!(known.verdict(&right, 7, 0).is_some() && known.verdict(&right, 8, 0).is_none());
            known.keep(&right, Verdict::refused("no"), 6, CACHE_NS);
            assert_eq!(known.verdict(&right, 7, 0), Some(&Verdict::Granted));
            known.keep(&right, Verdict::refused("no"), 8, CACHE_NS);
            known.keep(&right, Verdict::Granted, 7, CACHE_NS);
            assert_eq!(known.verdict(&right, 8, 0), Some(&Verdict::refused("no")));
        }
    }

    /// The verdict on one login, or on one action, counts for no other.
    #[test]
    fn a_verdict_counts_for_its_own_login_and_action_only() {
        let right =
            |login: &[u8], action: Action| Right { login: LoginId::of(Some(login)), action };
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
            known.keep(&Right { login: LoginId::default(), action }, Verdict::Granted, 1, CACHE_NS);
            assert!(known.count <= VERDICTS_MAX);
        }
        let long = "é".repeat(REFUSAL_BYTES_MAX);
        known.keep(&locks(), Verdict::refused(&long), 1, CACHE_NS);
        let kept = known.verdict(&locks(), 0, 0);
        assert!(matches!(kept, Some(Verdict::Refused(words)) if words.len() == REFUSAL_BYTES_MAX));
    }
    #[test]
    fn one_role_with_many_verdicts_forgets_its_own() {
        let right = |login: &[u8], number: usize| {
            let action = Action::Read(format!("ks.t{number}").into());
            Right { login: LoginId::of(Some(login)), action }
        };
        let mut known = Verdicts::default();
        let of_ann = |number| right(b"\0ann\0secret", number);
        (0..10).for_each(|number| known.keep(&of_ann(number), Verdict::Granted, 1, CACHE_NS));
        for number in 0..3 * VERDICTS_MAX {
            let login = format!("{}\0bob\0secret", number % 7);
            known.keep(&right(login.as_bytes(), number), Verdict::Granted, 2, CACHE_NS);
            assert!(known.count <= VERDICTS_MAX);
        }
        assert!((0..10).all(|number| known.verdict(&of_ann(number), 2, CACHE_NS).is_some()));
    }

    #[test]
    fn outdated_verdicts_are_forgotten() {
        let mut known = known(&locks(), Verdict::Granted, 1);
        let right =
            Right { login: LoginId::of(Some(b"ann")), action: Action::Write("ks.t".into()) };
        known.keep(&right, Verdict::Granted, SWEEP_NS, CACHE_NS);
        assert_eq!((known.count, known.by_role.len()), (1, 1));
    }
}
