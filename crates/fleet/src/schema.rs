//! The tables of a fleet: `shunt_meta`, in which its proxies agree, and `shunt`, whose tables
//! clients see and which stay empty, except that of rules.
//!
//! `shunt fleet init` makes them once. Every table has a fixed id, so that two concurrent runs make
//! the same table.

/// Format of the rows that this version writes by default, the newest that it knows.
pub const FORMAT: i32 = 1;
/// Oldest format that this version supports.
pub const FORMAT_MIN: i32 = 1;

/// Keyspace in which the proxies agree. Its replication factor should be at least 3.
pub const META_KEYSPACE: &str = "shunt_meta";
/// Keyspace that clients see.
pub const LOCKS_KEYSPACE: &str = "shunt";

/// Replication of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// This many replicas, regardless of datacentres.
    Simple(u32),
    /// A number of replicas for each datacentre.
    Datacentres(Vec<(String, u32)>),
}

impl std::fmt::Display for Replication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Replication::Simple(replicas) => write!(f, "replication factor {replicas}"),
            Replication::Datacentres(datacentres) => {
                let shown: Vec<String> = datacentres
                    .iter()
                    .map(|(name, replicas)| format!("{replicas} replicas in {name}"))
                    .collect();
                f.write_str(&shown.join(", "))
            }
        }
    }
}

/// Entries of a value of `system_schema.keyspaces.replication`, a `map<text, text>`; `None` if it
/// is truncated or not text.
pub fn entries(map: &[u8]) -> Option<Vec<(&str, &str)>> {
    let (count, mut rest) = map.split_first_chunk::<4>()?;
    let mut text = || {
        let (head, after) = rest.split_first_chunk::<4>()?;
        let (text, after) =
            after.split_at_checked(usize::try_from(i32::from_be_bytes(*head)).ok()?)?;
        rest = after;
        std::str::from_utf8(text).ok()
    };
    (0..i32::from_be_bytes(*count)).map(|_| Some((text()?, text()?))).collect()
}

/// Parses a value of `system_schema.keyspaces.replication`; `None` for another form.
pub fn replication_of(map: &[u8]) -> Option<Replication> {
    let (mut class, mut simple, mut datacentres) = (None, None, Vec::new());
    for (key, value) in entries(map)? {
        match key {
            "class" => class = Some(value.rsplit('.').next().unwrap_or(value)),
            "replication_factor" => simple = Some(value.parse().ok()?),
            name => datacentres.push((name.to_owned(), value.parse().ok()?)),
        }
    }
    datacentres.sort();
    match (class?, simple) {
        ("SimpleStrategy", Some(replicas)) => Some(Replication::Simple(replicas)),
        ("NetworkTopologyStrategy", None) => Some(Replication::Datacentres(datacentres)),
        _ => None,
    }
}

/// Keyspace, name and columns of the table that a statement of [`META_TABLES`] or [`LOCKS_TABLES`]
/// makes.
pub fn table_of(statement: &str) -> Option<(&str, &str, Vec<&str>)> {
    let (name, rest) = statement.strip_prefix("CREATE TABLE IF NOT EXISTS ")?.split_once(" (")?;
    let (keyspace, table) = name.split_once('.')?;
    let (columns, _) = rest.split_once(" WITH id")?;
    // A type may contain a comma, and the text after the columns holds none.
    let columns = columns.split(", ").filter_map(|column| column.split_once(' '));
    let columns = columns.map(|(name, _)| name.trim()).take_while(|name| *name != "PRIMARY");
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    Some((keyspace, table, columns.filter(is_name).collect()))
}

/// Partition key of the table that such a statement makes.
pub fn partition_key_of(statement: &str) -> Vec<&str> {
    let Some((_, key)) = statement.split_once("PRIMARY KEY (") else {
        let columns = table_of(statement).map(|(_, _, columns)| columns);
        return columns.into_iter().flatten().take(1).collect();
    };
    match key.strip_prefix('(') {
        Some(several) => several.split(')').next().unwrap_or_default().split(", ").collect(),
        None => key.split([',', ')']).take(1).collect(),
    }
}

/// True of the tables of modes and rules, which an earlier layout spread over the ring.
pub fn is_in_one_partition(statement: &str) -> bool {
    partition_key_of(statement) == ["enabled"]
}

/// The statements that make all tables, of both keyspaces.
pub fn tables() -> impl Iterator<Item = &'static str> {
    META_TABLES.into_iter().chain(TRANSACTION_TABLES).chain(LOCKS_TABLES).chain(RULE_TABLES)
}

/// The statement that makes a keyspace, [`META_KEYSPACE`] or [`LOCKS_KEYSPACE`].
pub fn create_keyspace(name: &str, replication: &Replication) -> String {
    let mut text = format!("CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = {{'class': ");
    match replication {
        Replication::Simple(replicas) => {
            text.push_str(&format!("'SimpleStrategy', 'replication_factor': {replicas}"));
        }
        Replication::Datacentres(datacentres) => {
            text.push_str("'NetworkTopologyStrategy'");
            for (name, replicas) in datacentres {
                text.push_str(&format!(", '{}': {replicas}", name.replace('\'', "''")));
            }
        }
    }
    text.push_str("} AND durable_writes = true");
    text
}

/// The statements that make the tables of [`META_KEYSPACE`].
///
/// Columns beside the design's: `fleet.lease_ms`, because a proxy with a shorter lease would
/// declare the others dead too early; `fleet.handed_over`, a bit for each shard whose memory locks
/// had run out when its owner last handed it over in order; `member.format`, the newest format that
/// the member knows; `member.leaving`, set by a planned stop. `fleet.owners` and `lock.fence` are
/// the design's `view` and `token`, which are reserved words of CQL. `gc_grace_seconds` is above
/// the nodes' usual time for hints (3 hours), and short, because every start leaves a row that is
/// deleted later.
pub const META_TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS shunt_meta.fleet (cluster text PRIMARY KEY, format int, serial text, dc text, max_ttl_ms int, \
     lease_ms int, view_epoch bigint, owners frozen<map<int, uuid>>, ts_floor bigint, handed_over bigint) \
     WITH id = 3d938d46-fbe1-551d-b0f7-dc695ce9dd9b",
    "CREATE TABLE IF NOT EXISTS shunt_meta.member (cluster text, inc uuid, addr text, state tinyint, beat bigint, \
     ts_limit bigint, txn_low frozen<map<int, bigint>>, format int, leaving boolean, PRIMARY KEY (cluster, inc)) \
     WITH id = e637f48f-811d-53ed-ac27-e104d57e2e37 AND gc_grace_seconds = 14400",
    "CREATE TABLE IF NOT EXISTS shunt_meta.lock (bucket int, name text, slot text, owner text, role text, mode text, \
     fence bigint, ttl_ms int, PRIMARY KEY ((bucket), name, slot)) \
     WITH id = 516bd5b2-d40a-5a36-b1cb-4f451ff65cb5 AND gc_grace_seconds = 14400",
];

/// The statements that make the tables of transaction records (ADR 19), and the table that says
/// which tables take part in transactions, also in [`META_KEYSPACE`]. A version without
/// transactions ignores them.
///
/// One partition has all modes, that of `enabled = true`. Proxies read it by its key, so that
/// only its own replicas have to answer (ADR 39).
pub const TRANSACTION_TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS shunt_meta.txn_shard (cluster text, shard int, generation bigint, claim uuid, sealed bigint, \
     PRIMARY KEY ((cluster, shard))) \
     WITH id = 530c182b-9b71-57a6-94b6-474a996b0764",
    "CREATE TABLE IF NOT EXISTS shunt_meta.txn_low (cluster text, shard int, generation bigint, low bigint, \
     PRIMARY KEY ((cluster, shard, generation))) \
     WITH id = e756fd55-4c1d-5052-ac21-9c9690b79794 AND gc_grace_seconds = 14400",
    "CREATE TABLE IF NOT EXISTS shunt_meta.txn_log (cluster text, shard int, generation bigint, bucket bigint, position bigint, \
     body blob, PRIMARY KEY ((cluster, shard, generation, bucket), position)) \
     WITH id = c58d08f1-5d74-5ace-9956-70dcbf86e385 AND gc_grace_seconds = 14400",
    "CREATE TABLE IF NOT EXISTS shunt_meta.transactional (enabled boolean, keyspace_name text, table_name text, mode text, \
     PRIMARY KEY ((enabled), keyspace_name, table_name)) \
     WITH id = 3a79b87b-3664-5ebb-b289-f66a355b5891",
    "CREATE TABLE IF NOT EXISTS shunt_meta.txn_fence (cluster text, keyspace_name text, fast boolean, name text, fence bigint, \
     PRIMARY KEY ((cluster, keyspace_name, fast, name))) \
     WITH id = a3b34906-7c2c-5264-b858-aefd1ea47dab AND gc_grace_seconds = 14400",
    "CREATE TABLE IF NOT EXISTS shunt_meta.txn_outcome (cluster text, keyspace_name text, role text, key blob, request blob, \
     applied boolean, body blob, PRIMARY KEY ((cluster, keyspace_name, role, key))) \
     WITH id = 8cc0811c-bdaa-56b0-a6b4-94eb7a0205ec AND gc_grace_seconds = 14400",
];

/// The statements that make the tables of [`LOCKS_KEYSPACE`]: a proxy answers statements on them,
/// so they have no rows.
pub const LOCKS_TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS shunt.locks (name text PRIMARY KEY, owner text, wait_ms int, fence bigint, ttl_ms int, \
     waiters int) WITH id = 4b822fac-5192-51c7-ba38-26f94a34de30",
    "CREATE TABLE IF NOT EXISTS shunt.fast_locks (name text PRIMARY KEY, owner text, wait_ms int, fence bigint, ttl_ms int, \
     waiters int) WITH id = ef5a1789-0d5b-5ff7-9627-5f441eb272c6",
    "CREATE TABLE IF NOT EXISTS shunt.rwlocks (name text, owner text, mode text, wait_ms int, fence bigint, ttl_ms int, \
     waiters int, PRIMARY KEY (name, owner)) WITH id = 1d11985b-ab21-500e-9ead-f5e286f9d786",
    "CREATE TABLE IF NOT EXISTS shunt.fast_rwlocks (name text, owner text, mode text, wait_ms int, fence bigint, ttl_ms int, \
     waiters int, PRIMARY KEY (name, owner)) WITH id = 1b602976-051e-5144-8ad3-d1c8e75c9a12",
    "CREATE TABLE IF NOT EXISTS shunt.lock_queue (name text, fast boolean, position int, owner text, role text, mode text, \
     state text, fence bigint, ttl_ms int, waited_ms int, PRIMARY KEY (name, fast, position)) \
     WITH id = 1b79ab18-eb0a-5d2d-928b-9ac300885ea8",
];

/// The statement that makes the one table of [`LOCKS_KEYSPACE`] with rows: clients declare in it
/// which locks the writers of a table must name, and proxies read it. Rules in force are in one
/// partition with the key and the replicas of that of modes. A rule with `enabled = false` has no
/// effect.
pub const RULE_TABLES: [&str; 1] = [
    "CREATE TABLE IF NOT EXISTS shunt.guards (enabled boolean, table_name text, lock text, fast boolean, mode text, \
     PRIMARY KEY ((enabled), table_name)) \
     WITH id = b5aab620-45c7-5f26-976d-1792c9cf2d6e",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_known_by_keyspace_name_and_columns() {
        let of_meta = [&META_TABLES[..], &TRANSACTION_TABLES[..]].concat();
        let of_locks = [&LOCKS_TABLES[..], &RULE_TABLES[..]].concat();
        for (keyspace, statements) in
            [(META_KEYSPACE, &of_meta[..]), (LOCKS_KEYSPACE, &of_locks[..])]
        {
            for statement in statements {
                let (found, table, columns) = table_of(statement).expect("a table");
                assert!(found == keyspace && statement.contains(&format!(" {keyspace}.{table} (")));
                assert!(columns.len() >= 3, "{table}: {columns:?}");
            }
        }
        let (_, table, columns) = table_of(META_TABLES[0]).expect("a table");
        assert_eq!(table, "fleet");
        let all =
            "cluster format serial dc max_ttl_ms lease_ms view_epoch owners ts_floor handed_over";
        assert_eq!(columns.join(" "), all);
        let (_, table, columns) = table_of(LOCKS_TABLES[4]).expect("a table");
        assert_eq!(
            (table, columns.join(" ").as_str()),
            ("lock_queue", "name fast position owner role mode state fence ttl_ms waited_ms")
        );
    }

    #[test]
    fn the_partition_key_of_every_table_is_known() {
        let of = |statement| partition_key_of(statement).join(" ");
        assert_eq!(META_TABLES.map(of), ["cluster", "cluster", "bucket"]);
        assert_eq!(
            TRANSACTION_TABLES.map(of),
            [
                "cluster shard",
                "cluster shard generation",
                "cluster shard generation bucket",
                "enabled",
                "cluster keyspace_name fast name",
                "cluster keyspace_name role key"
            ]
        );
        assert_eq!(LOCKS_TABLES.map(of), ["name"; 5]);
        assert_eq!(RULE_TABLES.map(of), ["enabled"]);
        let one = tables().filter(|statement| is_in_one_partition(statement));
        let names = one.filter_map(table_of).map(|(_, table, _)| table);
        assert_eq!(names.collect::<Vec<_>>(), ["transactional", "guards"]);
    }

    #[test]
    fn replication_is_read_as_it_was_written() {
        let map = |entries: &[(&str, &str)]| {
            let mut out = (entries.len() as i32).to_be_bytes().to_vec();
            for text in entries.iter().flat_map(|(key, value)| [key, value]) {
                out.extend((text.len() as i32).to_be_bytes());
                out.extend(text.as_bytes());
            }
            out
        };
        let simple = map(&[
            ("class", "org.apache.cassandra.locator.SimpleStrategy"),
            ("replication_factor", "3"),
        ]);
        assert_eq!(replication_of(&simple), Some(Replication::Simple(3)));
        let network = map(&[
            ("dc2", "1"),
            ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy"),
            ("dc1", "3"),
        ]);
        let both = vec![("dc1".to_owned(), 3), ("dc2".to_owned(), 1)];
        assert_eq!(replication_of(&network), Some(Replication::Datacentres(both)));
        for other in [
            &map(&[("class", "LocalStrategy")])[..],
            &map(&[("class", "a.SimpleStrategy"), ("replication_factor", "3/1")]),
            &simple[..20],
            b"",
        ] {
            assert_eq!(replication_of(other), None);
        }
    }
}
