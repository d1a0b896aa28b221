//! An application: commands on keys of its own, many sent ahead, and the required answers.

use std::collections::HashMap;
use std::net::SocketAddr;

use shunt_reactor::sim::Random;
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::resp::{
    Scanner, Version, put_array, put_bulk, put_command, put_integer, put_nil, put_simple,
};

const COMMANDS: usize = 80;
const KEYS: u64 = 12;
pub(crate) const CONNECT_NS: u64 = 5_000_000_000;

pub(crate) struct App {
    to: SocketAddr,
    index: usize,
    plan: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
    depth: usize,
    sent: usize,
    conn: Option<ConnId>,
    scanner: Scanner,
}

impl App {
    pub(crate) fn new(to: SocketAddr, index: usize, random: &mut Random) -> Self {
        let version = if random.chance(0.5) { Version::Three } else { Version::Two };
        let (mut plan, mut expected) = (Vec::new(), Vec::new());
        let mut values: HashMap<String, String> = HashMap::new();
        if version == Version::Three {
            // The answer contains an id, so it is only counted.
            plan.push(command(&["HELLO".to_owned(), "3".to_owned()]));
            expected.push(Vec::new());
        }
        let key = |random: &mut Random| value_key(index, random.below(KEYS));
        for number in 0..COMMANDS {
            let (words, answer) = match random.below(9) {
                0 | 1 => {
                    let (key, value) =
                        (key(random), "v".repeat(random.index(400)) + &number.to_string());
                    values.insert(key.clone(), value.clone());
                    (vec!["SET".to_owned(), key, value], answer(|out| put_simple(out, "OK")))
                }
                2 => (vec!["PING".to_owned()], answer(|out| put_simple(out, "PONG"))),
                3 => {
                    let key = counter_key(index);
                    let next =
                        values.get(&key).map_or(0, |value| value.parse::<i64>().expect("a number"))
                            + 1;
                    values.insert(key.clone(), next.to_string());
                    (vec!["INCR".to_owned(), key], answer(|out| put_integer(out, next)))
                }
                4 => {
                    let key = key(random);
                    let value = values.get(&key).cloned();
                    (vec!["GET".to_owned(), key], answer(|out| put(out, value.as_deref(), version)))
                }
                5 => {
                    let keys: Vec<String> =
                        (0..1 + random.index(10)).map(|_| key(random)).collect();
                    let verb = ["DEL", "UNLINK"][random.index(2)];
                    let found = keys.iter().filter(|key| values.remove(*key).is_some()).count();
                    (
                        [vec![verb.to_owned()], keys].concat(),
                        answer(|out| put_integer(out, found as i64)),
                    )
                }
                6 => {
                    let keys: Vec<String> =
                        (0..1 + random.index(10)).map(|_| key(random)).collect();
                    let verb = ["EXISTS", "TOUCH"][random.index(2)];
                    let found = keys.iter().filter(|key| values.contains_key(*key)).count();
                    (
                        [vec![verb.to_owned()], keys].concat(),
                        answer(|out| put_integer(out, found as i64)),
                    )
                }
                7 => {
                    let mut words = vec!["MSET".to_owned()];
                    for pair in 0..1 + random.index(10) {
                        let (key, value) = (key(random), format!("{number}/{pair}"));
                        words.extend([key.clone(), value.clone()]);
                        values.insert(key, value);
                    }
                    (words, answer(|out| put_simple(out, "OK")))
                }
                _ => {
                    let keys: Vec<String> =
                        (0..1 + random.index(10)).map(|_| key(random)).collect();
                    let found = answer(|out| {
                        put_array(out, keys.len());
                        keys.iter()
                            .for_each(|key| put(out, values.get(key).map(String::as_str), version));
                    });
                    ([vec!["MGET".to_owned()], keys].concat(), found)
                }
            };
            plan.push(command(&words));
            expected.push(answer);
        }
        let depth = [1, 5, 1000][random.index(3)];
        Self {
            to,
            index,
            plan,
            expected,
            answers: Vec::new(),
            depth,
            sent: 0,
            conn: None,
            scanner: Scanner::new(1 << 20),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.answers.len() == self.plan.len()
    }

    /// True if every command sent has its answer.
    pub(crate) fn waits_for_nothing(&self) -> bool {
        self.answers.len() == self.sent
    }

    /// All keys that it uses.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> {
        let index = self.index;
        (0..KEYS).map(move |number| value_key(index, number)).chain([counter_key(index)])
    }

    pub(crate) fn leave(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn.take() {
            io.close(conn);
        }
    }

    /// Asserts that every answer is as required.
    pub(crate) fn check_exactly(&self) {
        assert_eq!(self.answers.len(), self.plan.len());
        self.check_prefix();
    }

    /// Asserts that the answers so far are as required.
    pub(crate) fn check_prefix(&self) {
        for (index, (found, expected)) in self.answers.iter().zip(&self.expected).enumerate() {
            assert!(
                expected.is_empty() || found == expected,
                "{index}: {} instead of {}",
                shown(found),
                shown(expected)
            );
        }
    }

    /// Asserts that every command has an answer of its kind or an error; returns the number of
    /// errors. After a lost write later reads are unknown.
    pub(crate) fn check_with_errors(&self) -> usize {
        assert_eq!(self.answers.len(), self.plan.len());
        let mut errors = 0;
        for (found, expected) in self.answers.iter().zip(&self.expected) {
            if found.starts_with(b"-") {
                let text = String::from_utf8_lossy(found);
                let is_split = ["DEL", "UNLINK", "MSET"]
                    .iter()
                    .any(|verb| text.starts_with(&format!("-ERR {verb} was carried out for ")));
                assert!(
                    (is_split || text.starts_with("-ERR the"))
                        && text.contains(" the server 192.0.2."),
                    "{text}"
                );
                errors += 1;
            } else if let (Some(kind), Some(wanted)) = (found.first(), expected.first()) {
                let is_value = |kind: &u8| b"$_".contains(kind);
                assert!(
                    kind == wanted || (is_value(kind) && is_value(wanted)),
                    "{}, not {}",
                    shown(found),
                    shown(expected)
                );
            }
        }
        errors
    }

    fn send(&mut self, io: &mut Io, conn: ConnId) {
        while self.sent < self.plan.len() && self.sent - self.answers.len() < self.depth {
            io.output(conn).extend_from_slice(&self.plan[self.sent]);
            self.sent += 1;
        }
    }
}

fn value_key(index: usize, number: u64) -> String {
    format!("app:{index}:{number}")
}

fn counter_key(index: usize) -> String {
    format!("counter:{index}")
}

fn command(words: &[String]) -> Vec<u8> {
    answer(|out| put_command(out, words.iter().map(String::as_bytes)))
}

fn answer(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn put(out: &mut Vec<u8>, value: Option<&str>, version: Version) {
    match value {
        Some(value) => put_bulk(out, value.as_bytes()),
        None => put_nil(out, version),
    }
}

fn shown(answer: &[u8]) -> String {
    answer[..answer.len().min(200)].escape_ascii().to_string()
}

impl Service for App {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.conn = Some(io.connect(self.to, CONNECT_NS));
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.send(io, conn);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut at = 0;
        while let Some(length) = self.scanner.find(&data[at..]).expect("the sidecar speaks RESP") {
            self.answers.push(data[at..at + length].to_vec());
            at += length;
        }
        self.send(io, conn);
        at
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        self.conn = None;
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}
