//! Exemplars in the text of the metrics: the trace of one query of a bucket
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>, "Exemplars").
//!
//! The encoder that writes the families takes no exemplars from outside, so they are added to its
//! lines. Only readers that ask for OpenMetrics get them; others may not understand them.

use std::fmt::Write as _;

/// The trace of one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Number of the trace.
    pub trace_id: [u8; 16],
    /// Duration of the query, nanoseconds.
    pub value_ns: u64,
    /// End of the query, milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// Adds exemplars to the buckets of one histogram of seconds without labels.
pub(crate) fn add(text: &str, family: &str, exemplars: &[Exemplar]) -> String {
    let start = format!("{family}_bucket{{le=\"");
    let mut written = String::with_capacity(text.len() + 128 * exemplars.len());
    let mut below = f64::NEG_INFINITY;
    for line in text.split_inclusive('\n') {
        let bound = line.strip_prefix(&start).and_then(|rest| rest.split_once('"'));
        let Some(bound) = bound.and_then(|(bound, _)| bound.parse::<f64>().ok()) else {
            written.push_str(line);
            continue;
        };
        written.push_str(line.trim_end());
        let seconds = |exemplar: &Exemplar| exemplar.value_ns as f64 / 1e9;
        let is_in = |exemplar: &&Exemplar| below < seconds(exemplar) && seconds(exemplar) <= bound;
        if let Some(exemplar) = exemplars.iter().find(is_in) {
            let trace = u128::from_be_bytes(exemplar.trace_id);
            let at = exemplar.at_unix_ms as f64 / 1e3;
            let value = seconds(exemplar);
            // Writing to a text does not fail.
            let _ = write!(written, " # {{trace_id=\"{trace:032x}\"}} {value} {at:.3}");
        }
        written.push('\n');
        below = bound;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE a_seconds histogram\n\
        a_seconds_sum 3.5\n\
        a_seconds_bucket{le=\"0.000016384\"} 1\n\
        a_seconds_bucket{le=\"1.073741824\"} 2\n\
        a_seconds_bucket{le=\"+Inf\"} 3\n\
        b_seconds_bucket{le=\"+Inf\"} 3\n\
        # EOF\n";

    #[test]
    fn each_bucket_gets_the_exemplar_whose_value_lies_in_it() {
        let exemplar = |value_ns, last| {
            let mut trace_id = [0; 16];
            trace_id[15] = last;
            Exemplar { trace_id, value_ns, at_unix_ms: 1_700_000_000_123 }
        };
        let exemplars = [exemplar(1 << 30, 0xAB), exemplar(2_000_000_000, 0xCD)];
        let found = add(TEXT, "a_seconds", &exemplars);
        let expected = TEXT
            .replace(
                "824\"} 2\n",
                "824\"} 2 # {trace_id=\"000000000000000000000000000000ab\"} 1.073741824 \
                 1700000000.123\n",
            )
            .replace(
                "a_seconds_bucket{le=\"+Inf\"} 3\n",
                "a_seconds_bucket{le=\"+Inf\"} 3 # {trace_id=\"000000000000000000000000000000cd\"} 2 \
                 1700000000.123\n",
            );
        assert_eq!(found, expected);
    }

    #[test]
    fn without_exemplars_the_text_stays() {
        assert_eq!(add(TEXT, "a_seconds", &[]), TEXT);
    }
}
