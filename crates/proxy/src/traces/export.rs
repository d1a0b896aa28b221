//! The exporter's side of the proxy: fetches the cores' spans, converts them into OpenTelemetry's
//! form, and puts them into the exporter's queue. It runs on the control thread.
//!
//! A request becomes two spans. The span of the proxy, of kind SERVER, is a child of the client's
//! span, and lasts from the decoding of the request to its answer. The span of the node, of kind
//! CLIENT, is a child of the proxy's, and begins when the last node gets the request. The gap
//! between the two starts is the wait in the proxy.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shunt_admin::Label as _;
use shunt_otlp::{Attribute, Endpoint, Exporter, Kind, Settings, Span, SpanId, SpanSender};
use shunt_tls::SmallFile;
use shunt_wire::cql::message::Consistency;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::error;

use super::report::TraceReport;
use super::table::{CoreSpans, QuerySpan};
use crate::admin::core_answers::{PATIENCE, ask_all};
use crate::config::Config;
use crate::control::{CoreMail, Mailbox};
use crate::limits;
use crate::metrics::Outcome;

/// Pause between two polls of the cores.
const FETCH_EVERY: Duration = Duration::from_millis(500);
/// Most polls without a pause, of cores that have more spans than fit into one answer.
const ROUNDS_MAX: usize = limits::SPANS_KEPT_MAX / limits::SPANS_FETCHED_MAX;
/// Largest file of authorities, bytes.
const CA_BYTES_MAX: u64 = 1 << 20;
/// Characters of a statement's first word that may name an operation.
const OPERATION_CHARS_MAX: usize = 16;

/// The task that fetches spans.
pub struct TraceExport {
    mailboxes: Vec<Mailbox>,
    config: watch::Receiver<Arc<Config>>,
    report: Arc<TraceReport>,
    settings: watch::Sender<Option<Arc<Settings>>>,
    /// Sources of the settings in use.
    opened: Option<Opened>,
    queue: SpanSender,
    ids: SpanIds,
    host: String,
}

impl fmt::Debug for TraceExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceExport")
    }
}

impl TraceExport {
    /// Creates the task, and the one that sends to the collector. `host` is the name of this host,
    /// and may be empty.
    pub fn new(
        mailboxes: Vec<Mailbox>,
        config: watch::Receiver<Arc<Config>>,
        report: Arc<TraceReport>,
        host: String,
        seed: u64,
    ) -> (TraceExport, Exporter) {
        let (settings, receiver) = watch::channel(None);
        let (exporter, queue) = Exporter::new(receiver, Arc::clone(&report.exports), seed);
        let ids = SpanIds(seed | 1);
        let opened = None;
        (TraceExport { mailboxes, config, report, settings, opened, queue, ids, host }, exporter)
    }

    /// Checks the files that the options name.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn check(config: &Config) -> Result<(), String> {
        settings_of(config).map(|_| ())
    }

    /// Fetches spans until the sender of the configuration is dropped.
    pub async fn run(mut self) {
        self.follow();
        loop {
            let changed = if self.settings.borrow().is_some() {
                self.fetch().await;
                tokio::select! {
                    () = sleep(FETCH_EVERY) => continue,
                    changed = self.config.changed() => changed,
                }
            } else {
                self.config.changed().await
            };
            if changed.is_err() {
                return;
            }
            self.follow();
        }
    }

    /// Adopts the current options, if those of traces have changed, or the file of authorities has.
    /// If a file cannot be used, the previous options stay.
    ///
    /// A change ends a pause that the collector has asked for, so changes of other options must not
    /// count. Without a file, authorities are read from the system, which takes a while.
    fn follow(&mut self) {
        let config = Arc::clone(&self.config.borrow_and_update());
        let opened = Opened::of(&config);
        if self.opened.as_ref() == Some(&opened) {
            return;
        }
        match settings_of(&config) {
            Ok(settings) => {
                self.opened = Some(opened);
                if settings.is_none() {
                    self.report.exemplars.clear();
                }
                let settings = settings.map(|settings| settings.with_host(self.host.clone()));
                self.settings.send_replace(settings.map(Arc::new));
            }
            Err(why) => error!(%why, "the previous options of traces stay in use"),
        }
    }

    /// Empties the cores' tables of spans.
    async fn fetch(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut has_more = false;
            let Self { mailboxes, queue, ids, report, .. } = self;
            let take = |answer: CoreSpans| {
                has_more |= answer.has_more;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                // The core's clock has another start. The answer arrives soon after the core made
                // it.
                let offset_ns = (now.as_nanos() as u64).saturating_sub(answer.now_ns);
                for span in answer.spans {
                    let ended_unix_ns = offset_ns + span.ended_ns;
                    let total_ns = span.wait_ns + span.node_ns;
                    report.exemplars.note(span.parent.trace_id, total_ns, ended_unix_ns);
                    spans_of(&span, answer.core, ended_unix_ns, ids)
                        .into_iter()
                        .flatten()
                        .for_each(|span| queue.send(span));
                }
                answer.core
            };
            ask_all(mailboxes, PATIENCE, CoreMail::Spans, take).await;
            if !has_more {
                return;
            }
        }
    }
}

/// The options of traces, and the content of the file of authorities.
#[derive(PartialEq)]
struct Opened {
    endpoint: Option<Endpoint>,
    headers: Option<PathBuf>,
    ca: Option<PathBuf>,
    ca_content: Option<Vec<u8>>,
    service_name: String,
}

impl Opened {
    fn of(config: &Config) -> Opened {
        let ca = config.otlp_ca.as_deref();
        let content = ca.and_then(|path| SmallFile::read(path, CA_BYTES_MAX).ok());
        Opened {
            endpoint: config.otlp_endpoint.clone(),
            headers: config.otlp_headers_file.clone(),
            ca: config.otlp_ca.clone(),
            ca_content: content.map(|file| file.bytes),
            service_name: config.otlp_service_name.clone(),
        }
    }
}

fn settings_of(config: &Config) -> Result<Option<Settings>, String> {
    let Some(endpoint) = config.otlp_endpoint.clone() else { return Ok(None) };
    let (ca, headers) = (config.otlp_ca.clone(), config.otlp_headers_file.clone());
    Settings::open(endpoint, ca, headers, config.otlp_service_name.clone()).map(Some)
}

/// Generator of span ids (xorshift); never 0.
struct SpanIds(u64);

impl SpanIds {
    fn next(&mut self) -> SpanId {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.to_be_bytes()
    }
}

/// The spans of a request: the proxy's, and the node's if a node got the request.
fn spans_of(
    query: &QuerySpan,
    core: usize,
    ended_unix_ns: u64,
    ids: &mut SpanIds,
) -> [Option<Span>; 2] {
    let operation = operation_of(query);
    let name: Arc<str> = match &query.table {
        Some(table) => format!("{operation} {table}").into(),
        None => operation.as_str().into(),
    };
    let sent_unix_ns = ended_unix_ns.saturating_sub(query.node_ns);
    let common = attributes_of(query, operation);
    let is_error = query.outcome != Outcome::Ok && query.outcome != Outcome::Intercepted
        || query.error.is_some();
    let own = Span {
        trace_id: query.parent.trace_id,
        span_id: ids.next(),
        parent_id: query.parent.parent_id,
        has_remote_parent: true,
        name: Arc::clone(&name),
        kind: Kind::Server,
        start_unix_ns: sent_unix_ns.saturating_sub(query.wait_ns),
        end_unix_ns: ended_unix_ns,
        attributes: [common.clone(), own_attributes_of(query, core)].concat(),
        is_error,
    };
    let had_node = query.node.is_some() || query.node_ns > 0;
    let of_node = had_node.then(|| Span {
        span_id: ids.next(),
        parent_id: own.span_id,
        has_remote_parent: false,
        kind: Kind::Client,
        start_unix_ns: sent_unix_ns,
        attributes: [common, node_attributes_of(query.node)].concat(),
        ..own.clone()
    });
    [Some(own), of_node]
}

/// The first word of the statement, or the kind of the request.
fn operation_of(query: &QuerySpan) -> String {
    let text = query.digest.as_ref().map(|digest| &*digest.text);
    let word = text.and_then(|text| text.split_whitespace().next());
    let is_operation = |word: &&str| {
        word.len() <= OPERATION_CHARS_MAX && word.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    word.filter(is_operation).unwrap_or(query.kind.text()).to_ascii_uppercase()
}

/// Attributes of both spans, by the semantic conventions of databases and of Cassandra.
fn attributes_of(query: &QuerySpan, operation: String) -> Vec<(&'static str, Attribute)> {
    let mut attributes = vec![
        ("db.system.name", Attribute::Word("cassandra")),
        ("db.operation.name", Attribute::Text(operation)),
    ];
    let consistency = Consistency(query.consistency).to_string().to_ascii_lowercase();
    attributes.push(("cassandra.consistency.level", Attribute::Text(consistency)));
    if let Some(digest) = &query.digest {
        attributes.push(("db.query.text", Attribute::Text(digest.text.to_string())));
    }
    let named = query.table.as_deref().and_then(|table| table.split_once('.'));
    match (named, &query.keyspace) {
        (Some((keyspace, table)), _) if !table.contains('.') => {
            attributes.push(("db.namespace", Attribute::Text(keyspace.to_owned())));
            attributes.push(("db.collection.name", Attribute::Text(table.to_owned())));
        }
        (_, Some(keyspace)) => {
            attributes.push(("db.namespace", Attribute::Shared(Arc::clone(keyspace))));
        }
        _ => {}
    }
    match query.error {
        Some(code) => {
            let code = format!("0x{code:04x}");
            attributes.push(("db.response.status_code", Attribute::Text(code.clone())));
            attributes.push(("error.type", Attribute::Text(code)));
        }
        None if query.outcome != Outcome::Ok => {
            attributes.push(("error.type", Attribute::Word(query.outcome.text())));
        }
        None => {}
    }
    attributes
}

/// Attributes of the proxy's span alone.
fn own_attributes_of(query: &QuerySpan, core: usize) -> Vec<(&'static str, Attribute)> {
    let number = |number: u64| Attribute::Number(i64::try_from(number).unwrap_or(i64::MAX));
    let mut attributes = vec![
        ("shunt.request", Attribute::Word(query.kind.text())),
        ("shunt.outcome", Attribute::Word(query.outcome.text())),
        ("shunt.wait_ns", number(query.wait_ns)),
        ("shunt.node_ns", number(query.node_ns)),
        ("shunt.retries", number(query.retries.into())),
        ("shunt.core", number(core as u64)),
    ];
    if let Some(role) = &query.role {
        attributes.push(("shunt.role", Attribute::Shared(Arc::clone(role))));
    }
    if let Some(client) = query.client {
        attributes.push(("client.address", Attribute::Text(client.ip().to_string())));
    }
    attributes
}

/// Attributes of the node's span alone.
fn node_attributes_of(node: Option<SocketAddr>) -> Vec<(&'static str, Attribute)> {
    let Some(node) = node else { return Vec::new() };
    vec![
        ("server.address", Attribute::Text(node.ip().to_string())),
        ("server.port", Attribute::Number(node.port().into())),
    ]
}

#[cfg(test)]
mod tests;
