//! Turns of handshakes beside a thread that serves HTTP. A handshake costs as much as hundreds of
//! requests: without turns of their own, clients that begin one after another would keep everybody
//! else waiting.
//!
//! A step of a handshake runs on a thread for blocking work, while the serving thread goes on. Few
//! steps run at a time, and one for each client's address, so that addresses take turns.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shunt_reactor::ClientHost;
use tokio::sync::Semaphore;

/// Steps of handshakes that run at a time.
const STEPS_MAX: usize = 2;

/// Turns of one listener's handshakes.
pub struct Turns {
    all: Arc<Semaphore>,
    addresses: Arc<Addresses>,
}

/// Addresses whose clients run a step, or wait for one.
#[derive(Default)]
struct Addresses(Mutex<HashMap<ClientHost, Address>>);

/// An address with clients.
struct Address {
    turn: Arc<Semaphore>,
    clients: usize,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClientHost, Address>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(STEPS_MAX)), addresses: Arc::default() }
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
        let client = Client::new(&self.addresses, ClientHost::counted(address));
        // The semaphores are never closed.
        let own = Arc::clone(&client.turn).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        let run = move || {
            let result = step();
            // The step runs to its end, and has its turn until then, even if its client has left
            // meanwhile.
            drop(client);
            drop((own, all));
            result
        };
        tokio::task::spawn_blocking(run).await.ok()
    }

    #[cfg(test)]
    pub(crate) fn addresses_count(&self) -> usize {
        self.addresses.lock().len()
    }
}

/// A client that waits for its turn, or has it.
struct Client {
    addresses: Arc<Addresses>,
    address: ClientHost,
    turn: Arc<Semaphore>,
}

impl Client {
    fn new(addresses: &Arc<Addresses>, address: ClientHost) -> Self {
        let mut all = addresses.lock();
        let entry = all.entry(address);
        let entry =
            entry.or_insert_with(|| Address { turn: Arc::new(Semaphore::new(1)), clients: 0 });
        entry.clients += 1;
        let turn = Arc::clone(&entry.turn);
        Self { addresses: Arc::clone(addresses), address, turn }
    }
}

impl Drop for Client {
    /// Forgets the address with its last client.
    fn drop(&mut self) {
        let mut all = self.addresses.lock();
        if let Some(entry) = all.get_mut(&self.address) {
            entry.clients -= 1;
            if entry.clients == 0 {
                all.remove(&self.address);
            }
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

    #[tokio::test]
    async fn a_client_that_leaves_within_its_step_keeps_its_turn_to_the_end() {
        let turns = Arc::<Turns>::default();
        let (started, names) = channel();
        let next = async || loop {
            match names.try_recv() {
                Ok(name) => return name,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let (leaving, end_leaving) = begin(&turns, "10.0.0.1", "leaving", &started);
        assert_eq!(next().await, "leaving");
        leaving.abort();
        assert!(leaving.await.is_err_and(|error| error.is_cancelled()));
        let (second, end_second) = begin(&turns, "10.0.0.1", "second", &started);
        tokio::task::yield_now().await;
        let (other, end_other) = begin(&turns, "10.0.0.2", "other", &started);
        assert_eq!(next().await, "other", "the address has a step already");
        drop((end_leaving, end_second, end_other));
        assert_eq!(next().await, "second");
        assert_eq!((second.await.expect("none"), other.await.expect("none")), (Some(()), Some(())));
        assert_eq!(turns.addresses_count(), 0, "no address is kept");
    }
}
