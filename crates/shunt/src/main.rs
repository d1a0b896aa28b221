//! The shunt binary.
mod settings;
fn main() {}
