//! Locks are taken, renewed, waited for, shared and released.

use std::time::Instant;

use scylla::statement::batch::{Batch, BatchType};

use crate::client::{ACQUIRE, Client, PATIENCE, RELEASE, TTL, answers, in_every_setup, on, rows};

#[test]
fn a_lock_is_held_by_one_and_its_fences_rise() {
    in_every_setup(async |c| {
        for table in ["locks", "fast_locks"] {
            let (acquire, release) = (on(table, ACQUIRE), on(table, RELEASE));
            let mut last = 0;
            for owner in ["ann", "bob", "ann"] {
                let first = c.ask(&acquire, (&c.name, owner, TTL)).await;
                let fence = first.fence.expect("fence");
                assert!(first.applied && fence > last, "{first:?}");
                assert_eq!(
                    (first.name.as_ref(), first.owner.as_deref(), first.waiters),
                    (Some(&c.name), Some(owner), Some(0))
                );
                assert!((1..=TTL * 1000).contains(&first.ttl_ms.expect("ttl_ms")), "{first:?}");
                for other in [owner, "eve"] {
                    let found = c.ask(&acquire, (&c.name, other, TTL)).await;
                    assert_eq!(
                        (found.applied, found.owner.as_deref(), found.fence),
                        (false, Some(owner), Some(fence))
                    );
                }
                assert!(c.ask(&release, (&c.name, owner)).await.applied);
                last = fence;
            }
        }
    });
}

#[test]
fn prepared_statements_do_what_texts_do() {
    in_every_setup(async |c| {
        // The driver prepares a text that has values. These are prepared by hand, and texts without
        // values are sent as they are.
        let renew = "UPDATE shunt.locks USING TTL ? SET owner = ? WHERE name = ? IF owner = ? AND fence = ?";
        let [acquire, renew, release] =
            [ACQUIRE, renew, "DELETE FROM shunt.locks WHERE name = ? IF owner = ? AND fence = ?"];
        let acquire = c.session.prepare(acquire).await.unwrap();
        let renew = c.session.prepare(renew).await.unwrap();
        let release = c.session.prepare(release).await.unwrap();
        let granted = c.session.execute_unpaged(&acquire, (&c.name, "ann", TTL)).await.unwrap();
        let fence = answers(granted)[0].fence.expect("fence");
        for (by, applied) in [(fence - 1, false), (fence, true)] {
            let renewed = c
                .session
                .execute_unpaged(&renew, (10 * TTL, "ann", &c.name, "ann", by))
                .await
                .unwrap();
            assert_eq!(answers(renewed)[0].applied, applied);
        }
        let look =
            format!("SELECT owner, fence, ttl_ms FROM shunt.locks WHERE name = '{}'", c.name);
        let seen = rows(c.session.query_unpaged(look.as_str(), ()).await.unwrap());
        assert_eq!(
            (seen[0]["owner"].as_text().unwrap().as_str(), seen[0]["fence"].as_bigint()),
            ("ann", Some(fence))
        );
        assert!(seen[0]["ttl_ms"].as_int() > Some(TTL * 1000), "{seen:?}");
        for (by, applied) in [(fence + 1, false), (fence, true)] {
            let released = c.session.execute_unpaged(&release, (&c.name, "ann", by)).await.unwrap();
            assert_eq!(answers(released)[0].applied, applied);
        }
        assert!(rows(c.session.query_unpaged(look, ()).await.unwrap()).is_empty());
        let text = format!(
            "INSERT INTO shunt.locks (name, owner) VALUES ('{}', 'bob') IF NOT EXISTS USING TTL 300",
            c.name
        );
        assert!(c.ask(&text, ()).await.applied);
        assert!(
            c.ask(
                &format!("DELETE FROM shunt.locks WHERE name = '{}' IF owner = 'bob'", c.name),
                ()
            )
            .await
            .applied
        );
    });
}

#[test]
fn another_owner_changes_nothing() {
    in_every_setup(async |c| {
        let fence = c.ask(ACQUIRE, (&c.name, "ann", TTL)).await.fence;
        let renew = "UPDATE shunt.locks USING TTL 300 SET owner = ? WHERE name = ? IF owner = ?";
        let refused =
            [c.ask(RELEASE, (&c.name, "eve")).await, c.ask(renew, ("eve", &c.name, "eve")).await];
        for found in refused {
            assert_eq!(
                (found.applied, found.owner.as_deref(), found.fence),
                (false, Some("ann"), fence)
            );
        }
        assert!(c.ask(RELEASE, (&c.name, "ann")).await.applied);
    });
}

#[test]
fn a_waiting_client_gets_the_released_lock() {
    in_every_setup(async |c| {
        let second = Client::new(None).await;
        let fence = c.ask(ACQUIRE, (&c.name, "first", 3600)).await.fence;
        let waits = "INSERT INTO shunt.locks (name, owner, wait_ms) VALUES (?, ?, 200000) IF NOT EXISTS USING TTL 300";
        let name = c.name.clone();
        let waiting = tokio::spawn(async move { second.once(waits, (name, "second")).await });
        let (look, begun) = ("SELECT waiters FROM shunt.locks WHERE name = ?", Instant::now());
        while rows(c.session.query_unpaged(look, (&c.name,)).await.unwrap())[0]["waiters"].as_int()
            != Some(1)
        {
            assert!(begun.elapsed() < PATIENCE, "nobody waits");
        }
        assert!(!waiting.is_finished(), "it was held");
        assert!(c.ask(RELEASE, (&c.name, "first")).await.applied);
        let found = waiting.await.unwrap().unwrap();
        assert!(
            found.applied && found.owner.as_deref() == Some("second") && found.fence > fence,
            "{found:?}"
        );
        assert!(c.ask(RELEASE, (&c.name, "second")).await.applied);
    });
}

#[test]
fn readers_share_and_a_writer_does_not() {
    in_every_setup(async |c| {
        for table in ["rwlocks", "fast_rwlocks"] {
            let take = on(
                table,
                "INSERT INTO shunt.locks (name, owner, mode) VALUES (?, ?, ?) IF NOT EXISTS USING TTL 300",
            );
            let leave = on(table, "DELETE FROM shunt.locks WHERE name = ? AND owner = ? IF EXISTS");
            let renew = on(
                table,
                "UPDATE shunt.locks USING TTL 300 SET mode = 'S' WHERE name = ? AND owner = ? IF EXISTS",
            );
            for (owner, mode, applied) in [("r1", "S", true), ("r2", "S", true), ("w", "X", false)]
            {
                assert_eq!(
                    c.ask(&take, (&c.name, owner, mode)).await.applied,
                    applied,
                    "{table}: {owner}"
                );
            }
            assert!(c.ask(&renew, (&c.name, "r1")).await.applied);
            let queue =
                "SELECT owner, mode, state FROM shunt.lock_queue WHERE name = ? AND fast = ?";
            let queue =
                c.session.query_unpaged(queue, (&c.name, table == "fast_rwlocks")).await.unwrap();
            let owners: Vec<_> =
                rows(queue).iter().map(|row| row["owner"].as_text().unwrap().clone()).collect();
            assert_eq!(owners, ["r1", "r2"]);
            for owner in ["r1", "r2"] {
                assert!(c.ask(&leave, (&c.name, owner)).await.applied);
            }
            for (owner, mode, applied) in [("w", "X", true), ("r1", "S", false)] {
                assert_eq!(
                    c.ask(&take, (&c.name, owner, mode)).await.applied,
                    applied,
                    "{table}: {owner}"
                );
            }
            assert!(c.ask(&leave, (&c.name, "w")).await.applied);
        }
    });
}

#[test]
fn several_locks_are_taken_all_or_none() {
    in_every_setup(async |c| {
        let names: Vec<String> = (0..5).map(|number| format!("{}-{number}", c.name)).collect();
        let insert = c
            .session
            .prepare(
                "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 300",
            )
            .await
            .unwrap();
        let mut batch = Batch::new(BatchType::Logged);
        names.iter().for_each(|_| batch.append_statement(insert.clone()));
        let of = |owner: &'static str| {
            names.iter().map(|name| (name.as_str(), owner)).collect::<Vec<_>>()
        };
        let taken = c.ask_all(&batch, of("ann")).await;
        assert_eq!(taken.iter().filter_map(|one| one.name.clone()).collect::<Vec<_>>(), names);
        assert!(
            taken.iter().all(|one| one.applied && one.owner.as_deref() == Some("ann")),
            "{taken:?}"
        );
        for name in names.iter().filter(|name| **name != names[3]) {
            assert!(c.ask(RELEASE, (name, "ann")).await.applied);
        }
        let refused = c.ask_all(&batch, of("bob")).await;
        let [one] = &refused[..] else { panic!("{refused:?}") };
        assert_eq!(
            (one.applied, one.name.as_ref(), one.owner.as_deref()),
            (false, Some(&names[3]), Some("ann"))
        );
        for name in &names {
            let held = rows(
                c.session
                    .query_unpaged("SELECT owner FROM shunt.locks WHERE name = ?", (name,))
                    .await
                    .unwrap(),
            );
            assert_eq!(held.len(), usize::from(*name == names[3]), "{name}: {held:?}");
        }
    });
}
