//! Tables that take part in transactions: their modes and rules, and which table a name stands for.
//!
//! | module | subject |
//! |---|---|
//! | [`modes`] | statements that the proxies decide, by the modes of their tables |
//! | [`switching`] | how a table's mode changes, step by step |
//! | [`rules`] | which lock a write to a row has to name |
//! | [`table_identity`] | which table a name stands for, and who waits to learn it |
//! | [`alteration`] | changes of a table that would keep proxies from writing to it |
//! | [`mentions`] | names that may stand in a text |
//! | [`replicas`] | whether enough nodes can have a keyspace's rows |

pub mod alteration;
pub mod mentions;
pub mod modes;
pub mod replicas;
pub mod rules;
pub mod switching;
pub mod table_identity;
