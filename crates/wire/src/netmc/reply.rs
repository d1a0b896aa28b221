//! Replies: some items of a part, sent from its server straight to the client. A part has as many
//! replies as its values need.

use super::{HEADER_BYTES, KEYS_MAX, Malformed, Op, u16_at, u32_at};

/// Bytes of an item besides key and value.
const ITEM_BYTES: usize = 5;

/// Outcome for a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// The value is present.
    Hit,
    /// The key has no value.
    Miss,
    /// The value does not fit a datagram or exceeds the amount that this client may get; ask over
    /// TCP.
    TooBig,
    /// The server gave no outcome; ask over TCP.
    AskOverTcp,
}

impl Status {
    fn to_byte(self) -> u8 {
        match self {
            Status::Hit => 0,
            Status::Miss => 1,
            Status::TooBig => 2,
            Status::AskOverTcp => 3,
        }
    }
}

/// A key and its outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Item<'d> {
    /// Outcome for the key.
    pub status: Status,
    /// The key, so that an answer is useless to anyone but the client that asked.
    pub key: &'d [u8],
    /// The value; empty unless the status is [`Status::Hit`].
    pub value: &'d [u8],
}

/// Encoded length of an item in bytes.
pub fn item_bytes(item: &Item<'_>) -> usize {
    ITEM_BYTES + item.key.len() + item.value.len()
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplyHeader {
    /// [`Op::MultiGetReply`] or [`Op::GetReply`].
    pub op: Op,
    /// Id of the request.
    pub id: u32,
    /// Number of the part.
    pub oid: u8,
    /// Items in this reply.
    pub numkey: u8,
    /// Position of its first item in the whole request.
    pub startidx: u8,
    /// A coordinator's digest of its servers in order; 0 in a server's own reply.
    pub list_digest: u32,
}

/// Writer of one reply.
#[derive(Debug)]
pub struct ReplyWriter<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> ReplyWriter<'b> {
    /// Begins a reply behind the content of `out`.
    pub fn begin(out: &'b mut Vec<u8>, op: Op, id: u32, oid: u8, startidx: u8) -> Self {
        let start = out.len();
        out.push(op.reply().to_byte());
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&[oid, 0, 0, 0, startidx, 0, 0]);
        Self { out, start }
    }

    /// Sets the digest of the servers whose answers the coordinator merged; see
    /// [`ReplyHeader::list_digest`].
    #[must_use]
    pub fn with_list_digest(self, list_digest: u32) -> Self {
        let [a, b, c, d] = list_digest.to_be_bytes();
        self.out[self.start + 7..self.start + 9].copy_from_slice(&[a, b]);
        self.out[self.start + 10..self.start + 12].copy_from_slice(&[c, d]);
        self
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> usize {
        self.out.len() - self.start
    }

    /// Appends the next item. The caller ensures that it fits.
    pub fn push(&mut self, item: &Item<'_>) {
        self.out.push(item.status.to_byte());
        self.out.extend_from_slice(&(item.key.len() as u16).to_be_bytes());
        self.out.extend_from_slice(&(item.value.len() as u16).to_be_bytes());
        self.out.extend_from_slice(item.key);
        self.out.extend_from_slice(item.value);
        self.out[self.start + 6] += 1;
    }
}

/// A valid reply and its items.
#[derive(Clone, Debug)]
pub struct ReplyReader<'d> {
    /// The header.
    pub header: ReplyHeader,
    left: &'d [u8],
}

impl<'d> ReplyReader<'d> {
    /// Reads the header and validates it and all items.
    ///
    /// # Errors
    /// The fault; the reply must be dropped whole.
    pub fn parse(data: &'d [u8]) -> Result<ReplyReader<'d>, Malformed> {
        let first = data.first().ok_or(Malformed::Short)?;
        let op = Op::of(*first)?;
        if !matches!(op, Op::MultiGetReply | Op::GetReply) {
            return Err(Malformed::Op { found: first & 15 });
        }
        if data.len() < HEADER_BYTES {
            return Err(Malformed::Short);
        }
        let id = u32_at(data, 1).ok_or(Malformed::Short)?;
        let (oid, numkey, startidx) = (data[5], data[6], data[9]);
        if numkey == 0 {
            return Err(Malformed::NumKey);
        }
        if usize::from(startidx) + usize::from(numkey) > KEYS_MAX {
            return Err(Malformed::Place);
        }
        let list_digest = u32::from_be_bytes([data[7], data[8], data[10], data[11]]);
        let header = ReplyHeader { op, id, oid, numkey, startidx, list_digest };
        let mut left = &data[HEADER_BYTES..];
        let reader = ReplyReader { header, left };
        for _ in 0..numkey {
            (_, left) = item(left)?;
        }
        if left.is_empty() { Ok(reader) } else { Err(Malformed::Long) }
    }
}

impl<'d> Iterator for ReplyReader<'d> {
    type Item = Item<'d>;

    fn next(&mut self) -> Option<Item<'d>> {
        let (found, left) = item(self.left).ok()?;
        self.left = left;
        Some(found)
    }
}

fn item(bytes: &[u8]) -> Result<(Item<'_>, &[u8]), Malformed> {
    let status = match bytes.first().ok_or(Malformed::Short)? {
        0 => Status::Hit,
        1 => Status::Miss,
        2 => Status::TooBig,
        3 => Status::AskOverTcp,
        _ => return Err(Malformed::Item),
    };
    let key_length = usize::from(u16_at(bytes, 1).ok_or(Malformed::Short)?);
    let value_length = usize::from(u16_at(bytes, 3).ok_or(Malformed::Short)?);
    if status != Status::Hit && value_length > 0 {
        return Err(Malformed::Item);
    }
    let (key_end, end) = (ITEM_BYTES + key_length, ITEM_BYTES + key_length + value_length);
    if bytes.len() < end {
        return Err(Malformed::Short);
    }
    Ok((
        Item { status, key: &bytes[ITEM_BYTES..key_end], value: &bytes[key_end..end] },
        &bytes[end..],
    ))
}
