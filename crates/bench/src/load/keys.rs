//! Which key the next query takes: uniform, or Zipf by rejection-inversion, which needs no table and constant time.
//!
//! W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", ACM
//! TOMACS 6(3), 1996.

use std::str::FromStr;

use crate::random::{Random, scramble};

/// How often each key is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// The key of rank r has weight `r^-exponent`; rank 1 is key 0.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is neither uniform, zipf nor zipf:EXPONENT with an exponent above 0 and up to 10");
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            None if text == "zipf" => Ok(Self::Zipf { exponent: 0.99 }),
            Some(("zipf", number)) => match number.parse::<f64>() {
                Ok(exponent) if exponent > 0.0 && exponent <= 10.0 => Ok(Self::Zipf { exponent }),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

/// Draws key numbers.
#[derive(Clone, Debug)]
pub struct Keys {
    count: u64,
    zipf: Option<Zipf>,
}

impl Keys {
    /// Keys `0..count` drawn by `distribution`.
    pub fn new(count: u64, distribution: Distribution) -> Self {
        let zipf = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf { exponent } => Some(Zipf::new(count.max(1), exponent)),
        };
        Self { count: count.max(1), zipf }
    }

    /// The next key number.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match &self.zipf {
            None => random.below(self.count),
            Some(zipf) => zipf.draw(random) - 1,
        }
    }
}

#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let integral_first = integral(1.5, exponent) - 1.0;
        let integral_last = integral(count as f64 + 0.5, exponent);
        let shortcut = 2.0 - inverse_integral(integral(2.5, exponent) - weight(2.0, exponent), exponent);
        Self { count: count as f64, exponent, integral_first, integral_last, shortcut }
    }

    /// A rank, 1 to count.
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.integral_last + random.unit() * (self.integral_first - self.integral_last);
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

/// Writes the bytes of key number `key` into `slot` (8 bytes or more; bytes from 16 on are left as they are).
pub fn write_key(key: u64, slot: &mut [u8]) {
    slot[..8].copy_from_slice(&key.to_be_bytes());
    let rest = &mut slot[8..];
    let count = rest.len().min(8);
    rest[..count].copy_from_slice(&scramble(key).to_be_bytes()[..count]);
}

/// Writes what identifies the value of `key` into the first bytes of `slot` (as many of 8 as there are).
pub fn write_value(key: u64, slot: &mut [u8]) {
    let count = slot.len().min(8);
    slot[..count].copy_from_slice(&scramble(!key).to_be_bytes()[..count]);
}

/// Whether `value` begins as [`write_value`] of this key does.
pub fn value_belongs(key: u64, value: &[u8]) -> bool {
    let count = value.len().min(8);
    value[..count] == scramble(!key).to_be_bytes()[..count]
}

#[cfg(test)]
mod tests {
    use super::{Distribution, Keys, value_belongs, write_value};
    use crate::random::Random;

    #[test]
    fn zipf_has_the_weights_of_its_ranks() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            let keys = Keys::new(100, Distribution::Zipf { exponent });
            let mut random = Random::new(5);
            let mut counts = [0u32; 100];
            for _ in 0..400_000 {
                counts[keys.draw(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=100).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1u32, 2, 3, 10, 100] {
                let expected = 400_000.0 * f64::from(rank).powf(-exponent) / total;
                let found = f64::from(counts[rank as usize - 1]);
                assert!(
                    (found - expected).abs() < 6.0 * expected.sqrt() + 1.0,
                    "e {exponent} rank {rank}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn uniform_stays_inside() {
        let keys = Keys::new(3, Distribution::Uniform);
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| keys.draw(&mut random) < 3));
    }

    #[test]
    fn distribution_names() {
        assert_eq!("zipf:1.2".parse(), Ok(Distribution::Zipf { exponent: 1.2 }));
        assert_eq!("uniform".parse(), Ok(Distribution::Uniform));
        assert!("zipf:-1".parse::<Distribution>().is_err() && "random".parse::<Distribution>().is_err());
    }

    #[test]
    fn a_value_belongs_to_its_key_only() {
        let mut value = [0u8; 14];
        write_value(9, &mut value);
        assert!(value_belongs(9, &value) && !value_belongs(8, &value));
    }
}
