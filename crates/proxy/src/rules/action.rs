//! Actions of rules.

/// An effect on a statement, in the order of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client gets INVALID.
    Refuse,
    /// Statements beyond a rate get OVERLOADED.
    Limit,
    /// The query has another deadline.
    Timeout,
    /// The query has another consistency level.
    Consistency,
    /// The query goes to no second replica when it is late.
    Hedge,
    /// The query has a mark among the slow queries.
    Tag,
}

impl Action {
    /// Number of actions.
    pub const COUNT: usize = 6;
    /// All of them.
    pub const ALL: [Action; Action::COUNT] = [
        Action::Refuse,
        Action::Limit,
        Action::Timeout,
        Action::Consistency,
        Action::Hedge,
        Action::Tag,
    ];

    /// Name in tables and metrics; `is_dry`: of a rule that only counts.
    pub fn name(self, is_dry: bool) -> &'static str {
        match (self, is_dry) {
            (Action::Refuse, false) => "refuse",
            (Action::Refuse, true) => "would_refuse",
            (Action::Limit, false) => "limit",
            (Action::Limit, true) => "would_limit",
            (Action::Timeout, false) => "timeout",
            (Action::Timeout, true) => "would_timeout",
            (Action::Consistency, false) => "consistency",
            (Action::Consistency, true) => "would_consistency",
            (Action::Hedge, false) => "hedge",
            (Action::Hedge, true) => "would_hedge",
            (Action::Tag, false) => "tag",
            (Action::Tag, true) => "would_tag",
        }
    }
}
