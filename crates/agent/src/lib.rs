//! The agent: runs beside a stock HTTP server on the same host and answers dispatchers' requests.
//!
//! ```text
//! dispatcher ── control connection ──> session ── request ──> pool ── connection ──> stock server
//!            <── RESPONSE, BODY, END ──          <── answer ─────────────────────────
//! ```
//! Each control connection has one session, each of its requests one exchange, and each connection
//! to the server at most one exchange at a time. An answer known to be large is offered before any
//! of it is sent: the owner of the client's connection decides how it reaches the client.
//!
//! | file | content |
//! |---|---|
//! | `service.rs` | events of the loop, deadlines |
//! | `session.rs` | control connections: the handshake, and messages out |
//! | `owner.rs` | messages in |
//! | `request.rs` | requests on their way to the server |
//! | `pool.rs`, `line.rs`, `uploads.rs`, `shares.rs` | connections to the server, the lines for them, and the shares of clients |
//! | `answer.rs`, `pace.rs` | answers on their way back, and which clients are slow |
//! | `connections.rs`, `effects.rs` | clients' connections that dispatchers have given: decisions, and their execution |
//! | `packet_filter.rs` | which of their packets are let in |
//! | `link.rs`, `offers.rs` | with `--protocol cql`: proxies' links to the server, and large answers that left them |
//! | `metrics.rs`, `admin.rs` | metrics and status |
//! | `log_limits.rs` | limits on log lines that others cause |
//! | `state.rs` | the state of all of these |

mod admin;
mod answer;
mod ask;
mod effects;
mod held;
mod offers;
mod limits;
mod line;
mod link;
mod log_limits;
mod metrics;
mod options;
mod packet_filter;
mod owner;
mod pace;
mod pool;
mod request;
mod segments;
mod service;
mod session;
mod shares;
mod state;
mod connections;
mod uploads;

pub use admin::AgentAdmin;
pub use metrics::{Left, Metrics, Taken, Way, Why};
pub use options::{AgentOptions, Random};
pub use packet_filter::{Anywhere, PacketFilter};
pub use service::AgentMail;
pub use state::Agent;
