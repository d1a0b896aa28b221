//! Transactions and recovery in a world of their own, from a seed.

mod early;
mod guards;
mod histories;
mod openings;
mod shards;
mod unlogged;
mod world;
