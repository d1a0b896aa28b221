//! Waiting lines of applications: one for a multiget's place at any server, one for that at each
//! server, and one for each connection to a server that has reached its limits.

use std::collections::VecDeque;

use shunt_reactor::ConnId;

/// Object of a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Line {
    /// A place for a multiget.
    Any,
    /// A place for a multiget that asks this server.
    Server(usize),
    /// Room in the connection of this index, for any other command.
    Link(usize),
}

impl Line {
    /// Index of the line. Each server has one line, and two connections.
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

/// Waiting applications, and turns given out.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: Vec<Queue>,
    /// Applications that wait for a multiget's place, and for a connection.
    pub(super) waiting: usize,
    pub(super) waiting_for_links: usize,
    /// Turns for multigets that are given and not yet used.
    pub(super) given: usize,
    /// Line that gets the next turn, so that all get turns one after the other.
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

    /// Commands promised to a connection and not yet sent: each turn counts as one, because a
    /// multiget's number of keys is unknown before.
    pub(super) fn given_at_link(&self, link: usize) -> usize {
        let multigets =
            if link.is_multiple_of(2) { self.given_at(Line::Server(link / 2)) } else { 0 };
        multigets + self.given_at(Line::Link(link))
    }

    /// Takes the line that is next in turn.
    pub(super) fn next_line(&mut self) -> Line {
        let index = self.next % self.lines.len().max(1);
        self.next = index + 1;
        Line::of_index(index)
    }

    /// Number of lines.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Adds an application to a line.
    pub(super) fn wait(&mut self, line: Line, conn: ConnId) {
        self.queue(line).waiting.push_back(conn);
        *self.count(line) += 1;
    }

    /// Takes the application that has waited longest in a line.
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
