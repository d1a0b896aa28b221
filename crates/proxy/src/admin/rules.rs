//! The page of rules, and their metrics: the numbers that the cores count, added up.

use std::fmt;

use serde_json::{Map, Value, json};
use shunt_admin::Encoder;

use crate::config::{Action, Rule, RuleList};

/// Name of the page.
pub(super) const PAGE: &str = "rules";

/// The actions of a rule, with the name that each has there.
fn actions(rule: &Rule) -> impl Iterator<Item = (&'static str, u64)> {
    let is_dry = rule.actions.dry_run;
    let own = Action::ALL.into_iter().filter(|action| rule.actions.has(*action));
    own.map(move |action| (action.name(is_dry), rule.shared.sum(action, is_dry)))
}

/// The rules of a configuration, in its order.
pub(super) fn page(rules: &RuleList) -> Value {
    let rows = rules.0.iter().enumerate().map(|(place, rule)| {
        let by_action: Map<String, Value> =
            actions(rule).map(|(name, hits)| (name.to_owned(), hits.into())).collect();
        let sum = |is_dry| Action::ALL.iter().map(|it| rule.shared.sum(*it, is_dry)).sum::<u64>();
        json!({
            "place": place + 1,
            "name": &*rule.name,
            "actions": actions(rule).map(|(name, _)| name).collect::<Vec<_>>(),
            "hits": sum(false),
            "would_hit": sum(true),
            "hits_by_action": by_action,
            "dry_run": rule.actions.dry_run,
        })
    });
    json!({ "rules": rows.collect::<Vec<_>>() })
}

/// Writes the metrics of the rules, one series for each action of a rule.
pub(super) fn metrics(rules: &RuleList, encoder: &mut Encoder<'_>) -> fmt::Result {
    let series = rules.0.iter().flat_map(|rule| {
        actions(rule).map(|(action, hits)| {
            let labels = vec![("rule", rule.name.to_string()), ("action", action.to_owned())];
            (labels, hits as f64)
        })
    });
    let help = "Statements on which a rule acted, or would have acted without dry_run.";
    encoder.counter("shunt_rule_hits", help, None, &series.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RuleActions, RuleMatch};

    #[test]
    fn a_row_has_the_sums_of_all_cores() {
        let rule = |name: &str, dry_run| {
            let actions =
                RuleActions { refuse: Some("no".into()), dry_run, ..RuleActions::default() };
            Rule::new(name, RuleMatch::default(), actions)
        };
        let rules = RuleList(vec![rule("a", false), rule("b", true)]);
        for rule in &rules.0 {
            for core in 0..2 {
                let hits = rule.shared.hits(core, 2).expect("the numbers of a core");
                hits.count(Action::Refuse, rule.actions.dry_run);
            }
        }
        let page = page(&rules);
        let numbers = |place: usize| {
            let row = &page["rules"][place];
            (row["hits"].clone(), row["would_hit"].clone(), row["hits_by_action"].clone())
        };
        assert_eq!(numbers(0), (json!(2), json!(0), json!({ "refuse": 2 })));
        assert_eq!(numbers(1), (json!(0), json!(2), json!({ "would_refuse": 2 })));
    }
}
