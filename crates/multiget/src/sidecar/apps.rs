//! Applications, and their answers in the order of their commands.

use std::collections::VecDeque;

use shunt_admin::HostConnection;
use shunt_reactor::{ConnId, Io};
use shunt_wire::resp::{Command, Version, put_error};

use super::Sidecar;
use super::lines::Line;
use crate::limits;

const UNTAKEN: &str = "it has asked for more than it takes";
/// Bytes of an application's name shown in the log.
const NAME_BYTES_SHOWN: usize = 64;

/// Backlog at which an application held for room is checked again.
pub(super) const DRAINED_BYTES: usize = limits::UNTAKEN_BYTES_MAX / 2;

/// Route of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// Answered here.
    Here,
    /// In datagrams.
    Datagrams,
    /// Over TCP.
    Tcp,
}

/// Condition that an application's next command waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Held {
    /// Fewer unanswered commands, or smaller answers.
    Room,
    /// All answers of the other route.
    Until(Way),
    /// All answers of both routes.
    Quiet,
    /// Fewer multigets in all, or less for a server: in this line.
    Turn(Line),
}

/// Memory of a command until it is answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Keys of a multiget, or of a split command.
    pub(super) keys: usize,
    /// Bytes of a command that is not answered here.
    pub(super) bytes: usize,
}

/// Place of an answer in the order of commands.
#[derive(Debug)]
struct Place {
    way: Way,
    cost: Cost,
    answer: Option<Vec<u8>>,
}

/// A connected application.
#[derive(Debug)]
pub(super) struct App {
    pub(super) conn: ConnId,
    /// The connection among those of its host.
    host: HostConnection,
    pub(super) version: Version,
    pub(super) name: Vec<u8>,
    /// Places from the first unanswered command on.
    answers: VecDeque<Place>,
    first: u64,
    /// Bytes of answers that wait behind a missing one.
    bytes: usize,
    /// Cost of all unanswered commands.
    asked: Cost,
    in_datagrams: usize,
    over_tcp: usize,
    pub(super) held: Option<Held>,
    /// Line in which it waited for the turn that it now has.
    pub(super) turn: Option<Line>,
    /// Part of a command that has not come completely.
    pub(super) begun: Option<Command>,
    /// The application has sent QUIT or broken the protocol: nothing more is read.
    pub(super) is_closing: bool,
}

impl App {
    pub(super) fn new(conn: ConnId, host: HostConnection) -> Self {
        Self {
            conn,
            host,
            version: Version::Two,
            name: Vec::new(),
            answers: VecDeque::new(),
            first: 0,
            bytes: 0,
            asked: Cost::default(),
            in_datagrams: 0,
            over_tcp: 0,
            held: None,
            turn: None,
            begun: None,
            is_closing: false,
        }
    }

    /// Reserves the place of the answer to a command of this cost.
    pub(super) fn expect(&mut self, way: Way, cost: Cost) -> u64 {
        self.host.requests.add(1);
        match way {
            Way::Here => {}
            Way::Datagrams => self.in_datagrams += 1,
            Way::Tcp => self.over_tcp += 1,
        }
        self.asked =
            Cost { keys: self.asked.keys + cost.keys, bytes: self.asked.bytes + cost.bytes };
        self.answers.push_back(Place { way, cost, answer: None });
        self.first + self.answers.len() as u64 - 1
    }

    /// Condition that a command on this route must wait for, if any.
    pub(super) fn waits(&self, way: Way) -> Option<Held> {
        match way {
            Way::Datagrams if self.over_tcp > 0 => Some(Held::Until(Way::Tcp)),
            Way::Tcp if self.in_datagrams > 0 => Some(Held::Until(Way::Datagrams)),
            _ => None,
        }
    }

    /// True if no command is under way to any server.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_datagrams == 0 && self.over_tcp == 0
    }

    pub(super) fn has_room(&self, io: &Io) -> bool {
        self.answers.len() < limits::PIPELINE_MAX
            && self.bytes + io.backlog(self.conn) <= limits::UNTAKEN_BYTES_MAX
            && self.asked.keys < limits::APP_KEYS_MAX
            && self.asked.bytes < limits::APP_ASKED_BYTES_MAX
    }

    /// Bytes kept for it, those of its encryption included, except those of unanswered multigets.
    pub(super) fn weight(&self, io: &Io) -> usize {
        let places = self.answers.capacity() * size_of::<Place>();
        self.bytes
            + self.asked.bytes
            + self.name.len()
            + places
            + io.output_memory(self.conn)
            + io.unread(self.conn)
            + io.session_bytes(self.conn)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.answers.is_empty()
    }

    fn may_go_on(&self, io: &Io) -> bool {
        match self.held {
            None | Some(Held::Turn(_)) => false,
            Some(Held::Room) => self.has_room(io),
            Some(Held::Until(Way::Tcp)) => self.over_tcp == 0,
            Some(Held::Until(_)) => self.in_datagrams == 0,
            Some(Held::Quiet) => self.is_quiet(),
        }
    }
}

impl Sidecar {
    /// Takes an answer, which is written once all before it are.
    pub(super) fn answer(&mut self, io: &mut Io, app: usize, sequence: u64, answer: Vec<u8>) {
        let Some(app) = self.apps.get_mut(app) else { return };
        let place =
            sequence.checked_sub(app.first).and_then(|place| app.answers.get_mut(place as usize));
        let Some(Place { way, cost, answer: slot }) = place.filter(|place| place.answer.is_none())
        else {
            return;
        };
        match way {
            Way::Here => {}
            Way::Datagrams => app.in_datagrams -= 1,
            Way::Tcp => app.over_tcp -= 1,
        }
        app.asked = Cost { keys: app.asked.keys - cost.keys, bytes: app.asked.bytes - cost.bytes };
        let more = answer.len();
        app.bytes += more;
        *slot = Some(answer);
        while let Some(Place { answer: Some(answer), .. }) = app.answers.front() {
            io.output(app.conn).extend_from_slice(answer);
            app.bytes -= answer.len();
            app.first += 1;
            app.answers.pop_front();
        }
        let held_bytes = app.bytes + io.backlog(app.conn);
        if held_bytes > limits::APP_BYTES_MAX {
            let conn = app.conn;
            return self.give_up(io, conn, held_bytes, UNTAKEN);
        }
        if app.is_closing && app.is_idle() {
            let conn = app.conn;
            return self.close(io, conn);
        }
        let conn = app.conn;
        self.go_on(io, conn);
        self.grown(io, more);
    }

    /// Answers with an error of the sidecar.
    pub(super) fn error(&mut self, io: &mut Io, app: usize, sequence: u64, text: &str) {
        self.metrics.errors.add(1);
        self.apps[app].host.errors.add(1);
        let mut answer = Vec::new();
        put_error(&mut answer, text);
        self.answer(io, app, sequence, answer);
    }

    /// Reads an application again, if the condition of its next command is met.
    pub(super) fn go_on(&mut self, io: &mut Io, conn: ConnId) {
        let Some(app) = self.app_of(conn) else { return };
        let app = &mut self.apps[app];
        if app.may_go_on(io) {
            app.held = None;
            io.resume_reading(conn);
        } else if app.held == Some(Held::Room) && io.backlog(conn) > DRAINED_BYTES {
            // An earlier notice may be gone: it came while answers waited for a missing one, and
            // these are backlog now.
            io.notify_drained(conn, DRAINED_BYTES);
        }
    }

    /// Closes an application that uses too much memory, and drops its answers.
    pub(super) fn give_up(&mut self, io: &mut Io, conn: ConnId, held_bytes: usize, why: &str) {
        let Some(app) = self.app_of(conn) else { return };
        let app = self.remove_app(app);
        io.abort(conn);
        self.abandon(io, conn);
        self.metrics.clients_closed.add(1);
        let Some(suppressed) = self.closings.admit(io.now_ns()) else { return };
        let name = app.name[..app.name.len().min(NAME_BYTES_SHOWN)].escape_ascii();
        tracing::warn!(%name, held_bytes, suppressed, "an application is closed: {why}; let it send less ahead");
    }

    /// Logs the number of applications that were closed without a line.
    pub(super) fn tell_suppressed(&mut self, io: &Io) {
        if let Some(suppressed) = self.closings.overdue(io.now_ns()) {
            tracing::warn!(suppressed, "more applications were closed for their memory");
        }
    }

    /// Forgets an application.
    pub(super) fn remove_app(&mut self, app: usize) -> App {
        self.give_turn_back(app);
        let app = self.apps.remove(app);
        self.set_peer(app.conn, super::Peer::Nobody);
        app
    }

    /// Sends the remaining answers and closes.
    pub(super) fn close(&mut self, io: &mut Io, conn: ConnId) {
        if let Some(app) = self.app_of(conn) {
            self.remove_app(app);
            io.close(conn);
        }
    }
}
