//! Tests of the whole state machine.

pub(crate) use crate::weakened::Without;

mod bounds;
mod grace;
mod histories;
mod model;
mod modes;
mod released_for;
mod semantics;
mod store;
mod unneeded;
mod world;
