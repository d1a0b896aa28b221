//! Statements as lists: what goes in, what must be known of it.

mod key_terms;
mod kinds;
mod never_panics;
mod repeatability;
mod routing_keys;
mod selections;
