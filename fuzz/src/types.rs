//! Types and values. The first byte selects the rest: a type specification, a literal, or a
//! partition key.

use shunt_wire::cql::types::{CqlType, literal, partition_key, skip_spec};

/// Names of the native types.
pub(crate) const NATIVE: [&str; 21] = [
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "counter",
    "decimal",
    "double",
    "float",
    "int",
    "timestamp",
    "uuid",
    "text",
    "varint",
    "timeuuid",
    "inet",
    "date",
    "time",
    "smallint",
    "tinyint",
    "duration",
    "frozen<list<int>>",
];

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    match mode % 3 {
        0 => specification(rest),
        1 => literals(rest),
        _ => key(rest),
    }
}

fn specification(data: &[u8]) {
    let (mut decoded, mut skipped) = (data, data);
    let found = CqlType::decode(&mut decoded);
    assert_eq!(skip_spec(&mut skipped).is_some(), found.is_some());
    if let Some(found) = found {
        assert_eq!(decoded, skipped);
        assert!(data.ends_with(decoded) && decoded.len() < data.len());
        // A name parses to the same native type, or stays a name. The name of a custom class may be
        // any text.
        let name = found.to_string();
        let read = CqlType::parse(&name);
        let kept = matches!((&found, &read), (CqlType::Custom(_), _) | (_, CqlType::Custom(_)));
        assert!(kept || read.to_string() == name);
    }
}

fn literals(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for name in NATIVE {
        let cql_type = CqlType::parse(name);
        let mut out = b"before".to_vec();
        let written = literal(&cql_type, text, &mut out);
        assert!(out.starts_with(b"before") && (written || out.len() == 6));
        let length = out.len() - 6;
        let fixed = match cql_type {
            CqlType::Bigint | CqlType::Double | CqlType::Timestamp | CqlType::Time => Some(8),
            CqlType::Int | CqlType::Float | CqlType::Date => Some(4),
            CqlType::Uuid | CqlType::Timeuuid => Some(16),
            CqlType::Smallint => Some(2),
            CqlType::Boolean | CqlType::Tinyint => Some(1),
            _ => None,
        };
        assert!(!written || fixed.is_none_or(|fixed| fixed == length), "{name}: {length} bytes");
    }
}

fn key(data: &[u8]) {
    // A longer value cannot be a key; a unit test covers it.
    let data = &data[..data.len().min(usize::from(u16::MAX))];
    let values: Vec<&[u8]> = data.split(|byte| *byte == b'|').collect();
    let mut out = b"before".to_vec();
    let complete = partition_key(values.iter().map(|value| Some(*value)), &mut out);
    assert!(complete);
    let mut expected = Vec::new();
    match values[..] {
        [only] => expected.extend_from_slice(only),
        _ => {
            for value in &values {
                expected.extend_from_slice(&(value.len() as u16).to_be_bytes());
                expected.extend_from_slice(value);
                expected.push(0);
            }
        }
    }
    assert_eq!(out, expected);
    let with_null = values.iter().map(|value| Some(*value)).chain([None]).collect::<Vec<_>>();
    assert!(!partition_key(with_null, &mut out) && out.is_empty());
}
