//! The options of the proxy, and its configuration with all defaults filled in.
//!
//! The list in `config/options.rs` declares each option once: its field of [`Config`], flag, help,
//! key, default, range, reload, and row of `docs/configuration.md`. The binary reads the file and
//! the flags (`crates/shunt/src/settings`). A reload sends cores a new `Arc<Config>`
//! (`CoreMail::Reload`).

mod kinds;
mod address;
mod admin_cql;
mod bounds;
mod certificate_name;
mod collector;
mod https;
mod identity;
mod identity_login;
mod member;
mod network;
mod rule;
mod tenant;
mod traces;
mod unix;
mod values;
mod option;
mod options;
mod role_password;
mod validate;

pub use address::{
    ADMIN_PORT, Admin, AdminAddress, Advertise, CQL_PORT, HttpAddress, LOCKS_HTTP_PORT, Listen,
    Listeners, LocksHttp, split_host_port,
};
pub use bounds::*;
pub use collector::Collector;
pub use identity::{Identities, Identity};
pub(crate) use identity::{Reading, takes_certificates};
pub use identity_login::{IdentityLogin, NodeCertificate, NodeSessions};
pub use kinds::{Bytes, Kind, List, Micros, Millis, Readable, Written};
pub use network::Network;
pub use option::{Allowed, Change, ConfigOption, DefaultText, Reloaded};
pub use options::{Config, OPTIONS};
pub(crate) use role_password::Candidates;
pub use role_password::RolePassword;
pub use rule::{Action, Pin, Rule, RuleActions, RuleList, RuleMatch};
pub(crate) use tenant::Subject;
pub use tenant::{Matches, OnExcess, Tenant, TenantLimits, TenantList};
pub use unix::{AdminCql, ListenAddress, Mode, Owner};
pub use validate::Problem;
pub(crate) use validate::reaches;
pub use values::{
    Aggregate, Commit, Credentials, Handover, Hedge, LogFormat, Multiget, Secret, Switch, Tls,
    Window, default_cores,
};
