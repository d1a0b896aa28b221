//! Turns while the limits are reached: applications wait in line, and each that comes to the front
//! sends one command on. So an application that sends thousands ahead costs others time, and no
//! errors. The lines are in `lines.rs`.
//!
//! One of several servers has at most half of the places: a silent one holds up only the
//! applications that ask it.

use shunt_reactor::Io;
use shunt_wire::resp::{Command, Version};

use super::Sidecar;
use super::apps::Held;
use super::lines::Line;
use super::links::link_index;
use super::split::Verb;
use crate::limits;

impl Sidecar {
    /// True if there is a free place for a multiget that is promised to no application.
    fn has_free_turn(&self) -> bool {
        self.client.under_way() + self.turns.given < limits::MULTIGETS_MAX
    }

    /// True if a server has its limit of multigets, or can take no command; `with_promised` counts
    /// promised ones too.
    fn is_server_full(&self, io: &Io, server: usize, with_promised: bool) -> bool {
        let link = link_index(server, Version::Two);
        let (multigets, commands) = match with_promised {
            true => (self.turns.given_at(Line::Server(server)), self.turns.given_at_link(link)),
            false => (0, 0),
        };
        let is_full = self.client.multigets_at(server) + multigets >= limits::SERVER_MULTIGETS_MAX;
        (is_full && self.options.servers.len() > 1)
            || (self.client.is_asked_over_tcp(server) && self.is_link_full(io, link, commands))
    }

    /// Condition for which an application must wait before it may start a multiget of these keys.
    /// On `None` it must start, because its turn is used up.
    pub(super) fn wait_for_turn<'k>(
        &mut self,
        io: &Io,
        app: usize,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<Held> {
        let turn = self.take_turn(app, Line::is_for_a_place);
        let is_full = |server: usize| match turn {
            // It was at the front of a line: promises to others elsewhere do not hold it up, or two
            // applications could block each other for ever.
            Some(Line::Server(_)) => self.is_server_full(io, server, false),
            _ => {
                self.turns.is_waited_for(Line::Server(server))
                    || self.is_server_full(io, server, true)
            }
        };
        // Otherwise no server is at its limit or waited for, and the keys need no check.
        let is_busy = self.client.under_way() + self.turns.given >= limits::SERVER_MULTIGETS_MAX;
        if is_busy || self.has_full_link || self.turns.waiting > 0 {
            let places = self.client.places();
            if let Some(server) = keys.map(|key| places.server(key)).find(|server| is_full(*server))
            {
                return Some(Held::Turn(Line::Server(server)));
            }
        }
        let is_free =
            turn.is_some() || (!self.turns.is_waited_for(Line::Any) && self.has_free_turn());
        (!is_free).then_some(Held::Turn(Line::Any))
    }

    /// Like [`Self::wait_for_turn`], for another command to a server.
    pub(super) fn wait_for_link(&mut self, io: &Io, app: usize, server: usize) -> Option<Held> {
        let version = self.apps.get(app)?.version;
        let has_turn = self.take_turn(app, |turn| !turn.is_for_a_place()).is_some();
        self.full_link(io, has_turn, version, &mut std::iter::once(server))
    }

    /// Like [`Self::wait_for_link`], for a split command and all its servers.
    pub(super) fn hold_for_links(
        &mut self,
        io: &Io,
        app: usize,
        verb: Verb,
        (command, bytes): (&Command, &[u8]),
    ) -> Option<Held> {
        // Otherwise no connection is full or waited for, and the keys need no check.
        if !self.has_full_link && self.turns.waiting_for_links == 0 {
            return None;
        }
        let version = self.apps.get(app)?.version;
        let has_turn = self.take_turn(app, |turn| !turn.is_for_a_place()).is_some();
        let keys = command.arguments(bytes, 1).step_by(verb.arguments_per_key());
        self.full_link(io, has_turn, version, &mut keys.map(|key| self.client.places().server(key)))
    }

    fn full_link(
        &self,
        io: &Io,
        has_turn: bool,
        version: Version,
        servers: &mut dyn Iterator<Item = usize>,
    ) -> Option<Held> {
        let is_full = |link: &usize| match has_turn {
            // It was at the front of a line: promises to others elsewhere do not hold it up.
            true => self.is_link_full(io, *link, 0),
            false => {
                self.turns.is_waited_for(Line::Link(*link))
                    || self.is_link_full(io, *link, self.turns.given_at_link(*link))
            }
        };
        servers
            .map(|server| link_index(server, version))
            .find(is_full)
            .map(|link| Held::Turn(Line::Link(link)))
    }

    fn take_turn(&mut self, app: usize, is_right: impl FnOnce(Line) -> bool) -> Option<Line> {
        let line = self.apps.get_mut(app)?.turn.take_if(|line| is_right(*line))?;
        self.turns.take_back(line);
        Some(line)
    }

    /// Gives back an application's unused turn; false if it has none.
    pub(super) fn give_turn_back(&mut self, app: usize) -> bool {
        self.take_turn(app, |_| true).is_some()
    }

    /// Lets the longest-waiting applications go on as far as there is room, one of each line in
    /// turn.
    pub(super) fn give_turns(&mut self, io: &mut Io) {
        let mut passed = 0;
        while passed < self.turns.lines()
            && (self.turns.waiting_for_links > 0
                || (self.turns.waiting > 0 && self.has_free_turn()))
        {
            let line = self.turns.next_line();
            passed = if self.give_turn(io, line) { 0 } else { passed + 1 };
        }
    }

    /// Lets the longest-waiting application of this line go on; false if there is none, or no room.
    fn give_turn(&mut self, io: &mut Io, line: Line) -> bool {
        let has_room = match line {
            Line::Any => self.has_free_turn(),
            Line::Server(server) => self.has_free_turn() && !self.is_server_full(io, server, true),
            Line::Link(link) => !self.is_link_full(io, link, self.turns.given_at_link(link)),
        };
        if !self.turns.is_waited_for(line) || !has_room {
            return false;
        }
        while let Some(conn) = self.turns.take_next(line) {
            // It may be gone, or waiting for another condition.
            let Some(app) = self.app_of(conn).and_then(|app| self.apps.get_mut(app)) else {
                continue;
            };
            if app.held == Some(Held::Turn(line)) {
                (app.held, app.turn) = (None, Some(line));
                self.turns.give(line);
                io.resume_reading(conn);
                return true;
            }
        }
        false
    }

    /// Puts the application in line; an unused turn of it goes to another.
    pub(super) fn wait_in_line(&mut self, io: &mut Io, app: usize, line: Line) {
        self.give_turn_back(app);
        let Some(conn) = self.apps.get(app).map(|app| app.conn) else { return };
        self.turns.wait(line, conn);
        self.give_turns(io);
    }
}
