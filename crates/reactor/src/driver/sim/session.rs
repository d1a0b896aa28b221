//! The encryption of simulated connections: no secret, but as awkward as a real one may be. Records
//! are torn, padded, joined and numbered; the handshake takes three flights; a side may demand new
//! keys at any time, which the other must confirm. A record that is lost, repeated, cut or out of
//! order is a fault.

use super::random::Random;
use crate::session::{NameKind, Opened, PeerName, Session, SessionFault, SessionInfo};

/// Bytes before a record's content: kind, length, number.
const HEADER_BYTES: usize = 4;
/// Most bytes of content in one record, as in TLS.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Flights of the handshake: the client sends the first and the third.
const FLIGHTS: u8 = 3;

/// Kinds of records.
const HANDSHAKE: u8 = b'H';
const NAME: u8 = b'N';
const DATA: u8 = b'D';
const PADDING: u8 = b'P';
const NEW_KEYS: u8 = b'K';
const CONFIRMATION: u8 = b'C';
const END: u8 = b'E';

/// One side of a simulated encrypted connection.
pub struct TornSession {
    random: Random,
    /// Flights of the handshake sent and received.
    flights: u8,
    /// Numbers of the next records.
    sent: u8,
    received: u8,
    /// True from a demand for new keys until the other side has confirmed it.
    awaits_confirmation: bool,
    pending: Vec<u8>,
    /// Names of the peer, which its certificate would have.
    peer_names: Vec<PeerName>,
    info: SessionInfo,
}

impl TornSession {
    /// The accepting side of a peer whose certificate has these names.
    pub(super) fn accepting(random: Random, peer_names: Vec<PeerName>) -> TornSession {
        TornSession { peer_names, ..TornSession::new(random, false) }
    }

    /// The connecting side, which shows a certificate with this URI.
    pub fn showing(random: Random, uri: &str) -> TornSession {
        let mut session = TornSession::new(random, false);
        let mut pending = Vec::new();
        session.record(NAME, uri.as_bytes(), &mut pending);
        session.pending = pending;
        session.send_flight();
        session
    }

    /// A session that makes its random choices by `random`.
    pub fn new(random: Random, is_client: bool) -> TornSession {
        let mut session = TornSession {
            random,
            flights: 0,
            sent: 0,
            received: 0,
            awaits_confirmation: false,
            pending: Vec::new(),
            peer_names: Vec::new(),
            info: SessionInfo::default(),
        };
        if is_client {
            session.send_flight();
        }
        session
    }

    fn send_flight(&mut self) {
        self.flights += 1;
        let content = vec![self.flights; 1 + self.random.below(600) as usize];
        let mut pending = std::mem::take(&mut self.pending);
        // A flight is several records.
        let cut = self.random.index(content.len());
        [&content[..cut], &content[cut..]]
            .iter()
            .for_each(|part| self.record(HANDSHAKE, part, &mut pending));
        // The last byte of a flight has its own record, so that its end is known.
        self.record(HANDSHAKE, &[0], &mut pending);
        self.pending = pending;
        self.note_handshake();
    }

    fn note_handshake(&mut self) {
        if self.flights == FLIGHTS {
            let peer_names = std::mem::take(&mut self.peer_names);
            self.info =
                SessionInfo { version: "sim", cipher: "xor", peer_names, ..SessionInfo::default() };
        }
    }

    fn record(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) {
        let length = (content.len() as u16).to_be_bytes();
        out.extend_from_slice(&[kind, length[0], length[1], self.sent]);
        let number = self.sent;
        out.extend(content.iter().map(|byte| byte ^ number ^ 0x5a));
        self.sent = self.sent.wrapping_add(1);
    }

    fn take(
        &mut self,
        kind: u8,
        content: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, SessionFault> {
        match kind {
            NAME if self.flights == 0 => {
                let uri = str::from_utf8(content).map_err(|_| SessionFault("a name is no text"))?;
                self.peer_names = vec![PeerName::new(NameKind::Uri, uri)];
                Ok(false)
            }
            HANDSHAKE if self.flights == FLIGHTS => Err(SessionFault("a handshake came twice")),
            HANDSHAKE => {
                if content == [0] {
                    self.flights += 1;
                    self.note_handshake();
                    if self.flights < FLIGHTS {
                        self.send_flight();
                    }
                }
                Ok(false)
            }
            _ if self.flights < FLIGHTS => Err(SessionFault("data came before the handshake")),
            DATA => {
                plain.extend_from_slice(content);
                Ok(false)
            }
            PADDING => Ok(false),
            NEW_KEYS => {
                let mut pending = std::mem::take(&mut self.pending);
                self.record(CONFIRMATION, &[], &mut pending);
                self.pending = pending;
                Ok(false)
            }
            CONFIRMATION if std::mem::take(&mut self.awaits_confirmation) => Ok(false),
            END => Ok(true),
            _ => Err(SessionFault("a record has no known kind")),
        }
    }
}

impl Session for TornSession {
    fn open(&mut self, received: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, SessionFault> {
        let mut opened = Opened::default();
        while let Some((header, rest)) = received[opened.consumed..].split_at_checked(HEADER_BYTES)
        {
            let length = usize::from(u16::from_be_bytes([header[1], header[2]]));
            let (kind, number) = (header[0], header[3]);
            if length > RECORD_BYTES_MAX {
                return Err(SessionFault("a record is longer than records are"));
            }
            let Some(content) = rest.get(..length) else { break };
            if number != self.received {
                return Err(SessionFault("a record is missing or came twice"));
            }
            self.received = self.received.wrapping_add(1);
            let content: Vec<u8> = content.iter().map(|byte| byte ^ number ^ 0x5a).collect();
            opened.consumed += HEADER_BYTES + length;
            if self.take(kind, &content, plain)? {
                opened.ended = true;
                break;
            }
        }
        Ok(opened)
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionFault> {
        assert!(!self.is_handshaking(), "sealed before the end of the handshake");
        let mut rest = plain;
        while !rest.is_empty() {
            let bytes_max = if self.random.chance(0.5) { RECORD_BYTES_MAX } else { 300 };
            let count = 1 + self.random.index(rest.len().min(bytes_max));
            self.record(DATA, &rest[..count], out);
            rest = &rest[count..];
            if self.random.chance(0.1) {
                let padding = vec![0; self.random.index(40)];
                self.record(PADDING, &padding, out);
            }
            if self.random.chance(0.05) && !self.awaits_confirmation {
                self.awaits_confirmation = true;
                self.record(NEW_KEYS, &[], out);
            }
        }
        Ok(())
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn take_pending(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.pending);
    }

    fn is_handshaking(&self) -> bool {
        self.flights < FLIGHTS
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.record(END, &[], out);
    }

    fn info(&self) -> &SessionInfo {
        &self.info
    }

    fn bytes(&self) -> usize {
        size_of::<TornSession>() + self.pending.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries what is pending from one side to the other. True if there was something.
    fn carry(from: &mut TornSession, to: &mut TornSession) -> bool {
        let (mut bytes, mut plain) = (Vec::new(), Vec::new());
        from.take_pending(&mut bytes);
        let opened = to.open(&mut bytes, &mut plain).expect("records");
        assert_eq!((opened.consumed, plain.len()), (bytes.len(), 0));
        !bytes.is_empty()
    }

    #[test]
    fn a_certificate_that_a_session_shows_takes_the_place_of_the_hosts() {
        let host = PeerName::new(NameKind::Uri, "host:1");
        for (shown, expected) in
            [(None, host.clone()), (Some("a:1"), PeerName::new(NameKind::Uri, "a:1"))]
        {
            let mut server = TornSession::accepting(Random::new(1), vec![host.clone()]);
            let mut client = match shown {
                Some(uri) => TornSession::showing(Random::new(2), uri),
                None => TornSession::new(Random::new(2), true),
            };
            while carry(&mut client, &mut server) | carry(&mut server, &mut client) {}
            assert!(!client.is_handshaking() && !server.is_handshaking());
            assert_eq!(server.info().peer_names, [expected]);
        }
    }
}
