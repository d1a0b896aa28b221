//! Pairs of an acquire and a release. A stream id takes a lock, waits for the answer, releases the
//! lock, and continues with another name.
//!
//! Each stream id has its own part of the names, so that no two ask for one lock. If the load waits
//! for locks, all draw from all names instead. Owners are the stream ids.

use shunt_reactor::Io;
use shunt_wire::cql::message::ResultMessage;

use crate::load::{
    generator::Generator,
    locks::{Foreign, owner_of},
    mix::Operation,
    session::{SessionRest, Slot},
    template::Statement,
};

impl Generator {
    /// Returns the server's protocol if it is not CQL.
    #[inline]
    pub(super) fn foreign(&self) -> Option<Foreign> {
        self.options.locks?.foreign()
    }

    /// Asks for the next lock of a stream id.
    pub(super) fn take_lock(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        intended_ns: u64,
    ) {
        let waits = self.options.locks.is_some_and(|locks| locks.wait_ms.is_some());
        let key = if waits {
            self.random.below(self.options.keys)
        } else {
            let at_once = u64::from(self.options.connections) * u64::from(self.options.outstanding);
            let own = owner_of(rest.index, self.options.outstanding, stream);
            own + at_once * self.random.below((self.options.keys / at_once).max(1))
        };
        let slot =
            Slot { intended_ns, key, operation: Operation::Acquire, statement: Statement::ACQUIRE };
        self.put(io, rest, stream, slot);
    }

    /// Releases the lock that was just granted.
    pub(super) fn release_lock(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        asked: Slot,
    ) {
        let now_ns = io.now_ns();
        self.record(asked, now_ns);
        let (operation, statement) = (Operation::Release, Statement::RELEASE);
        self.put(io, rest, stream, Slot { intended_ns: now_ns, operation, statement, ..asked });
    }

    /// Returns whether a conditional statement was applied, according to its answer.
    pub(super) fn check_applied(&mut self, version: u8, message: &[u8]) -> bool {
        let first = match ResultMessage::decode(version, message) {
            Ok(ResultMessage::Rows(rows)) => rows.rows().next().and_then(Result::ok),
            _ => None,
        };
        match first.and_then(|row| row.get(0)) {
            Some([1]) => return true,
            Some([0]) => self.counts.not_applied += 1,
            _ => self.counts.wrong_answers += 1,
        }
        false
    }
}
