//! Checks a node's settings (`system_views.settings`) for locks. A missing setting means that the
//! node's version does not have it.

use std::collections::BTreeMap;

use super::report::Report;

/// Checks the settings of one node. `gc_grace` is that of the table of lock rows, in seconds.
pub(super) fn check(
    settings: &BTreeMap<String, Option<String>>,
    gc_grace: Option<u64>,
    node: &str,
    report: &mut Report,
) {
    let of = |name: &str| {
        settings.get(name).and_then(Option::as_deref).filter(|value| !matches!(*value, "" | "null"))
    };
    match of("paxos_variant") {
        Some("v2") => report.ok("paxos", node, "paxos_variant is v2"),
        Some(other) => report.warning(
            "paxos",
            node,
            &format!("paxos_variant is {other}: members wait longer for each other"),
            "set paxos_variant: v2 in cassandra.yaml of all nodes, and run repairs with --paxos-only once",
        ),
        None => report.warning("paxos", node, "it has no paxos_variant (before 4.1)", "upgrade Cassandra when you can"),
    }
    match of("commitlog_sync") {
        Some("periodic") => report.warning(
            "commitlog",
            node,
            "commitlog_sync is periodic: if a quorum of replicas loses power at once, locks \
            granted in the last seconds are lost",
            "set commitlog_sync: group (or batch), or accept that",
        ),
        Some(other) => report.ok("commitlog", node, &format!("commitlog_sync is {other}")),
        None => {}
    }
    let window = of("max_hint_window").or_else(|| of("max_hint_window_in_ms"));
    if let (Some(gc_grace), Some(text)) = (gc_grace, window) {
        match duration_ms(text) {
            Some(window_ms) if window_ms / 1_000 < gc_grace => report.ok("hints", node, &format!("kept for {text}")),
            Some(_) => report.error(
                "hints",
                node,
                &format!("hints are kept for {text}, but deleted rows only for {gc_grace} s: an \
                old row could come back"),
                "ALTER TABLE shunt_meta.lock WITH gc_grace_seconds above the hint window, and shunt_meta.member, txn_low and txn_log alike",
            ),
            None => {
                let what = format!("the hint window {text} cannot be parsed");
                report.warning(
                    "hints",
                    node,
                    &what,
                    "compare it with gc_grace_seconds of shunt_meta.lock",
                );
            }
        }
    }
    for name in ["maximum_timestamp_fail_threshold", "minimum_timestamp_fail_threshold"] {
        if let Some(value) = of(name) {
            report.error(
                "guardrails",
                node,
                &format!(
                    "{name} is {value}: rows of locks have the fence as timestamp, which may run ahead of the clock"
                ),
                "unset it (null), because it refuses the writes of grants",
            );
        }
    }
}

/// Parses a duration in the form of cassandra.yaml (`3h`, `180m`, `10800s`, `500ms`, `1d`), or as a
/// number of milliseconds.
fn duration_ms(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    fn checked(settings: &[(&str, Option<&str>)]) -> (Level, String) {
        let owned =
            settings.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
        let mut report = Report::new(false);
        check(&owned.collect(), Some(14_400), "n", &mut report);
        (report.worst(), report.text())
    }

    #[test]
    fn each_setting_that_harms_locks_is_told() {
        let good = [
            ("paxos_variant", Some("v2")),
            ("commitlog_sync", Some("group")),
            ("max_hint_window", Some("3h")),
            ("maximum_timestamp_fail_threshold", None),
            ("minimum_timestamp_fail_threshold", Some("null")),
        ];
        assert_eq!(checked(&good).0, Level::Ok, "{}", checked(&good).1);
        for (name, value, level, part) in [
            ("paxos_variant", "v1", Level::Warning, "paxos_variant is v1"),
            ("commitlog_sync", "periodic", Level::Warning, "loses power"),
            ("max_hint_window", "14400s", Level::Error, "hint window"),
            ("max_hint_window", "1 fortnight", Level::Warning, "cannot be parsed"),
            (
                "maximum_timestamp_fail_threshold",
                "5s",
                Level::Error,
                "maximum_timestamp_fail_threshold is 5s",
            ),
        ] {
            let mut bad = good;
            let place = bad.iter().position(|(known, _)| *known == name).expect("known");
            bad[place].1 = Some(value);
            let (worst, text) = checked(&bad);
            assert!(worst == level && text.contains(part), "{name}: {text}");
        }
    }

    #[test]
    fn durations_have_units() {
        let cases = [
            ("3h", Some(10_800_000)),
            ("10800000", Some(10_800_000)),
            ("5ms", Some(5)),
            ("h", None),
            ("3w", None),
        ];
        for (text, ms) in cases {
            assert_eq!(duration_ms(text), ms, "{text}");
        }
    }
}
