//! One measurement, and what many of them come to: medians with their range, and ratios taken within a round.

use serde::Serialize;

use crate::{
    load::RoundReport,
    overhead::{Arm, Shape},
};

/// One way at one shape in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The way.
    pub arm: &'static str,
    /// Its shape, such as `64x1`.
    pub shape: String,
    /// The round, from 0.
    pub round: u32,
    /// CPU microseconds per query of what is measured.
    pub cpu_us: f64,
    /// The same in units of one 70-byte send and receive on loopback.
    pub cpu_units: f64,
    /// CPU microseconds per query of load generator and nodes together.
    pub rest_cpu_us: f64,
    /// CPU microseconds per query of the kernel's deferred network work on the measured CPU; not part of `cpu_us`.
    pub softirq_us: f64,
    /// Everything else.
    pub report: RoundReport,
}

/// A median and its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of any values; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }
}

/// All measurements of a comparison.
#[derive(Debug, Default)]
pub struct Figures {
    measurements: Vec<Measurement>,
}

impl Figures {
    /// Adds one.
    pub fn add(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    /// The measurements of a way at a shape.
    pub fn of(&self, arm: Arm, shape: Shape) -> impl Iterator<Item = &Measurement> {
        let shape = shape.to_string();
        self.measurements.iter().filter(move |found| found.arm == arm.name() && found.shape == shape)
    }

    /// A value of a way at a shape over all rounds.
    pub fn spread(&self, arm: Arm, shape: Shape, value: impl Fn(&Measurement) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.of(arm, shape).filter_map(value))
    }

    /// Cost of `arm` over that of `base`, each pair from the same round, in which they were measured one soon after the
    /// other, so that what slows the machine for a while falls out.
    pub fn ratio(&self, arm: Arm, base: Arm, shape: Shape) -> Option<Spread> {
        let of_round = |round| self.of(base, shape).find(|found| found.round == round);
        Spread::of(self.of(arm, shape).filter_map(|found| Some(found.cpu_us / of_round(found.round)?.cpu_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn median_and_range() {
        let spread = Spread::of([5.0, 1.0, f64::NAN, 3.0, 10.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max), (4.0, 1.0, 10.0));
        assert_eq!(Spread::of([2.0]).map(|spread| spread.median), Some(2.0));
        assert_eq!(Spread::of([]), None);
    }
}
