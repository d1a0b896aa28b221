//! Guards and idempotency keys in the custom payload of a request.
//!
//! - `shunt-lock: name=fence`, or `shunt-fast-lock` for a lock of `shunt.fast_locks`: the
//!   transaction is carried out only if the lock is held with this fence, and never after a
//!   transaction of the same keyspace that came with a later fence;
//! - `shunt-idempotency: key`: the transaction is carried out once. A client that sends it again
//!   with the same key gets the first outcome.
//!
//! With either, a plain SELECT, INSERT, UPDATE, DELETE or batch becomes a transaction of this one
//! statement.

use shunt_wire::cql::message::primitive::Reader;
use shunt_wire::cql::message::{BytesMap, put};
use shunt_wire::error::{DecodeError, Problem};
use shunt_wire::printable::printable_to;

use crate::rejection::Rejection;

/// Prefix of the payload keys that belong to Shunt; unknown keys with it are refused.
const OURS: &str = "shunt-";
const LOCK: &str = "shunt-lock";
const FAST_LOCK: &str = "shunt-fast-lock";
const KEY: &str = "shunt-idempotency";
/// Bytes of a payload key that an error message shows.
const NAME_SHOWN_BYTES_MAX: usize = 64;
/// Bytes of an idempotency key.
const KEY_BYTES_MAX: usize = 64;
/// Bytes of a lock's name.
const NAME_BYTES_MAX: usize = shunt_language::lock_tables::NAME_BYTES_MAX;

/// Kind of a guard between proxies: a durable lock.
const GUARD: u8 = 1;
const FAST_GUARD: u8 = 2;
const OVER: u8 = 4;

/// A lock that a request relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard<'a> {
    /// True of a lock of `shunt.fast_locks`.
    pub is_fast: bool,
    /// The lock's name.
    pub name: &'a str,
    /// The fence that the client holds the lock with.
    pub fence: i64,
    /// The lock is known not to be held with this fence; an earlier outcome may still exist.
    pub is_over: bool,
}

/// The guard and idempotency key of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Safeguards<'a> {
    /// The lock that must be held.
    pub guard: Option<Guard<'a>>,
    /// Key under which the client finds the outcome again; empty if there is none.
    pub key: &'a [u8],
}

/// Payload key of a statement on locks that one proxy forwards to another.
pub const FORWARDED_STATEMENT: &str = "shunt-hop";
/// Payload key of a transaction that one proxy forwards to another.
pub const FORWARDED_TRANSACTION: &str = "shunt-transaction";

/// Keys that only proxies send.
const BETWEEN_PROXIES: [&str; 2] = [FORWARDED_STATEMENT, FORWARDED_TRANSACTION];

fn is_ours(key: &str) -> bool {
    let ours = key.get(..OURS.len()).is_some_and(|start| start.eq_ignore_ascii_case(OURS));
    ours && !BETWEEN_PROXIES.contains(&key)
}

/// True if a payload turns any statement into a transaction, or may have been meant to.
#[inline]
pub fn is_asked(payload: &BytesMap<'_>) -> bool {
    payload.iter().any(|(key, _)| is_ours(key))
}

impl<'a> Safeguards<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// A key with the prefix `shunt-` is unknown, or its value is malformed.
    pub fn from_payload(payload: Option<&BytesMap<'a>>) -> Result<Safeguards<'a>, Rejection> {
        let mut safeguards = Safeguards::default();
        for (name, value) in payload.into_iter().flat_map(|payload| payload.iter()) {
            let value = value.unwrap_or_default();
            match name {
                LOCK | FAST_LOCK if safeguards.guard.is_some() => {
                    return Err(Rejection::invalid(format!(
                        "Shunt: {LOCK} and {FAST_LOCK} name one lock together: a statement is guarded by one"
                    )));
                }
                LOCK | FAST_LOCK => safeguards.guard = Some(guard(name, value)?),
                KEY if value.is_empty() || value.len() > KEY_BYTES_MAX => {
                    return Err(Rejection::invalid(format!(
                        "Shunt: {KEY} has {} bytes: 1 to {KEY_BYTES_MAX} are taken",
                        value.len()
                    )));
                }
                KEY => safeguards.key = value,
                other if is_ours(other) => {
                    let shown = printable_to(other, NAME_SHOWN_BYTES_MAX);
                    return Err(Rejection::invalid(format!(
                        "Shunt: there is no payload {shown}: {LOCK}, {FAST_LOCK} and {KEY} are taken, in lower case"
                    )));
                }
                _ => {}
            }
        }
        Ok(safeguards)
    }

    /// Appends the encoded safeguards.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self.guard {
            None => out.push(0),
            Some(guard) => {
                out.push(
                    if guard.is_fast { FAST_GUARD } else { GUARD }
                        | if guard.is_over { OVER } else { 0 },
                );
                put::string(out, guard.name);
                put::long(out, guard.fence);
            }
        }
        put::short_bytes(out, self.key);
    }

    /// Decodes what [`Safeguards::encode`] has encoded.
    ///
    /// # Errors
    /// The bytes are no safeguards.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Safeguards<'a>, DecodeError> {
        let guard = match reader.byte("guard")? {
            0 => None,
            kind => Some(Guard {
                is_fast: kind & FAST_GUARD != 0,
                name: reader.string("lock")?,
                fence: reader.long("fence")?,
                is_over: kind & OVER != 0,
            }),
        };
        let safeguards = Safeguards { guard, key: reader.short_bytes("key")? };
        let is_long = safeguards.key.len() > KEY_BYTES_MAX
            || safeguards
                .guard
                .is_some_and(|guard| guard.name.is_empty() || guard.name.len() > NAME_BYTES_MAX);
        match is_long {
            true => Err(reader.error(
                "guard or key",
                Problem::Unknown { found: 0, expected: "what a proxy sends" },
            )),
            false => Ok(safeguards),
        }
    }

    /// True if the request has neither guard nor key.
    pub fn is_empty(&self) -> bool {
        self.guard.is_none() && self.key.is_empty()
    }
}

fn guard<'a>(key: &str, value: &'a [u8]) -> Result<Guard<'a>, Rejection> {
    let text = std::str::from_utf8(value).ok();
    // A lock's name may contain `=`; a fence cannot.
    let split = text.and_then(|text| text.rsplit_once('='));
    let read = split.and_then(|(name, fence)| checked(name, fence.parse().ok()?, key == FAST_LOCK));
    read.ok_or_else(|| {
        Rejection::invalid(format!(
            "Shunt: the payload {key} is name=fence, as text: the name of a lock that the client holds, of 1 to {NAME_BYTES_MAX} bytes, and \
             the number that it was granted with"
        ))
    })
}

/// Builds a guard, unless no lock can have this name.
pub fn checked(name: &str, fence: i64, is_fast: bool) -> Option<Guard<'_>> {
    let may_be = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    may_be.then_some(Guard { is_fast, name, fence, is_over: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        put::bytes_map(&mut out, entries.iter().map(|(key, value)| (*key, Some(*value))));
        out
    }

    fn read(bytes: &[u8]) -> Result<Safeguards<'_>, Rejection> {
        let map = Reader::new(bytes).bytes_map("payload").expect("a map");
        assert_eq!(is_asked(&map), map.iter().any(|(key, _)| key != "else"));
        Safeguards::from_payload(Some(&map))
    }

    #[test]
    fn a_payload_names_a_lock_and_a_key() {
        let bytes =
            payload(&[("else", b"x"), ("shunt-lock", b"a=b=17"), ("shunt-idempotency", b"\x00k")]);
        let safeguards = read(&bytes).expect("a payload");
        let guard = Guard { is_fast: false, name: "a=b", fence: 17, is_over: false };
        assert_eq!(safeguards, Safeguards { guard: Some(guard), key: b"\x00k" });
        let bytes = payload(&[("shunt-fast-lock", b"a=-1")]);
        let guard = Guard { is_fast: true, name: "a", fence: -1, is_over: false };
        assert_eq!(read(&bytes).expect("one").guard, Some(guard));
        let bytes = payload(&[("else", b"x")]);
        assert!(read(&bytes).expect("nothing of ours").is_empty());
    }

    #[test]
    fn unknown_keys_and_values_are_refused_by_name() {
        let long = [b'k'; KEY_BYTES_MAX + 1];
        for (key, value) in [
            ("shunt-lock", &b"a"[..]),
            ("shunt-lock", b"=1"),
            ("shunt-lock", b"a="),
            ("shunt-lock", b"a=1x"),
            ("shunt-lock", b"a=99999999999999999999"),
            ("shunt-fast-lock", b"\xff=1"),
            ("shunt-idempotency", b""),
            ("shunt-idempotency", &long),
            ("Shunt-Lock", b"a=1"),
            ("shunt-locks", b"a=1"),
        ] {
            let fault = read(&payload(&[(key, value)])).expect_err("no such payload");
            assert!(fault.why.contains(key), "{}", fault.why);
        }
        let twice = payload(&[("shunt-lock", b"a=1"), ("shunt-fast-lock", b"b=1")]);
        assert!(read(&twice).is_err());
    }

    #[test]
    fn a_written_request_reads_back() {
        for (is_fast, is_over) in [(true, false), (false, false), (true, true), (false, true)] {
            let guard = Some(Guard { is_fast, name: "a", fence: i64::MAX, is_over });
            for safeguards in [
                Safeguards::default(),
                Safeguards { guard, key: b"" },
                Safeguards { guard, key: b"k" },
            ] {
                let mut bytes = Vec::new();
                safeguards.encode(&mut bytes);
                assert_eq!(Safeguards::decode(&mut Reader::new(&bytes)), Ok(safeguards));
            }
        }
    }
}
