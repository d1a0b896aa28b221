//! Requests of clients (v5, section 4.1).

use super::Consistency;
use super::collections::{StringList, StringMap};
use super::primitive::Reader;
use super::query_params::QueryParams;
use super::values::Values;
use crate::error::{DecodeError, Problem};

/// STARTUP (section 4.1.1): options of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Startup<'a> {
    /// The options: `CQL_VERSION` and optionally `COMPRESSION`, `DRIVER_NAME` and others.
    pub options: StringMap<'a>,
}

impl<'a> Startup<'a> {
    /// Reads a STARTUP body.
    ///
    /// # Errors
    /// If it is not a `[string map]`.
    pub fn decode(body: &'a [u8]) -> Result<Startup<'a>, DecodeError> {
        Ok(Startup { options: Reader::new(body).string_map("startup options")? })
    }
}

/// QUERY (section 4.1.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Query<'a> {
    /// The statement.
    pub text: &'a str,
    /// Consistency, values and the rest.
    pub params: QueryParams<'a>,
}

impl<'a> Query<'a> {
    /// Reads a QUERY body.
    ///
    /// # Errors
    /// If the text is not UTF-8, or the parameters do not match their flags.
    #[inline]
    pub fn decode(version: u8, body: &'a [u8]) -> Result<Query<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        let text = reader.long_string("query text")?;
        Ok(Query { text, params: QueryParams::read(&mut reader, version)? })
    }
}

/// PREPARE (section 4.1.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prepare<'a> {
    /// The statement.
    pub text: &'a str,
    /// Keyspace of the statement instead of the connection's (v5).
    pub keyspace: Option<&'a str>,
}

/// The flag "with keyspace" of PREPARE in v5, its only flag.
pub(super) const PREPARE_KEYSPACE: i32 = 0x01;

impl<'a> Prepare<'a> {
    /// Reads a PREPARE body. v3 and v4 have only the text.
    ///
    /// # Errors
    /// If the text is not UTF-8, or an announced keyspace is missing.
    pub fn decode(version: u8, body: &'a [u8]) -> Result<Prepare<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        let text = reader.long_string("query text")?;
        let flags = if version >= 5 { reader.int("prepare flags")? } else { 0 };
        let keyspace =
            if flags & PREPARE_KEYSPACE != 0 { Some(reader.string("keyspace")?) } else { None };
        Ok(Prepare { text, keyspace })
    }
}

/// EXECUTE (section 4.1.6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Execute<'a> {
    /// Id of the prepared statement.
    pub id: &'a [u8],
    /// Id of the result's metadata as the client knows it (v5; `None` before).
    pub result_metadata_id: Option<&'a [u8]>,
    /// Consistency, values and the rest.
    pub params: QueryParams<'a>,
}

impl<'a> Execute<'a> {
    /// Reads an EXECUTE body.
    ///
    /// # Errors
    /// If an id ends beyond the body, or the parameters do not match their flags.
    #[inline]
    pub fn decode(version: u8, body: &'a [u8]) -> Result<Execute<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        let id = reader.short_bytes("prepared id")?;
        let result_metadata_id =
            if version >= 5 { Some(reader.short_bytes("result metadata id")?) } else { None };
        Ok(Execute { id, result_metadata_id, params: QueryParams::read(&mut reader, version)? })
    }
}

/// The part of an EXECUTE that routing needs. The query leaves a few instructions later, so the
/// rest is not decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExecuteRouting<'a> {
    /// Id of the prepared statement.
    pub id: &'a [u8],
    /// Consistency level.
    pub consistency: Consistency,
    /// Bound values.
    pub values: Values<'a>,
    /// Result of [`QueryParams::is_doubtful`] for its parameters.
    pub doubtful: bool,
}

impl<'a> ExecuteRouting<'a> {
    /// Reads an EXECUTE body; refuses everything that [`Execute::decode`] refuses.
    ///
    /// # Errors
    /// The same as [`Execute::decode`].
    #[inline]
    pub fn decode(version: u8, body: &'a [u8]) -> Result<ExecuteRouting<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        let id = reader.short_bytes("prepared id")?;
        if version >= 5 {
            reader.short_bytes("result metadata id")?;
        }
        let (consistency, values, doubtful) = QueryParams::read_routing(&mut reader, version)?;
        Ok(ExecuteRouting { id, consistency, values, doubtful })
    }
}

/// Kind of a batch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BatchKind {
    /// All or nothing, through the batch log.
    Logged = 0,
    /// Statements that merely travel together.
    Unlogged = 1,
    /// Counter updates.
    Counter = 2,
}

/// BATCH (section 4.1.7).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Batch<'a> {
    /// Logged, unlogged or counter.
    pub kind: BatchKind,
    /// Consistency and the rest; the values of a conforming batch are empty.
    pub params: QueryParams<'a>,
    version: u8,
    count: u16,
    children: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Reads a BATCH body and validates all children.
    ///
    /// Values of children have no names even if the names flag is set, since the flag follows them:
    /// "this feature does not work and should not be used".
    ///
    /// # Errors
    /// An unknown kind, or a missing or invalid child or parameter.
    pub fn decode(version: u8, body: &'a [u8]) -> Result<Batch<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        let kind = match reader.byte("batch kind")? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            found => {
                let problem =
                    Problem::Unknown { found: u32::from(found), expected: "kind 0, 1 or 2" };
                return Err(DecodeError { problem, field: "batch kind", offset: 0 });
            }
        };
        let count = reader.short("batch child count")?;
        let start = reader.position();
        for _ in 0..count {
            read_child(&mut reader, version)?;
        }
        let children = reader.since(start);
        Ok(Batch {
            kind,
            version,
            count,
            children,
            params: QueryParams::read(&mut reader, version)?,
        })
    }

    /// Offset of the parameters in the body: the consistency comes first.
    pub fn params_at(&self) -> usize {
        // Before the children come the kind and their number.
        size_of::<u8>() + size_of::<u16>() + self.children.len()
    }

    /// Number of children.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True if there is no child.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The children in order.
    #[inline]
    pub fn children(&self) -> impl Iterator<Item = BatchChild<'a>> + use<'a> {
        let mut reader = Reader::new(self.children);
        let version = self.version;
        (0..self.count).map_while(move |_| read_child(&mut reader, version).ok())
    }
}

/// One statement of a batch with its values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchChild<'a> {
    /// The statement.
    pub statement: BatchStatement<'a>,
    /// Bound values of the statement.
    pub values: Values<'a>,
}

/// The statement of a [`BatchChild`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BatchStatement<'a> {
    /// Query text.
    Text(&'a str),
    /// Id of a prepared statement.
    Prepared(&'a [u8]),
}

#[inline]
fn read_child<'a>(reader: &mut Reader<'a>, version: u8) -> Result<BatchChild<'a>, DecodeError> {
    let start = *reader;
    let statement = match reader.byte("batch child kind")? {
        0 => BatchStatement::Text(reader.long_string("batch child text")?),
        1 => BatchStatement::Prepared(reader.short_bytes("batch child id")?),
        found => {
            let problem = Problem::Unknown { found: u32::from(found), expected: "kind 0 or 1" };
            return Err(start.error("batch child kind", problem));
        }
    };
    Ok(BatchChild { statement, values: Values::read(reader, version, false)? })
}

/// REGISTER (section 4.1.8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Register<'a> {
    /// Kinds of events: `TOPOLOGY_CHANGE`, `STATUS_CHANGE`, `SCHEMA_CHANGE`.
    pub events: StringList<'a>,
}

impl<'a> Register<'a> {
    /// Reads a REGISTER body.
    ///
    /// # Errors
    /// If it is not a `[string list]`.
    pub fn decode(body: &'a [u8]) -> Result<Register<'a>, DecodeError> {
        Ok(Register { events: Reader::new(body).string_list("event kinds")? })
    }
}

/// AUTH_RESPONSE (section 4.1.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuthResponse<'a> {
    /// The client's SASL token; `None` is null.
    pub token: Option<&'a [u8]>,
}

impl<'a> AuthResponse<'a> {
    /// Reads an AUTH_RESPONSE body.
    ///
    /// # Errors
    /// If it is not `[bytes]`.
    pub fn decode(body: &'a [u8]) -> Result<AuthResponse<'a>, DecodeError> {
        Ok(AuthResponse { token: Reader::new(body).bytes("authentication token")? })
    }
}
