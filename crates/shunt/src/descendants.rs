//! The descendants of this process: a command, and all processes that it has begun.
//!
//! A shell that gets SIGTERM ends and leaves the command that it waits for. So a signal goes to
//! every descendant, and the command has ended once none is left. A descendant whose parent has
//! ended becomes a child of this process ([`adopt`]), and stays a descendant.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

/// Makes orphans among the descendants children of this process.
///
/// # Errors
/// The operating system's, which has this since Linux 3.4.
pub(crate) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The descendants that run, the children before their own children. None is believed only of two
/// walks: a process that begins another and ends may hide both from one. `others` are left out,
/// with what they have begun.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn all(others: &HashSet<Pid>) -> io::Result<Vec<Pid>> {
    let found = walk(others)?;
    if found.is_empty() { walk(others) } else { Ok(found) }
}

fn walk(others: &HashSet<Pid>) -> io::Result<Vec<Pid>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent, has_ended) in processes()? {
        if !has_ended && !Pid::from_raw(pid).is_some_and(|pid| others.contains(&pid)) {
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

/// Takes the ends of adopted orphans: their entries would stay for as long as this process runs.
/// `except`: the child that another part of the program waits for.
pub(crate) fn reap_orphans(except: u32) {
    let own = getpid().as_raw_nonzero().get();
    for (pid, parent, has_ended) in processes().into_iter().flatten() {
        if has_ended && parent == own && pid.unsigned_abs() != except {
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
        }
    }
}

/// Processes of the host: number, parent, and whether the process has ended.
fn processes() -> io::Result<impl Iterator<Item = (i32, i32, bool)>> {
    let processes = fs::read_dir("/proc")?.filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // The process may have ended meanwhile.
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (parent, has_ended) = parent_of(&status)?;
        Some((pid, parent, has_ended))
    });
    Ok(processes)
}

/// Parent of a process, by its line in /proc/PID/stat (proc(5)), and whether the process has ended.
/// The name of its program, in parentheses, may have any character.
fn parent_of(status: &str) -> Option<(i32, bool)> {
    let (_, rest) = status.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    Some((fields.next()?.parse().ok()?, has_ended))
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

    /// The shell in the middle ends at once, so its child is adopted.
    #[test]
    fn orphans_are_found_and_their_ends_are_taken() {
        adopt().unwrap();
        let script = "sh -c 'sleep 3600 > /dev/null 2>&1 & echo $!'";
        let shell = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
        let orphan: i32 = String::from_utf8(shell.stdout).unwrap().trim().parse().unwrap();
        let orphan = Pid::from_raw(orphan).unwrap();
        assert!(all(&HashSet::new()).unwrap().contains(&orphan));
        tell(&[orphan], Signal::KILL, &mut HashSet::new());
        let is_listed = || fs::exists(format!("/proc/{}", orphan.as_raw_nonzero())).unwrap();
        while is_listed() {
            reap_orphans(0);
        }
        assert!(!all(&HashSet::new()).unwrap().contains(&orphan));
    }

    #[test]
    fn a_line_of_proc_names_the_parent() {
        assert_eq!(parent_of("12 (sh) S 7 12 12 0 -1"), Some((7, false)));
        assert_eq!(parent_of("12 (a) b) (c) R 8 12"), Some((8, false)));
        assert_eq!(parent_of("12 (sh) Z 7 12 12"), Some((7, true)));
        assert_eq!(parent_of(""), None);
    }
}
