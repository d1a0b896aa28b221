//! One CQL connection of the control plane: one request at a time, events in between.
//!
//! It has no task: the caller that awaits it drives it. Reading appends to a buffer of the
//! connection, so a cancelled read (in `select!`) loses nothing.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use shunt_wire::cql::envelope::{EVENT_STREAM, Header, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::{ErrorMessage, split_response_prefix};
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::error::DecodeError;
use tokio::time::timeout;

use super::access::Access;
use super::channel::Channel;
use super::error::ControlError;

/// Largest answer accepted: a page of a system table is far below.
const BODY_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Events kept while a request is being answered; a node that sends more is broken.
const EVENTS_MAX: usize = 65_536;
/// Type of a TLS record with an alert (RFC 8446, 5.1). No version of CQL has this number.
const TLS_ALERT: u8 = 0x15;

/// A message of the node.
#[derive(Debug)]
pub(super) struct Message {
    /// Version of the answer.
    pub(super) version: u8,
    /// Opcode of the message.
    pub(super) opcode: u8,
    stream: i16,
    /// Body without tracing id, warnings and custom payload.
    pub(super) body: Vec<u8>,
}

impl Message {
    fn new(header: &Header, body: &[u8]) -> Result<Message, DecodeError> {
        let (_, body) = split_response_prefix(header.flags, body)?;
        let Header { version, opcode, stream, .. } = *header;
        Ok(Message { version, opcode, stream, body: body.to_vec() })
    }

    /// True for an ERROR on stream 0, which no request uses: Cassandra sends it if it could not
    /// read a request up to the stream id, for example one of an unknown version.
    fn is_early_refusal(&self) -> bool {
        self.stream == 0 && self.opcode == opcode::ERROR
    }

    /// Converts the node's ERROR; any other message is an unexpected answer to `asked`.
    pub(super) fn refusal(&self, asked: &'static str) -> ControlError {
        if self.opcode != opcode::ERROR {
            return ControlError::Unexpected { asked, opcode: self.opcode };
        }
        match ErrorMessage::decode(self.version, &self.body) {
            Ok(error) => ControlError::Node { code: error.code, message: error.message.to_owned() },
            Err(error) => error.into(),
        }
    }
}

/// An open connection, in any state from connected to closed.
#[derive(Debug)]
pub(super) struct Connection {
    channel: Channel,
    /// The way in which the server was reached.
    pub(super) access: Access,
    /// The address connected to.
    pub(super) address: SocketAddr,
    /// Protocol version, 3 to 5.
    pub(super) version: u8,
    reader: EnvelopeReader,
    /// Received bytes, not yet parsed.
    received: Vec<u8>,
    events: VecDeque<Vec<u8>>,
    last_stream: i16,
}

impl Connection {
    /// Opens a connection, with TLS if `access` has it.
    pub(super) async fn open(
        address: SocketAddr,
        version: u8,
        access: &Access,
    ) -> Result<Self, ControlError> {
        Ok(Self {
            channel: Channel::open(address, access).await?,
            access: access.clone(),
            address,
            version,
            reader: EnvelopeReader::default(),
            received: Vec::new(),
            events: VecDeque::new(),
            last_stream: 0,
        })
    }

    /// Switches both sides to segments (v5, section 2.3.1: after the answer to STARTUP).
    pub(super) fn start_framing(&mut self) {
        if self.version >= 5 {
            self.reader.start_segments(false);
        }
    }

    /// Sends a request and waits for its answer of any kind. Keeps events that arrive meanwhile.
    /// `name` appears in the error when `limit` expires; the caller must then drop the connection.
    pub(super) async fn request(
        &mut self,
        opcode: u8,
        body: &[u8],
        name: &'static str,
        limit: Duration,
    ) -> Result<Message, ControlError> {
        let exchange = async {
            let stream = self.send(opcode, body).await?;
            loop {
                match self.next_message().await? {
                    message if message.stream == stream || message.is_early_refusal() => {
                        return Ok(message);
                    }
                    message => self.keep_event(message)?,
                }
            }
        };
        timeout(limit, exchange).await.map_err(|_| ControlError::TimedOut(name))?
    }

    /// The body of the next EVENT. Waits without limit; may be cancelled at any moment.
    pub(super) async fn next_event(&mut self) -> Result<Vec<u8>, ControlError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let message = self.next_message().await?;
            self.keep_event(message)?;
        }
    }

    fn keep_event(&mut self, message: Message) -> Result<(), ControlError> {
        if message.opcode != opcode::EVENT || message.stream != EVENT_STREAM {
            let what = format!(
                "opcode {:#04x} on stream {}, which has no request",
                message.opcode, message.stream
            );
            return Err(ControlError::Garbage(what));
        }
        if self.events.len() >= EVENTS_MAX {
            return Err(ControlError::Garbage("more events than a ring can send".to_owned()));
        }
        self.events.push_back(message.body);
        Ok(())
    }

    async fn send(&mut self, opcode: u8, body: &[u8]) -> Result<i16, ControlError> {
        self.last_stream = if self.last_stream == i16::MAX { 1 } else { self.last_stream + 1 };
        let mut header = Header::request(self.version, self.last_stream, opcode);
        header.length = body.len() as u32;
        let mut out = Vec::with_capacity(body.len() + 64);
        if self.reader.is_segmented() {
            let mut writer = SegmentWriter::new(false);
            writer.push(&mut out, &header.to_bytes(), body);
            writer.finish(&mut out);
        } else {
            out.extend_from_slice(&header.to_bytes());
            out.extend_from_slice(body);
        }
        self.channel.write(&out).await?;
        Ok(self.last_stream)
    }

    /// The next whole message; reads until one is complete.
    async fn next_message(&mut self) -> Result<Message, ControlError> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(message);
            }
            if !self.channel.read(&mut self.received).await? {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// The next message, if it has arrived whole.
    fn take_message(&mut self) -> Result<Option<Message>, ControlError> {
        if self.received.first() == Some(&TLS_ALERT)
            && !self.reader.is_segmented()
            && !self.channel.has_tls()
        {
            return Err(ControlError::WantsTls);
        }
        // Segments have no compression, because the handshake did not ask for it.
        let mut scratch = Vec::new();
        let mut envelopes = self.reader.read(&self.received, &mut scratch);
        let message = match envelopes.header()? {
            None => None,
            Some(header) => {
                if !header.response || !(1..=6).contains(&header.version) {
                    return Err(ControlError::Garbage(format!(
                        "version byte {:#04x}",
                        header.to_bytes()[0]
                    )));
                }
                if header.length > BODY_BYTES_MAX {
                    return Err(ControlError::Garbage(format!(
                        "a message of {} bytes",
                        header.length
                    )));
                }
                envelopes.body()?.map(|body| Message::new(&header, body)).transpose()?
            }
        };
        let used = envelopes.finish();
        self.received.drain(..used);
        Ok(message)
    }
}
