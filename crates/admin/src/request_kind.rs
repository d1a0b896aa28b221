//! The kinds of requests that proxy and nodes alike count.

use crate::labels;

labels! {
    /// The kind of a client's request.
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
