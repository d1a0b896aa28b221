//! `CREATE TABLE`, and the rules for columns that it shares with `ALTER TABLE`.

use super::{ELEMENTS_MAX, Parser};
use crate::ast::{ColumnDefinition, ColumnMask, CreateTable};
use crate::error::SyntaxError;

impl Parser<'_> {
    /// The part behind `CREATE TABLE`.
    pub(super) fn create_table(&mut self) -> Result<CreateTable, SyntaxError> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified_name("table")?;
        if !self.is("(") {
            return Err(self.no_alternative());
        }
        self.advance();
        let mut table = CreateTable {
            name,
            if_not_exists,
            columns: Vec::new(),
            primary_keys: Vec::new(),
            options: crate::ast::TableOptions::default(),
        };
        self.table_element(&mut table)?;
        while self.eat(",") {
            if table.columns.len() >= ELEMENTS_MAX {
                return Err(self.problem(&format!("a table has at most {ELEMENTS_MAX} columns")));
            }
            if !self.is(")") && !self.is(",") {
                self.table_element(&mut table)?;
            }
        }
        self.expect(")")?;
        table.options = self.table_options()?;
        Ok(table)
    }

    fn table_element(&mut self, table: &mut CreateTable) -> Result<(), SyntaxError> {
        if self.is_word("primary") {
            table.primary_keys.push(self.primary_key()?);
            return Ok(());
        }
        let column = self.column_definition()?;
        if self.eat_word("primary") {
            self.expect_word("key")?;
            table.primary_keys.push((vec![column.name.clone()], Vec::new()));
        }
        table.columns.push(column);
        Ok(())
    }

    /// `name type [STATIC] [MASKED WITH ..]`
    pub(super) fn column_definition(&mut self) -> Result<ColumnDefinition, SyntaxError> {
        let name = self.identifier()?;
        let type_name = self.type_name()?;
        let is_static = self.eat_word("static");
        let mask = if self.is_word("masked") { Some(self.mask()?) } else { None };
        Ok(ColumnDefinition { name, type_name, is_static, mask })
    }

    /// `MASKED WITH ..`
    pub(super) fn mask(&mut self) -> Result<ColumnMask, SyntaxError> {
        self.expect_words(&["masked", "with"])?;
        if self.is_word("default") && !self.is_ahead(1, "(") && !self.is_ahead(1, ".") {
            self.advance();
            return Ok(ColumnMask { function: None, arguments: Vec::new() });
        }
        let function = Some(self.function_name()?);
        self.expect("(")?;
        let arguments = if self.is(")") { Vec::new() } else { self.list(Parser::term)? };
        self.expect(")")?;
        Ok(ColumnMask { function, arguments })
    }

    /// `PRIMARY KEY ((a, b), c)`
    pub(super) fn primary_key(&mut self) -> Result<(Vec<String>, Vec<String>), SyntaxError> {
        self.expect_words(&["primary", "key"])?;
        self.expect("(")?;
        let partition = if self.eat("(") {
            let columns = self.list(Parser::identifier)?;
            self.expect(")")?;
            columns
        } else {
            vec![self.identifier()?]
        };
        let clustering = if self.eat(",") { self.list(Parser::identifier)? } else { Vec::new() };
        self.expect(")")?;
        Ok((partition, clustering))
    }
}
