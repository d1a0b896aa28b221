//! Transactions and recovery in a world of their own, from a seed.

mod histories;
mod openings;
mod shards;
mod world;
