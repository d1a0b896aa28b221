//! Binds values to a statement, which gives requests.

use shunt_wire::cql::message::{Value, Values};

use super::{Form, NAME_BYTES_MAX, OWNER_BYTES_MAX, Single, Source, Statement, TTL_LEFT_MS, Table};
use crate::error::InvalidRequest;

/// Operation on a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// Acquires the lock.
    Acquire {
        /// True to share it with other holders.
        shared: bool,
        /// Duration of the hold, from its grant.
        ttl_ms: u32,
        /// Longest wait for the lock.
        wait_ms: u32,
    },
    /// Extends the hold.
    Renew {
        /// Mode of the hold, if the statement gives it.
        shared: Option<bool>,
        /// New duration of the hold, from now.
        ttl_ms: u32,
        /// Required fence, if given.
        fence: Option<i64>,
    },
    /// Releases the lock.
    Release {
        /// Required fence, if given.
        fence: Option<i64>,
    },
    /// Shows the holders; with an owner, only that one.
    Look,
    /// Shows the holders and the waiters.
    Queue {
        /// True for locks in memory only, false for the others only.
        fast: Option<bool>,
    },
    /// Shows the locks of one proxy, longest queues first.
    Longest,
}

/// A request about one lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'a> {
    /// The named table.
    pub table: Table,
    /// The operation.
    pub asked: Asked,
    /// Name of the lock; empty for [`Asked::Longest`].
    pub name: &'a [u8],
    /// The owner; empty if none is named.
    pub owner: &'a [u8],
    /// Most rows to return.
    pub limit: u32,
}

impl Statement {
    /// Binds these values; returns one request for each statement of a batch.
    ///
    /// # Errors
    /// A value is missing or invalid for its column.
    pub fn bind<'a>(
        &'a self,
        values: &'a Values<'a>,
    ) -> impl Iterator<Item = Result<Request<'a>, InvalidRequest>> + 'a {
        let bound = Bound { markers: &self.markers, values };
        self.singles.iter().map(move |single| bound.request(single))
    }
}

#[derive(Clone, Copy)]
struct Bound<'a> {
    markers: &'a [Option<Box<str>>],
    values: &'a Values<'a>,
}

fn refuse(why: impl Into<String>) -> InvalidRequest {
    InvalidRequest::new(why)
}

impl<'a> Bound<'a> {
    fn request(self, single: &'a Single) -> Result<Request<'a>, InvalidRequest> {
        let (name, mut owner, mut limit) = (self.name(&single.form)?, &[][..], u32::MAX);
        let asked = match &single.form {
            Form::Acquire { owner: by, mode, wait_ms, ttl, .. } => {
                owner = self.owner(by)?;
                let shared =
                    mode.as_ref().map(|mode| self.mode(mode)).transpose()?.unwrap_or(false);
                let wait_ms = wait_ms
                    .as_ref()
                    .map(|wait| self.int(wait, "wait_ms", 0))
                    .transpose()?
                    .unwrap_or(0);
                let ttl_ms = self.ttl_ms(ttl)?;
                if wait_ms > 0 && ttl_ms <= wait_ms.saturating_add(TTL_LEFT_MS) {
                    return Err(refuse(format!(
                        "the TTL of {} s must be longer than wait_ms ({wait_ms}) and {TTL_LEFT_MS} ms more: the lock could be \
                         over before its owner hears of it",
                        ttl_ms / 1_000
                    )));
                }
                Asked::Acquire { shared, ttl_ms, wait_ms }
            }
            Form::Renew { owners, modes, fence, ttl, .. } => {
                owner = self.same(owners, "owner", Self::owner)?.unwrap_or_default();
                let shared = self.same(modes, "mode", Self::mode)?;
                Asked::Renew {
                    shared,
                    ttl_ms: self.ttl_ms(ttl)?,
                    fence: self.fence(fence.as_ref())?,
                }
            }
            Form::Release { owner: by, fence, .. } => {
                owner = self.owner(by)?;
                Asked::Release { fence: self.fence(fence.as_ref())? }
            }
            Form::Look { owner: by, limit: rows, .. } => {
                if let Some(by) = by {
                    owner = self.owner(by)?;
                }
                limit = self.limit(rows.as_ref())?;
                Asked::Look
            }
            Form::Queue { fast, limit: rows, .. } => {
                limit = self.limit(rows.as_ref())?;
                let fast = fast.as_ref().map(|fast| self.value(fast, "fast")).transpose()?;
                Asked::Queue { fast: fast.map(|fast| fast.iter().any(|byte| *byte != 0)) }
            }
            Form::Longest { limit: rows, .. } => {
                limit = self.limit(rows.as_ref())?;
                Asked::Longest
            }
        };
        Ok(Request { table: single.table, asked, name, owner, limit })
    }

    fn value(self, source: &'a Source, column: &str) -> Result<&'a [u8], InvalidRequest> {
        let index = match source {
            Source::Literal(bytes) => return Ok(bytes),
            Source::Marker(index) => usize::from(*index),
        };
        let value = if self.values.is_named() {
            self.markers
                .get(index)
                .and_then(Option::as_deref)
                .and_then(|name| self.values.named(name))
        } else {
            self.values.get(index)
        };
        match value {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(Value::Null | Value::Unset) => {
                Err(refuse(format!("{column} must have a value, and is null or unset")))
            }
            None => Err(refuse(format!("there is no value for {column}"))),
        }
    }

    fn text(
        self,
        source: &'a Source,
        column: &str,
        max: usize,
    ) -> Result<&'a [u8], InvalidRequest> {
        let bytes = self.value(source, column)?;
        if bytes.is_empty() || bytes.len() > max {
            return Err(refuse(format!(
                "{column} has {} bytes: 1 to {max} are allowed",
                bytes.len()
            )));
        }
        if std::str::from_utf8(bytes).is_err() {
            return Err(refuse(format!("{column} is not UTF-8")));
        }
        Ok(bytes)
    }

    fn name(self, form: &'a Form) -> Result<&'a [u8], InvalidRequest> {
        match form {
            Form::Acquire { name, .. }
            | Form::Renew { name, .. }
            | Form::Release { name, .. }
            | Form::Look { name, .. }
            | Form::Queue { name, .. } => self.text(name, "name", NAME_BYTES_MAX),
            Form::Longest { .. } => Ok(&[]),
        }
    }

    fn owner(self, source: &'a Source) -> Result<&'a [u8], InvalidRequest> {
        self.text(source, "owner", OWNER_BYTES_MAX)
    }

    fn mode(self, source: &'a Source) -> Result<bool, InvalidRequest> {
        match self.value(source, "mode")? {
            b"S" => Ok(true),
            b"X" => Ok(false),
            _ => Err(refuse("mode is 'S' (shared) or 'X' (exclusive)")),
        }
    }

    fn int(self, source: &'a Source, column: &str, min: i32) -> Result<u32, InvalidRequest> {
        let bytes = self.value(source, column)?;
        let number = <[u8; 4]>::try_from(bytes).map(i32::from_be_bytes);
        let number = number
            .map_err(|_| refuse(format!("{column} has {} bytes: an int has 4", bytes.len())))?;
        if number < min {
            Err(refuse(format!("{column} is {number}: {min} is the least")))
        } else {
            Ok(number as u32)
        }
    }

    fn limit(self, source: Option<&'a Source>) -> Result<u32, InvalidRequest> {
        source.map_or(Ok(u32::MAX), |source| self.int(source, "LIMIT", 1))
    }

    fn ttl_ms(self, source: &'a Source) -> Result<u32, InvalidRequest> {
        let seconds = self.int(source, "the TTL", 1)?;
        seconds
            .checked_mul(1_000)
            .ok_or_else(|| refuse(format!("a TTL of {seconds} s is too long for a lock")))
    }

    fn fence(self, source: Option<&'a Source>) -> Result<Option<i64>, InvalidRequest> {
        let Some(source) = source else { return Ok(None) };
        let bytes = self.value(source, "fence")?;
        let number = <[u8; 8]>::try_from(bytes).map(i64::from_be_bytes);
        number
            .map(Some)
            .map_err(|_| refuse(format!("fence has {} bytes: a bigint has 8", bytes.len())))
    }

    /// The common value of a column that a statement names more than once.
    fn same<T: PartialEq>(
        self,
        sources: &'a [Source],
        column: &str,
        read: impl Fn(Self, &'a Source) -> Result<T, InvalidRequest>,
    ) -> Result<Option<T>, InvalidRequest> {
        let mut first = None;
        for source in sources {
            let value = read(self, source)?;
            match &first {
                None => first = Some(value),
                Some(first) if *first != value => {
                    return Err(refuse(format!(
                        "{column} cannot be changed: what is SET must be what the row has"
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(first)
    }
}
