//! The tables of modes and rules: whether they exist in the layout that the proxies read. An
//! earlier version spread them over the ring.

use shunt_fleet::schema;
use shunt_proxy::control::client::{Client, Failed};
use shunt_proxy::fleet::membership::tool::{self, There};

use super::report::Report;

/// Checks both tables.
pub(super) fn check(client: &mut Client, report: &mut Report) -> Result<(), Failed> {
    for statement in schema::tables().filter(|statement| schema::is_in_one_partition(statement)) {
        match tool::look(client, statement)? {
            There::AsMade(table) => {
                report.ok("layout", &table, "its rows are in one partition");
            }
            There::Not(table) => report.error(
                "layout",
                &table,
                match schema::RULE_TABLES.contains(&statement) {
                    true => "it does not exist, so no table can have a rule",
                    false => "it does not exist, so no table can have a mode",
                },
                "run `shunt fleet init` again to create what is missing",
            ),
            There::Anothers(why) => {
                let name = schema::table_of(statement)
                    .map(|(keyspace, table, _)| format!("{keyspace}.{table}"));
                report.error(
                    "layout",
                    &name.unwrap_or_default(),
                    &format!(
                        "{why}; the proxies of this version cannot read it, and serve no table"
                    ),
                    tool::remedy(statement),
                );
            }
        }
    }
    Ok(())
}
