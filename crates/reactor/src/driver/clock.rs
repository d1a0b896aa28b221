//! The clocks, and sleeping by them.

use std::num::NonZeroU64;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since boot, including time in suspension: a lease holder must count that. Loops see
/// the same clock as [`Io::now_ns`](crate::Io::now_ns).
#[inline]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Microseconds of the wall clock since 1970.
pub(crate) fn wall_us() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

/// Sleeps about this long; a signal may cut it short.
pub(crate) fn sleep_ns(ns: u64) {
    let _ = rustix::thread::nanosleep(&timespec(ns));
}

/// Makes sleeps of this thread end on time, not up to 50 µs later: the waiting window is shorter
/// than that.
pub(crate) fn sleep_precisely() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
