//! Aggregated frames at the stub: each entry is answered as if it had come alone; one frame carries
//! all answers.

use std::ops::ControlFlow;

use shunt_reactor::{ConnId, Io};
use shunt_wire::{
    aggregate::{AggregateReader, AggregateWriter, Entry},
    cql::{
        compression,
        envelope::{BODY_BYTES_MAX, Header, flag, opcode},
        message::{encode, error_code},
    },
};

use crate::stub::{
    dispatch::{Dispatcher, Reply},
    session::{SessionRest, response_to},
};

impl Dispatcher {
    /// Executes the entries of a frame in order and appends the frame of their answers.
    pub(super) fn serve_aggregate(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        node: usize,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        let Some(limits) = self.aggregate else { return ControlFlow::Break(()) };
        rest.counts.aggregated_frames += 1;
        let entries = match AggregateReader::new(body) {
            Ok(entries) => entries,
            Err(error) => return self.refuse_frame(io, conn, rest, header, &error.to_string()),
        };
        let mut writer = AggregateWriter::responses(limits);
        for entry in entries {
            let next = match entry {
                Ok(entry) if entry.opcode == opcode::CLIENT_GONE => {
                    rest.counts.clients_gone += 1;
                    ControlFlow::Continue(())
                }
                Ok(entry) => self.serve_entry(io, conn, node, rest, &mut writer, &entry),
                Err(error) => {
                    writer.finish(io.output(conn));
                    return self.refuse_frame(io, conn, rest, header, &error.to_string());
                }
            };
            if next.is_break() {
                writer.finish(io.output(conn));
                return ControlFlow::Break(());
            }
        }
        writer.finish(io.output(conn));
        ControlFlow::Continue(())
    }

    fn serve_entry(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        node: usize,
        rest: &mut SessionRest,
        writer: &mut AggregateWriter,
        entry: &Entry<'_>,
    ) -> ControlFlow<()> {
        rest.counts.aggregated_queries += 1;
        // Bodies of entries are compressed individually, as in separate envelopes (v3, v4).
        let mut plain = Vec::new();
        let mut body = entry.body;
        if entry.flags & flag::COMPRESSION != 0 && entry.version < 5 {
            let Some(algorithm) = rest.compression else { return ControlFlow::Break(()) };
            if compression::decompress(algorithm, body, BODY_BYTES_MAX, &mut plain).is_err() {
                return ControlFlow::Break(());
            }
            body = &plain;
        }
        let asked = Header {
            flags: entry.flags,
            length: body.len() as u32,
            ..Header::request(entry.version, entry.stream, entry.opcode)
        };
        // A frame is answered as a whole, so a delayed answer is given at once.
        match self.reply(node, rest, asked, body, true) {
            Reply::Body(header) | Reply::Later(_, header) => {
                let (stream, flags) = (header.stream, header.flags);
                let out = io.output(conn);
                writer.push(
                    out,
                    stream,
                    entry.client_id,
                    entry.version,
                    flags,
                    header.opcode,
                    self.answer_body(),
                );
            }
            Reply::Nothing => {}
            Reply::Garbage(bytes) => {
                writer.finish(io.output(conn));
                io.output(conn).extend_from_slice(&bytes);
            }
            Reply::Close => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn refuse_frame(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        problem: &str,
    ) -> ControlFlow<()> {
        rest.counts.protocol_errors += 1;
        let mut body = Vec::new();
        encode::error(&mut body, error_code::PROTOCOL_ERROR, problem);
        self.send(io, conn, rest, response_to(header, opcode::ERROR), &body);
        ControlFlow::Break(())
    }
}
