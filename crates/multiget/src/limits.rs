//! Every bound of the multiget tier, with the relations between them checked when it is compiled.

use shunt_wire::netmc::{DATAGRAM_BYTES_MAX, HEADER_BYTES, KEY_BYTES_MAX};

const MS: u64 = 1_000_000;

/// Servers: SRV is one byte.
pub const SERVERS_MAX: usize = 256;
/// Keys of one multiget, those that stand there twice counted twice.
pub const KEYS_MAX: usize = 10_000;
/// Multigets of one event loop at a time. Applications that ask for more wait in line; a
/// coordinator drops more.
pub const MULTIGETS_MAX: usize = 4096;
/// Multigets under way that one of several servers has not answered its keys of: so one that is
/// silent holds up nobody but who asks it.
pub const SERVER_MULTIGETS_MAX: usize = MULTIGETS_MAX / 2;
/// Groups in a row that a shim answers by halves, so that the rest is asked for over TCP, before it
/// is taken for silent: each holds its place in the window as long as one without any answer.
pub const HALVES_MAX: u8 = 3;
/// How often the keys of a group are asked for in datagrams before they are asked for over TCP.
pub const ATTEMPTS_MAX: u8 = 3;
/// A silent server is asked over TCP, but for one group in this time.
pub const PROBE_NS: u64 = 100 * MS;
/// Requests in a row that a coordinator leaves unanswered, or parts for one server that a switch
/// does, before no more are left to it, but for one in the same time.
pub const MISSES_MAX: u8 = 3;
/// After so long without an answer a coordinator asks for keys again, then after twice as long each
/// time.
pub const COORDINATOR_RESEND_NS: u64 = 10 * MS;
/// How long a request may take a coordinator; its client has asked the servers long before.
pub const COORDINATED_NS: u64 = 500 * MS;
/// Groups under way at a time, over all servers: what their answers can be at most, about 1.5 MB,
/// has to fit what the kernel holds.
pub const WINDOW_GROUPS: usize = 64;

/// Bytes that a source nobody vouches for is answered with, for each that it sent.
pub const AMPLIFICATION_MAX: usize = 3;
/// Sources whose rates are known one by one; the others share one.
pub const SOURCES_MAX: usize = 4096;
/// Requests of a shim that wait for its server; more are dropped.
pub const ASKED_MAX: usize = 4096;

/// Commands of one client that are answered in order; it is not read while there are more.
pub const PIPELINE_MAX: usize = 1024;
/// Keys of one client's multigets that have no answer; it is not read while there are as many, so
/// that it takes up the memory and the window of one multiget at a time.
pub const APP_KEYS_MAX: usize = KEYS_MAX;
/// Bytes of one client's commands that have no answer; it is not read while there are as many.
pub const APP_ASKED_BYTES_MAX: usize = 4 << 20;
/// Bytes of answers that wait for an earlier one, or are not taken by their client; it is not read
/// while there are more.
pub const UNTAKEN_BYTES_MAX: usize = 4 << 20;
/// With so many bytes of answers that wait or are not taken a client is closed: commands that were
/// read before it was read no more may have any answers.
pub const APP_BYTES_MAX: usize = 256 << 20;
/// Bytes that all applications of an event loop take up together: of answers, of commands that are
/// not complete or not answered, and of values that were gathered. With more those that take up
/// most are closed.
pub const APPS_BYTES_MAX: usize = 1 << 30;
/// Bytes of a command, and of an answer: what Redis takes of one string by default is more.
pub const COMMAND_BYTES_MAX: usize = 64 << 20;
/// Bytes written to a server and not taken by it; with more, applications wait in line with what
/// they have for it.
pub const LINK_BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Commands that wait for one server's answer, of one event loop; with as many, applications wait
/// in line with what they have for it.
pub const LINK_COMMANDS_MAX: usize = 64 << 10;
/// With so many bytes or commands they are refused. What is let in when there is room is not more,
/// but nobody knows before what datagrams will not bring, or where nodes of a cluster will send
/// commands.
pub const LINK_BACKLOG_BYTES_REFUSED: usize = LINK_BACKLOG_BYTES_MAX + 2 * COMMAND_BYTES_MAX;
/// The same of commands.
pub const LINK_COMMANDS_REFUSED: usize = LINK_COMMANDS_MAX + 2 * KEYS_MAX;
/// How long connecting to a server may take.
pub const CONNECT_NS: u64 = 1_000 * MS;
/// After it failed, commands are refused at once for so long.
pub const BACK_OFF_NS: u64 = 200 * MS;
/// After a server was silent they are refused for as long, then for twice as long each time it is
/// still silent, and for so long at most: by then one that has come back is known.
pub const BACK_OFF_NS_MAX: u64 = 10 * BACK_OFF_NS;
/// Where the slots of a cluster are is asked so often at most.
pub const SLOTS_NS: u64 = 500 * MS;
/// How often a command is sent elsewhere by the nodes of a cluster before their answer stands.
pub const HOPS_MAX: u8 = 5;
/// How often time limits are looked at.
pub const TICK_NS: u64 = 50 * MS;

const _: () = assert!(APP_BYTES_MAX > UNTAKEN_BYTES_MAX + 2 * COMMAND_BYTES_MAX);
const _: () = assert!(APPS_BYTES_MAX - APPS_BYTES_MAX / 4 > APP_BYTES_MAX);
const _: () = assert!(KEYS_MAX < u16::MAX as usize);
const _: () = assert!(SERVERS_MAX <= u8::MAX as usize + 1);
// The answer that says least about a key of a request is smaller than this allows: 5 + key for 2 +
// key, one header for one.
const _: () = assert!(AMPLIFICATION_MAX * 2 > 5 && AMPLIFICATION_MAX > 1);
const _: () = assert!(HEADER_BYTES + 5 + KEY_BYTES_MAX <= DATAGRAM_BYTES_MAX);
