//! `ALTER TABLE t WITH transactional_mode = '..'`: participation of a table in transactions.

use crate::ast::{
    LiteralKind, PropertyValue, QualifiedName, SchemaStatement, Statement, TableAlteration,
};
use crate::error::InvalidRequest;

/// Name of the option.
pub const OPTION: &str = "transactional_mode";

/// Participation of a table in transactions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum TransactionalMode {
    /// No participation.
    Off,
    /// Transactions are allowed; other statements on the table run as without them.
    Unsafe,
    /// Every write is a transaction; reads need not be.
    MixedReads,
    /// Every write and read is a transaction.
    Full,
    /// Proxies, which keep the rows in memory, decide single statements, above all conditional
    /// ones; the table has no transactions.
    Conditional,
    /// Nodes decide single statements, one after another, and the proxies compare the results with
    /// those of [`TransactionalMode::Conditional`].
    Observe,
}

impl TransactionalMode {
    /// The modes in declaration order.
    pub const ALL: [TransactionalMode; 6] = [
        TransactionalMode::Off,
        TransactionalMode::Unsafe,
        TransactionalMode::MixedReads,
        TransactionalMode::Full,
        TransactionalMode::Conditional,
        TransactionalMode::Observe,
    ];

    /// The mode with this name, as in the fleet's table.
    #[must_use]
    pub fn named(name: &str) -> Option<TransactionalMode> {
        TransactionalMode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// True if single statements are decided one by one, with no transactions on the table.
    #[must_use]
    pub fn is_by_statement(self) -> bool {
        matches!(self, TransactionalMode::Conditional | TransactionalMode::Observe)
    }

    /// Name of the mode in the option.
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

/// A statement that only changes the mode of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModeChange {
    /// The table.
    pub table: QualifiedName,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The new mode.
    pub mode: TransactionalMode,
}

/// True if a text may be such a statement, so that it must be parsed.
#[must_use]
pub fn may_change_mode(text: &str) -> bool {
    text.as_bytes().windows(OPTION.len()).any(|part| part.eq_ignore_ascii_case(OPTION.as_bytes()))
}

/// Parses a text. `None` if it does not change a mode, or is not CQL and a node will refuse it.
///
/// # Errors
/// The mode is unknown, or the statement also changes other options.
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
