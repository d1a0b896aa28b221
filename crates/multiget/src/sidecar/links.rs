//! Connections to servers: opened when a command needs one, and shared by all applications of the
//! same version of RESP.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_reactor::{CloseReason, ConnId, Io};
use shunt_wire::netmc::Op;
use shunt_wire::resp::{Scanner, Step as Found, Value, Version, put_error, value, values};

use super::cluster::Again;
use super::split::Outcome;
use super::{Peer, Sidecar};
use crate::client::Ticket;
use crate::limits;
use crate::login::Step;

/// Purpose of the next answer.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// A first command of the connection.
    Begins(Step),
    /// ASKING, before a command about a slot that the node imports.
    Asking,
    /// Placement of slots.
    Slots,
    /// An application's command; in a cluster, whose nodes may redirect it, with the command.
    App { conn: ConnId, sequence: u64, again: Option<Again> },
    /// A part of a split command with `keys` keys; in a cluster `again` has the part.
    Part { split: usize, keys: usize, again: Option<Again> },
    /// Keys that datagrams did not bring, and their redirections so far.
    Fetch { ticket: Ticket, op: Op, keys: Vec<u16>, hops: u8 },
}

#[derive(Debug)]
pub(super) struct Link {
    server: usize,
    address: SocketAddr,
    pub(super) conn: Option<ConnId>,
    /// The connection is made, and its handshake is over.
    pub(super) is_open: bool,
    /// The server has answered on this connection.
    pub(super) has_answered: bool,
    scanner: Scanner,
    /// Commands that wait for the answers to the first ones: earlier they would run as another
    /// user, or on another database.
    unsent: Vec<u8>,
    /// Purposes in the order of answers, with the times of the commands.
    expected: VecDeque<(Expected, u64)>,
    /// Reason for refusing commands: connecting failed, or the server was silent. After another
    /// loss the next command reconnects at once.
    refused: Option<Refused>,
    /// Duration of the next refusal for silence.
    back_off_ns: u64,
}

#[derive(Debug)]
struct Refused {
    until_ns: u64,
    why: String,
    /// The server was silent: one command tries the connection, and all others are refused until
    /// there is an answer, because those waiting for a server take room from others.
    is_silent: bool,
}

/// The two links of each server.
pub(super) fn all(servers: &[(SocketAddr, SocketAddr)]) -> Vec<Link> {
    servers
        .iter()
        .enumerate()
        .flat_map(|(index, (address, _))| of_server(index, *address))
        .collect()
}

/// The two links of a server.
pub(super) fn of_server(server: usize, address: SocketAddr) -> [Link; 2] {
    let link = || Link {
        server,
        address,
        conn: None,
        is_open: false,
        has_answered: false,
        scanner: Scanner::new(limits::COMMAND_BYTES_MAX),
        unsent: Vec::new(),
        expected: VecDeque::new(),
        refused: None,
        back_off_ns: limits::BACK_OFF_NS,
    };
    [link(), link()]
}

/// Index of the link to a server for this version of RESP.
pub(super) fn link_index(server: usize, version: Version) -> usize {
    2 * server + usize::from(version == Version::Three)
}

/// Version of RESP on the link of this index.
pub(super) fn version(index: usize) -> Version {
    if index.is_multiple_of(2) { Version::Two } else { Version::Three }
}

impl Link {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// True while the first commands are unanswered.
    fn begins(&self) -> bool {
        matches!(self.expected.front(), Some((Expected::Begins(_), _)))
    }

    /// Reason for sending no command now.
    fn refusal(&self, now_ns: u64) -> Option<&str> {
        let refused = self.refused.as_ref()?;
        let is_tried = refused.is_silent && self.conn.is_some();
        (is_tried || now_ns < refused.until_ns).then_some(refused.why.as_str())
    }
}

impl Sidecar {
    /// Sends a command, written by `write`, to a server.
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

    /// Reason why a link takes no command now.
    pub(super) fn refusal(&self, io: &Io, index: usize) -> Option<String> {
        self.links[index].refusal(io.now_ns()).map(str::to_owned)
    }

    /// Reason for refusing all other commands, if the next one tries a server that was silent.
    pub(super) fn trial(&self, io: &Io, index: usize) -> Option<String> {
        let link = &self.links[index];
        let refused = link.refused.as_ref().filter(|refused| refused.is_silent)?;
        link.refusal(io.now_ns()).is_none().then(|| refused.why.clone())
    }

    /// Connection of a link, opened if necessary; or the reason why it takes no command.
    pub(super) fn open_link(&mut self, io: &mut Io, index: usize) -> Result<ConnId, String> {
        let now_ns = io.now_ns();
        let link = &self.links[index];
        if let Some(why) = link.refusal(now_ns) {
            return Err(why.to_owned());
        }
        let conn = match link.conn {
            Some(conn) => conn,
            None => {
                let conn = self.connect(io, link.address);
                let link = &mut self.links[index];
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

    /// Sends a command, written by `write`, over a link that was opened for it.
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

    /// True if a link has reached its limits, counting this many promised commands.
    pub(super) fn is_link_full(&self, io: &Io, index: usize, promised: usize) -> bool {
        let Some(link) = self.links.get(index) else { return false };
        let unsent_bytes = link.unsent.len() + link.conn.map_or(0, |conn| io.backlog(conn));
        link.expected.len() + promised >= limits::LINK_COMMANDS_MAX
            || unsent_bytes > limits::LINK_BACKLOG_BYTES_MAX
    }

    /// Clears the mark that a link is full once none is. The mark is set as soon as one becomes
    /// full.
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
                    // Only its last bytes are left, which may hold anything.
                    Ok(Found::TooLong { length, kind }) => {
                        (Cow::Owned(self.too_long(index)), length, kind)
                    }
                    Ok(Found::Waits) => return at,
                    Ok(Found::Part(length)) => return at + length,
                    Err(error) => {
                        let what = self.unreadable(&data[at..], &error);
                        self.lose(io, index, &what);
                        return data.len();
                    }
                };
            at += length;
            // A push message of RESP3, which answers no command.
            if is_three && kind == b'>' {
                continue;
            }
            let link = &mut self.links[index];
            link.has_answered = true;
            let Some((expected, sent_ns)) = link.expected.pop_front() else {
                self.lose(io, index, "has sent an answer to no request");
                return data.len();
            };
            if !matches!(expected, Expected::Begins(_)) {
                (link.refused, link.back_off_ns) = (None, limits::BACK_OFF_NS);
                let server = (link.server, link.address);
                self.health.note_answer(server, sent_ns, io.now_ns());
            }
            self.link_answer(io, index, expected, answer);
            if self.links[index].conn.is_none() {
                return data.len();
            }
        }
    }

    /// Error in place of an answer that was skipped, so that only its command fails.
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

    /// Handles a server's answer, or the error in place of one that was too long.
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
                let server = self.links[index].address;
                let outcome = match &answer {
                    Cow::Borrowed(answer) => Outcome::Answer { server, answer },
                    Cow::Owned(_) => Outcome::Unknown(format!(
                        "ERR the server {server} has answered with too many bytes"
                    )),
                };
                self.end_part(io, split, keys, outcome);
            }
            Expected::Fetch { ticket, op, keys, .. } => {
                self.fetched(self.links[index].server, ticket, op, &keys, &answer);
            }
        }
    }

    fn fetched(&mut self, server: usize, ticket: Ticket, op: Op, keys: &[u16], answer: &[u8]) {
        // In a cluster GET fetches one key of an MGET.
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

    /// Takes a key's value, or returns the server's error.
    fn take(
        &mut self,
        ticket: Ticket,
        position: u16,
        found: Option<Value<'_>>,
    ) -> Result<(), String> {
        plain(found).map(|value| self.client.fetched(ticket, position, value))
    }

    /// Closes a link; all commands on it get an error that names it.
    pub(super) fn lose(&mut self, io: &mut Io, index: usize, what: &str) {
        let link = &mut self.links[index];
        if let Some(conn) = link.conn.take() {
            io.abort(conn);
        }
        link.scanner = Scanner::new(limits::COMMAND_BYTES_MAX);
        let is_open = std::mem::take(&mut link.is_open);
        link.has_answered = false;
        let why = format!("ERR the server {} {what}", link.address);
        // Another node may have its slots now.
        self.want_slots();
        let link = &mut self.links[index];
        let (server, expected) = (link.server, std::mem::take(&mut link.expected));
        // The server has refused the first commands, or is absent.
        let is_refused =
            link.refused.as_ref().is_some_and(|refused| io.now_ns() < refused.until_ns);
        let was_sent = std::mem::take(&mut link.unsent).is_empty()
            && !is_refused
            && (is_open || self.options.server_tls.is_none());
        self.metrics.links_lost.add(1);
        // The other link to the server is the one for the other version of RESP.
        if self.links[index ^ 1].conn.is_none() {
            self.health.note_end(server);
        }
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
                Expected::Part { split, keys, .. } => {
                    let outcome = match was_sent {
                        true => Outcome::Unknown(why.clone()),
                        false => Outcome::NotSent(why.clone()),
                    };
                    self.end_part(io, split, keys, outcome);
                }
                Expected::Fetch { ticket, .. } => self.client.fetch_failed(ticket, server, &why),
            }
        }
    }

    pub(super) fn link_closed(&mut self, io: &mut Io, index: usize, reason: CloseReason) {
        let what = match reason {
            CloseReason::ConnectFailed(_) => {
                "refuses connections: is it running, and is this its address?"
            }
            CloseReason::ConnectTimedOut => self.silent_connect(),
            _ if self.links[index].has_answered || self.options.server_tls.is_some() => {
                "has closed the connection"
            }
            _ => {
                "has closed the connection before its first answer (if it has TLS, set \
                --server-tls on)"
            }
        };
        self.links[index].conn = None;
        if self.tls_failed(io, index, reason) {
            return;
        }
        match reason {
            CloseReason::ConnectFailed(_) => self.refuse(io, index, what),
            CloseReason::ConnectTimedOut => self.refuse_silent(io, index, what),
            _ => {}
        }
        self.lose(io, index, what);
    }

    /// Refuses commands to the server for a while.
    pub(super) fn refuse(&mut self, io: &Io, index: usize, what: &str) {
        let link = &mut self.links[index];
        let why = format!("ERR the server {} {what}", link.address);
        link.refused =
            Some(Refused { until_ns: io.now_ns() + limits::BACK_OFF_NS, why, is_silent: false });
        self.health.note_failure(link.server, link.address, what, io.now_ns());
    }

    /// Refuses commands for a time that doubles: each new trial of a silent server costs a whole
    /// time limit.
    fn refuse_silent(&mut self, io: &Io, index: usize, what: &str) {
        let link = &mut self.links[index];
        let why = format!(
            "ERR the server {} {what} - until it answers, one command at a time is sent to it",
            link.address
        );
        link.refused =
            Some(Refused { until_ns: io.now_ns() + link.back_off_ns, why, is_silent: true });
        link.back_off_ns = (2 * link.back_off_ns).min(limits::BACK_OFF_NS_MAX);
        self.health.note_failure(link.server, link.address, what, io.now_ns());
    }

    /// Closes links whose first command has waited too long.
    pub(super) fn lose_late(&mut self, io: &mut Io) {
        let (now_ns, timeout_ns) = (io.now_ns(), self.options.timeout_ns);
        for index in 0..self.links.len() {
            let is_late = |(_, at_ns): &(Expected, u64)| at_ns + timeout_ns <= now_ns;
            if self.links[index].expected.front().is_some_and(is_late) {
                let text =
                    format!("has not answered within {} ms (--timeout-ms)", timeout_ns / 1_000_000);
                self.lose(io, index, &text);
                // Set afterwards: the lost commands were sent.
                self.refuse_silent(io, index, &text);
            }
        }
    }
}

/// Value of a GET's answer.
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
