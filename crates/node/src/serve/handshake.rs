//! OPTIONS, STARTUP and REGISTER. A node on one machine requires no login.

use shunt_reactor::{ConnId, Io};
use shunt_wire::aggregate::{Offer, SUPPORTED_KEY};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::foreign::Foreign;
use shunt_wire::cql::message::{Register, Startup, encode, error_code};

use super::session::{SessionRest, Stage};
use super::{AGGREGATE_LIMITS, NodeService};

/// CQL version of Cassandra 5.0, which the node's statements follow.
const CQL_VERSION: &str = "3.4.7";

/// The body of SUPPORTED.
pub(super) fn put_supported(out: &mut Vec<u8>) {
    let offer = Offer {
        count_max: AGGREGATE_LIMITS.count_max,
        bytes_max: AGGREGATE_LIMITS.bytes_max,
        port: None,
    };
    let offer = offer.values();
    let options = [
        ("COMPRESSION", vec!["lz4", "snappy"]),
        ("CQL_VERSION", vec![CQL_VERSION]),
        ("PROTOCOL_VERSIONS", vec!["3/v3", "4/v4", "5/v5"]),
        (SUPPORTED_KEY, offer.iter().map(String::as_str).collect()),
    ];
    encode::supported(out, options);
}

impl NodeService {
    /// The error that makes drivers downgrade, in the wording they expect.
    pub(super) fn refuse_version(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
    ) {
        let problem = if header.response {
            "a request has the direction bit of a response".to_owned()
        } else if let Some(foreign) = Foreign::of(header) {
            foreign.text().to_owned()
        } else {
            let version = header.version;
            format!(
                "Invalid or unsupported protocol version ({version}); supported versions are (3/v3, 4/v4, 5/v5)"
            )
        };
        self.refuse(io, conn, rest, Header { version: 5, ..header }, &problem)
    }

    /// Handles requests that are not executed.
    pub(super) fn handshake(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) {
        let mut answer = Vec::new();
        let opcode = match (header.opcode, rest.stage) {
            (opcode::OPTIONS, _) => {
                put_supported(&mut answer);
                opcode::SUPPORTED
            }
            (opcode::STARTUP, Stage::New) => return self.startup(io, conn, rest, header, body),
            (opcode::REGISTER, Stage::Open) => match register(rest, body) {
                Ok(()) => opcode::READY,
                Err(problem) => {
                    encode::error(&mut answer, error_code::PROTOCOL_ERROR, &problem);
                    opcode::ERROR
                }
            },
            (other, stage) => {
                let problem =
                    format!("unexpected opcode {other:#x} in a connection that is {stage:?}");
                return self.refuse(io, conn, rest, header, &problem);
            }
        };
        self.send(io, conn, rest, Header::response(header.version, header.stream, opcode), &answer);
    }

    fn startup(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) {
        let compression = match compression_wanted(body, header.version) {
            Ok(compression) => compression,
            Err(problem) => return self.refuse(io, conn, rest, header, &problem),
        };
        rest.version = header.version;
        rest.stage = Stage::Open;
        let ready = Header::response(header.version, header.stream, opcode::READY);
        if header.version < 5 {
            rest.compression = compression;
            rest.output.compression = compression;
            let (flags, empty) = empty_body(compression);
            rest.output.push_as_is(io.output(conn), Header { flags, ..ready }, empty);
            return;
        }
        self.send(io, conn, rest, ready, &[]);
        // "the first response ... is the last message that is not framed" (v5, section 2.3.1).
        rest.output.start_segments(compression.is_some());
    }
}

fn compression_wanted(body: &[u8], version: u8) -> Result<Option<Algorithm>, String> {
    let startup = Startup::decode(body).map_err(|error| error.to_string())?;
    if startup.options.get("CQL_VERSION").is_none() {
        return Err("Missing value CQL_VERSION in STARTUP message".to_owned());
    }
    match startup.options.get("COMPRESSION") {
        None | Some("") => Ok(None),
        Some(name) => match name.parse() {
            Ok(Algorithm::Snappy) if version >= 5 => {
                Err("Unknown compression algorithm: snappy".to_owned())
            }
            Ok(algorithm) => Ok(Some(algorithm)),
            Err(_) => Err(format!("Unknown compression algorithm: {name}")),
        },
    }
}

/// Cassandra compresses even the empty body of READY, and some drivers rely on it.
fn empty_body(compression: Option<Algorithm>) -> (u8, &'static [u8]) {
    match compression {
        None => (0, &[]),
        // A length of 0 and an empty block.
        Some(Algorithm::Lz4) => (flag::COMPRESSION, &[0; 5]),
        Some(Algorithm::Snappy) => (flag::COMPRESSION, &[0]),
    }
}

fn register(rest: &mut SessionRest, body: &[u8]) -> Result<(), String> {
    let request = Register::decode(body).map_err(|error| error.to_string())?;
    for event in request.events.iter() {
        match event {
            "SCHEMA_CHANGE" => rest.registered.schema = true,
            "TOPOLOGY_CHANGE" | "STATUS_CHANGE" => rest.registered.ring = true,
            other => return Err(format!("Invalid value '{other}' for Event.Type")),
        }
    }
    Ok(())
}
