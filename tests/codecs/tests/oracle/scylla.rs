//! v4 against `scylla-cql`.

use std::borrow::Cow;

use scylla_cql::Consistency as TheirConsistency;
use scylla_cql::frame::protocol_features::ProtocolFeatures;
use scylla_cql::frame::request::query::{
    PagingStateResponse, Query as TheirQuery, QueryParameters,
};
use scylla_cql::frame::request::{RequestOpcode, RequestV2, SerializableRequest};
use scylla_cql::frame::response::error::DbError;
use scylla_cql::frame::response::result::{ColumnType, NativeType, Result as TheirResult};
use scylla_cql::frame::response::{ResponseOpcode, ResponseV2};
use scylla_cql::frame::types::SerialConsistency;
use shunt_wire::cql::message::encode_result::{PreparedSpec, RowsWriter, native, prepared};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, ErrorDetails, ErrorMessage, Query,
    QueryParams, ReplicaCounts, Value, ValueList, encode, error_code,
};

use super::body;

fn request(bytes: &[u8], opcode: RequestOpcode) -> RequestV2<'static> {
    let mut rest = bytes;
    let request = RequestV2::deserialize(&mut rest, opcode, &ProtocolFeatures::default()).unwrap();
    assert!(rest.is_empty());
    request
}

fn response(bytes: Vec<u8>, opcode: ResponseOpcode) -> ResponseV2 {
    ResponseV2::deserialize(&ProtocolFeatures::default(), opcode, bytes.into(), None).unwrap()
}

fn values() -> ValueList {
    let mut values = ValueList::positional(4);
    values.push(Value::Bytes(b"x")).push(Value::Null).push(Value::Unset);
    values
}

#[test]
fn they_read_our_requests() {
    let values = values();
    let params = QueryParams {
        values: values.values(),
        page_size: Some(100),
        serial_consistency: Some(Consistency::LOCAL_SERIAL),
        timestamp: Some(12),
        ..QueryParams::simple(Consistency::TWO)
    };
    let bytes = body(|out| encode::query(out, 4, "SELECT", &params));
    let RequestV2::Query(query) = request(&bytes, RequestOpcode::Query) else {
        panic!("not a query")
    };
    assert_eq!(query.contents, "SELECT");
    let found = query.parameters;
    assert_eq!((found.consistency, found.page_size), (TheirConsistency::Two, Some(100)));
    assert_eq!(found.serial_consistency, Some(SerialConsistency::LocalSerial));
    assert_eq!((found.timestamp, found.values.element_count()), (Some(12), 3));

    let bytes = body(|out| encode::execute(out, 4, b"id", None, &params));
    let RequestV2::Execute(execute) = request(&bytes, RequestOpcode::Execute) else {
        panic!("not an execute")
    };
    assert_eq!(execute.id.as_ref(), b"id");
    assert_eq!(execute.parameters.values.element_count(), 3);

    let params = QueryParams { timestamp: Some(3), ..QueryParams::simple(Consistency::ALL) };
    let statements = [BatchStatement::Text("INSERT"), BatchStatement::Prepared(b"id")];
    let children = statements.map(|statement| BatchChild { statement, values: values.values() });
    let bytes = body(|out| encode::batch(out, 4, BatchKind::Counter, children, &params));
    let RequestV2::Batch(batch) = request(&bytes, RequestOpcode::Batch) else {
        panic!("not a batch")
    };
    assert_eq!((batch.statements.len(), batch.values.len()), (2, 2));
    assert_eq!((batch.consistency, batch.timestamp), (TheirConsistency::All, Some(3)));
}

#[test]
fn we_read_their_query() {
    let parameters = QueryParameters {
        consistency: TheirConsistency::EachQuorum,
        skip_metadata: true,
        page_size: Some(7),
        timestamp: Some(-9),
        ..QueryParameters::default()
    };
    let mut bytes = Vec::new();
    let query = TheirQuery { contents: Cow::Borrowed("SELECT"), parameters };
    query.serialize(&mut bytes).unwrap();
    let found = Query::decode(4, &bytes).unwrap();
    assert_eq!(found.text, "SELECT");
    assert!(found.params.skips_metadata());
    assert_eq!(found.params.consistency, Consistency::EACH_QUORUM);
    assert_eq!((found.params.page_size, found.params.timestamp), (Some(7), Some(-9)));
}

#[test]
fn they_read_our_results() {
    let columns = [("k", native::UUID), ("v", native::SET_OF_TEXT)];
    let bytes = body(|out| {
        let mut rows = RowsWriter::new(out, "ks", "t", &columns);
        rows.value(Some(&[7; 16])).value(None).value(Some(&[8; 16])).value(None);
        rows.finish();
    });
    let ResponseV2::Result(TheirResult::Rows((rows, PagingStateResponse::NoMorePages))) =
        response(bytes, ResponseOpcode::Result)
    else {
        panic!("not rows")
    };
    let rows = rows.deserialize_metadata().unwrap();
    assert_eq!(rows.rows_count(), 2);
    let specs = rows.metadata().col_specs();
    assert_eq!((specs[0].name(), specs[0].table_spec().ks_name()), ("k", "ks"));
    assert_eq!(*specs[0].typ(), ColumnType::Native(NativeType::Uuid));

    let spec = PreparedSpec {
        id: b"id",
        result_metadata_id: b"",
        keyspace: "ks",
        table: "t",
        bind: &columns,
        partition_key: &[1, 0],
        result: &columns,
    };
    let bytes = body(|out| prepared(out, 4, &spec));
    let ResponseV2::Result(TheirResult::Prepared(found)) = response(bytes, ResponseOpcode::Result)
    else {
        panic!("not prepared")
    };
    assert_eq!(&found.id[..], b"id");
    let mut key = found.prepared_metadata.pk_indexes.clone();
    key.sort_by_key(|index| index.sequence);
    assert!(key.iter().map(|index| index.index).eq([1, 0]));
    assert_eq!(found.result_metadata.col_specs().len(), 2);
}

#[test]
fn they_read_our_errors() {
    let counts = ReplicaCounts { consistency: Consistency::ONE, received: 1, block_for: 2 };
    let sent = ErrorMessage {
        code: error_code::READ_TIMEOUT,
        message: "text",
        details: ErrorDetails::ReadTimeout { counts, data_present: true },
    };
    let ResponseV2::Error(found) = response(body(|out| sent.put(out, 4)), ResponseOpcode::Error)
    else {
        panic!("not an error")
    };
    let (consistency, received, required) = (TheirConsistency::One, 1, 2);
    let expected = DbError::ReadTimeout { consistency, received, required, data_present: true };
    assert_eq!((found.error, &found.reason[..]), (expected, "text"));
    let bytes = body(|out| encode::error(out, error_code::OVERLOADED, ""));
    let ResponseV2::Error(found) = response(bytes, ResponseOpcode::Error) else {
        panic!("not an error")
    };
    assert_eq!(found.error, DbError::Overloaded);
}
