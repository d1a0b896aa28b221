//! Clients that leave before the answer to a request for a lock, or to its release: the lock is
//! free soon after.

use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::bytes;

use super::lock_ring::{LockTestbed, Tables, lock_row};
use super::locks::take;

/// The release waits, because the rows of the lock's partition are still being read.
#[test]
fn a_release_goes_on_when_its_client_leaves() {
    let tables = Tables::shared();
    {
        let mut inside = tables.lock().unwrap();
        inside.reads_unanswered = true;
        inside.rows.push(lock_row(b"a", b"me", 7, 3_600_000, 7));
    }
    let mut ring = LockTestbed::with_tables(tables, |_| {});
    let [leaves, stays] = [0; 2].map(|_| ring.client(None));
    ring.tables.lock().unwrap().reads_unanswered = false;
    ring.ask(leaves, "SELECT owner FROM shunt.locks WHERE name = 'b'");
    let nodes = ring.testbed.scene.nodes.clone();
    nodes.iter().for_each(|node| ring.testbed.scene.world.freeze(*node));
    let release = "DELETE FROM shunt.locks WHERE name = 'a' IF owner = 'me'";
    ring.testbed.send(leaves, &bytes::query(4, 1, release));
    ring.testbed.run_for(100 * MILLISECOND);
    ring.testbed.reset(leaves);
    ring.testbed.run_for(100 * MILLISECOND);
    nodes.iter().for_each(|node| ring.testbed.scene.world.thaw(*node));
    ring.testbed.run_for(SECOND);
    assert!(ring.applies(stays, &take("locks", "a", "other")));
    assert_eq!(ring.testbed.scene.metrics[0].in_flight.get(), 0);
}
