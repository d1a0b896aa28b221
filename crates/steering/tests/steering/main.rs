//! The programs alone, between real hosts: network namespaces on a bridge. The tests need root,
//! `ip` of iproute2, and a build with clang; if something is missing, they print `skipped:` and its
//! name.

#![expect(clippy::disallowed_methods, reason = "tests wait for what the kernel does")]

mod connections;
mod multigets;
mod network;
