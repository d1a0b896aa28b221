//! The programs alone, between real hosts: network namespaces on a bridge. It takes root, `ip` of
//! iproute2, and a build with clang; where something is missing, the tests say `skipped:` and what.

#![expect(clippy::disallowed_methods, reason = "tests wait for what the kernel does")]

mod connections;
mod multigets;
mod network;
