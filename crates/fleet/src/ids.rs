//! Identifiers of a fleet: incarnations of proxies, shards, sets of shards, and the view that maps
//! shards to owners.

use std::fmt;

/// Number of shards into which the locks of a fleet are divided. Part of the row format: all
/// members must agree on it.
pub const SHARDS: usize = 64;

/// The number of a shard, below [`SHARDS`].
pub type Shard = u8;

/// One start of one proxy: a UUID that is never reused.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub [u8; 16]);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A set of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shards(u64);

impl Shards {
    /// All shards.
    pub const ALL: Self = Self(u64::MAX);

    /// The set with shard `s` for each bit `s` that is set, as in the column `handed_over`.
    pub fn from_bits(bits: i64) -> Self {
        Self(bits.cast_unsigned())
    }

    /// The bits of [`Shards::from_bits`].
    pub fn bits(self) -> i64 {
        self.0.cast_signed()
    }

    /// True if the shard is in the set.
    pub fn contains(self, shard: Shard) -> bool {
        self.0 >> (shard as usize % SHARDS) & 1 == 1
    }

    /// Adds a shard to the set, or removes it.
    pub fn set(&mut self, shard: Shard, within: bool) {
        let bit = 1 << (shard as usize % SHARDS);
        self.0 = if within { self.0 | bit } else { self.0 & !bit };
    }

    /// Number of shards in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Shards in the set, in rising order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Shard> {
        (0..SHARDS as Shard).filter(move |shard| self.contains(*shard))
    }
}

impl FromIterator<Shard> for Shards {
    fn from_iter<I: IntoIterator<Item = Shard>>(shards: I) -> Self {
        let mut set = Self::default();
        shards.into_iter().for_each(|shard| set.set(shard, true));
        set
    }
}

/// Owner of each shard; a shard may have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View([Option<Incarnation>; SHARDS]);

impl Default for View {
    fn default() -> Self {
        Self([None; SHARDS])
    }
}

impl View {
    /// The owner of a shard.
    pub fn owner(&self, shard: Shard) -> Option<Incarnation> {
        self.0[shard as usize % SHARDS]
    }

    /// Gives a shard to an incarnation, or takes it from its owner.
    pub fn give(&mut self, shard: Shard, to: Option<Incarnation>) {
        self.0[shard as usize % SHARDS] = to;
    }

    /// The shards of one incarnation.
    pub fn shards_of(&self, owner: Incarnation) -> Shards {
        self.owned().filter(|(_, by)| *by == owner).map(|(shard, _)| shard).collect()
    }

    /// Owned shards in rising order, with their owners: the entries of the column `view`.
    pub fn owned(&self) -> impl Iterator<Item = (Shard, Incarnation)> {
        self.0.iter().zip(0..).filter_map(|(owner, shard)| owner.map(|owner| (shard, owner)))
    }
}
