//! One round of attempts to get a control connection: some known nodes first, then the contact
//! points, then more nodes. A node may have named any number of others that never answer, so they
//! keep nobody from the contact points. A name whose look-up hangs keeps nobody from any other
//! address: all are looked up at the same time, and slow ones come last.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

use super::access::Access;
use super::contact;
use super::datacentre::Resolved;
use super::error::{Attempt, ControlError};
use super::handshake::{self, Session};
use super::ring_identity::Members;
use crate::config::{CQL_PORT, Config};
use crate::metrics::ControlMetrics;

/// Known nodes that are tried before the contact points.
const NODES_FIRST: usize = 3;
/// Known nodes that one round tries. The next one chooses again.
const NODES_MAX: usize = 32;

/// Time for the look-up of a contact point, before other addresses are tried.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(1);

/// Addresses to try.
#[derive(Clone)]
pub(super) struct Candidates {
    /// Known nodes, the best ones first.
    pub(super) nodes: Vec<SocketAddr>,
    /// Contact points.
    pub(super) names: Vec<String>,
    /// The address among them that is tried last.
    pub(super) last: Option<SocketAddr>,
    /// The ring that they must belong to; `None`: any.
    pub(super) members: Option<Members>,
    pub(super) access: Access,
}

impl Candidates {
    /// Connects to the node at this address; fails if it belongs to another ring.
    async fn try_one(
        &self,
        address: SocketAddr,
        metrics: &ControlMetrics,
    ) -> Result<Session, ControlError> {
        let mut session = handshake::connect(address, &self.access).await?;
        if let Some(members) = &self.members {
            let admitted = members.admit(&mut session.connection, self.access.limit).await;
            metrics.strangers.add(u64::from(matches!(admitted, Err(ControlError::Stranger(_)))));
            admitted?;
        }
        Ok(session)
    }
}

/// A round in which no address gave a session.
#[derive(Default)]
pub(super) struct Failures {
    /// One error for each address.
    pub(super) attempts: Vec<String>,
    /// The error of a contact point that is this proxy itself.
    pub(super) own: Option<String>,
}

/// Tries one address after the other. Returns the session, and the contact points looked up for it;
/// if no address works, the errors of all.
pub(super) async fn try_round(
    config: Arc<Config>,
    candidates: Candidates,
    metrics: Arc<ControlMetrics>,
) -> Result<(Session, Vec<Resolved>), Failures> {
    let mut round = Round {
        candidates: &candidates,
        metrics: &metrics,
        tried: HashSet::new(),
        postponed: None,
        failures: Failures::default(),
    };
    let nodes = candidates.nodes.iter().filter(|node| Some(**node) != candidates.last);
    let nodes: Vec<SocketAddr> = nodes.copied().take(NODES_MAX).collect();
    let (first, others) = nodes.split_at(nodes.len().min(NODES_FIRST));
    round.postponed = candidates.last.filter(|last| candidates.nodes.contains(last));
    let mut resolved = Vec::new();
    if let Some(session) = round.try_all(first).await {
        return Ok((session, resolved));
    }
    let lookups = candidates.names.iter().map(|name| (name, look_up(name, &config)));
    let lookups: Vec<(&String, Lookup)> = lookups.collect();
    let mut slow = Vec::new();
    for (name, mut lookup) in lookups {
        let Ok(found) = timeout(LOOK_UP_PATIENCE, &mut lookup).await else {
            slow.push((name, lookup));
            continue;
        };
        if let Some(session) = round.try_contact(name, found, &config, &mut resolved).await {
            return Ok((session, resolved));
        }
    }
    if let Some(session) = round.try_all(others).await {
        return Ok((session, resolved));
    }
    for (name, lookup) in slow {
        let found = lookup.await;
        if let Some(session) = round.try_contact(name, found, &config, &mut resolved).await {
            return Ok((session, resolved));
        }
    }
    let postponed: Vec<SocketAddr> = round.postponed.into_iter().collect();
    match round.try_all(&postponed).await {
        Some(session) => Ok((session, resolved)),
        None => Err(round.failures),
    }
}

/// The look-up of a contact point, in a task of its own.
type Lookup = JoinHandle<Found>;
/// The addresses of a contact point.
type Found = Result<Vec<SocketAddr>, String>;

fn look_up(name: &str, config: &Config) -> Lookup {
    let (name, port) = (name.to_owned(), config.node_port.unwrap_or(CQL_PORT));
    tokio::spawn(async move { contact::resolve(&name, port).await })
}

/// A round under way.
struct Round<'r> {
    candidates: &'r Candidates,
    metrics: &'r ControlMetrics,
    tried: HashSet<SocketAddr>,
    /// The address that comes last.
    postponed: Option<SocketAddr>,
    failures: Failures,
}

impl Round<'_> {
    /// Tries the addresses of a contact point that have not been tried yet.
    async fn try_contact(
        &mut self,
        name: &str,
        found: Result<Found, JoinError>,
        config: &Config,
        resolved: &mut Vec<Resolved>,
    ) -> Option<Session> {
        let addresses = match found.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(addresses) => addresses,
            Err(error) => {
                self.failures.attempts.push(format!("{name}: {error}"));
                return None;
            }
        };
        resolved.push((name.to_owned(), Ok(addresses.clone())));
        for address in addresses {
            if contact::is_own(config, address) {
                if self.tried.insert(address) {
                    let why = contact::refusal(name, address);
                    self.failures.attempts.push(why.clone());
                    self.failures.own = Some(why);
                }
            } else if Some(address) == self.candidates.last {
                self.postponed = Some(address);
            } else if let Some(session) = self.try_all(&[address]).await {
                return Some(session);
            }
        }
        None
    }

    /// Tries addresses that have not been tried yet.
    async fn try_all(&mut self, addresses: &[SocketAddr]) -> Option<Session> {
        for &address in addresses {
            if !self.tried.insert(address) {
                continue;
            }
            match self.candidates.try_one(address, self.metrics).await {
                Ok(session) => return Some(session),
                Err(error) => self.failures.attempts.push(Attempt { address, error }.to_string()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody listens at any of the addresses.
    #[tokio::test]
    async fn contact_points_are_tried_among_the_first() {
        let nodes: Vec<SocketAddr> = (1..=100).map(|last| ([127, 1, 0, last], 1).into()).collect();
        let contact_points = ["127.2.0.1:1", "127.1.0.2:1", "127.2.0.2:1"].map(str::to_owned);
        let candidates = Candidates {
            nodes: nodes.clone(),
            names: contact_points.to_vec(),
            last: Some(nodes[0]),
            members: None,
            access: Access::plain(None, Duration::from_secs(180)),
        };
        let metrics = Arc::<ControlMetrics>::default();
        let Err(failures) = try_round(Arc::default(), candidates, metrics).await else {
            panic!("somebody listens");
        };
        let first = ["127.1.0.2", "127.1.0.3", "127.1.0.4", "127.2.0.1", "127.2.0.2", "127.1.0.5"];
        for (attempt, address) in failures.attempts.iter().zip(first) {
            assert!(attempt.contains(&format!("{address}:1")), "{attempt} instead of {address}");
        }
        assert_eq!(failures.attempts.len(), NODES_MAX + 2 + 1);
        assert!(failures.attempts.last().is_some_and(|last| last.contains("127.1.0.1:1")));
    }
}
