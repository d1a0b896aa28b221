//! Bounds of the listener.

use std::time::Duration;

/// Connections at a time; the next wait in the listener's queue.
pub(crate) const CONNECTIONS_MAX: usize = 1_024;
/// Requests that are carried out at a time, waiting ones among them; the next are told to come
/// back.
pub(crate) const REQUESTS_MAX: usize = 512;
/// Of these, those that wait for a lock: who holds one and renews or releases it must not stand
/// behind who waits for it.
pub(crate) const WAITS_MAX: usize = REQUESTS_MAX / 4 * 3;
/// Logins that are checked at a time. Each may cost a node 100 ms of a processor, and wrong ones
/// cost as much as right ones.
pub(crate) const LOGINS_MAX: usize = 16;
/// Between two looks if a place among them is free.
pub(crate) const LOGIN_PAUSE: Duration = Duration::from_millis(20);
/// Queues that are put together, or whose answers are not taken yet: each may have megabytes.
pub(crate) const QUEUES_MAX: usize = 16;
/// Of any of these, one address gets this part at most.
pub(crate) const PEER_PART: usize = 2;
/// Bytes of an answer that the kernel takes from a connection before its client does.
pub(crate) const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// Bytes behind a request that are thrown away before their sender counts as gone.
pub(crate) const BYTES_BEHIND_MAX: usize = 64 << 10;
/// Parameters of a request; there are six.
pub(crate) const PARAMETERS_MAX: usize = 8;
/// Connections to the proxy that are kept for the next request, of all logins.
pub(crate) const IDLE_MAX: usize = 64;
/// The same, of one login.
pub(crate) const IDLE_OF_LOGIN_MAX: usize = 16;

/// Bytes of a request's head: a name of 1024 and an owner of 256, all of them escaped, take 3840.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a body that are read before it is refused: none are allowed, but who sends a few should
/// hear why.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a lock's name, as for any client.
pub(crate) const NAME_BYTES_MAX: usize = 1_024;
/// Seconds that a request may wait for a lock.
pub(crate) const WAIT_SECONDS_MAX: u32 = 60;
/// Seconds of the shortest hold that may be waited for: a wait at the proxy is more than a second
/// shorter than it.
pub(crate) const WAITED_TTL_SECONDS_MIN: u32 = 3;

/// For the head of a request.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// For a body, which is refused.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// For each step of connecting to the proxy and logging in.
pub(crate) const CONNECT_STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// For a statement, beside what it waits for a lock. The proxy's own deadline, `query_timeout_ms`,
/// is 12 s unless it was changed.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);
/// For a request, beside what it waits for a lock.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// For requests that wait when the proxy is told to stop: longer than `lock_wait_max_ms`, unless
/// that was changed, so that most are answered by what the proxy says.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(2);
/// For taking an answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// For a whole connection, until the answer is taken.
pub(crate) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(110);
/// After an accept that failed, as when there are too many open files.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_secs(1);
/// How often connections that are too old to be used again are closed.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Between two tries for a lock while nobody can grant it, or while the proxy does not let requests
/// wait.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// A lock that was granted later than this after it was asked for is renewed before its holder
/// hears of it.
pub(crate) const RENEW_AFTER: Duration = Duration::from_millis(500);

const _: () = assert!(REQUESTS_MAX <= CONNECTIONS_MAX && IDLE_OF_LOGIN_MAX <= IDLE_MAX);
const _: () = assert!(
    HEAD_TIMEOUT.as_secs() + REQUEST_TIMEOUT.as_secs() + WAIT_SECONDS_MAX as u64 + 10
        <= CONNECTION_TIMEOUT.as_secs()
);
