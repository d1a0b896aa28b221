//! The spans of one request.

use shunt_wire::trace_context::TraceParent;

use super::*;
use crate::digests::table::DigestName;
use crate::metrics::QueryKind;

const ENDED: u64 = 1_700_000_000_000_000_000;

fn query() -> QuerySpan {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    QuerySpan {
        parent: TraceParent::parse(parent.as_bytes()).expect("well formed"),
        ended_ns: 50,
        wait_ns: 10,
        node_ns: 30,
        node: Some(([10, 0, 0, 7], 9042).into()),
        outcome: Outcome::Ok,
        error: None,
        kind: QueryKind::Execute,
        consistency: 6,
        retries: 1,
        digest: Some(Arc::new(DigestName {
            kind: QueryKind::Execute,
            keyspace: None,
            text: "select v FROM shop.items WHERE id = ?".into(),
        })),
        table: Some("shop.items".into()),
        keyspace: None,
        role: Some("orders".into()),
        client: None,
    }
}

fn attribute(span: &Span, name: &str) -> Option<Attribute> {
    span.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
}

fn text(text: &str) -> Option<Attribute> {
    Some(Attribute::Text(text.to_owned()))
}

#[test]
fn a_request_has_a_span_of_the_proxy_and_in_it_one_of_the_node() {
    let query = query();
    let [own, of_node] = spans_of(&query, 2, ENDED, &mut SpanIds(1));
    let (own, of_node) = (own.expect("a span"), of_node.expect("a span"));
    assert_eq!((own.trace_id, own.parent_id), (query.parent.trace_id, query.parent.parent_id));
    assert_eq!((of_node.trace_id, of_node.parent_id), (own.trace_id, own.span_id));
    assert!(own.has_remote_parent && !of_node.has_remote_parent);
    assert!(own.span_id != of_node.span_id && own.span_id != [0; 8]);
    assert_eq!((own.kind, of_node.kind), (Kind::Server, Kind::Client));
    assert_eq!((own.start_unix_ns, own.end_unix_ns), (ENDED - 40, ENDED));
    assert_eq!((of_node.start_unix_ns, of_node.end_unix_ns), (ENDED - 30, ENDED));
    assert_eq!(&*own.name, "SELECT shop.items");
    assert_eq!(attribute(&own, "db.query.text"), text("select v FROM shop.items WHERE id = ?"));
    assert_eq!(attribute(&own, "db.namespace"), text("shop"));
    assert_eq!(attribute(&own, "db.collection.name"), text("items"));
    assert_eq!(attribute(&own, "cassandra.consistency.level"), text("local_quorum"));
    assert_eq!(attribute(&own, "shunt.wait_ns"), Some(Attribute::Number(10)));
    assert_eq!(attribute(&own, "shunt.retries"), Some(Attribute::Number(1)));
    assert_eq!(attribute(&own, "server.address"), None);
    assert_eq!(attribute(&of_node, "server.address"), text("10.0.0.7"));
    assert_eq!(attribute(&of_node, "server.port"), Some(Attribute::Number(9042)));
    assert!(!own.is_error && attribute(&own, "error.type").is_none());
}

#[test]
fn a_request_that_no_node_had_has_no_span_of_one() {
    let (node, digest, table) = (None, None, None);
    let outcome = Outcome::Overloaded;
    let query = QuerySpan { node, node_ns: 0, digest, table, outcome, ..query() };
    let [own, of_node] = spans_of(&query, 0, ENDED, &mut SpanIds(1));
    assert!(of_node.is_none());
    let own = own.expect("a span");
    assert_eq!((&*own.name, own.is_error), ("EXECUTE", true));
    assert_eq!(attribute(&own, "error.type"), Some(Attribute::Word("overloaded")));
}

#[test]
fn an_error_has_its_code() {
    let query = QuerySpan { outcome: Outcome::Error, error: Some(0x1200), ..query() };
    let [own, of_node] = spans_of(&query, 0, ENDED, &mut SpanIds(1));
    for span in [own, of_node].into_iter().flatten() {
        assert!(span.is_error);
        assert_eq!(attribute(&span, "error.type"), text("0x1200"));
        assert_eq!(attribute(&span, "db.response.status_code"), text("0x1200"));
    }
}

#[test]
fn a_table_whose_name_has_a_dot_is_not_cut() {
    let table = Some("shop.\"a.b\"".into());
    let query = QuerySpan { table, keyspace: Some("shop".into()), ..query() };
    let [own, _] = spans_of(&query, 0, ENDED, &mut SpanIds(1));
    let own = own.expect("a span");
    assert_eq!(attribute(&own, "db.collection.name"), None);
    assert_eq!(attribute(&own, "db.namespace"), Some(Attribute::Shared("shop".into())));
}

/// New settings end a pause that the collector has asked for.
#[test]
fn a_change_of_another_option_leaves_the_collector_alone() {
    let endpoint = Endpoint::parse("http://127.0.0.1:4318").expect("a URL");
    let before = Config { otlp_endpoint: Some(endpoint), ..Config::default() };
    let (sender, config) = watch::channel(Arc::new(before.clone()));
    let (mut export, _exporter) =
        TraceExport::new(Vec::new(), config, Arc::default(), String::new(), 1);
    let mut settings = export.settings.subscribe();
    export.follow();
    assert!(settings.has_changed().expect("a sender") && settings.borrow_and_update().is_some());
    for (config, is_new) in [
        (Config { log: "debug".to_owned(), ..before.clone() }, false),
        (Config { clients_max: 7, ..before.clone() }, false),
        (Config { otlp_service_name: "shop".to_owned(), ..before.clone() }, true),
        (before, true),
    ] {
        sender.send_replace(Arc::new(config));
        export.follow();
        assert_eq!(settings.has_changed().expect("a sender"), is_new);
        settings.mark_unchanged();
    }
}
