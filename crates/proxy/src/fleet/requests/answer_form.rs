//! The form of the answer to a request.

use std::sync::Arc;

use shunt_language::lock_tables::{Statement, Table};
use shunt_locks::Ticket;

/// The form of a request's answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerForm {
    /// Kind of the answer.
    pub(crate) kind: AnswerKind,
    /// The lock's name, and behind it the owner.
    pub(crate) texts: Vec<u8>,
    pub(crate) name_bytes: usize,
    /// Rows that are wanted at most.
    pub(crate) limit: u32,
}

/// Kinds of answers.
#[derive(Clone, Debug, Default)]
pub(crate) enum AnswerKind {
    /// `[applied]` and the lock.
    Conditional(Table),
    /// Columns of a SELECT.
    Selected { statement: Arc<Statement>, skip_metadata: bool },
    /// By the batch that this is, when it is over.
    Batch(u32),
    /// To a batch, for its lock at this place.
    Part { batch: u32, place: usize },
    /// To a batch that is refused: one of its locks was released.
    Back(u32),
    /// To a question to all cores that this is a part of.
    Share(u32),
    /// By a message that whoever serves it makes: it is a transaction.
    Message,
    /// To a transaction, under this ticket, that may be carried out only if the lock is held.
    Fence(Ticket),
    /// To nobody.
    #[default]
    Nobody,
}

impl AnswerForm {
    pub(crate) fn name(&self) -> &[u8] {
        &self.texts[..self.name_bytes]
    }

    /// The owner; of a look the one whose rows are wanted, or empty for all.
    pub(crate) fn owner(&self) -> &[u8] {
        &self.texts[self.name_bytes..]
    }
}
