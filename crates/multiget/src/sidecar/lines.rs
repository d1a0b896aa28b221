//! Lines of applications: one for a multiget's place at whatever server, one for that at each
//! server, and one for each connection to a server that has as many commands or bytes as it may.

use std::collections::VecDeque;

use shunt_reactor::ConnId;

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

    pub(super) fn is_for_a_place(self) -> bool {
        !matches!(self, Line::Link(_))
    }
}

/// Who waits for a turn, and who has one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: Vec<Queue>,
    /// Applications that wait for the place of a multiget, and for a connection.
    pub(super) waiting: usize,
    pub(super) waiting_for_links: usize,
    /// How many of the former may begin a multiget, and have not yet.
    pub(super) given: usize,
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

    pub(super) fn is_waited_for(&self, line: Line) -> bool {
        self.lines.get(line.index()).is_some_and(|queue| !queue.waiting.is_empty())
    }

    pub(super) fn given_at(&self, line: Line) -> usize {
        self.lines.get(line.index()).map_or(0, |queue| queue.given)
    }

    /// Commands that may be sent over a connection, and are not yet: each is one, for how many keys
    /// a multiget has is not known before.
    pub(super) fn given_at_link(&self, link: usize) -> usize {
        let multigets =
            if link.is_multiple_of(2) { self.given_at(Line::Server(link / 2)) } else { 0 };
        multigets + self.given_at(Line::Link(link))
    }

    /// The line whose turn is next, of those that there are.
    pub(super) fn next_line(&mut self) -> Line {
        let index = self.next % self.lines.len().max(1);
        self.next = index + 1;
        Line::of_index(index)
    }

    /// Lines that somebody has waited in.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// An application waits in a line.
    pub(super) fn wait(&mut self, line: Line, conn: ConnId) {
        self.queue(line).waiting.push_back(conn);
        *self.count(line) += 1;
    }

    /// Who waits longest in a line.
    pub(super) fn take_next(&mut self, line: Line) -> Option<ConnId> {
        let conn = self.queue(line).waiting.pop_front()?;
        *self.count(line) -= 1;
        Some(conn)
    }

    pub(super) fn give(&mut self, line: Line) {
        self.given += usize::from(line.is_for_a_place());
        self.queue(line).given += 1;
    }

    pub(super) fn take_back(&mut self, line: Line) {
        self.given -= usize::from(line.is_for_a_place());
        self.queue(line).given -= 1;
    }
}
