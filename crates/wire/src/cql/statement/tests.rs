//! Tables of statements and the facts expected of them.

mod key_terms;
mod kinds;
mod never_panics;
mod redactions;
mod repeatability;
mod routing_keys;
mod selections;
