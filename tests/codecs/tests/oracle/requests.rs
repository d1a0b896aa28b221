//! Requests, with parameters drawn at random.

use cassandra_protocol::consistency::Consistency as TheirConsistency;
use cassandra_protocol::frame::message_auth_response::BodyReqAuthResponse;
use cassandra_protocol::frame::message_batch::{
    BatchQuery, BatchQuerySubj, BatchType, BodyReqBatch,
};
use cassandra_protocol::frame::message_execute::BodyReqExecuteOwned;
use cassandra_protocol::frame::message_prepare::BodyReqPrepare;
use cassandra_protocol::frame::message_query::BodyReqQuery;
use cassandra_protocol::frame::message_request::RequestBody;
use cassandra_protocol::frame::{Opcode, Serialize};
use cassandra_protocol::query::{QueryParams as TheirParams, QueryValues};
use cassandra_protocol::types::value::Value as TheirValue;
use cassandra_protocol::types::{CBytes, CBytesShort};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use shunt_wire::cql::message::{
    AuthResponse, Batch, BatchChild, BatchKind, BatchStatement, Consistency, Execute, Prepare,
    Query, QueryParams, Register, Startup, Value, ValueList, encode,
};

use super::{VERSIONS, body};

/// Owned parameters that both sides can be made from.
#[derive(Clone, Debug)]
struct Params {
    consistency: u16,
    values: Vec<Option<Option<Vec<u8>>>>,
    /// Gives a single value a name; their map has no order for more.
    name: Option<String>,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    serial_consistency: Option<u16>,
    timestamp: Option<i64>,
    keyspace: Option<String>,
    now_in_seconds: Option<i32>,
}

prop_compose! {
    fn params()(
        consistency in 0..=10_u16,
        mut values in vec(of(of(vec(any::<u8>(), 0..20))), 0..5),
        name in of("[a-zä]{1,5}"),
        page_size in of(any::<i32>()),
        paging_state in of(vec(any::<u8>(), 0..20)),
        serial_consistency in of(8..=9_u16),
        timestamp in of(any::<i64>()),
        keyspace in of("[a-z]{0,9}"),
        now_in_seconds in of(any::<i32>()),
    ) -> Params {
        let name = name.filter(|_| !values.is_empty());
        if name.is_some() {
            values.truncate(1);
        }
        Params {
            consistency, values, name, page_size, paging_state, serial_consistency, timestamp, keyspace,
            now_in_seconds,
        }
    }
}

/// v3 has no unset values.
fn value_list(values: &[Option<Option<Vec<u8>>>], name: Option<&str>, version: u8) -> ValueList {
    let mut list = match name {
        Some(_) => ValueList::named(version),
        None => ValueList::positional(version),
    };
    for value in values {
        let value = match value {
            Some(Some(bytes)) => Value::Bytes(bytes),
            Some(None) => Value::Null,
            None => Value::Unset,
        };
        list.push_named(name.unwrap_or_default(), value);
    }
    list
}

fn their_values(
    values: &[Option<Option<Vec<u8>>>],
    name: Option<&str>,
    version: u8,
) -> QueryValues {
    let value = |value: &Option<Option<Vec<u8>>>| match value {
        Some(Some(bytes)) => TheirValue::Some(bytes.clone()),
        None if version >= 4 => TheirValue::NotSet,
        Some(None) | None => TheirValue::Null,
    };
    match name {
        Some(name) => QueryValues::NamedValues([(name.to_owned(), value(&values[0]))].into()),
        None => QueryValues::SimpleValues(values.iter().map(value).collect()),
    }
}

impl Params {
    fn ours<'a>(&'a self, values: &'a ValueList, version: u8) -> QueryParams<'a> {
        QueryParams {
            values: values.values(),
            page_size: self.page_size,
            paging_state: self.paging_state.as_deref(),
            serial_consistency: self.serial_consistency.map(Consistency),
            timestamp: self.timestamp,
            keyspace: self.keyspace.as_deref().filter(|_| version >= 5),
            now_in_seconds: self.now_in_seconds.filter(|_| version >= 5),
            ..QueryParams::simple(Consistency(self.consistency))
        }
    }

    fn theirs(&self, version: u8) -> TheirParams {
        let name = self.name.as_deref();
        let values = Some(&self.values).filter(|values| !values.is_empty());
        TheirParams {
            consistency: their_consistency(self.consistency),
            with_names: name.is_some(),
            values: values.map(|values| their_values(values, name, version)),
            page_size: self.page_size,
            paging_state: self.paging_state.clone().map(CBytes::new),
            serial_consistency: self.serial_consistency.map(their_consistency),
            timestamp: self.timestamp,
            keyspace: self.keyspace.clone().filter(|_| version >= 5),
            now_in_seconds: self.now_in_seconds.filter(|_| version >= 5),
        }
    }
}

fn their_consistency(code: u16) -> TheirConsistency {
    TheirConsistency::try_from(code as i16).unwrap()
}

/// Our parameters without the flags, which the caller need not set when sending.
fn without_flags(params: QueryParams<'_>) -> QueryParams<'_> {
    QueryParams { flags: 0, ..params }
}

proptest! {
    #[test]
    fn queries(text in ".{0,30}", params in params()) {
        for (version, their_version) in VERSIONS {
            let values = value_list(&params.values, params.name.as_deref(), version);
            let ours = params.ours(&values, version);
            let theirs = BodyReqQuery { query: text.clone(), query_params: params.theirs(version) };
            let bytes = body(|out| encode::query(out, version, &text, &ours));
            prop_assert_eq!(&bytes, &theirs.serialize_to_vec(their_version));
            let read = RequestBody::try_from(&bytes, Opcode::Query, their_version).unwrap();
            prop_assert_eq!(read, RequestBody::Query(theirs));
            let read = Query::decode(version, &bytes).unwrap();
            prop_assert_eq!(read.text, &text);
            if !params.values.is_empty() {
                prop_assert_eq!(without_flags(read.params), ours);
            }
        }
    }

    #[test]
    fn executes(id in vec(any::<u8>(), 0..20), meta in vec(any::<u8>(), 0..20), params in params()) {
        for (version, their_version) in VERSIONS {
            let values = value_list(&params.values, params.name.as_deref(), version);
            let ours = params.ours(&values, version);
            let meta = Some(&meta).filter(|_| version >= 5);
            let theirs = BodyReqExecuteOwned {
                id: CBytesShort::new(id.clone()),
                result_metadata_id: meta.map(|meta| CBytesShort::new(meta.clone())),
                query_parameters: params.theirs(version),
            };
            let meta = meta.map(Vec::as_slice);
            let bytes = body(|out| encode::execute(out, version, &id, meta, &ours));
            prop_assert_eq!(&bytes, &theirs.serialize_to_vec(their_version));
            let read = RequestBody::try_from(&bytes, Opcode::Execute, their_version).unwrap();
            prop_assert_eq!(read, RequestBody::Execute(theirs));
            let read = Execute::decode(version, &bytes).unwrap();
            prop_assert_eq!((read.id, read.result_metadata_id), (&id[..], meta));
            prop_assert!(read.params.values.iter().eq(values.values().iter()));
        }
    }

    #[test]
    fn batches(kind in 0..3_u8, children in vec((".{0,9}", any::<bool>()), 0..4), params in params()) {
        for (version, their_version) in VERSIONS {
            let values = value_list(&params.values, None, version);
            let child = |(text, prepared): &(String, bool)| BatchQuery {
                subject: match prepared {
                    true => BatchQuerySubj::PreparedId(CBytesShort::new(text.clone().into())),
                    false => BatchQuerySubj::QueryString(text.clone()),
                },
                values: their_values(&params.values, None, version),
            };
            let tail = params.theirs(version);
            let theirs = BodyReqBatch {
                batch_type: BatchType::try_from(kind).unwrap(),
                queries: children.iter().map(child).collect(),
                consistency: tail.consistency,
                serial_consistency: tail.serial_consistency,
                timestamp: tail.timestamp,
                keyspace: tail.keyspace,
                now_in_seconds: tail.now_in_seconds,
            };
            let ours: Vec<_> = children.iter().map(|(text, prepared)| BatchChild {
                statement: match prepared {
                    true => BatchStatement::Prepared(text.as_bytes()),
                    false => BatchStatement::Text(text),
                },
                values: values.values(),
            }).collect();
            let empty = ValueList::positional(version);
            let mut tail = params.ours(&empty, version);
            (tail.page_size, tail.paging_state) = (None, None);
            let our_kind = [BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter][usize::from(kind)];
            let bytes = body(|out| encode::batch(out, version, our_kind, ours.iter().copied(), &tail));
            prop_assert_eq!(&bytes, &theirs.serialize_to_vec(their_version));
            let read = RequestBody::try_from(&bytes, Opcode::Batch, their_version).unwrap();
            prop_assert_eq!(read, RequestBody::Batch(theirs));
            let read = Batch::decode(version, &bytes).unwrap();
            prop_assert_eq!(read.kind, our_kind);
            prop_assert!(read.children().eq(ours.iter().copied()));
            prop_assert_eq!(read.params.timestamp, params.timestamp);
        }
    }
}

#[test]
fn prepares() {
    for (version, their_version) in VERSIONS {
        for keyspace in [None, Some("ks")] {
            let keyspace = keyspace.filter(|_| version >= 5);
            let bytes = body(|out| encode::prepare(out, version, "SELECT", keyspace));
            let theirs = BodyReqPrepare::new("SELECT".into(), keyspace.map(Into::into));
            assert_eq!(bytes, theirs.serialize_to_vec(their_version));
            assert_eq!(Prepare::decode(version, &bytes).unwrap().keyspace, keyspace);
        }
    }
}

#[test]
fn the_small_requests() {
    for (_, their_version) in VERSIONS {
        let bytes = body(|out| encode::startup(out, [("CQL_VERSION", "3.0.0")]));
        let read = RequestBody::try_from(&bytes, Opcode::Startup, their_version).unwrap();
        let RequestBody::Startup(startup) = &read else { panic!("{read:?}") };
        assert_eq!(startup.map["CQL_VERSION"], "3.0.0");
        let theirs = read.serialize_to_vec(their_version);
        assert_eq!(theirs, bytes);
        assert_eq!(Startup::decode(&theirs).unwrap().options.get("CQL_VERSION"), Some("3.0.0"));

        let events = ["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];
        let bytes = body(|out| encode::register(out, events));
        let read = RequestBody::try_from(&bytes, Opcode::Register, their_version).unwrap();
        let theirs = read.serialize_to_vec(their_version);
        assert!(Register::decode(&theirs).unwrap().events.iter().eq(events));

        let token = Some(&b"\0user\0password"[..]);
        let bytes = body(|out| encode::auth_response(out, token));
        let theirs = BodyReqAuthResponse::new(CBytes::new(b"\0user\0password".to_vec()));
        assert_eq!(bytes, theirs.serialize_to_vec(their_version));
        assert_eq!(AuthResponse::decode(&bytes).unwrap().token, token);
    }
}
