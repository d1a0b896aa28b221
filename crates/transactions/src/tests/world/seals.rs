//! The promise of a seal, looked at from outside: all that was committed in a generation before is
//! made, and nothing is afterwards.

use super::*;

impl World {
    /// A write of a record is sent. The first of them means that it is committed, which it can no
    /// more be after its generation was closed.
    pub(super) fn begin_writes(&mut self, place: Place, writes: Writes) {
        if self.begun.contains_key(&place) {
            return;
        }
        if place.generation <= self.closed {
            // It may have been begun before, and sealed when all was made.
            if !self.is_made(&writes) {
                self.fault.get_or_insert(format!(
                    "{place:?} is begun, and generations up to {:?} are closed",
                    self.closed
                ));
            }
            return;
        }
        self.begun.insert(place, writes);
    }

    /// The promise of a seal: all that was committed up to this generation is made.
    pub(super) fn look_at_seal(&mut self, sealed: Generation) {
        self.closed = self.closed.max(sealed);
        let open = self
            .begun
            .split_off(&Place { generation: Generation(sealed.0 + 1), position: Position(0) });
        let begun = std::mem::replace(&mut self.begun, open);
        if let Some((place, _)) = begun.iter().find(|(_, writes)| !self.is_made(writes)) {
            self.fault.get_or_insert(format!(
                "{place:?} is not made, and generations up to {sealed:?} are sealed"
            ));
        }
    }

    /// A quorum has each of these writes, or a later one in its place.
    fn is_made(&self, writes: &Writes) -> bool {
        let has = |replica: &&Replica, key: usize, value: Value| replica.registers[key] >= value;
        writes.iter().all(|(key, value)| {
            self.replicas.iter().filter(|replica| has(replica, *key, *value)).count() > REPLICAS / 2
        })
    }
}
