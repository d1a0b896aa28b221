//! Answers about memory locks whose holders only the shard's former owner knows.

use super::semantics::Core;
use crate::types::{Limits, Mode, Namespace, shard_of};

use Mode::Exclusive;
use Namespace::Memory;

/// The holder is unknown: an empty list would say that there is none.
#[test]
fn holders_are_unknown_during_the_grace_of_locks_in_memory() {
    let mut core = Core::new(Limits::default());
    let now = core.now();
    assert!(!core.locks.is_memory_unknown(now, b"lock"));
    core.acquire(Memory, "one", Exclusive, 900_000, 0);
    core.locks.gain(now, shard_of(b"lock"), 0, now.boot_ns + 5_000_000_000, &mut core.heard);
    assert!(!core.locks.is_memory_unknown(now, b"lock"), "one has it");
    core.release(Memory, "one");
    assert!(core.locks.is_memory_unknown(now, b"lock"));
    core.pass(5_000);
    assert!(!core.locks.is_memory_unknown(core.now(), b"lock"));
}
