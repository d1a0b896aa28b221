//! Steps of the protocol that a test may leave out to see that its checks notice. A product has the
//! whole protocol: without the feature `weakened` each query here has a constant answer.

/// A step that can be left out.
#[cfg_attr(not(feature = "weakened"), expect(unreachable_pub, reason = "only tests name it"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The lease ends 1 % earlier than others may count it.
    Margin,
    /// A lease begins before its statement is sent, not when the answer arrives.
    BeginsBeforeSend,
    /// A dead owner's limit raises the floor of tokens.
    TokenFloor,
    /// A silent member is declared dead before its shards are taken.
    DeadFirst,
    /// A renewal in doubt is read back before it counts.
    ReadBack,
    /// A shard that was offered to another stays closed until the epoch has moved.
    ClosedWhileOffered,
    /// The limit of tokens never falls, even if the wall clock does.
    LimitNeverFalls,
    /// A new owner waits for the end of a dead owner's memory locks.
    Grace,
    /// A shard is drained before it is given away.
    DrainFirst,
    /// The format of all rows is raised only when all members know it.
    AllKnowFormat,
}

/// The steps of one member.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Steps {
    #[cfg(feature = "weakened")]
    left_out: Option<Step>,
}

impl Steps {
    #[cfg(feature = "weakened")]
    pub(crate) fn without(step: Step) -> Self {
        Self { left_out: Some(step) }
    }

    #[cfg(feature = "weakened")]
    pub(crate) fn has(self, step: Step) -> bool {
        self.left_out != Some(step)
    }

    #[cfg(not(feature = "weakened"))]
    pub(crate) fn has(self, _: Step) -> bool {
        true
    }
}
