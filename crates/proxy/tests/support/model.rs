//! The keys of a simulated client: which writes were acknowledged, and which have an unknown
//! outcome.
//!
//! A key is written once, so that a late copy of a request that was sent twice cannot hide a loss:
//! every acknowledged write must be there, a refused one may be there, and nothing else.

use super::history::History;

/// The outcome of a key's write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// In flight: without an answer yet.
    InFlight,
    /// Acknowledged: must be found from now on.
    Acknowledged,
    /// Answered with an error, or never answered: may be found, now or later.
    Unknown,
    /// Answered with the error that says that nothing was begun.
    NotBegun,
}

/// The keys of one client.
#[derive(Debug)]
pub struct Model {
    client: u16,
    value_bytes: Vec<u32>,
    fates: Vec<Fate>,
    /// The client's operations on registers.
    pub history: History,
}

impl Model {
    pub fn new(client: u16) -> Model {
        Model { client, value_bytes: Vec::new(), fates: Vec::new(), history: History::default() }
    }

    /// A value for a register that no other operation writes.
    pub fn next_value(&self) -> u64 {
        u64::from(self.client) << 32 | self.history.events.len() as u64
    }

    /// Adds a key, in flight.
    pub fn add(&mut self, value_bytes: u32) -> u32 {
        self.fates.push(Fate::InFlight);
        self.value_bytes.push(value_bytes);
        self.fates.len() as u32 - 1
    }

    pub fn len(&self) -> u32 {
        self.fates.len() as u32
    }

    pub fn fate(&self, number: u32) -> Fate {
        self.fates[number as usize]
    }

    pub fn settle(&mut self, number: u32, fate: Fate) {
        assert_eq!(self.fates[number as usize], Fate::InFlight);
        self.fates[number as usize] = fate;
    }

    /// The bytes of a key; it names the client, so that no other client has it.
    pub fn key(&self, number: u32) -> Vec<u8> {
        format!("{:04}/{number:06}", self.client).into_bytes()
    }

    /// The value of a key: it begins with the key, and goes on with bytes that only it has.
    pub fn value(&self, number: u32) -> Vec<u8> {
        let mut value = self.key(number);
        let mut state = u64::from(number) << 16 | u64::from(self.client);
        for _ in 0..self.value_bytes[number as usize] {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Half of the bytes repeat, so that compression has an effect.
            value.push(if state >> 63 == 0 { b'.' } else { (state >> 33) as u8 });
        }
        value
    }

    /// Numbers of the keys with acknowledged writes.
    pub fn acknowledged(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).filter(|number| self.fate(*number) == Fate::Acknowledged)
    }
}
