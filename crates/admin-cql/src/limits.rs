//! Bounds of the listener, of a connection and of a statement.

use std::time::Duration;

/// Connections at a time. Beyond them, a new one takes the place of one without a valid login: the
/// oldest of the host that has the most. Without such a one it is closed.
pub const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request.
pub const REQUEST_BYTES_MAX: u32 = 64 << 10;
/// Bytes of a request before the login.
pub const EARLY_REQUEST_BYTES_MAX: u32 = 8 << 10;
/// Time from the connection to the end of the login.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a connection without a login may lose its place to a host with as many
/// connections.
pub const LOGIN_QUIET: Duration = Duration::from_secs(1);
/// Time between a wrong password and its answer, with which the connection ends.
pub const LOGIN_PAUSE: Duration = Duration::from_secs(1);
/// Time without a request after which a connection is closed. Drivers send one every 30 s.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Time for a request to arrive as a whole, from its first byte.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the client to take an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Rows of an answer. More rows come in further pages.
pub const ROWS_MAX: usize = 5_000;
/// Bytes of the values of an answer. More rows come in further pages; a longer row is refused.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Bind markers of a statement.
pub const MARKERS_MAX: usize = 1_024;
/// Bytes of the values of all markers: one value may stand for many markers of its name.
pub const BOUND_BYTES_MAX: usize = 256 << 10;
/// Conditions of a statement.
pub const CONDITIONS_MAX: usize = 32;
/// Values of an `IN`.
pub const VALUES_MAX: usize = 256;
/// Columns of `ORDER BY`.
pub const ORDER_MAX: usize = 8;
/// Selected columns.
pub const SELECTED_MAX: usize = 128;
/// Prepared statements of all connections. A new one beyond them takes the place of the oldest.
pub const PREPARED_MAX: usize = 256;
/// Bytes of the texts of prepared statements.
pub const PREPARED_BYTES_MAX: usize = 1 << 20;
/// Pause after a failed accept, for example when the limit of open files is reached.
pub const ACCEPT_RETRY: Duration = Duration::from_secs(1);

const _: () = assert!(LOGIN_QUIET.as_secs() < LOGIN_TIMEOUT.as_secs());
const _: () = assert!(EARLY_REQUEST_BYTES_MAX <= REQUEST_BYTES_MAX);
const _: () = assert!(REQUEST_BYTES_MAX as usize <= PREPARED_BYTES_MAX);
const _: () = assert!(REQUEST_BYTES_MAX as usize <= BOUND_BYTES_MAX);
const _: () = assert!(VALUES_MAX <= MARKERS_MAX);
