//! Variable-length integers and checked reading of records.

use super::error::DecodeError;

/// Appends `value` in groups of seven bits, lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed integer so that small values of either sign are short.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends the length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Number of bytes that `put_varint` appends.
pub(crate) fn varint_bytes(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Reads a record from its beginning; an invalid field is an error with its offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn error(&self, what: &'static str) -> DecodeError {
        DecodeError::Malformed { what, at: self.at }
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.error(what))?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn take(
        &mut self,
        length: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let end = self
            .at
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len())
            .ok_or_else(|| self.error(what))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // The tenth byte has room for one bit.
                let fits = shift < 63 || byte <= 1;
                return if fits { Ok(value) } else { Err(self.error(what)) };
            }
        }
        Err(self.error(what))
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let value = self.varint(what)?;
        u32::try_from(value).map_err(|_| self.error(what))
    }

    pub(crate) fn signed(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        let value = self.varint(what)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A count of items of at least one byte each, so that no count reserves more memory than the
    /// record's length.
    pub(crate) fn count(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let value = self.varint(what)?;
        usize::try_from(value)
            .ok()
            .filter(|count| *count <= self.remaining())
            .ok_or_else(|| self.error(what))
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.count(what)?;
        self.take(length, what)
    }

    pub(crate) fn end(&self, what: &'static str) -> Result<(), DecodeError> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.error(what)) }
    }
}
