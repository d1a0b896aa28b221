//! Mail to the event loops of a node.

use std::sync::Arc;

/// The messages of other threads to a node's loop.
pub enum NodeMail {
    /// Everything up to this place in the log of the node's own store is on disk.
    Durable(u64),
    /// The store failed to make something durable; what waits is answered with an error.
    DurabilityLost(String),
    /// The schema changed: the body of the EVENT for whoever registered.
    SchemaEvent(Arc<[u8]>),
    /// Workers have answers.
    Answers,
    /// Close connections as soon as they have their answers, then stop.
    Drain,
}
