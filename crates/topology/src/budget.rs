//! The bound on the time and memory that the replicas of one snapshot take, whatever the ring and
//! the schema look like: both come from a node, which may be broken or hostile.

/// Steps of one build. Ten settings with three replicas each take half of them in a ring of
/// 262,144 tokens.
const STEPS_MAX: usize = 32 * 1024 * 1024;

/// Bytes of the replicas of all ranges under all settings: those of fourteen such settings in such
/// a ring.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// The part of the bounds that is left.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) steps: usize,
    pub(crate) bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { steps: STEPS_MAX, bytes: BYTES_MAX }
    }
}

impl Budget {
    /// Takes steps; `None` if too few are left, and then none are.
    pub(crate) fn walk(&mut self, steps: usize) -> Option<()> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.map(|_| ())
    }

    /// Takes bytes; `None` if too few are left.
    pub(crate) fn keep(&mut self, bytes: usize) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(())
    }
}
