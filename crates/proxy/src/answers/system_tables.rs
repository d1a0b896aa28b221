//! `system.local` and `system.peers` as drivers see them: one host, the proxy.
//!
//! A driver that saw the nodes behind the proxy would connect to them and walk around it. So reads of these tables go
//! to a node like any other, and the answer is rewritten: `system.local` keeps what it says about the cluster but
//! names the proxy's address, host id and a token; `system.peers` and `peers_v2` are empty. Everything else, the
//! schema tables above all, is the ring's own.

use std::net::{IpAddr, SocketAddr};

use shunt_reactor::Io;
use shunt_topology::token;
use shunt_wire::cql::envelope::flag;
use shunt_wire::cql::message::encode_result::native;
use shunt_wire::cql::message::{ResultMessage, Rows, put, split_response_prefix};

use crate::core::Core;
use crate::link::Pending;
use crate::metrics::Outcome;
use crate::plan::SystemTable;
use crate::reply::{self, Answer};

/// Rewrites the answer to a read of a system table and passes it on.
pub(crate) fn show_proxy(
    core: &mut Core,
    io: &mut Io,
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
    let address = shown_address(core.context.config.advertise, local);
    let statement = core.router.prepared.get(pending.plan.statement).map(|learned| learned.statement);
    let names = statement.map_or(Vec::new(), |statement| statement.result_columns.to_vec());
    let cluster_name = core.router.cluster.as_ref().map(|cluster| cluster.cluster_name.clone()).unwrap_or_default();
    let view = View { address, host_id: host_id(&cluster_name, address) };
    match rewrite(table, &view, version, answer.flags, body, &names) {
        Some(rewritten) => {
            let shown = Answer { flags: answer.flags & !flag::COMPRESSION, body: &rewritten, ..*answer };
            reply::pass_on(core, io, pending, &shown, Outcome::Intercepted);
        }
        None => reply::pass_on(core, io, pending, answer, Outcome::Ok),
    }
}

/// The address and host id that are shown instead of the node's.
struct View {
    address: SocketAddr,
    host_id: [u8; 16],
}

/// The configured address, with the parts left open (port 0) taken from the one the client used.
fn shown_address(advertise: Option<SocketAddr>, local: SocketAddr) -> SocketAddr {
    match advertise {
        Some(address) if address.port() == 0 => SocketAddr::new(address.ip(), local.port()),
        Some(address) => address,
        None => local,
    }
}

/// A host id that stays the same as long as cluster and address do, on every core and after every restart.
fn host_id(cluster_name: &str, address: SocketAddr) -> [u8; 16] {
    let seed = format!("shunt proxy of {cluster_name} at {address}");
    let (high, low) = (token::token(seed.as_bytes()).0, token::token(format!("{seed} ").as_bytes()).0);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    // RFC 9562, section 5.8: version 8 (custom), variant 10.
    id[6] = (id[6] & 0x0f) | 0x80;
    id[8] = (id[8] & 0x3f) | 0x80;
    id
}

fn rewrite(
    table: SystemTable,
    view: &View,
    version: u8,
    flags: u8,
    body: &[u8],
    names: &[Box<str>],
) -> Option<Vec<u8>> {
    let (prefix, rest) = split_response_prefix(flags, body).ok()?;
    let ResultMessage::Rows(rows) = ResultMessage::decode(version, rest).ok()? else { return None };
    let head = prefix.length + rows.content_offset;
    let mut out = body.get(..head)?.to_vec();
    match table {
        SystemTable::Peers => {
            let count = out.len().checked_sub(4)?;
            out.truncate(count);
            if columns(&rows, names).is_some_and(|columns| matches!(columns[..], [("count", _)])) {
                // How many there are is told in a row.
                put::int(&mut out, 1);
                put::bytes(&mut out, Some(&0i64.to_be_bytes()));
            } else {
                put::int(&mut out, 0);
            }
        }
        SystemTable::Local => show_local(&mut out, view, &rows, names)?,
    }
    Some(out)
}

/// Names of columns, with their types where those are known.
type Columns<'c> = Vec<(&'c str, Option<&'c [u8]>)>;

/// The result's columns with their types; of a prepared statement, whose answer may leave them out, the names alone.
fn columns<'c>(rows: &Rows<'c>, names: &'c [Box<str>]) -> Option<Columns<'c>> {
    let mut columns: Vec<_> = rows.metadata.columns().map(|column| (column.name, Some(column.type_option))).collect();
    if columns.is_empty() {
        columns = names.iter().map(|name| (&**name, None)).collect();
    }
    (columns.len() == rows.metadata.column_count).then_some(columns)
}

/// Copies the rows, putting the proxy's own values in place of the node's.
fn show_local(out: &mut Vec<u8>, view: &View, rows: &Rows<'_>, names: &[Box<str>]) -> Option<()> {
    let columns = columns(rows, names)?;
    for row in rows.rows() {
        for ((column, cql_type), value) in columns.iter().zip(row.ok()?.values()) {
            match value.and_then(|_| view.value(column, *cql_type)) {
                Some(own) => put::bytes(out, Some(&own)),
                None => put::bytes(out, value),
            }
        }
    }
    Some(())
}

impl View {
    /// The proxy's value of a column of `system.local`; `None`: the node's is right, or the column has another's name.
    fn value(&self, column: &str, cql_type: Option<&[u8]>) -> Option<Vec<u8>> {
        let (own_type, value) = match column {
            "rpc_address" | "broadcast_address" | "listen_address" => match self.address.ip() {
                IpAddr::V4(ip) => (native::INET, ip.octets().to_vec()),
                IpAddr::V6(ip) => (native::INET, ip.octets().to_vec()),
            },
            "rpc_port" | "native_port" => (native::INT, i32::from(self.address.port()).to_be_bytes().to_vec()),
            "host_id" => (native::UUID, self.host_id.to_vec()),
            "tokens" => {
                // One token: the proxy owns the whole ring.
                let mut set = Vec::new();
                put::int(&mut set, 1);
                put::bytes(&mut set, Some(b"0"));
                (native::SET_OF_TEXT, set)
            }
            _ => return None,
        };
        cql_type.is_none_or(|found| found == own_type).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::encode_result::RowsWriter;

    use super::*;

    /// The rows of one row with these columns, types and values, as they are shown.
    fn shown(table: SystemTable, columns: &[(&str, &[u8], &[u8])]) -> Vec<Vec<Option<Vec<u8>>>> {
        let mut body = Vec::new();
        let named: Vec<_> = columns.iter().map(|(name, cql_type, _)| (*name, *cql_type)).collect();
        let mut writer = RowsWriter::new(&mut body, "system", "local", &named);
        for (_, _, value) in columns {
            writer.value(Some(value));
        }
        writer.finish();
        let view = View { address: "127.0.0.1:9042".parse().expect("address"), host_id: [7; 16] };
        let rewritten = rewrite(table, &view, 4, 0, &body, &[]).expect("rows");
        let ResultMessage::Rows(rows) = ResultMessage::decode(4, &rewritten).expect("result") else {
            panic!("no rows")
        };
        let values =
            |row: shunt_wire::cql::message::Row<'_>| row.values().map(|value| value.map(<[u8]>::to_vec)).collect();
        rows.rows().map(|row| values(row.expect("row"))).collect()
    }

    #[test]
    fn there_are_no_peers_and_their_number_is_0() {
        assert!(shown(SystemTable::Peers, &[("peer", native::INET, &[127, 0, 0, 2])]).is_empty());
        let counted = shown(SystemTable::Peers, &[("count", native::BIGINT, &2i64.to_be_bytes())]);
        assert_eq!(counted, [[Some(vec![0; 8])]]);
    }

    #[test]
    fn a_column_with_the_name_of_another_keeps_its_value() {
        let id = shown(SystemTable::Local, &[("host_id", native::UUID, &[1; 16]), ("host_id", native::TEXT, b"name")]);
        assert_eq!(id, [[Some(vec![7; 16]), Some(b"name".to_vec())]]);
    }
}
