//! Harm that one client, node or row can do to others through locks.

use shunt_proxy::config::Secret;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{
    INVALID, IS_BOOTSTRAPPING, OVERLOADED, UNAUTHORIZED, WRITE_TIMEOUT,
};
use shunt_wire::cql::message::{Consistency, put};

use super::handshake_node::HandshakeNode;
use super::lock_ring::{LockTestbed, Tables, Writes, lock_row};
use super::lock_withdrawals::forwarded_as;
use super::support::scene::OTHER_AUTHENTICATOR;

pub fn take(table: &str, name: &str, owner: &str) -> String {
    format!(
        "INSERT INTO shunt.{table} (name, owner) VALUES ('{name}', '{owner}') IF NOT EXISTS USING TTL 20"
    )
}

#[test]
fn a_lock_is_granted() {
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    assert!(ring.applies(client, &take("fast_locks", "a", "me")));
    assert!(ring.applies(client, &take("locks", "a", "me")));
    assert_eq!(ring.tables.lock().unwrap().written, 1);
}

/// Members of two versions may be in one fleet: one that knows no mode forwards every renewal with
/// 'X', as kind 1.
#[test]
fn a_renewal_has_the_mode_of_the_hold_unless_an_older_proxy_forwards_it() {
    let mut ring = LockTestbed::new(|_| {});
    let [client, proxy] = [0; 2].map(|_| ring.client(None));
    for (table, held, other) in [("fast_rwlocks", 'S', 'X'), ("rwlocks", 'X', 'S')] {
        let taken = format!(
            "INSERT INTO shunt.{table} (name, owner, mode) VALUES ('a', 'me', '{held}') IF NOT EXISTS USING TTL 20"
        );
        assert!(ring.applies(client, &taken));
        let renew = |mode, condition| {
            let key = "name = 'a' AND owner = 'me'";
            format!(
                "UPDATE shunt.{table} USING TTL 25 SET mode = '{mode}' WHERE {key} IF {condition}"
            )
        };
        let (code, why) = ring.ask(client, &renew(other, "EXISTS")).error();
        assert!(
            code == INVALID
                && why.contains("in the other mode")
                && why.contains("release it first"),
            "{why}"
        );
        assert!(ring.applies(client, &renew(held, "EXISTS")));
        assert!(
            !ring.applies(client, &renew(other, "fence = 1")),
            "it is another hold's, whatever its mode"
        );
        for (kind, mode, is_taken) in
            [(1, other, true), (1, held, true), (4, held, true), (4, other, false)]
        {
            ring.testbed.send(proxy, &forwarded_as(kind, 1, &renew(mode, "EXISTS")));
            ring.testbed.answered(proxy, 1);
            let answer = ring.testbed.take_answers(proxy).remove(0);
            assert_eq!(answer.opcode() == opcode::RESULT, is_taken, "{kind} {mode}");
            match is_taken {
                true => assert_eq!(answer.rows()[0][0].as_deref(), Some(&[1][..])),
                false => assert_eq!(answer.error().0, INVALID),
            }
        }
        let answer = ring.ask(client, &format!("SELECT mode FROM shunt.{table} WHERE name = 'a'"));
        assert_eq!(answer.rows()[0][0].as_deref(), Some(&[held as u8][..]));
    }
}

/// Logs and `/status` show the first bytes of a role; a hold belongs to the whole role.
#[test]
fn roles_that_begin_alike_are_not_one() {
    let roles = ["ann", "eve"].map(|end| format!("{}{end}", "r".repeat(100)));
    let mut ring = LockTestbed::new(|options| {
        options.credentials =
            roles.iter().map(|role| (role.clone(), "secret".to_owned())).collect();
        options.config.username = Some(roles[0].clone());
        options.config.password = Some(Secret::new("secret"));
    });
    let [ann, eve] = [0, 1].map(|role| ring.client(Some((&roles[role], "secret"))));
    assert!(ring.applies(ann, &take("fast_locks", "a", "me")));
    let release = "DELETE FROM shunt.fast_locks WHERE name = 'a' IF owner = 'me'";
    assert_eq!(ring.ask(eve, release).error().0, UNAUTHORIZED);
    assert!(ring.applies(ann, release));
}

/// A list of a thousand is some 300 times as long as the statement that asks for it.
#[test]
fn lists_are_not_made_faster_than_they_are_taken() {
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    let mut holders = Vec::new();
    for number in 0..1_000 {
        let owner = format!("{number:0>256}");
        let text = format!(
            "INSERT INTO shunt.fast_rwlocks (name, owner, mode) VALUES ('a', '{owner}', 'S') IF NOT EXISTS USING TTL 30"
        );
        holders.extend(bytes::query(4, number, &text));
    }
    ring.testbed.send(client, &holders);
    ring.testbed.answered(client, 1_000);
    ring.testbed.take_answers(client);
    let lists: Vec<u8> = (0..1_000)
        .flat_map(|stream| {
            bytes::query(4, stream, "SELECT * FROM shunt.lock_queue WHERE name = 'a'")
        })
        .collect();
    ring.testbed.stop_reading(client);
    ring.testbed.send(client, &lists);
    ring.testbed.run_for(SECOND);
    let held = ring.testbed.scene.world.held(ring.testbed.scene.cores[0]);
    assert!(held.backlog_most <= 16 << 20, "{held:?}");
    ring.testbed.resume_reading(client);
    ring.testbed.answered(client, 1_000);
    let lists = ring.testbed.take_answers(client);
    let (whole, refused): (Vec<_>, Vec<_>) =
        lists.iter().partition(|answer| answer.opcode() == opcode::RESULT);
    assert!(!whole.is_empty() && whole.iter().all(|answer| answer.rows().len() == 1_000));
    assert!(refused.iter().all(|answer| answer.error().0 == OVERLOADED));
}

/// A client that asks for more than a list has is told so, except in v3, which cannot express it.
#[test]
fn a_list_that_lacks_some_says_so() {
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    for thousand in 0..2 {
        let shares: Vec<u8> = (0..600)
            .flat_map(|number| {
                let (owner, key) = (format!("{thousand}-{number}"), "(name, owner, mode) VALUES");
                let share =
                    format!("INSERT INTO shunt.fast_rwlocks {key} ('a', '{owner}', 'S') IF NOT EXISTS USING TTL 30");
                let taken = take("locks", &owner, "me");
                [bytes::query(4, number, &share), bytes::query(4, 600 + number, &taken)].concat()
            })
            .collect();
        ring.testbed.send(client, &shares);
        ring.testbed.answered(client, 1_200);
        ring.testbed.take_answers(client);
    }
    for (text, count, is_cut) in [
        ("SELECT * FROM shunt.lock_queue WHERE name = 'a'", 1_000, true),
        ("SELECT * FROM shunt.lock_queue WHERE name = 'a' LIMIT 1001", 1_000, true),
        ("SELECT * FROM shunt.lock_queue WHERE name = 'a' LIMIT 1000", 1_000, false),
        ("SELECT * FROM shunt.fast_rwlocks WHERE name = 'a'", 1_000, true),
        ("SELECT * FROM shunt.fast_rwlocks WHERE name = 'a' AND owner = '1-599'", 0, true),
        ("SELECT * FROM shunt.locks LIMIT 5000", 1_000, true),
        ("SELECT * FROM shunt.locks", 1_000, true),
        ("SELECT * FROM shunt.locks LIMIT 7", 7, false),
        ("SELECT * FROM shunt.locks WHERE name = '0-7'", 1, false),
    ] {
        let answer = ring.ask(client, text);
        let warnings: Vec<&str> =
            answer.prefix().warnings.into_iter().flat_map(|all| all.iter()).collect();
        assert_eq!((answer.rows().len(), warnings.len()), (count, usize::from(is_cut)), "{text}");
        assert!(warnings.iter().all(|warning| warning.contains("the first 1000")), "{warnings:?}");
    }
}

/// Each proxy answers for the locks that it keeps, and a client that takes the answer for the
/// fleet's must be told.
#[test]
fn a_list_of_one_proxys_locks_says_that_it_is_a_part() {
    let warnings = |ring: &mut LockTestbed, client, text: &str| {
        let answer = ring.ask(client, text);
        let warnings =
            answer.prefix().warnings.into_iter().flat_map(|all| all.iter().map(str::to_owned));
        warnings.collect::<Vec<_>>()
    };
    let mut ring = LockTestbed::with_tables(Tables::with_peer(PEER.parse().unwrap()), |_| {});
    peer(&mut ring);
    let client = ring.client(None);
    for text in ["SELECT * FROM shunt.locks LIMIT 7", "SELECT name FROM shunt.fast_locks"] {
        let told = warnings(&mut ring, client, text);
        assert_eq!(told.len(), 1, "{text}: {told:?}");
        assert!(
            told[0].contains("of this proxy alone") && told[0].contains("`shunt locks`"),
            "{told:?}"
        );
    }
    // The only proxy of a fleet has all locks.
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    assert_eq!(
        warnings(&mut ring, client, "SELECT * FROM shunt.locks LIMIT 7"),
        Vec::<String>::new()
    );
}

/// A core with very many locks scans them once a second and answers from that scan, even for one
/// lock more than before.
#[test]
fn questions_for_ever_more_locks_are_one_look() {
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    for thousand in 0..17 {
        let name = |number: i16| format!("{thousand}-{number}");
        let taken: Vec<u8> = (0..1_000)
            .flat_map(|number| bytes::query(4, number, &take("fast_locks", &name(number), "me")))
            .collect();
        ring.testbed.send(client, &taken);
        ring.testbed.answered(client, 1_000);
        ring.testbed.take_answers(client);
    }
    let other = ring.client(None);
    let wait = "INSERT INTO shunt.fast_locks (name, owner, wait_ms) VALUES ('0-7', 'you', 1500) IF NOT EXISTS USING TTL 20";
    let mut waiting = |limit: u32| {
        let answer =
            ring.ask(client, &format!("SELECT name, waiters FROM shunt.fast_locks LIMIT {limit}"));
        if limit == 1 {
            ring.testbed.send(other, &bytes::query(4, 1, wait));
            ring.testbed.run_for(MILLISECOND);
        }
        answer.rows().iter().filter(|row| row[1].as_deref() == Some(&1_i32.to_be_bytes())).count()
    };
    assert_eq!([1, 2, 3].map(&mut waiting), [0, 0, 0], "the waiter came after the look");
    ring.testbed.run_for(SECOND);
    let answer = ring.ask(client, "SELECT name, waiters FROM shunt.fast_locks LIMIT 3");
    assert_eq!(answer.rows()[0][1].as_deref(), Some(&1_i32.to_be_bytes()[..]), "{answer:?}");
}

/// Unanswered rows must leave room for the statement that renews the lease.
#[test]
fn rows_that_are_not_answered_do_not_end_the_lease() {
    let mut ring = LockTestbed::new(|options| options.config.query_timeout_ms = 10_000);
    ring.tables.lock().unwrap().writes = Writes::Unanswered;
    let client = ring.client(None);
    let wanted: Vec<u8> = (0..20_000)
        .flat_map(|stream| bytes::query(4, stream, &take("locks", &stream.to_string(), "me")))
        .collect();
    ring.testbed.send(client, &wanted);
    ring.testbed.run_for(9 * SECOND);
    let other = ring.client(None);
    assert!(ring.applies(other, &take("fast_locks", "a", "me")));
}

/// Without logins, and with the version, keyspace and compression of the proxy's own statements.
#[test]
fn queries_of_others_that_are_not_answered_do_not_end_the_lease() {
    let mut ring = LockTestbed::new(|options| options.config.query_timeout_ms = 20_000);
    for _ in 0..4 {
        let client = ring.client(None);
        let wanted: Vec<u8> = (0..20_000)
            .flat_map(|stream| bytes::query(4, stream, "SELECT k FROM unanswered.t"))
            .collect();
        ring.testbed.send(client, &wanted);
    }
    ring.testbed.run_for(9 * SECOND);
    let other = ring.client(None);
    assert!(ring.applies(other, &take("fast_locks", "a", "me")));
    assert!(ring.applies(other, &take("locks", "a", "me")));
}

fn peer(ring: &mut LockTestbed) -> HostId<HandshakeNode> {
    let mut peer = HandshakeNode::new(false, (1, "peer".to_owned()));
    peer.holds_queries = true;
    let peer = ring.testbed.scene.world.add("peer", peer);
    ring.testbed.scene.world.listen(peer, PEER.parse().unwrap());
    peer
}

const PEER: &str = "10.2.0.2:9042";

/// Another proxy exists and answers no request.
#[test]
fn a_request_that_another_proxy_does_not_answer_is_answered_in_time() {
    let mut ring = LockTestbed::with_tables(Tables::with_peer(PEER.parse().unwrap()), |_| {});
    let peer = peer(&mut ring);
    let client = ring.client(None);
    for text in
        [take("locks", "a", "me"), "SELECT owner FROM shunt.locks WHERE name = 'a'".to_owned()]
    {
        let answer = ring.ask(client, &text);
        assert!(matches!(answer.error().0, WRITE_TIMEOUT | IS_BOOTSTRAPPING), "{text}: {answer:?}");
    }
    assert!(!ring.testbed.scene.world.host(peer).queries.is_empty());
}

/// The first part of a login names the role to act for, and may be anything: with each value the
/// proxy sees another login, unless it knows that nodes ignore that part.
#[test]
fn connections_to_other_proxies_that_nobody_uses_make_room() {
    let mut ring = LockTestbed::with_tables(Tables::with_peer(PEER.parse().unwrap()), |options| {
        options.credentials = vec![("ann".to_owned(), "secret".to_owned())];
        options.authenticator = OTHER_AUTHENTICATOR;
        options.config.username = Some("ann".to_owned());
        options.config.password = Some(Secret::new("secret"));
    });
    let peer = peer(&mut ring);
    ring.testbed.scene.world.with(peer, |peer, _| peer.holds_queries = false);
    for number in 0..1_100 {
        let client = ring.testbed.offender();
        ring.testbed.send(client, &bytes::startup(4, None));
        ring.testbed.answered(client, 1);
        let token = format!("{number}\0ann\0secret");
        ring.testbed.send(client, &bytes::auth_response(4, token.as_bytes()));
        ring.testbed.answered(client, 2);
        ring.testbed.take_answers(client);
        // The peer's answer is not that of a proxy.
        assert_eq!(
            ring.ask(client, &take("locks", "a", "me")).error().0,
            WRITE_TIMEOUT,
            "{number}"
        );
        ring.testbed.reset(client);
    }
}

/// One role must not use all of them either, however many logins it has.
#[test]
fn one_role_leaves_connections_to_other_proxies_for_others() {
    let mut ring = LockTestbed::with_tables(Tables::with_peer(PEER.parse().unwrap()), |options| {
        options.credentials = [("ann", "secret"), ("bob", "secret")]
            .map(|(role, word)| (role.into(), word.into()))
            .to_vec();
        options.authenticator = OTHER_AUTHENTICATOR;
        options.config.username = Some("bob".to_owned());
        options.config.password = Some(Secret::new("secret"));
    });
    // The peer answers nothing, so no connection is idle.
    let peer = peer(&mut ring);
    let ask_as = |ring: &mut LockTestbed, token: &str, name: &str| {
        let client = ring.testbed.offender();
        ring.testbed.send(client, &bytes::startup(4, None));
        ring.testbed.answered(client, 1);
        ring.testbed.send(client, &bytes::auth_response(4, token.as_bytes()));
        ring.testbed.answered(client, 2);
        ring.testbed.take_answers(client);
        ring.testbed.send(client, &bytes::query(4, 1, &take("locks", name, "me")));
    };
    let seen = |ring: &LockTestbed| ring.testbed.scene.world.host(peer).queries.len();
    for number in 0..600 {
        ask_as(&mut ring, &format!("{number}\0ann\0secret"), "a");
    }
    ring.testbed.run_for(100 * MILLISECOND);
    assert_eq!(seen(&ring), 512);
    ask_as(&mut ring, "\0bob\0secret", "a");
    ring.testbed.run_for(SECOND);
    assert_eq!(seen(&ring), 513);
}

/// Another process has this one's `advertise`: requests to it would come back here.
#[test]
fn no_request_is_forwarded_to_the_own_address() {
    let mut ring =
        LockTestbed::with_tables(Tables::with_peer("10.2.0.1:9042".parse().unwrap()), |_| {});
    let client = ring.client(None);
    let accepted = |ring: &LockTestbed| ring.testbed.scene.metrics[0].clients_accepted.get();
    let before = accepted(&ring);
    assert_eq!(ring.ask(client, &take("locks", "a", "me")).error().0, IS_BOOTSTRAPPING);
    assert_eq!(accepted(&ring), before, "it is no client of its own");
}

/// A client with a lock in memory from the shard's former owner may still rely on it. A list
/// without that lock would say that nobody holds it.
#[test]
fn a_list_says_of_no_lock_in_memory_that_nobody_has_it_before_that_is_known() {
    let tables = Tables::shared();
    tables.lock().unwrap().handed_over = 0;
    let mut ring = LockTestbed::begun(tables, |_| {});
    let client = ring.client(None);
    assert!(ring.applies(client, &take("locks", "a", "me")));
    let one = "SELECT owner FROM shunt.fast_locks WHERE name = 'a'";
    let lists = [
        "SELECT owner FROM shunt.lock_queue WHERE name = 'a'",
        "SELECT owner FROM shunt.lock_queue WHERE name = 'a' AND fast = true",
        "SELECT owner FROM shunt.fast_rwlocks WHERE name = 'a'",
    ];
    for text in [one].into_iter().chain(lists) {
        assert_eq!(ring.ask(client, text).error().0, IS_BOOTSTRAPPING, "{text}");
    }
    assert_eq!(
        ring.ask(client, "SELECT owner FROM shunt.lock_queue WHERE name = 'a' AND fast = false")
            .rows()
            .len(),
        1
    );
    ring.testbed.run_for(40 * SECOND);
    for text in [one].into_iter().chain(lists) {
        assert_eq!(ring.ask(client, text).rows().len(), 0, "{text}");
    }
}

/// The proxy retries a request that no proxy serves for a second; but not as many as a client may
/// send.
#[test]
fn repeated_requests_are_bounded() {
    let mut ring =
        LockTestbed::with_tables(Tables::with_peer("10.2.0.99:1".parse().unwrap()), |_| {});
    let client = ring.client(None);
    let wanted: Vec<u8> = (0..30_000)
        .flat_map(|stream| bytes::query(4, stream, &take("locks", &stream.to_string(), "me")))
        .collect();
    ring.testbed.send(client, &wanted);
    ring.testbed.run_for(500 * MILLISECOND);
    let answered = ring.testbed.take_answers(client);
    assert!(answered.len() > 10_000, "{}", answered.len());
    assert!(answered.iter().all(|answer| answer.error().0 == IS_BOOTSTRAPPING));
}

/// A client has written to `shunt_meta.lock`. That stops only the one lock or its partition.
#[test]
fn rows_that_no_proxy_wrote_stop_nothing_else() {
    let tables = Tables::shared();
    let name = b"forged";
    let shard = shunt_locks::shard_of(name);
    let neighbour = (0..).map(|number: u32| number.to_string()).find(|other| {
        shunt_locks::shard_of(other.as_bytes()) == shard
            && shunt_locks::bucket_of(other.as_bytes()) != shunt_locks::bucket_of(name)
    });
    let neighbour = neighbour.unwrap();
    for (fence, ttl_ms, timestamp_us) in
        [(i64::MAX, 1, 1), (1, 1_000, i64::MAX), (i64::MIN, 1_000, i64::MIN), (1, -1, 1)]
    {
        tables.lock().unwrap().rows = vec![lock_row(name, b"me", fence, ttl_ms, timestamp_us)];
        let mut ring = LockTestbed::with_tables(tables.clone(), |_| {});
        let client = ring.client(None);
        let renew = "UPDATE shunt.locks USING TTL 60 SET owner = 'me' WHERE name = 'forged' IF owner = 'me'";
        for text in [&take("locks", "forged", "you"), renew] {
            assert_eq!(ring.ask(client, text).error().0, IS_BOOTSTRAPPING, "{text}");
        }
        assert!(
            ring.applies(client, &take("locks", &neighbour, "me")),
            "{fence} {ttl_ms} {timestamp_us}"
        );
        assert!(
            ring.applies(client, &take("fast_locks", &neighbour, "me")),
            "{fence} {ttl_ms} {timestamp_us}"
        );
        let mut tables = tables.lock().unwrap();
        *tables = std::mem::take(&mut *Tables::shared().lock().unwrap());
    }
}

/// An operator learns the partition while the problem lasts.
#[test]
fn a_partition_with_a_row_that_no_proxy_wrote_is_in_the_metrics_until_it_was_read() {
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    let shown = |ring: &mut LockTestbed| {
        ring.testbed.run_for(SECOND);
        ring.testbed.scene.metrics[0].locks.unreadable.all().collect::<Vec<_>>()
    };
    assert_eq!(shown(&mut ring), [0; 0]);
    ring.tables.lock().unwrap().rows = vec![lock_row(b"forged", b"me", i64::MAX, 1, 1)];
    assert_eq!(ring.ask(client, &take("locks", "forged", "you")).error().0, IS_BOOTSTRAPPING);
    assert_eq!(shown(&mut ring), [shunt_locks::bucket_of(b"forged")]);
    ring.tables.lock().unwrap().rows.clear();
    assert!(ring.applies(client, &take("locks", "forged", "you")));
    assert_eq!(shown(&mut ring), [0; 0]);
}

/// One role must not use up all batches in progress.
#[test]
fn batches_of_one_role_leave_room_for_those_of_others() {
    let roles = ["ann", "bob"];
    let mut ring = LockTestbed::new(|options| {
        options.credentials =
            roles.iter().map(|role| ((*role).to_owned(), "secret".to_owned())).collect();
        options.config.username = Some("ann".to_owned());
        options.config.password = Some(Secret::new("secret"));
    });
    let [ann, bob] = roles.map(|role| ring.client(Some((role, "secret"))));
    assert!(ring.applies(ann, &take("fast_locks", "a", "me")));
    let batch = |first: &str| {
        let one = |name: &str| {
            format!(
                "INSERT INTO shunt.fast_locks (name, owner, wait_ms) VALUES ('{name}', 'other', 1500) \
                 IF NOT EXISTS USING TTL 20;"
            )
        };
        format!("BEGIN BATCH {} {} APPLY BATCH", one(first), one(&format!("{first} and more")))
    };
    let waiting: Vec<u8> =
        (0..20_000).flat_map(|stream| bytes::query(4, stream, &batch("a"))).collect();
    ring.testbed.send(ann, &waiting);
    ring.testbed.run_for(500 * MILLISECOND);
    assert!(ring.applies(bob, &batch("c")));
}

/// A driver that hears that a batch was certainly not executed sends it again, and is then told
/// that it does not hold the lock.
#[test]
fn a_batch_that_has_released_a_lock_does_not_say_that_it_was_not_executed() {
    let roles = ["ann", "bob"];
    let mut ring = LockTestbed::new(|options| {
        options.credentials =
            roles.iter().map(|role| ((*role).to_owned(), "secret".to_owned())).collect();
        options.config.username = Some("own".to_owned());
        options.config.password = Some(Secret::new("secret"));
        options.credentials.push(("own".to_owned(), "secret".to_owned()));
    });
    let [ann, bob] = roles.map(|role| ring.client(Some((role, "secret"))));
    // A batch takes locks in the order of their shards.
    let mut names = ["a", "b", "c"];
    names.sort_by_key(|name| shunt_locks::shard_of(name.as_bytes()));
    let [first, of_bob, last] = names;
    let release = |names: &[&str]| {
        let one = |name: &&str| {
            format!("DELETE FROM shunt.fast_locks WHERE name = '{name}' IF owner = 'me';")
        };
        format!("BEGIN BATCH {} APPLY BATCH", names.iter().map(one).collect::<String>())
    };
    for (client, name) in [(ann, first), (bob, of_bob), (ann, last)] {
        assert!(ring.applies(client, &take("fast_locks", name, "me")));
    }
    let (code, why) = ring.ask(ann, &release(&names)).error();
    assert!(code == WRITE_TIMEOUT && why.contains("2 of the 3 locks"), "{code:#x} {why}");
    assert!(why.contains("another role"), "{why}");
    for (name, is_free) in [(first, true), (of_bob, false), (last, true)] {
        assert_eq!(ring.applies(ann, &take("fast_locks", name, "new")), is_free, "{name}");
    }
    // A batch that has released nothing says why.
    assert_eq!(ring.ask(ann, &release(&[of_bob, first])).error().0, UNAUTHORIZED);
}

fn batch_of(text: &str) -> Vec<u8> {
    let body = bytes::body(|out| {
        out.push(0);
        put::short(out, 1);
        out.push(0);
        put::long_string(out, text);
        put::short(out, 0);
        put::consistency(out, Consistency::ONE);
        out.push(0);
    });
    bytes::request(4, 1, opcode::BATCH, &body)
}

/// An unreadable statement for the tables of locks must not reach a node, which would take it for a
/// row.
#[test]
fn no_statement_on_a_lock_reaches_a_node() {
    let mut ring = LockTestbed::new(|_| {});
    let client = ring.client(None);
    let long = format!("{} {}", take("locks", "a", "me"), "(".repeat(1 << 19));
    for text in [
        &long,
        "INSERT INTO shunt.locks (name, owner) VALUES ('a', 'b') IF NOT EXISTS USING TTL 20 garbage",
        "INSERT INTO shunt.locks JSON '{\"name\": \"a\"}' IF NOT EXISTS",
        "/* c */ INSERT INTO \"shunt\".\"locks\" (name, owner) VALUES ('a', 'b') IF NOT EXISTS USING TTL 20 +",
        "-- c\nUPDATE shunt . locks SET owner = 'a' ? ? WHERE name = 'a'",
        "// c\nDELETE owner FROM Shunt.Locks WHERE name = 'a' ~",
        "SELECT * FROM shunt.locks WHERE name = $$a$$ AND",
        "BEGIN UNLOGGED BATCH INSERT INTO shunt.locks (name, owner) VALUES ('a', 'b') IF NOT EXISTS USING TTL 20; ~ APPLY BATCH",
    ] {
        for request in [bytes::query(4, 1, text), bytes::prepare(4, 1, text), batch_of(text)] {
            ring.testbed.send(client, &request);
            ring.testbed.answered(client, 1);
            let answer = ring.testbed.take_answers(client).remove(0);
            assert_eq!(answer.opcode(), opcode::ERROR, "{text}");
        }
    }
    assert_eq!(ring.tables.lock().unwrap().strays, 0);
}
