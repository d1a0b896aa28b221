//! What a core counts of reads of several partitions.

use shunt_admin::{Counter, Family, Gauge};

use crate::multiget::reasons::{Lost, Whole};

/// Reads of several partitions. They are counted while the option is on.
#[derive(Debug, Default)]
pub struct MultigetMetrics {
    /// Those that were split.
    pub split: Counter,
    /// Parts that were sent; they are among the requests too.
    pub parts: Counter,
    /// Those that went whole.
    pub whole: Family<Whole, { Whole::COUNT }>,
    /// Those that were split and sent whole after all.
    pub lost: Family<Lost, { Lost::COUNT }>,
    /// Those of which parts are missing now.
    pub open: Gauge,
    /// Parts in flight, those included whose request was answered.
    pub parts_open: Gauge,
    /// Bytes kept for the open ones.
    pub bytes: Gauge,
}
