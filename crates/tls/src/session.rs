//! A session over one of rustls' unbuffered connections. The loop's buffers carry records and
//! plaintext. The session itself holds bytes only during the handshake, and while a message of the
//! peer's is spread over several records.

use std::mem::{self, size_of};
use std::ops::Deref;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedConnectionCommon,
    UnbufferedStatus,
};
use rustls::{CommonState, HandshakeKind, ProtocolVersion};
use rustls_pki_types::CertificateDer;
use shunt_reactor::{Opened, PeerName, Session, SessionFault, SessionInfo};

use crate::{certificate, fault, names};

/// Most plaintext of one record (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 16_384;

/// More than header, explicit nonce, type and tag of any record take.
const RECORD_OVERHEAD: usize = 64;

/// Most bytes that a session holds, during its handshake, of messages that its peer spreads over
/// several records. rustls takes messages of 64 KiB.
pub(crate) const HELD_BYTES_MAX: usize = 32 << 10;

/// Memory that rustls has for a connection after its handshake, beside the session itself.
const CONNECTION_BYTES: usize = 2_300;

/// One side of a connection, as rustls has it.
pub(crate) trait Connection: Send {
    /// Data that rustls keeps for this side.
    type Data;

    /// Most bytes that a session holds after its handshake.
    const REST_HELD_BYTES_MAX: usize;

    /// Takes a step. See [`UnbufferedConnectionCommon::process_tls_records`].
    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Facts about the connection.
    fn common(&self) -> &CommonState;

    /// Name that the client has asked for in the records just processed.
    fn take_server_name(&mut self) -> Option<Box<str>>;

    /// Time by which certificates are judged, in seconds of the Unix epoch.
    fn now_s(&self) -> i64 {
        certificate::now_s()
    }

    /// The handshake is over; `verified` is the certificate that proves the names of the peer.
    fn handshake_done(&self, _verified: Option<&CertificateDer<'_>>) {}
}

impl Connection for UnbufferedServerConnection {
    type Data = rustls::server::ServerConnectionData;

    /// Clients send updates of keys, which are 5 bytes long, and nothing else.
    const REST_HELD_BYTES_MAX: usize = 1 << 10;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn common(&self) -> &CommonState {
        let common: &UnbufferedConnectionCommon<_> = self;
        common.deref()
    }

    fn take_server_name(&mut self) -> Option<Box<str>> {
        names::take_server_name()
    }
}

/// One side of a TLS connection.
pub(crate) struct TlsSession<C> {
    connection: C,
    /// True if the certificate of the peer proves its names.
    verifies_names: bool,
    handshaking: bool,
    /// The peer sends nothing more.
    peer_ended: bool,
    /// This side sends nothing more.
    ended: bool,
    fault: Option<SessionFault>,
    pending: Vec<u8>,
    /// Records with a message of the handshake protocol that is not complete yet, and all bytes
    /// after them. rustls has decrypted them in place and knows its position in them, so that it
    /// must see these bytes at every call.
    held: Vec<u8>,
    /// Bytes of `held` that are whole records.
    held_whole: usize,
    info: SessionInfo,
}

impl<C: Connection> TlsSession<C> {
    /// A session at the start of its handshake. A client's first message is pending at once.
    pub(crate) fn new(connection: C, verifies_names: bool) -> TlsSession<C> {
        let mut session = TlsSession {
            connection,
            verifies_names,
            handshaking: true,
            peer_ended: false,
            ended: false,
            fault: None,
            pending: Vec::new(),
            held: Vec::new(),
            held_whole: 0,
            info: SessionInfo::default(),
        };
        if let Err(fault) = session.process(&mut [], &mut Vec::new()) {
            session.fault = Some(fault);
        }
        session
    }

    /// Has rustls process as much of `bytes` as it can. Returns how many of them it is done with.
    fn process(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> Result<usize, SessionFault> {
        let mut done = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process(&mut bytes[done..]);
            let mut discard = discard;
            let mut blocked = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|error| fault::of(&error))?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, &mut self.pending)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => {
                    self.peer_ended = true;
                    blocked = true;
                }
                Ok(
                    ConnectionState::BlockedHandshake
                    | ConnectionState::WriteTraffic(_)
                    | ConnectionState::Closed,
                ) => blocked = true,
                Ok(_) => return Err(SessionFault("the peer sent early data")),
                Err(error) => {
                    done += discard;
                    self.queue_alert(&mut bytes[done..]);
                    return Err(fault::of(&error));
                }
            }
            done += discard;
            if blocked {
                return Ok(done);
            }
        }
    }

    /// Moves what rustls has queued at a failure to the pending bytes. `bytes` are those that it
    /// saw when it failed.
    fn queue_alert(&mut self, bytes: &mut [u8]) {
        while self.connection.common().wants_write() {
            match self.connection.process(bytes).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, &mut self.pending)
                }
                _ => return,
            }
        }
    }

    /// Processes what the session holds with `received` behind it.
    fn process_held(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Opened, SessionFault> {
        let mut held = mem::take(&mut self.held);
        held.extend_from_slice(received);
        let whole = self.held_whole + whole_records(&held[self.held_whole..]);
        let done = self.process(&mut held, plain)?;
        if self.peer_ended || done == held.len() {
            return Ok(Opened { consumed: received.len(), ended: self.peer_ended });
        }
        held.drain(..done);
        if done >= whole && held.len() <= received.len() {
            // The message is complete. The start of a record behind it stays with the loop.
            return Ok(Opened { consumed: received.len() - held.len(), ended: false });
        }
        self.hold(held, whole.saturating_sub(done))?;
        Ok(Opened { consumed: received.len(), ended: false })
    }

    /// Keeps bytes that rustls must see again. The first `whole` of them are whole records.
    fn hold(&mut self, mut bytes: Vec<u8>, whole: usize) -> Result<(), SessionFault> {
        let is_handshaking = self.connection.common().is_handshaking();
        let most = if is_handshaking { HELD_BYTES_MAX } else { C::REST_HELD_BYTES_MAX };
        if bytes.len() > most {
            return Err(SessionFault("the peer sent a handshake message that is too long"));
        }
        bytes.shrink_to(most);
        self.held = bytes;
        self.held_whole = whole;
        Ok(())
    }

    /// Takes the facts of the handshake when it is over.
    fn complete(&mut self) -> Result<(), SessionFault> {
        if let Some(name) = self.connection.take_server_name() {
            self.info.server_name = Some(name);
        }
        let common = self.connection.common();
        self.info.resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
        let leaf = common.peer_certificates().and_then(<[_]>::first);
        let leaf = leaf.filter(|_| self.verifies_names);
        // rustls does not look at the certificate of a resumed session again. The first flight
        // would bring the client a new ticket with the old certificate: it could never come back.
        let has_expired = |leaf| certificate::has_expired(leaf, self.connection.now_s());
        if self.info.resumed && leaf.is_some_and(has_expired) {
            self.pending = Vec::new();
            return Err(fault::EXPIRED);
        }
        if common.is_handshaking() {
            return Ok(());
        }
        self.info.version = match common.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "",
        };
        let suite = common.negotiated_cipher_suite();
        self.info.cipher = suite.and_then(|suite| suite.suite().as_str()).unwrap_or_default();
        self.connection.handshake_done(leaf);
        if let Some(leaf) = leaf {
            self.info.peer_names = names::of_certificate(leaf);
        }
        self.handshaking = false;
        Ok(())
    }

    /// Remembers a fault for later calls.
    fn fail(&mut self, fault: SessionFault) -> SessionFault {
        self.held = Vec::new();
        self.fault = Some(fault);
        fault
    }
}

impl<C: Connection> Session for TlsSession<C> {
    fn open(&mut self, received: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, SessionFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.peer_ended {
            return Ok(Opened { consumed: received.len(), ended: true });
        }
        let start = plain.len();
        let result = if self.held.is_empty() {
            let whole = whole_records(received);
            self.process(received, plain).and_then(|done| {
                let rest = &received[done..];
                if self.peer_ended {
                    Ok(Opened { consumed: received.len(), ended: true })
                } else if done < whole {
                    // rustls leaves whole records only if it must see these bytes again.
                    self.hold(rest.to_vec(), whole - done)?;
                    Ok(Opened { consumed: received.len(), ended: false })
                } else {
                    Ok(Opened { consumed: done, ended: false })
                }
            })
        } else {
            self.process_held(received, plain)
        };
        if self.handshaking
            && let Err(fault) = self.complete()
            && result.is_ok()
        {
            plain.truncate(start);
            return Err(self.fail(fault));
        }
        result.map_err(|fault| self.fail(fault))
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionFault> {
        // Records bear numbers: those that exist go first.
        self.take_pending(out);
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.handshaking {
            return Err(SessionFault("the handshake is not over"));
        }
        if self.ended {
            return Err(SessionFault("the session has ended"));
        }
        if plain.is_empty() {
            return Ok(());
        }
        let mut start = out.len();
        let records = plain.len().div_ceil(RECORD_BYTES_MAX);
        let mut size = plain.len() + records * RECORD_OVERHEAD;
        loop {
            match self.connection.process(&mut self.held).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    out.resize(start + size, 0);
                    match traffic.encrypt(plain, &mut out[start..]) {
                        Ok(written) => {
                            out.truncate(start + written);
                            return Ok(());
                        }
                        Err(EncryptError::InsufficientSize(least)) => size = least.required_size,
                        Err(EncryptError::EncryptExhausted) => break,
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    out.truncate(start);
                    encode(&mut data, out);
                    start = out.len();
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                _ => break,
            }
        }
        out.truncate(start);
        // rustls renews the keys of TLS 1.3.
        let version = self.connection.common().protocol_version();
        Err(self.fail(match version {
            Some(ProtocolVersion::TLSv1_2) => fault::KEYS_USED_UP,
            _ => SessionFault("the session has used up its keys"),
        }))
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn take_pending(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&mem::take(&mut self.pending));
    }

    fn is_handshaking(&self) -> bool {
        self.handshaking
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.take_pending(out);
        if self.handshaking || self.ended || self.fault.is_some() {
            return;
        }
        self.ended = true;
        let start = out.len();
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            self.connection.process(&mut self.held).state
        {
            let mut size = RECORD_OVERHEAD;
            loop {
                out.resize(start + size, 0);
                match traffic.queue_close_notify(&mut out[start..]) {
                    Ok(written) => return out.truncate(start + written),
                    Err(EncryptError::InsufficientSize(least)) => size = least.required_size,
                    Err(EncryptError::EncryptExhausted) => break,
                }
            }
        }
        out.truncate(start);
    }

    fn info(&self) -> &SessionInfo {
        &self.info
    }

    fn bytes(&self) -> usize {
        let names = self.info.peer_names.iter().map(|name| name.text.len() + size_of::<PeerName>());
        size_of::<Self>()
            + CONNECTION_BYTES
            + self.pending.capacity()
            + self.held.capacity()
            + names.sum::<usize>()
    }
}

/// Appends a message that rustls has ready.
fn encode<D>(data: &mut EncodeTlsData<'_, D>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(least)) = data.encode(&mut []) {
        out.resize(start + least.required_size, 0);
        let written = data.encode(&mut out[start..]).unwrap_or_default();
        out.truncate(start + written);
    }
}

/// Length of the whole records at the start of `bytes`.
fn whole_records(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [_, _, _, high, low, content @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(behind) = content.get(length..) else { break };
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// A session that cannot begin, such as one with a node whose name no certificate can have.
pub(crate) struct FaultySession(pub(crate) SessionFault, pub(crate) SessionInfo);

impl Session for FaultySession {
    fn open(&mut self, _: &mut [u8], _: &mut Vec<u8>) -> Result<Opened, SessionFault> {
        Err(self.0)
    }

    fn seal(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), SessionFault> {
        Err(self.0)
    }

    fn has_pending(&self) -> bool {
        false
    }

    fn take_pending(&mut self, _: &mut Vec<u8>) {}

    fn is_handshaking(&self) -> bool {
        true
    }

    fn end(&mut self, _: &mut Vec<u8>) {}

    fn info(&self) -> &SessionInfo {
        &self.1
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
