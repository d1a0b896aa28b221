//! Finds the end of a body. Bytes pass unchanged; chunks are checked on the way.

use super::error::Refusal;
use super::head::{checked_line, field};
use super::limits::{CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};
use super::names;

/// Rule that determines the end of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// No body.
    None,
    /// A number of bytes.
    Length(u64),
    /// Chunks; the bytes of the chunk framing count as the body's.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// The next element of a chunked body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// The line with a chunk's size: the digits first, then (`seen_end`) the rest of the line.
    Size {
        size: u64,
        digits: u8,
        line_bytes: usize,
        in_extension: bool,
    },
    /// The line feed of that line.
    SizeFeed {
        size: u64,
    },
    /// Bytes of a chunk.
    Data {
        left: u64,
    },
    /// The carriage return and the line feed behind a chunk.
    DataReturn,
    DataFeed,
    /// Fields behind the last chunk, and the empty line.
    Trailer,
    Done,
}

/// Follows one body to its end.
#[derive(Clone, Debug)]
pub struct BodyReader {
    framing: Framing,
    /// Bytes left of a body of known length.
    left: u64,
    place: Place,
    /// The incomplete line behind the last chunk.
    line: Vec<u8>,
    trailer_bytes: usize,
}

const SIZE: Place = Place::Size { size: 0, digits: 0, line_bytes: 0, in_extension: false };

impl BodyReader {
    /// A reader at the start of a body.
    pub fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { framing, left, place: SIZE, line: Vec::new(), trailer_bytes: 0 }
    }

    /// Framing of the body.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Takes the bytes at the start of `data` that belong to the body and returns their number:
    /// fewer than all only if the body ends there.
    ///
    /// # Errors
    /// The chunks are malformed. The bytes in front of the fault are not counted; the connection
    /// must close.
    pub fn take(&mut self, data: &[u8]) -> Result<usize, Refusal> {
        match self.framing {
            Framing::None => Ok(0),
            Framing::UntilClose => Ok(data.len()),
            Framing::Length(_) => {
                let taken = self.left.min(data.len() as u64);
                self.left -= taken;
                Ok(taken as usize)
            }
            Framing::Chunked => self.take_chunks(data),
        }
    }

    /// True if the whole body was taken. Never true for a body that ends with the connection.
    pub fn is_complete(&self) -> bool {
        match self.framing {
            Framing::None => true,
            Framing::UntilClose => false,
            Framing::Length(_) => self.left == 0,
            Framing::Chunked => self.place == Place::Done,
        }
    }

    /// True if the end of the connection here would end the body rather than truncate it.
    pub fn may_end_here(&self) -> bool {
        self.framing == Framing::UntilClose || self.is_complete()
    }

    fn take_chunks(&mut self, data: &[u8]) -> Result<usize, Refusal> {
        let mut at = 0;
        while at < data.len() && self.place != Place::Done {
            if let Place::Data { left } = self.place {
                let taken = left.min((data.len() - at) as u64);
                at += taken as usize;
                self.place = if taken == left {
                    Place::DataReturn
                } else {
                    Place::Data { left: left - taken }
                };
                continue;
            }
            self.place = self.step(data[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// Takes one byte of the chunk framing.
    fn step(&mut self, byte: u8) -> Result<Place, Refusal> {
        match self.place {
            Place::Size { size, digits, line_bytes, in_extension } => {
                let line_bytes = line_bytes + 1;
                if line_bytes > CHUNK_LINE_BYTES_MAX {
                    return Err(Refusal::ChunkLineTooLong);
                }
                match byte {
                    b'\r' if digits > 0 => Ok(Place::SizeFeed { size }),
                    b'\n' => Err(Refusal::BareLineFeed),
                    0 => Err(Refusal::Nul),
                    _ if in_extension => match byte.is_ascii_control() && byte != b'\t' {
                        true => Err(Refusal::ChunkSize),
                        false => Ok(Place::Size { size, digits, line_bytes, in_extension }),
                    },
                    b';' if digits > 0 => {
                        Ok(Place::Size { size, digits, line_bytes, in_extension: true })
                    }
                    _ => {
                        let digit = char::from(byte).to_digit(16).ok_or(Refusal::ChunkSize)?;
                        let size = append_digit(size, digit).ok_or(Refusal::ChunkTooLarge)?;
                        Ok(Place::Size {
                            size,
                            digits: digits.saturating_add(1),
                            line_bytes,
                            in_extension,
                        })
                    }
                }
            }
            Place::SizeFeed { size } => match (byte, size) {
                (b'\n', 0) => Ok(Place::Trailer),
                (b'\n', left) => Ok(Place::Data { left }),
                _ => Err(Refusal::BareCarriageReturn),
            },
            Place::DataReturn if byte == b'\r' => Ok(Place::DataFeed),
            Place::DataFeed if byte == b'\n' => Ok(SIZE),
            Place::DataReturn | Place::DataFeed => Err(Refusal::ChunkEnd),
            Place::Trailer => self.trailer(byte),
            Place::Data { .. } | Place::Done => Ok(self.place),
        }
    }

    fn trailer(&mut self, byte: u8) -> Result<Place, Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(Refusal::ChunkLineTooLong);
        }
        if byte != b'\n' {
            self.line.push(byte);
            return Ok(Place::Trailer);
        }
        let line = checked_line(&self.line)?;
        if line.is_empty() {
            self.line = Vec::new();
            return Ok(Place::Done);
        }
        let (name_length, _) = field(line)?;
        if names::is_barred_behind(&line[..name_length]) {
            return Err(Refusal::Trailer);
        }
        self.line.clear();
        Ok(Place::Trailer)
    }
}

/// The size with one more digit, below 2^63.
fn append_digit(size: u64, digit: u32) -> Option<u64> {
    let size = size.checked_mul(16)?.checked_add(u64::from(digit))?;
    (size <= i64::MAX as u64).then_some(size)
}
