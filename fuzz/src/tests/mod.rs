//! Tests of the library itself: from a directory `tests/` Cargo would link every target's program.

mod corpus;
mod nesting;
