//! Answers that the proxy inspects before clients get them.

mod expressions;
mod host;
pub(crate) mod learn;
pub(crate) mod local_pages;
mod peers;
pub(crate) mod system_tables;
