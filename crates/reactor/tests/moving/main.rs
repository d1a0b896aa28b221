//! Connections of real sockets that move: read out of the kernel and recreated, in a separate
//! network namespace, or passed on as descriptors.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

mod support;

mod ends;
mod traffic;
mod twin;
