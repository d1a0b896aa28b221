//! The queue of spans, and the task that empties it.
//!
//! One request is under way at a time. A request whose failure may pass is sent again after growing
//! pauses, as the section "Failures" of the specification says, and given up when its spans are too
//! old to be of use. Retries must never go on beyond that time, overlap, or keep more than one
//! request besides the queue.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use shunt_tls::{Client as TlsClient, ClientOptions, OptionNames};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::encode::{self, BATCH_SPANS_MAX, Resource};
use crate::endpoint::Endpoint;
use crate::headers;
use crate::metrics::{ExportMetrics, Failure, Loss};
use crate::post::{Reply, post};
use crate::span::Span;

/// Spans that wait for the collector, about 1 KiB each.
pub const QUEUE_SPANS_MAX: usize = 8_192;
/// Deadline of a request, from the lookup of the name to the end of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the first failure; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest pause that a collector can ask for.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Time for which the spans of a request are sent again.
const KEPT: Duration = Duration::from_secs(60);
/// Time between two lines of the log about failures.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(60);

const OPTION_NAMES: OptionNames = OptionNames {
    servers: "collector",
    tls: "otlp_endpoint",
    ca: "otlp_ca",
    certificate: "otlp_ca",
    key: "otlp_ca",
    name: "otlp_endpoint",
};

/// The collector, and the names of this program in spans.
#[derive(Debug)]
pub struct Settings {
    pub(crate) endpoint: Endpoint,
    pub(crate) headers_file: Option<PathBuf>,
    pub(crate) tls: Option<Arc<TlsClient>>,
    pub(crate) service_name: String,
    pub(crate) version: &'static str,
    pub(crate) host: String,
}

impl Settings {
    /// Reads the files. `ca`: certificates of the authorities for `https`, in place of the
    /// system's. The file of headers is read again for each request.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn open(
        endpoint: Endpoint,
        ca: Option<PathBuf>,
        headers_file: Option<PathBuf>,
        service_name: String,
    ) -> Result<Settings, String> {
        if let Some(path) = &headers_file {
            headers::read(path).map_err(|why| format!("otlp_headers_file: {why}"))?;
        }
        let tls = match endpoint.has_tls() {
            false => None,
            true => {
                let options = ClientOptions { names: OPTION_NAMES, ca, ..ClientOptions::default() };
                let client = TlsClient::open(options).map_err(|error| error.to_string())?;
                Some(Arc::new(client))
            }
        };
        let (version, host) = (env!("CARGO_PKG_VERSION"), String::new());
        Ok(Settings { endpoint, headers_file, tls, service_name, version, host })
    }

    /// Adds the name of this host.
    pub fn with_host(self, host: String) -> Settings {
        Settings { host, ..self }
    }
}

/// The sending end of the queue.
#[derive(Clone, Debug)]
pub struct SpanSender {
    queue: mpsc::Sender<Span>,
    metrics: Arc<ExportMetrics>,
}

impl SpanSender {
    /// Puts a span into the queue. In a full queue, it is dropped and counted. Only the thread of
    /// the exporter may call it.
    pub fn send(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.metrics.dropped.of(Loss::QueueFull).add(1);
        }
    }
}

/// The task that sends spans to the collector.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Receiver<Span>,
    settings: watch::Receiver<Option<Arc<Settings>>>,
    metrics: Arc<ExportMetrics>,
    /// State of the generator of jitter; never 0.
    seed: u64,
    lines: Lines,
}

/// Limit on the lines of the log about the collector: one about a failure in [`TOLD_EVERY`], and
/// one about its end. A collector may refuse every second request at once.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Time of the last line about a failure.
    at: Option<Instant>,
    /// Failures since then.
    suppressed: u64,
    /// The last line was about a failure.
    told_failure: bool,
}

impl Lines {
    /// Counts a failure. Returns the number of those without a line before it, if it gets one.
    pub(crate) fn fail(&mut self, now: Instant) -> Option<u64> {
        if self.at.is_some_and(|at| now.duration_since(at) < TOLD_EVERY) {
            self.suppressed += 1;
            return None;
        }
        (self.at, self.told_failure) = (Some(now), true);
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Notes that the collector has taken spans; true if a line says so.
    pub(crate) fn take(&mut self) -> bool {
        std::mem::take(&mut self.told_failure)
    }
}

impl Exporter {
    /// Creates the task and the sender of its queue. Without settings, the task drops all spans.
    pub fn new(
        settings: watch::Receiver<Option<Arc<Settings>>>,
        metrics: Arc<ExportMetrics>,
        seed: u64,
    ) -> (Exporter, SpanSender) {
        let (sender, queue) = mpsc::channel(QUEUE_SPANS_MAX);
        let sender = SpanSender { queue: sender, metrics: Arc::clone(&metrics) };
        let lines = Lines::default();
        (Exporter { queue, settings, metrics, seed: seed | 1, lines }, sender)
    }

    /// Sends spans until every [`SpanSender`] is gone and the queue is empty.
    pub async fn run(mut self) {
        let mut batch = Vec::new();
        while self.queue.recv_many(&mut batch, BATCH_SPANS_MAX).await > 0 {
            let mut rest = &batch[..];
            while !rest.is_empty() {
                rest = &rest[self.export(rest).await..];
            }
            batch.clear();
        }
    }

    /// Sends the first of these spans; returns the number of spans sent.
    async fn export(&mut self, spans: &[Span]) -> usize {
        let Some(settings) = self.settings.borrow().clone() else {
            self.metrics.dropped.of(Loss::SwitchedOff).add(spans.len() as u64);
            return spans.len();
        };
        let resource = Resource {
            service_name: &settings.service_name,
            version: settings.version,
            host: &settings.host,
        };
        let (body, count) = encode::request(&resource, spans);
        self.deliver(Bytes::from(body), count as u64).await;
        count
    }

    /// Sends one request, and retries if necessary.
    async fn deliver(&mut self, body: Bytes, count: u64) {
        let until = Instant::now() + KEPT;
        let mut pause = PAUSE_FIRST;
        loop {
            // A reload may have changed the collector meanwhile.
            let Some(settings) = self.settings.borrow_and_update().clone() else {
                self.metrics.dropped.of(Loss::SwitchedOff).add(count);
                return;
            };
            let reply = timeout(REQUEST_TIMEOUT, post(&settings, body.clone())).await;
            let (asked, failure, why) = match reply {
                Ok(Reply::Taken { rejected }) => return self.taken(count, rejected),
                Ok(Reply::Refused { why }) => {
                    self.fail(&settings, Failure::Refused, &why);
                    self.metrics.dropped.of(Loss::Refused).add(count);
                    return;
                }
                Ok(Reply::Later { pause, failure, why }) => (pause, failure, why),
                Err(_) => {
                    let why = format!("no answer within {} s", REQUEST_TIMEOUT.as_secs());
                    (None, Failure::TimedOut, why)
                }
            };
            self.fail(&settings, failure, &why);
            let asked = asked.unwrap_or_default().min(ASKED_PAUSE_MAX);
            let next = asked.max(self.jittered(pause));
            self.rest(next).await;
            if Instant::now() >= until {
                self.metrics.dropped.of(Loss::Expired).add(count);
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits, at most until the collector changes.
    async fn rest(&mut self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            changed = self.settings.changed() => if changed.is_err() {
                // Nothing changes any more: the process ends.
                sleep(pause).await;
            }
        }
    }

    /// Three quarters to five quarters of a pause, so that proxies do not all retry at once.
    fn jittered(&mut self, pause: Duration) -> Duration {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        pause * (768 + (self.seed % 512) as u32) / 1024
    }

    fn taken(&mut self, count: u64, rejected: u64) {
        let rejected = rejected.min(count);
        self.metrics.exported.add(count - rejected);
        self.metrics.dropped.of(Loss::Refused).add(rejected);
        if self.lines.take() {
            info!("the collector takes spans again");
        }
    }

    fn fail(&mut self, settings: &Settings, failure: Failure, why: &str) {
        self.metrics.failures.of(failure).add(1);
        let Some(suppressed) = self.lines.fail(Instant::now()) else { return };
        warn!(collector = %settings.endpoint, why, suppressed, "spans could not be exported");
    }
}
