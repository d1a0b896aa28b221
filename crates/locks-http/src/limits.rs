//! Bounds of the listener.

use std::time::Duration;

/// Connections at a time; further ones wait in the listener's queue.
pub(crate) const CONNECTIONS_MAX: usize = 1_024;
/// Requests carried out at a time, including waiting ones; further clients are told to come back.
pub(crate) const REQUESTS_MAX: usize = 512;
/// Requests that may wait for a lock: a holder that renews or releases must not queue behind
/// waiters.
pub(crate) const WAITS_MAX: usize = REQUESTS_MAX / 4 * 3;
/// Logins checked at a time. Each may cost a node 100 ms of a processor, right or wrong.
pub(crate) const LOGINS_MAX: usize = 16;
/// Interval between checks for a free login place.
pub(crate) const LOGIN_PAUSE: Duration = Duration::from_millis(20);
/// Queue listings being built or sent: each may have megabytes.
pub(crate) const QUEUES_MAX: usize = 16;
/// One address gets at most this fraction of any of these limits.
pub(crate) const PEER_PART: usize = 2;
/// Bytes of an answer that the kernel buffers for a connection.
pub(crate) const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// Bytes after a request that are discarded before the client counts as gone.
pub(crate) const BYTES_BEHIND_MAX: usize = 64 << 10;
/// Parameters of a request; six are defined.
pub(crate) const PARAMETERS_MAX: usize = 8;
/// Idle connections to the proxy, for all logins.
pub(crate) const IDLE_MAX: usize = 64;
/// Idle connections to the proxy, for one login.
pub(crate) const IDLE_OF_LOGIN_MAX: usize = 16;

/// Bytes of a request's head: a name of 1024 and an owner of 256, fully escaped, take 3840.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a body that are read before it is refused: bodies are not allowed, but a client that
/// sends a short one should get an explanation.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a lock's name, as for any client.
pub(crate) const NAME_BYTES_MAX: usize = 1_024;
/// Seconds that a request may wait for a lock.
pub(crate) const WAIT_SECONDS_MAX: u32 = 60;
/// Seconds of the shortest hold that may be waited for: a wait at the proxy is more than a second
/// shorter than the hold.
pub(crate) const WAITED_TTL_SECONDS_MIN: u32 = 3;

/// Time limit for the head of a request.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a body, which is refused.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for each step of connecting to the proxy and logging in.
pub(crate) const CONNECT_STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a statement, in addition to its wait for a lock. The proxy's own deadline,
/// `query_timeout_ms`, is 12 s by default.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit for a request, in addition to its wait for a lock.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time left to waiting requests when the proxy stops: longer than the default of
/// `lock_wait_max_ms`, so that most get the proxy's own answer.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(2);
/// Time limit for the client to take an answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a whole connection, including its answer.
pub(crate) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(110);
/// Pause after a failed accept, for example when too many files are open.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_secs(1);
/// Interval at which connections too old for reuse are closed.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Pause between two tries for a lock while it cannot be granted, or while the proxy lets no
/// request wait.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// A lock granted later than this after its statement was sent is renewed before its holder is
/// told.
pub(crate) const RENEW_AFTER: Duration = Duration::from_millis(500);

const _: () = assert!(REQUESTS_MAX <= CONNECTIONS_MAX && IDLE_OF_LOGIN_MAX <= IDLE_MAX);
const _: () = assert!(
    HEAD_TIMEOUT.as_secs() + REQUEST_TIMEOUT.as_secs() + WAIT_SECONDS_MAX as u64 + 10
        <= CONNECTION_TIMEOUT.as_secs()
);
