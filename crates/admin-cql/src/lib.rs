//! The admin pages as CQL tables, for cqlsh and any driver: a listener beside the data path, off
//! unless an address is configured.
//!
//! ```text
//! server: accept -> connection -> login -> plan (language's parser) -> rows of a page -> answer
//!                                                                  `-> a change of the pages
//! ```
//! A table shows rows of a page of [`shunt_admin::Pages`], and a statement that changes something
//! asks for a change of the pages. The crate therefore knows no core and no proxy, and has no rules
//! of its own about changes. `docs/admin-cql.md` has the tables.
//!
//! The listener runs on the thread of the admin pages. Everything has a bound ([`limits`]): a
//! client can neither hold that thread up nor make it use much memory.

mod bindings;
mod changes;
mod connection;
mod connection_limit;
mod cores;
mod describe;
mod execute;
mod fault;
pub mod limits;
mod login;
mod plan;
mod prepared;
mod requests;
mod rows;
mod schema;
mod select;
mod server;
mod tables;
#[cfg(test)]
mod tests;

pub use server::{AdminCql, Listener};
pub use tables::{ADMIN_TABLES, Column, Table};
