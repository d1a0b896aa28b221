//! Actions of rules.

/// An effect on a statement, in the order of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client gets INVALID.
    Refuse,
}

impl Action {
    /// Number of actions.
    pub const COUNT: usize = 1;
    /// All of them.
    pub const ALL: [Action; Action::COUNT] = [Action::Refuse];

    /// Name in tables and metrics; `is_dry`: of a rule that only counts.
    pub fn name(self, is_dry: bool) -> &'static str {
        match (self, is_dry) {
            (Action::Refuse, false) => "refuse",
            (Action::Refuse, true) => "would_refuse",
        }
    }
}
