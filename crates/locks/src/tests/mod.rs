//! Tests of the whole.

pub(crate) use crate::weakened::Without;

mod bounds;
mod given_back;
mod histories;
mod model;
mod semantics;
mod store;
mod world;
