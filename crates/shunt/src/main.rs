//! The shunt binary.
fn main() {}
