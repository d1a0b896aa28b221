//! One CQL connection of the control plane: one request at a time, events in between.
//!
//! It has no task: the caller that awaits it drives it. Reading appends to a buffer of the
//! connection, so a cancelled read (in `select!`) loses nothing.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use shunt_wire::cql::envelope::{EVENT_STREAM, Header, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::{ErrorMessage, split_response_prefix};
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::error::DecodeError;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::access::Access;
use super::channel::Channel;
use super::error::ControlError;
use super::event_queue::{EVENT_BYTES_MAX, EventQueue};

/// Largest result accepted: a page of a system table is far below.
const RESULT_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Largest other message: the text of an ERROR has at most 64 KiB.
const MESSAGE_BYTES_MAX: u32 = 1024 * 1024;
/// Capacity that the buffer of received bytes keeps after a larger answer.
const RECEIVED_KEPT_BYTES: usize = 256 * 1024;
/// Messages taken in a row before other tasks and timers get their turn.
const MESSAGES_PER_TURN: usize = 64;
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
    /// The address connected to.
    pub(super) address: SocketAddr,
    /// Protocol version, 3 to 5.
    pub(super) version: u8,
    reader: EnvelopeReader,
    /// Received bytes.
    received: Vec<u8>,
    /// Number of bytes among them, at the beginning, that messages have used up.
    used: usize,
    /// Messages taken since the last wait.
    taken: usize,
    events: EventQueue,
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
            address,
            version,
            reader: EnvelopeReader::default(),
            received: Vec::new(),
            used: 0,
            taken: 0,
            events: EventQueue::default(),
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
            if let Some(event) = self.events.pop() {
                return Ok(event);
            }
            let message = self.next_message().await?;
            self.keep_event(message)?;
        }
    }

    /// True if events have been lost since the last call, because too many waited.
    pub(super) fn has_lost_events(&mut self) -> bool {
        self.events.take_loss()
    }

    fn keep_event(&mut self, message: Message) -> Result<(), ControlError> {
        if message.opcode != opcode::EVENT || message.stream != EVENT_STREAM {
            let what = format!(
                "opcode {:#04x} on stream {}, which has no request",
                message.opcode, message.stream
            );
            return Err(ControlError::Garbage(what));
        }
        self.events.push(message.body);
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
            if self.taken >= MESSAGES_PER_TURN {
                // Whoever waits for this must see its deadline pass, however much the node sends.
                yield_now().await;
                self.taken = 0;
            }
            if let Some(message) = self.take_message()? {
                self.taken += 1;
                return Ok(message);
            }
            self.compact();
            if !self.channel.read(&mut self.received).await? {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Removes the used bytes, and frees what a large answer took.
    fn compact(&mut self) {
        self.received.drain(..self.used);
        self.used = 0;
        if self.received.len() <= RECEIVED_KEPT_BYTES {
            self.received.shrink_to(RECEIVED_KEPT_BYTES);
        }
    }

    /// The next message, if it has arrived whole.
    fn take_message(&mut self) -> Result<Option<Message>, ControlError> {
        let unread = self.received.get(self.used..).unwrap_or_default();
        if unread.first() == Some(&TLS_ALERT)
            && !self.reader.is_segmented()
            && !self.channel.has_tls()
        {
            return Err(ControlError::WantsTls);
        }
        // Segments have no compression, because the handshake did not ask for it.
        let mut scratch = Vec::new();
        let mut envelopes = self.reader.read(unread, &mut scratch);
        let message = match envelopes.header()? {
            None => None,
            Some(header) => {
                if !header.response || !(1..=6).contains(&header.version) {
                    return Err(ControlError::Garbage(format!(
                        "version byte {:#04x}",
                        header.to_bytes()[0]
                    )));
                }
                let (what, most) = match header.opcode {
                    opcode::EVENT => ("an event", EVENT_BYTES_MAX),
                    opcode::RESULT => ("a result", RESULT_BYTES_MAX),
                    _ => ("a message", MESSAGE_BYTES_MAX),
                };
                if header.length > most {
                    return Err(ControlError::Garbage(format!(
                        "{what} of {} bytes, at most {most} are allowed",
                        header.length
                    )));
                }
                envelopes.body()?.map(|body| Message::new(&header, body)).transpose()?
            }
        };
        self.used += envelopes.finish();
        Ok(message)
    }
}
