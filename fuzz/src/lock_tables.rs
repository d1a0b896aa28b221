//! Statements on the tables of locks: the input is a text, and behind a zero byte the values for
//! its markers, each with its length in one byte.

use shunt_language::lock_tables::{
    self, Asked, KEYSPACE, NAME_BYTES_MAX, OWNER_BYTES_MAX, TTL_LEFT_MS, Table,
};
use shunt_wire::cql::message::{ResultMessage, Value, ValueList};
use shunt_wire::cql::statement::{Identifier, Kind, classify};

/// Tries one input.
pub fn run(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let mut list = ValueList::positional(4);
    let mut rest = data.get(end + 1..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first() {
        let (value, after) = after.split_at(usize::from(*length).min(after.len()));
        list.push(Value::Bytes(value));
        rest = after;
    }
    let values = list.values();
    for session in [None, Some(KEYSPACE)] {
        let parsed = lock_tables::parse(text, session);
        if !matches!(parsed, Ok(None)) {
            assert!(looks_so(text, session), "a proxy would give it to a node: {text}");
            let is_change = classify(text).kind == Kind::Ddl;
            assert!(
                !is_change || lock_tables::may_change(text, session),
                "a proxy would take it for other tables': {text}"
            );
        }
        let Ok(Some(statement)) = parsed else { continue };
        assert!(!statement.is_empty() && statement.len() <= lock_tables::BATCH_MAX);
        for request in statement.bind(&values).flatten() {
            assert!(request.name.len() <= NAME_BYTES_MAX && request.owner.len() <= OWNER_BYTES_MAX);
            assert_eq!(request.name.is_empty(), request.asked == Asked::Longest);
            assert!(
                std::str::from_utf8(request.name).is_ok()
                    && std::str::from_utf8(request.owner).is_ok()
            );
            match request.asked {
                Asked::Acquire { ttl_ms, wait_ms, .. } => {
                    assert!(ttl_ms >= 1_000 && !request.owner.is_empty());
                    assert!(wait_ms == 0 || ttl_ms > wait_ms + TTL_LEFT_MS);
                }
                Asked::Renew { ttl_ms, .. } => {
                    assert!(ttl_ms >= 1_000 && !request.owner.is_empty())
                }
                Asked::Release { .. } => assert!(!request.owner.is_empty()),
                Asked::Look | Asked::Queue { .. } | Asked::Longest => assert!(request.limit >= 1),
            }
            let row = lock_tables::reply::Row {
                name: Some(request.name),
                owner: Some(request.owner),
                ..Default::default()
            };
            let mut body = Vec::new();
            match statement.selected() {
                Some(columns) => lock_tables::reply::selected(
                    &mut body,
                    request.table,
                    columns,
                    false,
                    std::iter::once(row),
                ),
                None => lock_tables::reply::conditional(
                    &mut body,
                    request.table,
                    std::iter::once((true, row)),
                ),
            }
            let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(4, &body) else {
                panic!("{body:?}")
            };
            assert_eq!((rows.row_count, rows.rows().flatten().count()), (1, 1));
        }
    }
}

/// The proxy's quick check before it parses a text.
fn looks_so(text: &str, session: Option<&str>) -> bool {
    let parsed = classify(text);
    match parsed.kind {
        Kind::Batch | Kind::Ddl => {
            session == Some(KEYSPACE) || text.to_ascii_lowercase().contains(KEYSPACE)
        }
        Kind::Use | Kind::Transaction | Kind::Other => false,
        _ => {
            let keyspace = parsed
                .keyspace
                .or_else(|| parsed.selected_table().and_then(|(keyspace, _)| keyspace));
            keyspace
                .or(session.map(Identifier::exact))
                .is_some_and(|keyspace| keyspace.matches(KEYSPACE))
        }
    }
}

/// The tables, for the seeds.
pub const TABLES: [Table; 5] = Table::ALL;
