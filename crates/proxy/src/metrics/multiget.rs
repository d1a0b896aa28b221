//! A core's counters of reads of several partitions.

use shunt_admin::{Counter, Family, Gauge};

use crate::multiget::reasons::{Lost, Whole};

/// Reads of several partitions, counted while the option is on.
#[derive(Debug, Default)]
pub struct MultigetMetrics {
    /// Reads that were split.
    pub split: Counter,
    /// Parts that were sent; they count as requests too.
    pub parts: Counter,
    /// Reads that went whole.
    pub whole: Family<Whole, { Whole::COUNT }>,
    /// Reads that were split and sent whole after all.
    pub lost: Family<Lost, { Lost::COUNT }>,
    /// Split reads with missing parts now.
    pub open: Gauge,
    /// Parts in flight, also of requests that are answered.
    pub parts_open: Gauge,
    /// Bytes kept for the open reads.
    pub bytes: Gauge,
}
