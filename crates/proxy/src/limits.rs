//! Every bound of the data path in one place, with the relations between them checked at compile
//! time.
//!
//! The bounds that an operator may set live in [`crate::config::Config`]; the figures here bound
//! what no operator should have to think about. Nothing on the data path grows beyond one of these.

/// Stream ids of one connection (native protocol v3 to v5, section 2.3: non-negative 16-bit
/// numbers).
pub const STREAMS_PER_CONNECTION_MAX: usize = 32_768;

/// Bytes written to a link and not yet taken by the kernel beyond which the link counts as full.
pub const LINK_BACKLOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long the fleet's row is waited for before there is a member.
pub const FLEET_READ_NS: u64 = 3 * SECOND_NS;

/// A membership that came to nothing, or ended, is followed by another after this time.
pub const FLEET_RETRY_NS: u64 = 2 * SECOND_NS;

/// A full link takes queries again when its backlog has fallen to this.
pub const LINK_BACKLOG_BYTES_LOW: usize = LINK_BACKLOG_BYTES_MAX / 4;

/// Request bytes kept for retries beyond which a link counts as full.
pub const LINK_RETAINED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Retained bytes from which the sweep copies old requests out of the sent log, so that a few slow
/// queries do not hold the buffers of thousands that are answered.
pub const LINK_RETAINED_BYTES_SWEEP: usize = LINK_RETAINED_BYTES_MAX / 4;

/// A frame waits for more queries only while at least this many are unanswered on its link: fewer
/// are not worth it.
pub const FRAME_GATHER_UNANSWERED_MIN: usize = 8;

/// A frame with this many queries waits for no more: its fixed cost at the node is spread well
/// enough.
pub const FRAME_GATHERED_MAX: usize = 64;

/// Room for a message in pieces that a link keeps between messages; what a larger one took is given
/// back.
pub const CARRY_KEPT_BYTES: usize = 256 * 1024;

/// Reply bytes a client may leave untaken before it is closed. Reading from it stops much earlier
/// (`client_backlog_bytes`); what comes beyond that are replies to queries already in flight.
pub const CLIENT_BACKLOG_BYTES_HARD: usize = 512 * 1024 * 1024;

/// Largest request body taken from a client: `native_transport_max_frame_size` of Cassandra 4 and 5
/// (16 MiB).
pub const REQUEST_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// Clients of a core beyond `clients_max` that are kept until they can be told so, at a time and of
/// those that come within [`TURNED_AWAY_NS`]. More are reset: each holds a file.
pub const TURNED_AWAY_MAX: usize = 64;

/// How long they are kept: a driver sends its first request at once.
pub const TURNED_AWAY_NS: u64 = 1_000_000_000;

/// Largest body of a client that has not logged in: a STARTUP or AUTH_RESPONSE is small.
pub const HANDSHAKE_BYTES_MAX: u32 = 64 * 1024;

/// Statements remembered for all clients together; beyond it one is forgotten of the login that has
/// most, and its next EXECUTE is answered with UNPREPARED, which drivers repair.
pub const PREPARED_STATEMENTS_MAX: usize = 65_536;

/// Bytes they may take together.
pub const PREPARED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The text of a longer statement is not remembered: the proxy does not prepare it again on nodes
/// that forget it.
pub const PREPARED_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Pools of one core: one per (role, protocol version, keyspace, compression) in use.
pub const POOLS_MAX: usize = 1_024;

/// Pools of one core whose login no node has accepted: whoever guesses passwords must leave room
/// for others.
pub const POOLS_UNVERIFIED_MAX: usize = POOLS_MAX / 2;

/// A keyspace's name in USE. It becomes the key of a pool and travels on each of its links;
/// Cassandra's names have at most 48 characters.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 256;

/// A pool nobody has used for this long closes its links.
pub const POOL_IDLE_NS: u64 = 120 * SECOND_NS;

/// Requests waiting on a core for a repair (PREPARE again, schema agreement, link not open yet).
pub const REPAIRS_MAX: usize = 16_384;

/// Bytes of those that wait for a PREPARE: requests, and the texts of their statements.
pub const REPAIRS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// And those of one client; a larger request may wait alone.
pub const REPAIRS_CLIENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Times one request may be repaired by preparing again on one node: a BATCH may name many
/// statements. As many as it names, and once more, are allowed below this.
pub const REPREPARES_PER_REQUEST_MAX: u8 = 64;

/// A request that takes as long to read as one with a text of so many bytes is heavy.
pub const HEAVY_BYTES_MIN: usize = 64 * 1024;

/// Bytes of heavy requests that a core reads in one turn of its loop; one that is larger is read
/// alone.
pub const HEAVY_TURN_BYTES_MAX: usize = 1024 * 1024;

/// How often deadlines, heartbeats and reconnects are looked at.
pub const TICK_NS: u64 = 250_000_000;
/// A loop that has not ticked for so long stood still, and does not know what has happened
/// meanwhile.
pub const STILL_NS: u64 = SECOND_NS;

/// A node that was asked to check a login has this long for itself, or a quarter of
/// `connect_timeout_ms`; then another is asked as well.
pub const LOGIN_PATIENCE_NS: u64 = SECOND_NS;

/// A link with queries outstanding that has been silent for this long is probed by OPTIONS.
pub const LINK_SILENCE_PROBE_NS: u64 = SECOND_NS;

/// A probed link that says nothing for this long is given up; those of its queries that may be
/// repeated are retried elsewhere.
pub const LINK_SILENCE_MAX_NS: u64 = 4 * SECOND_NS;

/// A client may take this long over one request from its first to its last byte before it is closed
/// (slow loris).
pub const REQUEST_READ_NS: u64 = 60 * SECOND_NS;

/// A client held back because it does not take its replies is closed when it has taken none for
/// this long.
pub const REPLIES_UNTAKEN_NS: u64 = 60 * SECOND_NS;

/// How long a client is held back by a full or absent link before its queries are answered with
/// Overloaded.
pub const STALL_MAX_NS: u64 = 5 * SECOND_NS;

/// How long a schema change may wait for agreement before its answer is passed on all the same.
pub const SCHEMA_AGREEMENT_NS: u64 = 12 * SECOND_NS;

/// Deadline of schema changes and TRUNCATE, if that of other queries is not longer: nodes wait for
/// one another.
pub const SCHEMA_TIMEOUT_NS: u64 = 60 * SECOND_NS;

/// First and largest pause between attempts to reach a node.
pub const RECONNECT_FIRST_MS: u64 = 100;
/// See [`RECONNECT_FIRST_MS`].
pub const RECONNECT_MAX_MS: u64 = 10_000;

/// How often a node on whose ordinary port queries travel is asked whether it takes aggregated
/// frames by now.
pub const OFFER_CHECK_NS: u64 = 10 * SECOND_NS;

/// First and largest pause between attempts to use a port for aggregated frames that could not be
/// used.
pub const UPGRADE_RETRY_FIRST_NS: u64 = SECOND_NS;
/// See [`UPGRADE_RETRY_FIRST_NS`].
pub const UPGRADE_RETRY_MAX_NS: u64 = 300 * SECOND_NS;

/// Timed-out queries whose stream ids a link may hold before it is given up as sick.
pub const LINK_ORPHANS_MAX: usize = 8_192;

/// A query that a link has not answered for this long after its time was over is taken as lost: the
/// link is replaced.
pub const ORPHAN_AGE_MAX_NS: u64 = 60 * SECOND_NS;

/// Errors that a node's recent "I cannot serve" count for at most, in queries in flight. A quarter
/// goes with each tick.
pub const NODE_PENALTY_MAX: u32 = 4_096;

/// Kinds of log lines that clients can cause are written this far apart, each kind by itself.
pub const LOG_INTERVAL_NS: u64 = SECOND_NS;

/// Longest role, keyspace or driver as logs and `/status` show it, bytes.
pub const NAME_SHOWN_BYTES_MAX: usize = 64;

/// Longest reason in a log line, bytes: an error may quote what a client or a node said.
pub const REASON_SHOWN_BYTES_MAX: usize = 256;

/// Drivers that a core keeps one copy of for all their clients.
pub const DRIVERS_MAX: usize = 256;

/// Clients that are counted at a time for `/status`, and the pause before the next: others are
/// served in between.
pub const CENSUS_STEP: usize = 1_024;
/// See [`CENSUS_STEP`].
pub const CENSUS_PAUSE_NS: u64 = 100_000;

/// Groups of clients that a core tells apart for `/status`; the rest is counted as one.
pub const CENSUS_GROUPS_MAX: usize = 8_192;

/// Other proxies of a fleet that clients are shown: more than there are shards to own.
pub const FLEET_MEMBERS_MAX: usize = 256;

/// Clients that are told of changes of the fleet at a time, and those that are looked at for it;
/// the pause before the next.
pub const ANNOUNCE_CLIENTS: usize = 128;
/// See [`ANNOUNCE_CLIENTS`].
pub const ANNOUNCE_STEP: usize = 1_024;
/// See [`ANNOUNCE_CLIENTS`].
pub const ANNOUNCE_PAUSE_NS: u64 = 100_000;

/// Requests of one core that are asked in parts at a time; more go whole.
pub const MULTIGETS_MAX: usize = 4_096;

/// Their parts in flight. They are told apart by a number that travels as a stream id does.
pub const MULTIGET_PARTS_MAX: usize = 16_384;

/// Bytes of all parts of one request: each of them has places for all keys, so that there may be
/// very many more than in the request.
pub const MULTIGET_PARTS_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of one of them, its answers included, while parts are missing: beyond it is sent whole
/// after all.
pub const MULTIGET_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Warnings of the parts of one request in all; with more it is sent whole after all.
pub const MULTIGET_WARNINGS_MAX: usize = 4_096;

/// Bytes of all of them on one core.
pub const MULTIGETS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A statement that had to be sent whole after all goes whole for this long; twice as long with
/// each further time in a row.
pub const MULTIGET_PAUSE_NS: u64 = SECOND_NS;

/// How often that time is doubled at most.
pub const MULTIGET_PAUSE_DOUBLINGS: u32 = 6;

/// Statements of one core of which that is remembered.
pub const MULTIGET_PAUSES_MAX: usize = 1_024;

/// Nodes' agents that a core connects to.
pub const AGENTS_MAX: usize = 1_024;

/// For a connection to an agent and the handshake on it.
pub const AGENT_CONNECT_NS: u64 = 3 * SECOND_NS;

/// A lost agent is tried again after this time first, and after twice the time each time it cannot
/// be reached.
pub const AGENT_BACK_OFF_FIRST_NS: u64 = 50_000_000;

/// No longer than this.
pub const AGENT_BACK_OFF_MAX_NS: u64 = 2 * SECOND_NS;

/// An agent is asked so often whether it is there.
pub const AGENT_PING_NS: u64 = 3 * SECOND_NS;

/// An agent of which nothing has come for so long is taken for lost.
pub const AGENT_SILENCE_NS: u64 = 10 * SECOND_NS;

/// How long links go past an agent through which one did not come about.
pub const AGENT_LINKS_RETRY_NS: u64 = 10 * SECOND_NS;

/// A client with more answers untaken keeps its connection here: it would move slowly, or not at
/// all.
pub const HANDOVER_BACKLOG_BYTES_MAX: usize = 48 << 10;

/// One second in the loop's unit.
pub const SECOND_NS: u64 = 1_000_000_000;

const _: () = {
    assert!(LINK_BACKLOG_BYTES_LOW < LINK_BACKLOG_BYTES_MAX);
    assert!(LINK_RETAINED_BYTES_SWEEP < LINK_RETAINED_BYTES_MAX);
    assert!((HANDSHAKE_BYTES_MAX as usize) < LINK_BACKLOG_BYTES_MAX);
    assert!(HANDSHAKE_BYTES_MAX < REQUEST_BYTES_MAX);
    assert!((REQUEST_BYTES_MAX as usize) * 2 < LINK_RETAINED_BYTES_MAX);
    // Each login has room for one statement at least.
    assert!(PREPARED_TEXT_BYTES_MAX * POOLS_MAX <= PREPARED_BYTES_MAX);
    assert!(SCHEMA_AGREEMENT_NS < SCHEMA_TIMEOUT_NS);
    assert!(LINK_ORPHANS_MAX < STREAMS_PER_CONNECTION_MAX);
    assert!(LINK_SILENCE_PROBE_NS < LINK_SILENCE_MAX_NS);
    assert!(TICK_NS < LINK_SILENCE_PROBE_NS);
    assert!(RECONNECT_FIRST_MS < RECONNECT_MAX_MS);
    assert!(CENSUS_PAUSE_NS < TICK_NS);
    assert!(ANNOUNCE_PAUSE_NS < TICK_NS);
    assert!(ANNOUNCE_CLIENTS <= ANNOUNCE_STEP);
    assert!(
        3 * AGENT_PING_NS < AGENT_SILENCE_NS && AGENT_BACK_OFF_FIRST_NS < AGENT_BACK_OFF_MAX_NS
    );
    assert!(MULTIGETS_MAX <= MULTIGET_PARTS_MAX);
    assert!(MULTIGET_PARTS_MAX < STREAMS_PER_CONNECTION_MAX);
    assert!(MULTIGET_BYTES_MAX < MULTIGETS_BYTES_MAX);
};
