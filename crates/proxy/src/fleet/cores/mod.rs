//! Messages between the cores of a process: requests for locks that another core keeps, their
//! answers, and messages of the fleet.
//!
//! All messages of a turn for one core travel as one mail at the end of the turn, so that no
//! request takes a lock. Mail from one core to another arrives in order. A core that does not take
//! its mail gets no more requests once [`WAITING_BYTES_MAX`] bytes wait for it; messages of the
//! fleet and answers are few, or bounded by requests, and are never dropped.

pub(crate) mod receive;

use std::sync::Arc;

use shunt_locks::{Mode, Namespace, Ticket};

use crate::control::post::Mailbox;
use crate::control::state::CoreMail;
use crate::fleet::forwarding::Owners;
use crate::fleet::roster::Fleet;

use crate::fleet::notices::notice::Notice;
use crate::locks::reply::{Held, Reply, Verdict};
use crate::locks::request::{KeeperRequest, Operation};
use shunt_transactions::request::Head;

/// Most bytes of requests that wait for a core.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One message; its texts lie in the batch, one after the other.
#[derive(Clone, Copy, Debug)]
enum Message {
    Notice(Notice),
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
    /// The flag: an answer follows in any case.
    Cancel(Ticket, bool),
    /// A transaction, with the byte lengths of its account (the share it counts to) and its body.
    Transaction(Ticket, u32, u32),
    /// The answer to a transaction: opcode, flags and the byte length of the body.
    TransactionAnswer(Ticket, Head, u32),
    Longest {
        ticket: Ticket,
        namespace: Namespace,
        most: u32,
    },
}

/// The messages from one core to another at the end of a turn.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    messages: Vec<Message>,
    texts: Vec<u8>,
    /// Bytes of the requests in the batch.
    asked_bytes: usize,
    /// Bytes of the transactions in the batch, which leave requests for locks their room.
    transaction_bytes: usize,
    /// The live members, if they changed.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// The owners of other proxies' shards, if they changed.
    pub(crate) owners: Option<Arc<Owners>>,
}

/// A message as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CoreMessage<'a> {
    Notice(Notice),
    Ask(KeeperRequest<'a>),
    Answer(Ticket, Reply<'a>),
    /// The flag: an answer follows in any case.
    Cancel(Ticket, bool),
    /// A transaction, with the account that it counts to.
    Transaction(Ticket, &'a [u8], &'a [u8]),
    /// The answer to a transaction.
    TransactionAnswer(Ticket, Head, &'a [u8]),
    /// A request for the locks with the longest queues, up to this many.
    Longest(Ticket, Namespace, u32),
}

impl Batch {
    /// Iterates over the messages, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CoreMessage<'_>> {
        let mut rest = &self.texts[..];
        let mut text = move |length: usize| {
            let (text, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            text
        };
        self.messages.iter().map(move |message| match *message {
            Message::Notice(notice) => CoreMessage::Notice(notice),
            Message::Ask { ticket, namespace, operation, lengths } => {
                let [name, role, owner] = lengths.map(|length| text(usize::from(length)));
                CoreMessage::Ask(KeeperRequest { ticket, namespace, operation, name, role, owner })
            }
            Message::Answer { ticket, verdict, holder, waiters, length, list } => {
                let (owner, list) = (text(usize::from(length)), text(list as usize));
                let holder =
                    holder.map(|(mode, fence, ttl_ms)| Held { owner, mode, fence, ttl_ms });
                CoreMessage::Answer(ticket, Reply { verdict, holder, waiters, list })
            }
            Message::Cancel(ticket, is_awaited) => CoreMessage::Cancel(ticket, is_awaited),
            Message::Transaction(ticket, who, length) => {
                let who = text(who as usize);
                CoreMessage::Transaction(ticket, who, text(length as usize))
            }
            Message::TransactionAnswer(ticket, head, length) => {
                CoreMessage::TransactionAnswer(ticket, head, text(length as usize))
            }
            Message::Longest { ticket, namespace, most } => {
                CoreMessage::Longest(ticket, namespace, most)
            }
        })
    }
}

/// The mailboxes of the other cores.
#[derive(Default)]
pub(crate) struct Lanes {
    mailboxes: Vec<Mailbox>,
    batches: Vec<Batch>,
    /// Cores for which messages wait.
    waiting: Vec<usize>,
}

impl Lanes {
    /// Makes the channels to these mailboxes, in the order of the cores.
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

    /// Sends the live members to a core.
    pub(crate) fn show(&mut self, to: usize, fleet: &Arc<Fleet>) {
        if let Some(batch) = self.batch(to) {
            batch.fleet = Some(Arc::clone(fleet));
        }
    }

    /// Sends the owners of other proxies' shards to a core.
    pub(crate) fn show_owners(&mut self, to: usize, owners: &Arc<Owners>) {
        if let Some(batch) = self.batch(to) {
            batch.owners = Some(Arc::clone(owners));
        }
    }

    /// Sends a message of the fleet to a core.
    pub(crate) fn tell(&mut self, to: usize, notice: Notice) {
        if let Some(batch) = self.batch(to) {
            batch.messages.push(Message::Notice(notice));
        }
    }

    /// Bytes that wait for a core, without the fixed parts of messages.
    pub(crate) fn waiting_bytes(&self, to: usize) -> usize {
        self.batches.get(to).map_or(0, |batch| batch.texts.len())
    }

    /// Sends a request to another core. Returns false if too many bytes wait for that core.
    pub(crate) fn ask(&mut self, to: usize, request: &KeeperRequest<'_>) -> bool {
        // Answers to other requests do not count, because a list is long.
        if self.batches.get(to).is_none_or(|batch| batch.asked_bytes > WAITING_BYTES_MAX) {
            return false;
        }
        let texts = [request.name, request.role, request.owner];
        let Some(batch) = self.batch(to) else { return false };
        let KeeperRequest { ticket, namespace, operation, .. } = *request;
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

    /// Sends a transaction with the account that it counts against. Returns false if too many bytes
    /// wait for that core.
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
        batch.messages.push(Message::TransactionAnswer(ticket, head, body.len() as u32));
    }

    /// Asks a core for its longest queues. Returns false if too many bytes wait for that core.
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

    /// Cancels a request, whose answer may already be on its way. `is_awaited`: an answer follows
    /// in any case.
    pub(crate) fn cancel(&mut self, to: usize, ticket: Ticket, is_awaited: bool) {
        if let Some(batch) = self.batch(to) {
            batch.messages.push(Message::Cancel(ticket, is_awaited));
        }
    }

    /// Sends the messages of the turn. Messages that a full mailbox refuses wait for the next turn.
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

    fn request(name: &[u8]) -> KeeperRequest<'_> {
        let operation = Operation::Look;
        KeeperRequest {
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
            CoreMessage::Ask(request(b"first")),
            CoreMessage::Answer(Ticket(9), reply),
            CoreMessage::Ask(request(b"second")),
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
        lanes.tell(0, Notice::End);
        lanes.flush();
        assert!(taken.lock().expect("lock").is_empty());
        assert!(matches!(lanes.batches[0].iter().last(), Some(CoreMessage::Notice(Notice::End))));
    }
}
