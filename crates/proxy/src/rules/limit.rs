//! The limit of a rule: statements per second, shared by the cores as a tenant's queries are.

use super::shared::SharedRule;
use crate::config::Rule;
use crate::tenants::budget::{Rate, Slice};

/// The limit of one rule, with the core's slice of it.
#[derive(Debug)]
pub(super) struct Limit {
    rate: Rate,
    slice: Slice,
}

impl Limit {
    /// The limit of a rule, if it has one.
    pub(super) fn of(rule: &Rule, cores: usize) -> Option<Limit> {
        let per_second = rule.actions.queries_per_s?;
        Some(Limit { rate: Rate::new(per_second, per_second, cores), slice: Slice::default() })
    }

    /// Takes a token for a statement; false if there is none.
    pub(super) fn takes(&mut self, shared: &SharedRule, now_ns: u64) -> bool {
        let has_token = self.slice.find(&shared.budget, &self.rate, now_ns, false).is_ok();
        if has_token {
            self.slice.spend(1);
        }
        has_token
    }

    pub(super) fn tick(&mut self, shared: &SharedRule, now_ns: u64) {
        self.slice.tick(&shared.budget, &self.rate, now_ns);
    }
}
