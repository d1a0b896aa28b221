//! The distribution of operations over keys, and its form on the command line.

use std::str::FromStr;

/// Exponent of YCSB's zipfian distribution.
pub const YCSB_EXPONENT: f64 = 0.99;

/// The distribution of operations over keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every key is used equally often.
    Uniform,
    /// The key of rank r has weight `r^-exponent`; ranks are spread over the keys.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
    /// Zipf by age: the key inserted last has rank 1.
    Latest {
        /// The exponent, above 0.
        exponent: f64,
    },
    /// A hot part of the keys gets a part of the operations; within each part keys are uniform.
    HotSet {
        /// Share of the keys that are hot, above 0 and up to 1.
        share: f64,
        /// Share of the operations on hot keys.
        probability: f64,
    },
    /// Zipf with a new mapping of ranks to keys from time to time.
    Churn {
        /// The exponent, above 0.
        exponent: f64,
        /// Nanoseconds from one mapping to the next.
        period_ns: u64,
    },
}

const FORMS: &str = "uniform, zipf[:EXPONENT], latest[:EXPONENT], hotset:SHARE:PROBABILITY or churn:EXPONENT:SECONDS";

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["uniform"] => Ok(Self::Uniform),
            ["zipf"] => Ok(Self::Zipf { exponent: YCSB_EXPONENT }),
            ["zipf", exponent] => Ok(Self::Zipf { exponent: read_exponent(exponent)? }),
            ["latest"] => Ok(Self::Latest { exponent: YCSB_EXPONENT }),
            ["latest", exponent] => Ok(Self::Latest { exponent: read_exponent(exponent)? }),
            ["hotset", share, probability] => {
                let share = read(share, "share of keys", f64::MIN_POSITIVE, 1.0)?;
                Ok(Self::HotSet { share, probability: read(probability, "probability", 0.0, 1.0)? })
            }
            ["churn", exponent, seconds] => {
                let seconds = read(seconds, "number of seconds", 1e-3, 1e6)?;
                Ok(Self::Churn {
                    exponent: read_exponent(exponent)?,
                    period_ns: (seconds * 1e9) as u64,
                })
            }
            _ => Err(format!("'{text}' is none of {FORMS}")),
        }
    }
}

fn read_exponent(text: &str) -> Result<f64, String> {
    read(text, "exponent", 1e-6, 10.0)
}

fn read(text: &str, what: &str, least: f64, most: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ if least == f64::MIN_POSITIVE => {
            Err(format!("'{text}' is no {what} above 0 and up to {most}"))
        }
        _ => Err(format!("'{text}' is no {what} from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::Distribution;

    #[test]
    fn every_form_parses() {
        assert_eq!("uniform".parse(), Ok(Distribution::Uniform));
        assert_eq!("zipf".parse(), Ok(Distribution::Zipf { exponent: 0.99 }));
        assert_eq!("zipf:1.2".parse(), Ok(Distribution::Zipf { exponent: 1.2 }));
        assert_eq!("latest".parse(), Ok(Distribution::Latest { exponent: 0.99 }));
        assert_eq!("latest:0.5".parse(), Ok(Distribution::Latest { exponent: 0.5 }));
        assert_eq!(
            "hotset:0.2:0.8".parse(),
            Ok(Distribution::HotSet { share: 0.2, probability: 0.8 })
        );
        assert_eq!(
            "churn:1.1:0.5".parse(),
            Ok(Distribution::Churn { exponent: 1.1, period_ns: 500_000_000 })
        );
    }

    #[test]
    fn errors_name_the_fault() {
        for (text, said) in [
            ("random", "none of uniform"),
            ("zipf:-1", "'-1' is no exponent"),
            ("zipf:1:2", "none of uniform"),
            ("hotset:0:0.5", "above 0 and up to 1"),
            ("hotset:0.1:1.5", "'1.5' is no probability from 0 to 1"),
            ("churn:1", "none of uniform"),
            ("churn:1:0", "'0' is no number of seconds"),
        ] {
            let problem = text.parse::<Distribution>().expect_err(text);
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }
}
