//! Serialized values: their validity, order, text and JSON.
//!
//! A value is its bytes in the native protocol (v5, section 6). An empty value is not null: most
//! types have one, and it sorts before all others.

mod compare;
mod contains;
mod duration;
mod float;
pub mod json;
mod normal;
mod number;
pub mod ordered;
pub mod split;
mod string;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod validate;

pub use compare::compare;
pub use contains::contains;
pub use duration::Duration;
pub use float::float_text;
pub use normal::normal;
pub(crate) use number::{DIGITS_MAX, count_digits, has_numbers, without_zeros};
pub use number::{Decimal, NUMBER_BYTES_MAX, check_numbers, decode_varint, encode_varint};
pub use string::from_string;
pub use text::{literal, plain_text};
pub use time::{TimeDependence, Timestamp, day_of_timestamp, timestamp_of_day};
pub(crate) use time::{add_months, month_of};
pub use validate::validate;
