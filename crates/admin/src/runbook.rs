//! The runbook of the page for browsers: the table of `docs/alerts.md`, which is in the binary, so
//! that an operator without a way to the documentation can read it.

use serde_json::{Value as Json, json};

const ALERTS: &str = include_str!("../../../docs/alerts.md");

/// The rows of the table: the names of the alerts, and what to do about them.
pub(crate) fn page() -> Json {
    let rows = ALERTS.lines().filter(|line| line.starts_with("| `Shunt"));
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split(" | ").map(|cell| plain(cell.trim()));
        let mut next = || cells.next().unwrap_or_default();
        json!({ "alert": next(), "look_first": next(), "then": next() })
    };
    json!({ "alerts": rows.map(row).collect::<Vec<_>>() })
}

/// A text without the marks of Markdown: code and links as their words.
fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        shown.push_str(before);
        // The first `]` ends the words of a link, or no link began.
        let words = link.split_once(']');
        let target = words.and_then(|(_, after)| after.strip_prefix('(')?.split_once(')'));
        rest = match words.zip(target) {
            Some(((words, _), (_, after))) => {
                shown.push_str(words);
                after
            }
            None => {
                shown.push('[');
                link
            }
        };
    }
    shown.push_str(rest);
    shown.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = include_str!("../../../packaging/prometheus/alerts.yml");

    #[test]
    fn each_rule_of_prometheus_has_a_row() {
        let page = page();
        let rows = page["alerts"].as_array().expect("rows");
        let rules: Vec<&str> =
            RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        assert!(rules.len() > 20, "{rules:?}");
        for rule in rules {
            let names = |row: &&Json| {
                row["alert"].as_str().is_some_and(|names| names.split(", ").any(|one| one == rule))
            };
            let found: Vec<_> = rows.iter().filter(names).collect();
            assert_eq!(found.len(), 1, "{rule}");
            for cell in ["look_first", "then"] {
                assert!(!found[0][cell].as_str().expect("a text").is_empty(), "{rule} {cell}");
            }
        }
    }

    #[test]
    fn links_and_code_are_shown_by_their_words() {
        let text = "see [the reasons](a.md#b) and `x[0]`, [renew](tls.md)";
        assert_eq!(plain(text), "see the reasons and x[0], renew");
        assert_eq!(plain("[ unclosed ](x"), "[ unclosed ](x");
    }
}
