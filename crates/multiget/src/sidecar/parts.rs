//! Commands that are split: a sidecar sends the parts to all their servers at once, over the
//! connections of other commands, and answers when the last part has its outcome.
//!
//! A part is all keys of one server; in a cluster it is one key, with all its places in the
//! command. A node that exports or imports a slot refuses several keys of the slot, but never one
//! key alone. [`split`](super::split) lists the invariants.

use shunt_reactor::{ConnId, Io};
use shunt_wire::resp::{Command, put_array, put_bulk};

use super::Sidecar;
use super::cluster::Again;
use super::links::{Expected, link_index};
use super::split::{KeyPlace, Outcome, Split, Verb};

impl Sidecar {
    /// Sends each server its part of a command. If one of them is known to refuse it, nothing is
    /// sent.
    pub(super) fn begin_split(
        &mut self,
        io: &mut Io,
        app: usize,
        sequence: u64,
        verb: Verb,
        (command, bytes): (&Command, &[u8]),
    ) {
        self.metrics.split.add(1);
        let (conn, version) = (self.apps[app].conn, self.apps[app].version);
        let mut places = std::mem::take(&mut self.key_places);
        self.sort_keys((command, bytes), verb, &mut places);
        let is_cluster = self.cluster.is_some();
        let key = |place: &KeyPlace| command.argument(bytes, place.index);
        let is_same_part =
            |a: &KeyPlace, b: &KeyPlace| a.server == b.server && (!is_cluster || key(a) == key(b));
        let of_servers = || places.chunk_by(|a, b| a.server == b.server);
        let links = of_servers()
            .filter_map(|keys| keys.first())
            .map(|first| link_index(first.server, version));
        let refusal = links.filter_map(|link| self.refusal(io, link)).next();
        if let Some(text) = refusal {
            self.metrics.split_failed.add(1);
            self.error(io, app, sequence, &text);
        } else {
            let parts = places.chunk_by(is_same_part).count();
            let split = self.splits.insert(Split::new(conn, sequence, verb, parts));
            // A server that is tried takes one part and refuses the others: then this part is all
            // that is sent.
            let trial = of_servers()
                .filter(|keys| keys.chunk_by(is_same_part).nth(1).is_some())
                .map(|keys| link_index(keys[0].server, version))
                .find_map(|link| Some((link, self.trial(io, link)?)));
            for keys in of_servers() {
                let link = link_index(keys[0].server, version);
                let opened = match &trial {
                    Some((tried, why)) if *tried != link => Err(why.clone()),
                    _ => self.open_link(io, link),
                };
                for (index, part) in keys.chunk_by(is_same_part).enumerate() {
                    let write = |out: &mut Vec<u8>| put_part(out, (command, bytes), verb, part);
                    let conn = match (&opened, &trial) {
                        (Ok(_), Some((_, why))) if index > 0 => Err(why),
                        (opened, _) => opened.as_ref().copied(),
                    };
                    match conn {
                        Ok(link_conn) => {
                            let again = is_cluster.then(|| Again::new(io.now_ns(), write));
                            let expected = Expected::Part { split, keys: part.len(), again };
                            self.put(io, (link, link_conn), expected, write);
                        }
                        Err(why) => {
                            self.end_part(io, split, part.len(), Outcome::NotSent(why.clone()));
                        }
                    }
                }
            }
        }
        self.key_places = places;
    }

    /// Finds the keys of a command, and sorts them by part. Keys of one part keep the command's
    /// order.
    fn sort_keys(
        &self,
        (command, bytes): (&Command, &[u8]),
        verb: Verb,
        found: &mut Vec<KeyPlace>,
    ) {
        let (places, is_cluster) = (self.client.places(), self.cluster.is_some());
        let key = |place: &KeyPlace| command.argument(bytes, place.index).unwrap_or_default();
        let indices = (1..command.count()).step_by(verb.arguments_per_key());
        found.clear();
        found.extend(indices.map(|index| KeyPlace {
            server: places.server(key(&KeyPlace { server: 0, index })),
            index,
        }));
        found.sort_unstable_by(|a, b| {
            let by_key = || if is_cluster { key(a).cmp(key(b)) } else { std::cmp::Ordering::Equal };
            a.server.cmp(&b.server).then_with(by_key).then(a.index.cmp(&b.index))
        });
    }

    /// Counts the outcome of a part, and answers a command with its last part.
    pub(super) fn end_part(
        &mut self,
        io: &mut Io,
        split: usize,
        keys: usize,
        outcome: Outcome<'_>,
    ) {
        if let Some(state) = self.splits.get_mut(split) {
            state.count(keys, outcome);
        }
        if self.splits.get(split).is_some_and(Split::is_over) {
            self.finish_split(io, split);
        }
    }

    /// Application of the command, if it still waits.
    pub(super) fn split_app(&self, split: usize) -> Option<ConnId> {
        let conn = self.splits.get(split)?.app;
        self.app_of(conn).map(|_| conn)
    }

    fn finish_split(&mut self, io: &mut Io, split: usize) {
        let split = self.splits.remove(split);
        let (conn, sequence, answer) = (split.app, split.sequence, split.answer());
        self.metrics.split_failed.add(u64::from(answer.is_err()));
        let Some(app) = self.app_of(conn) else { return };
        match answer {
            Ok(answer) => self.answer(io, app, sequence, answer),
            Err(text) => self.error(io, app, sequence, &text),
        }
    }
}

/// Writes the command with only these keys.
fn put_part(out: &mut Vec<u8>, (command, bytes): (&Command, &[u8]), verb: Verb, keys: &[KeyPlace]) {
    put_array(out, 1 + keys.len() * verb.arguments_per_key());
    put_bulk(out, verb.name().as_bytes());
    for place in keys {
        let arguments = place.index..place.index + verb.arguments_per_key();
        arguments
            .filter_map(|index| command.argument(bytes, index))
            .for_each(|argument| put_bulk(out, argument));
    }
}
