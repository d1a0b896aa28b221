//! Pauses after handshakes that fail. A certificate that one of two proxies refuses must never cost
//! a handshake for each request, and a pause must never outlast an answer of the other proxy.
//! Requests that come meanwhile were certainly not executed: those for locks are tried again until
//! their time is over, and clients of the others are sent to the next host.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use shunt_topology::Backoff;

use crate::limits;

/// Pauses by the address of the other proxy; there are as many as proxies.
#[derive(Default)]
pub(super) struct Pauses(HashMap<SocketAddr, Pause>);

struct Pause {
    until_ns: u64,
    backoff: Backoff,
}

impl Pauses {
    /// True if no connection to this proxy is to be opened now.
    pub(super) fn holds(&self, to: SocketAddr, now_ns: u64) -> bool {
        self.0.get(&to).is_some_and(|pause| now_ns < pause.until_ns)
    }

    /// Notes a failure. Those of several connections at once count as one.
    pub(super) fn begin(&mut self, to: SocketAddr, now_ns: u64, random: u64) {
        let first = Duration::from_millis(limits::RECONNECT_FIRST_MS);
        let max = Duration::from_millis(limits::RECONNECT_MAX_MS);
        let new = || Pause { until_ns: 0, backoff: Backoff::new(first, max) };
        let pause = self.0.entry(to).or_insert_with(new);
        if now_ns >= pause.until_ns {
            pause.until_ns = now_ns + pause.backoff.next(random).as_nanos() as u64;
        }
    }

    /// Ends the pause with a proxy: a handshake succeeded.
    pub(super) fn end(&mut self, to: SocketAddr) {
        self.0.remove(&to);
    }

    /// Forgets proxies with which nothing has failed for long.
    pub(super) fn expire(&mut self, now_ns: u64) {
        let kept_ns = 2 * limits::RECONNECT_MAX_MS * 1_000_000;
        self.0.retain(|_, pause| now_ns.saturating_sub(pause.until_ns) < kept_ns);
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
            if !pauses.holds(one, now_ns) {
                tried += 1;
                pauses.begin(one, now_ns, u64::MAX);
                pauses.begin(one, now_ns, u64::MAX);
            }
            assert!(!pauses.holds(other, now_ns));
            pauses.expire(now_ns);
            now_ns += limits::SECOND_NS / 1_000;
        }
        assert!((5..20).contains(&tried), "{tried}");
        pauses.begin(one, now_ns, 0);
        pauses.end(one);
        assert!(!pauses.holds(one, now_ns));
        pauses.begin(one, now_ns, 0);
        pauses.expire(now_ns + 60 * limits::SECOND_NS);
        assert!(pauses.0.is_empty());
    }
}
