//! The dispatcher: clients connect to it, and agents beside the servers answer.
//!
//! ```text
//! client ── request ──> intake ── REQUEST, BODY, END ──> agent (a control connection for each backend)
//!        <── answer ──                 <── RESPONSE, BODY, END
//! ```
//! Requests of one connection are carried out one after the other, so that answers are in order.
//! Those that only read go to the backend with the fewest requests in flight, all others to the
//! first backend, the primary. How fast either side sends is bounded by credit, so that a slow
//! client or server holds up nobody else.
//!
//! | file | what is there |
//! |---|---|
//! | `service.rs` | events of the loop, and what time brings |
//! | `intake.rs` | requests: read, checked, sent to a backend |
//! | `links.rs` | control connections: made, kept, lost |
//! | `heard.rs` | messages of agents |
//! | `answer.rs` | answers on their way to clients |
//! | `failing.rs` | exchanges that have failed: again elsewhere, or an error |
//! | `reply.rs` | answers of our own, all of them errors |
//! | `weight.rs`, `crowd.rs` | what all clients take up together, and what is done when that is too much |
//! | `policy.rs` | whether an answer goes over the client's own connection |
//! | `moved.rs` | connections that are with agents, or on their way |
//! | `metrics.rs`, `admin.rs` | what is seen from outside |
//! | `state.rs` | what there is of each |

mod admin;
mod answer;
mod crowd;
mod failing;
mod heard;
mod intake;
mod limits;
mod links;
mod metrics;
mod moved;
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
pub use options::{DispatchOptions, Random};
pub use policy::Handover;
pub use service::DispatchMail;
pub use shunt_handover::{Anywhere, Steer};
pub use state::Dispatcher;
