//! Stub and load generator in the simulated world.

mod load;
mod locks;
mod stub;
mod talk;
mod transfers;
mod workloads;
