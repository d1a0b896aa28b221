//! `CREATE FUNCTION` and `CREATE AGGREGATE`, which a node refuses.

use super::Parser;
use crate::ast::{CreateAggregate, CreateFunction, SchemaStatement};
use crate::error::SyntaxError;

impl Parser<'_> {
    /// The part behind `CREATE`.
    pub(super) fn create_routine(&mut self) -> Result<SchemaStatement, SyntaxError> {
        let or_replace = self.eat_word("or");
        if or_replace {
            self.expect_word("replace")?;
        }
        if self.eat_word("function") {
            return self.create_function(or_replace).map(SchemaStatement::CreateFunction);
        }
        self.expect_word("aggregate")?;
        self.create_aggregate(or_replace).map(SchemaStatement::CreateAggregate)
    }

    fn create_function(&mut self, or_replace: bool) -> Result<CreateFunction, SyntaxError> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        self.expect("(")?;
        let argument = |parser: &mut Self| Ok((parser.identifier()?, parser.type_name()?));
        let arguments = if self.is(")") { Vec::new() } else { self.list(argument)? };
        self.expect(")")?;
        let called_on_null = self.eat_word("called");
        if !called_on_null {
            self.expect_words(&["returns", "null"])?;
        }
        self.expect_words(&["on", "null", "input", "returns"])?;
        let returns = self.type_name()?;
        self.expect_word("language")?;
        let language = self.plain_word()?;
        self.expect_word("as")?;
        let body = self.string()?;
        Ok(CreateFunction {
            or_replace,
            if_not_exists,
            name,
            arguments,
            called_on_null,
            returns,
            language,
            body,
        })
    }

    fn create_aggregate(&mut self, or_replace: bool) -> Result<CreateAggregate, SyntaxError> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let arguments = self.argument_types()?;
        self.expect_word("sfunc")?;
        let state_function = self.local_function_name()?;
        self.expect_word("stype")?;
        let state_type = self.type_name()?;
        let final_function =
            if self.eat_word("finalfunc") { Some(self.local_function_name()?) } else { None };
        let initial = if self.eat_word("initcond") { Some(self.term()?) } else { None };
        Ok(CreateAggregate {
            or_replace,
            if_not_exists,
            name,
            arguments,
            state_function,
            state_type,
            final_function,
            initial,
        })
    }
}
