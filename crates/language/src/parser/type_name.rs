//! Types.

use super::Parser;
use crate::ast::{NativeType, TypeName};
use crate::error::SyntaxError;
use crate::lexer::Kind;
use crate::types::CqlType;

impl Parser<'_> {
    /// Any type.
    pub(super) fn type_name(&mut self) -> Result<TypeName, SyntaxError> {
        let type_name = self.anything_like_a_type()?;
        check_class(&type_name)?;
        Ok(type_name)
    }

    /// Any type, or a string that may not name one: the following token decides.
    pub(super) fn anything_like_a_type(&mut self) -> Result<TypeName, SyntaxError> {
        self.nested(Parser::type_name_inner)
    }

    fn type_name_inner(&mut self) -> Result<TypeName, SyntaxError> {
        if self.peek().kind == Kind::String {
            return self.string().map(TypeName::Custom);
        }
        let word = self.lower();
        if !self.is_ahead(1, ".") {
            if let Some(native) = NativeType::by_name(&word) {
                self.advance();
                return Ok(TypeName::Native(native));
            }
            if word == "set" || self.is_ahead(1, "<") {
                return self.parameterized(&word);
            }
        }
        self.type_identifier().map(TypeName::UserDefined)
    }

    /// `list<..>` and similar types.
    fn parameterized(&mut self, word: &str) -> Result<TypeName, SyntaxError> {
        if !["list", "set", "map", "tuple", "frozen", "vector"].contains(&word) {
            let name = self.type_identifier()?;
            // `<` is not expected here; the expected token depends on the place of the type.
            let _ = name;
            return Err(self.no_alternative());
        }
        self.advance();
        self.expect("<")?;
        let type_name = match word {
            "list" => TypeName::List(Box::new(self.type_name()?)),
            "set" => TypeName::Set(Box::new(self.type_name()?)),
            "map" => {
                let key = self.type_name()?;
                self.expect(",")?;
                TypeName::Map(Box::new(key), Box::new(self.type_name()?))
            }
            "tuple" => TypeName::Tuple(self.list(Parser::type_name)?),
            "vector" => {
                let element = self.type_name()?;
                self.expect(",")?;
                TypeName::Vector(Box::new(element), self.dimension()?)
            }
            _ => TypeName::Frozen(Box::new(self.frozen()?)),
        };
        self.expect(">")?;
        Ok(type_name)
    }

    fn frozen(&mut self) -> Result<TypeName, SyntaxError> {
        let inner = self.type_name()?;
        match inner {
            TypeName::Native(_) | TypeName::Custom(_) => Err(SyntaxError::unplaced(format!(
                "frozen<> is only allowed on collections, tuples, and user-defined types (got {inner})"
            ))),
            _ => Ok(inner),
        }
    }

    fn dimension(&mut self) -> Result<u32, SyntaxError> {
        if self.peek().kind != Kind::Integer {
            return Err(self.mismatch("INTEGER"));
        }
        let text = self.text_of(self.peek());
        let dimension = text.parse().ok();
        let problem = || {
            SyntaxError::unplaced(format!(
                "vectors may only have positive dimensions; given {text}"
            ))
        };
        let dimension = dimension.ok_or_else(problem)?;
        self.advance();
        Ok(dimension)
    }

    /// A native type.
    pub(super) fn native_type(&mut self) -> Result<NativeType, SyntaxError> {
        let native = NativeType::by_name(&self.lower()).ok_or_else(|| self.no_alternative())?;
        self.advance();
        Ok(native)
    }
}

/// Refuses a string that cannot be the name of a type's class. Cassandra looks it up while parsing;
/// here a name with a package is accepted.
pub(super) fn check_class(type_name: &TypeName) -> Result<(), SyntaxError> {
    let TypeName::Custom(class) = type_name else { return Ok(()) };
    let name = class.split('(').next().unwrap_or_default().trim();
    let looks_like_one =
        name.contains('.') || name.ends_with("Type") || name == "PartitionerDefinedOrder";
    if looks_like_one || !matches!(CqlType::from_class_name(class), CqlType::Custom(_)) {
        return Ok(());
    }
    let problem =
        format!("Unable to find abstract-type class 'org.apache.cassandra.db.marshal.{class}'");
    Err(SyntaxError::unplaced(format!("Error setting type {class}: {problem}")))
}
