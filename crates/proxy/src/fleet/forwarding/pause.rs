//! Pauses after handshakes and logins that fail. A certificate that one of two proxies refuses must
//! never cost a handshake for each request, and a pause must never outlast an answer of the other
//! proxy. A login that the other proxy refuses must never cost a connection and a line of the log
//! for each request, nor hold up other logins, nor wait for longer than a second.
//!
//! Requests during a pause were certainly not carried out. Requests for locks are tried again until
//! their time is over, and drivers send other requests to the next host.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use shunt_topology::Backoff;

use super::Login;
use crate::limits;

/// Longest pause of one login, milliseconds.
const LOGIN_MAX_MS: u64 = 1_000;
/// Most logins with a pause. Other logins are tried at once.
const LOGINS_MAX: usize = 4_096;

/// Pauses by the address of the other proxy, of which there are few, and by login.
#[derive(Default)]
pub(super) struct Pauses {
    proxies: HashMap<SocketAddr, Pause>,
    logins: HashMap<(SocketAddr, Login), Pause>,
}

struct Pause {
    until_ns: u64,
    backoff: Backoff,
}

impl Pause {
    fn up_to(max_ms: u64) -> Pause {
        let (first, max) = (limits::RECONNECT_FIRST_MS, max_ms);
        let backoff = Backoff::new(Duration::from_millis(first), Duration::from_millis(max));
        Pause { until_ns: 0, backoff }
    }

    fn begin(&mut self, now_ns: u64, random: u64) {
        if now_ns >= self.until_ns {
            self.until_ns = now_ns + self.backoff.next(random).as_nanos() as u64;
        }
    }
}

impl Pauses {
    /// True if no connection to this proxy may be opened now with this login.
    pub(super) fn holds(&self, to: SocketAddr, login: &Login, now_ns: u64) -> bool {
        let is_paused = |pause: &Pause| now_ns < pause.until_ns;
        self.proxies.get(&to).is_some_and(is_paused)
            || !self.logins.is_empty()
                && self.logins.get(&(to, login.clone())).is_some_and(is_paused)
    }

    /// Notes a failure. Failures of several connections at a time count as one.
    pub(super) fn begin(&mut self, to: SocketAddr, now_ns: u64, random: u64) {
        let new = || Pause::up_to(limits::RECONNECT_MAX_MS);
        self.proxies.entry(to).or_insert_with(new).begin(now_ns, random);
    }

    /// Notes that a proxy has refused a login.
    pub(super) fn begin_login(&mut self, to: (SocketAddr, Login), now_ns: u64, random: u64) {
        if self.logins.len() < LOGINS_MAX || self.logins.contains_key(&to) {
            let new = || Pause::up_to(LOGIN_MAX_MS);
            self.logins.entry(to).or_insert_with(new).begin(now_ns, random);
        }
    }

    /// Ends the pause with a proxy: a handshake succeeded.
    pub(super) fn end(&mut self, to: SocketAddr) {
        self.proxies.remove(&to);
    }

    /// Ends the pause of a login: the proxy has accepted it.
    pub(super) fn end_login(&mut self, to: SocketAddr, login: &Login) {
        if !self.logins.is_empty() {
            self.logins.remove(&(to, login.clone()));
        }
    }

    /// Forgets proxies and logins that have not failed for long.
    pub(super) fn expire(&mut self, now_ns: u64) {
        let is_recent = |pause: &Pause, max_ms: u64| {
            now_ns.saturating_sub(pause.until_ns) < 2 * max_ms * 1_000_000
        };
        self.proxies.retain(|_, pause| is_recent(pause, limits::RECONNECT_MAX_MS));
        self.logins.retain(|_, pause| is_recent(pause, LOGIN_MAX_MS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_whose_handshakes_fail_is_tried_ever_more_rarely() {
        let (one, other): (SocketAddr, SocketAddr) =
            ("10.0.0.1:9042".parse().unwrap(), "10.0.0.2:9042".parse().unwrap());
        let (mut pauses, mut tried, mut now_ns) = (Pauses::default(), 0, 0);
        while now_ns < 60 * limits::SECOND_NS {
            if !pauses.holds(one, &None, now_ns) {
                tried += 1;
                pauses.begin(one, now_ns, u64::MAX);
                pauses.begin(one, now_ns, u64::MAX);
            }
            assert!(!pauses.holds(other, &None, now_ns));
            pauses.expire(now_ns);
            now_ns += limits::SECOND_NS / 1_000;
        }
        assert!((5..20).contains(&tried), "{tried}");
        pauses.begin(one, now_ns, 0);
        pauses.end(one);
        assert!(!pauses.holds(one, &None, now_ns));
        pauses.begin(one, now_ns, 0);
        pauses.expire(now_ns + 60 * limits::SECOND_NS);
        assert!(pauses.proxies.is_empty());
    }

    /// A client whose role may no longer log in asks for a lock of the other proxy again and again.
    #[test]
    fn a_login_that_is_refused_is_tried_ever_more_rarely_and_holds_up_no_other() {
        let to: SocketAddr = "10.0.0.1:9042".parse().unwrap();
        let [gone, other]: [Login; 2] =
            ["gone", "other"].map(|login| Some(login.as_bytes().into()));
        let (mut pauses, mut tried, mut now_ns) = (Pauses::default(), 0, 0);
        while now_ns < 10 * limits::SECOND_NS {
            if !pauses.holds(to, &gone, now_ns) {
                tried += 1;
                pauses.begin_login((to, gone.clone()), now_ns, u64::MAX);
            }
            assert!(!pauses.holds(to, &other, now_ns) && !pauses.holds(to, &None, now_ns));
            pauses.expire(now_ns);
            now_ns += limits::SECOND_NS / 50;
        }
        assert!((10..20).contains(&tried), "{tried} of 500");
        assert!(!pauses.holds(to, &gone, now_ns + limits::SECOND_NS), "a second at most");
        pauses.begin_login((to, gone.clone()), now_ns + limits::SECOND_NS, u64::MAX);
        pauses.end_login(to, &gone);
        assert!(pauses.logins.is_empty());
        for login in 0..5_000u32 {
            pauses.begin_login((to, Some(login.to_be_bytes().to_vec().into())), now_ns, u64::MAX);
        }
        assert_eq!(pauses.logins.len(), LOGINS_MAX);
        pauses.expire(now_ns + 4 * limits::SECOND_NS);
        assert!(pauses.logins.is_empty());
    }
}
