//! The last minutes of a part: its rate and latency, one point every two seconds.
//!
//! The thread that serves the pages reads the counters, whether anybody asks or not, so that the
//! page shows the minutes before somebody has opened it. The data path only counts, as before.
//!
//! A rate must never be negative, and must never be that of another span of time. Times are those
//! of the monotonic clock, which no step of the system's clock moves. A counter that has gone back,
//! and a reading that failed, leave a point without values.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::histogram::Snapshot;

/// Points kept: ten minutes.
const POINTS_MAX: usize = 300;
/// Time between two points.
const STEP: Duration = Duration::from_secs(2);
/// Readings come once a second, sometimes a little early: every second one makes a point.
const STEP_MIN: Duration = Duration::from_millis(1500);

/// Counts of a part since its start, as far as its clients see them.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Requests answered.
    pub answered: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Times from requests to answers, in nanoseconds.
    pub latency: Snapshot,
}

/// The points of the last minutes, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Points>);

#[derive(Debug, Default)]
struct Points {
    last: Option<(Instant, Reading)>,
    points: VecDeque<Point>,
}

/// The time up to a moment; without values if they cannot be told.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    values: Option<Values>,
}

#[derive(Clone, Copy, Debug)]
struct Values {
    answered_per_second: f32,
    failed_per_second: f32,
    p50_us: Option<f32>,
    p99_us: Option<f32>,
}

impl History {
    /// Notes a reading. Readings that follow another too soon make no point.
    pub(crate) fn note(&self, reading: Reading, now: Instant) {
        let mut history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((before, former)) = &history.last else {
            history.last = Some((now, reading));
            return;
        };
        let passed = now.saturating_duration_since(*before);
        if passed < STEP_MIN {
            return;
        }
        let values = values(former, &reading, passed);
        if history.points.len() == POINTS_MAX {
            history.points.pop_front();
        }
        history.points.push_back(Point { at: now, values });
        history.last = Some((now, reading));
    }

    /// The points by column; `age_ms` says how long ago a point's time ended.
    pub(crate) fn show(&self, now: Instant) -> Json {
        let history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |point: &Point| now.saturating_duration_since(point.at).as_millis() as u64;
        let column = |value: fn(Values) -> Option<f32>| -> Vec<Json> {
            let points = history.points.iter();
            points.map(|point| point.values.and_then(value).map(rounded).into()).collect()
        };
        json!({
            "step_seconds": STEP.as_secs(),
            "points_max": POINTS_MAX,
            "age_ms": history.points.iter().map(age).collect::<Vec<_>>(),
            "answered_per_second": column(|values| Some(values.answered_per_second)),
            "failed_per_second": column(|values| Some(values.failed_per_second)),
            "p50_us": column(|values| values.p50_us),
            "p99_us": column(|values| values.p99_us),
        })
    }
}

/// The values of the time between two readings; `None` if a counter has gone back.
fn values(former: &Reading, reading: &Reading, passed: Duration) -> Option<Values> {
    let answered = reading.answered.checked_sub(former.answered)?;
    let failed = reading.failed.checked_sub(former.failed)?;
    let latency = reading.latency.checked_since(&former.latency)?;
    let per_second = |count: u64| (count as f64 / passed.as_secs_f64()) as f32;
    let microseconds = |share| latency.quantile(share).map(|ns| (ns as f64 / 1000.0) as f32);
    Some(Values {
        answered_per_second: per_second(answered),
        failed_per_second: per_second(failed),
        p50_us: microseconds(0.5),
        p99_us: microseconds(0.99),
    })
}

/// One decimal, so that a page of many points stays small.
fn rounded(value: f32) -> f64 {
    (f64::from(value) * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    fn reading(answered: u64, failed: u64, latencies_ns: &[u64]) -> Reading {
        let latency = Histogram::default();
        latencies_ns.iter().for_each(|ns| latency.record(*ns));
        Reading { answered, failed, latency: latency.snapshot() }
    }

    fn column(history: &History, now: Instant, name: &str) -> Json {
        history.show(now)[name].clone()
    }

    #[test]
    fn a_point_has_the_rate_and_latency_of_its_own_time() {
        let (history, start) = (History::default(), Instant::now());
        history.note(reading(1000, 10, &[1 << 30]), start);
        assert_eq!(column(&history, start, "age_ms"), json!([]));
        let second = start + STEP;
        history.note(reading(1100, 14, &[1 << 30, 1 << 20, 1 << 20]), second);
        let now = second + Duration::from_millis(300);
        assert_eq!(column(&history, now, "age_ms"), json!([300]));
        assert_eq!(column(&history, now, "answered_per_second"), json!([50.0]));
        assert_eq!(column(&history, now, "failed_per_second"), json!([2.0]));
        assert_eq!(column(&history, now, "p99_us"), json!([1048.6]));
    }

    #[test]
    fn a_time_without_answers_has_a_rate_and_no_latency() {
        let (history, start) = (History::default(), Instant::now());
        history.note(reading(5, 0, &[1000]), start);
        history.note(reading(5, 0, &[1000]), start + STEP);
        assert_eq!(column(&history, start + STEP, "answered_per_second"), json!([0.0]));
        assert_eq!(column(&history, start + STEP, "p50_us"), json!([null]));
    }

    /// A core that is started again counts from 0.
    #[test]
    fn a_counter_that_goes_back_leaves_a_gap_and_no_negative_rate() {
        for later in [reading(10, 9, &[1; 3]), reading(90, 0, &[1; 3]), reading(90, 9, &[1; 2])] {
            let (history, start) = (History::default(), Instant::now());
            history.note(reading(50, 5, &[1; 3]), start);
            history.note(later.clone(), start + STEP);
            let more = Reading { answered: later.answered + 20, ..later };
            history.note(more, start + STEP * 2);
            let rates = column(&history, start + STEP * 2, "answered_per_second");
            assert_eq!(rates, json!([null, 10.0]));
        }
    }

    #[test]
    fn a_process_that_stood_still_shows_the_rate_of_the_whole_time() {
        let (history, start) = (History::default(), Instant::now());
        history.note(reading(0, 0, &[]), start);
        history.note(reading(600, 0, &[]), start + Duration::from_secs(60));
        history.note(reading(700, 0, &[]), start + Duration::from_millis(60_100));
        let now = start + Duration::from_secs(61);
        assert_eq!(column(&history, now, "answered_per_second"), json!([10.0]));
        history.note(reading(800, 0, &[]), start);
        assert_eq!(column(&history, now, "answered_per_second"), json!([10.0]), "no time passed");
    }

    #[test]
    fn the_oldest_points_are_given_up() {
        let (history, start) = (History::default(), Instant::now());
        for number in 0..=POINTS_MAX as u64 + 50 {
            history.note(reading(number * number, 0, &[]), start + STEP * number as u32);
        }
        let now = start + STEP * (POINTS_MAX as u32 + 50);
        let rates = column(&history, now, "answered_per_second");
        let rates = rates.as_array().expect("a list");
        assert_eq!(rates.len(), POINTS_MAX);
        assert!(rates.iter().map(Json::as_f64).is_sorted());
        let bytes = history.show(now).to_string().len();
        assert!(bytes < 32 << 10, "{bytes}");
    }
}
