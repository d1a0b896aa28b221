//! Requests: the input is a stream of envelopes.

use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    AuthResponse, Batch, Execute, ExecuteRouting, Prepare, Query, QueryParams, Register, Startup,
    Values, encode, split_request_prefix,
};

use crate::{each_envelope, written};

/// Tries one input.
pub fn run(data: &[u8]) {
    each_envelope(data, |header, body| {
        let Ok((payload, message)) = split_request_prefix(header.flags, body) else { return };
        assert!(body.ends_with(message));
        if let Some(payload) = payload {
            assert!(payload.iter().all(|(key, _)| key.len() < body.len()));
        }
        request(header, message);
    });
}

fn request(header: Header, body: &[u8]) {
    let version = header.version;
    match header.opcode {
        opcode::STARTUP => startup(body),
        opcode::QUERY => query(version, body),
        opcode::PREPARE => prepare(version, body),
        opcode::EXECUTE => execute(version, body),
        opcode::BATCH => batch(version, body),
        opcode::REGISTER => {
            let Ok(register) = Register::decode(body) else { return };
            let again = written(|out| encode::register(out, register.events.iter()));
            assert!(body.starts_with(&again));
        }
        opcode::AUTH_RESPONSE => {
            let Ok(response) = AuthResponse::decode(body) else { return };
            let again = written(|out| encode::auth_response(out, response.token));
            assert_eq!(AuthResponse::decode(&again), Ok(response));
        }
        _ => {}
    }
}

fn startup(body: &[u8]) {
    let Ok(startup) = Startup::decode(body) else { return };
    let again = written(|out| encode::startup(out, startup.options.iter()));
    assert!(body.starts_with(&again));
    for (key, _) in startup.options.iter() {
        assert!(startup.options.get(key).is_some());
    }
}

fn query(version: u8, body: &[u8]) {
    let Ok(query) = Query::decode(version, body) else { return };
    let again = written(|out| encode::query(out, version, query.text, &query.params));
    let found = Query::decode(version, &again).expect("our own query");
    assert_eq!(found.text, query.text);
    same_params(&found.params, &query.params);
}

fn prepare(version: u8, body: &[u8]) {
    let Ok(prepare) = Prepare::decode(version, body) else { return };
    let again = written(|out| encode::prepare(out, version, prepare.text, prepare.keyspace));
    assert_eq!(Prepare::decode(version, &again), Ok(prepare));
}

fn execute(version: u8, body: &[u8]) {
    let routing = ExecuteRouting::decode(version, body);
    let Ok(execute) = Execute::decode(version, body) else { return assert!(routing.is_err()) };
    let routing = routing.expect("refuses what the full decoder refuses and nothing else");
    assert_eq!(
        (routing.id, routing.consistency, routing.values),
        (execute.id, execute.params.consistency, execute.params.values)
    );
    assert_eq!(routing.doubtful, execute.params.is_doubtful());
    let again = written(|out| {
        encode::execute(out, version, execute.id, execute.result_metadata_id, &execute.params)
    });
    let found = Execute::decode(version, &again).expect("our own execute");
    assert_eq!((found.id, found.result_metadata_id), (execute.id, execute.result_metadata_id));
    same_params(&found.params, &execute.params);
}

fn batch(version: u8, body: &[u8]) {
    let Ok(batch) = Batch::decode(version, body) else { return };
    assert_eq!(batch.children().count(), batch.len());
    for child in batch.children() {
        check_values(&child.values);
    }
    let again =
        written(|out| encode::batch(out, version, batch.kind, batch.children(), &batch.params));
    let found = Batch::decode(version, &again).expect("our own batch");
    assert!(found.children().eq(batch.children()));
    same_params(&found.params, &batch.params);
}

/// Compares everything except the flags, since unknown ones are not written.
fn same_params(found: &QueryParams<'_>, expected: &QueryParams<'_>) {
    check_values(&expected.values);
    assert!(found.values.iter().eq(expected.values.iter()));
    let without = |params: &QueryParams<'_>| {
        format!("{:?}", QueryParams { flags: 0, values: Values::default(), ..*params })
    };
    assert_eq!(without(found), without(expected));
    assert_eq!(found.skips_metadata(), expected.skips_metadata());
}

fn check_values(values: &Values<'_>) {
    assert_eq!(values.iter().count(), values.len());
    // Look-up by index is linear, so only some are tried.
    for (index, (name, value)) in values.iter().enumerate().take(20) {
        assert_eq!(values.get(index), Some(value));
        assert_eq!(name.is_some(), values.is_named());
        if let Some(name) = name {
            assert!(values.named(name).is_some());
        }
    }
    assert_eq!(values.get(values.len()), None);
}
