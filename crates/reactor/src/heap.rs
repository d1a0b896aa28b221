//! Free memory goes back to the operating system. An allocator keeps what lies between blocks in use, so a process that
//! once held a burst would look as if it held it for ever.

/// Gives back what can be given. Takes a millisecond for some ten megabytes: after a burst, not in its course.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn give_back() {
    // SAFETY: declared as in malloc(3); it takes a number, locks what it needs and may be called at any time.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> i32;
    }
    malloc_trim(0);
}

/// Other allocators give back by themselves, or there is no way to ask them.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("of Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("of Linux");
        line.trim().trim_end_matches(" kB").parse().expect("of Linux")
    }

    #[test]
    fn what_lies_between_blocks_in_use_is_given_back() {
        let mut blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 8192]).collect();
        let before = resident_kib();
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 100 == 0
        });
        super::give_back();
        let after = resident_kib();
        assert!(after + 100_000 < before, "{before} KiB before, {after} after, {} blocks", blocks.len());
    }
}
