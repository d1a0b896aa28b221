//! Records of slow queries: what they say, how long they stay, and how many a second has.

use std::collections::VecDeque;
use std::sync::Arc;

use shunt_reactor::ClientAddress;
use shunt_wire::cql::message::Consistency;
use tokio::sync::mpsc;
use tracing::warn;

use crate::client::identity::Driver;
use crate::host_quota::HostQuota;
use crate::limits;
use crate::metrics::{Outcome, QueryKind};

/// One slow query, as logs and pages show it: all texts are printable and of bounded length.
#[derive(Clone, Debug)]
pub struct SlowQuery {
    /// Time of the query's end, on the clock of the core.
    pub ended_ns: u64,
    /// End of the query.
    pub outcome: Outcome,
    /// Code of the node's error; `None`: there was none, or it is not known.
    pub error: Option<i32>,
    /// Kind of the request.
    pub kind: QueryKind,
    /// The statement, in a batch the first one; `None`: its text is not kept.
    pub text: Option<Box<str>>,
    /// Statements of the request: more than 1 only for a batch.
    pub statements: u16,
    /// The table with its keyspace, as far as the text names them.
    pub table: Option<Box<str>>,
    /// Keyspace of the session.
    pub keyspace: Option<Arc<str>>,
    /// Role; `None`: the ring asks for no login.
    pub role: Option<Arc<str>>,
    /// Identity by certificate.
    pub identity: Option<Arc<str>>,
    /// The client; `None`: it has left.
    pub client: Option<ClientAddress>,
    /// Driver and application of the client.
    pub driver: Option<Arc<Driver>>,
    /// The node that had the query last; `None`: none had it.
    pub node: Option<Box<str>>,
    /// Consistency level; `None`: the proxy itself served it.
    pub consistency: Option<u16>,
    /// Tag of a rule that matches it.
    pub tag: Option<Arc<str>>,
    /// Number of nodes that lost the query before.
    pub retries: u8,
    /// The client's stream id.
    pub stream: i16,
    /// Nanoseconds from the request's decoding until it went to that node.
    pub wait_ns: u64,
    /// Nanoseconds from then until the answer.
    pub node_ns: u64,
}

impl SlowQuery {
    /// Nanoseconds from the request's decoding until its answer.
    pub fn total_ns(&self) -> u64 {
        self.wait_ns.saturating_add(self.node_ns)
    }

    /// Approximate memory, bytes.
    fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + text(&self.text) + text(&self.table) + text(&self.node)
    }

    fn log(&self, core: usize, suppressed: u64) {
        let (outcome, kind) = (shunt_admin::Label::text(self.outcome), self.kind);
        let client = self.client.map(|client| client.to_string());
        let driver = self.driver.as_deref();
        warn!(
            core,
            outcome,
            error = self.error,
            kind = shunt_admin::Label::text(kind),
            text = self.text.as_deref(),
            statements = (self.statements > 1).then_some(self.statements),
            table = self.table.as_deref(),
            keyspace = self.keyspace.as_deref(),
            role = self.role.as_deref(),
            identity = self.identity.as_deref(),
            application = driver.map(|driver| &*driver.application).filter(|name| !name.is_empty()),
            client,
            node = self.node.as_deref(),
            consistency = self.consistency.map(|level| display(Consistency(level))),
            tag = self.tag.as_deref(),
            retries = (self.retries > 0).then_some(self.retries),
            stream = self.stream,
            wait_ms = self.wait_ns / 1_000_000,
            node_ms = self.node_ns / 1_000_000,
            total_ms = self.total_ns() / 1_000_000,
            suppressed,
            "slow query"
        );
    }
}

/// The slow queries of one core, for the admin pages.
#[derive(Debug)]
pub struct CoreSlowQueries {
    /// Number of the core.
    pub core: usize,
    /// Time of the answer, on the clock of the core.
    pub now_ns: u64,
    /// The last ones, oldest first.
    pub queries: Vec<SlowQuery>,
}

/// The owner of a core's records.
#[derive(Default)]
pub(crate) struct SlowQueries {
    queries: VecDeque<SlowQuery>,
    bytes: usize,
    pub(super) budget: Budget,
}

impl SlowQueries {
    /// Keeps a record, and writes its line.
    pub(super) fn keep(&mut self, core: usize, query: SlowQuery) {
        self.keep_with_line(core, query, limits::SLOW_QUERY_LINES_PER_SECOND);
    }

    /// The same for a request that the proxy itself served.
    pub(super) fn keep_served(&mut self, core: usize, query: SlowQuery) {
        self.keep_with_line(core, query, limits::SLOW_SERVED_LINES_PER_SECOND);
    }

    /// Keeps a record, and writes its line if this second has fewer lines.
    fn keep_with_line(&mut self, core: usize, query: SlowQuery, lines_max: usize) {
        if let Some(suppressed) = self.budget.take_line(lines_max) {
            query.log(core, suppressed);
        }
        self.bytes += query.bytes();
        self.queries.push_back(query);
        while self.queries.len() > limits::SLOW_QUERIES_MAX
            || self.bytes > limits::SLOW_QUERIES_BYTES_MAX
        {
            let Some(oldest) = self.queries.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// Says how many slow queries had no line, once the burst that they came in is over.
    pub(crate) fn tell_suppressed(&mut self, core: usize, now_ns: u64) {
        if let Some(suppressed) = self.budget.overdue(now_ns) {
            warn!(core, suppressed, "more queries were slow");
        }
    }

    /// Answers the admin pages.
    pub(crate) fn report(&self, core: usize, now_ns: u64, answer: &mpsc::Sender<CoreSlowQueries>) {
        let queries = self.queries.iter().cloned().collect();
        // The requester has gone, or has room for the answer of each core.
        let _ = answer.try_send(CoreSlowQueries { core, now_ns, queries });
    }
}

/// The records and lines of the present second.
#[derive(Default)]
pub(super) struct Budget {
    records: HostQuota,
    /// Records among them of requests that the proxy itself served.
    served: HostQuota,
    lines: usize,
    /// Records without a line since the last line.
    suppressed: u64,
}

impl Budget {
    /// Claims a record for a query of this client.
    pub(super) fn take_record(&mut self, now_ns: u64, client: Option<ClientAddress>) -> bool {
        if self.records.begin_second(now_ns) {
            self.lines = 0;
        }
        let (most, most_of_host) =
            (limits::SLOW_QUERIES_PER_SECOND, limits::SLOW_QUERIES_OF_HOST_PER_SECOND);
        let is_taken = self.records.take(now_ns, client, most, most_of_host);
        self.suppressed += u64::from(!is_taken);
        is_taken
    }

    /// Claims a record for a request of this client that the proxy itself served. Clients wait in
    /// line for locks on purpose: such waits leave most records of a second to queries.
    pub(super) fn take_served_record(
        &mut self,
        now_ns: u64,
        client: Option<ClientAddress>,
    ) -> bool {
        let most = limits::SLOW_SERVED_PER_SECOND;
        if !self.served.take(now_ns, client, most, most / 2) {
            self.suppressed += 1;
            return false;
        }
        self.take_record(now_ns, client)
    }

    /// Claims a line for the record just claimed, of so many in a second: `Some` with the number of
    /// queries without a line before it.
    fn take_line(&mut self, lines_max: usize) -> Option<u64> {
        if self.lines >= lines_max {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// The number of queries without a line, once the second in which they came is over.
    fn overdue(&mut self, now_ns: u64) -> Option<u64> {
        let is_due = self.suppressed > 0 && self.records.is_over(now_ns);
        is_due.then(|| std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn query(text: &str) -> SlowQuery {
        SlowQuery {
            ended_ns: 0,
            outcome: Outcome::Ok,
            error: None,
            kind: QueryKind::Query,
            text: Some(text.into()),
            statements: 1,
            table: None,
            keyspace: None,
            role: None,
            identity: None,
            client: None,
            driver: None,
            node: None,
            consistency: Some(1),
            tag: None,
            retries: 0,
            stream: 0,
            wait_ns: 1,
            node_ns: 2,
        }
    }

    fn host(number: u32) -> Option<ClientAddress> {
        Some(SocketAddr::from((Ipv4Addr::from_bits(number), 9_042)).into())
    }

    #[test]
    fn memory_is_bounded_in_number_and_in_bytes() {
        for length in [0, limits::SLOW_QUERY_TEXT_BYTES_MAX] {
            let mut kept = SlowQueries::default();
            for number in 0..10_000 {
                kept.keep(0, query(&format!("{number:length$}")));
                assert!(kept.bytes <= limits::SLOW_QUERIES_BYTES_MAX);
            }
            let texts: Vec<&str> =
                kept.queries.iter().filter_map(|query| query.text.as_deref()).collect();
            assert!((100..=limits::SLOW_QUERIES_MAX).contains(&texts.len()), "{}", texts.len());
            assert_eq!(texts.last().map(|text| text.trim()), Some("9999"), "the last ones stay");
            let bytes: usize = kept.queries.iter().map(SlowQuery::bytes).sum();
            assert_eq!(bytes, kept.bytes);
        }
    }

    #[test]
    fn one_host_leaves_room_for_others_in_each_second() {
        let mut budget = Budget::default();
        let mut of_one = 0;
        for second in 0..3 {
            let now_ns = second * limits::SECOND_NS;
            of_one += (0..10_000).filter(|_| budget.take_record(now_ns, host(1))).count();
            assert!(budget.take_record(now_ns, host(2)), "another host");
        }
        assert_eq!(of_one, 3 * limits::SLOW_QUERIES_OF_HOST_PER_SECOND);
    }

    #[test]
    fn records_and_hosts_of_a_second_are_bounded() {
        let mut budget = Budget::default();
        let records = (0..100_000).filter(|number| budget.take_record(0, host(*number))).count();
        assert_eq!(records, limits::SLOW_QUERIES_PER_SECOND);
        assert!(budget.records.hosts() <= records);
    }

    #[test]
    fn waits_for_locks_leave_records_and_lines_to_queries() {
        let mut budget = Budget::default();
        let taken = (0..10_000).filter(|number| budget.take_served_record(7, host(*number)));
        assert_eq!(taken.count(), limits::SLOW_SERVED_PER_SECOND);
        let lines_max = limits::SLOW_SERVED_LINES_PER_SECOND;
        let lines = (0..100).filter(|_| budget.take_line(lines_max).is_some()).count();
        assert_eq!(lines, lines_max);
        assert!(budget.take_record(7, host(20_000)));
        assert!(budget.take_line(limits::SLOW_QUERY_LINES_PER_SECOND).is_some());
    }

    #[test]
    fn the_end_of_a_burst_is_told_in_the_next_second() {
        let mut budget = Budget::default();
        let queries = 10 * limits::SLOW_QUERY_LINES_PER_SECOND;
        let lines = (0..queries).filter(|_| {
            budget.take_record(7, host(1));
            budget.take_line(limits::SLOW_QUERY_LINES_PER_SECOND).is_some()
        });
        let lines = lines.count() as u64;
        assert!(lines < queries as u64);
        assert_eq!(budget.overdue(limits::SECOND_NS - 1), None);
        let told = budget.overdue(limits::SECOND_NS).expect("a number");
        assert!(told >= queries as u64 - lines, "{told}");
        assert_eq!(budget.overdue(2 * limits::SECOND_NS), None);
    }

    #[test]
    fn no_query_without_a_line_is_forgotten() {
        let (mut budget, mut lines, mut told) = (Budget::default(), 0, 0);
        for number in 0..10_000u32 {
            let now_ns = u64::from(number) * limits::SECOND_NS / 1_000;
            if budget.take_record(now_ns, host(number))
                && let Some(suppressed) = budget.take_line(limits::SLOW_QUERY_LINES_PER_SECOND)
            {
                (lines, told) = (lines + 1, told + 1 + suppressed);
            }
        }
        assert_eq!(lines, 10 * limits::SLOW_QUERY_LINES_PER_SECOND);
        assert_eq!(told + budget.suppressed, 10_000);
    }
}
