//! Tests of the library itself: with a directory `tests/` Cargo would link every target's program
//! for them.

mod corpus;
mod nesting;
