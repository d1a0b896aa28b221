//! The kinds of alerts, and one alert.

use serde_json::{Value, json};
use shunt_wire::printable::printable_to;

/// Bytes of the text of one.
const TEXT_BYTES_MAX: usize = 1_024;
/// The page about alerts.
const RUNBOOK: &str = "docs/alerts.md#what-an-alert-asks-for";

/// A kind of alert: its name in `docs/alerts.md`, the same as that of a rule for Prometheus about
/// the same condition.
#[derive(Debug)]
pub(super) struct Kind {
    name: &'static str,
    severity: &'static str,
    remedy: &'static str,
}

/// An alert that clients feel.
const PAGE: &str = "page";
/// An alert to look at by day.
const TICKET: &str = "ticket";
/// A condition that somebody has made on purpose.
const NOTE: &str = "note";

macro_rules! kinds {
    ($($name:ident = $text:literal, $severity:ident, $remedy:literal;)+) => {
        $(pub(super) static $name: Kind =
            Kind { name: $text, severity: $severity, remedy: $remedy };)+
        /// All kinds.
        #[cfg(test)]
        static KINDS: &[&Kind] = &[$(&$name),+];
    };
}

kinds! {
    NOT_READY = "ShuntNotReady", PAGE,
        "see docs/monitoring.md, section \"When /readyz says 503\", for this reason";
    DRAINING = "ShuntDraining", NOTE,
        "nothing; shunt undrain takes the drain of a command back";
    NODE_DOWN = "ShuntNodeDown", TICKET,
        "look at the node; its queries go to other replicas";
    NODE_UNREACHABLE = "ShuntNodeUnreachable", TICKET,
        "the log says why (\"giving up a link to a node\"); check the node, the network to it, and \
        username";
    NODE_EJECTED = "ShuntNodeEjected", TICKET,
        "look at the node; shunt nodes shows its times beside the others'";
    WITHOUT_LINKS = "ShuntWithoutLinks", PAGE,
        "the log says why (\"giving up a link to a node\"); check the nodes, the network to them, \
        and username";
    RING_VIEW_OLD = "ShuntRingViewOld", TICKET,
        "check the contact points, firewalls and username; the proxy routes by the ring as it last \
        saw it";
    LOOP_STANDS_STILL = "ShuntLoopStandsStill", PAGE,
        "check /healthz and the end of the log, and whether the machine was paused";
    CONFIGURATION_REFUSED = "ShuntConfigurationRefused", TICKET,
        "correct the file, then run shunt reload; the former options stay in force";
    CERTIFICATE_EXPIRES = "ShuntCertificateExpires", TICKET,
        "renew the certificate (docs/tls.md, section \"Renew certificates\")";
    RESTART_NEEDED = "ShuntRestartNeeded", NOTE,
        "restart the proxy when it suits you";
    FLEET_NO_LEASE = "ShuntFleetNoLease", PAGE,
        "run shunt fleet status; check the nodes with shunt_meta, and the network to them";
    FLEET_FORMAT = "ShuntFleetFormat", TICKET,
        "run the version of the other proxies";
    FLEET_UNSEALED = "ShuntFleetUnsealed", TICKET,
        "run shunt fleet status; start a proxy of the fleet if none lives";
    FLEET_LEAVING = "ShuntFleetLeaving", NOTE,
        "nothing; the proxy leaves as you asked";
    FLEET_ADDRESSES = "ShuntFleetAddresses", PAGE,
        "give each proxy a different address (--advertise)";
    LOCK_FOREIGN_ROWS = "ShuntLockForeignRows", TICKET,
        "find out who writes there past the proxies";
    LOCK_UNREADABLE_ROW = "ShuntLockUnreadableRow", PAGE,
        "find out which client wrote the row, and delete the row";
    TRANSACTIONS_UNMADE = "ShuntTransactionsUnmade", PAGE,
        "bring up the nodes that have the replicas";
    CLOCK_BEHIND = "ShuntClockBehind", PAGE,
        "set the clock of the proxy's host right";
    CLOCK_UNMEASURED = "ShuntClockUnmeasured", PAGE,
        "see whether the nodes answer within a second";
}

/// One alert.
#[derive(Debug)]
pub(super) struct Alert {
    kind: &'static Kind,
    /// The condition, for an operator.
    text: String,
    /// The part of the condition that tells it from others of its kind while it lasts.
    subject: String,
    /// Time of its begin, if that is known; else it begins when it is first seen.
    since_ms: Option<u64>,
}

impl Alert {
    pub(super) fn new(kind: &'static Kind, text: String) -> Self {
        // Figures in texts change while the condition lasts.
        let subject = text.split(|char: char| char.is_ascii_digit()).next().unwrap_or_default();
        Self { kind, subject: subject.to_owned(), text, since_ms: None }
    }

    /// An alert whose subject is known.
    pub(super) fn about(kind: &'static Kind, subject: String, text: String) -> Self {
        Self { kind, text, subject, since_ms: None }
    }

    /// The alert, which begins then.
    pub(super) fn since(self, since_ms: u64) -> Self {
        Self { since_ms: Some(since_ms), ..self }
    }

    /// The condition, for an operator.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Its kind and its subject, which no other alert has while it lasts.
    pub(super) fn key(&self) -> (&'static str, &str) {
        (self.kind.name, &self.subject)
    }

    /// The place of its severity: 0 for the most severe.
    pub(super) fn rank(&self) -> usize {
        let all = [PAGE, TICKET, NOTE];
        all.iter().position(|severity| *severity == self.kind.severity).unwrap_or(all.len())
    }

    /// The alert for a page, if it was first seen then.
    pub(super) fn shown(&self, since_ms: u64) -> Value {
        json!({
            "name": self.kind.name,
            "severity": self.kind.severity,
            "since_unix_ms": self.since_ms.unwrap_or(since_ms),
            "text": printable_to(&self.text, TEXT_BYTES_MAX),
            "remedy": self.kind.remedy,
            "runbook": RUNBOOK,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn each_alert_has_a_row_in_its_runbook_and_the_severity_of_its_rule() {
        let (runbook, rules) = (read("docs/alerts.md"), read("packaging/prometheus/alerts.yml"));
        let mut of_rules = 0;
        for Kind { name, severity, .. } in KINDS {
            let rows = runbook.lines().filter(|line| line.starts_with("| `Shunt"));
            let cell = format!("`{name}`");
            let rows = rows
                .filter(|row| row.split(" | ").next().is_some_and(|names| names.contains(&cell)));
            assert_eq!(rows.count(), 1, "{name}");
            if let Some((_, rule)) = rules.split_once(&format!("- alert: {name}\n")) {
                let rule = rule.split("- alert: ").next().unwrap_or_default();
                assert!(rule.contains(&format!("severity: {severity}}}")), "{name}: {rule}");
                of_rules += 1;
            }
        }
        assert!(of_rules >= 10, "{of_rules}");
    }
}
