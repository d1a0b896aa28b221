//! Wraps any service and asserts the promises of `Service` at every callback.

use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use std::collections::HashMap;

/// A service whose callbacks are checked: no callback for a connection that is not open,
/// `connected` and `accepted` once and first, unconsumed bytes come again in front, nothing is
/// presented while paused.
pub struct Checked<S> {
    pub inner: S,
    /// Bytes last presented and not consumed, by open connection.
    known: HashMap<ConnId, Known>,
    /// Ends of connections that the service did not choose.
    pub closed: Vec<(ConnId, CloseReason)>,
}

#[derive(Default)]
struct Known {
    open: bool,
    rest: Vec<u8>,
}

impl<S> Checked<S> {
    pub fn new(inner: S) -> Self {
        Checked { inner, known: HashMap::new(), closed: Vec::new() }
    }

    fn must_be_open(&self, io: &Io, conn: ConnId, what: &str) {
        assert!(io.is_open(conn), "{what} for {conn:?}, which is not open");
        assert!(
            self.known.get(&conn).is_some_and(|known| known.open),
            "{what} for {conn:?}, not announced"
        );
    }
}

impl<S: Service> Service for Checked<S> {
    type Mail = S::Mail;

    fn started(&mut self, io: &mut Io) {
        self.inner.started(io);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        assert!(io.is_open(conn));
        let known = Known { open: true, rest: Vec::new() };
        assert!(self.known.insert(conn, known).is_none(), "{conn:?} was used before");
        self.inner.accepted(io, conn, origin);
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        assert!(io.is_open(conn));
        let known = Known { open: true, rest: Vec::new() };
        assert!(self.known.insert(conn, known).is_none(), "{conn:?} connected twice");
        self.inner.connected(io, conn);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        self.must_be_open(io, conn, "received");
        assert!(!io.is_paused(conn), "presented while paused");
        let known = self.known.get_mut(&conn).unwrap();
        assert!(!data.is_empty() && data.starts_with(&known.rest), "kept bytes did not come again");
        let consumed = self.inner.received(io, conn, data);
        let known = self.known.get_mut(&conn).unwrap();
        known.rest.clear();
        known.rest.extend_from_slice(&data[consumed..]);
        consumed
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        assert!(io.is_open(conn), "the id is valid during closed()");
        let was_open = self.known.entry(conn).or_default().open;
        let connecting = matches!(
            reason,
            CloseReason::ConnectFailed(_)
                | CloseReason::ConnectTimedOut
                | CloseReason::HandshakeEnded
        );
        assert_eq!(was_open, !connecting, "{conn:?} {reason:?}");
        self.known.get_mut(&conn).unwrap().open = false;
        self.closed.push((conn, reason));
        self.inner.closed(io, conn, reason);
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        assert!(io.is_open(conn));
        self.inner.drained(io, conn);
    }

    fn frozen(&mut self, io: &mut Io, conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        self.must_be_open(io, conn, "frozen");
        if let Ok(frozen) = &outcome {
            let known = self.known.get_mut(&conn).unwrap();
            known.open = false;
            assert!(
                frozen.unread.starts_with(&known.rest),
                "what was not consumed is not the first that is unread"
            );
        }
        self.inner.frozen(io, conn, outcome);
    }

    fn restored(&mut self, io: &mut Io, conn: ConnId) {
        assert!(io.is_open(conn));
        let known = Known { open: true, rest: Vec::new() };
        assert!(self.known.insert(conn, known).is_none(), "{conn:?} was used before");
        self.inner.restored(io, conn);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        self.inner.timer(io, key);
    }

    fn mail(&mut self, io: &mut Io, mail: S::Mail) {
        self.inner.mail(io, mail);
    }

    fn turn_ended(&mut self, io: &mut Io) {
        self.inner.turn_ended(io);
    }
}
