//! The proxies of a fleet, and what each does for the others.
//!
//! | module | subject |
//! |---|---|
//! | [`clock`] | how far this proxy's clock is behind the nodes' |
//! | [`cores`] | messages between the cores of this process |
//! | [`notices`] | notices between the core that runs the membership and the cores that keep locks |
//! | [`levels`] | consistency levels of the fleet's statements, and the clocks of a lease |
//! | [`membership`] | this proxy's place in the fleet: its lease, its state file, its shards |
//! | [`forwarding`] | connections to the other proxies, and requests that go there |
//! | [`requests`] | clients' requests on locks and transactions that are not answered yet |
//! | [`rights`] | rights of clients' roles, which nodes decide |
//! | [`role_shares`] | room for requests that wait, of which one role gets half |
//! | [`roster`] | the live proxies, as drivers see them in `system.peers` |
//! | [`statements`] | the proxy's own statements to nodes |

pub(crate) mod clock;
pub(crate) mod cores;
pub(crate) mod notices;
pub(crate) mod levels;
pub mod membership;
pub(crate) mod forwarding;
pub(crate) mod requests;
pub(crate) mod rights;
pub(crate) mod role_shares;
pub mod roster;
pub(crate) mod statements;
