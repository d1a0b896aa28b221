//! A transaction that a client has asked for or prepared, as its own core knows it: enough to say whose it is, and who may.

use std::sync::Arc;

use md5::{Digest, Md5};
use shunt_language::Refusal;
use shunt_language::transaction::guard::{self, Guards};
use shunt_wire::cql::message::primitive::Reader;
use shunt_wire::cql::message::{Values, put};
use shunt_wire::error::DecodeError;

use super::besides::Besides;
use super::plan::Outline;

/// The opcode and flags of an answer.
pub(crate) type Head = (u8, u8);

/// A text, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Without what names a lock in it.
    pub(crate) text: Arc<str>,
    /// And that.
    pub(crate) guards: Option<Box<Guards>>,
    /// Of names without one; empty: none.
    pub(crate) keyspace: Arc<str>,
    /// The keyspace of its tables.
    pub(crate) domain: Box<str>,
    /// The tables in it, and whether it writes to them.
    pub(crate) tables: Box<[(Box<str>, bool)]>,
}

impl Known {
    /// Reads a text. `keyspace`: that of the session, if it has one.
    pub(super) fn read(text: &str, keyspace: Option<&str>) -> Result<Known, Refusal> {
        let guarded = guard::guarded(text)?;
        let text = guarded.as_ref().map_or(text, |(rest, _)| rest);
        let Outline { text, keyspace, domain, tables, .. } = Outline::read(text, keyspace.unwrap_or_default())?;
        let tables = tables.into_iter().map(|(name, writes)| (name.into_boxed_str(), writes)).collect();
        let guards = guarded.map(|(_, guards)| Box::new(guards));
        Ok(Known { text, guards, keyspace, domain: domain.into(), tables })
    }

    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let tables = self.tables.iter().map(|(name, _)| name.len() + size_of::<(Box<str>, bool)>()).sum::<usize>();
        let guards = self.guards.as_ref().map_or(0, |guards| size_of::<Guards>() + guards.bytes());
        size_of::<Self>() + self.text.len() + self.keyspace.len() + self.domain.len() + tables + guards
    }
}

/// The id of a prepared transaction: the same on every proxy, as nodes do it, and none that a node gives another text.
pub(super) fn id_of(text: &str, keyspace: &str) -> [u8; 16] {
    let hash = Md5::new().chain_update("shunt transaction").chain_update([0]).chain_update(keyspace).chain_update([0]);
    hash.chain_update(text).finalize().into()
}

/// What is asked of the core that carries a transaction out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asked<'a> {
    pub(crate) text: &'a str,
    pub(crate) keyspace: &'a str,
    /// The version of the client's protocol, in which it is answered.
    pub(crate) version: u8,
    /// The client's role, empty where nobody logs in.
    pub(crate) role: &'a str,
    pub(crate) besides: Besides<'a>,
    pub(crate) values: Values<'a>,
}

impl<'a> Asked<'a> {
    /// Appends it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.version, u8::from(self.values.is_named())]);
        put::long_string(out, self.text);
        put::string(out, self.keyspace);
        put::string(out, self.role);
        self.besides.put(out);
        self.values.put(out);
    }

    /// Reads what [`Asked::put`] has written.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Asked<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (version, is_named) = (reader.byte("version")?, reader.byte("named")? != 0);
        let (text, keyspace) = (reader.long_string("text")?, reader.string("keyspace")?);
        let (role, besides) = (reader.string("role")?, Besides::read(&mut reader)?);
        Ok(Asked { text, keyspace, version, role, besides, values: Values::read(&mut reader, version, is_named)? })
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::{Value, ValueList};

    use super::*;

    #[test]
    fn what_is_asked_is_read_as_it_was_written() {
        let text = "BEGIN TRANSACTION DELETE FROM t WHERE k = :k; COMMIT TRANSACTION";
        for named in [true, false] {
            let mut list = if named { ValueList::named(5) } else { ValueList::positional(5) };
            list.push_named("k", Value::Bytes(b"1")).push_named("unset", Value::Unset);
            let besides = Besides { guard: None, key: b"k" };
            let asked = Asked { text, keyspace: "ks", version: 5, role: "r", besides, values: list.values() };
            let mut bytes = Vec::new();
            asked.put(&mut bytes);
            assert_eq!(Asked::read(&bytes), Ok(asked));
            for cut in 0..bytes.len() {
                assert!(Asked::read(&bytes[..cut]).is_err(), "{cut}");
            }
        }
        let known = Known::read(text, Some("ks")).expect("a transaction");
        assert_eq!((&*known.domain, &known.tables[..]), ("ks", &[("t".into(), true)][..]));
        assert!(Known::read(text, None).is_err() && known.bytes() > text.len());
    }
}
