//! `ALTER ..` of the schema.

use super::Parser;
use crate::ast::{AlterTable, AlterType, SchemaStatement, TableAlteration, TypeAlteration};
use crate::error::SyntaxError;
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn alter(&mut self) -> Result<SchemaStatement, SyntaxError> {
        self.expect_word("alter")?;
        match () {
            () if self.eat_keyspace() => {
                let if_exists = self.if_exists()?;
                let name = self.name("keyspace")?;
                self.expect_word("with")?;
                Ok(SchemaStatement::AlterKeyspace {
                    name,
                    if_exists,
                    properties: self.properties()?,
                })
            }
            () if self.eat_table() => {
                let if_exists = self.if_exists()?;
                let name = self.qualified_name("table")?;
                let alteration = self.table_alteration()?;
                Ok(SchemaStatement::AlterTable(AlterTable { name, if_exists, alteration }))
            }
            () if self.eat_word("type") => {
                let if_exists = self.if_exists()?;
                let name = self.type_identifier()?;
                let alteration = self.type_alteration()?;
                Ok(SchemaStatement::AlterType(AlterType { name, if_exists, alteration }))
            }
            () if self.eat_word("materialized") => {
                self.expect_word("view")?;
                let if_exists = self.if_exists()?;
                let name = self.qualified_name("table")?;
                self.expect_word("with")?;
                Ok(SchemaStatement::AlterView { name, if_exists, properties: self.properties()? })
            }
            () => Err(self.no_alternative()),
        }
    }

    fn table_alteration(&mut self) -> Result<TableAlteration, SyntaxError> {
        match () {
            () if self.eat_word("add") => {
                let if_not_exists = self.if_not_exists()?;
                let columns = self.one_or_list(Parser::column_definition)?;
                Ok(TableAlteration::Add { if_not_exists, columns })
            }
            () if self.eat_words(&["drop", "compact", "storage"]) => {
                Ok(TableAlteration::DropCompactStorage)
            }
            () if self.eat_word("drop") => {
                let if_exists = self.if_exists()?;
                let columns = self.one_or_list(Parser::identifier)?;
                let timestamp =
                    if self.eat_word("using") { Some(self.drop_timestamp()?) } else { None };
                Ok(TableAlteration::Drop { if_exists, columns, timestamp })
            }
            () if self.eat_word("rename") => {
                let if_exists = self.if_exists()?;
                Ok(TableAlteration::Rename { if_exists, columns: self.renames()? })
            }
            () if self.eat_word("alter") => self.column_alteration(),
            () if self.eat_word("with") => self.properties().map(TableAlteration::With),
            () => Err(self.no_alternative()),
        }
    }

    /// `item` or `(item, item)`
    fn one_or_list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        if !self.eat("(") {
            return Ok(vec![item(self)?]);
        }
        let items = self.list(item)?;
        self.expect(")")?;
        Ok(items)
    }

    fn drop_timestamp(&mut self) -> Result<i64, SyntaxError> {
        self.expect_word("timestamp")?;
        let token = self.peek();
        let timestamp =
            (token.kind == Kind::Integer).then(|| self.text_of(token).parse().ok()).flatten();
        let timestamp = timestamp.ok_or_else(|| self.mismatch("INTEGER"))?;
        self.advance();
        Ok(timestamp)
    }

    /// `a TO b AND c TO d`
    fn renames(&mut self) -> Result<Vec<(String, String)>, SyntaxError> {
        self.and_list(|parser| {
            let from = parser.identifier()?;
            parser.expect_word("to")?;
            Ok((from, parser.identifier()?))
        })
    }

    fn column_alteration(&mut self) -> Result<TableAlteration, SyntaxError> {
        let if_exists = self.if_exists()?;
        let column = self.column()?;
        if !if_exists && self.eat_word("type") {
            return Ok(TableAlteration::AlterType { column, type_name: self.type_name()? });
        }
        let mask = if self.eat_words(&["drop", "masked"]) { None } else { Some(self.mask()?) };
        Ok(TableAlteration::Mask { if_exists, column, mask })
    }

    fn type_alteration(&mut self) -> Result<TypeAlteration, SyntaxError> {
        match () {
            () if self.eat_word("alter") => {
                let field = self.identifier()?;
                self.expect_word("type")?;
                Ok(TypeAlteration::AlterField(field, self.type_name()?))
            }
            () if self.eat_word("add") => {
                let if_not_exists = self.if_not_exists()?;
                let field = self.identifier()?;
                Ok(TypeAlteration::Add { if_not_exists, field, type_name: self.type_name()? })
            }
            () if self.eat_word("rename") => {
                let if_exists = self.if_exists()?;
                Ok(TypeAlteration::Rename { if_exists, fields: self.renames()? })
            }
            () => Err(self.no_alternative()),
        }
    }
}
