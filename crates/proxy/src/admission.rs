//! Admission of connections before a core gets them: the header of a balancer first, then TLS.
//!
//! ```text
//! accept thread -> handshake threads -> cores
//!                      ^ clients' addresses, sessions, refusals
//!                  AdmissionRules -> ServerTls
//! ```
//! Connections from the addresses of `proxy_protocol_from` must begin with a header of the PROXY
//! protocol. For everything that follows, the client's address is the one in it. A header from any
//! other address is not read: it arrives as bytes that are neither TLS nor CQL.

use std::sync::Arc;
use std::time::Instant;

use shunt_admin::Label as _;
use shunt_reactor::{Accepted, Admission, ClientAddress, Security, SessionFault, SessionInfo};
use shunt_tls_upkeep::{Lines, Listeners, ServerTls};
use shunt_wire::proxy_protocol::{MalformedHeader, read_header};
use tracing::{debug, warn};

use crate::config::{Config, Network};
use crate::metrics::{HeaderResult, TlsMetrics};
use crate::tls::refusal;

/// Answer to a driver that connects from a balancer's address, past the balancer.
const NO_HEADER: &str = "connections from this address must begin with a PROXY header \
    (proxy_protocol_from): connect through the balancer, or have it send the header";

/// The rules for new connections.
pub struct AdmissionRules {
    balancers: Vec<Network>,
    tls: Option<Arc<ServerTls>>,
    metrics: Arc<TlsMetrics>,
    lines: Arc<Lines>,
}

impl AdmissionRules {
    /// The rules of a configuration; `None` if connections go to their cores as they are.
    /// `listeners` logs later how many lines were left out.
    pub fn of_config(
        config: &Config,
        listeners: &Listeners,
        metrics: Arc<TlsMetrics>,
    ) -> Option<Arc<dyn Security>> {
        let balancers = config.proxy_protocol_from.clone();
        let tls = listeners.clients.clone();
        if balancers.is_empty() {
            return tls.map(|tls| tls as Arc<dyn Security>);
        }
        Some(Arc::new(Self {
            balancers,
            tls,
            metrics,
            lines: Arc::clone(&listeners.refusal_lines),
        }))
    }
}

/// Warnings about a configuration.
pub fn check(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.proxy_protocol_from.iter().any(|network| network.is_everything()) {
        let warning = "proxy_protocol_from: every host may connect as any client, and none without \
            a PROXY header: list the addresses of the balancers alone";
        warnings.push(warning.to_owned());
    }
    warnings
}

impl Security for AdmissionRules {
    fn expects_header(&self, origin: &Accepted) -> bool {
        let address = origin.peer.direct().map(|address| address.ip());
        address.is_some_and(|ip| self.balancers.iter().any(|network| network.contains(ip)))
    }

    fn read_header(
        &self,
        origin: &Accepted,
        bytes: &[u8],
    ) -> Result<Option<(usize, ClientAddress)>, SessionFault> {
        let Some(header) = read_header(bytes).map_err(|MalformedHeader(why)| SessionFault(why))?
        else {
            return Ok(None);
        };
        let Some(client) = header.client else {
            self.metrics.headers.count(HeaderResult::Own);
            return Ok(Some((header.bytes, origin.peer)));
        };
        self.metrics.headers.count(HeaderResult::Ok);
        debug!(address = %client, balancer = %origin.peer, "a balancer has forwarded a client");
        Ok(Some((header.bytes, ClientAddress::Forwarded(client))))
    }

    fn refuse_header(&self, origin: &Accepted, fault: SessionFault, head: &[u8]) -> Vec<u8> {
        let SessionFault(why) = fault;
        self.metrics.headers.count(HeaderResult::Refused);
        if let Some(suppressed) = self.lines.admit(why, Instant::now()) {
            let reason = HeaderResult::Refused.text();
            warn!(
                reason, balancer = %origin.peer, why, suppressed,
                "refused a connection of proxy_protocol_from without a valid PROXY header"
            );
        }
        match head.first() {
            Some(3..=5) => refusal(head, NO_HEADER),
            _ => Vec::new(),
        }
    }

    fn admit(&self, origin: &Accepted, head: &[u8]) -> Admission {
        match &self.tls {
            Some(tls) => tls.admit(origin, head),
            None => Admission::Plain,
        }
    }

    fn handshake_ended(&self, origin: &Accepted, outcome: Result<&SessionInfo, SessionFault>) {
        match (&self.tls, outcome) {
            (Some(tls), outcome) => tls.handshake_ended(origin, outcome),
            // Without TLS, no byte of the client has come.
            (None, Ok(_)) => {}
            (None, Err(SessionFault(why))) => {
                if let Some(suppressed) = self.lines.admit(why, Instant::now()) {
                    let address = origin.peer;
                    warn!(%address, why, suppressed, "closed a client before its first request");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use shunt_wire::cql::envelope::{Header, opcode};

    use super::*;
    use crate::config::Kind as _;

    fn admission(listeners: &Listeners, metrics: &Arc<TlsMetrics>) -> Arc<dyn Security> {
        let network = |text: &str| Network::from_text(text).expect("a network");
        let proxy_protocol_from = vec![network("10.0.8.7"), network("10.0.9.0/24")];
        let config = Config { proxy_protocol_from, ..Config::default() };
        AdmissionRules::of_config(&config, listeners, Arc::clone(metrics)).expect("an admission")
    }

    fn from(address: &str) -> Accepted {
        let peer: SocketAddr = address.parse().expect("an address");
        Accepted { listener: 0, peer: peer.into(), local: ([10, 0, 0, 1], 9042).into() }
    }

    #[test]
    fn only_balancers_begin_with_a_header() {
        let admission = admission(&Listeners::default(), &Arc::default());
        for (address, expected) in [
            ("10.0.8.7:1", true),
            ("10.0.9.200:1", true),
            ("[::ffff:10.0.9.200]:1", true),
            ("10.0.8.8:1", false),
            ("[::1]:1", false),
        ] {
            assert_eq!(admission.expects_header(&from(address)), expected, "{address}");
        }
        // The client that a header names is no balancer, whatever its address.
        let named = ClientAddress::Forwarded(([10, 0, 8, 7], 1).into());
        assert!(!admission.expects_header(&Accepted { peer: named, ..from("10.0.8.7:1") }));
        let plain = Listeners::default();
        assert!(AdmissionRules::of_config(&Config::default(), &plain, Arc::default()).is_none());
    }

    #[test]
    fn headers_are_counted_by_what_they_say() {
        let metrics = Arc::<TlsMetrics>::default();
        let (admission, origin) = (admission(&Listeners::default(), &metrics), from("10.0.8.7:5"));
        let read = |text: &str| admission.read_header(&origin, text.as_bytes());
        let client = ClientAddress::Forwarded(([192, 0, 2, 7], 58400).into());
        assert_eq!(read("PROXY TCP4 192.0.2.7 10.0.0.1 58400 9042\r\n"), Ok(Some((42, client))));
        assert_eq!(read("PROXY UNKNOWN\r\n"), Ok(Some((15, origin.peer))));
        assert_eq!(read("PROXY UNKNOWN\r"), Ok(None));
        let fault = read("\x04").expect_err("no header");
        assert!(admission.refuse_header(&origin, fault, b"PROXY x").is_empty());
        let answer = admission.refuse_header(&origin, fault, b"\x05\0\0\x07");
        let header = Header::decode(&answer).expect("a header");
        assert_eq!((header.version, header.stream, header.opcode), (5, 7, opcode::ERROR));
        let count = |result| metrics.headers.get(result);
        let results = [HeaderResult::Ok, HeaderResult::Own, HeaderResult::Refused];
        assert_eq!(results.map(count), [1, 1, 2]);
    }

    #[test]
    fn lines_that_are_left_out_are_logged_at_the_next_tick() {
        let listeners = Listeners::default();
        let (admission, origin) = (admission(&listeners, &Arc::default()), from("10.0.8.7:5"));
        for _ in 0..3 {
            admission.refuse_header(&origin, SessionFault("no header"), b"");
        }
        listeners.tick(Instant::now() + Lines::INTERVAL);
        let unlogged = listeners.refusal_lines.overdue(Instant::now() + 3 * Lines::INTERVAL);
        assert_eq!(unlogged, []);
    }

    #[test]
    fn a_network_of_all_addresses_is_warned_of() {
        for (text, warnings) in [("0.0.0.0/0", 1), ("10.0.0.0/8", 0)] {
            let proxy_protocol_from = vec![Network::from_text(text).expect("a network")];
            let config = Config { proxy_protocol_from, ..Config::default() };
            assert_eq!(check(&config).len(), warnings, "{text}");
        }
    }
}
