//! Finds exchanges whose clients are slow to take the answer, or to send the request. A slow
//! exchange keeps its connection to the server until it ends.

use crate::limits;

/// Progress of an exchange over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes moved so far: of the request's body to the server, and of the answer.
    pub(crate) moved_bytes: u64,
    /// Time of the last check, and the bytes moved by then.
    since_ns: u64,
    since_bytes: u64,
    /// Bytes moved between the last two checks, if the client held the exchange up.
    held_up_bytes: Option<u64>,
}

impl Pace {
    /// Checks the progress, if a check is due. `is_held_up`: the server offers more than the client
    /// takes, or takes more than the client sends.
    pub(crate) fn look(&mut self, now_ns: u64, is_held_up: bool) {
        if self.since_ns + limits::PACE_INTERVAL_NS > now_ns {
            return;
        }
        let is_first = self.since_ns == 0;
        self.held_up_bytes =
            (is_held_up && !is_first).then_some(self.moved_bytes - self.since_bytes);
        (self.since_ns, self.since_bytes) = (now_ns, self.moved_bytes);
    }

    /// True if the client held the exchange up and it moved fewer bytes between the last two
    /// checks.
    pub(crate) fn is_below(&self, bytes: u64) -> bool {
        self.held_up_bytes.is_some_and(|moved| moved < bytes)
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.is_below(limits::PACE_BYTES_MIN)
    }

    /// The client has sent the request: it no longer holds the exchange up.
    pub(crate) fn request_ended(&mut self) {
        self.held_up_bytes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_slow_that_its_client_has_held_up_for_a_whole_time() {
        let (mut pace, step) = (Pace::default(), limits::PACE_INTERVAL_NS);
        pace.look(step, true);
        assert!(!pace.is_slow(), "it was not looked at before");
        pace.look(2 * step - 1, true);
        assert!(!pace.is_slow());
        pace.moved_bytes += limits::PACE_BYTES_MIN - 1;
        pace.look(2 * step, true);
        assert!(pace.is_slow());
        pace.moved_bytes += limits::PACE_BYTES_MIN;
        pace.look(3 * step, true);
        assert!(!pace.is_slow());
        pace.look(4 * step, false);
        assert!(!pace.is_slow(), "the server is the reason");
    }
}
