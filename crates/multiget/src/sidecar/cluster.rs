//! Redis Cluster: the sidecar learns the placement of slots by asking the nodes, and from nodes
//! that redirect a command.
//!
//! Until it is known, every command goes to the first server, which redirects it to the right one.
//! A redirected command keeps its place among its application's answers. Once keys are known to
//! have moved, applications' further commands wait for those under way, so that commands do not
//! overtake one another.

use std::net::{IpAddr, SocketAddr};

use shunt_reactor::{ConnId, Io};
use shunt_wire::netmc::Op;
use shunt_wire::resp::{Scanner, Value, Version, put_command, value};

use super::Sidecar;
use super::apps::{App, Held};
use super::links::{Expected, link_index, version};
use super::split::Outcome;
use crate::client::Ticket;
use crate::limits;
use crate::place::{Places, SLOTS};

/// State of the cluster besides the placement of slots.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// Port of the shims.
    shim_port: u16,
    /// The placement of slots should be requested again.
    wants_slots: bool,
    is_asking: bool,
    /// Earliest time of that request.
    ask_at_ns: u64,
    /// Node that was asked last.
    asked: usize,
    /// The log already says that no more nodes can be known.
    is_full: bool,
}

/// A command that may have to be sent again.
#[derive(Clone, Debug)]
pub(super) struct Again {
    command: Vec<u8>,
    /// Redirections so far.
    hops: u8,
    /// Time at which the sidecar first sent the command.
    began_ns: u64,
}

impl Again {
    /// Keeps the command that `write` writes.
    pub(super) fn new(now_ns: u64, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut command = Vec::new();
        write(&mut command);
        Self { command, hops: 0, began_ns: now_ns }
    }
}

/// A redirection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Elsewhere {
    slot: usize,
    node: SocketAddr,
    /// Permanent; otherwise for this command alone.
    is_moved: bool,
}

impl Cluster {
    pub(super) fn new(shim_port: u16) -> Self {
        Self { shim_port, wants_slots: true, ..Self::default() }
    }
}

impl Elsewhere {
    /// Parses `MOVED 3999 127.0.0.1:6381` or `ASK ..`. Without an address it means the sender's.
    fn parse(error: &[u8], from: IpAddr) -> Option<Self> {
        let text = std::str::from_utf8(error).ok()?;
        let mut words = text.split(' ');
        let is_moved = match words.next()? {
            "MOVED" => true,
            "ASK" => false,
            _ => return None,
        };
        let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        Some(Self {
            slot,
            node: SocketAddr::new(address(host, from)?, port.parse().ok()?),
            is_moved,
        })
    }
}

fn address(host: &str, from: IpAddr) -> Option<IpAddr> {
    if host.is_empty() || host == "?" {
        Some(from)
    } else {
        host.trim_matches(['[', ']']).parse().ok()
    }
}

/// Parses the answer to CLUSTER SLOTS: ranges of slots with their nodes. Nodes without an address,
/// or with a name, are left out. `None` if it is invalid, or names slots twice or out of range:
/// each range costs work for each of its slots.
fn ranges(answer: &[u8], from: IpAddr) -> Option<Vec<(usize, usize, SocketAddr)>> {
    let (mut at, mut found, mut slots) = (0, Vec::new(), 0);
    let ranges = count(answer, &mut at)?;
    if ranges > SLOTS {
        return None;
    }
    for _ in 0..ranges {
        let parts = count(answer, &mut at)?;
        let (first, last) = (integer(answer, &mut at)?, integer(answer, &mut at)?);
        if first > last || last >= SLOTS {
            return None;
        }
        slots += last - first + 1;
        if slots > SLOTS {
            return None;
        }
        let fields = count(answer, &mut at)?;
        let host = match next(answer, &mut at)? {
            Value::Bulk(host) => address(std::str::from_utf8(host).ok()?, from),
            Value::Nil => Some(from),
            _ => return None,
        };
        let port = u16::try_from(integer(answer, &mut at)?).ok()?;
        for _ in 2..fields {
            skip(answer, &mut at)?;
        }
        for _ in 3..parts {
            skip(answer, &mut at)?;
        }
        if let Some(host) = host {
            found.push((first, last, SocketAddr::new(host, port)));
        }
    }
    Some(found)
}

fn next<'b>(answer: &'b [u8], at: &mut usize) -> Option<Value<'b>> {
    let (found, length) = value(answer.get(*at..)?)?;
    *at += length;
    Some(found)
}

fn count(answer: &[u8], at: &mut usize) -> Option<usize> {
    if let Value::Array(count) = next(answer, at)? { Some(count) } else { None }
}

fn integer(answer: &[u8], at: &mut usize) -> Option<usize> {
    if let Value::Integer(number) = next(answer, at)? { usize::try_from(number).ok() } else { None }
}

fn skip(answer: &[u8], at: &mut usize) -> Option<()> {
    *at += Scanner::new(limits::COMMAND_BYTES_MAX).find(answer.get(*at..)?).ok()??;
    Some(())
}

impl Sidecar {
    /// Asks the nodes in turn for the placement of slots, if that is wanted and the interval has
    /// passed.
    pub(super) fn ask_for_slots(&mut self, io: &mut Io) {
        let (now_ns, servers) = (io.now_ns(), self.options.servers.len());
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.is_asking || now_ns < cluster.ask_at_ns || !cluster.wants_slots {
            return;
        }
        cluster.ask_at_ns = now_ns + limits::SLOTS_NS;
        cluster.asked = (cluster.asked + 1) % servers;
        let server = cluster.asked;
        let command = [&b"CLUSTER"[..], b"SLOTS"].into_iter();
        let asked =
            self.ask(io, server, Version::Two, Expected::Slots, |out| put_command(out, command));
        if let Some(cluster) = &mut self.cluster {
            cluster.is_asking = asked.is_ok();
        }
    }

    /// Notes that slots may have moved.
    pub(super) fn want_slots(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.wants_slots = true;
        }
    }

    /// Notes that the current request will not be answered; another node is asked.
    pub(super) fn slots_failed(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            (cluster.is_asking, cluster.wants_slots) = (false, true);
        }
    }

    /// Takes a node's placement of slots.
    pub(super) fn slots(&mut self, io: &mut Io, from: SocketAddr, answer: &[u8]) {
        let found = ranges(answer, from.ip()).filter(|found| !found.is_empty());
        let Some(found) = found else { return self.slots_failed() };
        let mut places = vec![0; SLOTS];
        for (first, last, node) in found {
            let Some(server) = self.server_at(node) else { continue };
            places[first..=last].fill(server as u8);
        }
        if self.client.set_places(Places::Slots(places)) {
            self.hold_all(io);
        }
        if let Some(cluster) = &mut self.cluster {
            (cluster.is_asking, cluster.wants_slots) = (false, false);
        }
    }

    /// Number of the server at this address, which is added if unknown; `None` if there are too
    /// many.
    fn server_at(&mut self, node: SocketAddr) -> Option<usize> {
        let cluster = self.cluster.as_mut()?;
        let shim_port = cluster.shim_port;
        let servers = &mut self.options.servers;
        if let Some(known) = servers.iter().position(|(server, _)| *server == node) {
            return Some(known);
        }
        if servers.len() == limits::SERVERS_MAX {
            if !std::mem::replace(&mut cluster.is_full, true) {
                let limit = limits::SERVERS_MAX;
                tracing::warn!(%node, limit, "a node of the cluster is one more than a sidecar can know: what is sent there is answered with MOVED until the sidecar is started anew");
            }
            return None;
        }
        let shim = SocketAddr::new(node.ip(), shim_port);
        tracing::info!(%node, %shim, "a node of the cluster is new");
        servers.push((node, shim));
        self.client.add_server(shim);
        self.links.extend(super::links::of_server(servers.len() - 1, node));
        Some(servers.len() - 1)
    }

    /// Follows an answer that redirects a command; returns `expected` if it does not, or did so too
    /// often or for too long.
    pub(super) fn follow(
        &mut self,
        io: &mut Io,
        index: usize,
        expected: Expected,
        answer: &[u8],
    ) -> Option<Expected> {
        let is_late = |again: &Again| io.now_ns() >= again.began_ns + self.options.timeout_ns;
        let (hops, is_late) = match &expected {
            Expected::App { again: Some(again), .. }
            | Expected::Part { again: Some(again), .. } => (again.hops, is_late(again)),
            // A multiget has its own deadline.
            Expected::Fetch { hops, .. } => (*hops, false),
            _ => return Some(expected),
        };
        let from = self.links[index].address();
        let may_follow = self.cluster.is_some() && hops < limits::HOPS_MAX && !is_late;
        let error = match value(answer) {
            Some((Value::Error(error), _)) if may_follow => error,
            _ => return Some(expected),
        };
        let Some(to) = Elsewhere::parse(error, from.ip()) else { return Some(expected) };
        let Some(server) = self.server_at(to.node) else { return Some(expected) };
        if to.is_moved {
            if self.client.place_slot(to.slot, server) {
                self.hold_all(io);
            }
            self.want_slots();
        }
        let (link, is_moved) = (link_index(server, version(index)), to.is_moved);
        match expected {
            Expected::App { conn, sequence, again: Some(again) } => {
                let expected = |again| Expected::App { conn, sequence, again: Some(again) };
                // A command of an application that has gone is not sent again.
                if self.app_of(conn).is_some()
                    && let Err(text) = self.send_again(io, link, is_moved, again, expected)
                    && let Some(app) = self.app_of(conn)
                {
                    self.error(io, app, sequence, &text);
                }
            }
            Expected::Part { split, keys, again: Some(again) } => {
                let expected = |again| Expected::Part { split, keys, again: Some(again) };
                let sent = match self.split_app(split) {
                    Some(_) => self.send_again(io, link, is_moved, again, expected),
                    None => Err("ERR its application is gone".to_owned()),
                };
                if let Err(text) = sent {
                    self.end_part(io, split, keys, Outcome::NotSent(text));
                }
            }
            Expected::Fetch { ticket, op, keys, hops } => {
                self.fetch_again(io, (server, is_moved), (ticket, op), keys, hops + 1);
            }
            other => return Some(other),
        }
        None
    }

    /// Holds all busy applications because keys have moved: their commands under way may be
    /// redirected, so no later one may arrive first.
    fn hold_all(&mut self, io: &mut Io) {
        let busy = |(index, app): (usize, &App)| (!app.is_quiet()).then_some(index);
        let busy: Vec<usize> = self.apps.iter().filter_map(busy).collect();
        busy.into_iter().for_each(|app| self.hold(io, app, Held::Quiet));
    }

    fn send_again(
        &mut self,
        io: &mut Io,
        link: usize,
        is_moved: bool,
        again: Again,
        expected: impl FnOnce(Again) -> Expected,
    ) -> Result<(), String> {
        let Again { command, hops, began_ns } = again;
        let conn = self.open_permitted(io, link, is_moved)?;
        let again = Again { command: command.clone(), hops: hops + 1, began_ns };
        self.put(io, (link, conn), expected(again), |out| out.extend_from_slice(&command));
        Ok(())
    }

    fn fetch_again(
        &mut self,
        io: &mut Io,
        (server, is_moved): (usize, bool),
        (ticket, op): (Ticket, Op),
        keys: Vec<u16>,
        hops: u8,
    ) {
        let key = keys
            .first()
            .and_then(|position| self.client.key(ticket, *position))
            .map(<[u8]>::to_vec);
        // The multiget is over.
        let Some(key) = key else { return };
        let link = link_index(server, Version::Two);
        match self.open_permitted(io, link, is_moved) {
            Ok(conn) => {
                let expected = Expected::Fetch { ticket, op, keys, hops };
                self.put(io, (link, conn), expected, |out| {
                    put_command(out, [&b"GET"[..], &key].into_iter())
                });
            }
            Err(text) => self.client.fetch_failed(ticket, server, &text),
        }
    }

    /// Opens the connection for one more command. A node that imports a slot accepts a command on
    /// it only after ASKING, which holds for the next command alone: both are sent, or neither is.
    fn open_permitted(
        &mut self,
        io: &mut Io,
        link: usize,
        is_moved: bool,
    ) -> Result<ConnId, String> {
        let conn = self.open_link(io, link)?;
        if !is_moved {
            self.put(io, (link, conn), Expected::Asking, |out| {
                put_command(out, [&b"ASKING"[..]].into_iter())
            });
        }
        Ok(conn)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Metadata, Subscriber};

    use super::super::{Login, SidecarOptions};
    use super::*;
    use crate::mode::Mode;

    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));

    #[test]
    fn a_node_that_sends_a_command_elsewhere_is_understood() {
        let to = |text: &str| Elsewhere::parse(text.as_bytes(), FROM);
        let node = |text: &str| text.parse().unwrap();
        let moved = Elsewhere { slot: 3999, node: node("192.0.2.1:6381"), is_moved: true };
        assert_eq!(to("MOVED 3999 192.0.2.1:6381"), Some(moved));
        assert_eq!(to("ASK 3999 192.0.2.1:6381"), Some(Elsewhere { is_moved: false, ..moved }));
        assert_eq!(
            to("MOVED 3999 :6381"),
            Some(Elsewhere { node: node("192.0.2.9:6381"), ..moved })
        );
        assert_eq!(
            to("MOVED 3999 2001:db8::1:6381"),
            Some(Elsewhere { node: node("[2001:db8::1]:6381"), ..moved })
        );
        for text in [
            "ERR x",
            "MOVED",
            "MOVED 16384 192.0.2.1:1",
            "MOVED 1 name:6381",
            "MOVED 1 192.0.2.1",
            "ASK x :1",
        ] {
            assert_eq!(to(text), None, "{text}");
        }
    }

    #[test]
    fn the_nodes_of_slots_are_read_with_replicas_and_metadata_passed_over() {
        let node =
            "*4\r\n$9\r\n192.0.2.1\r\n:6379\r\n$2\r\nid\r\n*2\r\n$8\r\nhostname\r\n$1\r\nx\r\n";
        let old = "*2\r\n$0\r\n\r\n:6380\r\n";
        let answer = format!("*2\r\n*4\r\n:0\r\n:99\r\n{node}{node}*3\r\n:100\r\n:16383\r\n{old}");
        let expected = vec![
            (0, 99, "192.0.2.1:6379".parse().unwrap()),
            (100, 16_383, "192.0.2.9:6380".parse().unwrap()),
        ];
        assert_eq!(ranges(answer.as_bytes(), FROM), Some(expected));
        for bad in [
            "-ERR This instance has cluster support disabled\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:1\r\n:1\r\n",
        ] {
            assert_eq!(ranges(bad.as_bytes(), FROM), None, "{bad}");
        }
    }

    #[test]
    fn an_answer_with_more_ranges_or_slots_than_there_are_is_refused() {
        let range = |first: usize, last: usize| {
            format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$0\r\n\r\n:6379\r\n")
        };
        let answer =
            |ranges: &[String]| ranges_of(&format!("*{}\r\n{}", ranges.len(), ranges.concat()));
        let one_by_one: Vec<String> = (0..SLOTS).map(|slot| range(slot, slot)).collect();
        assert_eq!(answer(&one_by_one), Some(SLOTS));
        assert_eq!(answer(&[one_by_one.clone(), vec![range(0, 0)]].concat()), None);
        assert_eq!(
            answer(&[range(0, SLOTS - 1), range(5, 5)]),
            None,
            "slots that stand there twice"
        );
        assert_eq!(answer(&[range(0, 99), range(100, SLOTS)]), None, "a slot that there is not");
        assert_eq!(answer(&[range(99, 0)]), None, "a range that ends before it begins");
        assert_eq!(ranges_of("*1000000000\r\n"), None);
    }

    fn ranges_of(answer: &str) -> Option<usize> {
        ranges(answer.as_bytes(), FROM).map(|found| found.len())
    }

    /// Counts logged warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn more_nodes_than_a_sidecar_can_know_are_told_once() {
        let mut sidecar = Sidecar::new(SidecarOptions {
            servers: vec![(SocketAddr::new(FROM, 1), SocketAddr::new(FROM, 9700))],
            mode: Mode::Tcp,
            cluster: Some(9700),
            login: Login::default(),
            server_tls: None,
            timeout_ns: 1,
            resend_ns: 1,
            seed: 0,
        });
        let warnings = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Warnings(warnings.clone()), || {
            for port in 1..=limits::SERVERS_MAX as u16 {
                assert_eq!(
                    sidecar.server_at(SocketAddr::new(FROM, port)),
                    Some(usize::from(port) - 1)
                );
            }
            assert_eq!(warnings.load(Ordering::Relaxed), 0);
            for port in 1_000..1_009 {
                assert_eq!(sidecar.server_at(SocketAddr::new(FROM, port)), None);
            }
        });
        assert_eq!(warnings.load(Ordering::Relaxed), 1);
    }
}
