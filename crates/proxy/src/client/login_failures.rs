//! Log lines about failed logins: a sample for each role and each client's host, because a program
//! with an old password that tries again and again must not hide the others.
//!
//! A client can claim any role. Therefore one host has a part of the lines of a second, and all
//! hosts together have a bound.

use std::collections::HashMap;

use shunt_reactor::{ClientAddress, ClientHost};

use crate::host_quota::HostQuota;
use crate::limits;

/// Roles and hosts that have failed in the last seconds.
#[derive(Default)]
pub(crate) struct LoginFailures {
    known: HashMap<(Box<str>, ClientHost), Sample>,
    lines: HostQuota,
    /// Failures without a sample of their own since the last line about them.
    others: u64,
}

/// A role that has failed from a host.
#[derive(Clone, Copy)]
struct Sample {
    /// Earliest time of the next line.
    next_ns: u64,
    /// Failures without a line since the last one.
    suppressed: u64,
}

/// Failures that no line has reported.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Role and host of the failures; `None`: there are several.
    pub(crate) of: Option<(Box<str>, ClientHost)>,
    pub(crate) suppressed: u64,
}

impl LoginFailures {
    /// Decides whether this failure gets a line. `Some` has the number of failures of the same role
    /// and host that got none before it.
    pub(crate) fn admit(&mut self, role: &str, from: ClientAddress, now_ns: u64) -> Option<u64> {
        let key = (Box::from(role), from.host());
        if let Some(sample) = self.known.get_mut(&key).filter(|sample| now_ns < sample.next_ns) {
            sample.suppressed += 1;
            return None;
        }
        let is_new = !self.known.contains_key(&key);
        let has_room = !is_new || self.known.len() < limits::LOGIN_FAILURES_MAX;
        if !has_room || !self.take_line(from, now_ns) {
            match self.known.get_mut(&key) {
                Some(sample) => sample.suppressed += 1,
                None => self.others += 1,
            }
            return None;
        }
        let next_ns = now_ns + limits::LOG_INTERVAL_NS;
        let sample = self.known.insert(key, Sample { next_ns, suppressed: 0 });
        Some(sample.map_or(0, |sample| sample.suppressed))
    }

    /// Claims a line of this second for a host.
    fn take_line(&mut self, from: ClientAddress, now_ns: u64) -> bool {
        let most = limits::LOGIN_FAILURE_LINES_PER_SECOND;
        self.lines.take(now_ns, Some(from), most, most / 4)
    }

    /// Forgets the roles and hosts that have stopped. Returns the failures that no line has
    /// reported and none will.
    pub(crate) fn tick(&mut self, now_ns: u64) -> Vec<Untold> {
        let mut untold = Vec::new();
        let is_over = |sample: &Sample| now_ns >= sample.next_ns + limits::LOG_INTERVAL_NS;
        let mut others = 0;
        self.known.retain(|key, sample| {
            let (is_over, suppressed) = (is_over(sample), sample.suppressed);
            if is_over && suppressed > 0 && untold.len() < limits::LOGIN_FAILURE_LINES_PER_SECOND {
                untold.push(Untold { of: Some(key.clone()), suppressed });
            } else if is_over {
                others += suppressed;
            }
            !is_over
        });
        self.others += others;
        if self.others > 0 && self.lines.is_over(now_ns) {
            self.lines.begin_second(now_ns);
            let suppressed = std::mem::take(&mut self.others);
            untold.push(Untold { of: None, suppressed });
        }
        untold
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn host(last: u8) -> ClientAddress {
        SocketAddr::from(([192, 0, 2, last], 9_042)).into()
    }

    /// Sums of the failures with a line, without one before a line, and told later.
    fn told(failures: &mut LoginFailures, until_s: u64) -> u64 {
        let ticks = (1..).map(|tick| tick * limits::TICK_NS);
        let ticks = ticks.take_while(|now_ns| *now_ns <= until_s * limits::SECOND_NS);
        ticks.flat_map(|now_ns| failures.tick(now_ns)).map(|untold| untold.suppressed).sum()
    }

    #[test]
    fn a_program_that_tries_again_and_again_hides_no_other() {
        let mut failures = LoginFailures::default();
        let mut all = 0;
        for _ in 0..1_000 {
            all += failures.admit("shop", host(1), 7).map_or(0, |suppressed| suppressed + 1);
        }
        assert_eq!(failures.admit("shop", host(2), 8), Some(0), "another host");
        assert_eq!(failures.admit("bill", host(1), 8), Some(0), "another role");
        let later = 8 + limits::LOG_INTERVAL_NS;
        all += failures.admit("shop", host(1), later).expect("a line") + 1;
        assert_eq!(all, 1_001);
        assert_eq!(failures.admit("shop", host(1), later), None);
        assert_eq!(told(&mut failures, 9), 1, "the last one has no line");
        assert!(failures.known.is_empty() && failures.tick(20 * limits::SECOND_NS).is_empty());
    }

    #[test]
    fn one_host_with_many_roles_leaves_lines_to_others() {
        let mut failures = LoginFailures::default();
        let mut lines = 0;
        for number in 0..100_000 {
            lines += u64::from(failures.admit(&format!("role{number}"), host(1), 7).is_some());
        }
        assert_eq!(lines as usize, limits::LOGIN_FAILURE_LINES_PER_SECOND / 4);
        assert_eq!(failures.admit("shop", host(2), 8), Some(0));
        assert_eq!(lines + told(&mut failures, 9), 100_000);
    }

    #[test]
    fn hosts_and_roles_are_bounded() {
        let mut failures = LoginFailures::default();
        let mut all = 0;
        for number in 0..10 * limits::LOGIN_FAILURES_MAX as u64 {
            let second = number / 10 * limits::SECOND_NS / 100;
            let host = host((number % 200) as u8);
            let told = failures.admit(&format!("role{number}"), host, second);
            all += told.map_or(0, |suppressed| suppressed + 1);
            assert!(failures.known.len() <= limits::LOGIN_FAILURES_MAX);
        }
        assert_eq!(all + told(&mut failures, 100_000), 10 * limits::LOGIN_FAILURES_MAX as u64);
    }
}
