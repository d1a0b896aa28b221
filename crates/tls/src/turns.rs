//! Turns of handshakes beside a thread that serves HTTP. A handshake costs as much as hundreds of
//! requests: without turns of their own, clients that begin one after another would keep everybody
//! else waiting.
//!
//! A step of a handshake runs on a thread for blocking work, while the serving thread goes on. Few
//! steps run at a time, and one for each client's address, so that addresses take turns.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// Steps of handshakes that run at a time.
const STEPS_MAX: usize = 2;

/// Turns of one listener's handshakes.
pub struct Turns {
    all: Arc<Semaphore>,
    /// Addresses whose clients run a step, or wait for one.
    addresses: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(STEPS_MAX)), addresses: Mutex::default() }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    /// Runs a step of the handshake of a client at this address, once it is its turn. `None` if the
    /// step has died.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        address: IpAddr,
        step: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        let waiting = Waiting::new(self, client_of(address));
        // The semaphores are never closed.
        let _own = waiting.own.acquire().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        let run = move || {
            let result = step();
            // The step runs to its end even if its client has left meanwhile.
            drop(all);
            result
        };
        tokio::task::spawn_blocking(run).await.ok()
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Semaphore>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn addresses_count(&self) -> usize {
        self.addresses().len()
    }
}

/// A client that waits for its turn, or has it.
struct Waiting<'t> {
    turns: &'t Turns,
    address: IpAddr,
    own: Arc<Semaphore>,
}

impl<'t> Waiting<'t> {
    fn new(turns: &'t Turns, address: IpAddr) -> Self {
        let own = Arc::clone(
            turns.addresses().entry(address).or_insert_with(|| Arc::new(Semaphore::new(1))),
        );
        Self { turns, address, own }
    }
}

impl Drop for Waiting<'_> {
    /// Forgets the address with its last client.
    fn drop(&mut self) {
        let mut addresses = self.turns.addresses();
        // The map and this client have one each.
        if Arc::strong_count(&self.own) <= 2 {
            addresses.remove(&self.address);
        }
    }
}

/// The client behind an address: an IPv4 address, or the 64 bits of an IPv6 address that name a
/// network.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Begins a step that runs until its channel is closed; it says its name when it starts.
    fn begin(
        turns: &Arc<Turns>,
        address: &str,
        name: &'static str,
        started: &Sender<&'static str>,
    ) -> (tokio::task::JoinHandle<Option<()>>, Sender<()>) {
        let (turns, address) = (Arc::clone(turns), address.parse().expect("an address"));
        let (end, ended): (Sender<()>, Receiver<()>) = channel();
        let started = started.clone();
        let step = move || {
            started.send(name).expect("it is listened to");
            let _ = ended.recv();
        };
        (tokio::spawn(async move { turns.run(address, step).await }), end)
    }

    #[tokio::test]
    async fn an_address_that_floods_delays_its_own_clients_alone() {
        let turns = Arc::<Turns>::default();
        let (started, names) = channel();
        let next = async || loop {
            match names.try_recv() {
                Ok(name) => return name,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let (first, end_first) = begin(&turns, "10.0.0.1", "first", &started);
        assert_eq!(next().await, "first");
        let flood: Vec<_> = (0..50).map(|_| begin(&turns, "10.0.0.1", "flood", &started)).collect();
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        let (other, end_other) = begin(&turns, "10.0.0.2", "other", &started);
        assert_eq!(next().await, "other", "the flood waits for its own address");
        assert_eq!(turns.addresses_count(), 2);
        drop((end_first, end_other));
        for (task, end) in flood {
            drop(end);
            assert_eq!(task.await.expect("no panic"), Some(()));
        }
        assert_eq!((first.await.expect("none"), other.await.expect("none")), (Some(()), Some(())));
        assert_eq!(turns.addresses_count(), 0, "no address is kept");
    }

    #[tokio::test]
    async fn a_client_that_leaves_gives_its_turn_back() {
        let turns = Arc::<Turns>::default();
        let (started, _names) = channel();
        let (first, end_first) = begin(&turns, "10.0.0.1", "first", &started);
        let (leaving, _end) = begin(&turns, "10.0.0.1", "leaving", &started);
        tokio::task::yield_now().await;
        leaving.abort();
        assert!(leaving.await.is_err_and(|error| error.is_cancelled()));
        drop(end_first);
        assert_eq!(first.await.expect("no panic"), Some(()));
        assert_eq!(turns.addresses_count(), 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| client_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
