//! The whole state at one moment: two proxies, requests, what was sent to replicas, the shard's
//! row.

use std::rc::Rc;

use super::opener::Opener;
use crate::engine::types::Outcome;
use crate::{Claim, Generation, Place, Row};

pub(super) const REPLICAS: u8 = 3;
/// The rows that requests read and write, and the row of the lock's fence.
pub(super) const X: u8 = 0;
pub(super) const Y: u8 = 1;
pub(super) const FENCE: u8 = 2;

/// A request under guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) fence: u8,
    /// The request reads [`X`] before it writes.
    pub(super) reads: bool,
    /// The row that it writes, if it does.
    pub(super) writes: Option<u8>,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The lock's owner has said that the lock is held with its fence; it is on its way since.
    OnItsWay,
    /// At this proxy.
    At(u8),
    /// Refused for its fence.
    Refused,
    /// The proxy died before it had answered.
    NeverAnswered,
    Answered(Outcome),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) fate: Fate,
    /// Timestamp of its first write, once it is decided.
    pub(super) timestamp_us: i64,
    /// The request that wrote the value which was read, counted from 1.
    pub(super) seen: u8,
    /// The request writes the row of the fence, after its other write.
    pub(super) raises: bool,
}

/// A message to replicas: the record of a request at a place of the log, or one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Record(u8, Place),
    Write(u8, u8),
}

/// The message may reach each replica at any later time. That it has is settled when it makes a
/// difference: when somebody reads there, or hears that a quorum has it. Until then it may or may
/// not be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) what: What,
    /// A bit for each replica that is known to have it.
    pub(super) at: u8,
    /// The message is of a request with an earlier fence, and need not be on a quorum when one with
    /// a later fence is acknowledged.
    pub(super) is_behind: bool,
}

/// A conditional statement on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    Claim(Option<(Generation, Generation)>),
    Seal(Generation),
}

#[derive(Clone)]
pub(super) struct Proxy {
    /// The state of its [`crate::Transactions`], by number.
    pub(super) machine: u32,
    pub(super) opening: Option<Rc<Opener>>,
    pub(super) has_lease: bool,
    /// The timestamps are below, by its row.
    pub(super) limit_us: i64,
    /// The fleet has declared its incarnation dead.
    pub(super) is_dead: bool,
    /// The process has ended.
    pub(super) is_gone: bool,
    /// The deadlines of all that has come are over.
    pub(super) is_late: bool,
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) proxies: [Proxy; 2],
    /// By the fleet's row.
    pub(super) owner: u8,
    pub(super) floor_us: i64,
    pub(super) take_overs: u8,
    pub(super) faults: u8,
    pub(super) requests: Vec<Begin>,
    pub(super) messages: Vec<Message>,
    pub(super) row: Row,
    pub(super) changes: Vec<(Claim, Change)>,
}

impl State {
    pub(super) fn message(&mut self, what: What) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.what == what)
    }

    /// Replicas do not differ but by what they have: puts them in an order, by those messages that
    /// matter.
    pub(super) fn put_in_order(&mut self, matters: &[bool]) {
        let column = |replica: u8| {
            let of = self.messages.iter().zip(matters).filter(|(_, matters)| **matters);
            of.map(|(message, _)| (message.what, message.at >> replica & 1)).collect::<Vec<_>>()
        };
        let mut columns: Vec<_> = (0..REPLICAS).map(|replica| (column(replica), replica)).collect();
        for (column, _) in &mut columns {
            column.sort_unstable();
        }
        columns.sort_unstable();
        for (message, _) in self.messages.iter_mut().zip(matters).filter(|(_, matters)| **matters) {
            let at = message.at;
            message.at =
                columns.iter().zip(0..).map(|((_, from), to)| (at >> from & 1) << to).sum();
        }
        self.messages.sort_unstable_by_key(|message| message.what);
        self.changes.sort_unstable_by_key(|(claim, change)| (claim.0, *change));
    }

    /// The state that matters for what can happen from now on.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        for proxy in &self.proxies {
            out.extend(proxy.machine.to_le_bytes());
            out.extend((proxy.limit_us as u16).to_le_bytes());
            let flags = [
                proxy.has_lease,
                proxy.is_dead,
                proxy.is_gone,
                proxy.is_late,
                proxy.opening.is_some(),
            ];
            out.push(flags.into_iter().fold(0, |all, flag| all << 1 | u8::from(flag)));
            if let Some(opener) = &proxy.opening {
                out.push(opener.heard.len() as u8);
                out.extend(&opener.heard);
            }
        }
        out.extend([
            self.owner,
            self.take_overs,
            self.faults,
            self.floor_us as u8,
            (self.floor_us >> 8) as u8,
        ]);
        for asked in &self.requests {
            let fate = match asked.fate {
                Fate::OnItsWay => 0,
                Fate::At(proxy) => 1 + proxy,
                Fate::Refused => 3,
                Fate::NeverAnswered => 4,
                Fate::Answered(Outcome::InDoubt) => 5,
                Fate::Answered(Outcome::NotExecuted(_)) => 6,
                Fate::Answered(Outcome::Committed { .. }) => 7,
                Fate::Answered(Outcome::Read { .. }) => 8,
            };
            out.extend([fate, asked.seen, u8::from(asked.raises)]);
            out.extend((asked.timestamp_us as u16).to_le_bytes());
        }
        for message in &self.messages {
            let (kind, request, place) = match message.what {
                What::Record(request, place) => {
                    (place.generation.0 as u8, request, place.position.0 as u8)
                }
                What::Write(request, number) => (0, request, number),
            };
            out.extend([kind, request, place, message.at | u8::from(message.is_behind) << 7]);
        }
        out.extend([self.row.generation.0 as u8, self.row.claim.0 as u8, self.row.sealed.0 as u8]);
        for (claim, change) in &self.changes {
            let (generation, sealed) = match change {
                Change::Claim(None) => (0, 0),
                Change::Claim(Some((generation, sealed))) => {
                    (generation.0 as u8, 100 + sealed.0 as u8)
                }
                Change::Seal(generation) => (generation.0 as u8, 99),
            };
            out.extend([claim.0 as u8, generation, sealed]);
        }
    }
}
