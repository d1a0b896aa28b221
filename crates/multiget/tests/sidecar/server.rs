//! A little Redis.

use std::collections::HashMap;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::resp::{
    Command, Version, put_array, put_bulk, put_error, put_integer, put_map, put_nil, put_simple,
    read_command,
};

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) values: HashMap<Vec<u8>, Vec<u8>>,
    versions: HashMap<ConnId, Version>,
    /// Databases besides the first.
    pub(crate) databases: u8,
    /// Number of times each key was deleted or set by a command with several keys.
    pub(crate) carried_out: HashMap<Vec<u8>, usize>,
    /// Answer to deletions, if set.
    pub(crate) answer: Option<Vec<u8>>,
    /// Sends a push message before each answer of RESP3.
    pub(crate) speaks_up: bool,
    /// Takes whatever comes for noise, as a server in clear text takes TLS.
    pub(crate) hears_noise: bool,
}

impl Server {
    /// The same values without connections.
    pub(crate) fn restarted(self) -> Server {
        Server { versions: HashMap::new(), ..self }
    }

    fn carry_out(&mut self, conn: ConnId, arguments: &[&[u8]], out: &mut Vec<u8>) {
        let version = self.versions.get(&conn).copied().unwrap_or_default();
        let put = |value: Option<&Vec<u8>>, out: &mut Vec<u8>| match value {
            Some(value) => put_bulk(out, value),
            None => put_nil(out, version),
        };
        match arguments {
            [b"HELLO", b"3"] => {
                self.versions.insert(conn, Version::Three);
                put_map(out, Version::Three, 0);
            }
            [b"SELECT", _] if self.databases > 0 => put_simple(out, "OK"),
            [b"SET", key, value] => {
                self.values.insert(key.to_vec(), value.to_vec());
                put_simple(out, "OK");
            }
            [b"INCR", key] => {
                let value = self.values.entry(key.to_vec()).or_insert(b"0".to_vec());
                let number = String::from_utf8_lossy(value).parse::<i64>().expect("a number") + 1;
                *value = number.to_string().into_bytes();
                put_integer(out, number);
            }
            [b"GET", key] | [b"GETRANGE", key, b"0", b"-1"] => put(self.values.get(*key), out),
            [b"MGET", keys @ ..] => {
                put_array(out, keys.len());
                keys.iter().for_each(|key| put(self.values.get(*key), out));
            }
            [b"DEL" | b"UNLINK", keys @ ..] => {
                keys.iter().for_each(|key| *self.carried_out.entry(key.to_vec()).or_default() += 1);
                let found = keys.iter().filter(|key| self.values.remove(**key).is_some()).count();
                match &self.answer {
                    Some(answer) => out.extend_from_slice(answer),
                    None => put_integer(out, found as i64),
                }
            }
            [b"EXISTS" | b"TOUCH", keys @ ..] => {
                put_integer(
                    out,
                    keys.iter().filter(|key| self.values.contains_key(**key)).count() as i64,
                );
            }
            [b"MSET", pairs @ ..] => {
                for pair in pairs.chunks(2) {
                    *self.carried_out.entry(pair[0].to_vec()).or_default() += 1;
                    self.values.insert(pair[0].to_vec(), pair[1].to_vec());
                }
                put_simple(out, "OK");
            }
            other => put_error(out, &format!("ERR {} arguments", other.len())),
        }
    }
}

impl Service for Server {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.versions.remove(&conn);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        if self.hears_noise {
            io.output(conn).extend_from_slice(b"-ERR Protocol error\r\n");
            io.close(conn);
            return data.len();
        }
        let (mut command, mut at) = (Command::default(), 0);
        while read_command(&data[at..], 1 << 20, &mut command).expect("the sidecar speaks RESP") {
            let mut out = Vec::new();
            if self.speaks_up && self.versions.contains_key(&conn) {
                out.extend_from_slice(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nkey\r\n");
            }
            let arguments: Vec<&[u8]> = command.arguments(&data[at..], 0).collect();
            self.carry_out(conn, &arguments, &mut out);
            io.output(conn).extend_from_slice(&out);
            at += command.len();
        }
        at
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        self.versions.remove(&conn);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}
