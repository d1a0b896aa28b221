//! The only proxy that the driver was told of is killed.

use std::env;
use std::process::Command;
use std::time::Instant;

use scylla::errors::{DbError, ExecutionError};
use scylla::serialize::row::SerializeRow;
use tokio::runtime::Runtime;

use crate::client::{
    ACQUIRE, Answer, Client, PATIENCE, PAUSE, RELEASE, TTL, is_not_served, on, proxies, said,
};

/// Enough locks for each proxy to own some.
const COUNT: usize = 24;

/// The client goes on with the others; what it held it holds, and it is granted more.
#[test]
fn a_killed_proxys_clients_go_on_with_the_others() {
    let victim = env::var("SHUNT_FLEET_VICTIM").expect("SHUNT_FLEET_VICTIM");
    Runtime::new().expect("runtime").block_on(async {
        let c = Client::new(None).await;
        // A proxy that was not run for as long as a lease is none of the fleet for a moment.
        let begun = Instant::now();
        while c.session.get_cluster_state().get_nodes_info().len() != proxies().len() {
            assert!(
                begun.elapsed() < PATIENCE,
                "{:?}",
                c.session.get_cluster_state().get_nodes_info()
            );
            c.session.refresh_metadata().await.expect("metadata");
            tokio::time::sleep(PAUSE).await;
        }
        let mut held = Vec::new();
        for number in 0..COUNT {
            let name = format!("{}-held-{number}", c.name);
            let fence = c.ask(ACQUIRE, (&name, "ann", 600)).await.fence;
            held.push((name, fence));
        }
        assert!(Command::new("kill").args(["-KILL", &victim]).status().expect("kill").success());
        some_are_refused(&c).await;
        for (name, fence) in &held {
            let found = goes_on(&c, ACQUIRE, (name, "bob", TTL)).await;
            assert_eq!(
                (found.applied, found.owner.as_deref(), found.fence),
                (false, Some("ann"), *fence),
                "{name}"
            );
            let found = goes_on(&c, RELEASE, (name, "ann")).await;
            // The answer to a first release may have been lost.
            assert!(found.applied || found.owner.is_none(), "{name}: {found:?}");
        }
        for number in 0..COUNT {
            let found =
                goes_on(&c, ACQUIRE, (format!("{}-new-{number}", c.name), "ann", TTL)).await;
            assert_eq!(found.owner.as_deref(), Some("ann"));
        }
    });
}

/// Locks in memory that the killed one may have granted are nobody's for longer than its lease.
async fn some_are_refused(c: &Client) {
    let (acquire, begun) = (on("fast_locks", ACQUIRE), Instant::now());
    loop {
        for number in 0..COUNT {
            match c.once(&acquire, (format!("{}-fast-{number}", c.name), "ann", TTL)).await {
                Ok(_) => {}
                Err(error) if is_not_served(&error) => return,
                Err(error) => may_be_told(&error),
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no lock in memory was refused by IS_BOOTSTRAPPING");
    }
}

/// Asks until there is an answer that says what is.
async fn goes_on(c: &Client, statement: &str, values: impl SerializeRow) -> Answer {
    let begun = Instant::now();
    loop {
        match c.once(statement, &values).await {
            Ok(answer) => return answer,
            Err(error) => {
                may_be_told(&error);
                assert!(begun.elapsed() < PATIENCE, "{statement}: {error:?}");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Errors that a server may return at such a moment; any other is a failure.
fn may_be_told(error: &ExecutionError) {
    match said(error) {
        None | Some(DbError::IsBootstrapping | DbError::WriteTimeout { .. }) => {}
        Some(other) => panic!("{other}"),
    }
}
