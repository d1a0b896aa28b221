//! `DESCRIBE`

use super::Parser;
use crate::ast::{Describe, DescribeTarget, QualifiedName};
use crate::error::SyntaxError;
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn describe(&mut self) -> Result<Describe, SyntaxError> {
        self.advance();
        let target = self.describe_target()?;
        let with_internals = self.eat_word("with");
        if with_internals {
            self.expect_word("internals")?;
        }
        Ok(Describe { target, with_internals })
    }

    fn describe_target(&mut self) -> Result<DescribeTarget, SyntaxError> {
        // Most of these words can also be names; after a keyspace they are.
        if self.is_ahead(1, ".") {
            return self.any_name();
        }
        let plural = [
            ("cluster", DescribeTarget::Cluster),
            ("keyspaces", DescribeTarget::Keyspaces),
            ("tables", DescribeTarget::Tables),
            ("columnfamilies", DescribeTarget::Tables),
            ("types", DescribeTarget::Types),
            ("functions", DescribeTarget::Functions),
            ("aggregates", DescribeTarget::Aggregates),
        ];
        if let Some((_, target)) = plural.into_iter().find(|(word, _)| self.is_word(word)) {
            self.advance();
            return Ok(target);
        }
        if self.eat_word("full") {
            self.expect_word("schema")?;
            return Ok(DescribeTarget::Schema { full: true });
        }
        // Cassandra's lexer has one token for both words; `SCHEMA` alone means all keyspaces here.
        if self.is_word("schema") && self.identifier_ahead(1).is_none() {
            self.advance();
            return Ok(DescribeTarget::Schema { full: false });
        }
        let only = self.is_word("only")
            && (self.is_word_ahead(1, "keyspace") || self.is_word_ahead(1, "schema"));
        if only {
            self.advance();
        }
        if self.eat_keyspace() {
            let name = if self.identifier_ahead(0).is_some() {
                Some(self.name("keyspace")?)
            } else {
                None
            };
            return Ok(DescribeTarget::Keyspace { name, only });
        }
        self.describe_one()
    }

    fn describe_one(&mut self) -> Result<DescribeTarget, SyntaxError> {
        if self.eat_table() {
            return self.qualified_name("table").map(DescribeTarget::Table);
        }
        if self.eat_word("index") {
            return self.qualified_name("table").map(DescribeTarget::Index);
        }
        if self.eat_word("materialized") {
            self.expect_word("view")?;
            return self.qualified_name("table").map(DescribeTarget::View);
        }
        let names_one =
            self.ahead(1).kind == Kind::QuotedName || self.identifier_ahead(1).is_some();
        match self.lower().as_str() {
            "type" if names_one => {
                self.advance();
                self.type_identifier().map(DescribeTarget::Type)
            }
            "function" if names_one => {
                self.advance();
                self.function_name().map(DescribeTarget::Function)
            }
            "aggregate" if names_one => {
                self.advance();
                self.function_name().map(DescribeTarget::Aggregate)
            }
            _ => self.any_name(),
        }
    }

    fn any_name(&mut self) -> Result<DescribeTarget, SyntaxError> {
        let name: QualifiedName = self.qualified_name("table")?;
        Ok(DescribeTarget::Any(name))
    }
}
