//! Answers that the proxy looks into before the client gets them.

pub(crate) mod learn;
pub(crate) mod local_pages;
pub(crate) mod system_tables;
