//! A client's way in: admission, OPTIONS, STARTUP, REGISTER.
//!
//! Nothing here runs per query. [`crate::client::login`] handles logins, [`crate::client::closing`]
//! handles closing.

use shunt_reactor::{Accepted, ConnId, Io};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::{AuthResponse, Register, Startup, encode, event};

use crate::client::{Client, Phase, announce, certificate, closing, login};
use crate::control::client::{LOCKS_KEY, LOGIN_KEY, LOGIN_PASSWORD, PROXY_KEY};
use crate::control::state::ClusterState;
use crate::core::{Core, Peer};
use crate::fault::Fault;
use crate::limits;
use crate::link::{PoolKey, pools};
use crate::locks::intake;
use crate::metrics::{Closing, QueryKind, Refusal};
use crate::reply::{self, Answer};
use crate::tenants::placing;

/// The options of a STARTUP message, and the driver and application that it names.
struct StartupOptions<'a> {
    driver: &'a str,
    driver_version: &'a str,
    application: &'a str,
    compression: Option<Algorithm>,
    no_compact: bool,
    /// True if the client asks for a login by password, whatever its certificate.
    asks_for_password: bool,
}

pub(crate) fn accept(core: &mut Core, io: &mut Io, conn: ConnId, origin: &Accepted) {
    core.context.metrics.clients_accepted.add(1);
    let deadline_ns = io.now_ns() + core.context.config.handshake_timeout_ms * 1_000_000;
    let slot = core.clients.insert(conn, origin.local, origin.peer, deadline_ns);
    core.connections.set(conn, Peer::Client(slot));
    if let (Some(session), Some(client)) = (io.session_info(conn), core.clients.get_mut(slot)) {
        client.tls = Some(session.version);
        core.context.metrics.tls_clients.add(1);
    }
    let flow = core.clients.get(slot).and_then(Client::flow);
    if let Some((handover, flow)) = core.handover.as_deref().zip(flow) {
        handover.client_came(flow);
    }
    core.context.metrics.clients.add(1);
    let per_core = core.context.config.clients_max.div_ceil(core.context.config.cores.max(1));
    if core.clients.len() - core.clients.turned_away > per_core {
        let displaced = core.clients.displaced_by(slot, per_core);
        if let Some(displaced) = displaced.filter(|_| !core.context.draining) {
            core.context.metrics.clients_refused.of(Refusal::TooMany).add(1);
            closing::abort(core, io, displaced.slot, Closing::TooMany, DISPLACED);
            return;
        }
        core.context.metrics.clients_refused.of(Refusal::TooMany).add(1);
        if core.context.draining || !core.clients.turn_away(slot, io.now_ns()) {
            // Each client holds a file descriptor that links may need.
            closing::abort(core, io, slot, Closing::TooMany, TOO_MANY);
        }
    } else if core.context.draining {
        core.context.metrics.clients_refused.of(Refusal::Draining).add(1);
        closing::abort(core, io, slot, Closing::Draining, "the proxy is shutting down");
    }
}

/// Error text for clients beyond `clients_max`.
pub(crate) const TOO_MANY: &str =
    "clients_max is reached on this proxy, which takes no more clients";

/// Reason for closing a client that has not logged in, to make room for another one.
const DISPLACED: &str = "clients_max is reached, and its host has the most clients that have not logged in: a client of another host got its place";

/// A request that no node answers: OPTIONS, STARTUP, AUTH_RESPONSE, REGISTER.
pub(crate) fn take_request(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    phase: Phase,
    header: &Header,
    body: &[u8],
) {
    core.context.metrics.queries.of(QueryKind::Other).add(1);
    let stream = header.stream;
    match (phase, header.opcode) {
        (Phase::TurnedAway, _) => {
            if let Some(client) = core.clients.get_mut(slot) {
                // The answer uses the version of its request, so that the client understands it.
                client.version = header.version;
            }
            closing::refuse_for(
                core,
                io,
                slot,
                stream,
                Closing::TooMany,
                &Fault::overloaded(TOO_MANY),
            );
        }
        (phase, opcode::OPTIONS) => {
            if phase == Phase::Ready {
                intake::withdraw_request(core, io, slot, header.flags, body);
            } else if has_asked_enough(core, slot) {
                let max = limits::EARLY_OPTIONS_MAX;
                let why = format!("a client sends OPTIONS at most {max} times before STARTUP");
                closing::refuse(core, io, slot, stream, &Fault::protocol(why));
                return;
            }
            answer_options(core, io, slot, header);
        }
        (Phase::Startup, opcode::STARTUP) => take_startup(core, io, slot, header, body),
        (Phase::Authenticating, opcode::AUTH_RESPONSE) => match AuthResponse::decode(body) {
            Ok(response) => {
                login::take_login(core, io, slot, stream, response.token.unwrap_or_default())
            }
            Err(error) => closing::refuse(core, io, slot, stream, &error.into()),
        },
        (Phase::Ready, opcode::REGISTER) => match Register::decode(body) {
            Ok(register) => answer_register(core, io, slot, stream, &register),
            Err(error) => closing::refuse(core, io, slot, stream, &error.into()),
        },
        (phase, op) => {
            let name = opcode::name(op).unwrap_or("a message with an unknown opcode");
            let why = format!("{name} (0x{op:02x}) is not expected here: {}", expectation(phase));
            closing::refuse(core, io, slot, stream, &Fault::protocol(why));
        }
    }
}

/// Counts an OPTIONS of a client that has not logged in. `true`: these are too many.
fn has_asked_enough(core: &mut Core, slot: u32) -> bool {
    let Some(client) = core.clients.get_mut(slot) else { return true };
    client.early_options = client.early_options.saturating_add(1);
    client.early_options > limits::EARLY_OPTIONS_MAX
}

fn answer_options(core: &mut Core, io: &mut Io, slot: u32, header: &Header) {
    let Some(cluster) = core.router.cluster.clone() else { return };
    let versions = ["3/v3", "4/v4", "5/v5"];
    let versions = &versions[..usize::from(cluster.protocol_version_max.clamp(3, 5)) - 2];
    let compressions: Vec<&str> =
        ["lz4", "snappy"].into_iter().filter(|name| offers(&cluster, name)).collect();
    let cql_version = [cluster.cql_version.as_str()];
    let mut body = std::mem::take(&mut core.scratch.message);
    body.clear();
    let options: [(&str, &[&str]); 5] = [
        ("CQL_VERSION", &cql_version),
        ("COMPRESSION", &compressions),
        ("PROTOCOL_VERSIONS", versions),
        (PROXY_KEY, &[env!("CARGO_PKG_VERSION")]),
        (LOCKS_KEY, &["v1"]),
    ];
    let keeps_locks = core.context.config.fleet.is_some();
    let options = options.into_iter().filter(|(key, _)| *key != LOCKS_KEY || keeps_locks);
    encode::supported(&mut body, options.map(|(key, values)| (key, values.iter().copied())));
    reply::message_in(
        core,
        io,
        slot,
        header.version,
        &Answer::plain(opcode::SUPPORTED, header.stream, &body),
    );
    core.scratch.message = body;
}

fn take_startup(core: &mut Core, io: &mut Io, slot: u32, header: &Header, body: &[u8]) {
    let options = match startup_options(body, header.version) {
        Ok(options) => options,
        Err(why) => {
            closing::refuse(core, io, slot, header.stream, &Fault::protocol(why));
            return;
        }
    };
    let Some(cluster) = core.router.cluster.clone() else { return };
    // v5 compresses hop by hop; with older versions the nodes must understand what clients send.
    if let Some(name) = options.compression.map(Algorithm::name).filter(|_| header.version < 5)
        && !offers(&cluster, name)
    {
        let why = format!("the nodes do not take {name} compression");
        closing::refuse(core, io, slot, header.stream, &Fault::protocol(why));
        return;
    }
    let driver =
        core.clients.drivers.named(options.driver, options.driver_version, options.application);
    let Some(client) = core.clients.get_mut(slot) else { return };
    client.version = header.version;
    client.driver = driver;
    client.no_compact = options.no_compact;
    if header.version >= 5 {
        client.lz4 = options.compression.is_some();
        client.writer = SegmentWriter::new(client.lz4);
    } else {
        client.compression = options.compression;
    }
    if certificate::take_startup(core, io, slot, header.stream, options.asks_for_password) {
        return;
    }
    let login_asked = core.router.login_asked.clone();
    if let Some(class) = cluster.authenticator.as_ref().or(login_asked.as_ref()) {
        let Some(client) = core.clients.get_mut(slot) else { return };
        client.phase = Phase::Authenticating;
        let mut body = Vec::new();
        encode::authenticate(&mut body, class);
        reply::message(core, io, slot, opcode::AUTHENTICATE, header.stream, &body);
    } else {
        let Some(client) = core.clients.get(slot) else { return };
        let key = PoolKey {
            login: None,
            identity: None,
            certificate: None,
            version: client.version,
            keyspace: None,
            compression: client.compression,
            no_compact: client.no_compact,
            is_own: false,
        };
        let pool = match pools::for_key(core, io, &key, 0) {
            Ok(pool) => pool,
            Err(shortage) => {
                closing::refuse_pool(core, io, slot, header.stream, shortage);
                return;
            }
        };
        pools::join(core, io, slot, pool);
        if let Err(fault) = placing::admit(core, io, slot, pool) {
            core.context.metrics.clients_refused.of(Refusal::Tenant).add(1);
            closing::refuse_for(core, io, slot, header.stream, Closing::Tenant, &fault);
            return;
        }
        reply::message(core, io, slot, opcode::READY, header.stream, &[]);
        core.clients.is_ready(slot);
    }
    if let Some(client) = core.clients.get_mut(slot) {
        client.segmented = client.version >= 5;
    }
}

/// Registers a client for events. The proxy itself keeps the register: links never register, the
/// control connection sees all events.
fn answer_register(core: &mut Core, io: &mut Io, slot: u32, stream: i16, register: &Register<'_>) {
    let Some(client) = core.clients.get(slot) else { return };
    let (mut registered, mut unknown) = (client.registered, None);
    for kind in register.events.iter() {
        match kind {
            event::SCHEMA_CHANGE => registered.schema = true,
            event::TOPOLOGY_CHANGE => registered.topology = true,
            event::STATUS_CHANGE => registered.status = true,
            other => unknown = Some(other),
        }
    }
    announce::register(core, io, slot, registered);
    match unknown {
        None => reply::message(core, io, slot, opcode::READY, stream, &[]),
        Some(other) => {
            let why = format!("Invalid value '{other}' for Type");
            closing::refuse(core, io, slot, stream, &Fault::protocol(why));
        }
    }
}

/// True if the nodes support this compression.
fn offers(cluster: &ClusterState, name: &str) -> bool {
    cluster.compressions.iter().any(|offered| offered.eq_ignore_ascii_case(name))
}

fn expectation(phase: Phase) -> &'static str {
    match phase {
        Phase::Startup => "a connection begins with OPTIONS or STARTUP",
        Phase::Authenticating => "AUTH_RESPONSE must answer AUTHENTICATE",
        Phase::Ready => "the connection is established and takes queries",
        Phase::TurnedAway => "there is no room for this client",
    }
}

fn startup_options(body: &[u8], version: u8) -> Result<StartupOptions<'_>, String> {
    let startup = Startup::decode(body).map_err(|error| error.to_string())?;
    let mut options = StartupOptions {
        driver: "",
        driver_version: "",
        application: "",
        compression: None,
        no_compact: false,
        asks_for_password: false,
    };
    let mut cql_version = false;
    for (key, value) in startup.options.iter() {
        // Nodes read the option names without regard to case.
        match key.to_ascii_uppercase().as_str() {
            "CQL_VERSION" => cql_version = true,
            "COMPRESSION" => {
                options.compression = match value.to_ascii_lowercase().as_str() {
                    "lz4" => Some(Algorithm::Lz4),
                    "snappy" if version < 5 => Some(Algorithm::Snappy),
                    "" | "none" => None,
                    other => return Err(format!("Unknown compression algorithm: {other}")),
                }
            }
            "DRIVER_NAME" => options.driver = value,
            "DRIVER_VERSION" => options.driver_version = value,
            "APPLICATION_NAME" => options.application = value,
            LOGIN_KEY => options.asks_for_password = value == LOGIN_PASSWORD,
            "NO_COMPACT" => options.no_compact = value.eq_ignore_ascii_case("true"),
            _ => {}
        }
    }
    if !cql_version {
        return Err("Missing value CQL_VERSION in STARTUP message".to_owned());
    }
    Ok(options)
}
