//! Terms with their receiving types: checked once at preparation, evaluated at execution.
//!
//! As much as possible is computed early: literals become bytes when checked, pure functions of
//! literals are called then, and only terms that depend on bind values or the time remain.

mod assignment;
mod evaluate;
mod literals;
#[cfg(test)]
mod tests;

use crate::ast::{NativeType, Operator, QualifiedName, Term};
use crate::error::InvalidRequest;
use crate::functions::{self, Function};
use crate::types::{CqlType, TypeLookup};
use crate::values::{TimeDependence, json};

pub use assignment::preferred_type;
pub use evaluate::{Bindings, Value};

/// Context of terms: the types and functions they may refer to, and the markers found so far.
pub struct Scope<'a> {
    /// User-defined types.
    pub types: &'a dyn TypeLookup,
    /// Types of the partition key of the table, for `token`.
    pub key_types: Option<&'a [CqlType]>,
    /// Milliseconds since 1970, for the literal `'now'`.
    pub now_ms: i64,
    /// Receiver of each bind marker, by index: name and type in its metadata.
    pub markers: Vec<Option<(String, CqlType)>>,
    /// Set if a literal repeats an element of a set, or a key of a map, in different forms:
    /// Cassandra then keeps either one at random.
    pub is_ambiguous: bool,
    /// The most that the value of a `timestamp` among the literals depends on.
    pub time_dependence: TimeDependence,
}

impl<'a> Scope<'a> {
    /// The scope of a statement with this many markers.
    #[must_use]
    pub fn new(
        types: &'a dyn TypeLookup,
        key_types: Option<&'a [CqlType]>,
        now_ms: i64,
        markers: usize,
    ) -> Scope<'a> {
        Scope {
            types,
            key_types,
            now_ms,
            markers: vec![None; markers],
            is_ambiguous: false,
            time_dependence: TimeDependence::Nothing,
        }
    }
}

/// A term ready for evaluation.
#[derive(Clone, Debug, PartialEq)]
pub enum Prepared {
    /// A known value; `None` is null.
    Constant(Option<Vec<u8>>),
    /// A bind value.
    Marker {
        /// Index of the marker.
        index: u16,
        /// Type of the marker.
        cql_type: CqlType,
    },
    /// A collection, tuple, vector or value of a user-defined type with unknown parts.
    Composite {
        /// Type of the value.
        cql_type: CqlType,
        /// Elements or fields; alternating keys and values of a map. A missing field is null.
        parts: Vec<Prepared>,
    },
    /// A call.
    Call {
        /// The function.
        function: Function,
        /// Arguments of the function.
        arguments: Vec<Prepared>,
    },
}

impl Prepared {
    /// True if the term contains a bind marker.
    #[must_use]
    pub fn has_marker(&self) -> bool {
        match self {
            Prepared::Constant(_) => false,
            Prepared::Marker { .. } => true,
            Prepared::Composite { parts, .. } => parts.iter().any(Prepared::has_marker),
            Prepared::Call { arguments, .. } => arguments.iter().any(Prepared::has_marker),
        }
    }

    /// True if the term has the same value at every evaluation with the same bind values.
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

/// Checks and prepares a term for a value of `cql_type` called `name`. Records its markers in
/// `scope`.
///
/// # Errors
/// If the term cannot be such a value.
pub fn prepare(
    term: &Term,
    name: &str,
    cql_type: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Prepared, InvalidRequest> {
    match term {
        Term::Literal(literal) => literals::constant(literal, name, cql_type, scope),
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

/// The name of a native function; keyspaces have no functions here.
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
    // A message about the wrong result type is better than one about a missing function.
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
    if function.is_from_json() {
        let found = json_time_dependence(&function, &prepared);
        scope.time_dependence = scope.time_dependence.max(found);
    }
    let call = Prepared::Call { function, arguments: prepared };
    let known = matches!(&call, Prepared::Call { arguments, .. }
        if arguments.iter().all(|argument| matches!(argument, Prepared::Constant(_))));
    if known && call.is_pure() && !is_token(&call) {
        return Ok(Prepared::Constant(call.evaluate(&evaluate::Nothing)?.into_bytes()));
    }
    Ok(call)
}

/// The dependence of the times in JSON. Those in a bind value are unknown, and may name no zone.
fn json_time_dependence(function: &Function, arguments: &[Prepared]) -> TimeDependence {
    match arguments {
        [Prepared::Constant(text)] => {
            let text = text.as_deref().and_then(|text| std::str::from_utf8(text).ok());
            let json = text.and_then(|text| json::parse(text).ok());
            json.map(|json| json::time_dependence(&function.returns, &json)).unwrap_or_default()
        }
        _ if function.returns.references(NativeType::Timestamp) => TimeDependence::Zone,
        _ => TimeDependence::Nothing,
    }
}

/// A token needs the partitioner, which is not available at preparation.
fn is_token(call: &Prepared) -> bool {
    matches!(call, Prepared::Call { function, .. } if function.name == "token")
}

/// Type of a term independent of its receiver, or of a literal if nothing else is known.
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
