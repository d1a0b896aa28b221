//! A command that several servers carry out in parts: the outcomes of the parts, and the single
//! answer made of them.
//!
//! The table lists what a split must never do, and the test that would notice it.
//!
//! | never | noticed by |
//! |---|---|
//! | carry a part out twice: it is repeated only after `MOVED` or `ASK`, which say that it was not carried out | `a_part_that_was_lost_is_not_repeated`, the simulation of moving slots |
//! | answer with a sum or OK although a part has no such answer | `an_answer_of_another_kind_is_no_outcome` |
//! | call a part done or not done although that is unknown | `the_error_says_how_many_keys_were_done_and_how_many_not` |
//! | let a driver repeat a partly executed command by itself: such an error has no code that drivers repeat on | the same |
//! | send a part although another one is known to be refused, but for the one that tries a silent server | `nothing_is_sent_if_a_server_is_known_to_refuse`, `a_node_that_was_silent_is_tried_with_one_part_of_a_split_command` |
//! | let a command overtake, or be overtaken by, another one of its application | the simulations of applications |

use std::net::SocketAddr;

use shunt_reactor::ConnId;
use shunt_wire::resp::{Value, put_integer, put_simple, value};

/// A command that is split.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    Del,
    Unlink,
    Exists,
    Touch,
    Mset,
}

impl Verb {
    const ALL: [Self; 5] = [Self::Del, Self::Unlink, Self::Exists, Self::Touch, Self::Mset];

    /// The split command with this name, in any case.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| name.eq_ignore_ascii_case(verb.name().as_bytes()))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Del => "DEL",
            Verb::Unlink => "UNLINK",
            Verb::Exists => "EXISTS",
            Verb::Touch => "TOUCH",
            Verb::Mset => "MSET",
        }
    }

    /// Arguments per key, including the key.
    pub(super) fn arguments_per_key(self) -> usize {
        if self == Verb::Mset { 2 } else { 1 }
    }

    /// True if a second execution changes nothing, so that drivers may repeat the command.
    fn is_repeatable(self) -> bool {
        matches!(self, Verb::Exists | Verb::Touch)
    }
}

/// A key in its command.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPlace {
    pub(super) server: usize,
    /// Index of the argument.
    pub(super) index: usize,
}

/// Outcomes of a split command's parts so far.
#[derive(Debug)]
pub(super) struct Split {
    /// Application that waits for the answer, and the answer's place.
    pub(super) app: ConnId,
    pub(super) sequence: u64,
    verb: Verb,
    /// Parts without an outcome.
    parts: usize,
    /// Sum of the numbers in the servers' answers.
    sum: i64,
    keys: Keys,
    /// The first error.
    error: Option<Failure>,
}

/// The outcome of a part.
#[derive(Debug)]
pub(super) enum Outcome<'a> {
    /// The server has answered.
    Answer { server: SocketAddr, answer: &'a [u8] },
    /// The part was not sent, and why.
    NotSent(String),
    /// The part was sent, and no answer says what came of it.
    Unknown(String),
}

/// Keys by the outcome of their part.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    done: usize,
    not_done: usize,
    unknown: usize,
}

#[derive(Debug)]
struct Failure {
    text: String,
    /// Server that sent the error. An error of the sidecar names the server itself.
    server: Option<SocketAddr>,
}

impl Split {
    pub(super) fn new(app: ConnId, sequence: u64, verb: Verb, parts: usize) -> Self {
        Self { app, sequence, verb, parts, sum: 0, keys: Keys::default(), error: None }
    }

    /// True if every part has its outcome.
    pub(super) fn is_over(&self) -> bool {
        self.parts == 0
    }

    /// Counts the outcome of a part of so many keys.
    pub(super) fn count(&mut self, keys: usize, outcome: Outcome<'_>) {
        self.parts -= 1;
        let failure = match outcome {
            Outcome::Answer { server, answer } => match self.result(keys, answer) {
                Ok(number) => {
                    self.keys.done += keys;
                    self.sum += number;
                    return;
                }
                Err(Some(text)) => {
                    self.keys.not_done += keys;
                    Failure { text, server: Some(server) }
                }
                Err(None) => {
                    self.keys.unknown += keys;
                    let text = format!(
                        "ERR the answer of the server {server} is not of the kind that was asked for"
                    );
                    Failure { text, server: None }
                }
            },
            Outcome::NotSent(text) => {
                self.keys.not_done += keys;
                Failure { text, server: None }
            }
            Outcome::Unknown(text) => {
                self.keys.unknown += keys;
                Failure { text, server: None }
            }
        };
        self.error.get_or_insert(failure);
    }

    /// The number that a server has answered to a part, 0 for OK; or its error; or nothing, if the
    /// answer is of another kind.
    fn result(&self, keys: usize, answer: &[u8]) -> Result<i64, Option<String>> {
        match value(answer).map(|(value, _)| value) {
            Some(Value::Error(text)) => Err(Some(String::from_utf8_lossy(text).into_owned())),
            Some(Value::Integer(number))
                if self.verb != Verb::Mset && (0..=keys as i64).contains(&number) =>
            {
                Ok(number)
            }
            _ if self.verb == Verb::Mset && answer == b"+OK\r\n" => Ok(0),
            _ => Err(None),
        }
    }

    /// The answer to the application.
    ///
    /// # Errors
    /// A part has failed. If keys were or may have been changed, and a repetition would do harm,
    /// the error says how many.
    pub(super) fn answer(self) -> Result<Vec<u8>, String> {
        let Self { verb, sum, keys, error, .. } = self;
        let Some(error) = error else {
            let mut out = Vec::new();
            match verb {
                Verb::Mset => put_simple(&mut out, "OK"),
                _ => put_integer(&mut out, sum),
            }
            return Ok(out);
        };
        if verb.is_repeatable() || (keys.done == 0 && keys.unknown == 0) {
            return Err(error.text);
        }
        // The server's code would suggest that nothing was done, and some drivers would repeat the
        // command.
        let (name, all) = (verb.name(), keys.done + keys.not_done + keys.unknown);
        let mut text = format!("ERR {name} was carried out for {} of {all} keys", keys.done);
        if keys.done > 0 && verb != Verb::Mset {
            text.push_str(&format!(" ({sum} of them existed)"));
        }
        if keys.not_done > 0 {
            text.push_str(&format!(", not for {}", keys.not_done));
        }
        if keys.unknown > 0 {
            text.push_str(&format!(", perhaps for {}", keys.unknown));
        }
        match error.server {
            Some(server) => {
                text.push_str(&format!(": the server {server} has answered {}", error.text))
            }
            None => text
                .push_str(&format!(": {}", error.text.strip_prefix("ERR ").unwrap_or(&error.text))),
        }
        Err(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(verb: Verb, parts: usize) -> Split {
        Split::new(ConnId { index: 0, generation: 0 }, 0, verb, parts)
    }

    fn of_server(answer: &[u8]) -> Outcome<'_> {
        Outcome::Answer { server: ([192, 0, 2, 7], 6379).into(), answer }
    }

    #[test]
    fn numbers_are_added_and_ok_is_once() {
        let mut del = split(Verb::Del, 2);
        del.count(3, of_server(b":2\r\n"));
        assert!(!del.is_over());
        del.count(1, of_server(b":1\r\n"));
        assert!(del.is_over());
        assert_eq!(del.answer(), Ok(b":3\r\n".to_vec()));
        let mut mset = split(Verb::Mset, 2);
        (0..2).for_each(|_| mset.count(1, of_server(b"+OK\r\n")));
        assert_eq!(mset.answer(), Ok(b"+OK\r\n".to_vec()));
    }

    #[test]
    fn an_answer_of_another_kind_is_no_outcome() {
        for (verb, answer) in [
            (Verb::Del, &b"+OK\r\n"[..]),
            (Verb::Del, b":3\r\n"),
            (Verb::Del, b":-1\r\n"),
            (Verb::Del, b":9223372036854775807\r\n"),
            (Verb::Unlink, b"$-1\r\n"),
            (Verb::Unlink, b"*1\r\n:1\r\n"),
            (Verb::Mset, b":1\r\n"),
            (Verb::Mset, b"+QUEUED\r\n"),
            (Verb::Mset, b"$2\r\nOK\r\n"),
        ] {
            let mut split = split(verb, 1);
            split.count(2, of_server(answer));
            let text = split.answer().expect_err("no answer");
            assert!(
                text.contains(
                    "for 0 of 2 keys, perhaps for 2: the answer of the server 192.0.2.7:6379"
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn the_error_says_how_many_keys_were_done_and_how_many_not() {
        let mut del = split(Verb::Del, 3);
        del.count(4, of_server(b":3\r\n"));
        del.count(2, of_server(b"-LOADING Redis is loading the dataset in memory\r\n"));
        del.count(
            1,
            Outcome::Unknown("ERR the server 192.0.2.8:6379 has closed the connection".to_owned()),
        );
        assert_eq!(
            del.answer(),
            Err("ERR DEL was carried out for 4 of 7 keys (3 of them existed), not for 2, perhaps for 1: the server 192.0.2.7:6379 has answered LOADING Redis is loading the dataset in memory".to_owned())
        );
        let mut mset = split(Verb::Mset, 2);
        mset.count(4, of_server(b"+OK\r\n"));
        mset.count(
            1,
            Outcome::NotSent("ERR the server 192.0.2.8:6379 refuses connections".to_owned()),
        );
        assert_eq!(
            mset.answer(),
            Err("ERR MSET was carried out for 4 of 5 keys, not for 1: the server 192.0.2.8:6379 refuses connections"
                .to_owned())
        );
    }

    #[test]
    fn repeatable_commands_get_the_servers_error() {
        let loading = b"-LOADING Redis is loading the dataset in memory\r\n";
        let mut del = split(Verb::Del, 2);
        (0..2).for_each(|_| del.count(1, of_server(loading)));
        assert_eq!(del.answer(), Err("LOADING Redis is loading the dataset in memory".to_owned()));
        for verb in [Verb::Exists, Verb::Touch] {
            let mut split = split(verb, 2);
            split.count(1, of_server(b":1\r\n"));
            split.count(1, of_server(loading));
            assert_eq!(
                split.answer(),
                Err("LOADING Redis is loading the dataset in memory".to_owned())
            );
        }
    }
}
