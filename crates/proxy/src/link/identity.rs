//! The identity of the node at the other end of a link: asked once per link, after the login and
//! before anything else.
//!
//! Addresses pass to other nodes: pods come back under one another's, machines are rented anew. A
//! link must never carry a query, a USE, or the verdict that a login is right, before its node has
//! said that it is the one that the control plane knows at that address, by host id and name of the
//! cluster. A node that says otherwise, or nothing, is refused; the control plane reads the ring,
//! and accepts at once the node that it finds there.
//!
//! The proxy cannot prevent two things: a node identifies itself only to a logged-in client, so
//! that it has seen the login by then; and a node that lies is believed. Only TLS could help
//! against either. While a node's address is known to belong to another node, the proxy shows one
//! login at a time there and no more.

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, ResultMessage, encode, split_response_prefix};

use crate::control::state::ClusterState;
use crate::core::Core;
use crate::ids::LinkKey;
use crate::limits;
use crate::link::links::Links;
use crate::link::{Step, handshake, lifecycle, open};
use crate::metrics::GivenUp;

/// The query for a node's identity.
const QUESTION: &str = "SELECT host_id, cluster_name FROM system.local WHERE key = 'local'";

pub(crate) fn ask(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get_mut(key) else { return };
    link.step = Step::Identity;
    let mut body = Vec::new();
    encode::query_simple(&mut body, link.version, QUESTION, Consistency::ONE);
    open::write_handshake(&mut core.links, io, key, opcode::QUERY, &body);
}

/// Handles the answer to that query. An answer without a row with both values counts as none: a
/// node that cannot identify itself gets no queries. An ERROR concerns the role that asked, or the
/// moment: other pools may get an answer, so the proxy does not hold it against the node.
pub(crate) fn take(core: &mut Core, io: &mut Io, key: LinkKey, header: &Header, body: &[u8]) {
    let Some(node) = core.links.get(key).map(|link| link.node) else { return };
    if header.opcode == opcode::ERROR {
        handshake::turned_away(core, io, key, "it does not show its host id to this role", None);
        return;
    }
    let mut plain = Vec::new();
    let plain =
        core.links.plain_body(key, header.flags, body, limits::HANDSHAKE_BYTES_MAX, &mut plain);
    let Some((host_id, cluster_name)) = plain.and_then(|body| identity(header, body)) else {
        lifecycle::break_off(core, io, key, GivenUp::Stranger, "it does not show its host id");
        return;
    };
    let Some(cluster) = core.router.cluster.clone() else { return };
    match difference(&cluster, node, host_id, &cluster_name) {
        None => {
            set_stranger(&mut core.links, node, false);
            handshake::logged_in(core, io, key);
        }
        Some(difference) => {
            set_stranger(&mut core.links, node, true);
            lifecycle::break_off(core, io, key, GivenUp::Stranger, &difference);
        }
    }
}

pub(crate) fn set_stranger(links: &mut Links, node: NodeId, stranger: bool) {
    let Some(state) = links.node_mut(node) else { return };
    state.stranger = stranger;
    state.metrics.strangers.add(u64::from(stranger));
}

fn identity(header: &Header, body: &[u8]) -> Option<(u128, String)> {
    let (_, body) = split_response_prefix(header.flags, body).ok()?;
    let ResultMessage::Rows(rows) = ResultMessage::decode(header.version, body).ok()? else {
        return None;
    };
    let row = rows.rows().next()?.ok()?;
    let host_id = u128::from_be_bytes(row.get(0)?.try_into().ok()?);
    Some((host_id, std::str::from_utf8(row.get(1)?).ok()?.to_owned()))
}

/// The difference, for the log, between the answering node and the one known at its address;
/// `None`: they are the same.
fn difference(
    cluster: &ClusterState,
    node: NodeId,
    host_id: u128,
    cluster_name: &str,
) -> Option<String> {
    let expected = cluster.routing.node(node)?.host_id;
    if cluster_name != cluster.cluster_name {
        let own = &cluster.cluster_name;
        return Some(format!(
            "a node of another cluster has its address: {cluster_name:?} instead of {own:?}"
        ));
    }
    let (found, expected_text) = (uuid_text(host_id), uuid_text(expected));
    (host_id != expected).then(|| {
        format!("another node has its address: host id {found} instead of {expected_text}")
    })
}

/// A UUID in its usual form.
pub(crate) fn uuid_text(uuid: u128) -> String {
    let hex = format!("{uuid:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
