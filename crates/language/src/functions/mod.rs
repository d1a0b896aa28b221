//! Native functions: overload resolution and evaluation.
//!
//! Time, random bytes and tokens come from the caller through [`Environment`], so that a statement
//! can be evaluated again with the same result.

mod aggregate;
mod arithmetic;
mod cast;
mod collections;
mod masks;
mod resolve;
#[cfg(test)]
mod tests;
mod time;
mod timeuuid;
mod vectors;

use crate::ast::{NativeType, Operator};
use crate::error::{FailedFunction, InvalidRequest};
use crate::types::CqlType;
use crate::values::{check_numbers, json};

use arithmetic::Math;

pub use aggregate::{Aggregate, AggregateKind, AggregateState};
pub use arithmetic::is_number;
pub use resolve::{Argument, is_native, resolve};
pub use timeuuid::{time_of_timeuuid_us, timeuuid};

/// Inputs of functions besides their arguments.
pub trait Environment {
    /// Milliseconds since 1970, the same throughout a statement.
    fn now_ms(&self) -> i64;

    /// A new version 1 UUID.
    fn timeuuid(&self) -> [u8; 16];

    /// 128 random bits.
    fn random(&self) -> u128;

    /// The token of a serialized partition key.
    fn token(&self, partition_key: &[u8]) -> i64;
}

/// The function of a call: one of the overloads of its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Function {
    /// Name of the function in messages.
    pub name: String,
    /// Types of the arguments.
    pub arguments: Vec<CqlType>,
    /// Type of the result.
    pub returns: CqlType,
    body: Body,
}

/// The implementation of a function.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Body {
    /// `now`, `current_timeuuid`
    Now,
    /// `uuid`
    Uuid,
    /// `current_timestamp`, `current_date`, `current_time`
    Current(NativeType),
    /// `to_date`, `to_timestamp`
    ToTime(NativeType),
    /// `to_unix_timestamp`
    ToUnixTimestamp,
    /// `min_timeuuid`
    MinTimeuuid,
    /// `max_timeuuid`
    MaxTimeuuid,
    /// `int_as_blob` and similar functions: the same bytes.
    AsBlob,
    /// `blob_as_int` and similar functions: the same bytes, if valid.
    FromBlob,
    /// `CAST(a AS type)`
    Cast,
    /// `to_json`
    ToJson,
    /// `from_json`
    FromJson,
    /// `token`
    Token,
    /// `a + b`
    Arithmetic(Operator),
    /// `-a`
    Negation,
    /// `abs`, `exp`, `log`, `log10`, `round`
    Math(Math),
    /// `map_keys`
    MapKeys,
    /// `map_values`
    MapValues,
    /// `collection_count`
    CollectionCount,
    /// `mask_null` and similar functions.
    Mask(masks::Mask),
    /// `similarity_cosine` and similar functions.
    Similarity(vectors::Similarity),
    /// `floor`
    Floor,
    /// `collection_min`, `collection_max`, `collection_sum`, `collection_avg`
    Collection(AggregateKind),
}

impl Body {
    /// True if the numbers among the arguments are converted or computed with.
    fn computes(self) -> bool {
        matches!(
            self,
            Body::Arithmetic(_)
                | Body::Cast
                | Body::Collection(_)
                | Body::Math(_)
                | Body::Negation
                | Body::ToJson
        )
    }
}

impl Function {
    /// True of `from_json`.
    pub(crate) fn is_from_json(&self) -> bool {
        matches!(self.body, Body::FromJson)
    }

    /// True if equal arguments always give equal results.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        !matches!(self.body, Body::Now | Body::Uuid | Body::Current(_))
    }

    /// The operation, unless this is a function that can be called by name.
    #[must_use]
    pub fn operator(&self) -> Option<Operator> {
        if let Body::Arithmetic(operator) = self.body { Some(operator) } else { None }
    }

    /// The name in Cassandra's table of native functions; operations have one, too.
    #[must_use]
    pub fn native_name(&self) -> &str {
        match self.operator() {
            Some(Operator::Add) => "_add",
            Some(Operator::Subtract) => "_substract",
            Some(Operator::Multiply) => "_multiply",
            Some(Operator::Divide) => "_divide",
            Some(Operator::Modulo) => "_modulo",
            None => &self.name,
        }
    }

    /// The conversion of `CAST(a AS to)` for a value of type `from`.
    ///
    /// # Errors
    /// If there is none.
    pub fn cast(from: &CqlType, to: NativeType) -> Result<Function, InvalidRequest> {
        let castable = matches!(from, CqlType::Native(from) if cast::is_castable(*from, to));
        if !castable {
            return Err(InvalidRequest::new(format!("{from} cannot be cast to {to}")));
        }
        let name = format!("castas{to}");
        Ok(Function { name, arguments: vec![from.clone()], returns: to.into(), body: Body::Cast })
    }

    /// Evaluates the function for values of its argument types; `None` is null.
    ///
    /// # Errors
    /// If there is no result, such as for a division by zero.
    pub fn evaluate(
        &self,
        arguments: &[Option<&[u8]>],
        environment: &dyn Environment,
    ) -> Result<Option<Vec<u8>>, InvalidRequest> {
        let first = arguments.first().copied().flatten();
        if self.body.computes() {
            let mut given = self.arguments.iter().zip(arguments);
            given.try_for_each(|(cql_type, value)| {
                check_numbers(cql_type, value.unwrap_or_default())
            })?;
        }
        if self.body == Body::ToJson {
            let cql_type = self.arguments.first().unwrap_or(&self.returns);
            let json = json::to_json(cql_type, first);
            return Ok(json.map(String::into_bytes));
        }
        if let Body::Mask(mask) = self.body {
            return masks::apply(mask, self.arguments.first().unwrap_or(&self.returns), arguments);
        }
        if arguments.iter().any(Option::is_none) {
            return Ok(None);
        }
        let first = first.unwrap_or_default();
        let second = arguments.get(1).copied().flatten().unwrap_or_default();
        match self.body {
            Body::Now => Ok(Some(environment.timeuuid().to_vec())),
            Body::Uuid => Ok(Some(time::random_uuid(environment.random()).to_vec())),
            Body::Current(native) => Ok(time::current(native, environment.now_ms())),
            Body::ToTime(to) => Ok(time::convert(self.native_argument(0), to, first)),
            Body::ToUnixTimestamp => {
                Ok(time::convert(self.native_argument(0), NativeType::Timestamp, first))
            }
            Body::MinTimeuuid => Ok(time::bound_of_timeuuids(first, false)),
            Body::MaxTimeuuid => Ok(time::bound_of_timeuuids(first, true)),
            Body::Token => {
                let values = arguments.iter().copied();
                let mut key = Vec::new();
                if !shunt_wire::cql::types::partition_key(values, &mut key) {
                    return Err(InvalidRequest::new("The arguments of token are no partition key"));
                }
                Ok(Some(environment.token(&key).to_be_bytes().to_vec()))
            }
            Body::AsBlob => Ok(Some(first.to_vec())),
            Body::FromBlob => self.checked_blob(first).map(Some),
            Body::Cast => match cast::cast(self.native_argument(0), self.native_result(), first) {
                None if !first.is_empty() => {
                    let (from, to) = (self.native_argument(0), self.native_result());
                    let shown = crate::values::plain_text(from, first).unwrap_or_default();
                    Err(InvalidRequest::new(format!("the {from} {shown} cannot be cast to {to}")))
                }
                value => Ok(value),
            },
            Body::FromJson => self.decoded_json(first, environment.now_ms()),
            Body::Arithmetic(operator) => self.arithmetic(operator, arguments),
            Body::Negation => Ok(arithmetic::negate(self.native_argument(0), first)),
            Body::Math(math) => self.math(math, first),
            Body::MapKeys | Body::MapValues => {
                Ok(collections::half_of_map(first, self.body == Body::MapValues))
            }
            Body::CollectionCount => Ok(collections::count(first)),
            Body::Collection(kind) => collections::aggregate(kind, self.arguments.first(), first),
            Body::Floor => time::floor(
                self.native_argument(0),
                first,
                second,
                arguments.get(2).copied().flatten(),
            ),
            Body::Similarity(kind) => {
                vectors::similarity(kind, &self.name, first, second).map(Some)
            }
            Body::ToJson | Body::Mask(_) => Ok(None),
        }
    }

    fn math(&self, math: Math, bytes: &[u8]) -> Result<Option<Vec<u8>>, InvalidRequest> {
        let native = self.native_argument(0);
        if let Math::Log | Math::Log10 = math
            && !arithmetic::has_logarithm(native, bytes)
        {
            let base = if math == Math::Log { "Natural" } else { "Base 10" };
            return Err(InvalidRequest::new(format!("{base} log of number zero or less")));
        }
        arithmetic::math(math, native, bytes).map_err(InvalidRequest::new)
    }

    fn native_argument(&self, position: usize) -> NativeType {
        match self.arguments.get(position) {
            Some(CqlType::Native(native)) => *native,
            _ => NativeType::Blob,
        }
    }

    fn native_result(&self) -> NativeType {
        if let CqlType::Native(native) = self.returns { native } else { NativeType::Blob }
    }

    fn checked_blob(&self, bytes: &[u8]) -> Result<Vec<u8>, InvalidRequest> {
        crate::values::validate(&self.returns, bytes).map_err(|_| {
            let value = crate::values::literal(&NativeType::Blob.into(), bytes);
            InvalidRequest::new(format!(
                "In call to function system.{}, value {value} is not a valid binary representation for type {}",
                self.name, self.returns
            ))
        })?;
        Ok(bytes.to_vec())
    }

    fn decoded_json(&self, text: &[u8], now_ms: i64) -> Result<Option<Vec<u8>>, InvalidRequest> {
        let text = String::from_utf8_lossy(text);
        let parsed = json::parse(&text)
            .map_err(|error| format!("Could not decode JSON string '{text}': {error}"));
        let decoded = parsed.and_then(|json| {
            json::from_json(&self.returns, &json, now_ms).map_err(|error| error.message)
        });
        decoded.map_err(|problem| {
            let arguments = vec![NativeType::Text.to_string()];
            let message = format!("execution of 'system.{}[text]' failed: {problem}", self.name);
            let function = FailedFunction { name: self.name.clone(), arguments };
            InvalidRequest { message, function: Some(Box::new(function)) }
        })
    }

    fn arithmetic(
        &self,
        operator: Operator,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, InvalidRequest> {
        let (left, right) = match arguments {
            [Some(left), Some(right)] => (*left, *right),
            _ => return Ok(None),
        };
        let (left_type, right_type) = (self.native_argument(0), self.native_argument(1));
        let result = match right_type {
            NativeType::Text | NativeType::Ascii => Ok([left, right].concat()),
            NativeType::Duration => time::add_duration(operator, left_type, left, right),
            _ => arithmetic::apply(
                operator,
                (left_type, left),
                (right_type, right),
                self.native_result(),
            ),
        };
        result.map(Some).map_err(|problem| {
            let symbol = operator.symbol();
            let message =
                format!("the operation '{left_type} {symbol} {right_type}' failed: {problem}");
            let arguments = vec![left_type.to_string(), right_type.to_string()];
            let function = FailedFunction { name: self.native_name().to_owned(), arguments };
            InvalidRequest { message, function: Some(Box::new(function)) }
        })
    }
}
