//! The form in which a request is answered.

use std::sync::Arc;

use shunt_language::lock_tables::{Statement, Table};
use shunt_locks::Ticket;

/// Form of the answer to a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerForm {
    /// Kind of the answer.
    pub(crate) kind: AnswerKind,
    /// Name of the lock, followed by the owner.
    pub(crate) texts: Vec<u8>,
    pub(crate) name_bytes: usize,
    /// Most rows that the client wants.
    pub(crate) limit: u32,
}

/// Kinds of answers.
#[derive(Clone, Debug, Default)]
pub(crate) enum AnswerKind {
    /// The row of a conditional statement: `[applied]` and the lock.
    Conditional(Table),
    /// The columns of a SELECT.
    Selected { statement: Arc<Statement>, skip_metadata: bool },
    /// The answer of this batch, at its end.
    Batch(u32),
    /// A message to a batch, for the lock at this place.
    Part { batch: u32, place: usize },
    /// A message to a refused batch: one of its locks was released.
    Back(u32),
    /// A message to the request to all cores of which this is a part.
    Share(u32),
    /// A message that the server of the request composes: the request is a transaction.
    Message,
    /// A message to the transaction with this ticket, which needs the lock.
    Fence(Ticket),
    /// No answer, because the client has left: a lock that is granted is given back.
    Unwanted,
    /// No answer.
    #[default]
    Nobody,
}

impl AnswerForm {
    pub(crate) fn name(&self) -> &[u8] {
        &self.texts[..self.name_bytes]
    }

    /// The owner. In a SELECT, the owner whose rows the client wants; empty for all owners.
    pub(crate) fn owner(&self) -> &[u8] {
        &self.texts[self.name_bytes..]
    }
}
