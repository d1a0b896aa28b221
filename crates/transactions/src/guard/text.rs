//! Guards in the text of a statement, in the place of its conditions: `.. IF "shunt:lock" = ? AND
//! "shunt:fence" = ?`. They serve clients of protocol version 3, which has no payload
//! ([`super::request`]).
//!
//! Guards and their values are removed as soon as they are read: later steps cannot tell whether a
//! guard came from the text or from the payload.

use std::collections::{HashMap, HashSet};

use shunt_language::transaction::guard::{Given, Guards};
use shunt_wire::cql::message::{Value, ValueList, Values};

use crate::guard::request::{Guard, Safeguards, checked};
use crate::rejection::Rejection;

/// Adds the guard of the text to the safeguards of the payload.
///
/// # Errors
/// A guard's value is missing or malformed, or two guards name different locks.
pub fn safeguards<'a>(
    guards: &'a Guards,
    values: Values<'a>,
    payload: Safeguards<'a>,
) -> Result<Safeguards<'a>, Rejection> {
    let (wanted, given) = (guards.markers, values.len());
    if !values.is_named() && given != wanted {
        return Err(Rejection::invalid(format!(
            "there were {wanted} markers(?) in CQL but {given} bound variables"
        )));
    }
    let given = GivenValues::of(guards, values);
    let mut found = payload.guard;
    for guard in &guards.all {
        let name = match &guard.lock {
            Given::Literal(name) => name.as_str(),
            Given::Marker { index, name } => {
                std::str::from_utf8(given.value(*index, name)?).unwrap_or_default()
            }
        };
        let fence = match &guard.fence {
            Given::Literal(fence) => Some(*fence),
            Given::Marker { index, name } => {
                given.value(*index, name)?.try_into().ok().map(i64::from_be_bytes)
            }
        };
        let guard = fence.and_then(|fence| checked(name, fence, guard.is_fast)).ok_or_else(|| {
            Rejection::invalid(
                "Shunt: the lock of a guard is its name, as text of 1 to 1024 bytes, and its fence the number that it was granted with, as bigint",
            )
        })?;
        if found.is_some_and(|found: Guard<'_>| found != guard) {
            return Err(Rejection::invalid(
                "Shunt: a request is guarded by one lock, with one fence, and this names two",
            ));
        }
        found = Some(guard);
    }
    Ok(Safeguards { guard: found, ..payload })
}

/// Values of guards, collected in one pass over those of a request.
enum GivenValues<'g, 'a> {
    ByName(HashMap<&'g str, Value<'a>>),
    InOrder(Vec<Value<'a>>),
}

impl<'g, 'a> GivenValues<'g, 'a> {
    fn of(guards: &'g Guards, values: Values<'a>) -> GivenValues<'g, 'a> {
        match values.is_named() {
            true => GivenValues::ByName(values.with_names(guards.gone().map(|(_, name, _)| name))),
            false => GivenValues::InOrder(values.iter().map(|(_, value)| value).collect()),
        }
    }

    fn value(&self, index: u16, name: &str) -> Result<&'a [u8], Rejection> {
        let value = match self {
            GivenValues::ByName(values) => values.get(name),
            GivenValues::InOrder(values) => values.get(usize::from(index)),
        };
        value.and_then(|value| value.bytes()).ok_or_else(|| {
            Rejection::invalid(format!("Shunt: no value is bound to {name}, of a guard"))
        })
    }
}

/// Removes the values of guards from those of the request.
pub fn without(guards: &Guards, values: Values<'_>, version: u8) -> ValueList {
    if values.is_named() {
        let mut list = ValueList::named(version);
        let gone: HashSet<&str> = guards.names.iter().map(String::as_str).collect();
        for (name, value) in values.iter().filter_map(|(name, value)| Some((name?, value))) {
            if !gone.contains(name) {
                list.push_named(name, value);
            }
        }
        return list;
    }
    let mut list = ValueList::positional(version);
    let gone: HashSet<usize> = guards.gone().map(|(index, ..)| usize::from(index)).collect();
    for (index, (_, value)) in values.iter().enumerate() {
        if !gone.contains(&index) {
            list.push(value);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use shunt_language::transaction::guard::guarded;

    use super::*;

    fn guards(text: &str) -> Guards {
        guarded(text).expect("a guard").expect("one").1
    }

    const MARKED: &str =
        "UPDATE t SET a = ? WHERE k = :k IF \"shunt:lock\" = ? AND \"shunt:fence\" = :f";

    #[test]
    fn a_guard_is_what_text_or_values_say() {
        let found = Guard { is_fast: false, name: "l", fence: 7, is_over: false };
        let literal =
            guards("DELETE FROM t WHERE k = ? IF \"shunt:lock\" = 'l' AND \"shunt:fence\" = 7");
        let mut list = ValueList::positional(3);
        list.push(Value::Bytes(b"k"));
        let safeguards =
            safeguards(&literal, list.values(), Safeguards { guard: None, key: b"once" });
        assert_eq!(safeguards, Ok(Safeguards { guard: Some(found), key: b"once" }));
        assert_eq!(without(&literal, list.values(), 3).values(), list.values());

        let marked = guards(MARKED);
        let mut list = ValueList::positional(4);
        let fence = 7_i64.to_be_bytes();
        list.push(Value::Null)
            .push(Value::Bytes(b"k"))
            .push(Value::Bytes(b"l"))
            .push(Value::Bytes(&fence));
        assert_eq!(
            super::safeguards(&marked, list.values(), Safeguards::default()).map(|all| all.guard),
            Ok(Some(found))
        );
        let mut rest = ValueList::positional(4);
        rest.push(Value::Null).push(Value::Bytes(b"k"));
        assert_eq!(without(&marked, list.values(), 4).values(), rest.values());

        let mut named = ValueList::named(4);
        named
            .push_named("f", Value::Bytes(&fence))
            .push_named("a", Value::Unset)
            .push_named("k", Value::Bytes(b"k"));
        named.push_named("shunt:lock", Value::Bytes(b"l"));
        assert_eq!(
            super::safeguards(&marked, named.values(), Safeguards::default()).map(|all| all.guard),
            Ok(Some(found))
        );
        let mut rest = ValueList::named(4);
        rest.push_named("a", Value::Unset).push_named("k", Value::Bytes(b"k"));
        assert_eq!(without(&marked, named.values(), 4).values(), rest.values());
    }

    #[test]
    fn malformed_guards_are_refused() {
        let marked = guards(MARKED);
        let seven = 7_i64.to_be_bytes();
        let long = [b'l'; 1025];
        for (lock, fence) in [
            (Value::Null, Value::Bytes(&seven[..])),
            (Value::Bytes(b""), Value::Bytes(&seven)),
            (Value::Bytes(&long), Value::Bytes(&seven)),
            (Value::Bytes(b"\xff"), Value::Bytes(&seven)),
            (Value::Bytes(b"l"), Value::Unset),
            (Value::Bytes(b"l"), Value::Bytes(&seven[4..])),
        ] {
            let mut list = ValueList::positional(4);
            list.push(Value::Null).push(Value::Null).push(lock).push(fence);
            assert!(
                safeguards(&marked, list.values(), Safeguards::default()).is_err(),
                "{lock:?} {fence:?}"
            );
            let mut more = list.clone();
            more.push(Value::Null);
            let told =
                safeguards(&marked, more.values(), Safeguards::default()).expect_err("too many");
            assert!(told.why.contains("there were 4 markers"));
        }
        let other = Guard { is_fast: true, name: "l", fence: 7, is_over: false };
        let literal =
            guards("DELETE FROM t WHERE k = 1 IF \"shunt:lock\" = 'l' AND \"shunt:fence\" = 7");
        let payload = Safeguards { guard: Some(other), key: b"" };
        assert!(
            safeguards(&literal, Values::default(), payload)
                .is_err_and(|fault| fault.why.contains("one lock"))
        );
        let two = "BEGIN BATCH DELETE FROM t WHERE k = 1 IF \"shunt:lock\" = 'l' AND \"shunt:fence\" = 7 \
                   DELETE FROM t WHERE k = 1 IF \"shunt:lock\" = 'm' AND \"shunt:fence\" = 7 APPLY BATCH";
        assert!(safeguards(&guards(two), Values::default(), Safeguards::default()).is_err());
    }
}
