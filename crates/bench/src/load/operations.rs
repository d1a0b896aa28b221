//! Operations other than reads and updates of single keys: their draw, their keys, and the steps
//! after the first answer.

use shunt_reactor::Io;

use crate::load::{
    generator::Generator,
    mix::Operation,
    session::{SessionRest, Slot},
    template::Statement,
};

/// Failed draws after which no key seems to belong to a target.
const DRAWS_MAX: u32 = 1_000_000;
/// Draws of a further key of a multiget before the next unused key is taken: with a skewed
/// distribution the hottest keys come again and again.
const FURTHER_DRAWS: usize = 16;

/// An operation with its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) operation: Operation,
    pub(super) key: u64,
    pub(super) intended_ns: u64,
}

impl Generator {
    /// Sends the next operation of the mix over this connection.
    pub(super) fn send_mixed(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        intended_ns: u64,
    ) {
        let operation = self.mix.draw(&mut self.random);
        match self.key_at(operation, rest.target) {
            Ok(key) => self.send_drawn(io, rest, stream, Drawn { operation, key, intended_ns }),
            Err(why) => self.fail(io, why),
        }
    }

    /// Draws a key for an operation; a key of the target if the load is token-aware.
    fn key_at(&mut self, operation: Operation, target: usize) -> Result<u64, String> {
        for _ in 0..DRAWS_MAX {
            let reserved = self.routes.as_mut().filter(|_| operation == Operation::Insert);
            if let Some(key) = reserved.and_then(|routes| routes.take_reserved(target)) {
                return Ok(key);
            }
            let key = self.key_for(operation)?;
            let Some(routes) = &mut self.routes else { return Ok(key) };
            if routes.holds(target, key) {
                return Ok(key);
            }
            if operation == Operation::Insert && !routes.reserve(key) {
                return Err(no_holder(key));
            }
        }
        let address = self.options.targets[target % self.options.targets.len()];
        Err(format!(
            "--token-aware: none of {DRAWS_MAX} keys drawn belongs to {address}; take more keys or less skew"
        ))
    }

    /// Draws a key for an operation, on any node.
    pub(super) fn key_for(&mut self, operation: Operation) -> Result<u64, String> {
        if operation == Operation::Insert {
            return self
                .growth
                .next()
                .ok_or_else(|| "an insert has had no answer for millions of later ones".into());
        }
        Ok(self.keys.draw(&mut self.random))
    }

    pub(super) fn send_drawn(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        drawn: Drawn,
    ) {
        let Drawn { operation, key, intended_ns } = drawn;
        let statement = match operation {
            Operation::Read | Operation::ReadModifyWrite => Statement::SELECT,
            Operation::Update => self.update(),
            Operation::Insert => Statement::INSERT,
            Operation::Transfer => Statement::TRANSFER,
            Operation::Acquire => Statement::ACQUIRE,
            Operation::Release => Statement::RELEASE,
            Operation::Scan => Statement::SCAN,
            Operation::Multiget => {
                self.draw_further(rest, stream, key);
                Statement::MULTIGET
            }
        };
        self.put(io, rest, stream, Slot { intended_ns, key, operation, statement });
    }

    /// Draws the statement of an update: of one column, as in YCSB.
    fn update(&mut self) -> Statement {
        match self.options.columns {
            1 => Statement::INSERT,
            columns => Statement::update_of(self.random.below(u64::from(columns)) as u8),
        }
    }

    /// Draws the remaining keys of a multiget, all different.
    fn draw_further(&mut self, rest: &mut SessionRest, stream: u16, first: u64) {
        let count = usize::from(self.options.multiget);
        let Some(keys) =
            rest.keys.get_mut(usize::from(stream) * count..).and_then(|keys| keys.get_mut(..count))
        else {
            return;
        };
        keys[0] = first;
        for position in 1..count {
            let mut key = self.keys.draw(&mut self.random);
            let mut draws = 1;
            // The bound also ends the loop if there are not enough keys.
            while keys[..position].contains(&key) && draws < FURTHER_DRAWS + count {
                key = if draws < FURTHER_DRAWS {
                    self.keys.draw(&mut self.random)
                } else {
                    (key + 1) % self.options.keys
                };
                draws += 1;
            }
            keys[position] = key;
        }
    }

    /// Returns the keys of a multiget in flight; empty for any other operation.
    pub(super) fn keys_of<'a>(&self, rest: &'a SessionRest, asked: Slot, stream: i16) -> &'a [u64] {
        if asked.operation != Operation::Multiget {
            return &[];
        }
        let count = usize::from(self.options.multiget);
        rest.keys
            .get(stream as usize * count..)
            .and_then(|keys| keys.get(..count))
            .unwrap_or_default()
    }

    /// Continues an operation of several steps after an answer (`good`: a success). Returns `true`
    /// if it has sent its next query.
    pub(super) fn goes_on(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        asked: Slot,
        good: bool,
    ) -> bool {
        match asked.operation {
            Operation::ReadModifyWrite if good && !asked.statement.writes() => {
                let statement = self.update();
                self.put(io, rest, stream, Slot { statement, ..asked });
                return true;
            }
            Operation::Insert if good => {
                let there = self.growth.inserted(asked.key);
                self.keys.grown_to(there);
            }
            Operation::Insert => self.growth.failed(asked.key),
            Operation::Transfer if !good => return self.transfer_goes_on(io, rest, stream, asked),
            Operation::Acquire if good => {
                // Also at the end of the run: a held lock would block the next run.
                self.release_lock(io, rest, stream, asked);
                return true;
            }
            _ => {}
        }
        false
    }
}

pub(super) fn no_holder(key: u64) -> String {
    format!("--token-aware: key {key} has no replica among the targets")
}
