//! Roughness of a simulated world: the probabilities of every fault and the ranges of every delay.

use super::random::Random;
use std::ops::Range;

/// Nanoseconds in a microsecond.
pub const MICROSECOND: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Faults and delays. Probabilities are between 0 and 1, times in nanoseconds of virtual time. Each
/// use draws anew from a range, except those marked "per connection".
#[derive(Clone, Debug)]
pub struct Options {
    /// One way, from the write on one host until the bytes can be read on the other.
    pub latency_ns: Range<u64>,
    /// From the first event that a host could react to until its loop turns.
    pub turn_delay_ns: Range<u64>,
    /// Delay of a timer beyond its time.
    pub timer_delay_ns: Range<u64>,
    /// Per connection and direction: bytes sent and not yet read by the other side at which writes
    /// stop.
    pub window_bytes: Range<u64>,
    /// A read gets only part of the arrived bytes.
    pub partial_read: f64,
    /// A write takes only part of the bytes it could.
    pub short_write: f64,
    /// A ready end is left for a later turn, so that connections overtake each other.
    pub deferral: f64,
    /// The bytes of a write are held back for `stall_ns` (a lost and repeated packet); only this
    /// connection waits.
    pub stall: f64,
    /// Length of a stall.
    pub stall_ns: Range<u64>,
    /// A write makes the network reset the connection: bytes in flight in both directions are lost.
    pub reset: f64,
    /// A connect is refused.
    pub connect_refused: f64,
    /// A connect is never answered.
    pub connect_lost: f64,
    /// A write turns the connection into a half-open one: nothing passes any more and no end hears
    /// of it.
    pub half_open: f64,
    /// A connection cannot be frozen ([`NotFrozen::Moved`](crate::moving::NotFrozen::Moved)).
    pub freeze_failed: f64,
    /// Bytes in flight from a connection when it was frozen are lost, and sent again when it is
    /// restored.
    pub move_loss: f64,
    /// A frozen connection cannot be restored (`ConnectFailed(OutOfMemory)`); the next attempt may
    /// succeed.
    pub restore_failed: f64,
    /// Silence of the other side (half-open, partition) after which an end gives its connection up
    /// with `Error(TimedOut)`, as keepalive probes do.
    pub give_up_ns: u64,
    /// Connections that wait for a frozen host to accept them; more are not answered.
    pub accept_backlog: usize,
    /// Every connection is encrypted, by a [`TornSession`](super::TornSession) at each end.
    pub sealed: bool,
}

impl Options {
    /// No faults and short, even delays, as in a healthy machine room.
    pub fn calm() -> Options {
        Options {
            latency_ns: 20 * MICROSECOND..60 * MICROSECOND,
            turn_delay_ns: MICROSECOND..5 * MICROSECOND,
            timer_delay_ns: 0..50 * MICROSECOND,
            window_bytes: 262_144..262_145,
            partial_read: 0.0,
            short_write: 0.0,
            deferral: 0.0,
            stall: 0.0,
            stall_ns: 10 * MILLISECOND..200 * MILLISECOND,
            reset: 0.0,
            connect_refused: 0.0,
            connect_lost: 0.0,
            half_open: 0.0,
            freeze_failed: 0.0,
            move_loss: 0.0,
            restore_failed: 0.0,
            give_up_ns: 60 * SECOND,
            accept_backlog: 128,
            sealed: false,
        }
    }

    /// Bytes arrive late and in crumbs, but every connection lives: for tests in which all bytes
    /// must arrive.
    pub fn crumbs() -> Options {
        Options {
            latency_ns: 10 * MICROSECOND..2 * MILLISECOND,
            turn_delay_ns: MICROSECOND..200 * MICROSECOND,
            timer_delay_ns: 0..2 * MILLISECOND,
            window_bytes: 16..8192,
            partial_read: 0.5,
            short_write: 0.4,
            deferral: 0.2,
            stall: 0.01,
            freeze_failed: 0.1,
            move_loss: 0.5,
            ..Options::calm()
        }
    }

    /// Every fault at once.
    pub fn rough() -> Options {
        Options {
            reset: 0.003,
            connect_refused: 0.05,
            connect_lost: 0.03,
            half_open: 0.001,
            restore_failed: 0.1,
            ..Options::crumbs()
        }
    }

    /// The same roughness, with every connection encrypted.
    pub fn sealed(self) -> Options {
        Options { sealed: true, ..self }
    }

    /// Another mixture for every seed: each fault is either off or has its own strength. Runs with
    /// few kinds of faults get deep where runs with all of them die early.
    pub fn mixed(seed: u64) -> Options {
        let mut random = Random::new(seed ^ 0x6d69_7865_6420_6f70);
        let mut strength = |most: f64| -> f64 {
            let part = random.below(1 << 20) as f64 / (1u64 << 20) as f64;
            if random.chance(0.5) { 0.0 } else { most * part * part }
        };
        let mut options = Options {
            partial_read: strength(0.9),
            short_write: strength(0.9),
            deferral: strength(0.5),
            stall: strength(0.05),
            reset: strength(0.02),
            connect_refused: strength(0.4),
            connect_lost: strength(0.2),
            half_open: strength(0.005),
            ..Options::calm()
        };
        if random.chance(0.5) {
            options.latency_ns =
                10 * MICROSECOND..random.range(&(20 * MICROSECOND..5 * MILLISECOND));
        }
        if random.chance(0.5) {
            options.turn_delay_ns = MICROSECOND..random.range(&(2 * MICROSECOND..MILLISECOND));
        }
        if random.chance(0.5) {
            options.window_bytes = 16..random.range(&(512..65_536));
        }
        let mut strength = |most: f64| if random.chance(0.5) { 0.0 } else { most };
        options.freeze_failed = strength(0.3);
        options.move_loss = strength(0.7);
        options.restore_failed = strength(0.2);
        options
    }
}

impl Default for Options {
    /// Same as [`Options::rough`].
    fn default() -> Options {
        Options::rough()
    }
}
