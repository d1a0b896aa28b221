//! The proxy: CQL clients in front, nodes behind.
//!
//! ```text
//! client bytes -> accept -> decode -> route -> aggregate -> node link -> [storage node]
//! client bytes <- reply  <- disaggregate    <-------------- node link <-
//! ```
//!
//! Each step is the module of that name; read in this order they follow one query. One [`core::Core`] per event loop
//! owns everything a query touches; nothing is shared between cores on the data path. What is cold lies beside it:
//! logging in and USE ([`auth`]), being closed ([`closing`]), what the system tables show ([`system_tables`]) and whose
//! pages they are ([`local_pages`]), second attempts ([`repair`], [`reprepare`]). The control plane ([`control`]) watches
//! the ring and posts what changed.

mod accept;
mod decode;
mod route;
mod aggregate;
mod node;
mod disaggregate;
mod reply;

mod auth;
mod client;
mod closing;
mod failure;
mod learn;
mod local_pages;
mod repair;
mod repeat;
mod reprepare;
mod schema_change;
mod system_tables;
mod who;

pub mod census;
pub mod core;
pub mod limits;
pub mod log_limits;
pub mod prepared;

pub mod admin;
pub mod config;
pub mod control;
pub mod metrics;
