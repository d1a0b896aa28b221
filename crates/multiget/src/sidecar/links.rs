//! Connections to servers: made when a command needs one, and shared by all applications that speak
//! its version of RESP.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_reactor::{CloseReason, ConnId, Io};
use shunt_wire::netmc::Op;
use shunt_wire::resp::{Scanner, Step as Found, Value, Version, put_error, value, values};

use super::cluster::Again;
use super::{Peer, Sidecar};
use crate::client::Ticket;
use crate::limits;
use crate::login::Step;

/// Whose answer is next.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// Nobody's: the connection began with it.
    Begins(Step),
    /// Nobody's: the next command may be about a slot that the node is being given.
    Asking,
    /// Where slots are.
    Slots,
    /// An application's; of a cluster, whose nodes may send it elsewhere, with the command.
    App { conn: ConnId, sequence: u64, again: Option<Again> },
    /// The answer to a part of a split command, which has `keys` keys; in a cluster `again` has the
    /// part.
    Part { split: usize, keys: usize, again: Option<Again> },
    /// That to keys which datagrams did not bring, and how often they were sent elsewhere.
    Fetch { ticket: Ticket, op: Op, keys: Vec<u16>, hops: u8 },
}

#[derive(Debug)]
pub(super) struct Link {
    server: usize,
    address: SocketAddr,
    pub(super) conn: Option<ConnId>,
    scanner: Scanner,
    /// Commands that wait until the server has taken what the connection began with: they would be
    /// another user's, or about another database.
    unsent: Vec<u8>,
    /// In the order of their answers, with when they were asked.
    expected: VecDeque<(Expected, u64)>,
    /// Why commands are refused: connecting has failed, or nothing was answered. A connection that
    /// was lost otherwise is made again for the next command.
    refused: Option<Refused>,
    /// For how long after the next time that nothing is answered.
    back_off_ns: u64,
}

#[derive(Debug)]
struct Refused {
    until_ns: u64,
    why: String,
    /// Then one command tries the connection, and all others are refused until there is an answer:
    /// what waits for a server takes room from those that wait for others.
    is_silent: bool,
}

/// Two for each server.
pub(super) fn all(servers: &[(SocketAddr, SocketAddr)]) -> Vec<Link> {
    servers
        .iter()
        .enumerate()
        .flat_map(|(index, (address, _))| of_server(index, *address))
        .collect()
}

/// The two of a server.
pub(super) fn of_server(server: usize, address: SocketAddr) -> [Link; 2] {
    let link = || Link {
        server,
        address,
        conn: None,
        scanner: Scanner::new(limits::COMMAND_BYTES_MAX),
        unsent: Vec::new(),
        expected: VecDeque::new(),
        refused: None,
        back_off_ns: limits::BACK_OFF_NS,
    };
    [link(), link()]
}

/// The link to a server on which this version of RESP is spoken.
pub(super) fn link_index(server: usize, version: Version) -> usize {
    2 * server + usize::from(version == Version::Three)
}

/// Which version of RESP is spoken on the link of this index.
pub(super) fn version(index: usize) -> Version {
    if index.is_multiple_of(2) { Version::Two } else { Version::Three }
}

impl Link {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server has not taken yet what the connection began with.
    fn begins(&self) -> bool {
        matches!(self.expected.front(), Some((Expected::Begins(_), _)))
    }

    /// Why a command is not sent now.
    fn refusal(&self, now_ns: u64) -> Option<&str> {
        let refused = self.refused.as_ref()?;
        let is_tried = refused.is_silent && self.conn.is_some();
        (is_tried || now_ns < refused.until_ns).then_some(refused.why.as_str())
    }
}

impl Sidecar {
    /// Sends a command to a server, `write` writes it; or says why that is not possible.
    pub(super) fn ask(
        &mut self,
        io: &mut Io,
        server: usize,
        version: Version,
        expected: Expected,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), String> {
        let index = link_index(server, version);
        let conn = self.open_link(io, index)?;
        self.put(io, (index, conn), expected, write);
        Ok(())
    }

    /// Why a link takes no command now.
    pub(super) fn refusal(&self, io: &Io, index: usize) -> Option<String> {
        self.links[index].refusal(io.now_ns()).map(str::to_owned)
    }

    /// The connection of a link, made if there is none; or why it takes no command.
    pub(super) fn open_link(&mut self, io: &mut Io, index: usize) -> Result<ConnId, String> {
        let now_ns = io.now_ns();
        let link = &mut self.links[index];
        if let Some(why) = link.refusal(now_ns) {
            return Err(why.to_owned());
        }
        let conn = match link.conn {
            Some(conn) => conn,
            None => {
                let conn = io.connect(link.address, limits::CONNECT_NS);
                link.conn = Some(conn);
                let expect = |step| link.expected.push_back((Expected::Begins(step), now_ns));
                self.options.login.put(version(index), io.output(conn), expect);
                self.set_peer(conn, Peer::Link(index));
                conn
            }
        };
        let link = &mut self.links[index];
        let unsent_bytes = link.unsent.len() + io.backlog(conn);
        if link.expected.len() >= limits::LINK_COMMANDS_REFUSED
            || unsent_bytes > limits::LINK_BACKLOG_BYTES_REFUSED
        {
            return Err(format!(
                "ERR the server {} does not keep up: try again later",
                link.address
            ));
        }
        Ok(conn)
    }

    /// Sends a command over a link that was opened for it; `write` writes it.
    pub(super) fn put(
        &mut self,
        io: &mut Io,
        (index, conn): (usize, ConnId),
        expected: Expected,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let link = &mut self.links[index];
        write(if link.begins() { &mut link.unsent } else { io.output(conn) });
        link.expected.push_back((expected, io.now_ns()));
        self.has_full_link |= self.is_link_full(io, index, 0);
    }

    /// A link has as much as it may, with so many commands that are promised.
    pub(super) fn is_link_full(&self, io: &Io, index: usize, promised: usize) -> bool {
        let Some(link) = self.links.get(index) else { return false };
        let unsent_bytes = link.unsent.len() + link.conn.map_or(0, |conn| io.backlog(conn));
        link.expected.len() + promised >= limits::LINK_COMMANDS_MAX
            || unsent_bytes > limits::LINK_BACKLOG_BYTES_MAX
    }

    /// Whether one is full, as is noticed at once when it becomes so.
    pub(super) fn look_for_full_links(&mut self, io: &Io) {
        self.has_full_link = self.has_full_link
            && (0..self.links.len()).any(|index| self.is_link_full(io, index, 0));
    }

    pub(super) fn link_received(&mut self, io: &mut Io, index: usize, data: &[u8]) -> usize {
        let mut at = 0;
        let is_three = version(index) == Version::Three;
        loop {
            let (answer, length, kind) =
                match self.links[index].scanner.find_or_pass_over(&data[at..]) {
                    Ok(Found::Whole(length)) => {
                        (Cow::Borrowed(&data[at..at + length]), length, data[at])
                    }
                    // What is there of it are its last bytes, which may be any.
                    Ok(Found::TooLong { length, kind }) => {
                        (Cow::Owned(self.too_long(index)), length, kind)
                    }
                    Ok(Found::Waits) => return at,
                    Ok(Found::Part(length)) => return at + length,
                    Err(error) => {
                        self.lose(io, index, &format!("has answered what is not RESP: {error}"));
                        return data.len();
                    }
                };
            at += length;
            // Nobody's answer, but something that the server says by itself; in RESP2 there is
            // none.
            if is_three && kind == b'>' {
                continue;
            }
            let link = &mut self.links[index];
            let Some((expected, _)) = link.expected.pop_front() else {
                self.lose(io, index, "has answered what nobody asked");
                return data.len();
            };
            if !matches!(expected, Expected::Begins(_)) {
                (link.refused, link.back_off_ns) = (None, limits::BACK_OFF_NS);
            }
            self.link_answer(io, index, expected, answer);
            if self.links[index].conn.is_none() {
                return data.len();
            }
        }
    }

    /// Stands for an answer that was passed over, so that it costs nobody but who asked for it.
    fn too_long(&self, index: usize) -> Vec<u8> {
        let (address, limit) = (self.links[index].address, limits::COMMAND_BYTES_MAX);
        let mut answer = Vec::new();
        put_error(
            &mut answer,
            &format!(
                "ERR the server {address} has answered with more than {limit} bytes, which are not passed on: ask for less at a time"
            ),
        );
        answer
    }

    /// An answer as the server gave it, or what stands for one that was too long.
    fn link_answer(
        &mut self,
        io: &mut Io,
        index: usize,
        expected: Expected,
        answer: Cow<'_, [u8]>,
    ) {
        let Some(expected) = self.follow(io, index, expected, &answer) else { return };
        match expected {
            Expected::Asking => {}
            Expected::Slots => self.slots(io, self.links[index].address, &answer),
            Expected::Begins(step) => {
                if let Some((Value::Error(text), _)) = value(&answer) {
                    let what = step.refused(text);
                    self.refuse(io, index, &what);
                    return self.lose(io, index, &what);
                }
                let link = &mut self.links[index];
                if let Some(conn) = link.conn.filter(|_| !link.begins()) {
                    io.output(conn).append(&mut std::mem::take(&mut link.unsent));
                }
            }
            Expected::App { conn, sequence, .. } => {
                if let Some(app) = self.app_of(conn) {
                    self.answer(io, app, sequence, answer.into_owned());
                }
            }
            Expected::Part { split, keys, .. } => {
                let is_whole = matches!(answer, Cow::Borrowed(_));
                self.take_part_answer(io, (split, keys), index, &answer, is_whole);
            }
            Expected::Fetch { ticket, op, keys, .. } => {
                self.fetched(self.links[index].server, ticket, op, &keys, &answer);
            }
        }
    }

    fn fetched(&mut self, server: usize, ticket: Ticket, op: Op, keys: &[u16], answer: &[u8]) {
        // MGET of one key by GET, as a cluster wants it.
        let is_one = op == Op::MultiGet && self.cluster.is_some();
        let first = value(answer).map(|(value, _)| value);
        if is_one && matches!(first, Some(Value::Error(text)) if text.starts_with(b"WRONGTYPE")) {
            return keys.iter().for_each(|position| self.client.fetched(ticket, *position, None));
        }
        let outcome = match (op, values(answer)) {
            (Op::MultiGet, Some((count, mut values))) if count == keys.len() => {
                keys.iter().try_for_each(|position| self.take(ticket, *position, values.next()))
            }
            (Op::MultiGet, _) if !is_one => plain(first)
                .and(Err("ERR the server has answered with another number of values".to_owned())),
            _ => self.take(ticket, keys[0], first),
        };
        if let Err(text) = outcome {
            self.client.fetch_failed(ticket, server, &text);
        }
    }

    /// A key has this value, or the server's word why not.
    fn take(
        &mut self,
        ticket: Ticket,
        position: u16,
        found: Option<Value<'_>>,
    ) -> Result<(), String> {
        plain(found).map(|value| self.client.fetched(ticket, position, value))
    }

    /// Closes a link; whoever waits for it gets an error that names it.
    pub(super) fn lose(&mut self, io: &mut Io, index: usize, what: &str) {
        let link = &mut self.links[index];
        if let Some(conn) = link.conn.take() {
            io.abort(conn);
        }
        link.scanner = Scanner::new(limits::COMMAND_BYTES_MAX);
        let why = format!("ERR the server {} {what}", link.address);
        // Another node may have its slots by now.
        self.want_slots();
        let link = &mut self.links[index];
        let (server, expected) = (link.server, std::mem::take(&mut link.expected));
        // Of a server that has not let the connection begin, or is not there.
        let is_refused =
            link.refused.as_ref().is_some_and(|refused| io.now_ns() < refused.until_ns);
        let was_sent = std::mem::take(&mut link.unsent).is_empty() && !is_refused;
        self.metrics.links_lost.add(1);
        for (expected, _) in expected {
            match expected {
                Expected::Begins(_) | Expected::Asking => {}
                Expected::Slots => self.slots_failed(),
                Expected::App { conn, sequence, .. } => {
                    if let Some(app) = self.app_of(conn) {
                        let known =
                            if was_sent { "; the command may have been carried out" } else { "" };
                        self.error(io, app, sequence, &format!("{why}{known}"));
                    }
                }
                Expected::Part { split, keys, .. } if was_sent => {
                    self.mark_part_lost(io, split, keys, &why)
                }
                Expected::Part { split, keys, .. } => self.part_not_sent(io, split, keys, &why),
                Expected::Fetch { ticket, .. } => self.client.fetch_failed(ticket, server, &why),
            }
        }
    }

    pub(super) fn link_closed(&mut self, io: &mut Io, index: usize, reason: CloseReason) {
        let what = match reason {
            CloseReason::ConnectFailed(_) => {
                "refuses connections: is it running, and is this its address?"
            }
            CloseReason::ConnectTimedOut => {
                "does not answer a connect: is it running, and is the network open?"
            }
            _ => "has closed the connection",
        };
        self.links[index].conn = None;
        match reason {
            CloseReason::ConnectFailed(_) => self.refuse(io, index, what),
            CloseReason::ConnectTimedOut => self.refuse_silent(io, index, what),
            _ => {}
        }
        self.lose(io, index, what);
    }

    /// The server is left alone for a while.
    fn refuse(&mut self, io: &Io, index: usize, what: &str) {
        let link = &mut self.links[index];
        let why = format!("ERR the server {} {what}", link.address);
        link.refused =
            Some(Refused { until_ns: io.now_ns() + limits::BACK_OFF_NS, why, is_silent: false });
    }

    /// The same for longer each time, for it is known only after a time limit that the server is
    /// silent still.
    fn refuse_silent(&mut self, io: &Io, index: usize, what: &str) {
        let link = &mut self.links[index];
        let why = format!(
            "ERR the server {} {what} - until it answers, one command at a time is sent to it",
            link.address
        );
        link.refused =
            Some(Refused { until_ns: io.now_ns() + link.back_off_ns, why, is_silent: true });
        link.back_off_ns = (2 * link.back_off_ns).min(limits::BACK_OFF_NS_MAX);
    }

    /// Links whose first command has waited for too long are of no use.
    pub(super) fn lose_late(&mut self, io: &mut Io) {
        let (now_ns, timeout_ns) = (io.now_ns(), self.options.timeout_ns);
        for index in 0..self.links.len() {
            let is_late = |(_, at_ns): &(Expected, u64)| at_ns + timeout_ns <= now_ns;
            if self.links[index].expected.front().is_some_and(is_late) {
                let text =
                    format!("has not answered within {} ms (--timeout-ms)", timeout_ns / 1_000_000);
                self.lose(io, index, &text);
                // Only then, for what is lost was sent.
                self.refuse_silent(io, index, &text);
            }
        }
    }
}

/// What GET may bring.
fn plain(found: Option<Value<'_>>) -> Result<Option<&[u8]>, String> {
    match found {
        Some(Value::Bulk(text)) => Ok(Some(text)),
        Some(Value::Nil) => Ok(None),
        Some(Value::Error(text)) => Err(String::from_utf8_lossy(text).into_owned()),
        Some(Value::Integer(_) | Value::Array(_) | Value::Other) => {
            Err("ERR the server's answer is not of the kind that was asked for".to_owned())
        }
        None => Err("ERR the server's answer is not there".to_owned()),
    }
}
