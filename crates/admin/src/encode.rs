//! Writes whole metric families through prometheus-client's encoder.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::histogram::Snapshot;

/// Labels of one value: names and texts.
pub type Labels = Vec<(&'static str, String)>;
/// One value of a family.
pub type Value = (Labels, f64);

/// A value without labels.
pub fn plain(value: f64) -> Value {
    (Vec::new(), value)
}

/// Bounds of duration histograms are powers of two nanoseconds: 16 µs to 17 s.
const DURATION_EXPONENTS: std::ops::RangeInclusive<u32> = 14..=34;
/// Bounds of size histograms are powers of two: 1 to 4096.
const SIZE_EXPONENTS: std::ops::RangeInclusive<u32> = 0..=12;

/// The kind of a family with plain values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// Any number.
    Gauge,
}

/// A family of a page of metrics.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// Name, without the suffix of its unit and of counters.
    pub name: &'static str,
    /// Meaning of the values, for people.
    pub help: &'static str,
    /// Unit of the values.
    pub unit: Option<Unit>,
    /// Kind of the values.
    pub kind: MetricKind,
    /// The values, each with other labels.
    pub values: Vec<Value>,
}

/// Writes families one after another.
pub struct Encoder<'a>(DescriptorEncoder<'a>);

impl<'a> Encoder<'a> {
    pub(crate) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Writes a family with plain values.
    ///
    /// # Errors
    /// The writer fails.
    pub fn family(&mut self, family: &MetricFamily) -> fmt::Result {
        let MetricFamily { name, help, unit, kind, values } = family;
        match kind {
            MetricKind::Counter => self.counter(name, help, unit.as_ref(), values),
            MetricKind::Gauge => self.gauge(name, help, unit.as_ref(), values),
        }
    }

    /// Writes a family of counters; the encoder appends `_total` to the name.
    ///
    /// # Errors
    /// The writer fails.
    pub fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: &[Value],
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (labels, value) in values {
            write(&mut family, labels, |metric| {
                // Whole numbers are written without a fraction: some parsers keep counters as
                // integers.
                if value.fract() == 0.0 {
                    metric.encode_counter::<NoLabelSet, u64, u64>(&(*value as u64), None)
                } else {
                    metric.encode_counter::<NoLabelSet, f64, u64>(value, None)
                }
            })?;
        }
        Ok(())
    }

    /// Writes a family of gauges.
    ///
    /// # Errors
    /// The writer fails.
    pub fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: &[Value],
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in values {
            write(&mut family, labels, |metric| {
                if value.fract() == 0.0 {
                    metric.encode_gauge(&(*value as i64))
                } else {
                    metric.encode_gauge(value)
                }
            })?;
        }
        Ok(())
    }

    /// Writes a family of histograms of nanoseconds, in seconds.
    ///
    /// # Errors
    /// The writer fails.
    pub fn durations(
        &mut self,
        name: &str,
        help: &str,
        values: &[(Labels, Snapshot)],
    ) -> fmt::Result {
        self.histogram(name, help, Some(&Unit::Seconds), values, DURATION_EXPONENTS, 1e9)
    }

    /// Writes a family of histograms of counts.
    ///
    /// # Errors
    /// The writer fails.
    pub fn sizes(&mut self, name: &str, help: &str, values: &[(Labels, Snapshot)]) -> fmt::Result {
        self.histogram(name, help, None, values, SIZE_EXPONENTS, 1.0)
    }

    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: &[(Labels, Snapshot)],
        exponents: std::ops::RangeInclusive<u32>,
        scale: f64,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (labels, snapshot) in values {
            // The encoder wants each bucket's own count and adds them up itself.
            let mut below = 0;
            let mut buckets = Vec::new();
            for exponent in exponents.clone() {
                let up_to = snapshot.count_to_power(exponent);
                buckets.push(((1u64 << exponent) as f64 / scale, up_to - below));
                below = up_to;
            }
            let count = snapshot.count();
            buckets.push((f64::INFINITY, count - below));
            let sum = snapshot.sum() as f64 / scale;
            write(&mut family, labels, |metric| {
                metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            })?;
        }
        Ok(())
    }
}

/// Writes one metric of a family. A metric without labels is written as the family itself;
/// otherwise the encoder adds an empty `{}`.
fn write(
    family: &mut MetricEncoder<'_>,
    labels: &Labels,
    value: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() { value(family) } else { value(&mut family.encode_family(labels)?) }
}
