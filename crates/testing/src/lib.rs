//! The CQL client of the tests. Only a dev-dependency: the product speaks CQL through separate
//! code, whose faults this client must find.
//!
//! ```text
//!  blocking::Client (TcpStream)      ─┐
//!  simulated::Client (sim world)     ─┼─ Client (bytes in, answers out) ─ wire
//!  a test's own Service with a load  ─┘
//!  bytes: requests as bytes, valid and deliberately invalid
//!  Watched: any Service in the sim world with counted allocations
//! ```
//!
//! [`Client`] does no I/O. It opens a connection according to its [`Handshake`] (STARTUP, login,
//! REGISTER, USE, PREPARE), then frames requests and parses answers as agreed by both sides: bare,
//! with compressed bodies, or in segments. A test that needs invalid input writes its own bytes.

pub mod answer;
pub mod blocking;
pub mod bytes;
pub mod client;
pub mod handshake;
pub mod simulated;
pub mod counting_service;

pub use answer::{Answer, Rows, Statement, number};
pub use client::{Client, Step};
pub use counting_service::Watched;
pub use handshake::Handshake;
