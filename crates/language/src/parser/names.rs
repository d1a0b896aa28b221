//! Identifiers: the kind of name determines which words are allowed.

use super::Parser;
use crate::ast::QualifiedName;
use crate::error::SyntaxError;
use crate::keyword;
use crate::lexer::{Kind, Token};

impl Parser<'_> {
    /// The text between the quotes of a string or name, with doubled quotes reduced.
    pub(super) fn unquoted(&self, token: Token) -> String {
        let text = self.text_of(token);
        if let Some(inside) = text.strip_prefix("$$") {
            return inside.strip_suffix("$$").unwrap_or(inside).to_owned();
        }
        let inside = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
        if text.starts_with('"') { inside.replace("\"\"", "\"") } else { inside.replace("''", "'") }
    }

    /// The identifier `count` tokens ahead, if it is one: lower case without quotes, unchanged with
    /// them.
    pub(super) fn identifier_ahead(&self, count: usize) -> Option<String> {
        let token = self.ahead(count);
        match token.kind {
            Kind::QuotedName => Some(self.unquoted(token)),
            Kind::Word => Some(self.text_of(token).to_ascii_lowercase())
                .filter(|word| !keyword::is_reserved(word)),
            _ => None,
        }
    }

    /// An identifier of anything but an existing column.
    pub(super) fn identifier(&mut self) -> Result<String, SyntaxError> {
        let name = self.identifier_ahead(0).ok_or_else(|| self.no_alternative())?;
        self.advance();
        Ok(name)
    }

    /// A column, including the empty name of old super columns.
    pub(super) fn column(&mut self) -> Result<String, SyntaxError> {
        if self.peek().kind == Kind::EmptyName {
            self.advance();
            return Ok(String::new());
        }
        self.identifier()
    }

    /// The name of a keyspace, table, index or role (`what`), for which no marker can stand.
    pub(super) fn name(&mut self, what: &str) -> Result<String, SyntaxError> {
        if self.is("?") {
            return Err(SyntaxError::unplaced(format!(
                "Bind variables cannot be used for {what} names"
            )));
        }
        self.identifier()
    }

    /// `[keyspace.]name`
    pub(super) fn qualified_name(&mut self, what: &str) -> Result<QualifiedName, SyntaxError> {
        if self.is_ahead(1, ".") {
            let keyspace = self.name("keyspace")?;
            self.advance();
            return Ok(QualifiedName { keyspace: Some(keyspace), name: self.name(what)? });
        }
        self.name(what).map(QualifiedName::local)
    }

    /// The name of a user-defined type: not a native type, nor a word that Cassandra reserves for
    /// future types.
    pub(super) fn type_identifier(&mut self) -> Result<QualifiedName, SyntaxError> {
        let keyspace = self.is_ahead(1, ".").then(|| self.identifier()).transpose()?;
        if keyspace.is_some() {
            self.advance();
        }
        let token = self.peek();
        let name = self.identifier_ahead(0).ok_or_else(|| self.no_alternative())?;
        if token.kind == Kind::Word {
            if !keyword::is_type_name(&name) {
                self.advance();
                return Err(if keyspace.is_some() {
                    self.no_alternative()
                } else {
                    self.mismatch("'.'")
                });
            }
            if keyword::is_reserved_type_name(&name) {
                return Err(SyntaxError::unplaced(format!(
                    "Invalid (reserved) user type name {name}"
                )));
            }
        }
        self.advance();
        Ok(QualifiedName { keyspace, name })
    }

    /// True if a function name and its opening parenthesis come next.
    pub(super) fn is_call(&self) -> bool {
        let call = |at: usize| self.is_function_name(at) && self.is_ahead(at + 1, "(");
        call(0) || (self.identifier_ahead(0).is_some() && self.is_ahead(1, ".") && call(2))
    }

    fn is_function_name(&self, count: usize) -> bool {
        match self.ahead(count).kind {
            Kind::QuotedName => true,
            Kind::Word => keyword::is_function_name(&self.lower_ahead(count)),
            _ => false,
        }
    }

    /// `[keyspace.]function`
    pub(super) fn function_name(&mut self) -> Result<QualifiedName, SyntaxError> {
        let keyspace = self.is_ahead(1, ".").then(|| self.name("keyspace")).transpose()?;
        if keyspace.is_some() {
            self.advance();
        }
        Ok(QualifiedName { keyspace, name: self.local_function_name()? })
    }

    /// A function without a keyspace.
    pub(super) fn local_function_name(&mut self) -> Result<String, SyntaxError> {
        if !self.is_function_name(0) {
            return Err(self.no_alternative());
        }
        let token = self.advance();
        let quoted = token.kind == Kind::QuotedName;
        Ok(if quoted { self.unquoted(token) } else { self.text_of(token).to_ascii_lowercase() })
    }

    /// A string literal.
    pub(super) fn string(&mut self) -> Result<String, SyntaxError> {
        if self.peek().kind != Kind::String {
            return Err(self.mismatch("STRING_LITERAL"));
        }
        let token = self.advance();
        Ok(self.unquoted(token))
    }

    /// `TABLE` or `COLUMNFAMILY`
    pub(super) fn eat_table(&mut self) -> bool {
        self.eat_word("table") || self.eat_word("columnfamily")
    }

    /// `KEYSPACE` or `SCHEMA`
    pub(super) fn eat_keyspace(&mut self) -> bool {
        self.eat_word("keyspace") || self.eat_word("schema")
    }

    /// `IF NOT EXISTS`, if present.
    pub(super) fn if_not_exists(&mut self) -> Result<bool, SyntaxError> {
        if !self.eat_word("if") {
            return Ok(false);
        }
        self.expect_words(&["not", "exists"])?;
        Ok(true)
    }

    /// `IF EXISTS`, if present.
    pub(super) fn if_exists(&mut self) -> Result<bool, SyntaxError> {
        if !self.eat_word("if") {
            return Ok(false);
        }
        self.expect_word("exists")?;
        Ok(true)
    }
}
