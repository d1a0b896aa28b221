//! Whose multiget is next while as many are under way as may be: applications wait in line, and each that comes to the front begins one. So one
//! that sends thousands ahead costs others time, and no errors. One of several servers has at most half of the places, and a line of its own: if it is silent
//! those who ask it wait, and nobody else.

use std::collections::VecDeque;

use shunt_reactor::{ConnId, Io};

use super::Sidecar;
use super::apps::Held;
use crate::limits;

/// The line for a place at whatever server. That for one at a server has its number and one.
const ANY: usize = 0;

fn line_of(server: usize) -> usize {
    server + 1
}

/// Who waits for a turn, and who has one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: Vec<Line>,
    /// Applications in all lines.
    waiting: usize,
    /// How many of them may begin a multiget, and have not yet.
    given: usize,
    /// The line that has the next turn, for each that has somebody in it has one after the other.
    next: usize,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<ConnId>,
    given: usize,
}

impl Turns {
    fn line_mut(&mut self, line: usize) -> &mut Line {
        if self.lines.len() <= line {
            self.lines.resize_with(line + 1, Line::default);
        }
        &mut self.lines[line]
    }

    fn is_waited_for(&self, line: usize) -> bool {
        self.lines.get(line).is_some_and(|line| !line.waiting.is_empty())
    }

    fn given_at(&self, line: usize) -> usize {
        self.lines.get(line).map_or(0, |line| line.given)
    }

    /// Who waits longest in a line.
    fn take_next(&mut self, line: usize) -> Option<ConnId> {
        let conn = self.lines.get_mut(line)?.waiting.pop_front()?;
        self.waiting -= 1;
        Some(conn)
    }
}

impl Sidecar {
    /// There is room for one multiget more that is promised to nobody.
    fn has_free_turn(&self) -> bool {
        self.client.under_way() + self.turns.given < limits::MULTIGETS_MAX
    }

    /// A server has as many multigets as one of several may, with those that are promised.
    fn is_crowded(&self, server: usize) -> bool {
        let promised = self.turns.given_at(line_of(server));
        self.options.servers.len() > 1 && self.client.multigets_at(server) + promised >= limits::SERVER_MULTIGETS_MAX
    }

    /// What an application has to wait for before it may begin a multiget of these keys. If that is nothing it has to begin it, for it has no turn any more.
    pub(super) fn wait_for_turn<'k>(&mut self, app: usize, keys: impl Iterator<Item = &'k [u8]>) -> Option<Held> {
        let turn = self.take_turn(app);
        let is_full = |server: usize| match turn {
            // It was at the front of a line: who is promised a place elsewhere does not hold it up, or two could hold up one another for ever.
            Some(line) if line != ANY => {
                self.options.servers.len() > 1 && self.client.multigets_at(server) >= limits::SERVER_MULTIGETS_MAX
            }
            _ => self.is_crowded(server) || self.turns.is_waited_for(line_of(server)),
        };
        // With fewer no server has as many as it may, and nobody waits for one: keys need no look.
        let is_busy = self.client.under_way() + self.turns.given >= limits::SERVER_MULTIGETS_MAX;
        if is_busy || self.turns.waiting > 0 {
            let places = self.client.places();
            if let Some(server) = keys.map(|key| places.server(key)).find(|server| is_full(*server)) {
                return Some(Held::Turn(line_of(server)));
            }
        }
        let is_free = turn.is_some() || (!self.turns.is_waited_for(ANY) && self.has_free_turn());
        (!is_free).then_some(Held::Turn(ANY))
    }

    fn take_turn(&mut self, app: usize) -> Option<usize> {
        let line = self.apps.get_mut(app)?.turn.take()?;
        self.turns.given -= 1;
        self.turns.line_mut(line).given -= 1;
        Some(line)
    }

    /// The application begins no multiget with the turn that it was given; false if it has none.
    pub(super) fn give_turn_back(&mut self, app: usize) -> bool {
        self.take_turn(app).is_some()
    }

    /// Lets those who wait longest go on, as far as there is room, one of each line after the other.
    pub(super) fn give_turns(&mut self, io: &mut Io) {
        let mut passed = 0;
        while self.turns.waiting > 0 && passed < self.turns.lines.len() && self.has_free_turn() {
            let line = self.turns.next % self.turns.lines.len();
            self.turns.next = line + 1;
            passed = if self.give_turn(io, line) { 0 } else { passed + 1 };
        }
    }

    fn give_turn(&mut self, io: &mut Io, line: usize) -> bool {
        if line != ANY && self.is_crowded(line - 1) {
            return false;
        }
        while let Some(conn) = self.turns.take_next(line) {
            // It may be gone, or wait for something else by now.
            let Some(app) = self.app_of(conn).and_then(|app| self.apps.get_mut(app)) else { continue };
            if app.held == Some(Held::Turn(line)) {
                (app.held, app.turn) = (None, Some(line));
                self.turns.given += 1;
                self.turns.line_mut(line).given += 1;
                io.resume_reading(conn);
                return true;
            }
        }
        false
    }

    /// The application waits in line; if it had a turn, another one has it.
    pub(super) fn wait_in_line(&mut self, io: &mut Io, conn: ConnId, line: usize) {
        self.turns.line_mut(line).waiting.push_back(conn);
        self.turns.waiting += 1;
        self.give_turns(io);
    }
}
