//! The CQL client of the tests. Only a dev-dependency: what users run speaks CQL through code of
//! its own, which this client is to find faults in.
//!
//! ```text
//!  blocking::Client (TcpStream)      ─┐
//!  simulated::Client (sim world)     ─┼─ Client (bytes in, answers out) ─ wire
//!  a test's own Service with a load  ─┘
//!  bytes: requests as bytes, right and deliberately wrong
//!  Watched: any Service in the sim world, its allocations counted
//! ```
//!
//! [`Client`] does no I/O. It opens a connection as its [`Handshake`] says (STARTUP, login,
//! REGISTER, USE, PREPARE) and then frames requests and takes answers apart as the two sides
//! agreed: bare, with compressed bodies, or in segments. A test that wants to go wrong at any of
//! this writes its own bytes.

pub mod answer;
pub mod blocking;
pub mod bytes;
pub mod client;
pub mod handshake;
pub mod simulated;
pub mod watched;

pub use answer::{Answer, Rows, Statement, number};
pub use client::{Client, Step};
pub use handshake::Handshake;
pub use watched::Watched;
