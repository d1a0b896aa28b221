//! The mode of a hold never changes.

use super::semantics::Core;
use crate::Mode::{Exclusive, Shared};
use crate::Namespace::{Durable, Memory};
use crate::{Limits, Written};

/// A renewal without a mode, perhaps from a proxy that did not pass it on, keeps the mode.
#[test]
fn a_renewal_that_names_the_other_mode_changes_nothing() {
    let mut core = Core::new(Limits::default());
    for (namespace, held, other) in [(Memory, Shared, Exclusive), (Durable, Exclusive, Shared)] {
        core.acquire(namespace, "one", held, 3000, 0);
        if namespace == Durable {
            core.load(&[]);
            core.written(Written::Acknowledged);
        }
        for (mode, ttl_ms, word) in [
            (Some(other), 60_000, "other mode"),
            (None, 3000, "granted"),
            (Some(held), 3000, "granted"),
            (Some(other), 3000, "other mode"),
        ] {
            core.said();
            let asked = core.asked(namespace, "one");
            core.locks.renew(core.now(), &asked, mode, (ttl_ms, None), &mut core.heard);
            assert_eq!(core.said(), [(asked.ticket.0, word)], "{mode:?} of {held:?}");
        }
    }
    core.pass(3002);
    assert!(core.locks.is_empty(), "it lasts no longer");
}
