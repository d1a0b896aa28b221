//! Sessions against each other and against plain rustls, and against peers that break the protocol.

mod authority;
mod chains;
mod client_certificates;
mod early_data;
mod exhaustion;
mod files;
mod handshake;
mod hostility;
mod issuers;
mod link;
mod memory;
mod records;
mod reload;
mod renewal;
mod resumption;
mod stream;
mod tickets;
mod updates;
