//! The client without I/O: bytes of the connection come in as they arrive, answers go out; requests
//! go into a buffer that whoever holds the connection sends.

use std::collections::VecDeque;

use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{BODY_BYTES_MAX, EVENT_STREAM, Header, opcode};
use shunt_wire::cql::frame_v5::FrameError;
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::cql::writer::EnvelopeWriter;

use crate::{Answer, Handshake, Statement};

/// How far the handshake is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Not begun, or a test does it by hand: every answer is the test's.
    Manual,
    /// STARTUP was sent.
    Startup,
    /// AUTH_RESPONSE was sent.
    Login,
    /// REGISTER was sent.
    Register,
    /// USE was sent.
    Use,
    /// One of the PREPAREs was sent.
    Prepare,
    /// It is done: every answer is the test's.
    Ready,
    /// A request of it was answered with ERROR.
    Refused,
}

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    handshake: Handshake,
    step: Step,
    reader: EnvelopeReader,
    output: EnvelopeWriter,
    scratch: Vec<u8>,
    /// Header of the answer by which the server took STARTUP: what follows is framed as agreed.
    agreed: Option<Header>,
    /// Came and was not looked at yet.
    received: VecDeque<Answer>,
    /// For the test.
    answers: VecDeque<Answer>,
    statements: Vec<Statement>,
    refusal: Option<Answer>,
}

impl Client {
    /// A client for a connection that is to be opened so.
    pub fn new(handshake: Handshake) -> Client {
        Client {
            handshake,
            step: Step::Manual,
            reader: EnvelopeReader::default(),
            output: EnvelopeWriter::default(),
            scratch: Vec::new(),
            agreed: None,
            received: VecDeque::new(),
            answers: VecDeque::new(),
            statements: Vec::new(),
            refusal: None,
        }
    }

    /// Begins the handshake; what it takes follows by itself when answers come.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        self.enter(Step::Startup, out);
    }

    /// How far the handshake is.
    pub fn step(&self) -> Step {
        self.step
    }

    /// The handshake is done.
    pub fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// The ERROR that ended the handshake.
    pub fn refusal(&self) -> Option<&Answer> {
        self.refusal.as_ref()
    }

    /// Header of the READY or AUTHENTICATE that took STARTUP.
    pub fn startup_answer(&self) -> Option<Header> {
        self.agreed
    }

    /// The statements that the texts of the handshake were prepared as, in their order.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Protocol version of its requests.
    pub fn version(&self) -> u8 {
        self.handshake.version
    }

    /// STARTUP, which the test sends itself, asks for this compression.
    pub fn expect_compression(&mut self, compression: Option<Algorithm>) {
        self.handshake.compression = compression;
    }

    /// Appends a request, framed as agreed. [`Client::finish`] has to follow before `out` is sent.
    pub fn push(&mut self, out: &mut Vec<u8>, header: Header, body: &[u8]) {
        self.output.push(out, header, body);
    }

    /// As [`Client::push`], for a request without flags.
    pub fn request(&mut self, out: &mut Vec<u8>, stream: i16, opcode: u8, body: &[u8]) {
        self.push(out, Header::request(self.handshake.version, stream, opcode), body);
    }

    /// Completes what was appended.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.output.finish(out);
    }

    /// Takes what arrived and appends to `out` what the handshake sends next. Returns how many
    /// bytes were used: the others have to be given again, in front of what follows.
    ///
    /// # Errors
    /// The bytes cannot be CQL.
    pub fn receive(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<usize, FrameError> {
        let compression = self.handshake.compression;
        let mut envelopes = self.reader.read(data, &mut self.scratch);
        while let Some((header, body)) = envelopes.next(BODY_BYTES_MAX, compression)? {
            self.received.push_back(Answer { header, body: body.to_vec() });
            let startup_taken = matches!(header.opcode, opcode::READY | opcode::AUTHENTICATE);
            if self.agreed.is_none() && startup_taken {
                self.agreed = Some(header);
                // "The first response ... is the last message that is not framed" (v5, section
                // 2.3.1).
                if header.version >= 5 {
                    self.output.start_segments(compression.is_some());
                } else {
                    self.output.compression = compression;
                }
            }
            envelopes.follow(&self.output);
        }
        let used = envelopes.finish();
        while let Some(answer) = self.received.pop_front() {
            self.take(answer, out);
        }
        Ok(used)
    }

    /// The next answer or event that is not the handshake's.
    pub fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    fn take(&mut self, answer: Answer, out: &mut Vec<u8>) {
        if self.step == Step::Manual {
            return self.answers.push_back(answer);
        }
        self.check_header(&answer.header);
        if answer.opcode() == opcode::EVENT || self.step == Step::Ready {
            return self.answers.push_back(answer);
        }
        let next = match (self.step, answer.opcode()) {
            (Step::Refused, _) => return,
            (_, opcode::ERROR) => {
                self.refusal = Some(answer);
                self.step = Step::Refused;
                return;
            }
            (Step::Startup, opcode::AUTHENTICATE) => Step::Login,
            (Step::Startup | Step::Register, opcode::READY)
            | (Step::Login, opcode::AUTH_SUCCESS)
            | (Step::Use, opcode::RESULT) => self.handshake.step_after(self.step, 0),
            (Step::Prepare, opcode::RESULT) => {
                self.statements.push(answer.prepared());
                self.handshake.step_after(Step::Prepare, self.statements.len())
            }
            (step, opcode) => panic!("opcode {opcode:#x} is no answer to {step:?}"),
        };
        self.enter(next, out);
    }

    fn enter(&mut self, step: Step, out: &mut Vec<u8>) {
        self.step = step;
        if step != Step::Ready {
            let (opcode, body) = self.handshake.request(step, self.statements.len());
            self.request(out, 0, opcode, &body);
        }
    }

    fn check_header(&self, header: &Header) {
        // Before it has looked at STARTUP, a server does not know which version the client wants to
        // hear.
        let early = self.step == Step::Startup && header.opcode == opcode::ERROR;
        assert!(
            header.response && (header.version == self.handshake.version || early),
            "{header:?}"
        );
        if header.opcode == opcode::EVENT {
            let registered = !self.handshake.events.is_empty();
            assert!(
                header.stream == EVENT_STREAM && registered,
                "an event for a client that registered for none"
            );
        }
    }
}
