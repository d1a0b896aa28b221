//! Statements of clients that may ask.

use shunt_testing::number;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::error_code::{INVALID, SYNTAX_ERROR};
use shunt_wire::cql::message::{Consistency, QueryParams, encode};

use super::*;
use crate::tables::{ADMIN_TABLES, all};

fn texts(client: &mut Client, statement: &str) -> Vec<String> {
    let values = client.column(statement);
    values.into_iter().map(|value| String::from_utf8(value).expect("a text")).collect()
}

#[test]
fn each_table_can_be_selected_in_each_version() {
    let server = Server::start(false);
    for version in 3..=5 {
        let mut client = server.client(version);
        for table in all() {
            let (keyspace, name) = (table.keyspace, table.name);
            let is_there = table
                .source_page()
                .is_none_or(|page| ["status", "config", "slow_queries"].contains(&page));
            if is_there {
                client.rows(&format!("SELECT * FROM {keyspace}.{name}"));
            } else {
                assert_eq!(client.error(&format!("SELECT * FROM {keyspace}.{name}")), INVALID);
            }
        }
        assert_eq!(texts(&mut client, "SELECT cluster_name FROM shunt_admin.proxy"), ["c"]);
        assert_eq!(texts(&mut client, "SELECT key FROM shunt_admin.proxy"), ["local"]);
        let names = texts(
            &mut client,
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'shunt_admin'",
        );
        assert_eq!(names, ADMIN_TABLES.iter().map(|table| table.name).collect::<Vec<_>>());
    }
}

#[test]
fn rows_are_chosen_ordered_and_counted() {
    let server = Server::start(false);
    let mut client = server.client(5);
    client.run("USE shunt_admin");
    for (rest, expected) in [
        ("WHERE queries > 6", &["10.0.0.1", "10.0.0.3"][..]),
        ("WHERE queries >= 5 AND queries < 30 ALLOW FILTERING", &["10.0.0.2", "10.0.0.3"]),
        ("WHERE role IN ('cron', 'nobody', 'shop')", &["10.0.0.1", "10.0.0.3"]),
        ("WHERE role IN ('shop', 'cron', 'shop')", &["10.0.0.1", "10.0.0.3"]),
        ("WHERE queries IN (30, -1, 7, 6)", &["10.0.0.1", "10.0.0.3"]),
        ("WHERE role != 'shop'", &["10.0.0.3"]),
        ("WHERE role IS NOT NULL LIMIT 1", &["10.0.0.1"]),
        ("WHERE address <= '10.0.0.2' ORDER BY queries", &["10.0.0.2", "10.0.0.1"]),
        ("WHERE queries < 100 ORDER BY role DESC", &["10.0.0.1", "10.0.0.3", "10.0.0.2"]),
        ("WHERE queries < 100 ORDER BY role", &["10.0.0.2", "10.0.0.3", "10.0.0.1"]),
        ("WHERE clients = 9", &[]),
    ] {
        let statement = format!("SELECT address FROM client_groups {rest}");
        let rows = client.rows(&statement);
        let found: Vec<String> = rows
            .into_iter()
            .filter_map(|row| row.into_iter().next().flatten())
            .map(|address| String::from_utf8(address).expect("a text"))
            .collect();
        assert_eq!(found, expected, "{rest}");
    }
    let sums = client.rows("SELECT queries, others FROM client_groups WHERE others = true");
    assert_eq!((number(sums[0][0].as_ref()), &sums[0][1]), (Some(100), &Some(vec![1])));
    let counted = client.rows("SELECT count(*) AS n, role FROM client_groups WHERE queries > 6");
    assert_eq!((number(counted[0][0].as_ref()), counted.len()), (Some(3), 1));
    let node = client.rows("SELECT p50_us, p99_us, host_id, up FROM nodes");
    let expected = [Some(250.5f64.to_be_bytes().to_vec()), None, Some(vec![1; 16]), Some(vec![1])];
    assert_eq!(node, [expected]);
}

#[test]
fn cores_that_do_not_answer_are_a_warning() {
    let server = Server::start(false);
    for version in 3..=5 {
        let answer = server.client(version).query("SELECT * FROM shunt_admin.client_groups");
        let warnings: Vec<_> = answer
            .prefix()
            .warnings
            .iter()
            .flat_map(|list| list.iter().map(str::to_owned))
            .collect();
        let expected = "rows are missing: core 1 has not answered in time";
        assert_eq!(warnings, [expected][..usize::from(version > 3)]);
    }
}

#[test]
fn pages_follow_each_other() {
    let server = Server::start(false);
    for version in 3..=5 {
        let mut client = server.client(version);
        let (mut state, mut found) = (None, Vec::new());
        loop {
            let mut body = Vec::new();
            let params = QueryParams {
                page_size: Some(3),
                paging_state: state.as_deref(),
                ..QueryParams::simple(Consistency(1))
            };
            encode::query(
                &mut body,
                version,
                "SELECT address, queries FROM shunt_admin.client_groups",
                &params,
            );
            client.send(Header::request(version, 1, opcode::QUERY), &body);
            let answer = client.receive();
            found.push(answer.rows().len());
            state = answer.paging_state();
            if state.is_none() {
                break;
            }
        }
        assert_eq!(found, [3, 1]);
    }
}

#[test]
fn a_prepared_statement_serves_all_connections() {
    let server = Server::start(false);
    for version in 3..=5 {
        let statement = server.client(version).prepare(
            "SELECT address FROM shunt_admin.client_groups WHERE role = ? AND queries > ? LIMIT ?",
        );
        let mut other = server.client(version);
        let execute = |client: &mut Client, values: &[&[u8]]| {
            let bytes = shunt_testing::bytes::execute(version, 1, &statement.id, values);
            let header = Header::decode(&bytes).expect("a header");
            client.send(header, &bytes[9..]);
            client.receive()
        };
        let values: [&[u8]; 3] = [b"shop", &7i64.to_be_bytes(), &1i32.to_be_bytes()];
        assert_eq!(execute(&mut other, &values).first_column(), [b"10.0.0.1"]);
        assert_eq!(execute(&mut other, &values[..2]).error().0, INVALID);
        let short: [&[u8]; 3] = [b"shop", b"\0\0", &1i32.to_be_bytes()];
        assert_eq!(execute(&mut other, &short).error().0, INVALID);
        let bytes = shunt_testing::bytes::execute(version, 1, b"unknown", &[]);
        other.send(Header::decode(&bytes).expect("a header"), &bytes[9..]);
        assert_eq!(other.receive().error().0, shunt_wire::cql::message::error_code::UNPREPARED);
    }
}

#[test]
fn changes_are_those_of_the_pages() {
    let server = Server::start(false);
    let mut client = server.client(5);
    client.run("USE shunt_admin");
    client.run("UPDATE settings SET value = 'debug' WHERE name = 'log'");
    client.run("UPDATE settings SET value = null WHERE name = 'log'");
    client.run("UPDATE nodes SET drained = true WHERE address = '10.0.9.1:9042'");
    client.run("UPDATE nodes SET drained = false WHERE address = '10.0.9.1'");
    client.run("UPDATE proxy SET draining = true WHERE key = 'local'");
    client.run("UPDATE proxy SET draining = false WHERE key = 'local'");
    let answer =
        client.query("DELETE FROM client_groups WHERE role = 'shop' AND address = '10.0.0.0/8'");
    let told: Vec<_> =
        answer.prefix().warnings.iter().flat_map(|list| list.iter().map(str::to_owned)).collect();
    assert_eq!(told, ["closed 3 clients"]);
    client.run("DELETE FROM clients WHERE address = '10.0.4.7' AND port = 51234");
    client.run("DELETE FROM clients WHERE address = 'fd00::7' AND port = 1 AND username = 'shop'");
    client.run("DELETE FROM clients WHERE id = '10.0.4.7:51234' AND application = 'cron'");
    client.run("DELETE FROM clients WHERE address = '10.0.0.0/8'");
    client.run("DELETE FROM clients WHERE all = true");
    client.run("DELETE FROM client_groups WHERE all = true");
    let expected = [
        ("set_option".to_owned(), json!({ "name": "log", "value": "debug" })),
        ("set_option".to_owned(), json!({ "name": "log", "value": null })),
        ("drain_node".to_owned(), json!({ "node": "10.0.9.1:9042" })),
        ("undrain_node".to_owned(), json!({ "node": "10.0.9.1" })),
        ("drain".to_owned(), json!({})),
        ("undrain".to_owned(), json!({})),
        ("kick".to_owned(), json!({ "role": "shop", "address": "10.0.0.0/8" })),
        ("kick".to_owned(), json!({ "id": "10.0.4.7:51234" })),
        ("kick".to_owned(), json!({ "id": "[fd00::7]:1", "role": "shop" })),
        ("kick".to_owned(), json!({ "id": "10.0.4.7:51234", "application": "cron" })),
        ("kick".to_owned(), json!({ "address": "10.0.0.0/8" })),
        ("kick".to_owned(), json!({ "all": true })),
        ("kick".to_owned(), json!({ "all": true })),
    ];
    assert_eq!(server.changes(), expected);
    let refused = client.query("UPDATE settings SET value = 'loud' WHERE name = 'log'");
    assert_eq!(refused.error(), (INVALID, "no such level".to_owned()));
}

#[test]
fn other_statements_are_refused_and_change_nothing() {
    let server = Server::start(false);
    let mut client = server.client(4);
    client.run("USE shunt_admin");
    for (statement, code, words) in [
        ("TRUNCATE client_groups", INVALID, "TRUNCATE is not offered"),
        ("DELETE FROM client_groups", SYNTAX_ERROR, ""),
        ("DELETE FROM client_groups WHERE driver = 'D'", INVALID, "by role, address"),
        ("DELETE FROM client_groups WHERE role > 'a'", INVALID, "by role, address"),
        ("DELETE FROM client_groups WHERE role = 'a' AND role = 'b'", INVALID, "two conditions"),
        ("DELETE FROM client_groups WHERE role = null", INVALID, "null"),
        ("DELETE role FROM client_groups WHERE role = 'a'", INVALID, "a DELETE at"),
        ("DELETE FROM client_groups WHERE role = 'a' IF EXISTS", INVALID, "IF"),
        ("DELETE FROM nodes WHERE address = 'a'", INVALID, "a DELETE at"),
        ("DELETE FROM clients WHERE all = false", INVALID, "all = true"),
        ("DELETE FROM clients WHERE all = null", INVALID, "null"),
        ("DELETE FROM clients WHERE all = 'true'", INVALID, "all"),
        ("DELETE FROM clients WHERE all = true AND port = 7", INVALID, "stands alone"),
        ("DELETE FROM clients WHERE id = 'a' AND all = true", INVALID, "stands alone"),
        ("DELETE FROM nodes WHERE all = true", INVALID, "a DELETE at"),
        ("SELECT * FROM clients WHERE all = true", INVALID, "all"),
        ("DELETE FROM clients WHERE port = 7", INVALID, "needs the address"),
        ("DELETE FROM clients WHERE address = '10.0.0.0/8' AND port = 7", INVALID, "address and"),
        ("DELETE FROM clients WHERE address = '10.0.0.1' AND port = -7", INVALID, "address and"),
        ("DELETE FROM clients WHERE role = 'a'", INVALID, "by username, address"),
        ("UPDATE settings SET value = '1' WHERE name > 'log'", INVALID, "an UPDATE at"),
        ("UPDATE settings SET source = '1' WHERE name = 'log'", INVALID, "an UPDATE at"),
        ("UPDATE nodes SET up = false WHERE address = 'a'", INVALID, "an UPDATE at"),
        ("UPDATE nodes SET drained = true WHERE up = true", INVALID, "an UPDATE at"),
        ("UPDATE nodes SET drained = 'yes' WHERE address = 'a'", INVALID, "drained"),
        ("UPDATE nodes SET drained = null WHERE address = 'a'", INVALID, "null"),
        ("UPDATE proxy SET draining = true WHERE key = 'other'", INVALID, "is 'local'"),
        ("UPDATE proxy SET draining = null WHERE key = 'local'", INVALID, "null"),
        ("UPDATE proxy SET draining = true WHERE version = '1'", INVALID, "an UPDATE at"),
        ("UPDATE proxy SET ready = false WHERE key = 'local'", INVALID, "an UPDATE at"),
        ("UPDATE settings USING TTL 1 SET value = '1' WHERE name = 'log'", INVALID, "USING"),
        ("INSERT INTO settings (name) VALUES ('log')", INVALID, "INSERT"),
        ("CREATE TABLE t (k int PRIMARY KEY)", INVALID, "schema"),
        ("ALTER ROLE a WITH LOGIN = false", INVALID, "roles"),
        ("BEGIN BATCH DELETE FROM client_groups WHERE role = 'a' APPLY BATCH", INVALID, "BATCH"),
        ("SELECT nothing FROM nodes", INVALID, "it has address"),
        ("SELECT * FROM nowhere", INVALID, "there are alerts"),
        ("SELECT * FROM shop.items", INVALID, "tables are in shunt_admin"),
        ("SELECT JSON * FROM nodes", INVALID, "JSON"),
        ("SELECT writetime(up) FROM nodes", INVALID, "only columns"),
        ("SELECT * FROM nodes WHERE up = 'yes'", INVALID, "up"),
        ("SELECT * FROM nodes LIMIT 0", INVALID, "LIMIT"),
        ("USE shop", INVALID, "does not exist"),
        ("SELECT", SYNTAX_ERROR, ""),
    ] {
        let (found, message) = client.query(statement).error();
        assert!(found == code && message.contains(words), "{statement}: {found:x} {message}");
    }
    let many = vec!["up = true"; 33].join(" AND ");
    let (_, message) = client.query(&format!("SELECT * FROM nodes WHERE {many}")).error();
    assert!(message.contains("at most 32 conditions"), "{message}");
    assert_eq!(server.changes(), []);
}

#[test]
fn tables_are_described() {
    let server = Server::start(false);
    let mut client = server.client(5);
    let described = client.rows("DESCRIBE TABLE shunt_admin.settings");
    let statement = described[0][3].clone().expect("a statement");
    let statement = String::from_utf8(statement).expect("a text");
    assert!(
        statement.contains("VIRTUAL TABLE shunt_admin.settings (\n    name text,"),
        "{statement}"
    );
    assert!(statement.contains("PRIMARY KEY (name)"), "{statement}");
    assert_eq!(client.rows("DESCRIBE SCHEMA").len(), 1 + ADMIN_TABLES.len());
    assert_eq!(client.rows("DESCRIBE KEYSPACES").len(), 5);
    assert_eq!(client.rows("DESCRIBE CLUSTER").len(), 1);
    assert_eq!(client.rows("DESC shunt_admin").len(), 1 + ADMIN_TABLES.len());
    client.run("USE shunt_admin");
    assert_eq!(client.rows("DESCRIBE TABLES").len(), ADMIN_TABLES.len());
    assert_eq!(client.error("DESCRIBE TABLE nothing"), INVALID);
    assert_eq!(client.error("DESCRIBE INDEX nothing"), INVALID);
}

#[test]
fn tables_have_sound_definitions() {
    for table in all() {
        let keys = table.partition_columns + table.clustering_columns;
        assert!(table.partition_columns > 0 && keys <= table.columns.len(), "{}", table.name);
        for (position, column) in table.columns.iter().enumerate() {
            assert!(table.cql_type(position).is_ok(), "{}.{}", table.name, column.name);
            let statement = format!("SELECT {} FROM a.b WHERE {0} = ?", column.name);
            assert!(shunt_language::parse(&statement).is_ok(), "{statement}");
            assert_eq!(table.position(column.name), Ok(position), "a name twice");
        }
    }
}
