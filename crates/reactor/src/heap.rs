//! Returns free memory to the operating system. An allocator keeps the gaps between blocks in use,
//! so a process that once held a burst would seem to hold it for ever.
//!
//! Trimming scans the memory of all threads, a millisecond for some ten megabytes. So one thread
//! does it for all loops of the process together, now and then: a loop that waited for it would
//! serve nobody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Least interval between the starts of two trims.
const INTERVAL_NS: u64 = 30_000_000_000;

/// The trimming state of the process.
static TRIMMING: Trimming = Trimming::new();

/// True if the memory freed at `freed_ns` is returned, or is about to be. If not, it is too early:
/// ask again in a later turn. Both times are of the monotonic clock.
#[cold]
pub(crate) fn give_back(freed_ns: u64, now_ns: u64) -> bool {
    // Other allocators return memory by themselves, or cannot be asked to.
    !cfg!(all(target_os = "linux", target_env = "gnu")) || TRIMMING.begin(freed_ns, now_ns, trim)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: declared as in malloc(3); it takes a number, locks what it needs and may be called at
    // any time.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> i32;
    }
    malloc_trim(0);
}

/// Times of trims, and the running one.
struct Trimming {
    /// Start of the last trim; 0 if there was none.
    begun_ns: AtomicU64,
    /// True until its thread has ended.
    running: AtomicBool,
}

impl Trimming {
    const fn new() -> Trimming {
        Trimming { begun_ns: AtomicU64::new(0), running: AtomicBool::new(false) }
    }

    /// Same as [`give_back`]; `trim` runs in a separate thread.
    fn begin(&'static self, freed_ns: u64, now_ns: u64, trim: fn()) -> bool {
        let begun_ns = self.begun_ns.load(Ordering::Acquire);
        if begun_ns > freed_ns {
            return true;
        }
        let too_early = begun_ns != 0 && now_ns < begun_ns.saturating_add(INTERVAL_NS);
        if too_early || self.running.swap(true, Ordering::AcqRel) {
            return false;
        }
        // Another loop may have been first, and its thread may have ended meanwhile.
        let first = self
            .begun_ns
            .compare_exchange(begun_ns, now_ns, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        let work = move || {
            trim();
            self.running.store(false, Ordering::Release);
        };
        let begun =
            first && std::thread::Builder::new().name("heap-trim".into()).spawn(work).is_ok();
        if !begun {
            self.running.store(false, Ordering::Release);
        }
        begun
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::{INTERVAL_NS, Trimming};

    const SECOND_NS: u64 = 1_000_000_000;
    const START_NS: u64 = 1_000 * SECOND_NS;

    fn ended(trimming: &Trimming) {
        while trimming.running.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn all_loops_together_trim_once_in_an_interval() {
        static TRIMMING: Trimming = Trimming::new();
        static TRIMMED: AtomicU64 = AtomicU64::new(0);
        let counted = || {
            TRIMMED.fetch_add(1, Ordering::Relaxed);
        };
        for second in (0..=120).step_by(5) {
            for core in 0..16 {
                let now_ns = START_NS + second * SECOND_NS + core;
                TRIMMING.begin(now_ns, now_ns, counted);
                ended(&TRIMMING);
            }
        }
        assert_eq!(TRIMMED.load(Ordering::Relaxed), 5, "at 0, 30, 60, 90 and 120 seconds");
    }

    #[test]
    fn an_early_trim_is_repeated_and_a_finished_one_is_not() {
        static TRIMMING: Trimming = Trimming::new();
        static TRIMMED: AtomicU64 = AtomicU64::new(0);
        let counted = || {
            TRIMMED.fetch_add(1, Ordering::Relaxed);
        };
        let begin = |freed_ns, now_ns| {
            let begun = TRIMMING.begin(freed_ns, now_ns, counted);
            ended(&TRIMMING);
            begun
        };
        assert!(begin(START_NS, START_NS));
        assert!(begin(START_NS - 1, START_NS + 1), "freed before the first began");
        assert!(!begin(START_NS + 5, START_NS + 5));
        assert_eq!(TRIMMED.load(Ordering::Relaxed), 1);
        assert!(begin(START_NS + 5, START_NS + INTERVAL_NS));
        assert_eq!(TRIMMED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn nobody_waits_for_it_and_there_is_one_at_a_time() {
        static TRIMMING: Trimming = Trimming::new();
        static MAY_END: AtomicBool = AtomicBool::new(false);
        let long = || {
            while !MAY_END.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        let later_ns = START_NS + 2 * INTERVAL_NS;
        assert!(TRIMMING.begin(START_NS, START_NS, long));
        assert!(!TRIMMING.begin(later_ns, later_ns, long), "the first has not ended");
        MAY_END.store(true, Ordering::Release);
        ended(&TRIMMING);
        assert!(TRIMMING.begin(later_ns, later_ns, long));
    }

    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("of Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("of Linux");
        line.trim().trim_end_matches(" kB").parse().expect("of Linux")
    }

    #[test]
    fn free_memory_between_used_blocks_is_given_back() {
        let mut blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 8192]).collect();
        let before = resident_kib();
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 100 == 0
        });
        super::trim();
        let after = resident_kib();
        assert!(
            after + 100_000 < before,
            "{before} KiB before, {after} after, {} blocks",
            blocks.len()
        );
    }
}
