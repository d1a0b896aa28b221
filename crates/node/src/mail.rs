//! Messages to the event loops of a node.

use std::sync::Arc;

/// A message of another thread to a node's loop.
pub enum NodeMail {
    /// The log of the node's store is durable up to this place.
    Durable(u64),
    /// The store failed to make writes durable; waiting requests get an error.
    DurabilityLost(String),
    /// The schema changed: the body of the EVENT for registered clients.
    SchemaEvent(Arc<[u8]>),
    /// Workers have answers.
    Answers,
    /// Close connections once they have their answers, then stop.
    Drain,
}
