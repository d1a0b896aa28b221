//! Classifies words of CQL by whether they may be names without quotes.

use crate::ast::type_name::NativeType;

/// Words that are never names: the reserved keywords, and constants written as words.
const RESERVED: [&str; 59] = [
    "add",
    "allow",
    "alter",
    "and",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "columnfamily",
    "create",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "false",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "revoke",
    "schema",
    "select",
    "set",
    "table",
    "to",
    "token",
    "true",
    "truncate",
    "unlogged",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];

/// Keywords allowed as values of properties; other words there must be quoted.
const UNRESERVED: [&str; 73] = [
    "access",
    "aggregate",
    "aggregates",
    "all",
    "ann",
    "as",
    "called",
    "cast",
    "cidrs",
    "cluster",
    "clustering",
    "columnfamilies",
    "compact",
    "contains",
    "count",
    "custom",
    "datacenters",
    "default",
    "distinct",
    "exists",
    "filtering",
    "finalfunc",
    "frozen",
    "function",
    "functions",
    "group",
    "hashed",
    "identity",
    "initcond",
    "input",
    "internals",
    "json",
    "key",
    "keys",
    "keyspaces",
    "language",
    "like",
    "list",
    "login",
    "map",
    "masked",
    "maxwritetime",
    "mbean",
    "mbeans",
    "nologin",
    "nosuperuser",
    "only",
    "options",
    "partition",
    "password",
    "per",
    "permission",
    "permissions",
    "replace",
    "returns",
    "role",
    "roles",
    "select_masked",
    "sfunc",
    "static",
    "storage",
    "stype",
    "superuser",
    "superusers",
    "tables",
    "trigger",
    "ttl",
    "tuple",
    "type",
    "types",
    "unmask",
    "unset",
    "user",
];

/// Words that Cassandra reserves against use as names of user-defined types.
const RESERVED_TYPE_NAMES: [&str; 7] =
    ["bitstring", "byte", "complex", "date", "enum", "interval", "macaddr"];

/// True if a word in lower case cannot be a name without quotes.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.binary_search(&word).is_ok()
}

/// True if a word in lower case is a keyword that can also be a name.
pub(crate) fn is_unreserved_keyword(word: &str) -> bool {
    UNRESERVED.binary_search(&word).is_ok()
        || matches!(word, "users" | "values" | "vector" | "writetime")
        || NativeType::by_name(word).is_some()
}

/// True if an unquoted word in lower case can be the name of a user-defined type.
pub(crate) fn is_type_name(word: &str) -> bool {
    let taken = ["cast", "count", "distinct", "json", "maxwritetime", "ttl", "writetime"];
    !is_reserved(word) && !taken.contains(&word) && NativeType::by_name(word).is_none()
}

/// True if Cassandra refuses the name for a user-defined type although the grammar accepts it.
pub(crate) fn is_reserved_type_name(word: &str) -> bool {
    RESERVED_TYPE_NAMES.contains(&word)
}

/// True if an unquoted word in lower case can be the name of a function.
pub(crate) fn is_function_name(word: &str) -> bool {
    match word {
        "token" | "count" => true,
        "ttl" | "writetime" | "maxwritetime" | "key" | "cast" | "json" | "distinct" => false,
        _ => !is_reserved(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_so_that_they_can_be_searched() {
        assert!(RESERVED.is_sorted());
        assert!(UNRESERVED.is_sorted());
        assert!(is_reserved("select") && is_reserved("with") && is_reserved("nan"));
        assert!(!is_reserved("key") && !is_reserved("users"));
    }
}
