//! Single statements that proxies decide, or observe, by the rows that a core knows.
//!
//! | module | subject |
//! |---|---|
//! | [`row`] | rows in memory, and for how long they count |
//! | [`doubt`] | rows that nodes write, and may write later |
//! | [`state`] | one statement while it is decided |

pub mod doubt;
pub mod row;
pub mod state;
