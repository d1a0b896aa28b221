//! A client's request for a transaction: how a core summarises its text, and how it is encoded for
//! the core or proxy that carries it out.

use std::sync::Arc;

use md5::{Digest, Md5};
use shunt_language::Refusal;
use shunt_language::transaction::guard::{self, Guards};
use shunt_wire::cql::message::primitive::Reader;
use shunt_wire::cql::message::{Consistency, QueryParams, Values, put};
use shunt_wire::error::DecodeError;

use crate::guard::request::Safeguards;
use crate::plan::{Outline, Single};

/// The opcode and flags of an answer.
pub type Head = (u8, u8);

/// A transaction's text, with the keyspace and tables that routing and rights need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The text without its guard clauses.
    pub text: Arc<str>,
    /// The guard clauses removed from the text.
    pub guards: Option<Box<Guards>>,
    /// Keyspace of names without one; empty if there is none.
    pub keyspace: Arc<str>,
    /// The keyspace of the tables.
    pub domain: Box<str>,
    /// The tables, each with whether the text writes to it.
    pub tables: Box<[(Box<str>, bool)]>,
    /// True of a single statement that calls user-defined functions.
    pub calls_others: bool,
}

impl Summary {
    /// Parses a text. `keyspace` is that of the session, if it has one.
    ///
    /// # Errors
    /// The text is no transaction that proxies carry out.
    pub fn parse(text: &str, keyspace: Option<&str>) -> Result<Summary, Refusal> {
        let guarded = guard::guarded(text)?;
        let text = guarded.as_ref().map_or(text, |(rest, _)| rest);
        let outline = Outline::parse(text, keyspace.unwrap_or_default())?;
        let calls_others = outline.calls_others();
        let Outline { text, keyspace, domain, tables, .. } = outline;
        let tables =
            tables.into_iter().map(|(name, writes)| (name.into_boxed_str(), writes)).collect();
        let guards = guarded.map(|(_, guards)| Box::new(guards));
        Ok(Summary { text, guards, keyspace, domain: domain.into(), tables, calls_others })
    }

    /// Parses a single write that is no transaction, because it has a timestamp of its own or the
    /// like.
    pub fn parse_single(text: &str, keyspace: Option<&str>) -> Option<Summary> {
        let Single { table, calls_others } = Single::parse(text)?;
        let domain =
            table.keyspace.as_deref().or(keyspace).filter(|keyspace| !keyspace.is_empty())?.into();
        let tables = [(table.name.into_boxed_str(), true)].into();
        Some(Summary {
            text: text.into(),
            guards: None,
            keyspace: keyspace.unwrap_or_default().into(),
            domain,
            tables,
            calls_others,
        })
    }

    /// Approximate size in memory.
    pub fn bytes(&self) -> usize {
        let tables = self
            .tables
            .iter()
            .map(|(name, _)| name.len() + size_of::<(Box<str>, bool)>())
            .sum::<usize>();
        let guards = self.guards.as_ref().map_or(0, |guards| size_of::<Guards>() + guards.bytes());
        size_of::<Self>()
            + self.text.len()
            + self.keyspace.len()
            + self.domain.len()
            + tables
            + guards
    }
}

/// Computes the id of a prepared transaction. Every proxy computes the same id, as nodes do, and no
/// node gives it to another text.
pub fn id_of(text: &str, keyspace: &str) -> [u8; 16] {
    let hash = Md5::new()
        .chain_update("shunt transaction")
        .chain_update([0])
        .chain_update(keyspace)
        .chain_update([0]);
    hash.chain_update(text).finalize().into()
}

/// A request to the core that carries a transaction out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// The text, without guard clauses.
    pub text: &'a str,
    /// Keyspace of names without one; empty if there is none.
    pub keyspace: &'a str,
    /// Protocol version of the answer: the client's, or the one between proxies.
    pub version: u8,
    /// The client's protocol version, which decides how types are described.
    pub types: u8,
    /// The client's role; empty where nobody logs in.
    pub role: &'a str,
    /// The lock and key that the request names.
    pub safeguards: Safeguards<'a>,
    /// Bind values.
    pub values: Values<'a>,
    /// The way in which a node carries the statement out if it is passed on: on tables with the
    /// mode `observe`.
    pub options: Option<QueryOptions>,
}

/// A client's options for one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryOptions {
    /// Consistency level.
    pub consistency: Consistency,
    /// Serial consistency level.
    pub serial: Option<Consistency>,
    /// Client timestamp, microseconds.
    pub timestamp_us: Option<i64>,
    /// The request has options that other proxies are not sent, or that a node might not read.
    pub is_odd: bool,
}

/// Flag: a serial consistency level is given.
const HAS_SERIAL: u8 = 1;
/// Flag: a timestamp is given.
const HAS_TIMESTAMP: u8 = 2;

impl QueryOptions {
    /// Reads the options of a request.
    pub fn from_params(params: &QueryParams<'_>) -> QueryOptions {
        QueryOptions {
            consistency: params.consistency,
            serial: params.serial_consistency,
            timestamp_us: params.timestamp,
            is_odd: params.is_doubtful() || params.now_in_seconds.is_some(),
        }
    }

    fn encode(self, out: &mut Vec<u8>) {
        put::consistency(out, self.consistency);
        out.push(
            if self.serial.is_some() { HAS_SERIAL } else { 0 }
                | if self.timestamp_us.is_some() { HAS_TIMESTAMP } else { 0 },
        );
        put::consistency(out, self.serial.unwrap_or(Consistency::SERIAL));
        put::long(out, self.timestamp_us.unwrap_or_default());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<QueryOptions, DecodeError> {
        let (consistency, has) =
            (Consistency(reader.short("consistency")?), reader.byte("what it has")?);
        let serial = Consistency(reader.short("serial consistency")?);
        let timestamp_us = reader.long("timestamp")?;
        Ok(QueryOptions {
            consistency,
            serial: (has & HAS_SERIAL != 0).then_some(serial),
            timestamp_us: (has & HAS_TIMESTAMP != 0).then_some(timestamp_us),
            is_odd: false,
        })
    }
}

impl<'a> Request<'a> {
    /// Appends the encoded request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let types = if self.types == self.version { 0 } else { self.types << 1 };
        out.extend([self.version, u8::from(self.values.is_named()) | types]);
        put::long_string(out, self.text);
        put::string(out, self.keyspace);
        put::string(out, self.role);
        self.safeguards.encode(out);
        self.values.put(out);
        // Behind the rest, where versions before this do not look.
        if let Some(options) = self.options {
            options.encode(out);
        }
    }

    /// Decodes what [`Request::encode`] has encoded.
    ///
    /// # Errors
    /// The bytes are no request.
    pub fn decode(bytes: &'a [u8]) -> Result<Request<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (version, named) = (reader.byte("version")?, reader.byte("named")?);
        let types = if named > 1 { named >> 1 } else { version };
        let is_named = named & 1 != 0;
        let (text, keyspace) = (reader.long_string("text")?, reader.string("keyspace")?);
        let (role, safeguards) = (reader.string("role")?, Safeguards::decode(&mut reader)?);
        let values = Values::read(&mut reader, version, is_named)?;
        let options =
            (!reader.rest().is_empty()).then(|| QueryOptions::decode(&mut reader)).transpose()?;
        Ok(Request { text, keyspace, version, types, role, safeguards, values, options })
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::{Value, ValueList};

    use super::*;

    #[test]
    fn a_written_request_reads_back() {
        let text = "BEGIN TRANSACTION DELETE FROM t WHERE k = :k; COMMIT TRANSACTION";
        for (named, types) in [(true, 5), (false, 5), (true, 3), (false, 4)] {
            let mut list = if named { ValueList::named(5) } else { ValueList::positional(5) };
            list.push_named("k", Value::Bytes(b"1")).push_named("unset", Value::Unset);
            let safeguards = Safeguards { guard: None, key: b"k" };
            let values = list.values();
            let asked = Request {
                text,
                keyspace: "ks",
                version: 5,
                types,
                role: "r",
                safeguards,
                values,
                options: None,
            };
            let mut bytes = Vec::new();
            asked.encode(&mut bytes);
            assert_eq!(bytes[1] > 1, types != 5, "between proxies it is as it was");
            assert_eq!(Request::decode(&bytes), Ok(asked));
            for cut in 0..bytes.len() {
                assert!(Request::decode(&bytes[..cut]).is_err(), "{cut}");
            }
            for (serial, timestamp_us) in
                [(Some(Consistency::LOCAL_SERIAL), None), (None, Some(-7))]
            {
                let options = Some(QueryOptions {
                    consistency: Consistency::ALL,
                    serial,
                    timestamp_us,
                    is_odd: false,
                });
                let (asked, length) = (Request { options, ..asked }, bytes.len());
                let mut bytes = Vec::new();
                asked.encode(&mut bytes);
                assert_eq!(Request::decode(&bytes), Ok(asked));
                for cut in length + 1..bytes.len() {
                    assert!(Request::decode(&bytes[..cut]).is_err(), "{cut}");
                }
            }
        }
        let known = Summary::parse(text, Some("ks")).expect("a transaction");
        assert_eq!((&*known.domain, &known.tables[..]), ("ks", &[("t".into(), true)][..]));
        assert!(Summary::parse(text, None).is_err() && known.bytes() > text.len());
    }
}
