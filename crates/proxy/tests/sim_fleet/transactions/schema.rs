//! The nodes' tables that describe the transactions' tables, and the fleet's table of their modes.

use shunt_wire::cql::message::encode_result::{Column, RowsWriter, native};

use super::tables::{TABLES, Table};

/// Tables of each keyspace, and their modes.
pub const MODES: [(&str, &str); 3] =
    [("accounts", "full"), ("shifts", "unsafe"), ("leases", "conditional")];

/// Rows that answer such a query; `None` for any other text. A write of JSON gets the nodes' error
/// for a row without a key.
pub fn answer(text: &str) -> Option<Result<Vec<u8>, &'static str>> {
    if text.ends_with("JSON '{}'") {
        return Some(Err("Invalid null value in condition for column id"));
    }
    let is_of = |table: &str| {
        text.contains(&format!(" FROM {table} ")) || text.ends_with(&format!(" FROM {table}"))
    };
    let named =
        TABLES.iter().filter(|table| text.contains(&format!("table_name = '{}'", table.name)));
    let of = |table: &&Table| {
        table.is_applications() && text.contains(&format!("keyspace_name = '{}'", table.keyspace))
    };
    let found: Vec<&Table> = named.filter(of).collect();
    let mut body = Vec::new();
    if is_of("system_schema.keyspaces") {
        let columns = [("durable_writes", native::BOOLEAN), ("replication", native::MAP_OF_TEXT)];
        let replication = [map(&[("class", "SimpleStrategy"), ("replication_factor", "3")])];
        rows(&mut body, &columns, [vec![vec![1], replication[0].clone()]]);
    } else if is_of("system_schema.types") {
        let columns = [
            ("type_name", native::TEXT),
            ("field_names", native::LIST_OF_TEXT),
            ("field_types", native::LIST_OF_TEXT),
        ];
        rows(&mut body, &columns, []);
    } else if is_of("system_schema.column_masks") {
        rows(&mut body, &[("column_name", native::TEXT)], []);
    } else if is_of("system_schema.tables") {
        let columns = [("id", native::UUID), ("read_repair", native::TEXT)];
        let row = |table: &&Table| vec![id_of(table).to_vec(), b"BLOCKING".to_vec()];
        rows(&mut body, &columns, found.iter().map(row));
    } else if is_of("system_schema.columns") {
        let columns = [
            ("column_name", native::TEXT),
            ("kind", native::TEXT),
            ("position", native::INT),
            ("type", native::TEXT),
        ];
        rows(&mut body, &columns, found.iter().flat_map(|table| columns_of(table)));
    } else if is_of("shunt_meta.transactional") && !text.contains("keyspace_name = ") {
        let columns =
            [("keyspace_name", native::TEXT), ("table_name", native::TEXT), ("mode", native::TEXT)];
        let row = |keyspace: &str, table: &str, mode: &str| {
            [keyspace, table, mode].map(|text| text.as_bytes().to_vec()).to_vec()
        };
        let all = ["bank", "shop"]
            .into_iter()
            .flat_map(|keyspace| MODES.map(|(table, mode)| row(keyspace, table, mode)));
        rows(&mut body, &columns, all);
    } else if is_of("shunt_meta.transactional") {
        let columns = [("table_name", native::TEXT), ("mode", native::TEXT)];
        let modes =
            MODES.map(|(name, mode)| vec![name.as_bytes().to_vec(), mode.as_bytes().to_vec()]);
        rows(&mut body, &columns, modes);
    } else {
        return None;
    }
    Some(Ok(body))
}

fn rows(out: &mut Vec<u8>, columns: &[Column<'_>], rows: impl IntoIterator<Item = Vec<Vec<u8>>>) {
    let mut writer = RowsWriter::new(out, "system_schema", "t", columns);
    for value in rows.into_iter().flatten() {
        writer.value(Some(&value));
    }
    writer.finish();
}

fn map(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = (entries.len() as i32).to_be_bytes().to_vec();
    for part in entries.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend((part.len() as i32).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

fn id_of(table: &Table) -> [u8; 16] {
    let mut id = [7; 16];
    for (place, byte) in table.keyspace.bytes().chain(table.name.bytes()).enumerate() {
        id[place % 16] ^= byte;
    }
    id
}

fn columns_of(table: &Table) -> Vec<Vec<Vec<u8>>> {
    let row = |(place, (name, type_option)): (usize, &Column<'static>)| {
        let (kind, position) = match place {
            place if place < table.partition => ("partition_key", place as i32),
            place if place < table.partition + table.clustering => {
                ("clustering", (place - table.partition) as i32)
            }
            _ => ("regular", -1),
        };
        let named = if *type_option == native::INT { "int" } else { "bigint" };
        let position = position.to_be_bytes().to_vec();
        vec![
            name.as_bytes().to_vec(),
            kind.as_bytes().to_vec(),
            position,
            named.as_bytes().to_vec(),
        ]
    };
    table.columns.iter().enumerate().map(row).collect()
}
