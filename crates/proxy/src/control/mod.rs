//! The control plane: follows the ring and keeps the cores informed. One thread with a small tokio runtime.

pub mod state;

pub use state::{ClusterState, ControlRequest, CoreMail};
