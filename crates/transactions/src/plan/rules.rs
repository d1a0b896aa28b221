//! Rules of tables, checked for each row that a plan writes.

use shunt_language::ast::Statement;
use shunt_language::terms::Value;

use super::bind::Bound;
use super::outline::table_of;
use crate::catalogue::rules::Rules;
use crate::guard::request::Guard;
use crate::rejection::Rejection;

impl Bound<'_> {
    /// Checks the writes against the rules of their tables, under this guard.
    ///
    /// # Errors
    /// A row has a rule that the guard does not satisfy.
    pub fn follow(&self, rules: &Rules, guard: Option<Guard<'_>>) -> Result<(), Rejection> {
        if rules.is_empty() {
            return Ok(());
        }
        let outline = &self.plan.draft.outline;
        for (index, inner) in outline.transaction.statements.iter().enumerate() {
            let Some(name) =
                table_of(inner).filter(|_| !matches!(inner.statement, Statement::Select(_)))
            else {
                continue;
            };
            let key = self.plan.draft.keys.get(index);
            let value = |column: &str| {
                let table = &key?.table;
                let place = table
                    .partition_key
                    .iter()
                    .chain(&table.clustering)
                    .position(|name| name == column)?;
                match self.key_part(index, place).ok()? {
                    Value::Bytes(bytes) => Some((table.column(column)?, bytes)),
                    Value::Null | Value::Unset => None,
                }
            };
            for rule in rules.for_table(&outline.domain, &name.name) {
                rule.check(guard, value)?;
            }
        }
        Ok(())
    }
}
