//! Answers of nodes to the fleet's statements, in the form that a member takes.

use shunt_fleet::{Column, MEMBER_ROWS_MAX, Outcome, Statement};
use shunt_wire::cql::message::{ResultMessage, Rows, error_code};

use crate::control::client::Table;
use crate::fleet::statements::Heard;

/// Converts the outcome of a statement.
pub(super) fn outcome(statement: &Statement, heard: &Heard<'_>) -> Outcome {
    match heard {
        Heard::Result(ResultMessage::Rows(rows)) => read_rows(statement, rows),
        Heard::Result(_) | Heard::Unreadable => {
            Outcome::Failed("a node's answer has no rows".to_owned())
        }
        Heard::Error(error) => match error.code {
            error_code::WRITE_TIMEOUT | error_code::READ_TIMEOUT => Outcome::Timeout,
            _ => Outcome::Failed(error.message.to_owned()),
        },
    }
}

/// Converts the outcome of a statement whose answer was copied.
pub(super) fn of_table(statement: &Statement, table: &Table) -> Outcome {
    let named = table.rows.iter().map(|values| {
        let columns = table.columns.iter().zip(values);
        columns.map(|(name, value)| Column { name, value: value.as_deref() }).collect::<Vec<_>>()
    });
    let named: Vec<Vec<Column<'_>>> = named.collect();
    let columns: Vec<&[Column<'_>]> = named.iter().map(Vec::as_slice).collect();
    statement.read_answer(&columns)
}

fn read_rows(statement: &Statement, rows: &Rows<'_>) -> Outcome {
    if rows.row_count > MEMBER_ROWS_MAX {
        return Outcome::Failed(format!("a node's answer has {} rows", rows.row_count));
    }
    let names: Vec<&str> = rows.metadata.columns().map(|column| column.name).collect();
    let mut columns = Vec::with_capacity(rows.row_count);
    for row in rows.rows() {
        let Ok(row) = row else {
            return Outcome::Failed("a node's answer ends too early".to_owned());
        };
        columns.push(
            names
                .iter()
                .zip(row.values())
                .map(|(name, value)| Column { name, value })
                .collect::<Vec<_>>(),
        );
    }
    let columns: Vec<&[Column<'_>]> = columns.iter().map(Vec::as_slice).collect();
    statement.read_answer(&columns)
}
