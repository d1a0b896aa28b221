//! Steps that a test leaves out, to see that its checks notice. A product has them all: without the
//! feature `weakened`, and outside of tests, every question here is answered by a constant.

/// A step that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    not(any(test, feature = "weakened")),
    expect(unreachable_pub, reason = "only tests name it")
)]
pub enum Step {
    /// The client's packets go elsewhere before its connection is frozen, not after.
    SteerBeforeFreeze,
    /// They come here again after its connection was put in, not before.
    RestoreBeforeUnsteer,
    /// A copy is not used while the other end may be alive.
    WaitWhileInDoubt,
    /// What was never taken is known only when all is told, of an agent that has not been started
    /// anew since.
    SameAgentInstance,
    /// An agent's host lets nothing through to a connection that is taken out of it.
    GuardBeforeFreeze,
    /// A connection that was given back to one process of an owner is not given to the next.
    SameOwnerInstance,
    /// Endings are kept until the owner has heard of them.
    KeepEndings,
    /// The client's packets go nowhere while it is asked how far it is whose agent is lost.
    HoldBeforeLook,
    /// A connection does not go on if its client has sent what only the lost agent had.
    NothingUnheard,
    /// No end of a connection leaves an agent's host because the process died that had it. It is
    /// the host's, so that only the model asks.
    #[cfg(any(test, feature = "weakened"))]
    KeepEndsBack,
    /// All is told only when nothing is being put in any more.
    TellWhenSettled,
}

/// The steps of one side.
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
