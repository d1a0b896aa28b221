//! Releases on behalf of another: for a request whose client has gone, unless another request told
//! its owner that it holds the lock, because the owner would believe so until its TTL is over; and
//! for an operator, for any holder.

use super::semantics::Core;
use crate::types::{Limits, Mode, Namespace, Row, Written};

use Mode::{Exclusive, Shared};
use Namespace::{Durable, Memory};

impl Core {
    /// Grants the lock to `ann`; returns its fence.
    fn granted(&mut self, namespace: Namespace) -> i64 {
        self.acquire(namespace, "ann", Exclusive, 9000, 0);
        if namespace == Durable {
            if !self.heard.loads.is_empty() {
                self.load(&[]);
            }
            self.written(Written::Acknowledged);
        }
        let (_, word, fence) = self.heard.answers.pop().expect("an answer");
        assert_eq!(word, "granted");
        fence
    }

    fn give_back(&mut self, namespace: Namespace, fence: i64) -> &'static str {
        let asked = self.asked(namespace, "ann");
        self.locks.give_back(self.now(), &asked, fence, &mut self.heard);
        self.said().pop().expect("an answer").1
    }
}

#[test]
fn a_hold_that_nobody_claims_is_released_by_its_fence_only() {
    for namespace in [Memory, Durable] {
        let mut core = Core::new(Limits::default());
        let fence = core.granted(namespace);
        assert_eq!(core.give_back(namespace, fence - 1), "refused");
        assert_eq!(core.give_back(namespace, fence), "released");
        assert_eq!(core.give_back(namespace, fence), "refused");
    }
}

#[test]
fn a_hold_that_its_owner_claims_or_renews_stays() {
    for namespace in [Memory, Durable] {
        for renews in [false, true] {
            let mut core = Core::new(Limits::default());
            let fence = core.granted(namespace);
            if renews {
                core.renew(namespace, "ann", 9000);
            } else {
                core.acquire(namespace, "ann", Exclusive, 9000, 0);
            }
            let told = core.said();
            assert_eq!(
                told.last().map(|told| told.1),
                Some(if renews { "granted" } else { "refused" })
            );
            assert_eq!(core.give_back(namespace, fence), "refused");
            core.acquire(namespace, "bob", Exclusive, 9000, 0);
            assert_eq!(
                core.heard.answers.pop().map(|(_, word, of)| (word, of)),
                Some(("refused", fence))
            );
        }
    }
}

#[test]
fn a_hold_requested_again_during_its_write_stays() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "ann", Exclusive, 9000, 0);
    core.load(&[]);
    core.acquire(Durable, "ann", Exclusive, 9000, 0);
    let (.., fence, _, _) = core.written(Written::Acknowledged);
    assert_eq!(core.said(), [(1, "granted"), (2, "refused")]);
    assert_eq!(core.give_back(Durable, fence), "refused");
}

#[test]
fn a_hold_that_an_earlier_owner_of_the_shard_granted_stays() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "bob", Exclusive, 9000, 0);
    let row = Row {
        name: b"lock",
        slot: b"",
        owner: b"ann",
        role: b"app",
        token: 77,
        ttl_ms: 9000,
        timestamp_us: 77,
    };
    core.load(&[row]);
    assert_eq!(core.said(), [(1, "refused")]);
    assert_eq!(core.give_back(Durable, 77), "refused");
}

#[test]
fn an_operator_ends_the_hold_of_any_role_and_no_other() {
    let mut core = Core::new(Limits::default());
    core.acquire(Memory, "one/r1", Shared, 9000, 0);
    core.acquire(Memory, "two/r2", Shared, 9000, 0);
    core.acquire(Memory, "w", Exclusive, 9000, 5000);
    let fence = core.heard.answers[0].2;
    core.said();
    for (owner, fence, forced, answer) in [
        ("root/r1", None, false, "unauthorized"),
        ("root/r1", Some(fence + 1), true, "refused"),
        ("root/r1", Some(fence), true, "released"),
        ("root/r1", None, true, "refused"),
    ] {
        let asked = core.asked(Memory, owner);
        core.locks.release(core.now(), &asked, fence, forced, &mut core.heard);
        assert_eq!(core.said(), [(asked.ticket.0, answer)]);
    }
    let asked = core.asked(Memory, "root/r2");
    core.locks.release(core.now(), &asked, None, true, &mut core.heard);
    assert_eq!(core.said(), [(3, "granted"), (8, "released")]);
}

/// Rows that cannot be written yet have a bound for each role.
#[test]
fn a_free_row_counts_for_whoever_asked_for_it_or_else_for_the_holder() {
    let mut core = Core::new(Limits::default());
    let granted = |core: &mut Core| {
        core.heard.writes.clear();
        core.granted(Durable)
    };
    granted(&mut core);
    core.release(Durable, "ann");
    granted(&mut core);
    let asked = core.asked(Durable, "root/ann");
    core.locks.release(core.now(), &asked, None, true, &mut core.heard);
    let fence = granted(&mut core);
    core.give_back(Durable, fence);
    granted(&mut core);
    core.pass(10_000);
    let freed = core.heard.freed.iter().map(|(role, is_release)| (&**role, *is_release));
    assert_eq!(
        freed.collect::<Vec<_>>(),
        [("app", true), ("root", true), ("app", false), ("app", false)]
    );
}
