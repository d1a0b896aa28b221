//! Requests and results of the client.

use std::collections::HashSet;
use std::net::SocketAddr;

use shunt_reactor::{ConnId, Io};
use shunt_wire::netmc::Op;
use shunt_wire::resp::{Version, put_array, put_bulk, put_nil};

use super::links::Expected;
use super::{Asker, Sidecar};
use crate::client::{Event, Failure, Ticket, Values};
use crate::limits;
use crate::mode::Mode;

/// Overhead of a value in an answer, approximately.
const HEAD_BYTES: usize = 12;

impl Sidecar {
    /// Starts a multiget of an application.
    pub(super) fn begin<'k>(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        sequence: u64,
        op: Op,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) {
        let now_ns = io.now_ns();
        let user = self.askers.insert(Asker { app: conn, sequence, at_ns: now_ns });
        let begun = self
            .client
            .begin(now_ns, user as u64, op, keys, &mut |to, data| io.send_datagram(to, data));
        if let Err(refused) = begun {
            self.askers.remove(user);
            if let Some(app) = self.app_of(conn) {
                self.error(io, app, sequence, &format!("ERR {refused}"));
            }
        }
        self.carry_out(io);
    }

    /// Drops the multigets of an application that has gone, which would keep taking memory and room
    /// from others.
    pub(super) fn abandon(&mut self, io: &mut Io, app: ConnId) {
        let theirs = |(user, asker): (usize, &Asker)| (asker.app == app).then_some(user as u64);
        let users: HashSet<u64> = self.askers.iter().filter_map(theirs).collect();
        if !users.is_empty() {
            self.client.abandon(io.now_ns(), &users, &mut |to, data| io.send_datagram(to, data));
            self.askers.retain(|_, asker| asker.app != app);
            self.carry_out(io);
        }
    }

    pub(super) fn replied(&mut self, io: &mut Io, from: SocketAddr, data: &[u8]) {
        self.client.datagram(io.now_ns(), from, data, &mut |to, data| io.send_datagram(to, data));
        self.carry_out(io);
    }

    pub(super) fn look(&mut self, io: &mut Io) {
        self.client.look(io.now_ns(), &mut |to, data| io.send_datagram(to, data));
        self.carry_out(io);
    }

    /// Carries out all that the client requests.
    pub(super) fn carry_out(&mut self, io: &mut Io) {
        while let Some(event) = self.client.event() {
            match event {
                Event::Done { user, values } => {
                    self.over(io, user, |version| written(&values, version))
                }
                Event::Failed { user, failure } => {
                    let text = self.words(&failure);
                    self.over(io, user, |_| Err(text));
                }
                Event::Fetch { ticket, op, server, keys } => {
                    self.fetch(io, ticket, op, server, keys)
                }
            }
        }
        self.give_turns(io);
        self.arm(io);
    }

    fn over(
        &mut self,
        io: &mut Io,
        user: u64,
        answer: impl FnOnce(Version) -> Result<Vec<u8>, String>,
    ) {
        let Some(asker) = self.askers.try_remove(user as usize) else { return };
        self.metrics.times.record(io.now_ns().saturating_sub(asker.at_ns));
        let Some(app) = self.app_of(asker.app) else { return };
        match answer(self.apps[app].version) {
            Ok(answer) => self.answer(io, app, asker.sequence, answer),
            Err(text) => self.error(io, app, asker.sequence, &text),
        }
    }

    fn fetch(&mut self, io: &mut Io, ticket: Ticket, op: Op, server: usize, positions: Vec<u16>) {
        // A cluster node's keys are in several slots, which MGET refuses.
        let at_once = if self.cluster.is_some() { 1 } else { positions.len().max(1) };
        let name: &[u8] = if op == Op::Get || self.cluster.is_some() { b"GET" } else { b"MGET" };
        let mut command = std::mem::take(&mut self.written);
        for keys in positions.chunks(at_once) {
            if self.client.key(ticket, keys[0]).is_none() {
                // The multiget is over, and its keys are no longer wanted.
                break;
            }
            command.clear();
            put_array(&mut command, keys.len() + 1);
            put_bulk(&mut command, name);
            let known = keys.iter().filter_map(|position| self.client.key(ticket, *position));
            known.for_each(|key| put_bulk(&mut command, key));
            let expected = Expected::Fetch { ticket, op, keys: keys.into(), hops: 0 };
            if let Err(text) =
                self.ask(io, server, Version::Two, expected, |out| out.extend_from_slice(&command))
            {
                self.client.fetch_failed(ticket, server, &text);
            }
        }
        self.written = command;
    }

    fn words(&self, failure: &Failure) -> String {
        match failure {
            Failure::Server { text, .. } => text.clone(),
            Failure::TooLarge => {
                format!("ERR the answer has more than {} bytes: ask for fewer keys at a time", limits::COMMAND_BYTES_MAX)
            }
            Failure::NotSent => "ERR so many keys are asked for that some were never sent: ask for fewer at a time, or give the sidecar more --cores"
                .to_owned(),
            Failure::Deadline { server } => {
                let (address, shim) = self.options.servers[*server];
                let timeout_ms = self.options.timeout_ns / 1_000_000;
                let ways = match self.options.mode {
                    Mode::Tcp => String::new(),
                    _ => format!(", neither by its shim {shim} nor over TCP"),
                };
                format!(
                    "ERR the server {address} has not answered within {timeout_ms} ms{ways}: is it overloaded, or cut off?"
                )
            }
        }
    }
}

/// The answer, or the reason why it is too long: a value requested many times is held once and
/// would be written many times.
fn written(values: &Values, version: Version) -> Result<Vec<u8>, String> {
    let bytes: usize = values.iter().map(|value| value.map_or(0, <[u8]>::len) + HEAD_BYTES).sum();
    if bytes > limits::COMMAND_BYTES_MAX {
        let limit = limits::COMMAND_BYTES_MAX;
        return Err(format!(
            "ERR the answer has {bytes} bytes, more than {limit}: ask for fewer keys at a time"
        ));
    }
    let mut out = Vec::with_capacity(bytes);
    if values.op == Op::MultiGet {
        put_array(&mut out, values.iter().len());
    }
    for value in values.iter() {
        match value {
            Some(value) => put_bulk(&mut out, value),
            None => put_nil(&mut out, version),
        }
    }
    Ok(out)
}
