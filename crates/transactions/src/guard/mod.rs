//! Guards and idempotency keys: a transaction that is carried out only under a lock, or only once.
//!
//! | module | subject |
//! |---|---|
//! | [`request`] | guards and keys in the custom payload of a request |
//! | [`text`] | guards in the text of a statement |
//! | [`idempotency`] | the rows in which fences and outcomes are kept |
//! | [`fences`] | the fences that a core knows without reading them |

pub mod fences;
pub mod idempotency;
pub mod request;
pub mod text;
