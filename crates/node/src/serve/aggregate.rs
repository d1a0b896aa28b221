//! Aggregated frames (opcode 0x64): a frame's requests are executed in order, and their answers
//! leave in one frame. Answers to writes, which are gathered with others of the turn, share one
//! once the writes are executed and durable. An answer that waits for the disk or a worker follows
//! in a later frame, so that it delays no other.

use shunt_reactor::{ConnId, Io};
use shunt_wire::aggregate::{AggregateReader, AggregateWriter, Entry};
use shunt_wire::cql::compression;
use shunt_wire::cql::envelope::{Header, flag, opcode};

use super::requests::{Place, Waiting};
use super::session::SessionRest;
use super::{AGGREGATE_LIMITS, NodeService};
use crate::execute::{Done, Outcome, Request};
use crate::limits;

impl NodeService {
    pub(super) fn aggregate(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) {
        if header.version != 4 {
            return self.refuse(
                io,
                conn,
                rest,
                header,
                "aggregated frames are taken on connections of version 4",
            );
        }
        let entries = match AggregateReader::new(body) {
            Ok(entries) => entries,
            Err(error) => return self.refuse(io, conn, rest, header, &error.to_string()),
        };
        rest.frames = true;
        let mut writer = AggregateWriter::responses(AGGREGATE_LIMITS);
        let mut requests = 0;
        for entry in entries {
            requests += 1;
            let fault = match entry {
                Ok(entry) if entry.opcode == opcode::CLIENT_GONE => None,
                Ok(entry) => self.entry(io, conn, rest, &mut writer, &entry).err(),
                Err(error) => Some(error.to_string()),
            };
            if let Some(fault) = fault {
                writer.finish(io.output(conn));
                return self.refuse(io, conn, rest, header, &fault);
            }
        }
        writer.finish(io.output(conn));
        self.watch_backlog(io, conn, rest);
        self.metrics.requests_per_frame.record(requests);
    }

    /// Executes one entry. An error is one of the frame, the rest of which cannot be trusted.
    fn entry(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        writer: &mut AggregateWriter,
        entry: &Entry<'_>,
    ) -> Result<(), String> {
        check(entry)?;
        let mut plain = Vec::new();
        let mut body = entry.body;
        // Bodies of entries are compressed one by one, as in separate envelopes (v3, v4).
        if entry.flags & flag::COMPRESSION != 0 && entry.version < 5 {
            let algorithm = rest
                .compression
                .ok_or("an entry is compressed, and no compression was agreed on")?;
            let bytes_max = limits::REQUEST_BYTES_MAX;
            compression::decompress(algorithm, body, bytes_max, &mut plain)
                .map_err(|error| error.to_string())?;
            body = &plain;
        }
        self.count(entry.opcode);
        let mut answer = std::mem::take(&mut self.body);
        answer.clear();
        let place = Place::Entry { conn, client_id: entry.client_id };
        let outcome = if entry.opcode == opcode::OPTIONS {
            super::handshake::put_supported(&mut answer);
            Outcome::Done(Done::now(opcode::SUPPORTED))
        } else {
            let request =
                Request { version: entry.version, flags: entry.flags, opcode: entry.opcode, body };
            self.executor.execute_at_once(&mut rest.client, &request, &mut answer)
        };
        let done = match outcome {
            Outcome::Done(done) => Some(done),
            Outcome::WouldWait(given_up) => {
                self.hand_over(rest, place, request_header(entry), body, given_up, &mut answer)
            }
        };
        let Some(done) = done else {
            self.body = answer;
            return Ok(());
        };
        if done.opcode == opcode::ERROR {
            self.metrics.errors.add(1);
        }
        match done.durable_at {
            _ if done.gathered => {
                let header = request_header(entry);
                self.held.push(place, header, &rest.client, body, &done, &answer);
            }
            None => {
                let (version, flags, opcode) = (entry.version, done.flags, done.opcode);
                writer.push(
                    io.output(conn),
                    entry.stream,
                    entry.client_id,
                    version,
                    flags,
                    opcode,
                    &answer,
                );
                self.keep_trace(done.trace);
            }
            Some(durable_at) => {
                let header = Header {
                    flags: done.flags,
                    ..Header::response(entry.version, entry.stream, done.opcode)
                };
                self.wait(Waiting::new(durable_at, place, header, answer.clone(), done.trace));
            }
        };
        self.body = answer;
        Ok(())
    }
}

/// Refuses entries that no frame can have.
fn check(entry: &Entry<'_>) -> Result<(), String> {
    if !matches!(
        entry.opcode,
        opcode::QUERY | opcode::EXECUTE | opcode::PREPARE | opcode::BATCH | opcode::OPTIONS
    ) || !(3..=5).contains(&entry.version)
    {
        return Err(format!(
            "an entry has version {} and opcode {:#x}",
            entry.version, entry.opcode
        ));
    }
    Ok(())
}

fn request_header(entry: &Entry<'_>) -> Header {
    Header { flags: entry.flags, ..Header::request(entry.version, entry.stream, entry.opcode) }
}
