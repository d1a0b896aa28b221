//! `ALTER TABLE t WITH transactional_mode = '..'`: whether a table takes part in transactions.

use crate::ast::{
    LiteralKind, PropertyValue, QualifiedName, SchemaStatement, Statement, TableAlteration,
};
use crate::error::InvalidRequest;

/// The option's name.
pub const OPTION: &str = "transactional_mode";

/// How a table takes part in transactions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum TransactionalMode {
    /// Not at all.
    Off,
    /// It does, and other statements on it are carried out as if it did not.
    Unsafe,
    /// All writes are transactions, reads need not be.
    MixedReads,
    /// All writes and reads are transactions.
    Full,
    /// Single statements, above all those with conditions, are decided by the proxies, which keep
    /// the rows in memory; there are no transactions on it.
    Conditional,
    /// Nodes decide single statements, which go to them one after the other, and the proxies
    /// compare what they would have answered with [`TransactionalMode::Conditional`].
    Observe,
}

impl TransactionalMode {
    /// All of them.
    pub const ALL: [TransactionalMode; 6] = [
        TransactionalMode::Off,
        TransactionalMode::Unsafe,
        TransactionalMode::MixedReads,
        TransactionalMode::Full,
        TransactionalMode::Conditional,
        TransactionalMode::Observe,
    ];

    /// The mode of this name, as the fleet's table has it.
    #[must_use]
    pub fn named(name: &str) -> Option<TransactionalMode> {
        TransactionalMode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// True if single statements are decided one by one, with no transactions on the table.
    #[must_use]
    pub fn is_by_statement(self) -> bool {
        matches!(self, TransactionalMode::Conditional | TransactionalMode::Observe)
    }

    /// Its name in the option.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TransactionalMode::Off => "off",
            TransactionalMode::Unsafe => "unsafe",
            TransactionalMode::MixedReads => "mixed_reads",
            TransactionalMode::Full => "full",
            TransactionalMode::Conditional => "conditional",
            TransactionalMode::Observe => "observe",
        }
    }
}

/// A statement that changes the mode of a table, and nothing else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModeChange {
    /// The table.
    pub table: QualifiedName,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// Its mode from then on.
    pub mode: TransactionalMode,
}

/// True if a text may be such a statement: it then has to be read as a whole.
#[must_use]
pub fn may_change_mode(text: &str) -> bool {
    text.as_bytes().windows(OPTION.len()).any(|part| part.eq_ignore_ascii_case(OPTION.as_bytes()))
}

/// Reads a text. None: it is no change of a mode, or no CQL, and a node's to refuse in its own
/// words.
///
/// # Errors
/// The mode is none of those that there are, or the statement changes other options too.
pub fn parse(text: &str) -> Result<Option<ModeChange>, InvalidRequest> {
    if !may_change_mode(text) {
        return Ok(None);
    }
    let Ok(parsed) = crate::parse(text) else { return Ok(None) };
    let Statement::Schema(SchemaStatement::AlterTable(alter)) = parsed.statement else {
        return Ok(None);
    };
    let TableAlteration::With(properties) = alter.alteration else { return Ok(None) };
    let Some((_, value)) = properties.iter().find(|(name, _)| name == OPTION) else {
        return Ok(None);
    };
    if properties.len() > 1 {
        let table = &alter.name;
        return Err(InvalidRequest::new(format!(
            "ALTER TABLE {table} WITH {OPTION}: this option has to stand alone; change the others by a statement of their own"
        )));
    }
    let mode = match value {
        PropertyValue::Constant(LiteralKind::String, text) => {
            TransactionalMode::ALL.into_iter().find(|mode| text.eq_ignore_ascii_case(mode.name()))
        }
        _ => None,
    };
    let mode = mode.ok_or_else(|| {
        let table = &alter.name;
        InvalidRequest::new(format!(
            "ALTER TABLE {table} WITH {OPTION}: it is 'off', 'unsafe', 'mixed_reads', 'full', 'conditional' or 'observe'"
        ))
    })?;
    Ok(Some(ModeChange { table: alter.name, if_exists: alter.if_exists, mode }))
}
