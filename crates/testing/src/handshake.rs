//! Steps of a client on a new connection before the test can use it.

use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Consistency, encode};

use crate::client::Step;

/// Requests that open a connection; steps without content are omitted.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    /// Protocol version of all requests.
    pub version: u8,
    /// Compression requested in STARTUP.
    pub compression: Option<Algorithm>,
    /// User and password, for a server that requires them.
    pub login: Option<(String, String)>,
    /// Kinds of events for REGISTER.
    pub events: Vec<&'static str>,
    /// Keyspace for USE.
    pub keyspace: Option<String>,
    /// Texts for PREPARE, in order.
    pub statements: Vec<String>,
}

impl Handshake {
    /// Only STARTUP, without compression.
    pub fn new(version: u8) -> Handshake {
        Handshake { version, ..Handshake::default() }
    }

    /// The same with this compression.
    #[must_use]
    pub fn compressed(self, compression: Option<Algorithm>) -> Handshake {
        Handshake { compression, ..self }
    }

    /// The next step behind `step` with content.
    pub(crate) fn step_after(&self, step: Step, prepared: usize) -> Step {
        let registers = !self.events.is_empty();
        match step {
            Step::Startup | Step::Login if registers => Step::Register,
            Step::Startup | Step::Login | Step::Register if self.keyspace.is_some() => Step::Use,
            _ if prepared < self.statements.len() => Step::Prepare,
            _ => Step::Ready,
        }
    }

    /// Opcode and body of a step's request.
    pub(crate) fn request(&self, step: Step, prepared: usize) -> (u8, Vec<u8>) {
        let mut body = Vec::new();
        let opcode = match step {
            Step::Startup => {
                let compression =
                    self.compression.map(|algorithm| ("COMPRESSION", algorithm.name()));
                encode::startup(
                    &mut body,
                    [("CQL_VERSION", "3.0.0")].into_iter().chain(compression),
                );
                opcode::STARTUP
            }
            Step::Login => {
                let (user, password) =
                    self.login.as_ref().expect("the server asked for a login that nobody has");
                encode::auth_response(&mut body, Some(format!("\0{user}\0{password}").as_bytes()));
                opcode::AUTH_RESPONSE
            }
            Step::Register => {
                encode::register(&mut body, self.events.iter().copied());
                opcode::REGISTER
            }
            Step::Use => {
                let text = format!("USE {}", self.keyspace.as_deref().unwrap_or_default());
                encode::query_simple(&mut body, self.version, &text, Consistency::ONE);
                opcode::QUERY
            }
            Step::Prepare => {
                encode::prepare(&mut body, self.version, &self.statements[prepared], None);
                opcode::PREPARE
            }
            Step::Manual | Step::Ready | Step::Refused => {
                unreachable!("nothing is sent at step {step:?}")
            }
        };
        (opcode, body)
    }
}
