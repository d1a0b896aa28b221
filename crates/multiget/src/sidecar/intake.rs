//! Commands: read one after the other, and sent on their way.

use shunt_reactor::{ConnId, Io};
use shunt_wire::netmc::Op;
use shunt_wire::resp::read_command;

use super::Sidecar;
use super::apps::{Cost, DRAINED_BYTES, Held, Way};
use super::cluster::Again;
use super::links::Expected;
use super::local;
use super::route::{Route, route};
use crate::limits;

impl Sidecar {
    pub(super) fn app_received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut at = 0;
        let begun = self.app_of(conn).and_then(|app| self.apps[app].begun.take());
        let mut command = begun.unwrap_or_else(|| std::mem::take(&mut self.command));
        while let Some(app) = self.app_of(conn) {
            if self.apps[app].is_closing {
                at = data.len();
                break;
            }
            if !self.apps[app].has_room(io) {
                self.hold(io, app, Held::Room);
                break;
            }
            let bytes = &data[at..];
            match read_command(bytes, limits::COMMAND_BYTES_MAX, &mut command) {
                Ok(true) if command.is_empty() => at += command.len(),
                Ok(true) => {
                    let route =
                        route(&command, bytes, self.client.places(), self.options.login.database);
                    let way = match &route {
                        Route::Multiget => Way::Datagrams,
                        Route::Server(_) | Route::Split(_) => Way::Tcp,
                        Route::Here(_) | Route::Refused(_) => Way::Here,
                    };
                    // HELLO changes the form of answers and the link, so earlier commands must have
                    // ended.
                    let is_hello = route == Route::Here("HELLO");
                    let quiet = (is_hello && !self.apps[app].is_quiet()).then_some(Held::Quiet);
                    let waits = quiet.or_else(|| self.apps[app].waits(way));
                    let turn = || match route {
                        Route::Multiget => self.wait_for_turn(io, app, command.arguments(bytes, 1)),
                        Route::Server(server) => self.wait_for_link(io, app, server),
                        Route::Split(verb) => self.hold_for_links(io, app, verb, (&command, bytes)),
                        Route::Here(_) | Route::Refused(_) => None,
                    };
                    if let Some(held) = waits.or_else(turn) {
                        self.hold(io, app, held);
                        break;
                    }
                    at += command.len();
                    let keys = match &route {
                        Route::Multiget => command.count() - 1,
                        Route::Split(verb) => (command.count() - 1) / verb.arguments_per_key(),
                        Route::Server(_) | Route::Here(_) | Route::Refused(_) => 0,
                    };
                    let bytes_kept = if way == Way::Here { 0 } else { command.len() };
                    let cost = Cost { keys, bytes: bytes_kept };
                    let sequence = self.apps[app].expect(way, cost);
                    self.send_on(io, app, sequence, route, &command, bytes);
                }
                Ok(false) => break,
                Err(error) => {
                    self.apps[app].is_closing = true;
                    let sequence = self.apps[app].expect(Way::Here, Cost::default());
                    self.error(io, app, sequence, &format!("ERR Protocol error: {error}"));
                    at = data.len();
                    break;
                }
            }
        }
        if self.app_of(conn).is_some_and(|app| self.give_turn_back(app)) {
            self.give_turns(io);
        }
        match self.app_of(conn).filter(|_| command.is_begun()) {
            Some(app) => self.apps[app].begun = Some(command),
            None => self.command = command,
        }
        at
    }

    fn send_on(
        &mut self,
        io: &mut Io,
        app: usize,
        sequence: u64,
        route: Route,
        command: &shunt_wire::resp::Command,
        bytes: &[u8],
    ) {
        let (conn, version) = (self.apps[app].conn, self.apps[app].version);
        match route {
            Route::Multiget => {
                let is_get = command.argument(bytes, 0).is_some_and(|name| name.len() == 3);
                let op = if is_get { Op::Get } else { Op::MultiGet };
                self.begin(io, conn, sequence, op, command.arguments(bytes, 1));
            }
            Route::Server(server) => {
                self.metrics.passed.add(1);
                let whole = &bytes[..command.len()];
                let again = || Again::new(io.now_ns(), |out| out.extend_from_slice(whole));
                let again = self.cluster.is_some().then(again);
                let expected = Expected::App { conn, sequence, again };
                if let Err(text) =
                    self.ask(io, server, version, expected, |out| out.extend_from_slice(whole))
                {
                    self.error(io, app, sequence, &text);
                }
            }
            Route::Split(verb) => self.begin_split(io, app, sequence, verb, (command, bytes)),
            Route::Here(name) => {
                let arguments: Vec<&[u8]> = command.arguments(bytes, 1).collect();
                let answer = local::answer(
                    &mut self.apps[app],
                    name,
                    &arguments,
                    self.options.login.database,
                );
                self.answer(io, app, sequence, answer);
            }
            Route::Refused(text) => self.error(io, app, sequence, &text),
        }
    }

    pub(super) fn hold(&mut self, io: &mut Io, index: usize, held: Held) {
        let app = &mut self.apps[index];
        app.held = Some(held);
        io.pause_reading(app.conn);
        match held {
            Held::Room => io.notify_drained(app.conn, DRAINED_BYTES),
            Held::Turn(line) => self.wait_in_line(io, index, line),
            Held::Until(_) | Held::Quiet => {}
        }
    }
}
