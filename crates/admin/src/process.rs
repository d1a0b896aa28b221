//! Resource use of this process, from /proc; zeros where /proc cannot be read.

use std::fs;

/// Use of resources by this process.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu_seconds: f64,
    /// Resident memory.
    pub(crate) resident_bytes: f64,
    /// Open file descriptors.
    pub(crate) open_fds: f64,
    /// Limit of open file descriptors.
    pub(crate) max_fds: f64,
}

/// Reads the current use.
pub(crate) fn usage() -> Usage {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Usage {
        cpu_seconds: cpu_seconds(&text("/proc/self/stat")).unwrap_or_default(),
        resident_bytes: resident_bytes(&text("/proc/self/status")).unwrap_or_default(),
        open_fds: fs::read_dir("/proc/self/fd").map_or(0.0, |entries| entries.count() as f64),
        max_fds: max_fds(&text("/proc/self/limits")).unwrap_or_default(),
    }
}

/// CPU time from fields 14 and 15 of /proc/self/stat, in ticks. Linux has 100 ticks per second on
/// every system that we build for.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / 100.0)
}

fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn max_fds(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernel_formats() {
        let stat = "1 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_seconds(stat), Some(4.0));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  2 kB\n"), Some(2048.0));
        assert_eq!(max_fds("Limit\nMax open files            1024   4096   files\n"), Some(1024.0));
        assert_eq!((cpu_seconds(""), resident_bytes("x"), max_fds("")), (None, None, None));
    }

    #[test]
    fn this_process_uses_something() {
        let usage = usage();
        assert!(usage.resident_bytes > 0.0 && usage.open_fds > 0.0);
    }
}
