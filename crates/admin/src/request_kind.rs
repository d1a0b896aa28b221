//! What proxy and nodes alike are asked for.

use crate::labels;

labels! {
    /// What a client asked for.
    pub enum RequestKind = "kind" {
        /// QUERY.
        Query = "query",
        /// EXECUTE.
        Execute = "execute",
        /// BATCH.
        Batch = "batch",
        /// PREPARE.
        Prepare = "prepare",
        /// Any other request: OPTIONS, STARTUP, REGISTER, ...
        Other = "other",
    }
}
