//! Schema agreement with rows that mislead and at addresses that lead elsewhere.

use super::fake::{FIRST_SCHEMA_VERSION, FakeNode, FakeRing, bind_soon};
use super::following::{is_awaited, node_id, started};
use super::*;

/// A node that has changed its address may keep the row of its former one.
#[tokio::test]
async fn a_remnant_of_the_maker_among_its_peers_brings_the_change_to_nobody() {
    let ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    ring.edit(|state| {
        let former = SocketAddr::from(([127, 1, 0, 1], 1));
        state.remnants = vec![FakeNode { address: former, ..state.nodes[0].clone() }];
        assert_eq!(state.remnants[0].schema_version, FIRST_SCHEMA_VERSION);
    });
    is_awaited(&ring, &mut bench, 1, |state| state.nodes[0].schema_version = 78).await;
}

/// The node on the control connection and the maker both miss a node that is up.
#[tokio::test]
async fn a_node_that_the_maker_does_not_know_has_to_have_the_change_too() {
    let ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    for (ticket, maker) in [(1, 1), (2, 2)] {
        let node = node_id(&bench, maker);
        let mut missed = Vec::new();
        ring.edit(|state| missed.extend(state.nodes.pop()));
        let queries = || ring.state.lock().expect("lock").queries;
        let before = queries();
        let request = ControlRequest::AwaitSchemaAgreement { node, core: 0, ticket, table: None };
        bench.ask(request).await;
        // Each check asks local and peers.
        eventually(|| queries() >= before + 6).await;
        assert!(bench.mail.try_recv().is_err(), "two of three nodes are told of");
        ring.edit(|state| state.nodes.append(&mut missed));
        let mail = bench.next_mail().await;
        assert!(matches!(mail, CoreMail::SchemaAgreed { ticket: of, .. } if of == ticket));
    }
}

#[tokio::test]
async fn a_version_that_is_not_known_is_not_agreement() {
    let ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    is_awaited(&ring, &mut bench, 1, |state| state.nodes[0].schema_version = 0).await;
    is_awaited(&ring, &mut bench, 1, |state| state.nodes[2].schema_version = 0).await;
    is_awaited(&ring, &mut bench, 2, |state| state.nodes[1].schema_version = 0).await;
}

/// The first node never has the change. To the third node, at the address of the second, its old
/// version and its new one would both be versions with the change.
#[tokio::test]
async fn another_node_at_the_address_of_the_maker_is_not_believed() {
    let mut ring = FakeRing::start(3).await;
    let mut bench = started(&ring).await;
    ring.kill(2);
    let listener = bind_soon(ring.address(2)).await;
    ring.serve(3, listener);
    ring.edit(|state| state.nodes[1].schema_version = 78);
    let node = node_id(&bench, 2);
    let queries = || ring.state.lock().expect("lock").queries;
    let before = queries();
    let request = ControlRequest::AwaitSchemaAgreement { node, core: 0, ticket: 1, table: None };
    bench.ask(request).await;
    // Each check asks local and peers.
    eventually(|| queries() >= before + 6).await;
    let before = queries();
    ring.edit(|state| state.nodes[2].schema_version = 78);
    eventually(|| queries() >= before + 6).await;
    // The end of the connection is the end of the wait.
    ring.kill(3);
    let mail = bench.next_mail().await;
    assert!(matches!(mail, CoreMail::SchemaAgreed { ticket: 1, agreed: false }), "{mail:?}");
}
