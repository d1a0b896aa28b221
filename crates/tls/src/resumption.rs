//! Sessions that the connecting side can resume, each for as long as the certificate is valid that
//! its server showed.
//!
//! ```text
//! connection -- its ConnectionStore, which learns the expiry --> Sessions of the configuration
//! ```
//! A resumed session shows no certificate, and counts as expired with that of its first handshake.
//! Without the expiry, connections to a server with a renewed certificate would go on resuming
//! sessions of the former one, and would all fail once that expires. rustls does not show a store
//! the certificates of its sessions: each connection has a store that learns its own.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
    UnbufferedClientConnection,
};
use rustls::time_provider::TimeProvider;
use rustls::unbuffered::{UnbufferedConnectionCommon, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, NamedGroup};
use rustls_pki_types::{CertificateDer, ServerName};

use crate::certificate;
use crate::session::{Connection, HELD_BYTES_MAX};

/// Most servers whose sessions are kept.
const SERVERS_MAX: usize = 256;
/// Most tickets of TLS 1.3 that are kept of a server.
const TICKETS_MAX: usize = 8;

/// Time until which a connection's sessions can be resumed, in seconds of the Unix epoch. Empty
/// until its handshake is over.
type Expiry = Arc<OnceLock<i64>>;

/// A session that can be resumed.
struct Resumable<T> {
    session: T,
    expiry: Expiry,
}

impl<T> Resumable<T> {
    fn is_valid(&self, now_s: i64) -> bool {
        self.expiry.get().is_some_and(|expiry_s| *expiry_s >= now_s)
    }
}

/// Sessions with one server.
#[derive(Default)]
struct ServerSessions {
    group: Option<NamedGroup>,
    tls12: Option<Resumable<Tls12ClientSessionValue>>,
    /// Tickets of TLS 1.3, the oldest first.
    tls13: VecDeque<Resumable<Tls13ClientSessionValue>>,
}

#[derive(Default)]
struct Servers {
    by_name: HashMap<ServerName<'static>, ServerSessions>,
    /// Their names, the oldest first.
    names: VecDeque<ServerName<'static>>,
}

impl Servers {
    /// The sessions with a server. A new one makes the oldest go when there are too many.
    fn entry(&mut self, name: ServerName<'static>) -> &mut ServerSessions {
        if !self.by_name.contains_key(&name) {
            self.names.push_back(name.clone());
            if self.names.len() > SERVERS_MAX
                && let Some(oldest) = self.names.pop_front()
            {
                self.by_name.remove(&oldest);
            }
        }
        self.by_name.entry(name).or_default()
    }
}

/// Sessions of all connections of a configuration.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Servers>);

impl Sessions {
    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions, as one connection takes one and adds its own.
struct ConnectionStore {
    sessions: Arc<Sessions>,
    expiry: Expiry,
    time: Arc<dyn TimeProvider>,
}

impl fmt::Debug for ConnectionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionStore").field("expiry", &self.expiry).finish_non_exhaustive()
    }
}

impl ConnectionStore {
    fn now_s(&self) -> i64 {
        let now_s = self.time.current_time().map_or(u64::MAX, |time| time.as_secs());
        i64::try_from(now_s).unwrap_or(i64::MAX)
    }
}

impl ClientSessionStore for ConnectionStore {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.sessions.servers().entry(server).group = Some(group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.sessions.servers().by_name.get(&server.to_owned())?.group
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        let expiry = Arc::clone(&self.expiry);
        self.sessions.servers().entry(server).tls12 = Some(Resumable { session, expiry });
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let mut servers = self.sessions.servers();
        let found = &mut servers.by_name.get_mut(&server.to_owned())?.tls12;
        if found.as_ref().is_some_and(|found| !found.is_valid(self.now_s())) {
            *found = None;
        }
        found.as_ref().map(|found| found.session.clone())
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        if let Some(sessions) = self.sessions.servers().by_name.get_mut(server) {
            sessions.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, session: Tls13ClientSessionValue) {
        let mut servers = self.sessions.servers();
        let tickets = &mut servers.entry(server).tls13;
        if tickets.len() >= TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(Resumable { session, expiry: Arc::clone(&self.expiry) });
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut servers = self.sessions.servers();
        let tickets = &mut servers.by_name.get_mut(server)?.tls13;
        let now_s = self.now_s();
        while let Some(ticket) = tickets.pop_back() {
            if ticket.is_valid(now_s) {
                return Some(ticket.session);
            }
        }
        None
    }
}

/// A connection of the connecting side, with the store that it takes sessions from.
pub(crate) struct ClientConnection {
    connection: UnbufferedClientConnection,
    store: Arc<ConnectionStore>,
}

impl ClientConnection {
    /// A connection to a server. It resumes one of these sessions if one is valid.
    pub(crate) fn new(
        config: &ClientConfig,
        sessions: &Arc<Sessions>,
        server: ServerName<'static>,
    ) -> Result<Self, Error> {
        let store = Arc::new(ConnectionStore {
            sessions: Arc::clone(sessions),
            expiry: Expiry::default(),
            time: Arc::clone(&config.time_provider),
        });
        let mut config = config.clone();
        config.resumption = Resumption::store(Arc::<ConnectionStore>::clone(&store));
        let connection = UnbufferedClientConnection::new(config.into(), server)?;
        Ok(Self { connection, store })
    }
}

impl Connection for ClientConnection {
    type Data = rustls::client::ClientConnectionData;

    /// Servers send tickets, which may contain the client's chain.
    const REST_HELD_BYTES_MAX: usize = HELD_BYTES_MAX;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.connection.process_tls_records(bytes)
    }

    fn common(&self) -> &CommonState {
        let common: &UnbufferedConnectionCommon<_> = &self.connection;
        common.deref()
    }

    fn take_server_name(&mut self) -> Option<Box<str>> {
        None
    }

    fn now_s(&self) -> i64 {
        self.store.now_s()
    }

    fn handshake_done(&self, verified: Option<&CertificateDer<'_>>) {
        // Without verification, no certificate matters.
        let expiry_s = verified.map_or(Some(i64::MAX), certificate::expiry_s);
        if let Some(expiry_s) = expiry_s {
            let _ = self.store.expiry.set(expiry_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::time_provider::DefaultTimeProvider;

    use super::*;

    #[test]
    fn servers_are_forgotten_beyond_a_number_the_oldest_first() {
        let store = ConnectionStore {
            sessions: Arc::default(),
            expiry: Expiry::default(),
            time: Arc::new(DefaultTimeProvider),
        };
        let name =
            |number: usize| ServerName::try_from(format!("node-{number}.example")).expect("a name");
        let note = |number| store.set_kx_hint(name(number), NamedGroup::X25519);
        (0..SERVERS_MAX).for_each(note);
        note(0);
        let has = |number| store.kx_hint(&name(number)).is_some();
        assert!((0..SERVERS_MAX).all(has));
        note(SERVERS_MAX);
        assert!(!has(0) && (1..=SERVERS_MAX).all(has));
        let servers = store.sessions.servers();
        assert_eq!((servers.by_name.len(), servers.names.len()), (SERVERS_MAX, SERVERS_MAX));
    }
}
