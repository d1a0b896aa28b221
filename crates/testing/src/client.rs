//! The client without I/O: takes the connection's bytes as they arrive and returns answers; appends
//! requests to a buffer that the owner of the connection sends.

use std::collections::VecDeque;

use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{BODY_BYTES_MAX, EVENT_STREAM, Header, opcode};
use shunt_wire::cql::frame_v5::FrameError;
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::cql::writer::EnvelopeWriter;

use crate::{Answer, Handshake, Statement};

/// Progress of the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Not begun, or done manually by a test: every answer goes to the test.
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
    /// Complete: every answer goes to the test.
    Ready,
    /// A request of the handshake got an ERROR.
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
    /// Header of the answer that accepted STARTUP: later bytes are framed as agreed.
    agreed: Option<Header>,
    /// Answers received and not examined yet.
    received: VecDeque<Answer>,
    /// Answers for the test.
    answers: VecDeque<Answer>,
    statements: Vec<Statement>,
    refusal: Option<Answer>,
}

impl Client {
    /// A client for a connection with this handshake.
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

    /// Begins the handshake; later requests follow automatically with the answers.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        self.enter(Step::Startup, out);
    }

    /// Progress of the handshake.
    pub fn step(&self) -> Step {
        self.step
    }

    /// True once the handshake is complete.
    pub fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// The ERROR that ended the handshake.
    pub fn refusal(&self) -> Option<&Answer> {
        self.refusal.as_ref()
    }

    /// Header of the READY or AUTHENTICATE that accepted STARTUP.
    pub fn startup_answer(&self) -> Option<Header> {
        self.agreed
    }

    /// Statements prepared by the handshake, in order.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Protocol version of the requests.
    pub fn version(&self) -> u8 {
        self.handshake.version
    }

    /// Expects this compression, requested by a STARTUP that the test sends itself.
    pub fn expect_compression(&mut self, compression: Option<Algorithm>) {
        self.handshake.compression = compression;
    }

    /// Appends a request, framed as agreed. Call [`Client::finish`] before sending `out`.
    pub fn push(&mut self, out: &mut Vec<u8>, header: Header, body: &[u8]) {
        self.output.push(out, header, body);
    }

    /// Like [`Client::push`], for a request without flags.
    pub fn request(&mut self, out: &mut Vec<u8>, stream: i16, opcode: u8, body: &[u8]) {
        self.push(out, Header::request(self.handshake.version, stream, opcode), body);
    }

    /// Completes the appended requests.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.output.finish(out);
    }

    /// Takes received bytes and appends the next requests of the handshake to `out`. Returns the
    /// number of consumed bytes: the others must be passed again, in front of later ones.
    ///
    /// # Errors
    /// The bytes are not CQL.
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

    /// The next answer or event that does not belong to the handshake.
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
        // Before it has read STARTUP, a server does not know the client's version.
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
