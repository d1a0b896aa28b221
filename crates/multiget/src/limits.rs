//! Every bound of the multiget tier, with compile-time checks of the relations between them.

use shunt_wire::netmc::{DATAGRAM_BYTES_MAX, HEADER_BYTES, KEY_BYTES_MAX};

const MS: u64 = 1_000_000;

/// Servers: SRV is one byte.
pub const SERVERS_MAX: usize = 256;
/// Keys of one multiget, including duplicates.
pub const KEYS_MAX: usize = 10_000;
/// Multigets of one event loop at a time. Further applications wait in line; a coordinator drops
/// the excess.
pub const MULTIGETS_MAX: usize = 4096;
/// Multigets under way with unanswered keys of one of several servers: a silent one holds up only
/// those who ask it.
pub const SERVER_MULTIGETS_MAX: usize = MULTIGETS_MAX / 2;
/// Consecutive half-answered groups, whose rest goes over TCP, after which a shim counts as silent:
/// each holds its place in the window as long as one without any answer.
pub const HALVES_MAX: u8 = 3;
/// Tries of a group in datagrams before its keys are fetched over TCP.
pub const ATTEMPTS_MAX: u8 = 3;
/// Interval at which a silent server gets one group in datagrams; others go over TCP.
pub const PROBE_NS: u64 = 100 * MS;
/// Consecutive requests unanswered by a coordinator, or parts lost by a switch, after which it gets
/// only one per `PROBE_NS`.
pub const MISSES_MAX: u8 = 3;
/// Time without an answer after which a coordinator repeats keys; it doubles each time.
pub const COORDINATOR_RESEND_NS: u64 = 10 * MS;
/// Time limit of a request at a coordinator; its client has turned to the servers long before.
pub const COORDINATED_NS: u64 = 500 * MS;
/// Groups under way at a time, over all servers: their largest answers, about 1.5 MB, must fit the
/// kernel's buffers.
pub const WINDOW_GROUPS: usize = 64;

/// Bytes that an unlisted source may be sent for each byte from it.
pub const AMPLIFICATION_MAX: usize = 3;
/// Sources with a rate of their own; the others share one.
pub const SOURCES_MAX: usize = 4096;
/// Requests of a shim that wait for its server; further ones are dropped.
pub const ASKED_MAX: usize = 4096;

/// Longest name that a client gives its connection, bytes.
pub const APP_NAME_BYTES_MAX: usize = 256;
/// Commands of one client awaiting their answers; with more it is not read.
pub const PIPELINE_MAX: usize = 1024;
/// Unanswered keys of one client's multigets; with as many it is not read, so that it uses the
/// memory and window of one multiget at a time.
pub const APP_KEYS_MAX: usize = KEYS_MAX;
/// Bytes of one client's unanswered commands; with as many it is not read.
pub const APP_ASKED_BYTES_MAX: usize = 4 << 20;
/// Bytes of a client's answers that wait for an earlier one, or are not taken; with more it is not
/// read.
pub const UNTAKEN_BYTES_MAX: usize = 4 << 20;
/// Bytes of waiting or untaken answers with which a client is closed: commands read before reading
/// stopped may have answers of any size.
pub const APP_BYTES_MAX: usize = 256 << 20;
/// Bytes of all applications of an event loop: answers, incomplete or unanswered commands, and
/// gathered values. Beyond it those with the most are closed.
pub const APPS_BYTES_MAX: usize = 1 << 30;
/// Bytes of a command, and of an answer; Redis allows longer strings by default.
pub const COMMAND_BYTES_MAX: usize = 64 << 20;
/// Unsent bytes to a server; with more, applications wait in line with commands for it.
pub const LINK_BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Commands awaiting one server's answer, of one event loop; with as many, applications wait in
/// line with commands for it.
pub const LINK_COMMANDS_MAX: usize = 64 << 10;
/// Bytes or commands beyond which a link refuses them. Those admitted while there is room stay
/// below, but nobody knows in advance how many keys datagrams will not bring, or where nodes of a
/// cluster will redirect commands.
pub const LINK_BACKLOG_BYTES_REFUSED: usize = LINK_BACKLOG_BYTES_MAX + 2 * COMMAND_BYTES_MAX;
/// Like [`LINK_BACKLOG_BYTES_REFUSED`], in commands.
pub const LINK_COMMANDS_REFUSED: usize = LINK_COMMANDS_MAX + 2 * KEYS_MAX;
/// Time limit for connecting to a server.
pub const CONNECT_NS: u64 = 1_000 * MS;
/// Time after a failed connect during which commands are refused at once.
pub const BACK_OFF_NS: u64 = 200 * MS;
/// Longest such time for a silent server; it starts at `BACK_OFF_NS` and doubles while the server
/// stays silent.
pub const BACK_OFF_NS_MAX: u64 = 10 * BACK_OFF_NS;
/// Shortest interval between requests for a cluster's slots.
pub const SLOTS_NS: u64 = 500 * MS;
/// Redirections of a command by the nodes of a cluster before their answer is final.
pub const HOPS_MAX: u8 = 5;
/// Interval between log lines about applications that are closed, of one event loop.
pub const LOG_INTERVAL_NS: u64 = 1_000 * MS;
/// Time after which a server's last failure says nothing any more.
pub const FAILURE_NS: u64 = 10_000 * MS;
/// Interval at which time limits are checked.
pub const TICK_NS: u64 = 50 * MS;

const _: () = assert!(APP_BYTES_MAX > UNTAKEN_BYTES_MAX + 2 * COMMAND_BYTES_MAX);
const _: () = assert!(APPS_BYTES_MAX - APPS_BYTES_MAX / 4 > APP_BYTES_MAX);
const _: () = assert!(KEYS_MAX < u16::MAX as usize);
const _: () = assert!(SERVERS_MAX <= u8::MAX as usize + 1);
// The shortest answer for a key fits this factor: 5 + key for 2 + key, one header for one.
const _: () = assert!(AMPLIFICATION_MAX * 2 > 5 && AMPLIFICATION_MAX > 1);
const _: () = assert!(HEADER_BYTES + 5 + KEY_BYTES_MAX <= DATAGRAM_BYTES_MAX);
