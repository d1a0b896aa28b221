//! A statement of the proxy's own goes out.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, QueryParams, Values, encode};

use crate::aggregate;
use crate::client::account::LoginToken;
use crate::core::Core;
use crate::fleet::statements::{Levels, VERSION, Whose};
use crate::ids::{ClientRef, PoolId};
use crate::link::{Pending, PoolKey, Purpose, open, pools};
use crate::metrics::QueryKind;
use crate::plan::{After, Plan, Work};
use crate::route::{self, Choice, WhenFull};
use crate::transactions::part::Part;

/// Asks a statement. Its outcome comes later, once; `false`: it was not sent, and no outcome comes.
/// `page`: rows of a page, and where the one before it ended.
pub(crate) fn ask(
    core: &mut Core,
    io: &mut Io,
    whose: Whose,
    text: &'static str,
    values: Values<'_>,
    levels: &Levels,
    page: Option<(i32, Option<&[u8]>)>,
) -> bool {
    let place = core.fleet.statements.place(text);
    ask_at(core, io, whose, place, values, levels, page)
}

/// The same of a text that is a transaction's.
pub(crate) fn ask_text(
    core: &mut Core,
    io: &mut Io,
    whose: Whose,
    text: &Arc<str>,
    values: Values<'_>,
    levels: &Levels,
    page: Option<(i32, Option<&[u8]>)>,
) -> bool {
    let place = core.fleet.statements.place_of(text);
    ask_at(core, io, whose, place, values, levels, page)
}

fn ask_at(
    core: &mut Core,
    io: &mut Io,
    whose: Whose,
    place: usize,
    values: Values<'_>,
    levels: &Levels,
    page: Option<(i32, Option<&[u8]>)>,
) -> bool {
    let Some(pool) = pool(core, io) else { return false };
    let params = QueryParams {
        values,
        serial_consistency: levels.serial,
        timestamp: levels.timestamp_us,
        page_size: page.map(|(rows, _)| rows),
        paging_state: page.and_then(|(_, state)| state),
        ..QueryParams::simple(levels.consistency)
    };
    let mut body = std::mem::take(&mut core.fleet.statements.message);
    let sent = send(core, io, (whose, pool), place, &params, levels.elsewhere, &mut body);
    core.fleet.statements.message = body;
    if sent
        && !core.fleet.statements.texts[place].is_asked
        && core.fleet.statements.texts[place].id.is_none()
    {
        prepare(core, io, pool, place);
    }
    sent
}

fn send(
    core: &mut Core,
    io: &mut Io,
    (whose, pool): (Whose, PoolId),
    place: usize,
    params: &QueryParams<'_>,
    elsewhere: bool,
    body: &mut Vec<u8>,
) -> bool {
    let version = core.router.pools.get(pool).map_or(VERSION, |pool| pool.key.version);
    let mut op = opcode::QUERY;
    body.clear();
    if let Some(id) = &core.fleet.statements.texts[place].id {
        op = opcode::EXECUTE;
        encode::execute(body, version, id, None, params);
    } else {
        encode::query(body, version, &core.fleet.statements.texts[place].text, params);
    }
    let mut planned = plan(core, pool, version, op, body);
    if op == opcode::EXECUTE && planned.is_some_and(|plan| plan.after == After::Unprepared) {
        // The store of prepared statements had to let go of it.
        core.fleet.statements.texts[place].id = None;
        op = opcode::QUERY;
        body.clear();
        encode::query(body, version, &core.fleet.statements.texts[place].text, params);
        planned = plan(core, pool, version, op, body);
    }
    let Some(mut planned) = planned else { return false };
    if elsewhere {
        planned.placement = None;
    }
    put(core, io, (whose, pool), planned, op, body)
}

/// The plan of a statement of ours, as of a client's.
fn plan(core: &mut Core, pool: PoolId, version: u8, op: u8, body: &[u8]) -> Option<Plan> {
    let length = body.len() as u32;
    let header = Header { version, response: false, flags: 0, stream: 0, opcode: op, length };
    let planned = match op {
        opcode::EXECUTE => route::plan_execute(&mut core.router, pool, &header, body),
        _ => route::plan(&mut core.router, pool, &header, body),
    };
    // What is asked here is what transactions and locks are made of, and no page of a node's own
    // rows is followed by another.
    planned.ok().map(|plan| match plan.after {
        After::Transaction | After::Multiget | After::Local => {
            Plan { after: After::Deliver, ..plan }
        }
        _ => plan,
    })
}

/// Asks a SELECT of no key, as text, in this pool; for the rest see [`ask`].
pub(crate) fn ask_in(
    core: &mut Core,
    io: &mut Io,
    pool: PoolId,
    whose: Whose,
    text: &str,
    consistency: Consistency,
) -> bool {
    ask_by(core, io, (pool, None), whose, text, consistency)
}

/// The same of this node, and no other.
pub(crate) fn ask_node(
    core: &mut Core,
    io: &mut Io,
    (pool, node): (PoolId, NodeId),
    whose: Whose,
    text: &str,
    consistency: Consistency,
) -> bool {
    ask_by(core, io, (pool, Some(node)), whose, text, consistency)
}

fn ask_by(
    core: &mut Core,
    io: &mut Io,
    (pool, node): (PoolId, Option<NodeId>),
    whose: Whose,
    text: &str,
    consistency: Consistency,
) -> bool {
    let Some(version) = core.router.pools.get(pool).map(|pool| pool.key.version) else {
        return false;
    };
    let mut body = std::mem::take(&mut core.fleet.statements.message);
    body.clear();
    encode::query(&mut body, version, text, &QueryParams::simple(consistency));
    let plan = Plan {
        node,
        work: Work::Read,
        kind: QueryKind::Query,
        consistency: consistency.0,
        ..Plan::anywhere()
    };
    let is_sent = put(core, io, (whose, pool), plan, opcode::QUERY, &body);
    core.fleet.statements.message = body;
    is_sent
}

fn put(
    core: &mut Core,
    io: &mut Io,
    (whose, pool): (Whose, PoolId),
    plan: Plan,
    op: u8,
    body: &[u8],
) -> bool {
    // One at a time, and all that was heard in between waits for it.
    let is_fleets = matches!(
        whose,
        Whose::Fleet(_) | Whose::Clock { .. } | Whose::Transaction(Part::Confirm(_))
    );
    if !core.fleet.statements.in_flight.has_room(&whose) {
        return false;
    }
    let (router, links) = (&mut core.router, &core.links);
    let link =
        match route::choose(router, links, pool, ClientRef::PROXY, &plan, None, WhenFull::Fails) {
            Choice::Link(link) => link,
            // Other clients may share the pool: what they leave no room for is theirs.
            Choice::Full(link) if is_fleets => link,
            Choice::Full(_) => return false,
            Choice::Nothing => {
                open::ensure_links(core, io, pool);
                return false;
            }
        };
    let stream = core.fleet.statements.in_flight.insert(whose);
    let request = Pending::own(io.now_ns(), Purpose::Client, op);
    let pending = Pending { pool, stream: stream as i16, plan, ..request };
    if !aggregate::send(&mut core.links, &mut core.retained, io, link, pending, body) {
        core.fleet.statements.in_flight.remove(stream);
        return false;
    }
    let metrics = &core.context.metrics.own_statements;
    metrics.sent.add(1);
    metrics.in_flight.add(1);
    true
}

/// Has a text prepared, for the next time.
fn prepare(core: &mut Core, io: &mut Io, pool: PoolId, place: usize) {
    let text = &core.fleet.statements.texts[place];
    let (text, whose) = (Arc::clone(&text.text), Whose::Prepare(place, text.number));
    core.fleet.statements.texts[place].is_asked = prepare_in(core, io, pool, whose, &text);
}

/// Has a text prepared, and its markers and columns told. `false`: it was not sent, and no outcome
/// comes.
pub(crate) fn prepare_text(core: &mut Core, io: &mut Io, whose: Whose, text: &str) -> bool {
    pool(core, io).is_some_and(|pool| prepare_in(core, io, pool, whose, text))
}

fn prepare_in(core: &mut Core, io: &mut Io, pool: PoolId, whose: Whose, text: &str) -> bool {
    let version = core.router.pools.get(pool).map_or(VERSION, |pool| pool.key.version);
    let mut body = std::mem::take(&mut core.fleet.statements.message);
    body.clear();
    encode::prepare(&mut body, version, text, None);
    let planned = plan(core, pool, version, opcode::PREPARE, &body);
    let is_sent =
        planned.is_some_and(|plan| put(core, io, (whose, pool), plan, opcode::PREPARE, &body));
    core.fleet.statements.message = body;
    is_sent
}

/// The pool that the proxy's own statements are asked in. `None`: there is no ring yet.
pub(crate) fn pool(core: &mut Core, io: &mut Io) -> Option<PoolId> {
    let cluster = core.router.cluster.as_ref()?;
    let version = cluster.protocol_version_max.min(VERSION);
    let login = core.context.config.credentials().filter(|_| cluster.authenticator.is_some());
    let token = login
        .map(|login| format!("\0{}\0{}", login.username, login.password.reveal()).into_bytes());
    if let Some(id) = core.fleet.statements.pool
        && let Some(pool) = core.router.pools.get(id)
        && pool.key.version == version
        && pool.key.token().as_deref() == token.as_deref()
    {
        return Some(id);
    }
    let login = token.map(|token| LoginToken::new(token.into()));
    let key = PoolKey {
        login,
        identity: None,
        certificate: None,
        version,
        keyspace: None,
        compression: None,
        no_compact: false,
        is_own: true,
    };
    let id = pools::for_key(core, io, &key, 0).ok()?;
    if let Some(before) = core.fleet.statements.pool.replace(id) {
        core.router.leave_pool(&mut core.links, io, before, ClientRef::PROXY.id);
    }
    if let Some(pool) = core.router.pools.get_mut(id) {
        pool.clients += 1;
    }
    open::ensure_links(core, io, id);
    Some(id)
}
