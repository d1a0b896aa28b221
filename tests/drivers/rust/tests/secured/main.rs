//! Connects the Rust driver, unmodified, to a proxy with mutual TLS. `SHUNT_SECURED` is the proxy's
//! address; `SHUNT_SECURED_CA`, `SHUNT_SECURED_CERTIFICATE` and `SHUNT_SECURED_KEY` are files in
//! PEM. `tests/tls/test_other_drivers.py` makes them. Programs of other drivers do the same.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::Compression;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::response::PagingState;

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(120);
/// An answer of many records.
const LARGE: usize = 1 << 20;
/// The driver speaks protocol v4 only.
const SETUPS: [(&str, Option<Compression>); 2] = [("v4", None), ("v4_lz4", Some(Compression::Lz4))];

fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is missing: tests/tls/test_other_drivers.py starts the proxy")
    })
}

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_file_iter(environment(name)).expect("a file in PEM");
    found.collect::<Result<_, _>>().expect("certificates")
}

fn tls() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("SHUNT_SECURED_CA") {
        roots.add(certificate).expect("a CA");
    }
    let chain = certificates("SHUNT_SECURED_CERTIFICATE");
    let key = PrivateKeyDer::from_pem_file(environment("SHUNT_SECURED_KEY")).expect("a key");
    let config = ClientConfig::builder().with_root_certificates(roots);
    Arc::new(config.with_client_auth_cert(chain, key).expect("a key of the certificate"))
}

async fn work(session: &Session, keyspace: &str) {
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    for statement in [
        format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}"),
        format!("CREATE TABLE IF NOT EXISTS {keyspace}.items (k int PRIMARY KEY, v blob)"),
    ] {
        session.query_unpaged(statement, ()).await.expect("a change of the schema");
    }
    let insert = format!("INSERT INTO {keyspace}.items (k, v) VALUES (?, ?)");
    let select = format!("SELECT v FROM {keyspace}.items WHERE k = ?");
    let insert = session.prepare(insert).await.expect("a statement");
    let select = session.prepare(select).await.expect("a statement");
    for (key, size) in (0..).zip([1, 100, LARGE]) {
        let written: Vec<u8> = (0..size).map(|index| (index ^ (index >> 8)) as u8).collect();
        session.execute_unpaged(&insert, (key, &written)).await.expect("a write");
        let rows = session.execute_unpaged(&select, (key,)).await.expect("a read");
        let rows = rows.into_rows_result().expect("rows");
        let (found,) = rows.single_row::<(Vec<u8>,)>().expect("one row");
        assert!(found == written, "of {size} bytes others came back");
    }
    let mut keys = session.prepare(format!("SELECT k FROM {keyspace}.items")).await.expect("keys");
    keys.set_page_size(2);
    let first = session.execute_single_page(&keys, (), PagingState::start()).await.expect("a page");
    let ControlFlow::Continue(state) = first.1.into_paging_control_flow() else {
        panic!("one page has three rows, not two")
    };
    let rest = session.execute_single_page(&keys, (), state).await.expect("the other page");
    let rows = [first.0, rest.0].map(|page| page.into_rows_result().expect("rows").rows_num());
    assert_eq!(rows, [2, 1]);
}

#[test]
fn mutual_tls() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        for (name, compression) in SETUPS {
            let profile = ExecutionProfile::builder().request_timeout(Some(PATIENCE)).build();
            let session = SessionBuilder::new()
                .known_node(environment("SHUNT_SECURED"))
                .tls_context(Some(tls()))
                .compression(compression)
                .connection_timeout(PATIENCE)
                .default_execution_profile_handle(profile.into_handle())
                .build()
                .await
                .expect("a session");
            work(&session, &format!("secured_rust_{name}")).await;
        }
    });
}
