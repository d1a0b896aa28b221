//! The operations of a load, and the named workloads of the Yahoo! Cloud Serving Benchmark.
//!
//! B. F. Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010. The shares are
//! those of its `workloads` directory; the statements and rows per scan are those of its CQL
//! binding.

use std::str::FromStr;

use clap::ValueEnum;

use crate::{
    load::distribution::{Distribution, YCSB_EXPONENT},
    random::Random,
};

/// One operation. Reads and updates come first: each is one statement on one existing key.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Operation {
    /// SELECT by key.
    #[default]
    Read,
    /// INSERT of an existing key.
    Update,
    /// INSERT of a new key beyond the existing ones.
    Insert,
    /// SELECT by key, then an update of it.
    ReadModifyWrite,
    /// SELECT of rows from a key's token on, with a LIMIT.
    Scan,
    /// SELECT of several keys with IN.
    Multiget,
    /// Moves an amount (with `--transfers`).
    Transfer,
    /// Takes a lock (with `--locks`).
    Acquire,
    /// Releases the lock.
    Release,
}

impl Operation {
    /// The operations of a mix, in order.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Update, Self::Insert, Self::ReadModifyWrite, Self::Scan, Self::Multiget];

    /// Number of operations: those of a mix, transfers, and the two on locks.
    pub(super) const COUNT: usize = Self::ALL.len() + 3;

    /// True for the two operations on locks.
    #[inline]
    pub(super) fn is_of_locks(self) -> bool {
        self >= Self::Acquire
    }

    /// Name of the operation in `--mix`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::ReadModifyWrite => "rmw",
            Self::Scan => "scan",
            Self::Multiget => "multiget",
            Self::Transfer => "transfer",
            Self::Acquire => "acquire",
            Self::Release => "release",
        }
    }
}

/// Shares of the operations; their sum is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    shares: [f64; Operation::ALL.len()],
}

impl Mix {
    /// A mix with this share of reads, the rest updates.
    pub fn reads(share: f64) -> Self {
        Self::of(&[(Operation::Read, share), (Operation::Update, 1.0 - share)])
    }

    /// A mix with this share of multigets, the rest updates.
    pub fn multigets(share: f64) -> Self {
        Self::of(&[(Operation::Multiget, share), (Operation::Update, 1.0 - share)])
    }

    fn of(shares: &[(Operation, f64)]) -> Self {
        let mut mix = Self { shares: [0.0; Operation::ALL.len()] };
        shares.iter().for_each(|&(operation, share)| mix.shares[operation as usize] = share);
        mix
    }

    /// Returns the share of an operation.
    pub fn share(&self, operation: Operation) -> f64 {
        self.shares[operation as usize]
    }

    /// The operations with a share above 0.
    pub fn operations(&self) -> impl Iterator<Item = Operation> {
        Operation::ALL.into_iter().filter(|&operation| self.share(operation) > 0.0)
    }

    /// True if the mix has only reads and updates.
    pub fn is_plain(&self) -> bool {
        self.operations().all(|operation| operation <= Operation::Update)
    }

    /// Draws the next operation.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> Operation {
        let mut left = random.unit();
        let mut last = Operation::Read;
        for operation in self.operations() {
            last = operation;
            left -= self.share(operation);
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares: Vec<(Operation, f64)> = Vec::new();
        for part in text.split(',') {
            let (name, share) =
                part.split_once('=').ok_or_else(|| format!("'{part}' is not OPERATION=SHARE"))?;
            let operation = Operation::ALL
                .into_iter()
                .find(|operation| operation.name() == name)
                .ok_or_else(|| {
                format!("'{name}' is none of {}", Operation::ALL.map(Operation::name).join(", "))
            })?;
            let share = share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
            let share = share.ok_or_else(|| format!("the share of '{part}' is not from 0 to 1"))?;
            if shares.iter().any(|&(known, _)| known == operation) {
                return Err(format!("'{name}' comes twice"));
            }
            shares.push((operation, share));
        }
        let sum: f64 = shares.iter().map(|&(_, share)| share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            return Err(format!("the shares sum up to {sum}, not to 1"));
        }
        Ok(Self::of(&shares))
    }
}

/// YCSB's core workloads, by their letters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Workload {
    /// Half reads, half updates, zipfian.
    YcsbA,
    /// 95 % reads, 5 % updates, zipfian.
    YcsbB,
    /// Reads only, zipfian.
    YcsbC,
    /// 95 % reads, 5 % inserts; reads prefer the latest inserts.
    YcsbD,
    /// 95 % scans of 1 to 100 rows, 5 % inserts, zipfian.
    YcsbE,
    /// Half reads, half read-modify-writes, zipfian.
    YcsbF,
}

impl Workload {
    /// Operations of the workload.
    pub fn mix(self) -> Mix {
        use Operation::{Insert, Read, ReadModifyWrite, Scan};
        match self {
            Self::YcsbA => Mix::reads(0.5),
            Self::YcsbB => Mix::reads(0.95),
            Self::YcsbC => Mix::reads(1.0),
            Self::YcsbD => Mix::of(&[(Read, 0.95), (Insert, 0.05)]),
            Self::YcsbE => Mix::of(&[(Scan, 0.95), (Insert, 0.05)]),
            Self::YcsbF => Mix::of(&[(Read, 0.5), (ReadModifyWrite, 0.5)]),
        }
    }

    /// Distribution of the workload's keys.
    pub fn distribution(self) -> Distribution {
        match self {
            Self::YcsbD => Distribution::Latest { exponent: YCSB_EXPONENT },
            _ => Distribution::Zipf { exponent: YCSB_EXPONENT },
        }
    }
}

/// Rows per scan, drawn uniformly from a range as YCSB does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScanRows {
    /// Fewest rows.
    pub least: u32,
    /// Most rows.
    pub most: u32,
}

impl ScanRows {
    /// 1 to 100, YCSB's default.
    pub const YCSB: Self = Self { least: 1, most: 100 };

    /// Draws the next LIMIT.
    pub fn draw(self, random: &mut Random) -> u32 {
        self.least + random.below(u64::from(self.most - self.least) + 1) as u32
    }
}

impl FromStr for ScanRows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| text.parse::<u32>().ok().filter(|rows| (1..=10_000).contains(rows));
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        match (number(least), number(most)) {
            (Some(least), Some(most)) if least <= most => Ok(Self { least, most }),
            _ => {
                Err(format!("'{text}' is neither ROWS nor LEAST-MOST with numbers from 1 to 10000"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::{Mix, Operation, ScanRows, Workload};
    use crate::random::Random;

    #[test]
    fn operations_come_as_often_as_their_shares_say() {
        let mix: Mix = "read=0.1,update=0.2,insert=0.05,rmw=0.25,scan=0.3,multiget=0.1"
            .parse()
            .expect("valid");
        let mut random = Random::new(1);
        let mut found = [0u32; 6];
        (0..100_000).for_each(|_| found[mix.draw(&mut random) as usize] += 1);
        for operation in Operation::ALL {
            let share = f64::from(found[operation as usize]) / 100_000.0;
            assert!((share - mix.share(operation)).abs() < 0.01, "{operation:?}: {share}");
        }
        assert!(!mix.is_plain() && Mix::reads(0.3).is_plain());
    }

    #[test]
    fn an_operation_without_a_share_never_comes() {
        let mix: Mix = "scan=0,rmw=1".parse().expect("valid");
        let mut random = Random::new(2);
        assert!((0..10_000).all(|_| mix.draw(&mut random) == Operation::ReadModifyWrite));
        assert_eq!(mix.operations().collect::<Vec<_>>(), [Operation::ReadModifyWrite]);
    }

    #[test]
    fn errors_of_a_mix_name_the_fault() {
        for (text, said) in [
            ("read=0.5", "sum up to 0.5"),
            ("read=0.5,read=0.5", "'read' comes twice"),
            ("select=1", "'select' is none of read, update"),
            ("read", "'read' is not OPERATION=SHARE"),
            ("read=2", "the share of 'read=2' is not from 0 to 1"),
        ] {
            let problem = text.parse::<Mix>().expect_err(text);
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }

    #[test]
    fn shares_of_every_named_workload_sum_up_to_one() {
        for workload in Workload::value_variants() {
            let mix = workload.mix();
            let sum: f64 = Operation::ALL.iter().map(|&operation| mix.share(operation)).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{workload:?}");
        }
    }

    #[test]
    fn rows_per_scan() {
        let rows: ScanRows = "3-5".parse().expect("valid");
        let mut random = Random::new(3);
        let mut drawn: Vec<u32> = (0..1000).map(|_| rows.draw(&mut random)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [3, 4, 5]);
        assert_eq!("7".parse(), Ok(ScanRows { least: 7, most: 7 }));
        assert!(["0", "5-3", "x", "1-20000"].iter().all(|text| text.parse::<ScanRows>().is_err()));
    }
}
