//! Exemplars: for each bucket of `shunt_query_duration_seconds`, the trace of the last query whose
//! span was handed to the exporter.

use std::sync::{Mutex, PoisonError};

use shunt_admin::Exemplar;
use shunt_otlp::TraceId;

/// Exponents of the buckets' bounds. The last one is for times beyond every bound.
const EXPONENT_MIN: u32 = 14;
const EXPONENT_MAX: u32 = 35;
const PLACES: usize = (EXPONENT_MAX - EXPONENT_MIN + 1) as usize;

/// The exemplars of a proxy. The exporter writes them and the pages read them, both on the control
/// thread.
#[derive(Debug, Default)]
pub struct Exemplars(Mutex<[Option<Exemplar>; PLACES]>);

impl Exemplars {
    /// Notes the trace of a query with this duration and this end (since 1970).
    pub(super) fn note(&self, trace_id: TraceId, total_ns: u64, ended_unix_ns: u64) {
        let exemplar =
            Exemplar { trace_id, value_ns: total_ns, at_unix_ms: ended_unix_ns / 1_000_000 };
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places[place_of(total_ns)] = Some(exemplar);
    }

    /// The exemplars, the shortest query first.
    pub(crate) fn all(&self) -> Vec<Exemplar> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.iter().flatten().cloned().collect()
    }

    /// Forgets all exemplars, because their traces are no longer exported.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }
}

/// The bucket of a time: the first whose bound, a power of two, reaches it.
fn place_of(total_ns: u64) -> usize {
    let exponent = u64::BITS - total_ns.saturating_sub(1).leading_zeros();
    (exponent.clamp(EXPONENT_MIN, EXPONENT_MAX) - EXPONENT_MIN) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_has_the_last_query_in_it() {
        let exemplars = Exemplars::default();
        for (number, total_ns) in [0, 1 << 14, (1 << 14) + 1, 1 << 15, 1 << 34, u64::MAX, u64::MAX]
            .into_iter()
            .enumerate()
        {
            exemplars.note([number as u8; 16], total_ns, 5_000_000);
        }
        let kept: Vec<u8> = exemplars.all().iter().map(|found| found.trace_id[0]).collect();
        assert_eq!(kept, [1, 3, 4, 6]);
        exemplars.clear();
        assert!(exemplars.all().is_empty());
    }

    #[test]
    fn places_follow_the_bounds_of_the_buckets() {
        for exponent in EXPONENT_MIN..EXPONENT_MAX {
            let place = (exponent - EXPONENT_MIN) as usize;
            assert_eq!(
                (place_of(1 << exponent), place_of((1 << exponent) + 1)),
                (place, place + 1)
            );
        }
        assert_eq!((place_of(0), place_of(u64::MAX)), (0, PLACES - 1));
    }
}
