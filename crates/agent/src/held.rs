//! Connections to the server that exchanges have, by the addresses of their clients. They are
//! counted as they come and go: counting them anew for each freed connection would take the longer
//! the more there are.

use std::collections::HashMap;

use shunt_handover::turns::ClientKey;

/// Connections of one kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    sum: usize,
    by_client: HashMap<ClientKey, usize>,
}

impl Counts {
    /// Connections of all clients.
    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// Connections of one client.
    pub(crate) fn of(&self, client: ClientKey) -> usize {
        self.by_client.get(&client).copied().unwrap_or(0)
    }

    /// Clients that have connections.
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientKey> {
        self.by_client.keys().copied()
    }

    /// Number of clients that have connections.
    pub(crate) fn clients_count(&self) -> usize {
        self.by_client.len()
    }

    fn add(&mut self, client: ClientKey) {
        self.sum += 1;
        *self.by_client.entry(client).or_default() += 1;
    }

    fn remove(&mut self, client: ClientKey) {
        let Some(count) = self.by_client.get_mut(&client) else { return };
        self.sum -= 1;
        *count -= 1;
        if *count == 0 {
            self.by_client.remove(&client);
        }
    }
}

/// Connections that exchanges have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Connections of all exchanges.
    pub(crate) all: Counts,
    /// Connections of exchanges with incomplete requests.
    pub(crate) uploads: Counts,
}

impl Held {
    /// An exchange of this client has got a connection.
    pub(crate) fn add(&mut self, client: ClientKey, is_upload: bool) {
        self.all.add(client);
        if is_upload {
            self.uploads.add(client);
        }
    }

    /// An exchange of this client has lost its connection.
    pub(crate) fn remove(&mut self, client: ClientKey, is_upload: bool) {
        self.all.remove(client);
        if is_upload {
            self.uploads.remove(client);
        }
    }

    /// The request of an exchange that has a connection is complete.
    pub(crate) fn complete(&mut self, client: ClientKey) {
        self.uploads.remove(client);
    }
}
