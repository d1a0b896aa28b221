//! Medians with their range, and ratios with a confidence interval that shows whether there is a
//! difference.

use serde::Serialize;

/// Fewest rounds for an interval of about 95 %: with four rounds, all ratios lie on one side of 1
/// by chance in one of eight cases.
pub const ROUNDS_MIN: usize = 5;

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
    /// Computes the spread of some values; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { median, min, max })
    }
}

/// The ratio of one arm to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Median over the rounds.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// True if the rounds show a difference: there are enough of them, and the interval does not
    /// contain 1.
    pub shown: bool,
    /// Number of rounds in which both arms were measured.
    pub rounds: usize,
}

impl Ratio {
    /// Computes the ratio from those of single rounds. The two measurements of a round follow each
    /// other closely, so a temporary slowdown of the machine cancels out. The interval is that of
    /// the median by order statistics (the inverted sign test; W. J. Conover, "Practical
    /// Nonparametric Statistics", 1999, section 3.2). It assumes no distribution and is right even
    /// for few rounds, whereas a percentile bootstrap of the median finds a difference in noise in
    /// one of eight cases. With 5 rounds the interval is their range, with a confidence of 94 %.
    /// `None` without a round.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let mut rounds: Vec<f64> =
            rounds.iter().copied().filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect();
        let ratio = Spread::of(rounds.iter().copied())?.median;
        rounds.sort_unstable_by(f64::total_cmp);
        let beyond = left_out(rounds.len());
        let (low, high) = (rounds[beyond], rounds[rounds.len() - 1 - beyond]);
        let shown = rounds.len() >= ROUNDS_MIN && !(low..=high).contains(&1.0);
        Some(Self { ratio, low, high, shown, rounds: rounds.len() })
    }
}

/// Returns how many of the smallest and of the largest of `count` values a 95 % interval of the
/// median leaves out. The probability that the median lies among them is at most 2.5 % on each
/// side.
fn left_out(count: usize) -> usize {
    let mut probability = 0.5f64.powi(count.try_into().unwrap_or(i32::MAX));
    let mut below = probability;
    let mut out = 0;
    // `below` is the probability that at most `out` of the values lie below the median.
    while out + 1 < count.div_ceil(2) {
        probability *= (count - out) as f64 / (out + 1) as f64;
        if below + probability > 0.025 {
            break;
        }
        below += probability;
        out += 1;
    }
    out
}

/// The bound that a claim sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// Above this number.
    Above(f64),
    /// Below this number.
    Below(f64),
}

impl Wanted {
    /// Parses `> NUMBER` or `< NUMBER`.
    ///
    /// # Errors
    /// The text has neither form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("wanted = \"{text}\" is not '> NUMBER' or '< NUMBER'");
        let (sign, number) = text.trim().split_at_checked(1).ok_or_else(wrong)?;
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        match sign {
            ">" => Ok(Self::Above(number)),
            "<" => Ok(Self::Below(number)),
            _ => Err(wrong()),
        }
    }

    /// True if `number` meets the bound.
    pub fn holds(self, number: f64) -> bool {
        match self {
            Self::Above(limit) => number > limit,
            Self::Below(limit) => number < limit,
        }
    }
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Verdict {
    /// The whole interval meets the bound.
    #[serde(rename = "met")]
    Met,
    /// No part of the interval meets the bound.
    #[serde(rename = "not met")]
    NotMet,
    /// The interval lies on both sides of the bound, or too few rounds were measured.
    #[serde(rename = "not shown")]
    NotShown,
    /// The figure is missing.
    #[serde(rename = "not measured")]
    NotMeasured,
}

impl Verdict {
    /// Returns the verdict on a value between `low` and `high`, measured in `rounds` rounds of at
    /// least `rounds_min`.
    pub fn of(wanted: Wanted, low: f64, high: f64, rounds: usize, rounds_min: usize) -> Self {
        match (wanted.holds(low), wanted.holds(high)) {
            _ if rounds == 0 => Self::NotMeasured,
            _ if rounds < rounds_min => Self::NotShown,
            (true, true) => Self::Met,
            (false, false) => Self::NotMet,
            _ => Self::NotShown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ratio, Spread, Verdict, Wanted, left_out};
    use crate::random::Random;

    #[test]
    fn spread_of_some_values() {
        assert_eq!(
            Spread::of([3.0, 1.0, f64::NAN, 2.0]),
            Some(Spread { median: 2.0, min: 1.0, max: 3.0 })
        );
        assert_eq!(Spread::of([4.0, 2.0]).map(|spread| spread.median), Some(3.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_difference_is_shown_only_where_there_is_one() {
        let far = Ratio::of(&[0.5, 0.52, 0.48, 0.55, 0.5]).expect("rounds");
        assert!(far.shown && far.low >= 0.48 && far.high <= 0.55 && far.rounds == 5, "{far:?}");
        let near = Ratio::of(&[0.9, 1.1, 1.02, 0.97, 1.05]).expect("rounds");
        assert!(!near.shown && near.low < 1.0 && near.high > 1.0, "{near:?}");
        let few = Ratio::of(&[0.5, 0.5, 0.5, 0.5]).expect("rounds");
        assert!(!few.shown, "four rounds show nothing: {few:?}");
        assert_eq!(Ratio::of(&[f64::NAN, 0.0]), None);
    }

    /// In noise without a difference, at most about one interval in sixteen (5 rounds) or twenty
    /// shows a difference.
    #[test]
    fn intervals_of_noise_contain_1() {
        let mut random = Random::new(7);
        for (rounds, wrong_max) in [(5, 165), (6, 90), (7, 90), (9, 120), (15, 120)] {
            let wrong = (0..2000).filter(|_| {
                let draw: Vec<f64> = (0..rounds)
                    .map(|_| (0.2 * (random.unit() + random.unit() - 1.0)).exp())
                    .collect();
                Ratio::of(&draw).expect("rounds").shown
            });
            let wrong = wrong.count();
            assert!(wrong < wrong_max, "{rounds} rounds: {wrong} of 2000");
        }
    }

    #[test]
    fn the_interval_of_many_leaves_out_as_many_as_the_sign_test() {
        assert_eq!([1, 5, 6, 8, 9, 15, 20, 25].map(left_out), [0, 0, 0, 0, 1, 3, 5, 7]);
    }

    #[test]
    fn verdicts() {
        let below = Wanted::Below(0.8);
        assert_eq!(Verdict::of(below, 0.5, 0.7, 5, 5), Verdict::Met);
        assert_eq!(Verdict::of(below, 0.5, 0.9, 5, 5), Verdict::NotShown);
        assert_eq!(Verdict::of(below, 0.9, 0.95, 5, 5), Verdict::NotMet);
        assert_eq!(Verdict::of(below, 0.5, 0.7, 2, 5), Verdict::NotShown);
        assert_eq!(Verdict::of(below, 0.5, 0.7, 0, 5), Verdict::NotMeasured);
        assert_eq!(Verdict::of(below, 0.5, 0.5, 1, 1), Verdict::Met);
    }

    #[test]
    fn wanted_is_a_bound() {
        assert_eq!(Wanted::parse("< 0.5"), Ok(Wanted::Below(0.5)));
        assert!(
            Wanted::parse(">1").expect("valid").holds(1.1)
                && !Wanted::parse("> 1").expect("valid").holds(1.0)
        );
        assert!(
            Wanted::parse("= 1").is_err()
                && Wanted::parse("").is_err()
                && Wanted::parse("< x").is_err()
        );
    }
}
