//! Checks that the rows of a SELECT are those written under the requested keys.

use shunt_wire::cql::message::{ResultMessage, Row};

use crate::load::{
    generator::Generator,
    keys::{read_key, value_belongs},
    session::Slot,
    template::Statement,
};

impl Generator {
    /// Checks the rows of an answer. `keys` are those of a multiget.
    pub(super) fn check_rows(&mut self, asked: Slot, keys: &[u64], version: u8, message: &[u8]) {
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, message) else {
            self.counts.wrong_answers += 1;
            return;
        };
        let columns = self.options.columns;
        if asked.statement == Statement::SELECT {
            match rows.rows().next() {
                None => self.counts.not_found += 1,
                Some(Ok(row)) if values_belong(asked.key, row, 0, columns) => {}
                Some(_) => self.counts.wrong_values += 1,
            }
            return;
        }
        let mut found = 0;
        for row in rows.rows() {
            let key = row.ok().and_then(|row| {
                let key = read_key(row.get(0)?)?;
                values_belong(key, row, 1, columns).then_some(key)
            });
            match key {
                Some(key) if keys.contains(&key) => found += 1,
                // A scan continues with any keys after its first one.
                Some(key) if asked.statement == Statement::SCAN => {
                    found += u64::from(key == asked.key)
                }
                _ => self.counts.wrong_values += 1,
            }
        }
        let wanted = if asked.statement == Statement::SCAN { 1 } else { keys.len() as u64 };
        self.counts.not_found += wanted.saturating_sub(found);
        // No key comes twice, and no scan returns more than its LIMIT.
        let most = if asked.statement == Statement::SCAN {
            self.options.scan_rows.most as usize
        } else {
            keys.len()
        };
        self.counts.wrong_answers += u64::from(rows.row_count > most || found > wanted);
    }
}

/// True if the values of `row`, from column `first` on, are those of `key`.
fn values_belong(key: u64, row: Row<'_>, first: usize, columns: u8) -> bool {
    let mut values = row.values().skip(first);
    (0..columns).all(|column| {
        values.next().flatten().is_some_and(|value| value_belongs(key, column, value))
    })
}
