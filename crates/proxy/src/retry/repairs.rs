//! Requests whose statement is being prepared again, with bounds on their memory.

use std::collections::{BTreeMap, HashMap};

use crate::ids::{ClientRef, Ticket};
use crate::limits;
use crate::retry::Repair;

/// The repairs of a core. A client that sends large requests to a node that only answers UNPREPARED
/// fills its own share, not the memory of the process.
#[derive(Default)]
pub(crate) struct Repairs {
    by_ticket: BTreeMap<Ticket, Repair>,
    /// Bytes of all repairs, and of each client with repairs.
    bytes: usize,
    bytes_of: HashMap<ClientRef, usize>,
}

impl Repairs {
    /// True if one more request of this client, with this many bytes, may wait.
    pub(crate) fn has_room(&self, client: ClientRef, bytes: usize) -> bool {
        let of_client = self.bytes_of.get(&client).copied().unwrap_or(0);
        self.by_ticket.len() < limits::REPAIRS_MAX
            && self.bytes + bytes <= limits::REPAIRS_BYTES_MAX
            && (of_client == 0 || of_client + bytes <= limits::REPAIRS_CLIENT_BYTES_MAX)
    }

    /// Adds a waiting request.
    pub(crate) fn insert(&mut self, ticket: Ticket, repair: Repair) {
        self.remove(ticket);
        let (client, bytes) = (repair.pending.client, repair.bytes());
        self.bytes += bytes;
        *self.bytes_of.entry(client).or_insert(0) += bytes;
        self.by_ticket.insert(ticket, repair);
    }

    /// Removes a waiting request.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Repair> {
        let repair = self.by_ticket.remove(&ticket)?;
        let bytes = repair.bytes();
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(of_client) = self.bytes_of.get_mut(&repair.pending.client) {
            *of_client = of_client.saturating_sub(bytes);
            if *of_client == 0 {
                self.bytes_of.remove(&repair.pending.client);
            }
        }
        Some(repair)
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Repair> {
        self.by_ticket.get(&ticket)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &Repair)> {
        self.by_ticket.iter().map(|(ticket, repair)| (*ticket, repair))
    }
}
