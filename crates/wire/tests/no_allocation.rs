//! The functions that the proxy calls for each query do not allocate once its buffers have grown.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

use allocation_counter::measure;
use shunt_wire::aggregate::{AggregateReader, AggregateWriter, Limits};
use shunt_wire::cql::compression::{Algorithm, Compressor, decompress};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    Batch, BatchChild, BatchKind, BatchStatement, Consistency, ErrorDetails, ErrorMessage, Execute,
    Prepare, Query, QueryParams, Value, ValueList, encode, error_code, split_request_prefix,
    split_response_prefix,
};
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::cql::writer::EnvelopeWriter;

/// Runs `work` until its buffers have grown, then counts its allocations.
fn allocates_nothing(what: &str, mut work: impl FnMut()) {
    for _ in 0..10 {
        work();
    }
    let counted = measure(|| (0..100).for_each(|_| work()));
    assert_eq!(counted.count_total, 0, "{what}");
}

#[test]
fn the_counter_counts() {
    let counted = measure(|| drop(std::hint::black_box(vec![1])));
    assert_eq!(counted.count_total, 1);
}

fn values() -> ValueList {
    let mut values = ValueList::positional(5);
    values.push(Value::Bytes(b"key")).push(Value::Null).push(Value::Bytes(&[7; 100]));
    values
}

fn body(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn reading_requests() {
    let values = values();
    let params = QueryParams { values: values.values(), ..QueryParams::simple(Consistency::ONE) };
    let query = body(|out| encode::query(out, 5, "SELECT a FROM t WHERE k = ?", &params));
    let prepare = body(|out| encode::prepare(out, 5, "SELECT a FROM t WHERE k = ?", None));
    let execute = body(|out| encode::execute(out, 5, &[7; 16], Some(&[8; 16]), &params));
    let statement = BatchStatement::Prepared(&[7; 16]);
    let child = BatchChild { statement, values: values.values() };
    let simple = QueryParams::simple(Consistency::ONE);
    let batch = body(|out| encode::batch(out, 5, BatchKind::Logged, [child; 5], &simple));
    let header = Header::request(5, 1, opcode::EXECUTE).to_bytes();
    allocates_nothing("requests", || {
        assert!(Header::decode(&header).is_some());
        let (_, message) = split_request_prefix(0, &execute).unwrap();
        let found = Execute::decode(5, message).unwrap();
        assert_eq!(found.params.values.get(0), Some(Value::Bytes(b"key")));
        assert_eq!(
            Query::decode(5, &query).unwrap().params.values.get(2),
            Some(Value::Bytes(&[7; 100]))
        );
        assert!(Prepare::decode(5, &prepare).unwrap().keyspace.is_none());
        let found = Batch::decode(5, &batch).unwrap();
        assert_eq!(
            found.children().filter(|child| child.values.get(1) == Some(Value::Null)).count(),
            5
        );
    });
}

#[test]
fn reading_and_writing_errors() {
    let mut out = Vec::new();
    let details = ErrorDetails::Unprepared { id: &[7; 16] };
    let message = ErrorMessage { code: error_code::UNPREPARED, message: "text", details };
    allocates_nothing("errors", || {
        out.clear();
        encode::error(&mut out, error_code::OVERLOADED, "too many queries");
        out.clear();
        encode::error_with(&mut out, 4, &message);
        let (_, found) = split_response_prefix(0, &out).unwrap();
        assert_eq!(ErrorMessage::decode(4, found).unwrap().unprepared_id(), Some(&[7; 16][..]));
        // A failed read does not allocate either.
        assert!(ErrorMessage::decode(4, &out[..5]).is_err());
    });
}

#[test]
fn envelopes_of_every_framing() {
    let (small, large) = ([7; 300], vec![7; 300_000]);
    let lz4 = Some(Algorithm::Lz4);
    for (version, compression, segments) in
        [(4, None, None), (4, lz4, None), (5, None, Some(false)), (5, lz4, Some(true))]
    {
        let mut writer = EnvelopeWriter::default();
        writer.compression = compression;
        let mut reader = EnvelopeReader::keeping(1 << 20);
        if let Some(lz4) = segments {
            writer.start_segments(lz4);
            reader.start_segments(lz4);
        }
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        allocates_nothing("envelopes", || {
            out.clear();
            for body in [&small[..], &large, &small, &small] {
                writer.push(&mut out, Header::request(version, 1, opcode::EXECUTE), body);
            }
            writer.finish(&mut out);
            // Two reads, and one read per envelope.
            let (mut start, mut bytes) = (0, 0);
            for end in [out.len() / 2, out.len()] {
                loop {
                    let mut envelopes = reader.read(&out[start..end], &mut scratch);
                    let body =
                        envelopes.next(1 << 20, compression).unwrap().map(|(_, body)| body.len());
                    start += envelopes.finish();
                    let Some(length) = body else { break };
                    bytes += length;
                }
            }
            assert_eq!((start, bytes), (out.len(), 300_900));
        });
    }
}

#[test]
fn aggregated_frames() {
    let mut writer = AggregateWriter::new(Limits { count_max: 3, bytes_max: 1000 });
    let mut out = Vec::new();
    allocates_nothing("aggregated frames", || {
        out.clear();
        for stream in 0..3 {
            writer.push(&mut out, stream, 1, 4, 0, opcode::EXECUTE, &[7; 50]);
        }
        writer.finish(&mut out);
        let entries = AggregateReader::new(&out[9..]).unwrap();
        assert_eq!(entries.filter(|entry| entry.is_ok()).count(), 3);
    });
}

#[test]
fn compressed_bodies() {
    // The snappy crate allocates tables of its own for long bodies; lz4 is what drivers use.
    let mut compressor = Compressor::new();
    let (mut compressed, mut out) = (Vec::new(), Vec::new());
    let body = [7; 3000];
    allocates_nothing("compressed bodies", || {
        compressed.clear();
        out.clear();
        assert!(compressor.compress(Algorithm::Lz4, &body, &mut compressed));
        decompress(Algorithm::Lz4, &compressed, 10_000, &mut out).unwrap();
        assert_eq!(out, body);
    });
}
