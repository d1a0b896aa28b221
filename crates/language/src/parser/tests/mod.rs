//! Statements and their parsed form.

mod accepted;
mod mutations;
mod never_panics;
mod rejected;
mod schema;
mod selects;

use crate::ast::{Mutation, SchemaStatement, Select, Statement};
use crate::parse;

fn statement(text: &str) -> Statement {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).statement
}

fn select(text: &str) -> Select {
    match statement(text) {
        Statement::Select(select) => select,
        other => panic!("{text}: not a SELECT: {other:?}"),
    }
}

fn mutation(text: &str) -> Mutation {
    match statement(text) {
        Statement::Mutation(mutation) => mutation,
        other => panic!("{text}: not a mutation: {other:?}"),
    }
}

fn schema(text: &str) -> SchemaStatement {
    match statement(text) {
        Statement::Schema(schema) => schema,
        other => panic!("{text}: not of the schema: {other:?}"),
    }
}
