//! Registers: keys that all clients of a scene read and overwrite, again and again.

use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{BatchChild, BatchKind, BatchStatement, Consistency, QueryParams};
use shunt_wire::cql::message::{ResultMessage, Value, ValueList, encode, query_flag};

use super::history::Asked;
use super::history::History;
use super::operation::{Kind, Maker, hex, texts};
use super::scene::Scene;

/// The first bytes of registers' keys; no client's own key begins like this.
const PREFIX: &[u8] = b"register/";

fn key(register: u32) -> Vec<u8> {
    [PREFIX, &register.to_be_bytes()].concat()
}

/// The value that a register's row holds.
fn value_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

impl Maker<'_> {
    /// Reads or overwrites one of this many registers, by one of the possible statements.
    pub(super) fn draw_register(
        &mut self,
        now_ns: u64,
        registers: u32,
        body: &mut Vec<u8>,
    ) -> (Kind, u8) {
        let register = self.random.below(u64::from(registers)) as u32;
        let key = key(register);
        if self.random.chance(0.3) {
            let entry = self.model.history.call(register, Asked::Read(None), now_ns);
            let mut values = ValueList::positional(self.version);
            values.push(Value::Bytes(&key));
            self.execute(body, self.statements.select, &values, query_flag::SKIP_METADATA);
            return (Kind::ReadRegister(entry), opcode::EXECUTE);
        }
        let value = self.model.next_value();
        let entry = self.model.history.call(register, Asked::Write(value), now_ns);
        let value = value.to_be_bytes();
        let mut values = ValueList::positional(self.version);
        values.push(Value::Bytes(&key)).push(Value::Bytes(&value));
        let op = match self.random.below(4) {
            0 => {
                let child = BatchChild {
                    statement: BatchStatement::Prepared(&self.statements.insert.id),
                    values: values.values(),
                };
                encode::batch(body, self.version, BatchKind::Unlogged, [child], &self.simple());
                opcode::BATCH
            }
            1 => {
                let written = format!("0x{}, 0x{}", hex(&key), hex(&value));
                let text = texts(self.uses_keyspace).0.replace("?, ?", &written);
                encode::query(body, self.version, &text, &self.simple());
                opcode::QUERY
            }
            _ => {
                self.execute(body, self.statements.insert, &values, 0);
                opcode::EXECUTE
            }
        };
        (Kind::WriteRegister(entry), op)
    }

    /// Parameters of a statement without values; with the client's timestamp, if it gives one.
    pub(super) fn simple(&self) -> QueryParams<'static> {
        QueryParams { timestamp: self.timestamp_us, ..QueryParams::simple(Consistency::ONE) }
    }
}

/// The value in the answer to a read of a register.
pub(super) fn found(result: &ResultMessage<'_>) -> Option<u64> {
    let ResultMessage::Rows(rows) = result else { panic!("{result:?} is no answer to a read") };
    let values: Vec<u64> = rows.rows().map(|row| value_of(row.unwrap().get(0).unwrap())).collect();
    assert!(values.len() <= 1, "{} rows for one key", values.len());
    values.first().copied()
}

impl Scene {
    /// Number of registers with a value.
    pub(super) fn registers_written(&self) -> usize {
        self.memory.lock().unwrap().iter().filter(|(key, _)| key.starts_with(PREFIX)).count()
    }

    /// Checks that every register answered as one register would, and holds a possible value now.
    pub fn check_registers(&self, registers: u32) {
        let histories = self.clients.iter().map(|client| &self.world.host(*client).model.history);
        let mut history = History::merged(histories);
        let now_ns = self.world.now_ns();
        for register in 0..registers {
            let value = self.memory.lock().unwrap().get(&key(register)).map(value_of);
            let entry = history.call(register, Asked::Read(None), now_ns);
            history.returned(entry, value, now_ns);
        }
        if let Some(events) = history.violation() {
            events.iter().for_each(|event| eprintln!("{event:?}"));
            panic!("an acknowledged value is lost, or an old one came back");
        }
    }
}
