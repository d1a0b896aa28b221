//! The exporter before collectors that answer, refuse, pause, keep silent or are away.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use shunt_admin::Label as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::exporter::{Lines, TOLD_EVERY};

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(120);

fn span(number: u64) -> Span {
    let mut trace_id = [7; 16];
    trace_id[8..].copy_from_slice(&number.to_be_bytes());
    Span {
        trace_id,
        span_id: number.to_be_bytes(),
        parent_id: [1; 8],
        has_remote_parent: true,
        name: "SELECT shop.items".into(),
        kind: Kind::Server,
        start_unix_ns: 1_700_000_000_000_000_001,
        end_unix_ns: 1_700_000_000_000_000_009,
        attributes: vec![
            ("db.system.name", Attribute::Word("cassandra")),
            ("db.query.text", Attribute::Text("a \"b\" \u{1F980}".to_owned())),
            ("shunt.wait_ns", Attribute::Number(8)),
        ],
        is_error: number == 2,
    }
}

struct Bench {
    metrics: Arc<ExportMetrics>,
    sender: SpanSender,
    settings: watch::Sender<Option<Arc<Settings>>>,
    task: JoinHandle<()>,
}

fn settings(url: &str) -> Option<Arc<Settings>> {
    let endpoint = Endpoint::parse(url).expect("a URL");
    let settings = Settings::open(endpoint, None, None, "shunt".to_owned()).expect("settings");
    Some(Arc::new(settings.with_host("proxy-1".to_owned())))
}

fn start(url: &str) -> Bench {
    let (settings, receiver) = watch::channel(settings(url));
    let metrics = Arc::<ExportMetrics>::default();
    let (exporter, sender) = Exporter::new(receiver, Arc::clone(&metrics), 1);
    Bench { metrics, sender, settings, task: tokio::spawn(exporter.run()) }
}

impl Bench {
    fn dropped(&self, loss: Loss) -> u64 {
        self.metrics.dropped.of(loss).get()
    }

    async fn end(self) -> Arc<ExportMetrics> {
        drop(self.sender);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends").expect("no panic");
        self.metrics
    }
}

/// Reads one request; returns its head and body.
async fn request(stream: &mut TcpStream) -> (String, Value) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut chunk).await.expect("bytes");
        assert!(read > 0, "the exporter has closed");
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a head").to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").parse().expect("a number");
        if bytes.len() >= end + 4 + length {
            return (head, serde_json::from_slice(&bytes[end + 4..]).expect("JSON"));
        }
    }
}

/// Answers one request; returns it.
async fn answer(listener: &TcpListener, status: &str, body: &str) -> (String, Value) {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let found = request(&mut stream).await;
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.expect("written");
    found
}

async fn collector() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    (listener, url)
}

fn spans_of(request: &Value) -> &Vec<Value> {
    let spans = request.pointer("/resourceSpans/0/scopeSpans/0/spans");
    spans.and_then(Value::as_array).expect("spans")
}

#[tokio::test]
async fn a_request_has_the_form_of_the_specification() {
    let (listener, url) = collector().await;
    let bench = start(&format!("{url}/base"));
    bench.sender.send(span(1));
    bench.sender.send(span(2));
    let (head, body) = answer(&listener, "200 OK", "{}").await;
    assert!(head.starts_with("post /base/v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let resource = body.pointer("/resourceSpans/0/resource/attributes").expect("attributes");
    let service = serde_json::json!({ "key": "service.name", "value": { "stringValue": "shunt" } });
    assert_eq!(resource[0], service);
    let spans = spans_of(&body);
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0]["traceId"], "07070707070707070000000000000001");
    assert_eq!(spans[0]["spanId"], "0000000000000001");
    assert_eq!(spans[0]["parentSpanId"], "0101010101010101");
    assert_eq!(spans[0]["kind"], 2);
    assert_eq!(spans[0]["flags"], 0x301);
    assert_eq!(spans[0]["startTimeUnixNano"], "1700000000000000001");
    assert_eq!(spans[0]["attributes"][1]["value"]["stringValue"], "a \"b\" \u{1F980}");
    assert_eq!(spans[0]["attributes"][2]["value"]["intValue"], "8");
    assert_eq!(spans[0]["status"], serde_json::json!({}));
    assert_eq!(spans[1]["status"]["code"], 2);
    let metrics = bench.end().await;
    assert_eq!(metrics.exported.get(), 2);
}

#[tokio::test]
async fn spans_that_the_collector_rejects_are_not_exported() {
    let (listener, url) = collector().await;
    let bench = start(&url);
    (0..4).for_each(|number| bench.sender.send(span(number)));
    let partial = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
    answer(&listener, "200 OK", partial).await;
    let metrics = bench.end().await;
    assert_eq!((metrics.exported.get(), metrics.dropped.of(Loss::Refused).get()), (1, 3));
}

#[tokio::test]
async fn a_request_is_repeated_only_if_it_may_succeed_later() {
    let (listener, url) = collector().await;
    let bench = start(&url);
    bench.sender.send(span(1));
    let busy = "503 Service Unavailable\r\nretry-after: 0";
    let (_, first) = answer(&listener, busy, "").await;
    let (_, again) = answer(&listener, "200 OK", "not JSON").await;
    assert_eq!(first, again);
    bench.sender.send(span(2));
    answer(&listener, "400 Bad Request", "no").await;
    bench.sender.send(span(3));
    let (_, third) = answer(&listener, "200 OK", "{}").await;
    assert_eq!(spans_of(&third)[0]["spanId"], "0000000000000003", "400 is not repeated");
    let metrics = bench.end().await;
    let failures = |failure| metrics.failures.of(failure).get();
    assert_eq!((metrics.exported.get(), metrics.dropped.of(Loss::Refused).get()), (2, 1));
    assert_eq!((failures(Failure::Throttled), failures(Failure::Refused)), (1, 1));
}

/// The collector's connections are lost in various places; each time the spans are sent again.
#[tokio::test]
async fn a_connection_that_ends_early_costs_no_span() {
    let (listener, url) = collector().await;
    let bench = start(&url);
    bench.sender.send(span(1));
    drop(listener.accept().await.expect("a connection"));
    let (mut stream, _) = listener.accept().await.expect("a connection");
    request(&mut stream).await;
    drop(stream);
    answer(&listener, "200 OK", "{}").await;
    let metrics = bench.end().await;
    assert_eq!((metrics.exported.get(), metrics.failures.of(Failure::Unreachable).get()), (1, 2));
}

#[tokio::test]
async fn a_dead_collector_costs_the_queue_and_nothing_more() {
    let bench = start("http://127.0.0.1:1");
    let sent = 4 * QUEUE_SPANS_MAX as u64;
    for number in 0..sent {
        bench.sender.send(span(number));
    }
    assert_eq!(bench.dropped(Loss::QueueFull), sent - QUEUE_SPANS_MAX as u64);
    let failed = async {
        while bench.metrics.failures.of(Failure::Unreachable).get() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, failed).await.expect("a failure");
    bench.settings.send_replace(None);
    let metrics = bench.end().await;
    let all: u64 = Loss::ALL.iter().map(|loss| metrics.dropped.of(*loss).get()).sum();
    assert_eq!((metrics.exported.get(), all), (0, sent), "each span is accounted for");
}

/// A refused request is not repeated, so that no pause limits the failures.
#[test]
fn a_collector_that_refuses_every_second_request_fills_no_log() {
    let (mut lines, start) = (Lines::default(), Instant::now());
    let (mut failures, mut ends, mut untold) = (0, 0, 0);
    for number in 0..10_000 {
        let told = lines.fail(start + 3 * TOLD_EVERY * number / 10_000);
        failures += u32::from(told.is_some());
        untold += told.unwrap_or(0);
        ends += u32::from(lines.take());
    }
    assert_eq!((failures, ends), (3, 3));
    assert_eq!(lines.fail(start + 4 * TOLD_EVERY), Some(9_997 - untold));
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let (listener, url) = collector().await;
    let bench = start(&url);
    bench.sender.send(span(1));
    let (mut stream, _) = listener.accept().await.expect("a connection");
    request(&mut stream).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("written");
    let endless = async { while stream.write_all(&[b' '; 4096]).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, endless).await.expect("the exporter closes");
    assert_eq!(bench.end().await.exported.get(), 1, "the status has said so");
}

#[tokio::test]
async fn a_reload_sends_what_waits_to_the_new_collector() {
    let (silent, old) = collector().await;
    let (listener, new) = collector().await;
    let bench = start(&old);
    bench.sender.send(span(1));
    answer(&silent, "503 Service Unavailable\r\nretry-after: 1000", "").await;
    bench.settings.send_replace(settings(&new));
    let (_, body) = answer(&listener, "200 OK", "{}").await;
    assert_eq!(spans_of(&body).len(), 1);
    assert_eq!(bench.end().await.exported.get(), 1);
}

#[test]
fn a_request_of_long_spans_stays_within_its_bytes() {
    let mut long = span(1);
    long.attributes.push(("db.query.text", Attribute::Text("x".repeat(100_000))));
    let spans = vec![long; 100];
    let resource = encode::Resource { service_name: "s", version: "0", host: "" };
    let (body, count) = encode::request(&resource, &spans);
    assert!(count < spans.len() && body.len() < encode::BATCH_BYTES_MAX + 110_000, "{count}");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(spans_of(&body).len(), count);
}

/// Otherwise the exporter would send requests without spans for ever.
#[test]
fn a_request_has_a_span_whatever_the_length_of_the_name() {
    let name = "x".repeat(encode::BATCH_BYTES_MAX);
    let resource = encode::Resource { service_name: &name, version: "0", host: "" };
    let (_, count) = encode::request(&resource, &[span(1), span(2)]);
    assert_eq!(count, 1);
}
