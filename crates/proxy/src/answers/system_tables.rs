//! `system.local` and `system.peers` as drivers see them: they show proxies, and no node.
//!
//! A driver that saw the nodes behind the proxy would connect to them and bypass the proxy. So
//! reads of these tables go to a node like any other, and the proxy rewrites the answer:
//! `system.local` keeps the values about the cluster but names the proxy's address, host id and a
//! token. `system.peers` and `peers_v2` have a row for each other proxy of the fleet ([`peers`]),
//! and none without a fleet. All other values, the schema tables above all, are the ring's own.
//!
//! Drivers compare the schema versions of their hosts. In a fleet `system.local` therefore shows
//! the version that the control plane read last, as the peers' rows do: two nodes asked one after
//! the other may report different ones.

use std::borrow::Cow;
use std::net::SocketAddr;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::{ResultMessage, Rows, encode, put, split_response_prefix};

use crate::answers::expressions::{self, Made};
use crate::answers::host::{Host, Place};
use crate::answers::peers::{self, Asked, Column};
use crate::client::announce;
use crate::control::state::ClusterState;
use crate::core::Core;
use crate::fault::Fault;
use crate::fleet::roster::Fleet;
use crate::ids::LinkKey;
use crate::link::Pending;
use crate::metrics::Outcome;
use crate::plan::SystemTable;
use crate::prepared::ResultColumn;
use crate::reply::{self, Answer};

/// Rewrites the answer to a read of a system table and passes it on.
pub(crate) fn show_proxy(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    pending: &Pending,
    answer: &Answer<'_>,
    body: &[u8],
    table: SystemTable,
) {
    let Some(client) = core.clients.find(pending.client) else {
        reply::pass_on(core, io, pending, answer, Outcome::Ok);
        return;
    };
    let (version, local) = (client.version, client.local);
    if table != SystemTable::Local {
        announce::tell(core, io, pending.client.slot);
    }
    let statement = core.router.prepared.shared(pending.plan.statement);
    let known = statement.as_ref().map_or(&[][..], |statement| &statement.result_columns);
    let found = Found { table, version, flags: answer.flags, body, known };
    let sent =
        core.links.get(key).and_then(|link| core.retained.bytes(io, link.conn, pending.kept));
    let text = statement.as_ref().and_then(|statement| statement.text.as_deref());
    let asked = sent.as_deref().and_then(|sent| Asked::read(version, pending, sent, text));
    let shown = match (core.router.fleet.clone(), core.router.cluster.clone()) {
        (Some(fleet), Some(cluster)) => show_fleet(
            &found,
            &fleet,
            &cluster,
            asked.as_ref(),
            core.context.config.frame_bytes_max as usize,
        ),
        (_, cluster) => {
            let address = shown_address(core.context.config.advertise, local);
            let cluster_name = cluster.as_ref().map_or("", |cluster| &cluster.cluster_name);
            show_alone(&found, &Host::alone(cluster_name, address), asked.as_ref())
        }
    };
    match shown {
        Ok(Some(shown)) => {
            let shown =
                Answer { flags: answer.flags & !flag::COMPRESSION, body: &shown, ..*answer };
            reply::pass_on(core, io, pending, &shown, Outcome::Intercepted);
        }
        Ok(None) => reply::pass_on(core, io, pending, answer, Outcome::Ok),
        Err(fault) => {
            let mut body = Vec::new();
            encode::error(&mut body, fault.kind.code(), &fault.why);
            let refused = Answer::plain(opcode::ERROR, answer.stream, &body);
            reply::pass_on(core, io, pending, &refused, Outcome::Intercepted);
        }
    }
}

/// The configured address; port 0 stands for the port that the client used.
fn shown_address(advertise: Option<SocketAddr>, local: SocketAddr) -> SocketAddr {
    match advertise {
        Some(address) if address.port() == 0 => SocketAddr::new(address.ip(), local.port()),
        Some(address) => address,
        None => local,
    }
}

/// A node's answer.
struct Found<'a> {
    table: SystemTable,
    version: u8,
    flags: u8,
    body: &'a [u8],
    /// Columns of the statement, if it is prepared and they are known.
    known: &'a [ResultColumn],
}

impl<'a> Found<'a> {
    /// The rows, and their offset in the body. `None` if the result is of another kind or cannot be
    /// read.
    fn rows(&self) -> Option<(Rows<'a>, usize)> {
        let (prefix, rest) = split_response_prefix(self.flags, self.body).ok()?;
        let ResultMessage::Rows(rows) = ResultMessage::decode(self.version, rest).ok()? else {
            return None;
        };
        Some((rows, prefix.length))
    }

    /// The columns by name; if the answer leaves them out, those known of the prepared statement.
    fn columns(&self, rows: &Rows<'a>) -> Option<Vec<Column<'a>>> {
        let named = |name: &'a str, cql_type| Column {
            source: Some(Cow::Borrowed(name)),
            cql_type: Some(cql_type),
            expression: None,
        };
        let mut columns: Vec<_> =
            rows.metadata.columns().map(|column| named(column.name, column.type_option)).collect();
        if columns.is_empty() {
            columns =
                self.known.iter().map(|column| named(&column.name, &column.type_option)).collect();
        }
        (columns.len() == rows.metadata.column_count).then_some(columns)
    }
}

/// The answer that shows the only proxy; `None`: the node's answer passes unchanged.
///
/// # Errors
/// A function of the proxy's own values cannot be computed.
fn show_alone(
    found: &Found<'_>,
    host: &Host<'_>,
    asked: Option<&Asked<'_>>,
) -> Result<Option<Vec<u8>>, Fault> {
    let Some((rows, prefix_bytes)) = found.rows() else { return Ok(None) };
    if found.table == SystemTable::Local {
        return show_local(found, (&rows, prefix_bytes), host, asked);
    }
    Ok(without_peers(found, &rows, prefix_bytes))
}

/// The answer of a proxy that has no peers.
fn without_peers(found: &Found<'_>, rows: &Rows<'_>, prefix_bytes: usize) -> Option<Vec<u8>> {
    let mut out = found.body.get(..prefix_bytes + rows.content_offset)?.to_vec();
    let columns = found.columns(rows);
    let count = out.len().checked_sub(size_of::<i32>())?;
    out.truncate(count);
    let is_count = |columns: &[Column<'_>]| matches!(columns, [only] if only.source.as_deref() == Some("count"));
    if columns.is_some_and(|columns| is_count(&columns)) {
        peers::put_count(&mut out, 0);
    } else {
        put::int(&mut out, 0);
    }
    Some(out)
}

/// The answer that shows the proxies of the fleet; `None`: the node's answer passes unchanged.
///
/// # Errors
/// The wanted rows cannot be determined, or they take too many bytes.
fn show_fleet(
    found: &Found<'_>,
    fleet: &Fleet,
    cluster: &ClusterState,
    asked: Option<&Asked<'_>>,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, Fault> {
    let Some((rows, prefix_bytes)) = found.rows() else { return Ok(None) };
    let place = Place::of(cluster);
    let own = Host::member(place, fleet.own().address);
    if found.table == SystemTable::Local {
        return show_local(found, (&rows, prefix_bytes), &own, asked);
    }
    let columns = sources(found, &rows, asked);
    let Some(mut out) = peers::head(found.body, prefix_bytes, &rows) else { return Ok(None) };
    let others = fleet.addresses().map(|address| Host::member(place, address));
    // The table has no ports: drivers use the port that they know.
    let others =
        others.filter(|host| found.table == SystemTable::PeersV2 || host.port() == own.port());
    // Without columns no value has a place.
    let Some(columns) = columns else {
        put::int(&mut out, 0);
        return Ok(Some(out));
    };
    peers::put_rows(&mut out, &columns, &others.collect::<Vec<_>>(), asked, bytes_max)?;
    Ok(Some(out))
}

/// The columns of a result with the table's columns that they show.
fn sources<'c>(
    found: &Found<'c>,
    rows: &Rows<'c>,
    asked: Option<&Asked<'c>>,
) -> Option<Vec<Column<'c>>> {
    let columns = found.columns(rows)?;
    match asked {
        // The only column of a JSON result is made of the whole selection.
        Some(asked) if asked.json_items().is_none() => asked.with_sources(columns),
        _ => Some(columns),
    }
}

/// Copies the rows with the proxy's own values in place of the node's.
///
/// # Errors
/// A function of the proxy's own values cannot be computed, or the columns cannot be determined:
/// the node's values must not pass then.
fn show_local(
    found: &Found<'_>,
    (rows, prefix_bytes): (&Rows<'_>, usize),
    host: &Host<'_>,
    asked: Option<&Asked<'_>>,
) -> Result<Option<Vec<u8>>, Fault> {
    let not_told = || {
        let why = "Shunt: this row shows the proxy, and it cannot be told which of its columns are asked for: ask for them by name";
        Fault::invalid(why)
    };
    let head = found.body.get(..prefix_bytes + rows.content_offset).ok_or_else(not_told)?;
    let mut out = head.to_vec();
    if rows.row_count == 0 {
        return Ok(Some(out));
    }
    let asked = Some(asked.ok_or_else(not_told)?);
    let columns = sources(found, rows, asked).ok_or_else(not_told)?;
    for row in rows.rows() {
        let row = row.map_err(|_| not_told())?;
        for (column, value) in columns.iter().zip(row.values()) {
            let own = match value {
                Some(of_node) => own_value(of_node, column, host, asked)?,
                None => None,
            };
            match own {
                Some(own) => put::bytes(&mut out, Some(&own)),
                None => put::bytes(&mut out, value),
            }
        }
    }
    Ok(Some(out))
}

/// The proxy's own value in place of a node's; `None`: the node's stays.
fn own_value(
    of_node: &[u8],
    column: &Column<'_>,
    host: &Host<'_>,
    asked: Option<&Asked<'_>>,
) -> Result<Option<Vec<u8>>, Fault> {
    if let Some(items) = asked.and_then(Asked::json_items) {
        return expressions::json(of_node, items, host).map(Some);
    }
    Ok(match (column.source.as_deref(), column.expression) {
        (Some(source), _) => host.value(source, column.cql_type),
        (None, Some(text)) => match expressions::value(text, host, column.cql_type)? {
            Made::Own(own) => Some(own),
            Made::OfNode => None,
        },
        (None, None) => None,
    })
}

#[cfg(test)]
mod tests;
