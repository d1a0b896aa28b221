//! Every bound of the data path in one place; the compiler checks the relations between them.
//!
//! The bounds that an operator may set live in [`crate::config::Config`]; the figures here bound
//! what no operator should have to think about. Nothing on the data path grows beyond one of these.

mod reports;

pub use reports::*;

/// Stream ids of one connection (native protocol v3 to v5, section 2.3: non-negative 16-bit
/// numbers).
pub const STREAMS_PER_CONNECTION_MAX: usize = 32_768;

/// Bytes written to a link and not yet taken by the kernel beyond which the link counts as full.
pub const LINK_BACKLOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Longest wait for the fleet's row before the core has a member.
pub const FLEET_READ_NS: u64 = 3 * SECOND_NS;

/// Pause before the next membership after one that failed or ended.
pub const FLEET_RETRY_NS: u64 = 2 * SECOND_NS;

/// Backlog at which a full link takes queries again.
pub const LINK_BACKLOG_BYTES_LOW: usize = LINK_BACKLOG_BYTES_MAX / 4;

/// Request bytes kept for retries beyond which a link counts as full.
pub const LINK_RETAINED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One part of this many of a link's streams and bytes is a reserve: clients that have their equal
/// part leave it to others.
pub const LINK_RESERVE_PARTS: usize = 8;

/// Request bytes kept for retries from which a link is crowded: one more request of any size leaves
/// the reserve.
pub const LINK_RETAINED_BYTES_CROWDED: usize =
    LINK_RETAINED_BYTES_AGAIN - REQUEST_BYTES_MAX as usize;

/// Request bytes kept for retries at which a full link takes queries again. A crowded link may
/// reach so many with one large request, and is full while that one is being sent; then the clients
/// below their part go on.
pub const LINK_RETAINED_BYTES_AGAIN: usize =
    LINK_RETAINED_BYTES_MAX / LINK_RESERVE_PARTS * (LINK_RESERVE_PARTS - 1);

/// Ticks after its last request for which a client still counts among those that want a link.
pub const SHARE_WANTED_TICKS: u32 = 4;

/// Ticks for which a link keeps the table of its clients after it was crowded.
pub const SHARE_KEPT_TICKS: u32 = 40;

/// Retained bytes from which the sweep copies old requests out of the sent log, so that a few slow
/// queries do not hold the buffers of thousands of answered ones.
pub const LINK_RETAINED_BYTES_SWEEP: usize = LINK_RETAINED_BYTES_MAX / 4;

/// Least number of unanswered queries on a link for which a frame waits: fewer are not worth the
/// wait.
pub const FRAME_GATHER_UNANSWERED_MIN: usize = 8;

/// Number of queries at which a frame waits no longer: its fixed cost at the node is spread well
/// enough.
pub const FRAME_GATHERED_MAX: usize = 64;

/// Room for a fragmented message that a link keeps between messages; a larger message's extra room
/// is freed.
pub const CARRY_KEPT_BYTES: usize = 256 * 1024;

/// Reply bytes a client may leave untaken before the proxy closes it. Reading from it stops much
/// earlier (`client_backlog_bytes`); the rest is replies to queries already in flight.
pub const CLIENT_BACKLOG_BYTES_HARD: usize = 512 * 1024 * 1024;

/// Largest request body taken from a client: `native_transport_max_frame_size` of Cassandra 4 and 5
/// (16 MiB).
pub const REQUEST_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// Clients of a core beyond `clients_max` that the core keeps until it can tell them so: at a time,
/// and among those that come within [`TURNED_AWAY_NS`]. More are reset, because each holds a file
/// descriptor.
pub const TURNED_AWAY_MAX: usize = 64;

/// Time that a core keeps them: a driver sends its first request at once.
pub const TURNED_AWAY_NS: u64 = 1_000_000_000;

/// Largest body of a client that has not logged in: a STARTUP or AUTH_RESPONSE is small.
pub const HANDSHAKE_BYTES_MAX: u32 = 64 * 1024;

/// One part of this many of the bytes that all clients of a core may leave lying is for those that
/// have not logged in, whatever the others have. They also have what the others leave.
pub const BEFORE_LOGIN_PARTS: usize = 16;

/// Longest SASL token of a login: the proxy hashes it for each client that sends it, and keeps it
/// with each pool. PLAIN has two names and a password, of 255 bytes each where servers take no more
/// than they must (RFC 4616). Web tokens (JWT) that stand for a password are the longest that fit a
/// single step: web servers take 8 KiB of headers or less. Kerberos has tokens of up to 64 KiB, but
/// several steps, which shared links cannot repeat.
pub const LOGIN_BYTES_MAX: usize = 16 * 1024;

/// Statements remembered for all clients together. Beyond this number the role with the most
/// statements loses one; UNPREPARED answers its next EXECUTE, and drivers repair that.
pub const PREPARED_STATEMENTS_MAX: usize = 65_536;

/// Bytes of all remembered statements.
pub const PREPARED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Longest statement whose text the proxy remembers: it does not prepare a longer one again on
/// nodes that forget it.
pub const PREPARED_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Bind markers of a prepared statement that the proxy looks at. A request has at most so many
/// values (native protocol, section 4.1.4).
pub const MARKERS_MAX: usize = 65_535;

/// Columns of a partition key by which the proxy routes a prepared statement, as one in text.
pub const KEY_MARKERS_MAX: usize = 32;

/// Bytes of an ERROR and of an answer to PREPARE, once decompressed: the proxy reads these answers,
/// and a node may send a thousandth of the bytes that it claims.
pub const ERROR_BYTES_MAX: u32 = 1024 * 1024;
/// See [`ERROR_BYTES_MAX`].
pub const PREPARED_ANSWER_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// Pools of one core: one per (role, protocol version, keyspace, compression) in use.
pub const POOLS_MAX: usize = 1_024;

/// Pools of one core that one role may have, whatever its logins look like. A ring without logins
/// has no roles.
pub const POOLS_OF_ROLE_MAX: usize = POOLS_MAX / 2;

/// Pools of one core whose login no node has accepted: a client that guesses passwords must leave
/// room for others.
pub const POOLS_UNVERIFIED_MAX: usize = POOLS_MAX * 3 / 8;

/// Such pools with logins of one name, which anybody may claim.
pub const POOLS_UNVERIFIED_OF_ROLE_MAX: usize = POOLS_UNVERIFIED_MAX / 2;

/// Such pools that clients of one host have made. Their further logins wait for room.
pub const POOLS_UNVERIFIED_OF_HOST_MAX: usize = 32;

/// Nodes that operators take out of routing, in all; those that have left the ring make room.
pub const DRAINED_NODES_MAX: usize = 1_024;

/// Logins in line for such a pool that a core tries to begin when one has ended.
pub const LOGINS_RESUMED: usize = 16;
/// The same with each tick.
pub const LOGINS_RESUMED_BY_TICK: usize = 1_024;

/// Longest name of a keyspace in USE. The name becomes the key of a pool and travels on each of its
/// links; Cassandra's names have at most 48 characters.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 256;

/// Links of one core that open at a time under logins of clients: each costs its node a password
/// hash. One role has half of them. Logins that no node has accepted have half of them in all, a
/// quarter with one name, and an eighth from one host.
pub const LOGINS_MAX: usize = 256;

/// Links that a core opens in one turn of its loop, beside those that verify logins, and as many
/// again for pools that have waited; the next ones wait for another turn.
pub const OPENINGS_TURN_MAX: usize = 64;

/// Links without TLS that a link with TLS counts for: its handshake runs in the loop, and takes
/// about a millisecond.
pub const TLS_OPENING_WEIGHT: usize = 16;

/// Time for which [`OPENINGS_TURN_MAX`] holds with TLS to nodes; without, it is a turn.
pub const TLS_OPENINGS_NS: u64 = 10_000_000;

/// Links with TLS that a core opens between two ticks to verify logins that no node has accepted,
/// whose handshakes take an eighth of its time; a quarter of them for clients of one host. The next
/// ones wait.
pub const TLS_GUESSES_TICK_MAX: usize = 32;

/// Nodes that a core looks at in one turn to find missing links; the pool in hand looks at all.
pub const OPENING_LOOKS_TURN_MAX: usize = 16_384;

/// Pause before a turn that opens the next links, in which the core serves clients.
pub const OPENINGS_PAUSE_NS: u64 = 1_000_000;

/// Idle time after which a pool closes its links.
pub const POOL_IDLE_NS: u64 = 120 * SECOND_NS;

/// Requests on a core that wait for a repair (PREPARE again, schema agreement, link not open yet).
pub const REPAIRS_MAX: usize = 16_384;

/// Bytes of the requests that wait for a PREPARE, with the texts of their statements.
pub const REPAIRS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of such requests of one client; a larger request may wait alone.
pub const REPAIRS_CLIENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Times the proxy may repair one request by preparing again on one node: a BATCH may name many
/// statements. Below this bound, one more time than the number of statements is allowed.
pub const REPREPARES_PER_REQUEST_MAX: u8 = 64;

/// A request is heavy if it takes as long to read as a text of this many bytes.
pub const HEAVY_BYTES_MIN: usize = 64 * 1024;

/// A compressed body that holds at least this many bytes, and [`AMPLIFIED_TIMES`] its own, counts
/// as what it holds in a turn. Texts compress to a third or less of their bytes, and rarely to an
/// eighth.
pub const AMPLIFIED_BYTES_MIN: usize = 1024;
/// See [`AMPLIFIED_BYTES_MIN`].
pub const AMPLIFIED_TIMES: usize = 8;

/// Requests of a client that the proxy answers itself, after which the client must have room in the
/// turn for as many bytes as one heavy request has.
pub const ANSWERED_AT_ONCE: u32 = 64;

/// OPTIONS that a client may send before it has logged in. Drivers send one.
pub const EARLY_OPTIONS_MAX: u8 = 8;

/// Bytes of heavy requests that a core reads in one turn of its loop; it reads a larger request
/// alone.
pub const HEAVY_TURN_BYTES_MAX: usize = 1024 * 1024;

/// Interval between checks of deadlines, heartbeats and reconnects.
pub const TICK_NS: u64 = 250_000_000;
/// A loop that has not ticked for this long was paused, and does not know what has happened
/// meanwhile.
pub const STILL_NS: u64 = SECOND_NS;

/// Time that one node has alone to check a login, at most a quarter of `connect_timeout_ms`; then
/// the proxy asks another node as well.
pub const LOGIN_PATIENCE_NS: u64 = SECOND_NS;

/// Silence after which the proxy probes, with OPTIONS, a link with queries outstanding.
pub const LINK_SILENCE_PROBE_NS: u64 = SECOND_NS;

/// Least `node_silence_ms`: a probed node has a second for its answer.
pub const NODE_SILENCE_MS_MIN: u64 = 2_000;

/// Longest time between the first and the last byte of one request, before the proxy closes the
/// client (slow loris).
pub const REQUEST_READ_NS: u64 = 60 * SECOND_NS;

/// Time after which the proxy closes a client that takes none of the replies for which it is held
/// back.
pub const REPLIES_UNTAKEN_NS: u64 = 60 * SECOND_NS;

/// Longest wait of a schema change for agreement before its answer is passed on regardless.
pub const SCHEMA_AGREEMENT_NS: u64 = 12 * SECOND_NS;

/// Deadline of schema changes and TRUNCATE, unless that of other queries is longer: nodes wait for
/// one another.
pub const SCHEMA_TIMEOUT_NS: u64 = 60 * SECOND_NS;

/// First pause between attempts to reach a node.
pub const RECONNECT_FIRST_MS: u64 = 100;
/// Longest such pause.
pub const RECONNECT_MAX_MS: u64 = 10_000;

/// Interval between checks whether a node, whose ordinary port carries queries, offers aggregated
/// frames.
pub const OFFER_CHECK_NS: u64 = 10 * SECOND_NS;

/// First pause between attempts to use a port for aggregated frames that failed.
pub const UPGRADE_RETRY_FIRST_NS: u64 = SECOND_NS;
/// Longest such pause.
pub const UPGRADE_RETRY_MAX_NS: u64 = 300 * SECOND_NS;

/// Timed-out queries whose stream ids a link may hold before the proxy gives it up as sick.
pub const LINK_ORPHANS_MAX: usize = 8_192;

/// Time after the deadline of a query at which it counts as lost; the link is then replaced.
pub const ORPHAN_AGE_MAX_NS: u64 = 60 * SECOND_NS;

/// Bound on a node's recent "I cannot serve" errors, counted as queries in flight. A quarter of
/// them expires with each tick.
pub const NODE_PENALTY_MAX: u32 = 4_096;

/// One of this many nodes that take queries may be ejected at a time.
pub const OUTLIER_PART: usize = 3;
/// Fewest queries in an interval by which a core judges a node.
pub const OUTLIER_QUERIES_MIN: u64 = 20;
/// Least difference from the other nodes' median that makes a node slow: between racks, small times
/// differ by large factors.
pub const OUTLIER_EXCESS_NS: u64 = 5_000_000;
/// Longest hold of an ejected node, as a multiple of `outlier_hold_ms`.
pub const OUTLIER_HOLDS_MAX: u32 = 10;
/// First share of a node that starts slowly, of 255.
pub const SLOW_START_SHARE: u8 = 26;

/// Reads that a core watches at most; others are not hedged.
pub const HEDGE_WATCHED_MAX: usize = 16_384;
/// Longest request that is sent to a second node.
pub const HEDGE_REQUEST_BYTES_MAX: usize = 16 << 10;
/// Second reads that a core may save up for a burst.
pub const HEDGE_BURST: u64 = 32;
/// Shortest time between two looks at the watched reads.
pub const HEDGE_LOOK_NS: u64 = 500_000;
/// With `hedge = "p99"`, the time after which a read is late: at first, and its bounds.
pub const HEDGE_FIRST_NS: u64 = 50_000_000;
/// See [`HEDGE_FIRST_NS`].
pub const HEDGE_LATE_MIN_NS: u64 = 500_000;
/// See [`HEDGE_FIRST_NS`].
pub const HEDGE_LATE_MAX_NS: u64 = SECOND_NS;

/// Lines about failed logins that a core writes in a second; a quarter of them about one client's
/// host. One role of one host has one.
pub const LOGIN_FAILURE_LINES_PER_SECOND: usize = 16;

/// Failed logins, by role, host and reason, that a core records for the admin pages.
pub const REFUSED_LOGINS_MAX: usize = 256;

/// Roles and hosts with failed logins that a core tells apart.
pub const LOGIN_FAILURES_MAX: usize = 1_024;

/// Interval between log lines of one kind that clients can cause.
pub const LOG_INTERVAL_NS: u64 = SECOND_NS;

/// Identities (`[[identity]]` of the configuration).
pub const IDENTITIES_MAX: usize = 256;

/// Tenants (`[[tenant]]` of the configuration).
pub const TENANTS_MAX: usize = 256;
/// Longest name of a tenant, bytes.
pub const TENANT_NAME_BYTES_MAX: usize = 64;
/// Longest text that a tenant matches, bytes.
pub const TENANT_TEXT_BYTES_MAX: usize = 1_024;
/// Values for one property that a tenant matches.
pub const TENANT_VALUES_MAX: usize = 64;
/// Highest rate and burst of a tenant, queries.
pub const TENANT_QUERIES_PER_SECOND_MAX: u64 = 1_000_000_000;
/// Highest rate of a tenant, bytes.
pub const TENANT_BYTES_PER_SECOND_MAX: u64 = 1_000_000_000_000;
/// Highest bound of a tenant's queries in flight.
pub const TENANT_IN_FLIGHT_MAX: u32 = 1_000_000_000;
/// Highest bound of a tenant's clients.
pub const TENANT_CLIENTS_MAX: u32 = 1_000_000_000;
/// Slices of a tenant's rate that the cores take together in a second.
pub const TENANT_SLICES_PER_SECOND: u64 = 16;
/// Interval at which a core looks for room that a query of another core has left.
pub const TENANT_LOOK_NS: u64 = 10_000_000;

/// Rules (`[[rule]]` of the configuration).
pub const RULES_MAX: usize = 256;
/// Longest name of a rule, bytes.
pub const RULE_NAME_BYTES_MAX: usize = 64;
/// Longest words of a rule for a client, bytes.
pub const RULE_WORDS_BYTES_MAX: usize = 512;
/// Highest rate of a rule, statements.
pub const RULE_QUERIES_PER_SECOND_MAX: u64 = 1_000_000_000;
/// Different tags of rules since the start, whatever reloads came between.
pub const RULE_TAGS_MAX: usize = 1_024;
/// Texts whose rules a core remembers.
pub const RULE_TEXTS_MAX: usize = 1_024;
/// Tables of one text that a core compares with its rules.
pub const RULE_TABLES_READ_MAX: usize = 256;

/// Longest text of an identity, bytes. Names of certificates beyond it are left out.
pub const IDENTITY_NAME_BYTES_MAX: usize = 1_024;

/// Largest file with an identity's password, bytes.
pub const PASSWORD_FILE_BYTES_MAX: u64 = 8 * 1024;

/// Longest role, keyspace or driver as logs and `/status` show it, bytes.
pub const NAME_SHOWN_BYTES_MAX: usize = 64;

/// Longest reason in a log line, bytes: an error may quote what a client or a node said.
pub const REASON_SHOWN_BYTES_MAX: usize = 256;

/// Drivers of which a core keeps one shared copy for all their clients.
pub const DRIVERS_MAX: usize = 256;

/// Clients that the core counts in one step for `/status`; it serves others in between.
pub const CENSUS_STEP: usize = 1_024;
/// Pause between steps of a count.
pub const CENSUS_PAUSE_NS: u64 = 100_000;

/// Clients that the core looks at in one step when it closes those that an operator has named.
/// Closing one takes longer than counting it.
pub const EVICTION_STEP: usize = 128;
/// Time for which an eviction waits for connections that are away at agents. It is shorter than the
/// time in which an operator's request is answered.
pub const EVICTION_AWAY_NS: u64 = 1_000_000_000;
/// Pause between checks whether they are back.
pub const EVICTION_AWAY_PAUSE_NS: u64 = 5_000_000;

/// Clients that the core looks at in one step when a reload has changed their identities.
pub const REVIEW_STEP: usize = 128;

/// Clients that the core looks at in one step when a proxy that drains closes them.
pub const DEPARTURE_STEP: usize = 128;
/// Pause between such steps.
pub const DEPARTURE_PAUSE_NS: u64 = 5_000_000;

/// Places that the core looks at in one step when it lists its clients, links and pools.
pub const CONNECTION_LIST_STEP: usize = 256;
/// Clients in a list: of each core, and then of all cores together.
pub const LISTED_CLIENTS_MAX: usize = 4_096;
/// Links in a list: of each core, and then of all cores together.
pub const LISTED_LINKS_MAX: usize = 4_096;

/// Groups of clients that a core tells apart for `/status`; the rest counts as one.
pub const CENSUS_GROUPS_MAX: usize = 8_192;

/// Groups whose departed clients a core remembers, less than 1 KiB each.
pub const DEPARTED_GROUPS_MAX: usize = 1_024;

/// Time for which a core remembers a group without clients.
pub const DEPARTED_GROUP_NS: u64 = 900 * SECOND_NS;

/// Groups that a core replaces by others in each second. Each replacement searches all groups.
pub const DEPARTED_CHANGES_PER_SECOND: u32 = 32;

/// Other proxies of a fleet that clients see: more than the number of shards to own.
pub const FLEET_MEMBERS_MAX: usize = 256;

/// Changes of the schema that registered clients of a core have yet to hear of. Beyond this number,
/// clients miss the oldest ones.
pub const SCHEMA_EVENTS_MAX: usize = 1_024;

/// Pause between two such changes: a node that sends many fills no client's buffer within a moment.
pub const SCHEMA_EVENT_PAUSE_NS: u64 = 1_000_000;

/// Clients that one step tells of changes of the fleet or the schema.
pub const ANNOUNCE_CLIENTS: usize = 128;
/// Clients that one such step looks at.
pub const ANNOUNCE_STEP: usize = 1_024;
/// Pause between such steps.
pub const ANNOUNCE_PAUSE_NS: u64 = 100_000;

/// Requests of one core that are split at a time; more go whole.
pub const MULTIGETS_MAX: usize = 4_096;

/// Parts in flight of all split requests. The number that tells them apart travels as a stream id
/// does.
pub const MULTIGET_PARTS_MAX: usize = 16_384;

/// Bytes of the parts that one turn writes, and number of these parts; more requests of the turn go
/// whole. A request of a hundred keys has a hundred parts, each nearly as large as the request.
pub const MULTIGET_TURN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Parts that one turn writes.
pub const MULTIGET_TURN_PARTS_MAX: usize = MULTIGET_PARTS_MAX / 2;

/// Values in the answer to a read of the proxies of a fleet, `system.peers`: their number times
/// that of the columns, which a text may name any number of times.
pub const PEERS_VALUES_MAX: usize = 65_536;

/// Bytes of all parts of one request: each part has places for all keys, so that the sum may be far
/// larger than the request.
pub const MULTIGET_PARTS_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of one split request, its answers included, while parts are missing; beyond this bound the
/// request goes whole after all.
pub const MULTIGET_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Warnings of all parts of one request; with more the request goes whole after all.
pub const MULTIGET_WARNINGS_MAX: usize = 4_096;

/// Bytes of all split requests on one core.
pub const MULTIGETS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Time for which a statement goes whole after it had to be sent whole; doubled with each further
/// time in a row.
pub const MULTIGET_PAUSE_NS: u64 = SECOND_NS;

/// Most doublings of that time.
pub const MULTIGET_PAUSE_DOUBLINGS: u32 = 6;

/// Statements of one core with such a pause.
pub const MULTIGET_PAUSES_MAX: usize = 1_024;

/// Nodes' agents that a core connects to.
pub const AGENTS_MAX: usize = 1_024;

/// Deadline of a connection to an agent and the handshake on it.
pub const AGENT_CONNECT_NS: u64 = 3 * SECOND_NS;

/// First pause before a lost agent is tried again; it doubles with each failure.
pub const AGENT_BACK_OFF_FIRST_NS: u64 = 50_000_000;

/// Longest such pause.
pub const AGENT_BACK_OFF_MAX_NS: u64 = 2 * SECOND_NS;

/// Interval between probes of an agent.
pub const AGENT_PING_NS: u64 = 3 * SECOND_NS;

/// Silence after which an agent counts as lost.
pub const AGENT_SILENCE_NS: u64 = 10 * SECOND_NS;

/// Time for which links bypass an agent after a link through it failed to open.
pub const AGENT_LINKS_RETRY_NS: u64 = 10 * SECOND_NS;

/// Untaken answers beyond which a client's connection stays here: it would move slowly, or not at
/// all.
pub const HANDOVER_BACKLOG_BYTES_MAX: usize = 48 << 10;

/// Least interval between a core's questions to a node for its time.
pub const CLOCK_ASK_NS: u64 = 5 * SECOND_NS;

/// Nodes that a core asks for their time within [`CLOCK_ASK_NS`], one after the other in turn.
pub const CLOCK_ASKED_MAX: usize = 5;

/// Time for which a node's answer counts: clocks that differ by 1 % in their rates drift apart by
/// 0.6 s meanwhile.
pub const CLOCK_KEPT_NS: u64 = 60 * SECOND_NS;

/// Round trip beyond which a node's answer proves only that the node is no further behind.
pub const CLOCK_ROUND_TRIP_MAX_NS: u64 = SECOND_NS;

/// Longest pause before a node that has not answered is asked for its time again. With the longest
/// `query_timeout_ms`, a day, 288 of its questions are open at most.
pub const CLOCK_PAUSE_MAX_NS: u64 = 300 * SECOND_NS;

/// Nodes of which a core keeps an answer.
pub const CLOCK_NODES_MAX: usize = 64;

/// A proxy whose clock is further behind the nodes' median decides no transaction that writes,
/// microseconds.
pub const CLOCK_BEHIND_MAX_US: i64 = 1_000_000;

/// One second in the loop's unit.
pub const SECOND_NS: u64 = 1_000_000_000;

const _: () = {
    assert!(LINK_BACKLOG_BYTES_LOW < LINK_BACKLOG_BYTES_MAX);
    assert!(LINK_RETAINED_BYTES_SWEEP < LINK_RETAINED_BYTES_MAX);
    // A client's bytes on one link fit 32 bits.
    assert!(LINK_RETAINED_BYTES_MAX + (REQUEST_BYTES_MAX as usize) < u32::MAX as usize);
    assert!(
        LINK_BACKLOG_BYTES_LOW
            < LINK_BACKLOG_BYTES_MAX - LINK_BACKLOG_BYTES_MAX / LINK_RESERVE_PARTS
    );
    // A link that has room again is not full at once.
    assert!(LINK_RETAINED_BYTES_AGAIN < LINK_RETAINED_BYTES_MAX);
    assert!(SHARE_WANTED_TICKS < SHARE_KEPT_TICKS);
    assert!((HANDSHAKE_BYTES_MAX as usize) < LINK_BACKLOG_BYTES_MAX);
    assert!(HANDSHAKE_BYTES_MAX < REQUEST_BYTES_MAX);
    assert!(LOGIN_BYTES_MAX < HANDSHAKE_BYTES_MAX as usize);
    // Members of a fleet take the logins of one another's identities.
    assert!(IDENTITY_NAME_BYTES_MAX + PASSWORD_FILE_BYTES_MAX as usize + 2 <= LOGIN_BYTES_MAX);
    assert!((REQUEST_BYTES_MAX as usize) * 2 < LINK_RETAINED_BYTES_MAX);
    // Each login has room for one statement at least.
    assert!(PREPARED_TEXT_BYTES_MAX * POOLS_MAX <= PREPARED_BYTES_MAX);
    // A role with its share that guesses passwords too leaves others room.
    assert!(POOLS_OF_ROLE_MAX + POOLS_UNVERIFIED_MAX < POOLS_MAX);
    assert!(POOLS_UNVERIFIED_OF_ROLE_MAX < POOLS_OF_ROLE_MAX);
    assert!(POOLS_UNVERIFIED_OF_HOST_MAX < POOLS_UNVERIFIED_OF_ROLE_MAX);
    // The first clients of all identities may come at once.
    assert!(IDENTITIES_MAX <= POOLS_UNVERIFIED_MAX);
    assert!(SCHEMA_AGREEMENT_NS < SCHEMA_TIMEOUT_NS);
    assert!(LINK_ORPHANS_MAX < STREAMS_PER_CONNECTION_MAX);
    assert!(LINK_SILENCE_PROBE_NS + SECOND_NS <= NODE_SILENCE_MS_MIN * 1_000_000);
    assert!(TICK_NS < LINK_SILENCE_PROBE_NS);
    assert!(TLS_OPENING_WEIGHT < OPENINGS_TURN_MAX && TLS_OPENINGS_NS < TICK_NS);
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
    assert!(4 * CLOCK_ASK_NS < CLOCK_KEPT_NS && CLOCK_ASKED_MAX < CLOCK_NODES_MAX);
    assert!(CLOCK_ROUND_TRIP_MAX_NS < CLOCK_ASK_NS);
};
