//! Decoder of sortable keys.

use num_bigint::BigInt;

use super::encode::{LONG_VARINT, POSITIVE, SHORT_VARINT_MAX, ZERO};
use super::header;
use crate::ast::NativeType;
use crate::types::CqlType;
use crate::values::compare::{timeuuid_from_order, uuid_from_order};
use crate::values::number::Decimal;
use crate::values::split;

/// Up to this many zeros at the end of a whole `decimal` are written as digits, more as an
/// exponent.
const WHOLE_ZEROS_MAX: u32 = 18;

/// Decodes the component at the front of `input`, advances `input` and appends the value to `out`;
/// `None` without a component, with `out` unchanged.
pub fn decode(
    cql_type: &CqlType,
    descending: bool,
    input: &mut &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    let mut reader = Reader { input, mask: if descending { 0xFF } else { 0 } };
    let value = reader.value(cql_type)??;
    *input = reader.input;
    out.extend_from_slice(&value);
    Some(())
}

/// Reader of bytes that may be inverted.
struct Reader<'a> {
    input: &'a [u8],
    mask: u8,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.input.split_first()?;
        self.input = rest;
        Some(byte ^ self.mask)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.input.split_first_chunk::<N>()?;
        self.input = rest;
        Some(bytes.map(|byte| byte ^ self.mask))
    }

    /// `Some(None)` is null.
    fn value(&mut self, cql_type: &CqlType) -> Option<Option<Vec<u8>>> {
        match self.byte()? {
            header::NULL => Some(None),
            header::EMPTY => Some(Some(Vec::new())),
            header::VALUE => self.body(cql_type).map(Some),
            _ => None,
        }
    }

    fn body(&mut self, cql_type: &CqlType) -> Option<Vec<u8>> {
        match cql_type {
            CqlType::Native(native) => self.native(*native),
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                self.collection(&[element])
            }
            CqlType::Map { key, value, .. } => self.collection(&[key, value]),
            CqlType::Tuple(types) => {
                let elements = types.iter().map(|cql_type| self.value(cql_type));
                Some(split::join_tuple(elements.collect::<Option<Vec<_>>>()?))
            }
            CqlType::Udt { definition, .. } => {
                let elements = definition.fields.iter().map(|(_, cql_type)| self.value(cql_type));
                Some(split::join_tuple(elements.collect::<Option<Vec<_>>>()?))
            }
            CqlType::Vector { element, dimension } => {
                let elements = (0..*dimension).map(|_| self.value(element)?);
                Some(split::join_vector(element, elements.collect::<Option<Vec<_>>>()?))
            }
            CqlType::Custom(_) => self.escaped(),
        }
    }

    fn native(&mut self, native: NativeType) -> Option<Vec<u8>> {
        Some(match native {
            NativeType::Tinyint => self.signed::<1>()?.to_vec(),
            NativeType::Smallint => self.signed::<2>()?.to_vec(),
            NativeType::Int => self.signed::<4>()?.to_vec(),
            NativeType::Bigint | NativeType::Counter | NativeType::Timestamp => {
                self.signed::<8>()?.to_vec()
            }
            NativeType::Date => self.array::<4>()?.to_vec(),
            NativeType::Time => self.array::<8>()?.to_vec(),
            NativeType::Boolean => self.array::<1>()?.to_vec(),
            NativeType::Float => {
                let bits = u32::from_be_bytes(self.array()?);
                (if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits }).to_be_bytes().to_vec()
            }
            NativeType::Double => {
                let bits = u64::from_be_bytes(self.array()?);
                (if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits }).to_be_bytes().to_vec()
            }
            NativeType::Uuid => {
                let version = self.byte()?;
                let most = u64::from_be_bytes(self.array()?);
                uuid_from_order(version, most, u64::from_be_bytes(self.array()?)).to_vec()
            }
            NativeType::Timeuuid => {
                timeuuid_from_order(u128::from_be_bytes(self.array()?)).to_vec()
            }
            NativeType::Varint => self.varint()?,
            NativeType::Decimal => self.decimal()?.encode(),
            NativeType::Ascii
            | NativeType::Blob
            | NativeType::Duration
            | NativeType::Inet
            | NativeType::Text => self.escaped()?,
        })
    }

    fn signed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = self.array::<N>()?;
        if let Some(first) = bytes.first_mut() {
            *first ^= 0x80;
        }
        Some(bytes)
    }

    fn escaped(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        loop {
            let byte = self.byte()?;
            if byte == 0 && self.byte()? == 0 {
                return Some(value);
            }
            value.push(byte);
        }
    }

    fn varint(&mut self) -> Option<Vec<u8>> {
        let first = self.byte()?;
        let negative = first < 0x80;
        let inverted = if negative { 0xFF } else { 0 };
        let length = match first ^ inverted {
            LONG_VARINT => {
                usize::try_from(u32::from_be_bytes(self.array()?.map(|byte: u8| byte ^ inverted)))
                    .ok()?
            }
            short => usize::from(short - 0x80),
        };
        if length == 0 || (first ^ inverted != LONG_VARINT && length > SHORT_VARINT_MAX) {
            return None;
        }
        let (bytes, rest) = self.input.split_at_checked(length)?;
        self.input = rest;
        Some(bytes.iter().map(|byte| byte ^ self.mask).collect())
    }

    fn decimal(&mut self) -> Option<Decimal> {
        let sign = self.byte()?;
        if sign == ZERO {
            return Some(Decimal { unscaled: BigInt::ZERO, scale: 0 });
        }
        let inverted = if sign == POSITIVE { 0 } else { 0xFF };
        let mut exponent = self.array::<8>()?.map(|byte| byte ^ inverted);
        exponent[0] ^= 0x80;
        let mut digits = String::new();
        loop {
            match self.byte()? ^ inverted {
                0 => break,
                pair if pair <= 100 => digits.extend([
                    char::from(b'0' + (pair - 1) / 10),
                    char::from(b'0' + (pair - 1) % 10),
                ]),
                _ => return None,
            }
        }
        let digits = digits.trim_end_matches('0');
        let unscaled: BigInt = digits.parse().ok()?;
        let scale = i64::try_from(digits.len()).ok()?.checked_sub(i64::from_be_bytes(exponent))?;
        let unscaled = if sign == POSITIVE { unscaled } else { -unscaled };
        // A whole number of usual size is written without an exponent: 100 rather than 1E+2.
        if let Ok(zeros @ 1..=WHOLE_ZEROS_MAX) = u32::try_from(-scale) {
            return Some(Decimal { unscaled: unscaled * BigInt::from(10).pow(zeros), scale: 0 });
        }
        // Without its trailing zeros a huge number may need an unsupported scale: it gets some of
        // them back.
        let missing = u32::try_from(i64::from(i32::MIN).saturating_sub(scale).max(0))
            .ok()
            .filter(|zeros| *zeros <= 1 << 20)?;
        let unscaled = unscaled * BigInt::from(10).pow(missing);
        let scale = i32::try_from(scale + i64::from(missing)).ok()?;
        Some(Decimal { unscaled, scale })
    }

    fn collection(&mut self, types: &[&CqlType]) -> Option<Vec<u8>> {
        let mut elements = Vec::new();
        let mut types_in_turn = types.iter().cycle();
        while self.input.first()? ^ self.mask != header::END {
            elements.push(self.value(types_in_turn.next()?)??);
        }
        self.byte()?;
        Some(split::join_collection(elements.len() / types.len().max(1), elements))
    }
}
