//! Zipf-distributed ranks by rejection-inversion, in constant time and without a table.
//!
//! W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", ACM TOMACS 6(3), 1996.

use crate::random::Random;

/// Draws ranks from 1 to a count; rank r has the weight `r^-exponent`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    count: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    pub(super) fn new(count: u64, exponent: f64) -> Self {
        let integral_first = integral(1.5, exponent) - 1.0;
        let shortcut =
            2.0 - inverse_integral(integral(2.5, exponent) - weight(2.0, exponent), exponent);
        let mut zipf = Self { count: 0.0, exponent, integral_first, integral_last: 0.0, shortcut };
        zipf.set_count(count);
        zipf
    }

    /// Changes the count. The cost is two logarithms, so the count can follow every insert.
    pub(super) fn set_count(&mut self, count: u64) {
        self.count = count.max(1) as f64;
        self.integral_last = integral(self.count + 0.5, self.exponent);
    }

    /// Draws a rank, 1 to count.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area =
                self.integral_last + random.unit() * (self.integral_first - self.integral_last);
            let position = inverse_integral(area, self.exponent);
            let rank = position.round().clamp(1.0, self.count);
            let accepted = rank - position <= self.shortcut
                || area >= integral(rank + 0.5, self.exponent) - weight(rank, self.exponent);
            if accepted {
                return rank as u64;
            }
        }
    }
}

fn weight(x: f64, exponent: f64) -> f64 {
    (-exponent * x.ln()).exp()
}

/// Integral of the weight, `(x^(1-e) - 1) / (1-e)`, in a form that is stable at e = 1.
fn integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    expm1_over(log * (1.0 - exponent)) * log
}

fn inverse_integral(area: f64, exponent: f64) -> f64 {
    let scaled = (area * (1.0 - exponent)).max(-1.0);
    (ln1p_over(scaled) * area).exp()
}

fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::Zipf;
    use crate::random::Random;

    /// Checks the frequencies of some of 100 ranks.
    fn assert_weights(zipf: &Zipf, exponent: f64) {
        let mut random = Random::new(5);
        let mut counts = [0u32; 101];
        for _ in 0..400_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let total: f64 = (1..=100).map(|rank| f64::from(rank).powf(-exponent)).sum();
        for rank in [1u32, 2, 3, 10, 100] {
            let expected = 400_000.0 * f64::from(rank).powf(-exponent) / total;
            let found = f64::from(counts[rank as usize]);
            assert!(
                (found - expected).abs() < 6.0 * expected.sqrt() + 1.0,
                "e {exponent} rank {rank}: {found} {expected}"
            );
        }
    }

    #[test]
    fn ranks_have_their_weights() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            assert_weights(&Zipf::new(100, exponent), exponent);
        }
    }

    #[test]
    fn a_count_set_later_is_as_one_from_the_start() {
        let mut zipf = Zipf::new(3, 0.99);
        (4..=100).for_each(|count| zipf.set_count(count));
        assert_weights(&zipf, 0.99);
    }
}
