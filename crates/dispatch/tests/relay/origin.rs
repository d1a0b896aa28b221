//! A stock server, as far as these requests need one.

use std::collections::HashMap;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::http1::{BodyReader, Framing, HeadLimits, HeadReader, RequestHead, Version};

use crate::requests::{chunked, pattern, seen, unchunked, version};

/// Requests after which the server closes a connection, as stock servers do.
const REQUESTS_MAX: usize = 7;

struct Connection {
    reader: HeadReader,
    request: Option<(String, BodyReader, bool)>,
    /// Requested range, valid if the tag matches.
    part: Option<(usize, usize, String)>,
    raw: Vec<u8>,
    served: usize,
}

#[derive(Default)]
pub(crate) struct Origin {
    connections: HashMap<ConnId, Connection>,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Requests answered with parts.
    pub(crate) parts: u64,
    version: u8,
}

impl Origin {
    pub(crate) fn of_version(version: u8) -> Self {
        Self { version, ..Self::default() }
    }

    /// The only connection to the server.
    pub(crate) fn conn(&self) -> ConnId {
        assert_eq!(self.connections.len(), 1);
        *self.connections.keys().next().unwrap()
    }

    fn step(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> Option<usize> {
        let connection = self.connections.get_mut(&conn)?;
        if let Some((_, body, _)) = &mut connection.request {
            let taken = body.take(data).expect("what passes the dispatcher is right");
            connection.raw.extend_from_slice(&data[..taken]);
            if body.is_complete() {
                self.answer(io, conn);
                return Some(taken);
            }
            return (taken > 0).then_some(taken);
        }
        let head = connection.reader.read(data).expect("what passes the dispatcher is right")?;
        let request = RequestHead::read(head).expect("what passes the dispatcher is right");
        assert!(
            head.field("connection").is_none() && head.field("x-own").is_none(),
            "fields of one connection alone"
        );
        assert_eq!(
            head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"x-forwarded-for")).count(),
            1
        );
        let (bytes, is_complete) = (head.len(), request.framing == Framing::None);
        let field = |name| head.field(name).map(|value| String::from_utf8(value.to_vec()).unwrap());
        connection.part = field("range").zip(field("if-range")).map(|(range, tag)| {
            let (first, last) =
                range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).unwrap();
            (first.parse().unwrap(), last.parse().unwrap(), tag)
        });
        if request.expects_continue {
            io.output(conn).extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if request.target == b"/begun" {
            io.output(conn).extend_from_slice(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n",
            );
        }
        let method = String::from_utf8(request.method.to_vec()).unwrap();
        let target = String::from_utf8(request.target.to_vec()).unwrap();
        let is_old = request.version == Version::Http10;
        let chunks = request.framing == Framing::Chunked;
        let body = BodyReader::new(request.framing);
        match request.is_read() {
            true => self.reads += 1,
            false => self.writes += 1,
        }
        connection.request = Some((format!("{method} {target} {chunks}"), body, is_old));
        connection.reader.reset();
        if is_complete {
            self.answer(io, conn);
        }
        Some(bytes)
    }

    fn answer(&mut self, io: &mut Io, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let Some((what, _, is_old)) = connection.request.take() else { return };
        let (raw, part) = (std::mem::take(&mut connection.raw), connection.part.take());
        connection.served += 1;
        let closes = is_old || connection.served == REQUESTS_MAX;
        let mut words = what.split(' ');
        let (method, target, chunks) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap() == "true");
        let mut path = target.trim_start_matches('/').split('/');
        let (kind, number) =
            (path.next().unwrap(), path.next().and_then(|text| text.parse().ok()).unwrap_or(0));
        let out = io.output(conn);
        let own = if closes {
            "Connection: close\r\n"
        } else {
            "Keep-Alive: timeout=5\r\nConnection: keep-alive\r\n"
        };
        let mut say = |line: &str, fields: &str| {
            out.extend(format!("HTTP/1.1 {line}\r\n{own}{fields}\r\n").bytes())
        };
        match kind {
            "length" | "versioned" | "weak" => {
                let (body, tag) = match kind {
                    "length" => (pattern(number), format!("\"{number}\"")),
                    "versioned" => {
                        (version(number, self.version), format!("\"{number}-{}\"", self.version))
                    }
                    _ => (version(number, self.version), format!("W/\"{number}\"")),
                };
                if let Some((first, last, _)) = part.filter(|(_, _, wanted)| *wanted == tag) {
                    self.parts += 1;
                    let (length, total) = (last + 1 - first, body.len());
                    say(
                        "206 Partial Content",
                        &format!(
                            "Content-Range: bytes {first}-{last}/{total}\r\nContent-Length: {length}\r\nETag: {tag}\r\n"
                        ),
                    );
                    out.extend_from_slice(&body[first..=last]);
                } else {
                    say("200 OK", &format!("Content-Length: {number}\r\nETag: {tag}\r\n"));
                    if method == "GET" {
                        out.extend(body);
                    }
                }
            }
            "chunked" => {
                say("200 OK", "Transfer-Encoding: chunked\r\n");
                out.extend(chunked(&pattern(number)));
            }
            "close" => {
                out.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
                out.extend(pattern(number));
            }
            "status" => say(
                &format!("{number} As asked"),
                if number == 304 { "Content-Length: 7\r\n" } else { "" },
            ),
            "echo" => {
                let body = seen(&if chunks { unchunked(&raw) } else { raw });
                say("200 OK", &format!("Content-Length: {}\r\n", body.len()));
                out.extend(body);
            }
            // The part of the answer before this went out with the head, while the server was still
            // reading.
            "begun" => out.extend_from_slice(b"0\r\n\r\n"),
            "never" => return,
            other => panic!("{other}"),
        }
        if closes || kind == "close" {
            io.close(conn);
            self.connections.remove(&conn);
        }
    }
}

impl Service for Origin {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, _origin: &Accepted) {
        let reader = HeadReader::new(HeadLimits::DEFAULT);
        self.connections.insert(
            conn,
            Connection { reader, request: None, part: None, raw: Vec::new(), served: 0 },
        );
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut used = 0;
        while used < data.len() {
            match self.step(io, conn, &data[used..]) {
                Some(bytes) => used += bytes,
                None => break,
            }
        }
        if self.connections.contains_key(&conn) { used } else { data.len() }
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        self.connections.remove(&conn);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, _io: &mut Io, _key: u64) {}

    fn mail(&mut self, _io: &mut Io, (): ()) {}

    fn turn_ended(&mut self, _io: &mut Io) {}
}
