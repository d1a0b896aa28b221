//! The parts of the program that the pages show, and the pages' content.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Map, Value as Json, json};
use shunt_tls::{Sessions, Tokens};

use crate::counter::{Family, Label as _};
use crate::encode::{Encoder, MetricFamily, plain};
use crate::exemplars::{self, Exemplar};
use crate::history::{History, Reading};
use crate::page_turns::PageTurns;
use crate::{labels, process};

/// A future of a [`Part`]'s state.
pub type State<'a> = Pin<Box<dyn Future<Output = Json> + Send + 'a>>;

/// A future of the families of a page of metrics.
pub type MetricState<'a> = Pin<Box<dyn Future<Output = Vec<MetricFamily>> + Send + 'a>>;

/// A future of the outcome of a change; a refusal says why in `error`.
pub type Change<'a> = Pin<Box<dyn Future<Output = Result<Json, Json>> + Send + 'a>>;

/// A part of the program that the pages show. The admin thread may call it at any time.
pub trait Part: Send + Sync + 'static {
    /// Writes the part's metrics. Their names must differ from those of other parts.
    ///
    /// # Errors
    /// The encoder fails.
    fn metrics(&self, _encoder: &mut Encoder<'_>) -> fmt::Result {
        Ok(())
    }

    /// Returns a histogram of seconds without labels, and traces of single queries in it.
    fn exemplars(&self) -> (&'static str, Vec<Exemplar>) {
        ("", Vec::new())
    }

    /// Returns an entry for the answer of `/healthz` for each thread that has stopped working;
    /// empty if all work.
    fn stuck(&self, _now: Instant) -> Map<String, Json> {
        Map::new()
    }

    /// Called once a second, whether or not anybody asks for a page.
    fn look(&self) {}

    /// Returns the reason why no client should be sent here now; `None` if ready.
    fn not_ready(&self) -> Option<String> {
        None
    }

    /// Returns the part's state as an object. Its entries become entries of `/status`, so their
    /// names must differ from those of other parts.
    fn status(&self) -> State<'_> {
        Box::pin(std::future::ready(Json::Null))
    }

    /// Reads what the part has done since its start; the page shows the last minutes of the first
    /// part that has this.
    fn reading(&self) -> Option<Reading> {
        None
    }

    /// Returns the names of the part's own pages, which no other part has.
    fn pages(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the content of one of its own pages; `None` for any other name.
    fn page(&self, _name: &str) -> Option<State<'_>> {
        None
    }

    /// Returns the names of the part's own pages of metrics, which no other part has. Their paths
    /// begin with `/metrics/`.
    fn metric_pages(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the families of one of its own pages of metrics; `None` for any other name.
    fn metric_page(&self, _name: &str) -> Option<MetricState<'_>> {
        None
    }

    /// Returns the names of the part's own changes, which no other part has.
    fn changes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Makes one of its own changes, with the parameters of the request, for a client at this
    /// address; `None` for any other name.
    fn change(&self, _name: &str, _parameters: &Json, _from: IpAddr) -> Option<Change<'_>> {
        None
    }
}

labels! {
    /// The reason why a request for a page was refused.
    pub enum Refusal = "reason" {
        /// The request had no token.
        NoToken = "no_token",
        /// The token was none of the accepted ones.
        WrongToken = "wrong_token",
        /// The request named a host that the pages do not answer for.
        Host = "host",
        /// The request asked for a change from another machine, and the pages have no tokens.
        Remote = "remote",
        /// The request came from a page of another site in a browser.
        CrossSite = "cross_site",
    }
}

/// The right to ask for the pages.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Host names, besides addresses, under which the pages may be requested, each without a port.
    pub names: Vec<String>,
    /// TLS of the pages; `None`: clear text.
    pub tls: Option<Arc<dyn Sessions>>,
    /// Tokens for all pages but `/healthz` and `/readyz`; `None`: nobody needs one.
    pub tokens: Option<Arc<Tokens>>,
}

/// The content of all pages.
pub struct Pages {
    parts: Vec<Arc<dyn Part>>,
    version: &'static str,
    pub(crate) access: Access,
    /// Written by the thread that serves the pages.
    pub(crate) refusals: Family<Refusal, { Refusal::COUNT }>,
    /// Turns of the requests for pages that may take long.
    pub(crate) turns: PageTurns,
    started: Instant,
    history: History,
}

impl Pages {
    /// Creates the pages of these parts; `version` is the program's version.
    pub fn new(version: &'static str, parts: Vec<Arc<dyn Part>>) -> Arc<Self> {
        Self::with_names(version, parts, Vec::new())
    }

    /// The same, with further host names of this machine, each without a port.
    pub fn with_names(
        version: &'static str,
        parts: Vec<Arc<dyn Part>>,
        names: Vec<String>,
    ) -> Arc<Self> {
        Self::with_access(version, parts, Access { names, ..Access::default() })
    }

    /// The same with TLS and tokens.
    pub fn with_access(
        version: &'static str,
        parts: Vec<Arc<dyn Part>>,
        access: Access,
    ) -> Arc<Self> {
        let (refusals, history) = (Family::default(), History::default());
        let (turns, started) = (PageTurns::default(), Instant::now());
        Arc::new(Self { parts, version, access, refusals, turns, started, history })
    }

    /// The metrics of all parts and of the process as OpenMetrics text, ending in `# EOF`.
    ///
    /// # Errors
    /// None in practice: writing to a `String` does not fail.
    pub fn render(self: &Arc<Self>) -> Result<String, fmt::Error> {
        text_of(Everything(Arc::clone(self)))
    }

    /// The names of the parts' own pages of metrics.
    pub fn metric_names(&self) -> impl Iterator<Item = &'static str> {
        self.parts.iter().flat_map(|part| part.metric_pages()).copied()
    }

    /// A part's own page of metrics as OpenMetrics text; `None` for any other name.
    pub async fn metric_page(&self, name: &str) -> Option<Result<String, fmt::Error>> {
        let state = self.parts.iter().find_map(|part| part.metric_page(name))?;
        Some(text_of(Families(state.await)))
    }

    /// The same with exemplars.
    ///
    /// # Errors
    /// The errors of [`Pages::render`].
    pub fn render_with_exemplars(self: &Arc<Self>) -> Result<String, fmt::Error> {
        let mut text = self.render()?;
        for (family, exemplars) in self.parts.iter().map(|part| part.exemplars()) {
            if !exemplars.is_empty() {
                text = exemplars::add(&text, family, &exemplars);
            }
        }
        Ok(text)
    }

    /// Threads that are stuck, over all parts.
    pub(crate) fn stuck(&self) -> Map<String, Json> {
        let now = Instant::now();
        self.parts.iter().flat_map(|part| part.stuck(now)).collect()
    }

    /// Runs the checks that each part makes once a second.
    pub(crate) fn look(&self) {
        self.stuck();
        self.parts.iter().for_each(|part| part.look());
    }

    /// Notes in the history what has been done so far.
    pub(crate) fn note(&self) {
        if let Some(reading) = self.parts.iter().find_map(|part| part.reading()) {
            self.history.note(reading, Instant::now());
        }
    }

    /// Returns the stuck loops, or else the first part's reason for not being ready.
    pub(crate) fn not_ready(&self) -> Option<String> {
        let stuck = self.stuck();
        let stuck = stuck
            .iter()
            .next()
            .map(|(what, which)| format!("event loops are stuck: {what} {which}"));
        stuck.or_else(|| self.parts.iter().find_map(|part| part.not_ready()))
    }

    /// The names of the parts' own pages.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.parts.iter().flat_map(|part| part.pages()).copied()
    }

    /// The content of a part's own page.
    pub(crate) async fn page(&self, name: &str) -> Option<Json> {
        let state = self.parts.iter().find_map(|part| part.page(name))?;
        Some(state.await)
    }

    /// The names of the parts' own changes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &'static str> {
        self.parts.iter().flat_map(|part| part.changes()).copied()
    }

    /// The rates and latencies of the last minutes.
    pub(crate) fn history(&self) -> Json {
        self.history.show(Instant::now())
    }

    /// The content of a page with JSON: `status`, `history`, or a part's own page. `None` for any
    /// other name.
    pub async fn content(&self, name: &str) -> Option<Json> {
        match name {
            "status" => Some(self.status().await),
            "history" => Some(self.history()),
            _ => self.page(name).await,
        }
    }

    /// The right to ask for the pages, which also guards other ways to their content.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Counts a refused request. Only the thread that serves the pages may call this.
    pub fn count_refusal(&self, refusal: Refusal) {
        self.refusals.of(refusal).add(1);
    }

    /// The version of the program.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Makes a part's own change, with the parameters of a request from this address. `None` for
    /// any other name; a refusal says why in `error`.
    pub async fn change(
        &self,
        name: &str,
        parameters: &Json,
        from: IpAddr,
    ) -> Option<Result<Json, Json>> {
        let outcome = self.parts.iter().find_map(|part| part.change(name, parameters, from))?;
        Some(outcome.await)
    }

    /// The state of all parts as one object.
    pub(crate) async fn status(&self) -> Json {
        let reason = self.not_ready();
        let mut all = Map::new();
        all.insert("version".to_owned(), self.version.into());
        all.insert("uptime_seconds".to_owned(), self.started.elapsed().as_secs().into());
        all.insert("ready".to_owned(), reason.is_none().into());
        all.insert("reason".to_owned(), json!(reason));
        for part in &self.parts {
            if let Json::Object(entries) = part.status().await {
                all.extend(entries);
            }
        }
        Json::Object(all)
    }

    fn process(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let version = [(vec![("version", self.version.to_owned())], 1.0)];
        encoder.gauge("shunt_build", "Version of the program.", None, &version)?;
        let refusals: Vec<_> = Refusal::ALL
            .iter()
            .map(|reason| {
                let labels = vec![(Refusal::NAME, reason.text().to_owned())];
                (labels, self.refusals.of(*reason).get() as f64)
            })
            .collect();
        let help = "Requests for these pages refused.";
        encoder.counter("shunt_admin_refusals", help, None, &refusals)?;
        let usage = process::usage();
        let (cpu, memory) = ([plain(usage.cpu_seconds)], [plain(usage.resident_bytes)]);
        encoder.counter("process_cpu", "CPU time, user and system.", Some(&Unit::Seconds), &cpu)?;
        encoder.gauge(
            "process_resident_memory",
            "Resident memory.",
            Some(&Unit::Bytes),
            &memory,
        )?;
        encoder.gauge(
            "process_open_fds",
            "Open file descriptors.",
            None,
            &[plain(usage.open_fds)],
        )?;
        encoder.gauge(
            "process_max_fds",
            "Limit of open file descriptors.",
            None,
            &[plain(usage.max_fds)],
        )
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("version", &self.version)
            .field("parts", &self.parts.len())
            .finish()
    }
}

/// The OpenMetrics text of a collector's metrics.
fn text_of(collector: impl Collector) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Families(Vec<MetricFamily>);

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = Encoder::new(encoder);
        self.0.iter().try_for_each(|family| encoder.family(family))
    }
}

#[derive(Debug)]
struct Everything(Arc<Pages>);

impl Collector for Everything {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = Encoder::new(encoder);
        self.0.process(&mut encoder)?;
        self.0.parts.iter().try_for_each(|part| part.metrics(&mut encoder))
    }
}
