//! Answers of 1 to 16 MiB over one connection of the Rust driver, unmodified, while a proxy hands
//! that connection over to agents for each of them, a thousand small queries are in flight on it, 5
//! MiB are inserted, and tables come and go. Every answer is compared with what was written.
//!
//! Environment: `SHUNT_MOVED` is the proxy's address, `SHUNT_MOVED_NODE` a node's,
//! `SHUNT_MOVED_ADMIN` that of the proxy's metrics, `SHUNT_MOVED_TIMES` how often the connection is
//! to be moved; `tests/dispatch/test_cql_drivers.py` makes the hosts. The programs of the other
//! drivers do the same.

mod data;
mod work;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::client::{Compression, PoolSize};

use data::{Data, KEYSPACE};
use work::Work;

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(90);
/// The driver speaks protocol v4 only.
const SETUPS: [(&str, Option<Compression>); 2] = [("v4", None), ("v4_lz4", Some(Compression::Lz4))];

fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is missing: tests/dispatch/test_cql_drivers.py makes the hosts that this test needs")
    })
}

/// A session with one connection for queries, and the driver's own for events.
async fn open(address: &str, compression: Option<Compression>) -> Session {
    let profile = ExecutionProfile::builder().request_timeout(Some(PATIENCE)).build();
    SessionBuilder::new()
        .known_node(address)
        .compression(compression)
        .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
        .connection_timeout(PATIENCE)
        .default_execution_profile_handle(profile.into_handle())
        .build()
        .await
        .unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// Hand-overs of clients' connections so far.
fn moves() -> usize {
    let address = environment("SHUNT_MOVED_ADMIN");
    let mut stream =
        TcpStream::connect(&address).unwrap_or_else(|error| panic!("{address}: {error}"));
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    let begin = r#"shunt_handover_answers_total{way="handed_over"} "#;
    let number = page
        .lines()
        .find_map(|line| line.strip_prefix(begin))
        .expect("shunt_handover_answers_total in the metrics");
    number.trim().parse().expect("a number")
}

#[test]
fn large_answers_move_the_connection() {
    let times: usize = environment("SHUNT_MOVED_TIMES").parse().expect("SHUNT_MOVED_TIMES");
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    runtime.block_on(async {
        let node = open(&environment("SHUNT_MOVED_NODE"), None).await;
        let data = Data::written(&node).await;
        for (number, (name, compression)) in SETUPS.into_iter().enumerate() {
            let before = moves();
            let session = open(&environment("SHUNT_MOVED"), compression).await;
            let work = Work::new(session, &data, name, number, before + times).await;
            work.all().await;
            let select = node
                .prepare(format!("SELECT v FROM {KEYSPACE}.blobs WHERE k = ?"))
                .await
                .expect("prepare");
            for (key, value) in work.written() {
                work::read(&node, &select, key, &value).await;
            }
            println!("{name}: moved {} times, {} small answers", moves() - before, work.small());
        }
    });
}
