//! Outcome of stopping threads: in time, late, or panicked.

use std::thread::JoinHandle;

/// Outcome of telling threads to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopped {
    /// Every thread has ended.
    InTime,
    /// A thread still runs, until the process ends.
    Late,
    /// A thread had panicked.
    Died,
}

impl Stopped {
    /// True if every thread ended in time.
    pub fn is_in_time(self) -> bool {
        self == Stopped::InTime
    }

    pub(crate) fn when(ended: bool) -> Stopped {
        if ended { Stopped::InTime } else { Stopped::Late }
    }

    /// Joins threads that are finished or were told to end, skipping any that would block.
    pub(crate) fn of(are_done: bool, threads: impl IntoIterator<Item = JoinHandle<()>>) -> Stopped {
        let of_one = |thread: JoinHandle<()>| match are_done || thread.is_finished() {
            false => Stopped::Late,
            true if thread.join().is_ok() => Stopped::InTime,
            true => Stopped::Died,
        };
        threads
            .into_iter()
            .map(of_one)
            .max()
            .unwrap_or(Stopped::InTime)
            .max(Stopped::when(are_done))
    }
}

/// Names of ended threads. While none should end, these have panicked.
pub(crate) fn ended<'a>(threads: impl IntoIterator<Item = &'a JoinHandle<()>>) -> Vec<String> {
    let ended = threads.into_iter().filter(|thread| thread.is_finished());
    ended.map(|thread| thread.thread().name().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use super::*;

    #[test]
    fn a_thread_that_died_is_told_from_one_that_is_late() {
        let died = || spawn(|| panic!("as the test wants it"));
        assert_eq!(Stopped::of(true, [spawn(|| ())]), Stopped::InTime);
        assert_eq!(Stopped::of(true, [died(), spawn(|| ())]), Stopped::Died);
        let (end, told) = channel::<()>();
        let waits = spawn(move || assert!(told.recv().is_err()));
        let dead = died();
        while !dead.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(
            Stopped::of(false, [dead, waits]),
            Stopped::Died,
            "the one that waits is not waited for"
        );
        assert_eq!(Stopped::of(false, []), Stopped::Late);
        drop(end);
    }
}
