//! Shared by the tests of the simulated driver: a wrapper that checks the contract of every
//! callback, an echo server for length-prefixed frames, and a client that knows what must come
//! back.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod checked;
pub mod echo;
pub mod pair;
pub mod script;
pub mod station;
