//! One connection: framing, handshake and login, then a request at a time.

use std::time::Duration;

use shunt_admin::{Pages, Refusal};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::foreign::Foreign;
use shunt_wire::cql::message::{AuthResponse, Startup, encode, error_code};
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::cql::writer::EnvelopeWriter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::execute::{Answer, Session};
use crate::fault::Fault;
use crate::limits::{
    ANSWER_TIMEOUT, EARLY_REQUEST_BYTES_MAX, IDLE_TIMEOUT, LOGIN_PAUSE, LOGIN_TIMEOUT,
    REQUEST_BYTES_MAX, REQUEST_TIMEOUT,
};
use crate::login::{self, AUTHENTICATOR, Login};
use crate::prepared::Store;
use crate::requests::{self, supported};

/// Bytes read at a time.
const READ_BYTES: usize = 8 << 10;
/// Requests before the end of the login.
const EARLY_REQUESTS_MAX: u32 = 8;

/// A request: its header and its body.
type Request = (Header, Vec<u8>);
/// The header of a request that breaks the protocol, and its fault.
type Broken = (Header, Fault);

/// Stage of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before STARTUP.
    New,
    /// Before the login.
    Login,
    /// Requests are answered.
    Open,
}

/// Continuation of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Request,
    /// Further messages of both sides are in segments (v5, section 2.3.1).
    Segments,
    Close,
}

/// A connection.
pub(crate) struct Connection<'s, T> {
    io: T,
    pages: &'s Pages,
    store: &'s Store,
    login: &'s Login,
    session: Session,
    stage: Stage,
    version: u8,
    early_requests: u32,
    login_until: Instant,
    reader: EnvelopeReader,
    writer: EnvelopeWriter,
    received: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'s, T: AsyncRead + AsyncWrite + Unpin> Connection<'s, T> {
    pub(crate) fn new(
        io: T,
        (pages, store): (&'s Pages, &'s Store),
        login: &'s Login,
        session: Session,
    ) -> Self {
        Self {
            io,
            pages,
            store,
            login,
            session,
            stage: Stage::New,
            version: 0,
            early_requests: 0,
            login_until: Instant::now() + LOGIN_TIMEOUT,
            reader: EnvelopeReader::default(),
            writer: EnvelopeWriter::default(),
            received: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Serves until the client leaves, breaks the protocol or is too slow.
    pub(crate) async fn serve(mut self) {
        loop {
            let (header, body) = match self.request().await {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err((header, fault)) => {
                    let header = Header { version: self.shown_version(), ..header };
                    self.send(header, error(&fault)).await;
                    return;
                }
            };
            let (answer, next) = self.answer(header, &body).await;
            if !self.send(header, answer).await || next == Next::Close {
                return;
            }
            if next == Next::Segments {
                self.reader.start_segments(false);
                self.writer.start_segments(false);
            }
            // A client with many requests must let the watch of the ring run: both share the
            // thread.
            tokio::task::yield_now().await;
        }
    }

    /// The version of an answer to a request that breaks the protocol.
    fn shown_version(&self) -> u8 {
        if self.version == 0 { 5 } else { self.version }
    }

    /// The next request; `None` if none comes any more.
    async fn request(&mut self) -> Result<Option<Request>, Broken> {
        let mut until = match self.stage {
            Stage::Open => Instant::now() + IDLE_TIMEOUT,
            _ => self.login_until,
        };
        let mut has_begun = false;
        loop {
            if let Some(request) = self.take()? {
                return Ok(Some(request));
            }
            if !has_begun && (!self.received.is_empty() || self.reader.carried_bytes() > 0) {
                has_begun = true;
                until = until.min(Instant::now() + REQUEST_TIMEOUT);
            }
            self.received.reserve(READ_BYTES);
            match timeout_at(until, self.io.read_buf(&mut self.received)).await {
                Ok(Ok(bytes)) if bytes > 0 => {}
                _ => return Ok(None),
            }
        }
    }

    /// Takes the next request out of the received bytes; `None` if it has not arrived as a whole.
    fn take(&mut self) -> Result<Option<Request>, Broken> {
        let Self { reader, received, scratch, stage, version, .. } = self;
        let mut envelopes = reader.read(received, scratch);
        let broken = |header| move |error| (header, Fault::protocol(format!("{error}")));
        let none = Header::response(5, 0, opcode::ERROR);
        let header = envelopes.header().map_err(broken(none))?;
        let mut body = None;
        if let Some(header) = header {
            check(header, *stage, *version).map_err(|fault| (header, fault))?;
            body = envelopes.body().map_err(broken(header))?.map(<[u8]>::to_vec);
        }
        let used = if body.is_some() { envelopes.finish() } else { envelopes.hold() };
        received.drain(..used);
        Ok(header.zip(body))
    }

    async fn answer(&mut self, header: Header, body: &[u8]) -> (Answer, Next) {
        if self.stage == Stage::Open {
            if !self.login.is_valid(self.pages) {
                let why = "the password of this connection is no longer a token of the proxy's \
                           admin_token_file";
                return self.refuse(Refusal::WrongToken, why);
            }
            let sources = (self.pages, self.store);
            let answer = requests::answer(header, body, sources, &mut self.session).await;
            return match answer {
                Ok(answer) => (answer, Next::Request),
                Err(fault) if fault.code == error_code::PROTOCOL_ERROR => {
                    (error(&fault), Next::Close)
                }
                Err(fault) => (error(&fault), Next::Request),
            };
        }
        self.early_requests += 1;
        if self.early_requests > EARLY_REQUESTS_MAX {
            let fault = Fault::protocol("too many requests before the login");
            return (error(&fault), Next::Close);
        }
        match (self.stage, header.opcode) {
            (_, opcode::OPTIONS) => (supported(), Next::Request),
            (Stage::New, opcode::STARTUP) => self.startup(header, body),
            (Stage::Login, opcode::AUTH_RESPONSE) => self.authenticate(body).await,
            (stage, other) => {
                let name = opcode::name(other).unwrap_or("an unknown opcode");
                let wanted = if stage == Stage::New { "STARTUP" } else { "a login" };
                let fault = Fault::protocol(format!("{name} before {wanted}"));
                (error(&fault), Next::Close)
            }
        }
    }

    fn startup(&mut self, header: Header, body: &[u8]) -> (Answer, Next) {
        if let Err(fault) = check_startup(body) {
            return (error(&fault), Next::Close);
        }
        self.version = header.version;
        let answer = if login::is_needed(self.pages) {
            self.stage = Stage::Login;
            let mut body = Vec::new();
            encode::authenticate(&mut body, AUTHENTICATOR);
            Answer::plain(opcode::AUTHENTICATE, body)
        } else {
            self.open(&[]);
            Answer::plain(opcode::READY, Vec::new())
        };
        (answer, if header.version >= 5 { Next::Segments } else { Next::Request })
    }

    fn open(&mut self, password: &[u8]) {
        self.stage = Stage::Open;
        self.login.end(password);
    }

    /// Counts a refusal. It writes no line, because a client could fill the log.
    fn refuse(&self, refusal: Refusal, why: &str) -> (Answer, Next) {
        self.pages.count_refusal(refusal);
        let fault = Fault { code: error_code::BAD_CREDENTIALS, message: why.to_owned() };
        (error(&fault), Next::Close)
    }

    async fn authenticate(&mut self, body: &[u8]) -> (Answer, Next) {
        let message = match AuthResponse::decode(body) {
            Ok(message) => message.token.unwrap_or_default(),
            Err(why) => return (error(&why.into()), Next::Close),
        };
        match login::check(self.pages, message) {
            Ok(password) => {
                self.open(password);
                let mut body = Vec::new();
                encode::auth_success(&mut body, None);
                (Answer::plain(opcode::AUTH_SUCCESS, body), Next::Request)
            }
            Err(refusal) => {
                sleep(LOGIN_PAUSE).await;
                let why = "the password is no token of the proxy's admin_token_file";
                self.refuse(refusal, why)
            }
        }
    }

    /// Sends an answer; false if the client does not take it.
    async fn send(&mut self, request: Header, answer: Answer) -> bool {
        let header = Header {
            flags: answer.flags,
            ..Header::response(request.version, request.stream, answer.opcode)
        };
        let mut out = Vec::new();
        self.writer.push(&mut out, header, &answer.body);
        self.writer.finish(&mut out);
        // Only one copy is kept while a client is slow.
        drop(answer);
        let sent = async {
            self.io.write_all(&out).await?;
            self.io.flush().await
        };
        within(ANSWER_TIMEOUT, sent).await
    }
}

async fn within(limit: Duration, work: impl Future<Output = std::io::Result<()>>) -> bool {
    matches!(timeout(limit, work).await, Ok(Ok(())))
}

/// Judges a request by its header, before its body has arrived.
fn check(header: Header, stage: Stage, version: u8) -> Result<(), Fault> {
    let max = if stage == Stage::Open { REQUEST_BYTES_MAX } else { EARLY_REQUEST_BYTES_MAX };
    if let Some(foreign) = Foreign::of(header).filter(|_| stage == Stage::New) {
        return Err(Fault::protocol(foreign.text()));
    }
    if header.response || !(3..=5).contains(&header.version) {
        let version = header.version;
        return Err(Fault::protocol(format!(
            "Invalid or unsupported protocol version ({version}); supported versions are \
             (3/v3, 4/v4, 5/v5)"
        )));
    }
    if version != 0 && header.version != version {
        return Err(Fault::protocol(format!(
            "the request has version {}, but the connection speaks version {version}",
            header.version
        )));
    }
    if header.length > max {
        return Err(Fault::protocol(format!(
            "the request has {} bytes; the admin address takes at most {max}",
            header.length
        )));
    }
    Ok(())
}

fn check_startup(body: &[u8]) -> Result<(), Fault> {
    let startup = Startup::decode(body)?;
    if startup.options.get("CQL_VERSION").is_none() {
        return Err(Fault::protocol("Missing value CQL_VERSION in STARTUP message"));
    }
    match startup.options.get("COMPRESSION") {
        None | Some("") => Ok(()),
        Some(name) => Err(Fault::protocol(format!("Unknown compression algorithm: {name}"))),
    }
}

fn error(fault: &Fault) -> Answer {
    let mut body = Vec::new();
    encode::error(&mut body, fault.code, &fault.message);
    Answer::plain(opcode::ERROR, body)
}
