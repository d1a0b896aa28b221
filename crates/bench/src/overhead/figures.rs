//! One measurement, and what many of them come to: medians with their range, and ratios taken within a round.

use serde::Serialize;

use crate::{
    load::RoundReport,
    measure::statistics::Spread,
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
