//! The dispatcher: clients connect to it, and agents beside the servers answer.
//!
//! ```text
//! client ── request ──> intake ── REQUEST, BODY, END ──> agent (a control connection for each backend)
//!        <── answer ──                 <── RESPONSE, BODY, END
//! ```
//! The dispatcher carries out the requests of one connection one after the other, so that answers
//! are in order. Requests that only read go to the backend with the fewest requests in flight, all
//! others to the first backend, the primary. Credit bounds how fast either side sends, so that a
//! slow client or server holds up no other.
//!
//! | file | content |
//! |---|---|
//! | `service.rs` | events of the loop, deadlines |
//! | `intake.rs` | requests: read, checked, sent to a backend |
//! | `links.rs` | control connections: opening, keeping, losing them |
//! | `messages.rs` | messages of agents |
//! | `answer.rs` | answers on their way to clients |
//! | `resume.rs`, `rest.rs` | the rest of an answer that broke off, from another backend |
//! | `failing.rs` | failed exchanges: a second backend, or an error |
//! | `reply.rs` | answers that the dispatcher makes itself, all of them errors |
//! | `weight.rs`, `crowd.rs` | memory of all clients together, and its limit |
//! | `policy.rs` | whether an answer goes over the client's own connection |
//! | `handover.rs` | connections that are with agents, or on their way |
//! | `metrics.rs`, `admin.rs` | metrics and status |
//! | `state.rs` | the state of all of these |

mod admin;
mod answer;
mod crowd;
mod failing;
mod messages;
mod intake;
mod limits;
mod links;
mod metrics;
mod handover;
mod options;
mod policy;
mod reply;
mod rest;
mod resume;
mod service;
mod state;
mod weight;

pub use admin::DispatchAdmin;
pub use metrics::{BackendMetrics, Ended, Metrics, Way, Why};
pub use options::{AgentTls, DispatchOptions, Random};
pub use policy::Handover;
pub use service::DispatchMail;
pub use shunt_handover::{Anywhere, Steer};
pub use state::Dispatcher;
