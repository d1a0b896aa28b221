//! Terms: values with functions and arithmetic around them.

use super::type_name::check_class;
use super::{DEPTH_MAX, ELEMENTS_MAX, Parser, marker_index};
use crate::ast::{Literal, LiteralKind, Operator, Term, TypeName};
use crate::error::SyntaxError;
use crate::lexer::Kind;
use crate::values::Decimal;

impl Parser<'_> {
    /// Any term.
    pub(super) fn term(&mut self) -> Result<Term, SyntaxError> {
        self.nested(Parser::sum)
    }

    fn sum(&mut self) -> Result<Term, SyntaxError> {
        let mut left = self.product()?;
        let mut operators = 0;
        while let Some(operator) = self.operator(&[("+", Operator::Add), ("-", Operator::Subtract)])
        {
            // `X = <value> + X` of an UPDATE is not a sum: its right side is not a term.
            if !self.starts_term(1) {
                break;
            }
            self.advance();
            operators = self.count_operator(operators)?;
            let right = self.product()?;
            left = Term::Arithmetic { operator, left: Box::new(left), right: Box::new(right) };
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Term, SyntaxError> {
        let mut left = self.signed()?;
        let mut operators = 0;
        let known = [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Modulo)];
        while let Some(operator) = self.operator(&known) {
            self.advance();
            operators = self.count_operator(operators)?;
            let right = self.signed()?;
            left = Term::Arithmetic { operator, left: Box::new(left), right: Box::new(right) };
        }
        Ok(left)
    }

    /// Chains of operators also nest, to the left.
    pub(super) fn count_operator(&self, operators: u32) -> Result<u32, SyntaxError> {
        if operators >= DEPTH_MAX {
            return Err(self.problem(&format!("an expression has at most {DEPTH_MAX} operators")));
        }
        Ok(operators + 1)
    }

    pub(super) fn operator(&self, known: &[(&str, Operator)]) -> Option<Operator> {
        known.iter().find(|(symbol, _)| self.is(symbol)).map(|(_, operator)| *operator)
    }

    fn signed(&mut self) -> Result<Term, SyntaxError> {
        if self.eat("-") {
            return Ok(Term::Negation(Box::new(self.simple_term()?)));
        }
        self.simple_term()
    }

    fn simple_term(&mut self) -> Result<Term, SyntaxError> {
        if let Some(literal) = self.constant()? {
            return Ok(Term::Literal(literal));
        }
        match () {
            () if self.is("?") || self.is(":") => self.marker().map(Term::Marker),
            () if self.is("(") => self.hint_or_tuple(),
            () if self.is("[") => {
                self.advance();
                let elements = if self.is("]") { Vec::new() } else { self.list(Parser::term)? };
                self.expect("]")?;
                Ok(Term::List(elements))
            }
            () if self.is("{") => self.braces(),
            () if self.eat_word("null") => Ok(Term::Null),
            () if self.is_word("cast") && self.is_ahead(1, "(") => self.nested(Parser::cast),
            () if self.is_call() => {
                let name = self.function_name()?;
                self.expect("(")?;
                let arguments = if self.is(")") { Vec::new() } else { self.list(Parser::term)? };
                self.expect(")")?;
                Ok(Term::Call { name, arguments })
            }
            () => Err(self.no_alternative()),
        }
    }

    /// `CAST(a AS type)`
    fn cast(&mut self) -> Result<Term, SyntaxError> {
        self.at += 2;
        let term = self.simple_term()?;
        self.expect_word("as")?;
        let native = self.native_type()?;
        self.expect(")")?;
        Ok(Term::Cast(Box::new(term), native))
    }

    /// `(type) a` or `(a, b)`
    fn hint_or_tuple(&mut self) -> Result<Term, SyntaxError> {
        if let Some(type_name) = self.attempt(Parser::hint) {
            check_class(&type_name)?;
            return self
                .nested(|parser| Ok(Term::Hint(type_name, Box::new(parser.simple_term()?))));
        }
        self.tuple()
    }

    /// `(type)`, if a term follows.
    fn hint(&mut self) -> Result<TypeName, SyntaxError> {
        self.expect("(")?;
        // A text in parentheses followed by a colon is a key of a map, even if it could precede a
        // named marker.
        let is_text = self.peek().kind == Kind::String;
        let type_name = self.anything_like_a_type()?;
        self.expect(")")?;
        if self.starts_term(0) && !self.is("-") && !(is_text && self.is(":")) {
            Ok(type_name)
        } else {
            Err(self.no_alternative())
        }
    }

    /// `(a, b)`
    pub(super) fn tuple(&mut self) -> Result<Term, SyntaxError> {
        self.expect("(")?;
        let elements = self.list(Parser::term)?;
        self.expect(")")?;
        Ok(Term::Tuple(elements))
    }

    /// True if a simple term can begin with the token `count` ahead.
    fn starts_term(&self, count: usize) -> bool {
        match self.ahead(count).kind {
            Kind::String
            | Kind::Integer
            | Kind::Float
            | Kind::Duration
            | Kind::Uuid
            | Kind::Hex => true,
            Kind::Punctuation => {
                ["?", ":", "(", "[", "{", "-"].iter().any(|first| self.is_ahead(count, first))
            }
            Kind::Word => {
                let word = self.lower_ahead(count);
                matches!(word.as_str(), "null" | "true" | "false" | "nan" | "infinity")
                    || self.is_call_ahead(count)
            }
            Kind::QuotedName => self.is_call_ahead(count),
            Kind::EmptyName | Kind::End => false,
        }
    }

    fn is_call_ahead(&self, count: usize) -> bool {
        self.is_ahead(count + 1, "(")
            || (self.is_ahead(count + 1, ".") && self.is_ahead(count + 3, "("))
    }

    /// A set, a map or a value of a user-defined type.
    fn braces(&mut self) -> Result<Term, SyntaxError> {
        self.expect("{")?;
        if self.eat("}") {
            return Ok(Term::Set(Vec::new()));
        }
        let term = if self.identifier_ahead(0).is_some() && self.is_ahead(1, ":") {
            Term::Udt(self.list(|parser| {
                let field = parser.identifier()?;
                parser.expect(":")?;
                Ok((field, parser.term()?))
            })?)
        } else {
            let first = self.term()?;
            if self.is(":") { self.map(first)? } else { self.set(first)? }
        };
        self.expect("}")?;
        Ok(term)
    }

    fn map(&mut self, first: Term) -> Result<Term, SyntaxError> {
        self.expect(":")?;
        let mut entries = vec![(first, self.term()?)];
        while self.eat(",") {
            self.check_elements(entries.len())?;
            let key = self.term()?;
            self.expect(":")?;
            entries.push((key, self.term()?));
        }
        Ok(Term::Map(entries))
    }

    fn set(&mut self, first: Term) -> Result<Term, SyntaxError> {
        let mut elements = vec![first];
        while self.eat(",") {
            self.check_elements(elements.len())?;
            elements.push(self.term()?);
        }
        Ok(Term::Set(elements))
    }

    fn check_elements(&self, count: usize) -> Result<(), SyntaxError> {
        if count < ELEMENTS_MAX {
            return Ok(());
        }
        Err(self.problem(&format!("a list has at most {ELEMENTS_MAX} elements")))
    }

    /// A constant, if one comes next.
    pub(super) fn constant(&mut self) -> Result<Option<Literal>, SyntaxError> {
        let token = self.peek();
        let text = self.text_of(token);
        let literal = |kind, text: &str| Some(Literal { kind, text: text.to_owned() });
        let found = match token.kind {
            Kind::String => Some(Literal { kind: LiteralKind::String, text: self.unquoted(token) }),
            Kind::Integer => literal(LiteralKind::Integer, text),
            Kind::Float
                if text.starts_with('-')
                    && text.as_bytes().get(1).is_some_and(u8::is_ascii_alphabetic) =>
            {
                literal(
                    LiteralKind::Float,
                    if text.eq_ignore_ascii_case("-nan") { "NaN" } else { "-Infinity" },
                )
            }
            Kind::Float if is_beyond_numbers(text) => {
                return Err(SyntaxError::unplaced(format!(
                    "{text} is beyond what a double can be"
                )));
            }
            Kind::Float => literal(LiteralKind::Float, text),
            Kind::Duration => literal(LiteralKind::Duration, text),
            Kind::Uuid => literal(LiteralKind::Uuid, text),
            Kind::Hex => literal(LiteralKind::Hex, text),
            Kind::Word => match self.lower().as_str() {
                "true" | "false" => literal(LiteralKind::Boolean, text),
                "nan" => literal(LiteralKind::Float, "NaN"),
                "infinity" => literal(LiteralKind::Float, "Infinity"),
                _ => None,
            },
            _ => None,
        };
        self.at += usize::from(found.is_some());
        Ok(found)
    }

    /// `?` or `:name`; returns its index.
    pub(super) fn marker(&mut self) -> Result<u16, SyntaxError> {
        let start = self.peek().start;
        let name = if self.eat("?") {
            None
        } else if self.eat(":") {
            Some(self.identifier()?)
        } else {
            return Err(self.no_alternative());
        };
        let index = marker_index(&self.markers)?;
        self.note_marker(start, name.as_deref())?;
        self.markers.push(name);
        Ok(index)
    }

    /// An integer or a marker.
    pub(super) fn integer_or_marker(&mut self) -> Result<Term, SyntaxError> {
        if self.peek().kind == Kind::Integer {
            let text = self.text_of(self.peek()).to_owned();
            self.advance();
            return Ok(Term::Literal(Literal { kind: LiteralKind::Integer, text }));
        }
        self.marker().map(Term::Marker)
    }
}

/// Cassandra's parser looks for the nearest double and for the exact decimal, and fails if there is
/// none.
fn is_beyond_numbers(text: &str) -> bool {
    !text.parse::<f64>().is_ok_and(f64::is_finite) || Decimal::parse(text).is_none()
}
