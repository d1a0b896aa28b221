//! The tables of [`CONNECTIONS_PAGE`] and [`PAGE`] are those of the code. `UPDATE_DOCS=1` rewrites
//! them.

use std::fmt::Write as _;
use std::path::Path;

use crate::tables::ADMIN_TABLES;

/// Page of the tables of connections: the names.
const CONNECTIONS_PAGE: (&str, &[&str]) = (
    "docs/admin-cql-connections.md",
    &[
        "certificates",
        "client_groups",
        "clients",
        "failed_logins",
        "links",
        "pools",
        "rules",
        "tenants",
    ],
);
/// Page of all other tables.
const PAGE: &str = "docs/admin-cql-tables.md";

/// Heading of the part that has the tables, up to the next heading of its level.
const HEADING: &str = "## Tables\n";

fn tables(is_here: impl Fn(&str) -> bool) -> String {
    let mut text = HEADING.to_owned();
    for table in ADMIN_TABLES.iter().filter(|table| is_here(table.name)) {
        let keys = table.partition_columns + table.clustering_columns;
        let keys: Vec<_> = table.columns.iter().take(keys).map(|column| column.name).collect();
        let (name, subject) = (table.name, table.subject);
        let _ = write!(text, "\n### {name}\n\n");
        let _ = writeln!(text, "Rows: {subject}.\nKey: `{}`.\n", keys.join(", "));
        text.push_str("| column | type | meaning |\n|---|---|---|\n");
        for column in table.columns {
            let _ = writeln!(text, "| `{}` | {} | {} |", column.name, column.cql, column.meaning);
        }
    }
    text
}

#[test]
fn the_manual_has_the_tables() {
    let (connections, names) = CONNECTIONS_PAGE;
    compare(connections, &tables(|name| names.contains(&name)));
    compare(PAGE, &tables(|name| !names.contains(&name)));
}

fn compare(page: &str, tables: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let page = std::fs::read_to_string(&path).expect("the page");
    let start = page.find(HEADING).expect("the heading");
    let rest = &page[start + HEADING.len()..];
    let end = rest.find("\n## ").map_or(page.len(), |end| start + HEADING.len() + end);
    let expected = format!("{}{tables}{}", &page[..start], &page[end..]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, expected).expect("written");
    } else {
        assert!(page == expected, "run UPDATE_DOCS=1 cargo test -p shunt-admin-cql the_manual");
    }
}
