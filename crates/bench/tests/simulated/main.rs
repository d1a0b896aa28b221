//! Stub and load generator in the simulated world.

mod load;
mod stub;
mod talk;
mod workloads;
