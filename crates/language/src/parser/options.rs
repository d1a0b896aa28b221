//! `WITH ..`: properties of keyspaces, tables, views and indexes.

use std::collections::HashSet;

use super::{ELEMENTS_MAX, PROPERTIES_MAX, Parser};
use crate::ast::{Properties, PropertyValue, TableOptions, Term};
use crate::error::SyntaxError;
use crate::keyword;

impl Parser<'_> {
    /// `property (AND property)*`
    pub(super) fn properties(&mut self) -> Result<Properties, SyntaxError> {
        let mut properties = Properties::new();
        loop {
            self.property(&mut properties)?;
            if !self.eat_word("and") {
                return Ok(properties);
            }
        }
    }

    /// `WITH properties`, if present.
    pub(super) fn with_properties(&mut self) -> Result<Properties, SyntaxError> {
        if self.eat_word("with") { self.properties() } else { Ok(Properties::new()) }
    }

    fn property(&mut self, properties: &mut Properties) -> Result<(), SyntaxError> {
        if properties.len() >= PROPERTIES_MAX {
            let problem = format!("a statement has at most {PROPERTIES_MAX} properties");
            return Err(self.problem(&problem));
        }
        let name = self.identifier()?;
        self.expect("=")?;
        let value = match self.constant()? {
            Some(literal) => PropertyValue::Constant(literal.kind, literal.text),
            None if self.is("{") => PropertyValue::Map(self.property_map()?),
            None => {
                let word = self.lower();
                if !keyword::is_unreserved_keyword(&word) {
                    return Err(self.no_alternative());
                }
                self.advance();
                PropertyValue::Constant(crate::ast::LiteralKind::String, word)
            }
        };
        if properties.iter().any(|(known, _)| *known == name) {
            return Err(SyntaxError::unplaced(format!(
                "Multiple definitions for property '{name}'"
            )));
        }
        properties.push((name, value));
        Ok(())
    }

    /// `{'a': 1, ..}`: constants only.
    pub(super) fn property_map(&mut self) -> Result<Vec<(String, String)>, SyntaxError> {
        self.expect("{")?;
        let mut entries = Vec::new();
        while !self.is("}") {
            if !entries.is_empty() {
                self.expect(",")?;
            }
            if entries.len() >= ELEMENTS_MAX {
                let problem = format!("a map has at most {ELEMENTS_MAX} elements");
                return Err(self.problem(&problem));
            }
            let key = self.term()?;
            self.expect(":")?;
            let value = self.term()?;
            entries.push((key, value));
        }
        self.expect("}")?;
        let mut texts: Vec<(String, String)> = Vec::with_capacity(entries.len());
        let mut names = HashSet::with_capacity(entries.len());
        for (key, value) in entries {
            let hint = |term: &Term| match term {
                Term::Marker(_) => " (bind variables are not supported in DDL queries)",
                _ => "",
            };
            let Term::Literal(name) = key else {
                return Err(SyntaxError::unplaced(format!(
                    "Invalid property name: {key}{}",
                    hint(&key)
                )));
            };
            let Term::Literal(text) = value else {
                let hint = hint(&value);
                let message = format!("Invalid property value: {value} for property: {name}{hint}");
                return Err(SyntaxError::unplaced(message));
            };
            if !names.insert(name.text.clone()) {
                return Err(SyntaxError::unplaced(format!(
                    "Multiple definition for property {}",
                    name.text
                )));
            }
            texts.push((name.text, text.text));
        }
        Ok(texts)
    }

    /// `WITH` of a table or view, if present.
    pub(super) fn table_options(&mut self) -> Result<TableOptions, SyntaxError> {
        let mut options = TableOptions::default();
        if !self.eat_word("with") {
            return Ok(options);
        }
        loop {
            if self.eat_words(&["compact", "storage"]) {
                options.compact_storage = true;
            } else if self.eat_words(&["clustering", "order"]) {
                self.expect_word("by")?;
                self.expect("(")?;
                let order = self.list(|parser| {
                    let column = parser.identifier()?;
                    let descending = parser.eat_word("desc");
                    if !descending && !parser.eat_word("asc") {
                        return Err(parser.no_alternative());
                    }
                    Ok((column, descending))
                })?;
                options.clustering_order.extend(order);
                self.expect(")")?;
            } else {
                self.property(&mut options.properties)?;
            }
            if !self.eat_word("and") {
                return Ok(options);
            }
        }
    }
}
