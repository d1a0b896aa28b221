//! Draws the keys of operations, and encodes keys and values as bytes.

use crate::{
    load::{distribution::Distribution, permutation::Permutation, zipf::Zipf},
    random::{Random, scramble},
};

/// Draws key numbers.
///
/// Only `latest` draws keys that were inserted meanwhile; the other distributions keep to the
/// initial keys.
#[derive(Clone, Debug)]
pub struct Keys {
    count: u64,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Uniform,
    Zipf { zipf: Zipf, order: Permutation },
    Latest(Zipf),
    HotSet { hot: u64, probability: f64, order: Permutation },
    Churn { zipf: Zipf, order: Permutation, period_ns: u64, turn: u64 },
}

/// The seeds of the orders are constants, so that two loads with one distribution have the same hot
/// keys.
const ORDER_SEED: u64 = 0x5348_554e_5400_0001;

impl Keys {
    /// Draws from keys `0..count` by `distribution`.
    pub fn new(count: u64, distribution: Distribution) -> Self {
        let count = count.max(1);
        let zipf = |exponent| Zipf::new(count, exponent);
        let order = || Permutation::new(count, ORDER_SEED);
        let source = match distribution {
            Distribution::Uniform => Source::Uniform,
            Distribution::Zipf { exponent } => {
                Source::Zipf { zipf: zipf(exponent), order: order() }
            }
            Distribution::Latest { exponent } => Source::Latest(zipf(exponent)),
            Distribution::HotSet { share, probability } => {
                let hot = ((share * count as f64).round() as u64).clamp(1, count);
                Source::HotSet { hot, probability, order: order() }
            }
            Distribution::Churn { exponent, period_ns } => Source::Churn {
                zipf: zipf(exponent),
                order: order(),
                period_ns: period_ns.max(1),
                turn: 0,
            },
        };
        Self { count, source }
    }

    /// Draws the next key number.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match &self.source {
            Source::Uniform => random.below(self.count),
            Source::Zipf { zipf, order } | Source::Churn { zipf, order, .. } => {
                order.at(zipf.draw(random) - 1)
            }
            Source::Latest(zipf) => self.count - zipf.draw(random),
            Source::HotSet { hot, probability, order } => {
                let rank = if *hot == self.count || random.unit() < *probability {
                    random.below(*hot)
                } else {
                    hot + random.below(self.count - hot)
                };
                order.at(rank)
            }
        }
    }

    /// Extends the keys: all below `count` are present now.
    pub fn grown_to(&mut self, count: u64) {
        if let Source::Latest(zipf) = &mut self.source
            && count > self.count
        {
            self.count = count;
            zipf.set_count(count);
        }
    }

    /// Sets the time since the load began.
    #[inline]
    pub fn passed(&mut self, since_start_ns: u64) {
        if let Source::Churn { order, period_ns, turn, .. } = &mut self.source {
            let now = since_start_ns / *period_ns;
            if now != *turn {
                *turn = now;
                *order = Permutation::new(self.count, ORDER_SEED.wrapping_add(now));
            }
        }
    }
}

/// Writes the bytes of key number `key` into `slot` (8 bytes or more). Bytes from 16 on keep their
/// content.
pub fn write_key(key: u64, slot: &mut [u8]) {
    slot[..8].copy_from_slice(&key.to_be_bytes());
    let rest = &mut slot[8..];
    let count = rest.len().min(8);
    rest[..count].copy_from_slice(&scramble(key).to_be_bytes()[..count]);
}

/// Returns the number of a key from its bytes; `None` if [`write_key`] does not write such bytes.
pub fn read_key(bytes: &[u8]) -> Option<u64> {
    let key = u64::from_be_bytes(*bytes.first_chunk()?);
    let rest = &bytes[8..];
    let count = rest.len().min(8);
    (rest[..count] == scramble(key).to_be_bytes()[..count]).then_some(key)
}

/// Writes a number into all of `slot`, in decimal digits.
#[inline]
pub fn write_digits(mut number: u64, slot: &mut [u8]) {
    for digit in slot.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Writes the mark of the value of `key` in value column `column` into the first bytes of `slot`
/// (up to 8).
#[inline]
pub fn write_value(key: u64, column: u8, slot: &mut [u8]) {
    let count = slot.len().min(8);
    slot[..count].copy_from_slice(&identity(key, column)[..count]);
}

/// True if `value` begins with the mark that [`write_value`] writes for this key and column.
pub fn value_belongs(key: u64, column: u8, value: &[u8]) -> bool {
    let count = value.len().min(8);
    value[..count] == identity(key, column)[..count]
}

fn identity(key: u64, column: u8) -> [u8; 8] {
    scramble(!(key ^ u64::from(column) << 56)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::{Keys, read_key, value_belongs, write_digits, write_key, write_value};
    use crate::{load::distribution::Distribution, random::Random};

    const DRAWS: u32 = 200_000;

    fn frequencies(keys: &Keys, count: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut found = vec![0.0; count];
        (0..DRAWS).for_each(|_| found[keys.draw(&mut random) as usize] += 1.0 / f64::from(DRAWS));
        found
    }

    /// Zipf's probability of rank 1 among `count`.
    fn first_of(count: u64, exponent: f64) -> f64 {
        1.0 / (1..=count).map(|rank| (rank as f64).powf(-exponent)).sum::<f64>()
    }

    fn hottest(found: &[f64]) -> usize {
        (0..found.len()).max_by(|&one, &other| found[one].total_cmp(&found[other])).expect("keys")
    }

    #[test]
    fn uniform_is_even_and_stays_inside() {
        let found = frequencies(&Keys::new(50, Distribution::Uniform), 50, 1);
        assert!(found.iter().all(|share| (0.017..0.023).contains(share)), "{found:?}");
    }

    #[test]
    fn zipf_is_spread_over_the_keys() {
        let mut found =
            frequencies(&Keys::new(1000, Distribution::Zipf { exponent: 0.99 }), 1000, 2);
        let ten_hottest: Vec<usize> = {
            let mut order: Vec<usize> = (0..1000).collect();
            order.sort_by(|&one, &other| found[other].total_cmp(&found[one]));
            order[..10].to_vec()
        };
        let (least, most) = (ten_hottest.iter().min(), ten_hottest.iter().max());
        assert!(
            least < Some(&300) && most > Some(&700),
            "the hottest keys are near each other: {ten_hottest:?}"
        );
        found.sort_by(f64::total_cmp);
        let expected = first_of(1000, 0.99);
        assert!((found[999] - expected).abs() < 0.005, "{} {expected}", found[999]);
        assert!((found[998] - expected / 2f64.powf(0.99)).abs() < 0.005, "{}", found[998]);
    }

    #[test]
    fn latest_prefers_what_was_inserted_last_and_follows_it() {
        let mut keys = Keys::new(1000, Distribution::Latest { exponent: 0.99 });
        for newest in [999, 1499] {
            keys.grown_to(newest + 1);
            let found = frequencies(&keys, 1500, 3);
            let expected = first_of(newest + 1, 0.99);
            let newest = newest as usize;
            assert!((found[newest] - expected).abs() < 0.005, "{} {expected}", found[newest]);
            assert!(
                (found[newest - 1] - expected / 2f64.powf(0.99)).abs() < 0.005,
                "{}",
                found[newest - 1]
            );
            assert!(found[newest + 1..].iter().all(|&share| share == 0.0));
            assert!(found[..newest / 2].iter().sum::<f64>() > 0.05, "old keys are read too");
        }
    }

    #[test]
    fn a_hot_set_takes_its_share() {
        for (share, probability, hot) in
            [(0.1, 0.9, 100), (0.5, 0.2, 500), (0.0001, 1.0, 1), (1.0, 0.3, 1000)]
        {
            let mut found =
                frequencies(&Keys::new(1000, Distribution::HotSet { share, probability }), 1000, 4);
            let hot_each = if hot == 1000 { 1e-3 } else { probability / f64::from(hot) };
            found.sort_by(|one, other| (one - hot_each).abs().total_cmp(&(other - hot_each).abs()));
            let taken: f64 = found[..hot as usize].iter().sum();
            assert!(
                (taken - hot_each * f64::from(hot)).abs() < 0.02,
                "{share} {probability}: {taken}"
            );
        }
    }

    #[test]
    fn churn_moves_the_hot_key_every_period_only() {
        let mut keys = Keys::new(1000, Distribution::Churn { exponent: 0.99, period_ns: 500 });
        let mut hot = Vec::new();
        for now_ns in [0, 499, 500, 999, 1000, 5000] {
            keys.passed(now_ns);
            let found = frequencies(&keys, 1000, 5);
            let key = hottest(&found);
            assert!((found[key] - first_of(1000, 0.99)).abs() < 0.005, "{}", found[key]);
            hot.push(key);
        }
        assert!(hot[0] == hot[1] && hot[2] == hot[3], "{hot:?}");
        assert!(hot[0] != hot[2] && hot[2] != hot[4] && hot[4] != hot[5], "{hot:?}");
    }

    #[test]
    fn growth_is_for_latest_only() {
        for distribution in [Distribution::Uniform, Distribution::Zipf { exponent: 0.5 }] {
            let mut keys = Keys::new(10, distribution);
            keys.grown_to(1000);
            let mut random = Random::new(1);
            assert!((0..1000).all(|_| keys.draw(&mut random) < 10));
        }
    }

    #[test]
    fn a_value_belongs_to_its_key_and_column_only() {
        let mut value = [0u8; 14];
        write_value(9, 0, &mut value);
        assert!(
            value_belongs(9, 0, &value)
                && !value_belongs(8, 0, &value)
                && !value_belongs(9, 1, &value)
        );
    }

    #[test]
    fn a_key_is_read_back() {
        for length in [8, 12, 16, 30] {
            let mut bytes = vec![0x2E; length];
            write_key(0x1234_5678, &mut bytes);
            assert_eq!(read_key(&bytes), Some(0x1234_5678));
        }
        assert_eq!((read_key(&[1; 7]), read_key(&[1; 16])), (None, None));
    }

    #[test]
    fn digits_fill_their_place() {
        let mut slot = *b"xxxxx";
        write_digits(1203, &mut slot);
        assert_eq!(&slot, b"01203");
    }
}
