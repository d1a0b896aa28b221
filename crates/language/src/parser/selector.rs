//! Selectors: values that `SELECT` computes for each row.

use super::Parser;
use crate::ast::{CellMetadata, Operator, Selector, Term, TypeName};
use crate::error::SyntaxError;
use crate::lexer::Kind;

impl Parser<'_> {
    /// Any selector.
    pub(super) fn selector(&mut self) -> Result<Selector, SyntaxError> {
        self.nested(Parser::selector_sum)
    }

    fn selector_sum(&mut self) -> Result<Selector, SyntaxError> {
        let known = [("+", Operator::Add), ("-", Operator::Subtract)];
        self.selector_chain(&known, Parser::selector_product)
    }

    fn selector_product(&mut self) -> Result<Selector, SyntaxError> {
        let known = [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Modulo)];
        self.selector_chain(&known, Parser::selector_signed)
    }

    fn selector_chain(
        &mut self,
        known: &[(&str, Operator)],
        operand: fn(&mut Self) -> Result<Selector, SyntaxError>,
    ) -> Result<Selector, SyntaxError> {
        let mut left = operand(self)?;
        let mut operators = 0;
        while let Some(operator) = self.operator(known) {
            self.advance();
            operators = self.count_operator(operators)?;
            left = Selector::Arithmetic {
                operator,
                left: Box::new(left),
                right: Box::new(operand(self)?),
            };
        }
        Ok(left)
    }

    fn selector_signed(&mut self) -> Result<Selector, SyntaxError> {
        if self.eat("-") {
            return self
                .nested(|parser| Ok(Selector::Negation(Box::new(parser.selector_signed()?))));
        }
        let selector = self.simple_selector()?;
        self.modifiers(selector)
    }

    /// `.field`, `[key]` and `[from..to]` behind a selector.
    fn modifiers(&mut self, mut selector: Selector) -> Result<Selector, SyntaxError> {
        let mut count = 0;
        loop {
            if self.eat(".") {
                selector = Selector::Field(Box::new(selector), self.identifier()?);
            } else if self.eat("[") {
                selector = self.sub_selection(selector)?;
                self.expect("]")?;
            } else {
                return Ok(selector);
            }
            count = self.count_operator(count)?;
        }
    }

    fn sub_selection(&mut self, receiver: Selector) -> Result<Selector, SyntaxError> {
        let receiver = Box::new(receiver);
        if self.eat("..") {
            return Ok(Selector::Slice(receiver, None, Some(self.term()?)));
        }
        let first = self.term()?;
        if !self.eat("..") {
            return Ok(Selector::Element(receiver, first));
        }
        let last = if self.is("]") { None } else { Some(self.term()?) };
        Ok(Selector::Slice(receiver, Some(first), last))
    }

    /// A selector without operators or modifiers.
    fn simple_selector(&mut self) -> Result<Selector, SyntaxError> {
        if let Some(literal) = self.constant()? {
            return Ok(Selector::Term(Term::Literal(literal)));
        }
        match () {
            () if self.eat_word("null") => Ok(Selector::Term(Term::Null)),
            () if self.is("?") || self.is(":") => Ok(Selector::Term(Term::Marker(self.marker()?))),
            () if self.is("(") => self.selector_hint_or_tuple(),
            () if self.eat("[") => {
                let elements = if self.is("]") { Vec::new() } else { self.list(Parser::selector)? };
                self.expect("]")?;
                Ok(Selector::List(elements))
            }
            () if self.is("{") => self.selector_braces(),
            () if self.is_ahead(1, "(") && self.peek().kind == Kind::Word => self.selector_call(),
            () if self.is_call() => self.plain_call(),
            () => self.identifier().map(Selector::Column),
        }
    }

    /// A function call, including those with separate rules.
    fn selector_call(&mut self) -> Result<Selector, SyntaxError> {
        let metadata = match self.lower().as_str() {
            "count" if self.is_ahead(2, "*") => {
                self.at += 3;
                self.expect(")")?;
                return Ok(Selector::CountRows);
            }
            "writetime" => CellMetadata::WriteTime,
            "maxwritetime" => CellMetadata::MaxWriteTime,
            "ttl" => CellMetadata::TimeToLive,
            "cast" => {
                self.at += 2;
                let selector = self.selector()?;
                self.expect_word("as")?;
                let native = self.native_type()?;
                self.expect(")")?;
                return Ok(Selector::Cast(Box::new(selector), native));
            }
            _ => return self.plain_call(),
        };
        self.at += 2;
        let column = self.identifier().map(Selector::Column)?;
        let argument = self.modifiers(column)?;
        self.expect(")")?;
        Ok(Selector::Metadata(metadata, Box::new(argument)))
    }

    fn plain_call(&mut self) -> Result<Selector, SyntaxError> {
        let name = self.function_name()?;
        self.expect("(")?;
        let arguments = if self.is(")") { Vec::new() } else { self.list(Parser::selector)? };
        self.expect(")")?;
        Ok(Selector::Call { name, arguments })
    }

    /// `(type) a` or `(a, b)`
    fn selector_hint_or_tuple(&mut self) -> Result<Selector, SyntaxError> {
        if let Some(type_name) = self.attempt(Parser::selector_hint) {
            let hinted = self.nested(Parser::simple_selector)?;
            return Ok(Selector::Hint(type_name, Box::new(hinted)));
        }
        self.expect("(")?;
        let elements = self.list(Parser::selector)?;
        self.expect(")")?;
        Ok(Selector::Tuple(elements))
    }

    /// `(type)`, if a selector follows.
    fn selector_hint(&mut self) -> Result<TypeName, SyntaxError> {
        self.expect("(")?;
        let type_name = self.type_name()?;
        self.expect(")")?;
        if !self.is_word("as") && self.starts_selector(0) {
            Ok(type_name)
        } else {
            Err(self.no_alternative())
        }
    }

    /// True if a selector without a sign can begin with the token `count` ahead.
    pub(super) fn starts_selector(&self, count: usize) -> bool {
        let constant = ["null", "true", "false", "nan", "infinity", "token"];
        match self.ahead(count).kind {
            Kind::End | Kind::EmptyName => false,
            Kind::Punctuation => {
                ["?", ":", "(", "[", "{"].iter().any(|first| self.is_ahead(count, first))
            }
            Kind::Word => {
                self.identifier_ahead(count).is_some()
                    || constant.contains(&self.lower_ahead(count).as_str())
            }
            _ => true,
        }
    }

    /// A set, a map or a value of a user-defined type.
    fn selector_braces(&mut self) -> Result<Selector, SyntaxError> {
        self.expect("{")?;
        if self.eat("}") {
            return Ok(Selector::Set(Vec::new()));
        }
        let first = self.selector()?;
        let selector = if self.eat(":") {
            let mut entries = vec![(first, self.selector()?)];
            if self.eat(",") {
                entries.extend(self.list(|parser| {
                    let key = parser.selector()?;
                    parser.expect(":")?;
                    Ok((key, parser.selector()?))
                })?);
            }
            Selector::Map(entries)
        } else {
            let mut elements = vec![first];
            if self.eat(",") {
                elements.extend(self.list(Parser::selector)?);
            }
            Selector::Set(elements)
        };
        self.expect("}")?;
        Ok(selector)
    }
}
