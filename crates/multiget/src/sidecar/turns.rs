//! Whose multiget is next while as many are under way as may be: applications wait in line, and each that comes to the front begins one. So one
//! that sends thousands ahead costs others time, and no errors.

use shunt_reactor::{ConnId, Io};

use super::Sidecar;
use super::apps::Held;
use crate::limits;

impl Sidecar {
    /// There is room for one multiget more that is promised to nobody.
    fn has_free_turn(&self) -> bool {
        self.client.under_way() + self.turns < limits::MULTIGETS_MAX
    }

    /// True if an application may begin a multiget now, which it has to then; otherwise it has to wait.
    pub(super) fn take_turn(&mut self, app: usize) -> bool {
        self.give_turn_back(app) || (self.line.is_empty() && self.has_free_turn())
    }

    /// The application begins no multiget with the turn that it was given; false if it has none.
    pub(super) fn give_turn_back(&mut self, app: usize) -> bool {
        let had_turn = self.apps.get_mut(app).is_some_and(|app| std::mem::take(&mut app.has_turn));
        self.turns -= usize::from(had_turn);
        had_turn
    }

    /// Lets those who wait longest go on, as far as there is room.
    pub(super) fn give_turns(&mut self, io: &mut Io) {
        while self.has_free_turn()
            && let Some(conn) = self.line.pop_front()
        {
            // It may be gone, or wait for something else by now.
            let Some(app) = self.app_of(conn).and_then(|app| self.apps.get_mut(app)) else { continue };
            if app.held == Some(Held::Turn) {
                (app.held, app.has_turn) = (None, true);
                self.turns += 1;
                io.resume_reading(conn);
            }
        }
    }

    /// The application waits in line.
    pub(super) fn wait_in_line(&mut self, conn: ConnId) {
        self.line.push_back(conn);
    }
}
