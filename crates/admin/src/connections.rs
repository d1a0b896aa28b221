//! The connections of the pages, and which of them give way: when there are too many, and when
//! clients leave too much unread. An answer may have megabytes, and a client may read none of it.
//!
//! The host with the most gives way, so that no host keeps others from the pages.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::task::{AbortHandle, yield_now};

use crate::listeners::Peer;

/// Turns of other tasks for which an answer waits, so that those that were cut off are freed.
const TURNS_MAX: usize = 16;

/// The host to which shares count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Host {
    /// All clients at the Unix socket. Programs of this machine that may not open that socket must
    /// not keep its owner from the pages, so it is a host of its own. The first variant: of two
    /// hosts with equally many, the last in this order gives way.
    Owner,
    /// An address. A host of IPv6 has 64 bits of addresses.
    Address(IpAddr),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    host: Host,
    /// The head of its request has arrived.
    has_asked: AtomicBool,
    /// Bytes of its answer.
    bytes: AtomicUsize,
    is_cut_off: AtomicBool,
    task: OnceLock<AbortHandle>,
}

impl Connection {
    /// The host of the client.
    pub(crate) fn host(&self) -> Host {
        self.host
    }

    /// Notes the task that serves the connection.
    pub(crate) fn is_served_by(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// Notes that the head of the request has arrived.
    pub(crate) fn ask(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.task.get().is_some_and(AbortHandle::is_finished)
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::Relaxed);
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    connections_max: usize,
    /// Bytes of all answers that their clients have not read to the end.
    bytes_max: usize,
    /// The oldest first.
    open: Mutex<VecDeque<Arc<Connection>>>,
}

impl Connections {
    pub(crate) fn new(connections_max: usize, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { connections_max, bytes_max, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection of a peer. If there are too many, it closes one of the host with the
    /// most: the oldest that has sent no request, or else the oldest.
    pub(crate) fn add(&self, peer: Peer) -> Arc<Connection> {
        let new = Arc::new(Connection {
            host: host(peer),
            has_asked: AtomicBool::new(false),
            bytes: AtomicUsize::new(0),
            is_cut_off: AtomicBool::new(false),
            task: OnceLock::new(),
        });
        let mut open = self.open();
        if open.len() >= self.connections_max {
            open.retain(|connection| !connection.has_ended());
        }
        if open.len() >= self.connections_max {
            let all = open.iter().chain([&new]).map(|connection| (connection.host, 1));
            let largest = host_with_most(all);
            let of_host = |one: &Arc<Connection>| Some(one.host) == largest;
            let is_silent = |one: &Arc<Connection>| !one.has_asked.load(Ordering::Relaxed);
            let silent = open.iter().position(|one| of_host(one) && is_silent(one));
            let oldest = silent.or_else(|| open.iter().position(of_host)).unwrap_or(0);
            if let Some(connection) = open.remove(oldest) {
                connection.cut_off();
            }
        }
        open.push_back(Arc::clone(&new));
        new
    }

    /// Waits until the answers of connections that were cut off are freed.
    pub(crate) async fn wait_for_room(&self) {
        for _ in 0..TURNS_MAX {
            let bytes = {
                let open = self.open();
                let held = open.iter().filter(|connection| !connection.has_ended());
                held.map(|connection| connection.bytes()).sum::<usize>()
            };
            if bytes <= self.bytes_max {
                return;
            }
            yield_now().await;
        }
    }

    /// Notes the bytes of a connection's answer. While there are too many in all, it cuts off the
    /// oldest of the other connections of the host with the most.
    pub(crate) fn answers(&self, connection: &Arc<Connection>, bytes: usize) {
        connection.bytes.store(bytes, Ordering::Relaxed);
        let mut open = self.open();
        open.retain(|connection| !connection.has_ended());
        let holds =
            |one: &&Arc<Connection>| one.bytes() > 0 && !one.is_cut_off.load(Ordering::Relaxed);
        let mut sum: usize = open.iter().filter(holds).map(|one| one.bytes()).sum();
        let is_other = |one: &&Arc<Connection>| !Arc::ptr_eq(one, connection);
        while sum > self.bytes_max {
            let others = || open.iter().filter(holds).filter(is_other);
            let largest = host_with_most(others().map(|one| (one.host, one.bytes())));
            let Some(oldest) = others().find(|one| Some(one.host) == largest) else { return };
            oldest.cut_off();
            sum -= oldest.bytes();
        }
    }
}

/// The host of a peer.
pub(crate) fn host(peer: Peer) -> Host {
    if peer.is_owner {
        return Host::Owner;
    }
    Host::Address(network(peer.address))
}

/// The host to which shares count: a host of IPv6 has 64 bits of addresses.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The host with the largest sum.
fn host_with_most(all: impl Iterator<Item = (Host, usize)>) -> Option<Host> {
    let mut sums = HashMap::<Host, usize>::new();
    all.for_each(|(host, number)| *sums.entry(host).or_default() += number);
    sums.into_iter().max_by_key(|(host, sum)| (*sum, *host)).map(|(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: [u8; 4] = [192, 0, 2, 1];
    const THERE: [u8; 4] = [192, 0, 2, 2];

    fn opened(connections: &Connections) -> (Arc<Connection>, tokio::task::JoinHandle<()>) {
        opened_from(connections, at(HERE))
    }

    fn at(address: [u8; 4]) -> Peer {
        Peer { address: address.into(), is_owner: false }
    }

    /// A connection whose task waits for ever.
    fn opened_from(
        connections: &Connections,
        peer: Peer,
    ) -> (Arc<Connection>, tokio::task::JoinHandle<()>) {
        let connection = connections.add(peer);
        let task = tokio::spawn(std::future::pending());
        connection.is_served_by(task.abort_handle());
        (connection, task)
    }

    #[tokio::test]
    async fn the_oldest_answers_give_way() {
        let connections = Connections::new(512, 100);
        let all: Vec<_> = (0..10).map(|_| opened(&connections)).collect();
        for (connection, _) in &all {
            connections.answers(connection, 30);
        }
        connections.wait_for_room().await;
        let ended: Vec<bool> = all.iter().map(|(connection, _)| connection.has_ended()).collect();
        assert_eq!(ended, [&[true; 7][..], &[false; 3]].concat());
        // An answer that is larger than all may be leaves the others nothing.
        connections.answers(&all[8].0, 200);
        connections.wait_for_room().await;
        let left: Vec<usize> = (0..10).filter(|index| !all[*index].0.has_ended()).collect();
        assert_eq!(left, [8]);
    }

    #[tokio::test]
    async fn a_silent_connection_gives_way_before_one_that_has_asked() {
        let connections = Connections::new(2, 100);
        let (asks, silent) = (opened(&connections), opened(&connections));
        asks.0.ask();
        let third = opened(&connections);
        assert!(silent.1.await.is_err_and(|error| error.is_cancelled()));
        third.0.ask();
        let _fourth = opened(&connections);
        assert!(asks.1.await.is_err_and(|error| error.is_cancelled()), "the oldest");
        assert!(!third.0.has_ended());
    }

    #[tokio::test]
    async fn a_host_with_many_connections_pushes_out_its_own() {
        let connections = Connections::new(20, 100);
        let there = || opened_from(&connections, at(THERE));
        let (one, other) = (there(), there());
        one.0.ask();
        connections.answers(&one.0, 40);
        // All have asked, and the other one of the other host has not yet.
        for _ in 0..100 {
            let (connection, _) = opened(&connections);
            connection.ask();
            connections.answers(&connection, 30);
            connections.wait_for_room().await;
        }
        let live = || {
            let open = connections.open();
            let live = open.iter().filter(|connection| !connection.has_ended());
            (live.clone().count(), live.map(|connection| connection.bytes()).sum::<usize>())
        };
        assert_eq!(live(), (4, 100));
        for _ in 0..100 {
            opened(&connections).0.ask();
        }
        tokio::task::yield_now().await;
        assert_eq!(live().0, 20);
        assert!(!one.0.has_ended() && !other.0.has_ended());
    }

    /// Every program of this machine may use the port, with the address that the owner's
    /// connections have too.
    #[tokio::test]
    async fn programs_of_this_machine_do_not_push_out_the_owner() {
        const LOCAL: [u8; 4] = [127, 0, 0, 1];
        let owner = Peer { is_owner: true, ..at(LOCAL) };
        let connections = Connections::new(4, 100);
        let first = opened_from(&connections, owner);
        connections.answers(&first.0, 30);
        for _ in 0..20 {
            let (connection, _) = opened_from(&connections, at(LOCAL));
            connection.ask();
            connections.answers(&connection, 30);
            connections.wait_for_room().await;
        }
        let second = opened_from(&connections, owner);
        let _another = opened_from(&connections, at(LOCAL));
        tokio::task::yield_now().await;
        assert!(!first.0.has_ended() && !second.0.has_ended());
    }
}
