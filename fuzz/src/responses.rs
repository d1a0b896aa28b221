//! Responses: the input is a stream of envelopes.

use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    AuthToken, Authenticate, ErrorMessage, Event, Metadata, ResultMessage, Rows, Supported, encode,
    result_kind, split_response_prefix,
};
use shunt_wire::cql::types::CqlType;

use crate::{each_envelope, written};

/// Tries one input.
pub fn run(data: &[u8]) {
    each_envelope(data, |header, body| {
        let Ok((prefix, message)) = split_response_prefix(header.flags, body) else { return };
        assert_eq!(prefix.length + message.len(), body.len());
        let again = written(|out| prefix.put(out));
        let (found, rest) = split_response_prefix(prefix.flags(), &again).expect("our own prefix");
        assert!(rest.is_empty());
        assert_eq!(found.tracing_id, prefix.tracing_id);
        let warnings = |warnings: Option<shunt_wire::cql::message::StringList<'_>>| {
            warnings.map(|warnings| warnings.iter().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(warnings(found.warnings), warnings(prefix.warnings));
        response(header, message);
    });
}

fn response(header: Header, body: &[u8]) {
    match header.opcode {
        opcode::ERROR => error(header.version, body),
        opcode::RESULT => result(header.version, body),
        opcode::EVENT => {
            let Ok(event) = Event::decode(body) else { return };
            let again = written(|out| encode::event(out, &event));
            assert!(body.starts_with(&again));
            assert_eq!(Event::decode(&again), Ok(event));
        }
        opcode::SUPPORTED => {
            let Ok(supported) = Supported::decode(body) else { return };
            let options = supported.options.iter().map(|(key, values)| (key, values.iter()));
            assert!(body.starts_with(&written(|out| encode::supported(out, options))));
        }
        opcode::AUTHENTICATE => {
            let Ok(authenticate) = Authenticate::decode(body) else { return };
            assert!(
                body.starts_with(&written(|out| encode::authenticate(out, authenticate.class)))
            );
        }
        opcode::AUTH_CHALLENGE | opcode::AUTH_SUCCESS => {
            let Ok(token) = AuthToken::decode(body) else { return };
            let again = written(|out| encode::auth_success(out, token.token));
            assert_eq!(AuthToken::decode(&again), Ok(token));
        }
        _ => {}
    }
}

fn error(version: u8, body: &[u8]) {
    let Ok(message) = ErrorMessage::decode(version, body) else { return };
    let again = written(|out| encode::error_with(out, version, &message));
    assert_eq!(ErrorMessage::decode(version, &again), Ok(message));
    assert!(again.len() <= body.len());
}

fn result(version: u8, body: &[u8]) {
    let Ok(message) = ResultMessage::decode(version, body) else { return };
    assert!(result_kind::peek(body).is_some());
    match message {
        ResultMessage::Void => {}
        ResultMessage::SetKeyspace(keyspace) => {
            assert!(body.starts_with(&written(|out| encode::set_keyspace(out, keyspace))));
        }
        ResultMessage::SchemaChange(change) => {
            assert!(body.starts_with(&written(|out| encode::schema_change(out, &change))));
        }
        ResultMessage::Rows(found) => rows(&found, body),
        ResultMessage::Prepared(prepared) => {
            metadata(&prepared.result, body);
            let markers = prepared.bind.markers().count();
            assert!(markers == prepared.bind.count || markers == 0);
            assert!(prepared.bind.partition_key().len() * 2 <= prepared.bind.raw.len());
            prepared.bind.markers().for_each(|marker| type_option(marker.type_option));
        }
    }
}

fn rows(rows: &Rows<'_>, body: &[u8]) {
    metadata(&rows.metadata, body);
    assert_eq!(rows.content, &body[rows.content_offset..]);
    let mut walked = 0;
    let mut count = 0;
    for row in rows.rows() {
        count += 1;
        let Ok(row) = row else { break };
        assert_eq!(row.values().count(), rows.metadata.column_count);
        assert_eq!(row.raw, &rows.content[walked..walked + row.raw.len()]);
        walked += row.raw.len();
        assert_eq!(row.get(rows.metadata.column_count), None);
    }
    assert!(count <= rows.row_count);
}

fn metadata(metadata: &Metadata<'_>, body: &[u8]) {
    assert_eq!(metadata.raw, &body[metadata.offset..metadata.offset + metadata.raw.len()]);
    let columns = metadata.columns().count();
    assert!(columns == metadata.column_count || columns == 0);
    metadata.columns().for_each(|column| type_option(column.type_option));
}

/// Checks that both readers of type options agree on the end of one.
fn type_option(option: &[u8]) {
    let mut rest = option;
    if CqlType::decode(&mut rest).is_some() {
        assert!(rest.is_empty());
    }
}
