//! The handshake of a link: OPTIONS, STARTUP, the pool's login, the identity of the node
//! ([`super::identity`]), USE of the pool's keyspace; each step follows the answer to the one
//! before (section 3 and 4 of the specifications).

use shunt_reactor::Io;
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::{
    Authenticate, Consistency, encode, error_code, split_response_prefix,
};

use crate::client::login;
use crate::core::Core;
use crate::fault::{NodeError, is_not_looked_up};
use crate::handover::policy;
use crate::ids::{LinkKey, PoolId};
use crate::limits;
use crate::link::links::Links;
use crate::link::{
    LinkWriter, Role, Step, Verdict, closing, identity, lifecycle, open, renewal, upgrade,
};
use crate::log_limits::Logged;
use crate::metrics::GivenUp;

/// Handles an open connection.
pub(crate) fn connected(core: &mut Core, io: &mut Io, key: LinkKey) {
    if !policy::connected(core, key) {
        begin(core, io, key);
    }
}

/// Starts the handshake with the node itself: asks for its options.
pub(crate) fn begin(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get_mut(key) else { return };
    link.step = Step::Options;
    link.last_received_ns = io.now_ns();
    open::write_handshake(&mut core.links, io, key, opcode::OPTIONS, &[]);
}

/// Handles the answer to the last step.
pub(crate) fn answered(core: &mut Core, io: &mut Io, key: LinkKey, header: &Header, body: &[u8]) {
    let Some(link) = core.links.get(key) else { return };
    if link.step == Step::Options && link.via.is_none() {
        core.context.count_handshake(io, core.context.outgoing.nodes.as_deref(), link.conn);
    }
    match (link.step, header.opcode) {
        (Step::Options, opcode::SUPPORTED) => send_startup(core, io, key, body),
        (Step::Startup, opcode::READY) => {
            switch_framing(core, key);
            take_ready(core, io, key);
        }
        (Step::Startup, opcode::AUTHENTICATE) => {
            switch_framing(core, key);
            send_login(core, io, key, header, body);
        }
        (Step::Login, opcode::AUTH_SUCCESS) => identity::ask(core, io, key),
        (Step::Identity, opcode::RESULT | opcode::ERROR) => {
            identity::take(core, io, key, header, body)
        }
        (Step::Login, opcode::AUTH_CHALLENGE) => {
            let why = "the node's login takes several steps, which this proxy cannot repeat for its shared links";
            refuse_login(core, io, key, why);
        }
        (Step::Use, opcode::RESULT) => lifecycle::ready(core, io, key),
        (step @ (Step::Login | Step::Use), opcode::ERROR) => {
            let mut plain = Vec::new();
            match plain_error(&core.links, key, header, body, &mut plain) {
                Some(error) if is_no_verdict(error) => {
                    turned_away(
                        core,
                        io,
                        key,
                        "it cannot tell whether a login or keyspace is right",
                        None,
                    );
                }
                Some(error) => step_refused(core, io, key, step == Step::Login, error),
                None => lifecycle::fault(
                    core,
                    io,
                    key,
                    &format!("the body of its ERROR in {step:?} is malformed"),
                ),
            }
        }
        (Step::Options | Step::Startup, opcode::ERROR) if is_protocol_error(header, body) => {
            options_refused(core, io, key);
        }
        (step, op) => {
            let name = opcode::name(op).unwrap_or("an unknown message");
            lifecycle::fault(core, io, key, &format!("{name} is no answer to {step:?}"));
        }
    }
}

fn send_startup(core: &mut Core, io: &mut Io, key: LinkKey, supported: &[u8]) {
    let offer = match upgrade::read_offer(core, io, key, supported) {
        Ok(offer) => offer,
        Err(why) => {
            lifecycle::fault(core, io, key, &why);
            return;
        }
    };
    let is_ordinary = upgrade::is_at_ordinary_port(core, key);
    let Some(link) = core.links.get_mut(key) else { return };
    let Some(pool) = core.router.pools.get(link.pool) else { return };
    if offer.is_some() {
        // Aggregated frames exist on v4 connections; their contents have the clients' version.
        link.aggregate = offer;
        link.version = 4;
    } else if matches!(link.role, Role::Replaces(..)) && link.via.is_none() {
        upgrade::failed(core, io, key, "it does not offer aggregated frames on that port");
        return;
    } else if matches!(link.role, Role::Renews(..)) && !is_ordinary {
        renewal::failed(core, io, key, "it no longer offers aggregated frames on that port");
        return;
    }
    let mut options = vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "Shunt")];
    options.push(("DRIVER_VERSION", env!("CARGO_PKG_VERSION")));
    match pool.key.compression {
        Some(Algorithm::Lz4) => options.push(("COMPRESSION", "lz4")),
        Some(Algorithm::Snappy) => options.push(("COMPRESSION", "snappy")),
        None => {}
    }
    if pool.key.no_compact {
        options.push(("NO_COMPACT", "true"));
    }
    link.step = Step::Startup;
    let mut body = Vec::new();
    encode::startup(&mut body, options);
    open::write_handshake(&mut core.links, io, key, opcode::STARTUP, &body);
}

/// Switches to segments: v5 uses them after the answer to STARTUP (v5 section 2.2).
fn switch_framing(core: &mut Core, key: LinkKey) {
    let Some(link) = core.links.get_mut(key) else { return };
    if link.version >= 5 {
        link.segmented = true;
        link.writer = LinkWriter::Segments(SegmentWriter::new(false));
    }
}

/// Handles a node that asks for no login: it accepts any, or has accepted the certificate of the
/// link as one.
fn take_ready(core: &mut Core, io: &mut Io, key: LinkKey) {
    let pool = core.links.get(key).and_then(|link| core.router.pools.get(link.pool));
    let shows_proxys = pool.is_some_and(|pool| !pool.key.is_own && pool.key.certificate.is_none());
    if shows_proxys && core.context.config.lends_certificate(None) {
        let why = "it may have accepted the proxy's certificate as the clients' login";
        turned_away(core, io, key, why, Some(Verdict::of_lent_certificate()));
    } else {
        identity::ask(core, io, key);
    }
}

fn send_login(core: &mut Core, io: &mut Io, key: LinkKey, header: &Header, body: &[u8]) {
    let Some(link) = core.links.get_mut(key) else { return };
    let Some(pool) = core.router.pools.get(link.pool) else { return };
    let Some(token) = pool.key.token() else {
        let asked = split_response_prefix(header.flags, body)
            .map(|(_, body)| body)
            .and_then(Authenticate::decode);
        match asked.map(|asked| Verdict::asks_for_login(asked.class)) {
            Ok(verdict) => {
                let why = "it asks for a login, but the ring did not when its clients connected";
                turned_away(core, io, key, why, Some(verdict));
            }
            Err(error) => {
                lifecycle::fault(core, io, key, &format!("its AUTHENTICATE is malformed: {error}"))
            }
        }
        return;
    };
    // A malformed message asks for a login all the same.
    let asked = split_response_prefix(header.flags, body)
        .and_then(|(_, body)| Authenticate::decode(body))
        .map_or("", |asked| asked.class);
    let shows_proxys = !pool.key.is_own && pool.key.certificate.is_none();
    if shows_proxys && core.context.config.lends_certificate(Some(asked)) {
        let why = "it accepts the proxy's certificate as the clients' login";
        return turned_away(core, io, key, why, Some(Verdict::of_lent_certificate()));
    }
    link.step = Step::Login;
    let mut body = Vec::new();
    encode::auth_response(&mut body, Some(&token));
    open::write_handshake(&mut core.links, io, key, opcode::AUTH_RESPONSE, &body);
}

/// Continues after the node accepted the login and identified itself as expected.
pub(crate) fn logged_in(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get(key) else { return };
    let (pool, role) = (link.pool, link.role);
    login::login_accepted(core, io, pool);
    if role == Role::Verifies {
        closing::close(core, io, key);
        open::ensure_links(core, io, pool);
        login::resume(core, io);
    } else {
        send_use(core, io, key);
    }
}

fn send_use(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get_mut(key) else { return };
    let keyspace = core.router.pools.get(link.pool).and_then(|pool| pool.key.keyspace.clone());
    let Some(keyspace) = keyspace else {
        lifecycle::ready(core, io, key);
        return;
    };
    link.step = Step::Use;
    let version = link.version;
    let text = format!("USE \"{}\"", keyspace.replace('"', "\"\""));
    let mut body = Vec::new();
    encode::query_simple(&mut body, version, &text, Consistency::ONE);
    open::write_handshake(&mut core.links, io, key, opcode::QUERY, &body);
}

/// The plain message of an ERROR: decompressed, and without the prefix that its flags announce
/// (warnings, for example). It may go to clients under other flags.
fn plain_error<'a>(
    links: &Links,
    key: LinkKey,
    header: &Header,
    body: &'a [u8],
    plain: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let body = links.plain_body(key, header.flags, body, limits::HANDSHAKE_BYTES_MAX, plain)?;
    split_response_prefix(header.flags, body).ok().map(|(_, error)| error)
}

/// Handles an ERROR instead of an accepted login or keyspace: it goes to the clients who asked for
/// it.
fn step_refused(core: &mut Core, io: &mut Io, key: LinkKey, login: bool, body: &[u8]) {
    let verdict = Verdict::of_node(body, login);
    if let Some(pool) =
        pool_refused(core, io, key, "its login or keyspace was refused", Some(verdict))
    {
        login::switch_refused(core, io, pool, login, body);
    }
    login::resume(core, io);
}

/// Handles a node's refusal of the pool of this link: drops the link, and asks the node again less
/// and less often. Returns the pool; `None` if the node's ordinary port takes the pool, so that
/// only its other port refuses.
fn pool_refused(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    why: &str,
    verdict: Option<Verdict>,
) -> Option<PoolId> {
    let link = core.links.get(key)?;
    let (id, node) = (link.pool, link.node);
    match link.role {
        Role::Replaces(..) => {
            upgrade::failed(core, io, key, why);
            return None;
        }
        Role::Renews(..) => {
            renewal::failed(core, io, key, why);
            return None;
        }
        Role::Serves | Role::Verifies => {}
    }
    let (now, random) = (io.now_ns(), core.context.random());
    if let Some(pool) = core.router.pools.get_mut(id) {
        pool.refused_by(node, verdict, now, random);
    }
    core.links.count_given_up(node, GivenUp::Refused);
    closing::close(core, io, key);
    Some(id)
}

/// Handles a node's refusal of the pool's STARTUP options: the protocol version, for example, or
/// the compression. The refusal concerns the pool and the node; the node may accept other pools.
fn options_refused(core: &mut Core, io: &mut Io, key: LinkKey) {
    turned_away(
        core,
        io,
        key,
        "it does not accept that version, compression or options",
        Some(Verdict::of_options()),
    );
}

/// Handles a node that gives a pool no link without judging its clients' login or USE.
pub(crate) fn turned_away(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    why: &str,
    verdict: Option<Verdict>,
) {
    let node = core.links.get(key).map(|link| core.router.node_named(link.node));
    let Some(pool) = pool_refused(core, io, key, why, verdict) else { return };
    if let Some(suppressed) = core.context.log_limits.admit(Logged::NoAccess, io.now_ns()) {
        let names = core.router.pools.get(pool).map(|pool| pool.names.clone());
        let role = names.as_ref().and_then(|names| names.role.as_deref());
        let keyspace = names.as_ref().and_then(|names| names.keyspace.as_deref());
        tracing::info!(
            core = core.context.index,
            node,
            role,
            keyspace,
            why,
            suppressed,
            "a node refuses access to the links of a pool"
        );
    }
    core.router.cursor = core.router.cursor.wrapping_add(1);
    if let Some(pool) = core.router.pools.get_mut(pool) {
        // The tick asks another node while a client waits; asking at once would hammer this one.
        pool.verifying = false;
    }
    login::resume(core, io);
}

/// Handles the refusal of a login that no ERROR of the node expresses.
pub(crate) fn refuse_login(core: &mut Core, io: &mut Io, key: LinkKey, why: &str) {
    let mut body = Vec::new();
    encode::error(&mut body, error_code::BAD_CREDENTIALS, why);
    step_refused(core, io, key, true, &body);
}

/// True if an ERROR instead of an accepted login or keyspace does not say that either is wrong: the
/// node is overloaded, starts or stops, or cannot read its own tables, in which case
/// PasswordAuthenticators report bad credentials all the same.
fn is_no_verdict(error: &[u8]) -> bool {
    match error_code::peek(error) {
        // The message's length comes between the code and the text.
        Some(error_code::BAD_CREDENTIALS) => {
            error.get(6..).is_some_and(|text| is_not_looked_up(text, &NOT_CHECKED))
        }
        Some(code) => NodeError(code).is_no_verdict(),
        None => false,
    }
}

/// First words of authenticators that could not look the role up: Cassandra since 4.0, Cassandra 3,
/// and ScyllaDB.
const NOT_CHECKED: [&str; 3] = [
    "Unable to perform authentication",
    "Error during authentication of user",
    "Could not verify password",
];

/// True if an ERROR, whose body is never compressed that early, says that the request is not
/// understood.
fn is_protocol_error(header: &Header, body: &[u8]) -> bool {
    let error = split_response_prefix(header.flags, body).map_or(&[][..], |(_, error)| error);
    error_code::peek(error) == Some(error_code::PROTOCOL_ERROR)
}
