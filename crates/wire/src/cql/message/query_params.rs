//! The parameters that follow the statement in QUERY and EXECUTE, and the children in BATCH (v5,
//! section 4.1.4).

use super::consistency::Consistency;
use super::primitive::Reader;
use super::put;
use super::values::Values;
use crate::error::DecodeError;

/// Bits of the parameters' flags. A `[byte]` in v3 and v4, an `[int]` in v5.
pub mod query_flag {
    /// Values follow.
    pub const VALUES: u32 = 0x0001;
    /// The client knows the result's metadata and does not need it.
    pub const SKIP_METADATA: u32 = 0x0002;
    /// A page size follows.
    pub const PAGE_SIZE: u32 = 0x0004;
    /// A paging state follows.
    pub const PAGING_STATE: u32 = 0x0008;
    /// A serial consistency follows.
    pub const SERIAL_CONSISTENCY: u32 = 0x0010;
    /// A default timestamp follows.
    pub const TIMESTAMP: u32 = 0x0020;
    /// The values have names.
    pub const NAMES: u32 = 0x0040;
    /// A keyspace follows. Only v5 defines it, but Cassandra reads it in every version.
    pub const KEYSPACE: u32 = 0x0080;
    /// The query's current time follows; v5.
    pub const NOW_IN_SECONDS: u32 = 0x0100;
}

/// A view of query parameters; also the input of the encoders.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueryParams<'a> {
    /// Consistency level of the read or write.
    pub consistency: Consistency,
    /// Bits of [`query_flag`] as received, including unknown ones. The encoders use only
    /// [`query_flag::SKIP_METADATA`] and derive the others from the fields.
    pub flags: u32,
    /// Bound values; may be empty.
    pub values: Values<'a>,
    /// Wanted rows per page; 0 or less means no paging.
    pub page_size: Option<i32>,
    /// Start of the page, from an earlier response. A null state is equivalent to none.
    pub paging_state: Option<&'a [u8]>,
    /// Consistency of the serial phase of a conditional statement.
    pub serial_consistency: Option<Consistency>,
    /// Default write timestamp in microseconds since 1970.
    pub timestamp: Option<i64>,
    /// Keyspace of the statement instead of the connection's (v5).
    pub keyspace: Option<&'a str>,
    /// The query's current time in seconds since 1970 (v5).
    pub now_in_seconds: Option<i32>,
}

impl<'a> QueryParams<'a> {
    /// Parameters with only a consistency level.
    pub fn simple(consistency: Consistency) -> QueryParams<'a> {
        QueryParams {
            consistency,
            flags: 0,
            values: Values::default(),
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }

    /// True if the client asked to omit the metadata from the result.
    pub fn skips_metadata(&self) -> bool {
        self.flags & query_flag::SKIP_METADATA != 0
    }

    /// True if a node may be unable to read the parameters: a paging state is opaque to Shunt, and
    /// numbers that no specification lists pass. Cassandra closes a v5 connection at the second
    /// such message in one segment.
    pub fn is_doubtful(&self) -> bool {
        !self.consistency.is_known()
            || self.paging_state.is_some()
            || self.serial_consistency.is_some_and(|serial| !serial.is_known())
            || self.timestamp == Some(i64::MIN)
    }

    /// Reads the parameters of a QUERY, an EXECUTE or a BATCH.
    ///
    /// Flags of a version later than `version` are kept in `flags` but have no effect.
    ///
    /// # Errors
    /// If a part that the flags announce is missing or invalid.
    #[inline]
    pub fn read(reader: &mut Reader<'a>, version: u8) -> Result<QueryParams<'a>, DecodeError> {
        let consistency = reader.consistency("consistency")?;
        let mut params = QueryParams::simple(consistency);
        params.flags = match version {
            ..5 => u32::from(reader.byte("query flags")?),
            _ => reader.int("query flags")? as u32,
        };
        let has = |flag: u32| params.flags & flag != 0;
        if has(query_flag::VALUES) {
            params.values = Values::read(reader, version, has(query_flag::NAMES))?;
        }
        if has(query_flag::PAGE_SIZE) {
            params.page_size = Some(reader.int("page size")?);
        }
        if has(query_flag::PAGING_STATE) {
            params.paging_state = reader.bytes("paging state")?;
        }
        if has(query_flag::SERIAL_CONSISTENCY) {
            params.serial_consistency = Some(reader.consistency("serial consistency")?);
        }
        if has(query_flag::TIMESTAMP) {
            params.timestamp = Some(reader.long("timestamp")?);
        }
        // Only v5 defines the keyspace, but nodes read and apply it in every version. Ignoring it
        // would mistake one table for another.
        if has(query_flag::KEYSPACE) {
            params.keyspace = Some(reader.string("keyspace")?);
        }
        if version >= 5 && has(query_flag::NOW_IN_SECONDS) {
            params.now_in_seconds = Some(reader.int("now in seconds")?);
        }
        Ok(params)
    }

    /// Reads the parameters that routing needs and skips the rest, as strictly as
    /// [`QueryParams::read`]: the consistency, the values, and whether the parameters are
    /// [doubtful](QueryParams::is_doubtful).
    #[inline]
    pub(super) fn read_routing(
        reader: &mut Reader<'a>,
        version: u8,
    ) -> Result<(Consistency, Values<'a>, bool), DecodeError> {
        let consistency = reader.consistency("consistency")?;
        let mut doubtful = !consistency.is_known();
        let flags = match version {
            ..5 => u32::from(reader.byte("query flags")?),
            _ => reader.int("query flags")? as u32,
        };
        let has = |flag: u32| flags & flag != 0;
        let values = match has(query_flag::VALUES) {
            true => Values::read(reader, version, has(query_flag::NAMES))?,
            false => Values::default(),
        };
        if has(query_flag::PAGE_SIZE) {
            reader.int("page size")?;
        }
        if has(query_flag::PAGING_STATE) {
            doubtful |= reader.bytes("paging state")?.is_some();
        }
        if has(query_flag::SERIAL_CONSISTENCY) {
            doubtful |= !reader.consistency("serial consistency")?.is_known();
        }
        if has(query_flag::TIMESTAMP) {
            doubtful |= reader.long("timestamp")? == i64::MIN;
        }
        if has(query_flag::KEYSPACE) {
            reader.string("keyspace")?;
        }
        if version >= 5 && has(query_flag::NOW_IN_SECONDS) {
            reader.int("now in seconds")?;
        }
        Ok((consistency, values, doubtful))
    }

    /// Appends the parameters in the layout of `version`. Versions before v5 omit the current time
    /// but keep a keyspace, because nodes apply it.
    pub fn put(&self, out: &mut Vec<u8>, version: u8) {
        let now_in_seconds = self.now_in_seconds.filter(|_| version >= 5);
        let mut flags = self.flags & query_flag::SKIP_METADATA;
        let mut set = |flag: u32, present: bool| flags |= if present { flag } else { 0 };
        set(query_flag::VALUES, !self.values.is_empty());
        set(query_flag::NAMES, !self.values.is_empty() && self.values.is_named());
        set(query_flag::PAGE_SIZE, self.page_size.is_some());
        set(query_flag::PAGING_STATE, self.paging_state.is_some());
        set(query_flag::SERIAL_CONSISTENCY, self.serial_consistency.is_some());
        set(query_flag::TIMESTAMP, self.timestamp.is_some());
        set(query_flag::KEYSPACE, self.keyspace.is_some());
        set(query_flag::NOW_IN_SECONDS, now_in_seconds.is_some());

        put::consistency(out, self.consistency);
        if version >= 5 {
            put::int(out, flags as i32);
        } else {
            out.push(flags as u8);
        }
        if !self.values.is_empty() {
            self.values.put(out);
        }
        if let Some(page_size) = self.page_size {
            put::int(out, page_size);
        }
        if let Some(paging_state) = self.paging_state {
            put::bytes(out, Some(paging_state));
        }
        if let Some(serial_consistency) = self.serial_consistency {
            put::consistency(out, serial_consistency);
        }
        if let Some(timestamp) = self.timestamp {
            put::long(out, timestamp);
        }
        if let Some(keyspace) = self.keyspace {
            put::string(out, keyspace);
        }
        if let Some(now_in_seconds) = now_in_seconds {
            put::int(out, now_in_seconds);
        }
    }
}
