//! Whose turn it is while as much is under way as may be: applications wait in line, and each that comes to the front sends one command on. So one
//! that sends thousands ahead costs others time, and no errors.
//!
//! There is a line for a multiget's place at whatever server, one for that at each server, and one for each connection to a server that has as many commands
//! or bytes as it may. One of several servers has at most half of the places: if it is silent those who ask it wait, and nobody else.

use std::collections::VecDeque;

use shunt_reactor::{ConnId, Io};
use shunt_wire::resp::Version;

use super::Sidecar;
use super::apps::Held;
use super::links::link_index;
use crate::limits;

/// What is waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Line {
    /// The place of a multiget.
    Any,
    /// That of one that asks this server.
    Server(usize),
    /// Room in the connection of this index, for any other command.
    Link(usize),
}

impl Line {
    /// Its place among all. A server has a line, and two connections.
    fn index(self) -> usize {
        match self {
            Line::Any => 0,
            Line::Server(server) => 1 + 3 * server,
            Line::Link(link) => 2 + 3 * (link / 2) + link % 2,
        }
    }

    fn of_index(index: usize) -> Self {
        match index.checked_sub(1).map(|index| (index / 3, index % 3)) {
            None => Line::Any,
            Some((server, 0)) => Line::Server(server),
            Some((server, more)) => Line::Link(2 * server + more - 1),
        }
    }

    fn is_for_a_place(self) -> bool {
        !matches!(self, Line::Link(_))
    }
}

/// Who waits for a turn, and who has one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: Vec<Queue>,
    /// Applications that wait for the place of a multiget, and for a connection.
    waiting: usize,
    waiting_for_links: usize,
    /// How many of the former may begin a multiget, and have not yet.
    given: usize,
    /// The line that has the next turn, for each that has somebody in it has one after the other.
    next: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<ConnId>,
    given: usize,
}

impl Turns {
    fn queue(&mut self, line: Line) -> &mut Queue {
        let index = line.index();
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, Queue::default);
        }
        &mut self.lines[index]
    }

    fn count(&mut self, line: Line) -> &mut usize {
        if line.is_for_a_place() { &mut self.waiting } else { &mut self.waiting_for_links }
    }

    fn is_waited_for(&self, line: Line) -> bool {
        self.lines.get(line.index()).is_some_and(|queue| !queue.waiting.is_empty())
    }

    fn given_at(&self, line: Line) -> usize {
        self.lines.get(line.index()).map_or(0, |queue| queue.given)
    }

    /// Commands that may be sent over a connection, and are not yet: each is one, for how many keys a multiget has is not known before.
    fn given_at_link(&self, link: usize) -> usize {
        let multigets = if link.is_multiple_of(2) { self.given_at(Line::Server(link / 2)) } else { 0 };
        multigets + self.given_at(Line::Link(link))
    }

    /// Who waits longest in a line.
    fn take_next(&mut self, line: Line) -> Option<ConnId> {
        let conn = self.queue(line).waiting.pop_front()?;
        *self.count(line) -= 1;
        Some(conn)
    }

    fn give(&mut self, line: Line) {
        self.given += usize::from(line.is_for_a_place());
        self.queue(line).given += 1;
    }

    fn take_back(&mut self, line: Line) {
        self.given -= usize::from(line.is_for_a_place());
        self.queue(line).given -= 1;
    }
}

impl Sidecar {
    /// There is room for one multiget more that is promised to nobody.
    fn has_free_turn(&self) -> bool {
        self.client.under_way() + self.turns.given < limits::MULTIGETS_MAX
    }

    /// A server has as many multigets as it may, or cannot be sent one; `with_promised` with what is promised to others.
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

    /// What an application has to wait for before it may begin a multiget of these keys. If that is nothing it has to begin it, for it has no turn any more.
    pub(super) fn wait_for_turn<'k>(
        &mut self,
        io: &Io,
        app: usize,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<Held> {
        let turn = self.take_turn(app, Line::is_for_a_place);
        let is_full = |server: usize| match turn {
            // It was at the front of a line: who is promised a place elsewhere does not hold it up, or two could hold up one another for ever.
            Some(Line::Server(_)) => self.is_server_full(io, server, false),
            _ => self.turns.is_waited_for(Line::Server(server)) || self.is_server_full(io, server, true),
        };
        // Otherwise no server has as much as it may, and nobody waits for one: keys need no look.
        let is_busy = self.client.under_way() + self.turns.given >= limits::SERVER_MULTIGETS_MAX;
        if is_busy || self.has_full_link || self.turns.waiting > 0 {
            let places = self.client.places();
            if let Some(server) = keys.map(|key| places.server(key)).find(|server| is_full(*server)) {
                return Some(Held::Turn(Line::Server(server)));
            }
        }
        let is_free = turn.is_some() || (!self.turns.is_waited_for(Line::Any) && self.has_free_turn());
        (!is_free).then_some(Held::Turn(Line::Any))
    }

    /// What it has to wait for before it may send a server another command; as above.
    pub(super) fn wait_for_link(&mut self, io: &Io, app: usize, server: usize) -> Option<Held> {
        let link = link_index(server, self.apps.get(app)?.version);
        let line = Line::Link(link);
        let has_turn = self.take_turn(app, |turn| turn == line).is_some();
        let promised = if has_turn { 0 } else { self.turns.given_at_link(link) };
        let waits = (!has_turn && self.turns.is_waited_for(line)) || self.is_link_full(io, link, promised);
        waits.then_some(Held::Turn(line))
    }

    fn take_turn(&mut self, app: usize, is_right: impl FnOnce(Line) -> bool) -> Option<Line> {
        let line = self.apps.get_mut(app)?.turn.take_if(|line| is_right(*line))?;
        self.turns.take_back(line);
        Some(line)
    }

    /// The application does nothing with the turn that it was given; false if it has none.
    pub(super) fn give_turn_back(&mut self, app: usize) -> bool {
        self.take_turn(app, |_| true).is_some()
    }

    /// Lets those who wait longest go on, as far as there is room, one of each line after the other.
    pub(super) fn give_turns(&mut self, io: &mut Io) {
        let mut passed = 0;
        while passed < self.turns.lines.len()
            && (self.turns.waiting_for_links > 0 || (self.turns.waiting > 0 && self.has_free_turn()))
        {
            let index = self.turns.next % self.turns.lines.len();
            self.turns.next = index + 1;
            passed = if self.give_turn(io, Line::of_index(index)) { 0 } else { passed + 1 };
        }
    }

    /// Lets who waits longest in this line go on; false if there is nobody, or no room.
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
            // It may be gone, or wait for something else by now.
            let Some(app) = self.app_of(conn).and_then(|app| self.apps.get_mut(app)) else { continue };
            if app.held == Some(Held::Turn(line)) {
                (app.held, app.turn) = (None, Some(line));
                self.turns.give(line);
                io.resume_reading(conn);
                return true;
            }
        }
        false
    }

    /// The application waits in line; if it had another turn, another one has it.
    pub(super) fn wait_in_line(&mut self, io: &mut Io, app: usize, line: Line) {
        self.give_turn_back(app);
        let Some(conn) = self.apps.get(app).map(|app| app.conn) else { return };
        self.turns.queue(line).waiting.push_back(conn);
        *self.turns.count(line) += 1;
        self.give_turns(io);
    }
}
