//! The whole state at one moment: proxies, the fleet's row, clients, rows.

use super::store::{Rows, Store};

pub(super) const CLIENTS_MAX: usize = 3;
pub(super) const PROXIES: usize = 2;

/// Operation that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Acquire { shared: bool, waits: bool },
    Renew { longer: bool },
    Release,
}

/// An unanswered request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) proxy: u8,
    pub(super) operation: Operation,
    /// Ticks since it was sent.
    pub(super) age: u8,
}

/// An answer that a client has no reason to doubt yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    pub(super) shared: bool,
    pub(super) fence: i32,
    /// Ticks until its time is over, counted from the request.
    pub(super) left: u8,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    pub(super) pending: Option<Pending>,
    pub(super) belief: Option<Belief>,
    /// The latest fence that it was told.
    pub(super) heard: i32,
    /// Requests that it has made.
    pub(super) asked: u8,
}

/// A proxy's knowledge of the shard, and the fleet's of the proxy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Proxy {
    /// State of its [`crate::Locks`], by number.
    pub(super) machine: u32,
    /// The core has drained the shard for a hand-over: its last token, and whether no memory lock
    /// is held.
    pub(super) drained: Option<(i32, bool)>,
    /// Ticks for which forgotten memory locks may still be held.
    pub(super) forgotten: u8,
    /// First replica's answer to its reading.
    pub(super) read: Option<(u8, Rows)>,
    /// The fleet has declared its incarnation dead, and it does not know.
    pub(super) dead: bool,
    /// Ticks of its lease.
    pub(super) lease: u8,
    /// Limit of its tokens, by its row.
    pub(super) limit: i32,
}

/// Owner of the shard in the fleet's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Proxy(u8),
    /// An incarnation whose process has ended on the host of this proxy, the rest of its lease, and
    /// its limit.
    Ended(u8, u8, i32),
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) proxies: [Proxy; PROXIES],
    pub(super) owner: Owner,
    pub(super) floor: i32,
    pub(super) take_overs: u8,
    pub(super) faults: u8,
    pub(super) clients: [Client; CLIENTS_MAX],
    pub(super) store: Store,
    /// Highest fences told to an exclusive holder, and to any.
    pub(super) highest: (i32, i32),
}

impl State {
    /// Sorts the replicas, which differ only by their rows.
    pub(super) fn order_replicas(&mut self) {
        let asked = |replica: usize, state: &Self| {
            state
                .proxies
                .map(|proxy| proxy.read.is_some_and(|(first, _)| usize::from(first) == replica))
        };
        if self.store.replicas.is_sorted() && self.proxies.iter().all(|proxy| proxy.read.is_none())
        {
            return;
        }
        let mut order: Vec<usize> = (0..self.store.replicas.len()).collect();
        order.sort_by_key(|replica| (self.store.replicas[*replica], asked(*replica, self)));
        if order.is_sorted() {
            return;
        }
        self.store.replicas = order.iter().map(|replica| self.store.replicas[*replica]).collect();
        for proxy in &mut self.proxies {
            if let Some((first, _)) = &mut proxy.read {
                *first =
                    order.iter().position(|replica| *replica == usize::from(*first)).unwrap_or(0)
                        as u8;
            }
        }
    }

    /// Encodes everything that matters for future events.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        for proxy in &self.proxies {
            put(out, proxy.machine as i32);
            let (last, empty) = proxy.drained.unwrap_or((-1, false));
            put(out, last);
            out.extend([u8::from(empty), proxy.forgotten, u8::from(proxy.dead), proxy.lease]);
            put(out, proxy.limit);
            out.push(proxy.read.map_or(u8::MAX, |(replica, _)| replica));
            if let Some((_, rows)) = &proxy.read {
                put_rows(out, rows);
            }
        }
        let (host, lease, limit) = match self.owner {
            Owner::Proxy(proxy) => (proxy, u8::MAX, 0),
            Owner::Ended(host, lease, limit) => (host, lease, limit),
        };
        out.extend([host, lease, self.take_overs, self.faults]);
        for number in [limit, self.floor, self.highest.0, self.highest.1] {
            put(out, number);
        }
        for client in &self.clients {
            let operation = client.pending.map(|pending| match pending.operation {
                Operation::Acquire { shared, waits } => 1 + u8::from(shared) * 2 + u8::from(waits),
                Operation::Renew { longer } => 5 + u8::from(longer),
                Operation::Release => 7,
            });
            let (proxy, age) =
                client.pending.map_or((0, 0), |pending| (pending.proxy, pending.age));
            out.extend([operation.unwrap_or(0), proxy, age, client.asked]);
            put(out, client.heard);
            if let Some(Belief { shared, fence, left }) = client.belief {
                put(out, fence);
                out.extend([u8::from(shared), left]);
            } else {
                put(out, -1);
            }
        }
        for rows in &self.store.replicas {
            put_rows(out, rows);
        }
        for sent in &self.store.sent {
            out.extend([sent.slot, sent.times]);
            put_rows(out, &[sent.version]);
        }
    }
}

fn put(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_rows(out: &mut Vec<u8>, rows: &[super::store::Version]) {
    for row in rows {
        put(out, row.at);
        if row.at != 0 {
            put(out, row.token);
            put(out, row.ttl_ms as i32);
            out.push(row.owner);
        }
    }
}
