//! A transaction that a client has asked for or prepared, as its own core knows it: enough to say
//! whose it is, and who may.

use std::sync::Arc;

use md5::{Digest, Md5};
use shunt_language::Refusal;
use shunt_language::transaction::guard::{self, Guards};
use shunt_wire::cql::message::primitive::Reader;
use shunt_wire::cql::message::{Consistency, QueryParams, Values, put};
use shunt_wire::error::DecodeError;

use crate::guard::request::Besides;
use crate::plan::{Outline, Single};

/// The opcode and flags of an answer.
pub type Head = (u8, u8);

/// A text, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Without what names a lock in it.
    pub text: Arc<str>,
    /// And that.
    pub guards: Option<Box<Guards>>,
    /// Of names without one; empty: none.
    pub keyspace: Arc<str>,
    /// The keyspace of its tables.
    pub domain: Box<str>,
    /// The tables in it, and whether it writes to them.
    pub tables: Box<[(Box<str>, bool)]>,
    /// A single statement that calls functions which users have defined.
    pub calls_others: bool,
}

impl Known {
    /// Reads a text. `keyspace`: that of the session, if it has one.
    pub fn read(text: &str, keyspace: Option<&str>) -> Result<Known, Refusal> {
        let guarded = guard::guarded(text)?;
        let text = guarded.as_ref().map_or(text, |(rest, _)| rest);
        let outline = Outline::read(text, keyspace.unwrap_or_default())?;
        let calls_others = outline.calls_others();
        let Outline { text, keyspace, domain, tables, .. } = outline;
        let tables =
            tables.into_iter().map(|(name, writes)| (name.into_boxed_str(), writes)).collect();
        let guards = guarded.map(|(_, guards)| Box::new(guards));
        Ok(Known { text, guards, keyspace, domain: domain.into(), tables, calls_others })
    }

    /// The same of a single statement that writes and is no transaction, for it has a timestamp of
    /// its own or the like.
    pub fn read_single(text: &str, keyspace: Option<&str>) -> Option<Known> {
        let Single { table, calls_others } = Single::read(text)?;
        let domain =
            table.keyspace.as_deref().or(keyspace).filter(|keyspace| !keyspace.is_empty())?.into();
        let tables = [(table.name.into_boxed_str(), true)].into();
        Some(Known {
            text: text.into(),
            guards: None,
            keyspace: keyspace.unwrap_or_default().into(),
            domain,
            tables,
            calls_others,
        })
    }

    /// About what it takes in memory.
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

/// The id of a prepared transaction: the same on every proxy, as nodes do it, and none that a node
/// gives another text.
pub fn id_of(text: &str, keyspace: &str) -> [u8; 16] {
    let hash = Md5::new()
        .chain_update("shunt transaction")
        .chain_update([0])
        .chain_update(keyspace)
        .chain_update([0]);
    hash.chain_update(text).finalize().into()
}

/// What is asked of the core that carries a transaction out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked<'a> {
    pub text: &'a str,
    pub keyspace: &'a str,
    /// The version of the protocol in which it is answered: the client's, or that between proxies.
    pub version: u8,
    /// The version of the client's protocol, in which types are told.
    pub types: u8,
    /// The client's role, empty where nobody logs in.
    pub role: &'a str,
    pub besides: Besides<'a>,
    pub values: Values<'a>,
    /// How a node is to carry it out, where it is sent on as it is: on tables with the mode
    /// `observe`.
    pub as_sent: Option<AsSent>,
}

/// What a client has said of how its statement is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsSent {
    pub consistency: Consistency,
    pub serial: Option<Consistency>,
    /// Microseconds.
    pub timestamp_us: Option<i64>,
    /// It says more than another proxy is told, or what a node may find that it cannot read.
    pub is_odd: bool,
}

const HAS_SERIAL: u8 = 1;
const HAS_TIMESTAMP: u8 = 2;

impl AsSent {
    /// Of a request's.
    pub fn of(params: &QueryParams<'_>) -> AsSent {
        AsSent {
            consistency: params.consistency,
            serial: params.serial_consistency,
            timestamp_us: params.timestamp,
            is_odd: params.is_doubtful() || params.now_in_seconds.is_some(),
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        put::consistency(out, self.consistency);
        out.push(
            if self.serial.is_some() { HAS_SERIAL } else { 0 }
                | if self.timestamp_us.is_some() { HAS_TIMESTAMP } else { 0 },
        );
        put::consistency(out, self.serial.unwrap_or(Consistency::SERIAL));
        put::long(out, self.timestamp_us.unwrap_or_default());
    }

    fn read(reader: &mut Reader<'_>) -> Result<AsSent, DecodeError> {
        let (consistency, has) =
            (Consistency(reader.short("consistency")?), reader.byte("what it has")?);
        let serial = Consistency(reader.short("serial consistency")?);
        let timestamp_us = reader.long("timestamp")?;
        Ok(AsSent {
            consistency,
            serial: (has & HAS_SERIAL != 0).then_some(serial),
            timestamp_us: (has & HAS_TIMESTAMP != 0).then_some(timestamp_us),
            is_odd: false,
        })
    }
}

impl<'a> Asked<'a> {
    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        let types = if self.types == self.version { 0 } else { self.types << 1 };
        out.extend([self.version, u8::from(self.values.is_named()) | types]);
        put::long_string(out, self.text);
        put::string(out, self.keyspace);
        put::string(out, self.role);
        self.besides.put(out);
        self.values.put(out);
        // Behind the rest, where versions before this do not look.
        if let Some(as_sent) = self.as_sent {
            as_sent.put(out);
        }
    }

    /// Reads what [`Asked::put`] has written.
    pub fn read(bytes: &'a [u8]) -> Result<Asked<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (version, named) = (reader.byte("version")?, reader.byte("named")?);
        let types = if named > 1 { named >> 1 } else { version };
        let is_named = named & 1 != 0;
        let (text, keyspace) = (reader.long_string("text")?, reader.string("keyspace")?);
        let (role, besides) = (reader.string("role")?, Besides::read(&mut reader)?);
        let values = Values::read(&mut reader, version, is_named)?;
        let as_sent = (!reader.rest().is_empty()).then(|| AsSent::read(&mut reader)).transpose()?;
        Ok(Asked { text, keyspace, version, types, role, besides, values, as_sent })
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::{Value, ValueList};

    use super::*;

    #[test]
    fn what_is_asked_is_read_as_it_was_written() {
        let text = "BEGIN TRANSACTION DELETE FROM t WHERE k = :k; COMMIT TRANSACTION";
        for (named, types) in [(true, 5), (false, 5), (true, 3), (false, 4)] {
            let mut list = if named { ValueList::named(5) } else { ValueList::positional(5) };
            list.push_named("k", Value::Bytes(b"1")).push_named("unset", Value::Unset);
            let besides = Besides { guard: None, key: b"k" };
            let values = list.values();
            let asked = Asked {
                text,
                keyspace: "ks",
                version: 5,
                types,
                role: "r",
                besides,
                values,
                as_sent: None,
            };
            let mut bytes = Vec::new();
            asked.put(&mut bytes);
            assert_eq!(bytes[1] > 1, types != 5, "between proxies it is as it was");
            assert_eq!(Asked::read(&bytes), Ok(asked));
            for cut in 0..bytes.len() {
                assert!(Asked::read(&bytes[..cut]).is_err(), "{cut}");
            }
            for (serial, timestamp_us) in
                [(Some(Consistency::LOCAL_SERIAL), None), (None, Some(-7))]
            {
                let as_sent = Some(AsSent {
                    consistency: Consistency::ALL,
                    serial,
                    timestamp_us,
                    is_odd: false,
                });
                let (asked, length) = (Asked { as_sent, ..asked }, bytes.len());
                let mut bytes = Vec::new();
                asked.put(&mut bytes);
                assert_eq!(Asked::read(&bytes), Ok(asked));
                for cut in length + 1..bytes.len() {
                    assert!(Asked::read(&bytes[..cut]).is_err(), "{cut}");
                }
            }
        }
        let known = Known::read(text, Some("ks")).expect("a transaction");
        assert_eq!((&*known.domain, &known.tables[..]), ("ks", &[("t".into(), true)][..]));
        assert!(Known::read(text, None).is_err() && known.bytes() > text.len());
    }
}
