//! What one core of the process has to say to another: locks that its clients ask for and another
//! core keeps, their answers, and the words of the fleet.
//!
//! All that a turn produces for a core goes there as one mail when the turn ends, so that nothing
//! is locked per request. Mail of one core to another arrives in order. A core that does not take
//! its mail gets no more requests once [`WAITING_BYTES_MAX`] wait for it; words and answers are
//! few, or bounded by requests, and never left out.

use std::sync::Arc;

use shunt_locks::{Mode, Namespace, Ticket};

use crate::control::post::Mailbox;
use crate::control::state::CoreMail;
use crate::fleet::peers::Owners;
use crate::fleet::roster::Fleet;

use crate::locks::outbox::{Held, Reply, Verdict};
use crate::locks::request::{Operation, Request};
use crate::locks::word::Word;
use shunt_transactions::request::Head;

/// Bytes of requests that may wait for a core.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One message; its texts lie in the batch, one after the other.
#[derive(Clone, Copy, Debug)]
enum Message {
    Word(Word),
    Ask {
        ticket: Ticket,
        namespace: Namespace,
        operation: Operation,
        lengths: [u16; 3],
    },
    Answer {
        ticket: Ticket,
        verdict: Verdict,
        holder: Option<(Mode, i64, u32)>,
        waiters: u32,
        length: u16,
        list: u32,
    },
    /// The second: it is answered nevertheless.
    Cancel(Ticket, bool),
    /// A transaction: so many bytes of whose share it counts to, and so many of itself.
    Transaction(Ticket, u32, u32),
    /// The answer to one: opcode, flags, and so many bytes.
    Told(Ticket, Head, u32),
    Longest {
        ticket: Ticket,
        namespace: Namespace,
        most: u32,
    },
}

/// What one core has to say to another at the end of a turn.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    messages: Vec<Message>,
    texts: Vec<u8>,
    /// Bytes of requests among them.
    asked_bytes: usize,
    /// Bytes of transactions among them, which leave requests for locks their room.
    transaction_bytes: usize,
    /// The live members, if they are others now.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// Where the shards of other proxies are, if they are elsewhere now.
    pub(crate) owners: Option<Arc<Owners>>,
}

/// A message as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said<'a> {
    Word(Word),
    Ask(Request<'a>),
    Answer(Ticket, Reply<'a>),
    /// The second: it is answered nevertheless.
    Cancel(Ticket, bool),
    /// A transaction, and whose share it counts to.
    Transaction(Ticket, &'a [u8], &'a [u8]),
    /// The answer to one.
    Told(Ticket, Head, &'a [u8]),
    /// Which locks have the longest queues; so many at most.
    Longest(Ticket, Namespace, u32),
}

impl Batch {
    /// All messages, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Said<'_>> {
        let mut rest = &self.texts[..];
        let mut text = move |length: usize| {
            let (text, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            text
        };
        self.messages.iter().map(move |message| match *message {
            Message::Word(word) => Said::Word(word),
            Message::Ask { ticket, namespace, operation, lengths } => {
                let [name, role, owner] = lengths.map(|length| text(usize::from(length)));
                Said::Ask(Request { ticket, namespace, operation, name, role, owner })
            }
            Message::Answer { ticket, verdict, holder, waiters, length, list } => {
                let (owner, list) = (text(usize::from(length)), text(list as usize));
                let holder =
                    holder.map(|(mode, fence, ttl_ms)| Held { owner, mode, fence, ttl_ms });
                Said::Answer(ticket, Reply { verdict, holder, waiters, list })
            }
            Message::Cancel(ticket, is_awaited) => Said::Cancel(ticket, is_awaited),
            Message::Transaction(ticket, who, length) => {
                let who = text(who as usize);
                Said::Transaction(ticket, who, text(length as usize))
            }
            Message::Told(ticket, head, length) => Said::Told(ticket, head, text(length as usize)),
            Message::Longest { ticket, namespace, most } => Said::Longest(ticket, namespace, most),
        })
    }
}

/// The ways to the other cores.
#[derive(Default)]
pub(crate) struct Lanes {
    mailboxes: Vec<Mailbox>,
    batches: Vec<Batch>,
    /// Cores for which something waits.
    waiting: Vec<usize>,
}

impl Lanes {
    /// Ways into these mailboxes, by the number of the core.
    pub(crate) fn new(mailboxes: Vec<Mailbox>) -> Self {
        let batches = mailboxes.iter().map(|_| Batch::default()).collect();
        Self { mailboxes, batches, waiting: Vec::new() }
    }

    fn batch(&mut self, to: usize) -> Option<&mut Batch> {
        let batch = self.batches.get_mut(to)?;
        if batch.messages.is_empty() && batch.fleet.is_none() && batch.owners.is_none() {
            self.waiting.push(to);
        }
        Some(batch)
    }

    /// Shows the live members.
    pub(crate) fn show(&mut self, to: usize, fleet: &Arc<Fleet>) {
        if let Some(batch) = self.batch(to) {
            batch.fleet = Some(Arc::clone(fleet));
        }
    }

    /// Tells where the shards of other proxies are.
    pub(crate) fn show_owners(&mut self, to: usize, owners: &Arc<Owners>) {
        if let Some(batch) = self.batch(to) {
            batch.owners = Some(Arc::clone(owners));
        }
    }

    /// Says a word.
    pub(crate) fn tell(&mut self, to: usize, word: Word) {
        if let Some(batch) = self.batch(to) {
            batch.messages.push(Message::Word(word));
        }
    }

    /// Bytes that wait for a core, but for what is the same length in each message.
    pub(crate) fn waiting_bytes(&self, to: usize) -> usize {
        self.batches.get(to).map_or(0, |batch| batch.texts.len())
    }

    /// Sends a request on; `false`: too much waits for that core.
    pub(crate) fn ask(&mut self, to: usize, request: &Request<'_>) -> bool {
        // What others were answered does not count: a list is long.
        if self.batches.get(to).is_none_or(|batch| batch.asked_bytes > WAITING_BYTES_MAX) {
            return false;
        }
        let texts = [request.name, request.role, request.owner];
        let Some(batch) = self.batch(to) else { return false };
        let Request { ticket, namespace, operation, .. } = *request;
        let lengths = texts.map(|text| text.len() as u16);
        batch.asked_bytes +=
            size_of::<Message>() + texts.iter().map(|text| text.len()).sum::<usize>();
        texts.iter().for_each(|text| batch.texts.extend_from_slice(text));
        batch.messages.push(Message::Ask { ticket, namespace, operation, lengths });
        true
    }

    /// Sends an answer back.
    pub(crate) fn answer(&mut self, to: usize, ticket: Ticket, reply: &Reply<'_>) {
        let Some(batch) = self.batch(to) else { return };
        let owner = reply.holder.map_or(&[][..], |holder| holder.owner);
        batch.texts.extend_from_slice(owner);
        batch.texts.extend_from_slice(reply.list);
        let list = reply.list.len() as u32;
        let holder = reply.holder.map(|holder| (holder.mode, holder.fence, holder.ttl_ms));
        let (verdict, waiters, length) = (reply.verdict, reply.waiters, owner.len() as u16);
        batch.messages.push(Message::Answer { ticket, verdict, holder, waiters, length, list });
    }

    /// Sends a transaction on, and whose share it counts to; `false`: too much waits for that core.
    pub(crate) fn ask_transaction(
        &mut self,
        to: usize,
        ticket: Ticket,
        who: &str,
        message: &[u8],
    ) -> bool {
        let waits = |batch: &Batch| batch.transaction_bytes + who.len() + message.len();
        if self.batches.get(to).is_none_or(|batch| waits(batch) > WAITING_BYTES_MAX) {
            return false;
        }
        let Some(batch) = self.batch(to) else { return false };
        batch.transaction_bytes += size_of::<Message>() + who.len() + message.len();
        batch.texts.extend_from_slice(who.as_bytes());
        batch.texts.extend_from_slice(message);
        batch.messages.push(Message::Transaction(ticket, who.len() as u32, message.len() as u32));
        true
    }

    /// Sends the answer to a transaction back.
    pub(crate) fn answer_with(&mut self, to: usize, ticket: Ticket, head: Head, body: &[u8]) {
        let Some(batch) = self.batch(to) else { return };
        batch.texts.extend_from_slice(body);
        batch.messages.push(Message::Told(ticket, head, body.len() as u32));
    }

    /// Asks for the longest queues; `false`: too much waits for that core.
    pub(crate) fn ask_longest(
        &mut self,
        to: usize,
        ticket: Ticket,
        namespace: Namespace,
        most: u32,
    ) -> bool {
        let full = |batch: &Batch| batch.messages.len() * size_of::<Message>() > WAITING_BYTES_MAX;
        if self.batches.get(to).is_none_or(full) {
            return false;
        }
        let Some(batch) = self.batch(to) else { return false };
        batch.messages.push(Message::Longest { ticket, namespace, most });
        true
    }

    /// Takes a request back; its answer may be on the way. `is_awaited`: it is answered once in any
    /// case.
    pub(crate) fn cancel(&mut self, to: usize, ticket: Ticket, is_awaited: bool) {
        if let Some(batch) = self.batch(to) {
            batch.messages.push(Message::Cancel(ticket, is_awaited));
        }
    }

    /// Sends what the turn produced. What a full mailbox does not take waits for the next turn.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.send();
        }
    }

    fn send(&mut self) {
        let Self { mailboxes, batches, waiting } = self;
        waiting.retain(|to| {
            let mail = CoreMail::FromCore(Box::new(std::mem::take(&mut batches[*to])));
            match mailboxes[*to](mail) {
                Err(CoreMail::FromCore(batch)) => {
                    batches[*to] = *batch;
                    true
                }
                _ => false,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn request(name: &[u8]) -> Request<'_> {
        let operation = Operation::Look;
        Request {
            ticket: Ticket(7),
            namespace: Namespace::Memory,
            operation,
            name,
            role: b"r",
            owner: b"",
        }
    }

    fn lanes(room: usize) -> (Lanes, Arc<Mutex<Vec<CoreMail>>>) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let inside = Arc::clone(&taken);
        let mailbox: Mailbox = Box::new(move |mail| {
            let mut inside = inside.lock().expect("lock");
            if inside.len() >= room {
                return Err(mail);
            }
            inside.push(mail);
            Ok(())
        });
        (Lanes::new(vec![mailbox]), taken)
    }

    #[test]
    fn a_turn_is_one_mail_and_its_texts_are_whose_they_were() {
        let (mut lanes, taken) = lanes(1);
        lanes.ask(0, &request(b"first"));
        let holder = Held { owner: b"somebody", mode: Mode::Exclusive, fence: 5, ttl_ms: 6 };
        let reply =
            Reply { holder: Some(holder), waiters: 2, list: b"list", ..Verdict::Granted.into() };
        lanes.answer(0, Ticket(9), &reply);
        lanes.ask(0, &request(b"second"));
        lanes.flush();
        let mail = taken.lock().expect("lock").pop();
        let Some(CoreMail::FromCore(batch)) = mail else { panic!("one mail") };
        let said: Vec<String> = batch.iter().map(|said| format!("{said:?}")).collect();
        let expected = [
            Said::Ask(request(b"first")),
            Said::Answer(Ticket(9), reply),
            Said::Ask(request(b"second")),
        ];
        assert_eq!(said, expected.map(|said| format!("{said:?}")));
    }

    #[test]
    fn a_core_that_takes_no_mail_gets_no_more_requests_but_all_words() {
        let (mut lanes, taken) = lanes(0);
        let name = vec![b'n'; 1000];
        while lanes.ask(0, &request(&name)) {
            lanes.flush();
        }
        assert!(lanes.batches[0].texts.len() <= WAITING_BYTES_MAX);
        lanes.tell(0, Word::End);
        lanes.flush();
        assert!(taken.lock().expect("lock").is_empty());
        assert!(matches!(lanes.batches[0].iter().last(), Some(Said::Word(Word::End))));
    }
}
