//! The numbers of one rule, which all cores of a process count.

use std::sync::OnceLock;

use shunt_admin::Counter;

use super::action::Action;
use crate::tenants::budget;

/// The numbers that one core counts of a rule.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Hits {
    /// Statements on which the rule acted, by action.
    acted: [Counter; Action::COUNT],
    /// Statements on which `dry_run` kept it from acting, by action.
    would_act: [Counter; Action::COUNT],
}

impl Hits {
    pub(crate) fn count(&self, action: Action, is_dry: bool) {
        let counters = if is_dry { &self.would_act } else { &self.acted };
        counters[action as usize].add(1);
    }
}

/// One rule of a process, whatever configuration names it.
#[derive(Debug, Default)]
pub struct SharedRule {
    /// The budget of its limit.
    pub(super) budget: budget::Shared,
    hits: OnceLock<Box<[Hits]>>,
}

impl SharedRule {
    /// The numbers of one of the cores.
    pub(crate) fn hits(&self, core: usize, cores: usize) -> Option<&Hits> {
        let made = || (0..cores.max(core + 1)).map(|_| Hits::default()).collect();
        self.hits.get_or_init(made).get(core)
    }

    /// Statements on which the rule acted, or on which `dry_run` kept it from acting.
    pub fn sum(&self, action: Action, is_dry: bool) -> u64 {
        let cores = self.hits.get().into_iter().flatten();
        let of =
            |hits: &Hits| if is_dry { &hits.would_act } else { &hits.acted }[action as usize].get();
        cores.map(of).sum()
    }
}
