//! The CPUs of a thread. A child process inherits the mask of the thread that starts it, so pinning
//! a child needs no code in the child.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the CPUs that the calling thread may use, in order.
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Restricts the calling thread to these CPUs.
///
/// # Errors
/// A CPU does not exist, or this process may not use it.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs `action` (which starts a process) with the calling thread on `cpu`, then restores the mask.
///
/// # Errors
/// See [`pin`]; or the error of `action`.
pub fn with_pinned<T>(cpu: usize, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = allowed();
    pin(&[cpu])?;
    let outcome = action();
    pin(&before)?;
    outcome
}

/// Returns the CPU time of the calling thread, nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
