//! The descendants of this process: a command, and all processes that it has begun.
//!
//! A shell that gets SIGTERM ends and leaves the command that it waits for. So a signal goes to
//! every descendant, and the command has ended once none is left. A descendant whose parent has
//! ended becomes a child of this process ([`adopt`]), and stays a descendant.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

/// Makes orphans among the descendants children of this process.
///
/// # Errors
/// The operating system's, which has this since Linux 3.4.
pub(crate) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The descendants that run, the children before their own children.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn all() -> io::Result<Vec<Pid>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // The process may have ended meanwhile.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        if let Some(parent) = parent_of(&status) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![getpid().as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    Ok(found.into_iter().skip(1).filter_map(Pid::from_raw).collect())
}

/// Parent of a process that runs, by its line in /proc/PID/stat (proc(5)). The name of its program,
/// in parentheses, may have any character.
fn parent_of(status: &str) -> Option<i32> {
    let (_, rest) = status.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.next()?.parse().ok() }
}

/// Sends a signal to those of the processes that have not got it yet.
pub(crate) fn tell(processes: &[Pid], signal: Signal, told: &mut HashSet<Pid>) {
    for process in processes {
        if told.insert(*process) {
            // The process may have ended already.
            let _ = kill_process(*process, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_names_the_parent() {
        assert_eq!(parent_of("12 (sh) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parent_of("12 (a) b) (c) R 8 12"), Some(8));
        assert_eq!(parent_of("12 (sh) Z 7 12 12"), None, "it has ended");
        assert_eq!(parent_of(""), None);
    }
}
