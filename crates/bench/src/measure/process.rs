//! CPU time, context switches and memory of a process, from `/proc`.
//!
//! `/proc/PID/task/*/schedstat` counts nanoseconds on a CPU. `/proc/PID/stat` counts only ticks (10
//! ms), but includes threads that have ended. The difference of two samples uses schedstat where
//! the kernel has it.

use std::{fs, io, time::Instant};

use serde::Serialize;

/// One reading of a process' counters.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSample {
    taken: Instant,
    cpu_ns: u64,
    user_ticks: u64,
    system_ticks: u64,
    voluntary_switches: u64,
    forced_switches: u64,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
}

/// The work of a process between two samples.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ProcessDelta {
    /// Process id.
    pub pid: u32,
    /// Time on a CPU, nanoseconds, all threads.
    pub cpu_ns: u64,
    /// Share of the CPU time that was spent in the kernel, 0 to 1 (from ticks, coarse).
    pub system_share: f64,
    /// CPU time over wall time.
    pub utilisation: f64,
    /// Times a thread went to sleep voluntarily.
    pub voluntary_switches: u64,
    /// Times the kernel preempted a thread.
    pub forced_switches: u64,
    /// Resident memory at the end, bytes.
    pub resident_bytes: u64,
}

impl ProcessSample {
    /// Reads the counters of `pid`.
    ///
    /// # Errors
    /// The process does not exist, or `/proc` is not readable.
    pub fn take(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (user_ticks, system_ticks) = stat_ticks(&stat).ok_or_else(|| unreadable("stat"))?;
        let mut sample = Self {
            taken: Instant::now(),
            cpu_ns: 0,
            user_ticks,
            system_ticks,
            voluntary_switches: 0,
            forced_switches: 0,
            resident_bytes: 0,
        };
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = task?.path();
            // A thread may end between the listing and the reading.
            let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
            sample.voluntary_switches += status_field(&status, "voluntary_ctxt_switches:");
            sample.forced_switches += status_field(&status, "nonvoluntary_ctxt_switches:");
            sample.resident_bytes = status_field(&status, "VmRSS:") * 1024;
            let schedstat = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            sample.cpu_ns +=
                schedstat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        }
        Ok(sample)
    }

    /// Computes the work since `earlier`, a sample of the same process `pid`.
    pub fn since(&self, earlier: &Self, pid: u32) -> ProcessDelta {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let user = self.user_ticks.saturating_sub(earlier.user_ticks);
        let system = self.system_ticks.saturating_sub(earlier.system_ticks);
        let ticks_ns = (user + system) * tick_ns;
        let precise_ns = self.cpu_ns.saturating_sub(earlier.cpu_ns);
        // Without schedstat, or if threads ended and took their time with them, only the ticks are
        // complete.
        let cpu_ns =
            if precise_ns.saturating_add(5 * tick_ns) < ticks_ns { ticks_ns } else { precise_ns };
        let wall_ns = self.taken.duration_since(earlier.taken).as_nanos().max(1) as f64;
        ProcessDelta {
            pid,
            cpu_ns,
            system_share: system as f64 / (user + system).max(1) as f64,
            utilisation: cpu_ns as f64 / wall_ns,
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            forced_switches: self.forced_switches.saturating_sub(earlier.forced_switches),
            resident_bytes: self.resident_bytes,
        }
    }
}

/// Returns the sum of user and system ticks of a `/proc/PID/stat` line: fields 14 and 15, counted
/// after the command in brackets.
fn stat_ticks(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let user = fields.nth(11)?.parse().ok()?;
    Some((user, fields.next()?.parse().ok()?))
}

fn status_field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

fn unreadable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/PID/{what} has an unexpected form"))
}

#[cfg(test)]
mod tests {
    use super::{ProcessSample, stat_ticks};

    #[test]
    fn ticks_behind_an_odd_command() {
        let line = "12 (a ) b) S 1 12 12 0 -1 4194560 1 2 3 4 77 33 0 0 20 0 1 0 5";
        assert_eq!(stat_ticks(line), Some((77, 33)));
    }

    #[test]
    fn own_work_is_seen() {
        let pid = std::process::id();
        let before = ProcessSample::take(pid).expect("own process");
        // Works until the kernel has counted a tick: on a busy machine, wall time does not ensure
        // one.
        let mut sum = 0u64;
        let delta = loop {
            for _ in 0..1_000_000 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
            }
            let delta = ProcessSample::take(pid).expect("own process").since(&before, pid);
            if delta.cpu_ns > 0 {
                break delta;
            }
        };
        assert!(delta.resident_bytes > 0, "{delta:?}");
    }

    #[test]
    fn missing_process_is_an_error() {
        assert!(ProcessSample::take(u32::MAX).is_err());
    }
}
