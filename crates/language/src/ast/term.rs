//! Values as they are written: literals, markers, function calls and arithmetic.

use super::name::QualifiedName;
use super::type_name::{NativeType, TypeName};

/// A value of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// A constant.
    Literal(Literal),
    /// `null`
    Null,
    /// A bind marker, by its index in [`super::Parsed::markers`].
    Marker(u16),
    /// `[a, b]`: a list, or a vector.
    List(Vec<Term>),
    /// `{a, b}`; `{}` may also be an empty map.
    Set(Vec<Term>),
    /// `{a: b}`
    Map(Vec<(Term, Term)>),
    /// `{field: a}`: a value of a user-defined type. The last of equal fields counts.
    Udt(Vec<(String, Term)>),
    /// `(a, b)`: a tuple; with one element possibly plain parentheses.
    Tuple(Vec<Term>),
    /// `f(a, b)`
    Call {
        /// The function.
        name: QualifiedName,
        /// Arguments of the function.
        arguments: Vec<Term>,
    },
    /// `(type) a`: a type hint.
    Hint(TypeName, Box<Term>),
    /// `CAST(a AS type)`
    Cast(Box<Term>, NativeType),
    /// `-a`
    Negation(Box<Term>),
    /// `a + b`
    Arithmetic {
        /// The operation.
        operator: Operator,
        /// Left operand.
        left: Box<Term>,
        /// Right operand.
        right: Box<Term>,
    },
}

impl Term {
    /// The terms it consists of.
    #[must_use]
    pub fn parts(&self) -> Vec<&Term> {
        match self {
            Term::Literal(_) | Term::Null | Term::Marker(_) => Vec::new(),
            Term::List(terms) | Term::Set(terms) | Term::Tuple(terms) => terms.iter().collect(),
            Term::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            Term::Udt(fields) => fields.iter().map(|(_, term)| term).collect(),
            Term::Call { arguments, .. } => arguments.iter().collect(),
            Term::Hint(_, term) | Term::Cast(term, _) | Term::Negation(term) => vec![term],
            Term::Arithmetic { left, right, .. } => vec![left, right],
        }
    }
}

/// A constant: its kind of token, and its text without quotes.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct Literal {
    /// The kind of token.
    pub kind: LiteralKind,
    /// Text of the constant: unquoted for strings, otherwise as written.
    pub text: String,
}

/// Kinds of constants.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum LiteralKind {
    /// `'a'`, `$$a$$`
    String,
    /// `-1`
    Integer,
    /// `1.5`, `NaN`, `Infinity`
    Float,
    /// `true`
    Boolean,
    /// `1h`
    Duration,
    /// A UUID.
    Uuid,
    /// `0xff`
    Hex,
}

impl LiteralKind {
    /// Cassandra's name of the kind in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LiteralKind::String => "STRING",
            LiteralKind::Integer => "INTEGER",
            LiteralKind::Float => "FLOAT",
            LiteralKind::Boolean => "BOOLEAN",
            LiteralKind::Duration => "DURATION",
            LiteralKind::Uuid => "UUID",
            LiteralKind::Hex => "HEX",
        }
    }
}

/// Arithmetic operations.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl Operator {
    /// Character of the operation.
    #[must_use]
    pub fn symbol(self) -> char {
        match self {
            Operator::Add => '+',
            Operator::Subtract => '-',
            Operator::Multiply => '*',
            Operator::Divide => '/',
            Operator::Modulo => '%',
        }
    }
}
