//! Steps that a test leaves out to see that its checks notice. A product has them all: without the
//! feature `weakened`, and outside of tests, each query here has a constant answer.

/// A step that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    not(any(test, feature = "weakened")),
    expect(unreachable_pub, reason = "only tests name it")
)]
pub enum Step {
    /// Packets are redirected before the connection is frozen, not after.
    SteerBeforeFreeze,
    /// The redirection ends after the connection was restored, not before.
    RestoreBeforeUnsteer,
    /// A copy is not used while the other end may be alive.
    WaitWhileInDoubt,
    /// A connection counts as never taken only after a complete report of an agent that has not
    /// restarted since.
    SameAgentInstance,
    /// An agent's host drops packets for a connection that is being frozen.
    GuardBeforeFreeze,
    /// A connection that was returned to one process of an owner is not returned to the next.
    SameOwnerInstance,
    /// Endings are kept until the owner has confirmed them.
    KeepEndings,
    /// The client's packets are dropped while its progress is checked after the loss of its agent.
    HoldBeforeLook,
    /// A connection does not go on if its client has sent bytes that only the lost agent had.
    NothingUnheard,
    /// No FIN leaves an agent's host because a process died. This step belongs to the host, so only
    /// the model asks.
    #[cfg(any(test, feature = "weakened"))]
    KeepEndsBack,
    /// `HELD_END` waits until no connection is being restored.
    TellWhenSettled,
}

/// Steps that one side carries out.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct Steps {
    #[cfg(any(test, feature = "weakened"))]
    left_out: Option<Step>,
}

impl Steps {
    #[cfg(any(test, feature = "weakened"))]
    pub(crate) fn without(step: Option<Step>) -> Self {
        Self { left_out: step }
    }

    #[cfg(any(test, feature = "weakened"))]
    pub(crate) fn has(self, step: Step) -> bool {
        self.left_out != Some(step)
    }

    #[cfg(not(any(test, feature = "weakened")))]
    pub(crate) fn has(self, _: Step) -> bool {
        true
    }
}
