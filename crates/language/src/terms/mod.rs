//! Terms with the types they are for: checked once when a statement is prepared, evaluated when it
//! is executed.
//!
//! As much as possible is computed early: a literal becomes bytes when it is checked, a pure
//! function of literals is called then, and only what depends on bind values or on the time is
//! left.

mod assignment;
mod evaluate;
mod literals;
#[cfg(test)]
mod tests;

use crate::ast::{Operator, QualifiedName, Term};
use crate::error::InvalidRequest;
use crate::functions::{self, Function};
use crate::types::{CqlType, TypeLookup};

pub use assignment::preferred_type;
pub use evaluate::{Bindings, Value};

/// Where terms stand: what their types and functions may refer to, and the markers found so far.
pub struct Scope<'a> {
    /// User-defined types.
    pub types: &'a dyn TypeLookup,
    /// Types of the partition key of the table, for `token`.
    pub key_types: Option<&'a [CqlType]>,
    /// Milliseconds since 1970, for the literal `'now'`.
    pub now_ms: i64,
    /// The purpose of each bind marker, by its index: the name and type that its metadata has.
    pub markers: Vec<Option<(String, CqlType)>>,
    /// A literal was found that names an element of a set, or a key of a map, twice and not alike:
    /// Cassandra takes either, as it happens.
    pub is_ambiguous: bool,
}

impl<'a> Scope<'a> {
    /// The scope of a statement with so many markers.
    #[must_use]
    pub fn new(
        types: &'a dyn TypeLookup,
        key_types: Option<&'a [CqlType]>,
        now_ms: i64,
        markers: usize,
    ) -> Scope<'a> {
        Scope { types, key_types, now_ms, markers: vec![None; markers], is_ambiguous: false }
    }
}

/// A term that can be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub enum Prepared {
    /// A value that is known; `None` is null.
    Constant(Option<Vec<u8>>),
    /// A bind value.
    Marker {
        /// Its index.
        index: u16,
        /// Its type.
        cql_type: CqlType,
    },
    /// A collection, tuple, vector or value of a user-defined type with parts that are not known.
    Composite {
        /// Its type.
        cql_type: CqlType,
        /// Its elements or fields; keys and values of a map in turn. A field that is not given is
        /// null.
        parts: Vec<Prepared>,
    },
    /// A call.
    Call {
        /// The function.
        function: Function,
        /// Its arguments.
        arguments: Vec<Prepared>,
    },
}

impl Prepared {
    /// True if the term has a bind marker in it.
    #[must_use]
    pub fn has_marker(&self) -> bool {
        match self {
            Prepared::Constant(_) => false,
            Prepared::Marker { .. } => true,
            Prepared::Composite { parts, .. } => parts.iter().any(Prepared::has_marker),
            Prepared::Call { arguments, .. } => arguments.iter().any(Prepared::has_marker),
        }
    }

    /// True if the term is the same whenever it is evaluated with the same bind values.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        match self {
            Prepared::Constant(_) | Prepared::Marker { .. } => true,
            Prepared::Composite { parts, .. } => parts.iter().all(Prepared::is_pure),
            Prepared::Call { function, arguments } => {
                function.is_pure() && arguments.iter().all(Prepared::is_pure)
            }
        }
    }
}

/// Checks a term that is for a value of `cql_type` called `name`, and prepares it. Markers in it
/// are recorded in `scope`.
///
/// # Errors
/// When the term cannot be such a value.
pub fn prepare(
    term: &Term,
    name: &str,
    cql_type: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Prepared, InvalidRequest> {
    match term {
        Term::Literal(literal) => literals::constant(literal, name, cql_type, scope.now_ms),
        Term::Null => Ok(Prepared::Constant(None)),
        Term::Marker(index) => {
            if let Some(marker) = scope.markers.get_mut(usize::from(*index)) {
                *marker = Some((name.to_owned(), cql_type.clone()));
            }
            Ok(Prepared::Marker { index: *index, cql_type: cql_type.clone() })
        }
        Term::List(_) | Term::Set(_) | Term::Map(_) | Term::Udt(_) | Term::Tuple(_) => {
            literals::composite(term, name, cql_type, scope)
        }
        Term::Hint(type_name, inner) => {
            let hinted = CqlType::resolve(type_name, scope.types)?;
            if assignment::fits(inner, &hinted, scope).is_none() {
                return Err(InvalidRequest::new(format!(
                    "Cannot cast value {inner} to type {type_name}"
                )));
            }
            if !cql_type.accepts(&hinted) {
                return Err(InvalidRequest::new(format!(
                    "Cannot assign value {term} to {name} of type {cql_type}"
                )));
            }
            prepare(inner, name, cql_type, scope)
        }
        Term::Call { name: function, arguments } => {
            call(&function_name(function)?, arguments, name, cql_type, scope)
        }
        Term::Arithmetic { operator, left, right } => {
            let operands = [left.as_ref().clone(), right.as_ref().clone()];
            call(operator_name(*operator), &operands, name, cql_type, scope)
        }
        Term::Negation(inner) => {
            call("_negate", std::slice::from_ref(inner), name, cql_type, scope)
        }
        Term::Cast(inner, native) => {
            let from = assignment::known_or_preferred(inner, scope).ok_or_else(|| {
                InvalidRequest::new(format!(
                    "Cannot infer type for term {inner} in cast: use a type hint, example '(int) ?'"
                ))
            })?;
            let function = Function::cast(&from, *native)?;
            finish(function, std::slice::from_ref(inner), name, cql_type, scope)
        }
    }
}

/// The name of a native function; functions of a keyspace are not there.
pub(crate) fn function_name(name: &QualifiedName) -> Result<String, InvalidRequest> {
    match name.keyspace.as_deref() {
        None | Some("system") => Ok(name.name.clone()),
        Some(_) => Err(InvalidRequest::new(format!("Unknown function {name} called"))),
    }
}

pub(crate) fn operator_name(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "_+",
        Operator::Subtract => "_-",
        Operator::Multiply => "_*",
        Operator::Divide => "_/",
        Operator::Modulo => "_%",
    }
}

fn call<T: AsRef<Term>>(
    function: &str,
    arguments: &[T],
    name: &str,
    cql_type: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Prepared, InvalidRequest> {
    let found = assignment::resolve_call(function, arguments, Some(cql_type), scope);
    // A result that is for another type is a better message than a function that does not exist.
    let found = match found {
        Err(error) => {
            assignment::resolve_call(function, arguments, None, scope).map_err(|_| error)?
        }
        Ok(found) => found,
    };
    finish(found, arguments, name, cql_type, scope)
}

fn finish<T: AsRef<Term>>(
    function: Function,
    arguments: &[T],
    name: &str,
    cql_type: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Prepared, InvalidRequest> {
    if !cql_type.accepts(&function.returns) {
        let what = match function.operator() {
            Some(operator) => format!("operation {}", operator.symbol()),
            None => format!("function system.{}", function.name),
        };
        return Err(InvalidRequest::new(format!(
            "Type error: cannot assign result of {what} (type {}) to {name} (type {cql_type})",
            function.returns
        )));
    }
    let mut prepared = Vec::with_capacity(arguments.len());
    for (position, (argument, wanted)) in arguments.iter().zip(&function.arguments).enumerate() {
        let argument_name =
            format!("arg{position}(system.{})", function.native_name().to_lowercase());
        prepared.push(prepare(argument.as_ref(), &argument_name, wanted, scope)?);
    }
    let call = Prepared::Call { function, arguments: prepared };
    let known = matches!(&call, Prepared::Call { arguments, .. }
        if arguments.iter().all(|argument| matches!(argument, Prepared::Constant(_))));
    if known && call.is_pure() && !is_token(&call) {
        return Ok(Prepared::Constant(call.evaluate(&evaluate::Nothing)?.into_bytes()));
    }
    Ok(call)
}

/// A token needs the partitioner, which is not here when a statement is prepared.
fn is_token(call: &Prepared) -> bool {
    matches!(call, Prepared::Call { function, .. } if function.name == "token")
}

/// The type of a term that has one whatever it is for, or that of a literal if nothing else is
/// known.
#[must_use]
pub fn known_type(term: &Term, scope: &Scope<'_>) -> Option<CqlType> {
    assignment::known_or_preferred(term, scope)
}

impl AsRef<Term> for Term {
    fn as_ref(&self) -> &Term {
        self
    }
}

impl functions::Argument for CqlType {
    fn known_type(&self) -> Option<CqlType> {
        Some(self.clone())
    }

    fn fits(&self, cql_type: &CqlType) -> Option<bool> {
        cql_type.accepts(self).then_some(self == cql_type)
    }

    fn shown(&self) -> String {
        self.to_string()
    }
}
