//! The agent: it stands beside a stock HTTP server on the same host and answers the requests of
//! dispatchers.
//!
//! ```text
//! dispatcher ── control connection ──> session ── request ──> pool ── connection ──> stock server
//!            <── RESPONSE, BODY, END ──          <── answer ─────────────────────────
//! ```
//! One session for each control connection, one exchange for each request of it, at most one
//! exchange at a time on each connection to the server. An answer whose size says so is offered
//! before any of it is sent: whoever owns the client's connection decides how it goes there.
//!
//! | file | what is there |
//! |---|---|
//! | `service.rs` | events of the loop, and what time brings |
//! | `session.rs` | control connections: the handshake, and messages out |
//! | `owner.rs` | messages in |
//! | `request.rs` | requests on their way to the server |
//! | `pool.rs`, `uploads.rs` | connections to the server, and who waits for one |
//! | `answer.rs`, `pace.rs` | answers on their way back, and which clients take them slowly |
//! | `taken.rs`, `carry.rs` | clients' connections that dispatchers have given: what is to be done, and that it is done |
//! | `own.rs` | which of their packets are let in |
//! | `link.rs`, `kept.rs` | with `--protocol cql`: proxies' links to the server, and large answers that left them |
//! | `metrics.rs`, `admin.rs` | what is seen from outside |
//! | `state.rs` | what there is of each |

mod admin;
mod answer;
mod ask;
mod carry;
mod kept;
mod limits;
mod link;
mod metrics;
mod options;
mod own;
mod owner;
mod pace;
mod pool;
mod request;
mod segments;
mod service;
mod session;
mod state;
mod taken;
mod uploads;

pub use admin::AgentAdmin;
pub use metrics::{Left, Metrics, Taken, Way, Why};
pub use options::{AgentOptions, Random};
pub use own::{Anywhere, Own};
pub use service::AgentMail;
pub use state::Agent;
