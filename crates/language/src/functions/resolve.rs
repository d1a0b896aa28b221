//! Overload resolution: by name, by the known types of the arguments, and by the receiver of the
//! result.

use std::sync::Arc;

use super::aggregate::{Aggregate, AggregateKind};
use super::arithmetic::Math;
use super::masks::Mask;
use super::vectors::Similarity;
use super::{Body, Function, arithmetic};
use crate::ast::{NativeType, Operator};
use crate::error::InvalidRequest;
use crate::types::CqlType;

/// An argument of a call, as far as known.
pub trait Argument {
    /// Type of the argument, if independent of its receiver.
    fn known_type(&self) -> Option<CqlType>;

    /// Returns whether the argument can be a value of a type: `Some(true)` if it has that type,
    /// `Some(false)` if it can be converted.
    fn fits(&self, cql_type: &CqlType) -> Option<bool>;

    /// Text of the argument in messages.
    fn shown(&self) -> String;

    /// Number of elements of a literal list, which can also be a vector.
    fn list_length(&self) -> Option<usize> {
        None
    }
}

/// Names of arithmetic operations as functions, which calls cannot use.
fn operator_of(name: &str) -> Option<Operator> {
    let operators =
        [Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide, Operator::Modulo];
    operators.into_iter().find(|operator| name == format!("_{}", operator.symbol()))
}

/// Resolves `name` for these arguments, with a result for a value of type `receiver`.
///
/// `_+` and similar names are arithmetic and `_negate` is the sign. `token` takes the types of the
/// partition key, `key_types`.
///
/// # Errors
/// If there is no such function, none that takes the arguments, or more than one.
pub fn resolve(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
    key_types: Option<&[CqlType]>,
) -> Result<Function, InvalidRequest> {
    let candidates = candidates(name, arguments, receiver, key_types)?;
    let Some(all) = candidates else {
        return Err(InvalidRequest::new(format!("Unknown function {name} called")));
    };
    let matching = |strict: bool| -> Vec<Function> {
        let fits = |function: &&Function| {
            receiver.is_none_or(|receiver| receiver.accepts(&function.returns))
                && function.arguments.len() == arguments.len()
                && function.arguments.iter().zip(arguments).all(|(wanted, argument)| match argument
                    .fits(wanted)
                {
                    Some(exact) => exact || !strict,
                    None => false,
                })
        };
        all.iter().filter(fits).cloned().collect()
    };
    // The first exact match wins: an operation also fits a receiver that takes several types.
    let mut found = matching(true);
    found.truncate(1);
    if found.is_empty() {
        found = matching(false);
    }
    if found.len() > 1
        && operator_of(name).is_some()
        && let Some(receiver) = receiver
    {
        let same = found
            .iter()
            .find(|function| function.arguments.iter().all(|argument| argument == receiver));
        found = same.cloned().map_or(found, |function| vec![function]);
    }
    if found.len() > 1 {
        // A possible counter is treated as one only as a last resort.
        found.retain(|function| !function.arguments.iter().any(CqlType::is_counter));
    }
    let shown: Vec<_> = arguments.iter().map(|argument| argument.shown()).collect();
    match (&found[..], operator_of(name)) {
        ([function], _) => Ok(function.clone()),
        ([], Some(operator)) => {
            let operands = shown.join(" and ");
            Err(InvalidRequest::new(format!(
                "the '{}' operation is not supported between {operands}",
                operator.symbol()
            )))
        }
        ([], None) => Err(InvalidRequest::new(format!(
            "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
            signatures(&all)
        ))),
        (_, Some(operator)) => Err(InvalidRequest::new(format!(
            "Ambiguous '{}' operation with args {}: use type hint to disambiguate, example '(int) ?'",
            operator.symbol(),
            shown.join(" and ")
        ))),
        (_, None) => Err(InvalidRequest::new(format!(
            "Ambiguous call to function {name} (can be matched by following signatures: {}): \
             use type casts to disambiguate",
            signatures(&found)
        ))),
    }
}

/// True if a native function has this name.
#[must_use]
pub fn is_native(name: &str) -> bool {
    !matches!(candidates(name, &[], None, None), Ok(None))
}

fn signatures(functions: &[Function]) -> String {
    let shown = functions.iter().map(|function| {
        let arguments: Vec<_> = function.arguments.iter().map(CqlType::unfrozen_name).collect();
        format!(
            "system.{}({}) -> {}",
            function.name,
            arguments.join(", "),
            function.returns.unfrozen_name()
        )
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Functions with a name; of those for any type, the one for these arguments.
fn candidates(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
    key_types: Option<&[CqlType]>,
) -> Result<Option<Vec<Function>>, InvalidRequest> {
    let first = arguments.first().and_then(|argument| argument.known_type());
    let one = |arguments: Vec<CqlType>, returns: CqlType, body: Body| {
        vec![Function { name: name.to_owned(), arguments, returns, body }]
    };
    let text: CqlType = NativeType::Text.into();
    Ok(Some(match name {
        "token" => match key_types {
            Some(types) => one(types.to_vec(), NativeType::Bigint.into(), Body::Token),
            None => {
                return Err(InvalidRequest::new(
                    "token function is only supported on the columns of a partition key",
                ));
            }
        },
        "to_json" | "tojson" => {
            let untyped = || {
                arguments
                    .first()
                    .map_or_else(|| wrong_count(name), |argument| untyped(name, *argument))
            };
            one(vec![first.ok_or_else(untyped)?], text, Body::ToJson)
        }
        "from_json" | "fromjson" => match receiver {
            Some(receiver) => one(vec![text], receiver.clone(), Body::FromJson),
            None => {
                return Err(InvalidRequest::new(format!(
                    "{name} can only be called if receiver type is known"
                )));
            }
        },
        "map_keys" | "map_values" => match first {
            Some(CqlType::Map { key, value, frozen }) => {
                let (keys, values) = (key.as_ref().clone(), value.as_ref().clone());
                let argument = CqlType::Map { key, value, frozen };
                match name {
                    "map_keys" => one(vec![argument], CqlType::set(keys), Body::MapKeys),
                    _ => one(vec![argument], CqlType::list(values), Body::MapValues),
                }
            }
            _ => Vec::new(),
        },
        _ if name.starts_with("mask_") => return mask_functions(name, arguments, receiver),
        _ if name.starts_with("similarity_") => {
            return similarity_functions(name, arguments, receiver);
        }
        _ if name.starts_with("collection_") => return collection_functions(name, first),
        _ => match operator_of(name) {
            Some(operator) => arithmetic_functions(name, operator, arguments),
            None => return Ok(plain_functions(name)),
        },
    }))
}

fn untyped(name: &str, argument: &dyn Argument) -> InvalidRequest {
    InvalidRequest::new(format!(
        "Cannot infer type of argument {} in call to function {name}: use type casts to disambiguate",
        argument.shown()
    ))
}

fn wrong_count(name: &str) -> InvalidRequest {
    InvalidRequest::new(format!("Invalid number of arguments for function system.{name}"))
}

/// Masks for any type, and those for texts.
fn mask_functions(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Option<Vec<Function>>, InvalidRequest> {
    let mask = match name {
        "mask_null" => Mask::Null,
        "mask_default" => Mask::Default,
        "mask_replace" => Mask::Replace,
        "mask_inner" => Mask::Inner,
        "mask_outer" => Mask::Outer,
        _ => return Ok(None),
    };
    let counts = match mask {
        Mask::Null | Mask::Default => 1..=1,
        Mask::Replace => 2..=2,
        Mask::Inner | Mask::Outer => 3..=4,
    };
    let first = arguments
        .first()
        .filter(|_| counts.contains(&arguments.len()))
        .ok_or_else(|| wrong_count(name))?;
    let known = first.known_type();
    let (text, int): (CqlType, CqlType) = (NativeType::Text.into(), NativeType::Int.into());
    let (hidden, others) = match mask {
        Mask::Null | Mask::Default => (known, Vec::new()),
        Mask::Replace => {
            let hidden = known.or_else(|| receiver.cloned());
            (hidden.clone(), hidden.into_iter().collect())
        }
        Mask::Inner | Mask::Outer => {
            let mut others = vec![int.clone(), int, text.clone()];
            others.truncate(arguments.len() - 1);
            (known.or(Some(text)), others)
        }
    };
    let hidden = hidden.ok_or_else(|| untyped(name, *first))?;
    let is_text = matches!(hidden, CqlType::Native(NativeType::Text | NativeType::Ascii));
    if matches!(mask, Mask::Inner | Mask::Outer) && !is_text {
        return Err(InvalidRequest::new(format!(
            "Function system.{name} requires an argument of type [text|varchar|ascii], but found argument {} of type \
             {hidden}",
            first.shown()
        )));
    }
    let arguments = std::iter::once(hidden.clone()).chain(others).collect();
    Ok(Some(vec![Function {
        name: name.to_owned(),
        arguments,
        returns: hidden,
        body: Body::Mask(mask),
    }]))
}

/// Functions of two vectors of `float` with the same dimension.
fn similarity_functions(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Option<Vec<Function>>, InvalidRequest> {
    let kind = match name {
        "similarity_cosine" => Similarity::Cosine,
        "similarity_euclidean" => Similarity::Euclidean,
        "similarity_dot_product" => Similarity::DotProduct,
        _ => return Ok(None),
    };
    let [one, other] = arguments else { return Err(wrong_count(name)) };
    let own = |argument: &dyn Argument| match argument.list_length() {
        Some(length) => u32::try_from(length).ok().filter(|length| *length > 0).map(|dimension| {
            CqlType::Vector { element: Arc::new(NativeType::Float.into()), dimension }
        }),
        None => argument.known_type(),
    };
    let (left, right) = (own(*one), own(*other));
    let either = left.clone().or_else(|| right.clone()).or_else(|| receiver.cloned());
    let vector = either.ok_or_else(|| untyped(name, *one))?;
    for (argument, own) in [(one, left), (other, right)] {
        let found = own.unwrap_or_else(|| vector.clone());
        let is_float = matches!(&found, CqlType::Vector { element, .. } if **element == NativeType::Float.into());
        if !is_float {
            return Err(InvalidRequest::new(format!(
                "Function system.{name} requires a float vector argument, but found argument {} of type {found}",
                argument.shown()
            )));
        }
        if found != vector {
            return Err(InvalidRequest::new("All arguments must have the same vector dimensions"));
        }
    }
    let (arguments, returns) = (vec![vector.clone(), vector], NativeType::Float.into());
    Ok(Some(vec![Function {
        name: name.to_owned(),
        arguments,
        returns,
        body: Body::Similarity(kind),
    }]))
}

/// `floor` for each time type, with or without a start.
fn floor_functions(name: &str) -> Vec<Function> {
    use NativeType::{Date, Duration, Time, Timestamp, Timeuuid};
    let kinds = [(Timestamp, Timestamp), (Timeuuid, Timestamp), (Date, Date), (Time, Time)];
    let function = |arguments: &[NativeType], returns: NativeType| Function {
        name: name.to_owned(),
        arguments: arguments.iter().map(|native| (*native).into()).collect(),
        returns: returns.into(),
        body: Body::Floor,
    };
    let mut functions: Vec<_> =
        kinds.iter().map(|(of, result)| function(&[*of, Duration], *result)).collect();
    let since = kinds.iter().filter(|(of, _)| *of != Time);
    functions.extend(since.map(|(of, result)| function(&[*of, Duration, *result], *result)));
    functions
}

fn collection_functions(
    name: &str,
    argument: Option<CqlType>,
) -> Result<Option<Vec<Function>>, InvalidRequest> {
    let function = |argument: CqlType, returns: CqlType, body: Body| {
        Ok(Some(vec![Function { name: name.to_owned(), arguments: vec![argument], returns, body }]))
    };
    let kind = match name {
        "collection_count" => {
            return match argument.filter(CqlType::is_collection) {
                Some(argument) => function(argument, NativeType::Int.into(), Body::CollectionCount),
                None => Ok(Some(Vec::new())),
            };
        }
        "collection_min" => AggregateKind::Min,
        "collection_max" => AggregateKind::Max,
        "collection_sum" => AggregateKind::Sum,
        "collection_avg" => AggregateKind::Average,
        _ => return Ok(None),
    };
    match &argument {
        Some(CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            let returns = Aggregate::new(kind, element.as_ref().clone())?.returns();
            function(argument.clone().unwrap_or(returns.clone()), returns, Body::Collection(kind))
        }
        _ => Ok(Some(Vec::new())),
    }
}

/// Operations on each pair of number types, and on times with durations.
fn arithmetic_functions(
    name: &str,
    operator: Operator,
    arguments: &[&dyn Argument],
) -> Vec<Function> {
    let known: Vec<_> = arguments.iter().map(|argument| argument.known_type()).collect();
    let all: Vec<NativeType> =
        NativeType::all().filter(|native| *native != NativeType::Counter).collect();
    let mut functions = Vec::new();
    let mut add = |left: NativeType, right: NativeType, returns: NativeType| {
        let arguments = vec![left.into(), right.into()];
        let body = Body::Arithmetic(operator);
        functions.push(Function {
            name: name.to_owned(),
            arguments,
            returns: returns.into(),
            body,
        });
    };
    let possible = |position: usize, native: NativeType| match known.get(position) {
        Some(Some(CqlType::Native(NativeType::Counter))) => native == NativeType::Bigint,
        Some(Some(known)) => *known == CqlType::Native(native),
        _ => true,
    };
    for left in all.iter().filter(|native| possible(0, **native)) {
        for right in all.iter().filter(|native| possible(1, **native)) {
            if let Some(returns) = arithmetic::result_type(*left, *right) {
                add(*left, *right, returns);
            }
        }
        let texts = [NativeType::Text, NativeType::Ascii];
        for right in texts.iter().filter(|right| {
            operator == Operator::Add && texts.contains(left) && possible(1, **right)
        }) {
            let ascii = *left == NativeType::Ascii && *right == NativeType::Ascii;
            add(*left, *right, if ascii { NativeType::Ascii } else { NativeType::Text });
        }
        let sum = matches!(operator, Operator::Add | Operator::Subtract);
        if sum && matches!(left, NativeType::Date | NativeType::Timestamp) {
            add(*left, NativeType::Duration, *left);
        }
    }
    functions
}

/// Functions determined by their names alone.
fn plain_functions(name: &str) -> Option<Vec<Function>> {
    use NativeType::{Bigint, Date, Time, Timestamp, Timeuuid, Uuid};
    let each = |arguments: &[NativeType], returns: NativeType, body: Body| {
        let function = |argument: &NativeType| Function {
            name: name.to_owned(),
            arguments: vec![(*argument).into()],
            returns: returns.into(),
            body,
        };
        Some(arguments.iter().map(function).collect())
    };
    let none = |returns: NativeType, body: Body| {
        Some(vec![Function {
            name: name.to_owned(),
            arguments: Vec::new(),
            returns: returns.into(),
            body,
        }])
    };
    let numbers = |body: Body| {
        let numbers = NativeType::all().filter(|native| arithmetic::is_number(*native));
        let function = |native: NativeType| Function {
            name: name.to_owned(),
            arguments: vec![native.into()],
            returns: if native == NativeType::Counter { Bigint } else { native }.into(),
            body,
        };
        Some(numbers.map(function).collect())
    };
    match name {
        "now" | "current_timeuuid" | "currenttimeuuid" => none(Timeuuid, Body::Now),
        "uuid" => none(Uuid, Body::Uuid),
        "current_timestamp" | "currenttimestamp" => none(Timestamp, Body::Current(Timestamp)),
        "current_date" | "currentdate" => none(Date, Body::Current(Date)),
        "current_time" | "currenttime" => none(Time, Body::Current(Time)),
        "to_date" | "todate" => each(&[Timeuuid, Timestamp], Date, Body::ToTime(Date)),
        "to_timestamp" | "totimestamp" => {
            each(&[Timeuuid, Date], Timestamp, Body::ToTime(Timestamp))
        }
        "to_unix_timestamp" | "tounixtimestamp" => {
            each(&[Timeuuid, Timestamp, Date], Bigint, Body::ToUnixTimestamp)
        }
        "min_timeuuid" | "mintimeuuid" => each(&[Timestamp], Timeuuid, Body::MinTimeuuid),
        "max_timeuuid" | "maxtimeuuid" => each(&[Timestamp], Timeuuid, Body::MaxTimeuuid),
        "floor" => Some(floor_functions(name)),
        "_negate" => numbers(Body::Negation),
        "abs" => numbers(Body::Math(Math::Abs)),
        "exp" => numbers(Body::Math(Math::Exp)),
        "log" => numbers(Body::Math(Math::Log)),
        "log10" => numbers(Body::Math(Math::Log10)),
        "round" => numbers(Body::Math(Math::Round)),
        _ => blob_functions(name),
    }
}

/// `int_as_blob`, `blobAsInt` and similar functions.
fn blob_functions(name: &str) -> Option<Vec<Function>> {
    let native =
        |name: &str| NativeType::by_name(name).filter(|native| *native != NativeType::Blob);
    let one = |argument: NativeType, returns: NativeType, body: Body| {
        let arguments = vec![argument.into()];
        Some(vec![Function { name: name.to_owned(), arguments, returns: returns.into(), body }])
    };
    let from = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob"));
    if let Some(from) = from.and_then(native) {
        return one(from, NativeType::Blob, Body::AsBlob);
    }
    let to =
        name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas")).and_then(native)?;
    one(NativeType::Blob, to, Body::FromBlob)
}
