//! The pages of single clients, links and pools: the module asks the cores for their lists, and
//! puts them together.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use shunt_reactor::ClientAddress;

use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
use crate::client::identity::Driver;
use crate::connection_list::{ClientRow, CoreConnections, LinkRow, PoolRow};
use crate::control::{CoreMail, Mailbox};
use crate::limits;

/// Names of the pages.
pub(super) const CLIENTS_PAGE: &str = "clients";
pub(super) const LINKS_PAGE: &str = "links";

/// The lists, asked from the cores.
#[derive(Debug)]
pub(super) struct Connections(CachedAnswer);

impl Connections {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes))
    }

    /// The page of clients, or of links and pools.
    pub(super) async fn page(&self, name: &str) -> Value {
        let mut all = self.0.recent(|mailboxes| ask_cores(mailboxes, PATIENCE)).await;
        all[name].take()
    }
}

/// Both pages.
async fn ask_cores(mailboxes: &[Mailbox], patience: Duration) -> Value {
    let (mut client_rows, mut link_rows, mut pool_rows) = (Vec::new(), Vec::new(), Vec::new());
    let (mut clients_left_out, mut links_left_out) = (0, 0);
    let take = |answer: CoreConnections| {
        let core = answer.core;
        client_rows.extend(answer.clients.into_iter().map(|client| (core, client)));
        link_rows.extend(answer.links.into_iter().map(|link| (core, link)));
        pool_rows.extend(answer.pools.into_iter().map(|pool| (core, pool)));
        clients_left_out += answer.clients_left_out;
        links_left_out += answer.links_left_out;
        core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::Connections, take).await;
    client_rows.sort_by_key(|(core, client)| {
        Reverse((client.queries_per_second, client.in_flight, client.queries, Reverse(*core)))
    });
    clients_left_out += cut(&mut client_rows, limits::LISTED_CLIENTS_MAX);
    link_rows.sort_by(|(one_core, one), (other_core, other)| {
        (&one.node, one_core, one.number).cmp(&(&other.node, other_core, other.number))
    });
    links_left_out += cut(&mut link_rows, limits::LISTED_LINKS_MAX);
    pool_rows.sort_by_key(|(core, pool)| (*core, pool.number));
    json!({
        CLIENTS_PAGE: {
            "clients": client_rows.iter().map(|(core, client)| client_shown(*core, client)).collect::<Vec<_>>(),
            "left_out": clients_left_out,
            "warnings": warnings(clients_left_out, "clients", "those that send most are here; `client_groups` counts all"),
            "cores_missing": missing,
        },
        LINKS_PAGE: {
            "links": link_rows.iter().map(|(core, link)| link_shown(*core, link)).collect::<Vec<_>>(),
            "pools": pool_rows.iter().map(|(core, pool)| pool_shown(*core, pool)).collect::<Vec<_>>(),
            "left_out": links_left_out,
            "warnings": warnings(links_left_out, "links", "`nodes` counts all"),
            "cores_missing": missing,
        },
    })
}

/// Cuts a list; returns the number of elements that it loses.
fn cut<T>(list: &mut Vec<T>, most: usize) -> u64 {
    let left_out = list.len().saturating_sub(most) as u64;
    list.truncate(most);
    left_out
}

fn warnings(left_out: u64, what: &str, remedy: &str) -> Vec<String> {
    let warning = (left_out > 0).then(|| format!("{left_out} {what} are left out: {remedy}"));
    warning.into_iter().collect()
}

/// The options of STARTUP that the proxy keeps.
fn options(driver: Option<&Driver>, compression: Option<&str>) -> Value {
    let named = |key: &str, text: &str| (!text.is_empty()).then(|| (key.to_owned(), text.into()));
    let driver = driver.into_iter().flat_map(|driver| {
        [
            named("DRIVER_NAME", &driver.name),
            named("DRIVER_VERSION", &driver.version),
            named("APPLICATION_NAME", &driver.application),
        ]
    });
    let compression = compression.map(|compression| named("COMPRESSION", compression));
    Value::Object(driver.chain(compression).flatten().collect::<Map<_, _>>())
}

fn client_shown(core: usize, client: &ClientRow) -> Value {
    let driver = client.driver.as_deref();
    let text = |text: fn(&Driver) -> &str| driver.map(text).filter(|text| !text.is_empty());
    let port = match client.address {
        ClientAddress::Tcp(address) | ClientAddress::Forwarded(address) => Some(address.port()),
        ClientAddress::Unix { .. } => None,
    };
    json!({
        "id": client.address.to_string(),
        "address": client.address.host().to_string(),
        "port": port.unwrap_or(0),
        "client_type": "cql",
        "local_address": client.local.to_string(),
        "stage": client.stage,
        "core": core,
        "pool": client.pool,
        "role": client.role.as_deref(),
        "identity": client.identity.as_deref(),
        "certificate": client.certificate.as_deref(),
        "application": text(|driver| &driver.application),
        "driver": text(|driver| &driver.name),
        "driver_version": text(|driver| &driver.version),
        "options": options(driver, client.compression),
        "keyspace": client.keyspace.as_deref(),
        "protocol_version": client.version,
        "tls": client.tls.map(|(version, _)| version),
        "cipher": client.tls.map(|(_, cipher)| cipher),
        "has_tls": client.tls.is_some(),
        "paused": client.paused,
        "in_flight": client.in_flight,
        "queries": client.queries,
        "queries_per_second": client.queries_per_second,
        "errors": client.errors,
        "bytes_in": client.bytes.0,
        "bytes_out": client.bytes.1,
        "backlog_bytes": client.backlog_bytes,
        "p50_us": client.percentiles_us.0,
        "p99_us": client.percentiles_us.1,
    })
}

fn link_shown(core: usize, link: &LinkRow) -> Value {
    json!({
        "node": link.node,
        "core": core,
        "link": link.number,
        "pool": link.pool,
        "state": link.state,
        "purpose": link.purpose,
        "layout": link.layout,
        "protocol_version": link.version,
        "tls": link.tls,
        "through_agent": link.is_through_agent,
        "in_flight": link.in_flight.0,
        "in_flight_max": link.in_flight.1,
        "timed_out": link.orphans,
        "clients_waiting": link.waiting,
        "backlog_bytes": link.backlog_bytes,
        "retained_bytes": link.retained_bytes,
        "silent_ms": link.silent_ms,
        "ready_ms": link.ready_ms,
    })
}

fn pool_shown(core: usize, pool: &PoolRow) -> Value {
    json!({
        "core": core,
        "pool": pool.number,
        "role": pool.role.as_deref(),
        "identity": pool.identity.as_deref(),
        "keyspace": pool.keyspace.as_deref(),
        "protocol_version": pool.version,
        "compression": pool.compression,
        "own": pool.is_own,
        "clients": pool.clients,
        "clients_waiting": pool.waiting,
        "links": pool.links.0,
        "links_ready": pool.links.1,
        "login_accepted": !pool.is_unverified,
        "idle_ms": pool.idle_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(port: u16, rate: u64) -> ClientRow {
        let driver = Driver { name: "D".into(), version: "1".into(), application: "shop".into() };
        let address = std::net::SocketAddr::from(([10, 0, 4, 7], port));
        ClientRow {
            address: address.into(),
            local: address,
            stage: "READY",
            version: 5,
            compression: Some("lz4"),
            role: Some("ann".into()),
            identity: None,
            keyspace: None,
            driver: Some(Arc::new(driver)),
            tls: Some(("TLSv1.3", "TLS_AES_128_GCM_SHA256")),
            certificate: Some("CN:ann".into()),
            pool: Some(3),
            paused: None,
            in_flight: 1,
            queries: 7,
            queries_per_second: rate,
            errors: 0,
            bytes: (1, 2),
            backlog_bytes: 0,
            percentiles_us: (Some(5), None),
        }
    }

    fn core(index: usize, ports: std::ops::Range<u16>) -> Mailbox {
        Box::new(move |mail| {
            let CoreMail::Connections(answer) = mail else { panic!("{mail:?}") };
            let listed = CoreConnections {
                core: index,
                clients: ports.clone().map(|port| client(port, port.into())).collect(),
                clients_left_out: 3,
                links: Vec::new(),
                links_left_out: 0,
                pools: Vec::new(),
            };
            answer.try_send(listed).expect("room for every core");
            Ok(())
        })
    }

    #[tokio::test]
    async fn the_clients_of_all_cores_are_one_list_of_those_that_send_most() {
        let most = limits::LISTED_CLIENTS_MAX as u16;
        let cores: [Mailbox; 3] = [core(0, 1..most), core(1, 20_000..20_009), Box::new(Err)];
        let pages = Connections::new(cores.into());
        let page = pages.page(CLIENTS_PAGE).await;
        let rows = page["clients"].as_array().expect("a list");
        assert_eq!((rows.len(), &rows[0]["id"]), (most.into(), &json!("10.0.4.7:20008")));
        let first = &rows[0];
        assert_eq!(
            (&first["core"], &first["address"], &first["port"]),
            (&json!(1), &json!("10.0.4.7"), &json!(20_008))
        );
        let options = json!({ "DRIVER_NAME": "D", "DRIVER_VERSION": "1", "APPLICATION_NAME": "shop", "COMPRESSION": "lz4" });
        assert_eq!(first["options"], options);
        // Each core has left three out, and together they have eight more than fit.
        assert_eq!((&page["left_out"], &page["cores_missing"]), (&json!(14), &json!([2])));
        assert!(page["warnings"][0].as_str().is_some_and(|text| text.starts_with("14 clients")));
        let links = pages.page(LINKS_PAGE).await;
        assert_eq!((&links["links"], &links["warnings"]), (&json!([]), &json!([])));
    }
}
