//! Threads of nodes that panic while the nodes serve.

use std::net::SocketAddr;

use shunt_storage::Target;
use shunt_storage::row::{Fragment, PartitionKey, Row, TableId};
use shunt_storage::store::{Durability, Mutation};

use super::*;
use crate::trace::{Origin, Trace};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_thread_that_dies_is_named_and_the_nodes_have_not_ended_well() {
    let sync = |nodes: &Nodes| {
        let store = &nodes.shared.stores()[0];
        store.subscribe(Box::new(|_| panic!("as the test wants it")));
        let (table, partition, target) = (TableId(1), PartitionKey(&[0; 12]), Target::Row(&[]));
        let mutation =
            Mutation { table, partition, target, fragment: Fragment::Row(Row::default()) };
        store.apply(&[mutation], Durability::Batch).unwrap();
    };
    let trace = |nodes: &Nodes| {
        let origin = Origin { session: [0; 16], started_us: 0, client: None };
        // The node does not exist.
        assert!(nodes.shared.traces.keep(Box::new(Trace::begin("a request", origin)), 9));
    };
    for (name, kill) in [("store-sync of node 0", sync as fn(&Nodes)), ("traces", trace)] {
        for while_serving in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
            let nodes =
                Nodes::start(NodesOptions::new(directory.path().to_owned(), listen)).unwrap();
            // Reading the pages does not keep the stores open.
            let _pages = nodes.admin();
            assert!(nodes.dead_threads().is_empty(), "{name}");
            kill(&nodes);
            while while_serving && nodes.dead_threads().is_empty() {
                std::thread::yield_now();
            }
            assert!(!while_serving || nodes.dead_threads() == [name]);
            assert_eq!(nodes.stop(PATIENCE), Stopped::Died, "{name}");
        }
    }
}

#[test]
fn a_loop_that_dies_is_told() {
    let (tell, told) = channel();
    let ended: LoopEnded = Arc::new(move |node, failure| tell.send((node, failure)).unwrap());
    let (alive, all_ended) = channel();
    let thread = spawn_loop(3, || panic!("as the test wants it"), ended, alive).unwrap();
    assert!(matches!(told.recv().unwrap(), (3, Some(_))));
    assert!(all_ended.recv().is_err(), "nobody waits for it");
    assert!(thread.join().is_ok());
}
