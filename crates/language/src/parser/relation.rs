//! Relations of `WHERE` and conditions of `IF`.

use super::Parser;
use crate::ast::{ColumnCondition, Comparison, Conditions, Relation, Term};
use crate::error::SyntaxError;

impl Parser<'_> {
    /// `relation (AND relation)*`
    pub(super) fn relations(&mut self) -> Result<Vec<Relation>, SyntaxError> {
        self.and_list(|parser| {
            let directly = parser.ahead(0).end == parser.ahead(1).start;
            if parser.is_word("expr") && parser.is_ahead(1, "(") && directly {
                parser.custom()
            } else {
                parser.relation()
            }
        })
    }

    /// `expr(index, value)`
    fn custom(&mut self) -> Result<Relation, SyntaxError> {
        self.at += 2;
        let index = self.name("index").map(crate::ast::QualifiedName::local)?;
        self.expect(",")?;
        let value = self.term()?;
        self.expect(")")?;
        Ok(Relation::Custom { index, value })
    }

    fn relation(&mut self) -> Result<Relation, SyntaxError> {
        if self.eat_word("token") {
            let columns = self.columns()?;
            let comparison = self.comparison()?;
            return Ok(Relation::Token { columns, comparison, value: self.term()? });
        }
        if self.is("(") {
            return match self.attempt(Parser::columns) {
                Some(columns) => self.tuple_relation(columns),
                None => self.nested(|parser| {
                    parser.expect("(")?;
                    let relation = parser.relation()?;
                    parser.expect(")")?;
                    Ok(relation)
                }),
            };
        }
        let column = self.column()?;
        self.column_relation(column)
    }

    fn column_relation(&mut self, column: String) -> Result<Relation, SyntaxError> {
        match () {
            () if self.eat_word("like") => {
                Ok(Relation::Column { column, comparison: Comparison::Like, value: self.term()? })
            }
            () if self.eat_word("is") => {
                self.expect_words(&["not", "null"])?;
                Ok(Relation::IsNotNull(column))
            }
            () if self.eat_word("in") => Ok(match self.in_values()? {
                Ok(values) => Relation::In { column, values },
                Err(marker) => Relation::InMarker { column, marker },
            }),
            () if self.is_word("contains") => {
                let comparison = self.contains();
                Ok(Relation::Column { column, comparison, value: self.term()? })
            }
            () if self.eat("[") => {
                let key = self.term()?;
                self.expect("]")?;
                let comparison = self.comparison()?;
                Ok(Relation::Element { column, key, comparison, value: self.term()? })
            }
            () => {
                let comparison = self.comparison()?;
                Ok(Relation::Column { column, comparison, value: self.term()? })
            }
        }
    }

    /// `(a, b)`: columns.
    fn columns(&mut self) -> Result<Vec<String>, SyntaxError> {
        self.expect("(")?;
        let columns = self.list(Parser::column)?;
        self.expect(")")?;
        Ok(columns)
    }

    fn tuple_relation(&mut self, columns: Vec<String>) -> Result<Relation, SyntaxError> {
        if !self.eat_word("in") {
            let comparison = self.comparison()?;
            return Ok(Relation::Tuple { columns, comparison, value: self.tuple_or_marker()? });
        }
        if !self.is("(") {
            return Ok(Relation::TupleInMarker { columns, marker: self.marker()? });
        }
        self.expect("(")?;
        let values = match () {
            () if self.is(")") => Vec::new(),
            () if self.is("(") => self.list(Parser::tuple)?,
            () => self.list(|parser| parser.marker().map(Term::Marker))?,
        };
        self.expect(")")?;
        Ok(Relation::TupleIn { columns, values })
    }

    fn tuple_or_marker(&mut self) -> Result<Term, SyntaxError> {
        if self.is("(") { self.tuple() } else { self.marker().map(Term::Marker) }
    }

    /// The values of `IN`, or its one marker.
    fn in_values(&mut self) -> Result<Result<Vec<Term>, u16>, SyntaxError> {
        if !self.is("(") {
            return self.marker().map(Err);
        }
        self.expect("(")?;
        let values = if self.is(")") { Vec::new() } else { self.list(Parser::term)? };
        self.expect(")")?;
        Ok(Ok(values))
    }

    fn contains(&mut self) -> Comparison {
        self.advance();
        if self.eat_word("key") { Comparison::ContainsKey } else { Comparison::Contains }
    }

    pub(super) fn comparison(&mut self) -> Result<Comparison, SyntaxError> {
        let known = [
            ("=", Comparison::Equal),
            ("<", Comparison::Less),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            (">=", Comparison::GreaterOrEqual),
            ("!=", Comparison::NotEqual),
        ];
        let found =
            known.iter().find(|(symbol, _)| self.is(symbol)).map(|(_, comparison)| *comparison);
        let comparison = found.ok_or_else(|| self.no_alternative())?;
        self.advance();
        Ok(comparison)
    }

    /// `IF EXISTS` or `IF conditions`, if present.
    pub(super) fn conditions(&mut self) -> Result<Conditions, SyntaxError> {
        if !self.eat_word("if") {
            return Ok(Conditions::None);
        }
        // `exists` can also be a column.
        let compares = ["=", "<", "<=", ">", ">=", "!=", "[", "."]
            .iter()
            .any(|symbol| self.is_ahead(1, symbol));
        let tests = self.is_word_ahead(1, "in") || self.is_word_ahead(1, "contains");
        if self.is_word("exists") && !compares && !tests {
            self.advance();
            return Ok(Conditions::Exists);
        }
        self.and_list(Parser::condition).map(Conditions::All)
    }

    fn condition(&mut self) -> Result<ColumnCondition, SyntaxError> {
        let column = self.column()?;
        let mut element = None;
        let mut field = None;
        if self.eat("[") {
            element = Some(self.term()?);
            self.expect("]")?;
        } else if self.eat(".") {
            field = Some(self.identifier()?);
        }
        if self.eat_word("in") {
            let (values, in_marker) = match self.in_values()? {
                Ok(values) => (values, false),
                Err(marker) => (vec![Term::Marker(marker)], true),
            };
            return Ok(ColumnCondition {
                column,
                element,
                field,
                comparison: None,
                values,
                in_marker,
            });
        }
        let whole = element.is_none() && field.is_none();
        let comparison =
            if whole && self.is_word("contains") { self.contains() } else { self.comparison()? };
        let values = vec![self.term()?];
        Ok(ColumnCondition {
            column,
            element,
            field,
            comparison: Some(comparison),
            values,
            in_marker: false,
        })
    }
}
