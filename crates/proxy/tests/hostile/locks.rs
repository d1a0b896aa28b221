//! What one client, node or row can do to others through locks.

use shunt_proxy::config::Secret;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{IS_BOOTSTRAPPING, OVERLOADED, UNAUTHORIZED, WRITE_TIMEOUT};
use shunt_wire::cql::message::{Consistency, put};

use super::handshake_node::HandshakeNode;
use super::lock_ring::{LockTestbed, Tables, Writes, lock_row};

fn take(table: &str, name: &str, owner: &str) -> String {
    format!("INSERT INTO shunt.{table} (name, owner) VALUES ('{name}', '{owner}') IF NOT EXISTS USING TTL 20")
}

#[test]
fn a_lock_is_granted() {
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    assert!(ring.applies(client, &take("fast_locks", "a", "me")));
    assert!(ring.applies(client, &take("locks", "a", "me")));
    assert_eq!(ring.tables.lock().unwrap().written, 1);
}

/// Logs and `/status` show the first bytes of a role; a hold belongs to all of it.
#[test]
fn roles_that_begin_alike_are_not_one() {
    let roles = ["ann", "eve"].map(|end| format!("{}{end}", "r".repeat(100)));
    let mut ring = LockTestbed::new(|options| {
        options.credentials = roles.iter().map(|role| (role.clone(), "secret".to_owned())).collect();
        options.config.username = Some(roles[0].clone());
        options.config.password = Some(Secret::new("secret"));
    });
    let [ann, eve] = [0, 1].map(|role| ring.client(Some((&roles[role], "secret"))));
    assert!(ring.applies(ann, &take("fast_locks", "a", "me")));
    let release = "DELETE FROM shunt.fast_locks WHERE name = 'a' IF owner = 'me'";
    assert_eq!(ring.ask(eve, release).error().0, UNAUTHORIZED);
    assert!(ring.applies(ann, release));
}

const PEER: &str = "10.2.0.2:9042";
