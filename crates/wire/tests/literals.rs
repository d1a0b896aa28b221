//! Literals of partition key types against the bytes that Cassandra 5.0.9 makes of them
//! (`cassandra/literals.txt`).

use shunt_wire::cql::types::{CqlType, literal};

/// Valid literals that are left to the server: their bytes depend on its version, its name service
/// or its time zone, or they are not worth the code. A query with one goes to any node.
const LEFT_TO_THE_SERVER: &[&str] = &[
    "float -NaN",
    "varint 170141183460469231731687303715884105728",
    "inet '1.2.3'",
    "inet '010.1.2.3'",
    "timestamp '2011-02-03 04:05:06.7+0100'",
    "timestamp '2011-02-03 04:05:06.78+0100'",
    "timestamp '2011-02-03'",
    "timestamp '2011-02-29T00:00:00Z'",
    "timestamp '2011-02-03T24:00:00Z'",
    "timestamp '2011-02-03T04:05:06 GMT'",
    "timestamp ''",
    "time '8:12:54'",
    "duration 1h",
];

/// Cassandra refuses the whole query, so the bytes do not matter.
const REFUSED_ANYWAY: &[&str] = &["double 1e400", "timeuuid f47ac10b-58cc-4372-a567-0e02b2c3d479"];

#[test]
fn literals_are_serialized_as_by_cassandra() {
    for line in include_str!("cassandra/literals.txt").lines() {
        let [type_name, text, bytes] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three fields: {line}");
        };
        let case = format!("{type_name} {text}");
        let mut out = vec![0x55];
        let written = literal(&CqlType::parse(type_name), text, &mut out);
        assert_eq!(out.remove(0), 0x55, "{case}: only appends");
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        if LEFT_TO_THE_SERVER.contains(&&*case) {
            assert!(bytes != "refused" && !written && out.is_empty(), "{case} -> {hex}");
        } else if bytes == "refused" {
            assert!(
                REFUSED_ANYWAY.contains(&&*case) || (!written && out.is_empty()),
                "{case} -> {hex}"
            );
        } else {
            assert!(written, "{case} should give {bytes}");
            assert_eq!(hex, bytes, "{case}");
        }
    }
}
