//! Requests of this core's clients for locks and transactions that have no answer yet.
//!
//! Each client has a list of its own, so that the end of a client costs no more than its requests.

pub(crate) mod cancel;
pub(crate) mod clients;
pub(crate) mod answer_form;
pub(crate) mod retry;

use std::collections::HashMap;
use std::sync::Arc;

use shunt_language::lock_tables::Table;
use shunt_locks::{Handle, Namespace, Ticket};
use slab::Slab;

use crate::fleet::forwarding::{Login, Via};
use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::ids::ClientRef;
use crate::locks::request::Operation;
use crate::query_end::Served;

/// Index that stands for no request.
pub(crate) const NONE: u32 = u32::MAX;

/// Place where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// On this core, under this handle if it waits.
    Here(Option<Handle>),
    /// On another core.
    Core(usize),
    /// At another proxy.
    Elsewhere(Via),
}

/// The parts of a request that are needed to send it again, besides name and owner.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    pub(crate) asker: Asker,
    pub(crate) table: Table,
    pub(crate) namespace: Namespace,
    pub(crate) operation: Operation,
}

/// Sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// Role of the client; empty without logins.
    pub(crate) role: Arc<str>,
    pub(crate) login: Login,
    /// True if another proxy has forwarded the request.
    pub(crate) was_forwarded: bool,
}

/// A request without an answer.
pub(crate) struct Pending {
    pub(crate) client: ClientRef,
    /// The client's stream id.
    pub(crate) stream: i16,
    pub(crate) received_ns: u64,
    /// Form of the answer.
    pub(crate) form: AnswerForm,
    pub(crate) at: At,
    /// The request as it is sent again if the lock's owner has just changed, unless another proxy
    /// forwarded it.
    pub(crate) again: Option<Again>,
    /// Facts for the digest of the request; `None`: it is not counted here.
    pub(crate) served: Option<Served>,
    /// True if the proxy that forwarded the request may withdraw it by its stream id.
    is_by_stream: bool,
    generation: u32,
    /// The client's requests before and after this one.
    before: u32,
    after: u32,
}

impl Pending {
    /// True if it gives back a lock that a client which has left was granted.
    pub(crate) fn gives_back(&self) -> bool {
        self.again.as_ref().is_some_and(|it| matches!(it.operation, Operation::GiveBack { .. }))
    }
}

/// A client's request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) stream: i16,
    /// False for a look at locks.
    pub(crate) may_have_changed: bool,
}

/// Most buffers that are kept for later requests.
const SPARE_MAX: usize = 1_024;

/// The owner of all requests of a core's clients.
pub(crate) struct Requests {
    pending: Slab<Pending>,
    generation: u32,
    /// The request that is being read, until the first that is noted for it.
    pub(crate) current: Option<Served>,
    /// Buffers of answered requests.
    spare: Vec<Vec<u8>>,
    /// Role of clients without logins.
    no_role: Arc<str>,
    /// Forwarded requests that wait, so that one that is withdrawn is found among thousands.
    by_stream: HashMap<(ClientRef, i16), Ticket>,
}

/// Bits of a ticket: the core, a counter that tells requests in one place apart, and the place.
/// Another proxy may answer a request seconds after it was cancelled, and no other request may have
/// its ticket by then. At a million requests a second, the counter begins anew after a quarter of
/// an hour.
const PLACE_BITS: u32 = 26;
const GENERATION_BITS: u32 = 30;

impl Default for Requests {
    fn default() -> Self {
        Self {
            pending: Slab::new(),
            generation: 0,
            current: None,
            spare: Vec::new(),
            no_role: Arc::from(""),
            by_stream: HashMap::new(),
        }
    }
}

impl Requests {
    /// Role of clients without logins.
    pub(crate) fn no_role(&self) -> Arc<str> {
        Arc::clone(&self.no_role)
    }

    /// Returns an empty buffer.
    pub(crate) fn spare_texts(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a buffer for another request.
    pub(crate) fn keep_texts(&mut self, mut texts: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && texts.capacity() > 0 {
            texts.clear();
            self.spare.push(texts);
        }
    }

    /// Number of requests.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Adds a request. `first` is the index of the client's first request, and becomes that of this
    /// one.
    pub(crate) fn add(
        &mut self,
        core: usize,
        first: &mut u32,
        (client, stream, received_ns): (ClientRef, i16, u64),
        form: AnswerForm,
    ) -> Ticket {
        self.generation = self.generation.wrapping_add(1) & ((1 << GENERATION_BITS) - 1);
        let generation = self.generation;
        let after = *first;
        let at = At::Here(None);
        let (again, served, is_by_stream, before) = (None, None, false, NONE);
        let pending = Pending {
            client,
            stream,
            received_ns,
            form,
            at,
            again,
            served,
            is_by_stream,
            generation,
            before,
            after,
        };
        let place = self.pending.insert(pending) as u32;
        if let Some(next) = self.pending.get_mut(after as usize) {
            next.before = place;
        }
        *first = place;
        ticket(core, generation, place)
    }

    /// Lets the client that sent a request find it by its stream id.
    pub(crate) fn may_be_withdrawn(&mut self, ticket: Ticket) {
        let Some(pending) = self.get_mut(ticket) else { return };
        pending.is_by_stream = true;
        let key = (pending.client, pending.stream);
        self.by_stream.insert(key, ticket);
    }

    /// The request of a client under this stream id, if it may be withdrawn.
    pub(crate) fn by_stream(&self, client: ClientRef, stream: i16) -> Option<Ticket> {
        self.by_stream.get(&(client, stream)).copied()
    }

    fn forget_stream(&mut self, ticket: Ticket, pending: &Pending) {
        let key = (pending.client, pending.stream);
        // If a client uses a stream id twice at a time, only its last request is found.
        if pending.is_by_stream && self.by_stream.get(&key) == Some(&ticket) {
            self.by_stream.remove(&key);
        }
    }

    /// The request of a ticket, unless it was answered or cancelled.
    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Pending> {
        let (generation, place) = parts(ticket);
        self.pending.get_mut(place as usize).filter(|pending| pending.generation == generation)
    }

    /// Removes a request to answer it. If it was its client's first, the second value is the index
    /// of the new first one.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<(Pending, Option<u32>)> {
        self.get_mut(ticket)?;
        let pending = self.pending.try_remove(parts(ticket).1 as usize)?;
        if let Some(next) = self.pending.get_mut(pending.after as usize) {
            next.before = pending.before;
        }
        let first = match self.pending.get_mut(pending.before as usize) {
            Some(before) => {
                before.after = pending.after;
                None
            }
            None => Some(pending.after),
        };
        self.forget_stream(ticket, &pending);
        Some((pending, first))
    }

    /// The requests of a client, from its first one on.
    pub(crate) fn unanswered(&self, first: u32) -> impl Iterator<Item = Unanswered> {
        let get = |place: u32| self.pending.get(place as usize);
        let pending = std::iter::successors(get(first), move |pending| get(pending.after));
        pending.map(|pending| Unanswered {
            stream: pending.stream,
            may_have_changed: !matches!(pending.form.kind, AnswerKind::Selected { .. }),
        })
    }

    /// Detaches the first request of a client that has left, and returns its ticket and the index
    /// of the client's next request.
    pub(crate) fn detach_first(&mut self, core: usize, first: u32) -> Option<(Ticket, u32)> {
        let pending = self.pending.get_mut(first as usize)?;
        let (ticket, client) = (ticket(core, pending.generation, first), pending.client);
        let key = (client, pending.stream);
        if std::mem::take(&mut pending.is_by_stream) && self.by_stream.get(&key) == Some(&ticket) {
            self.by_stream.remove(&key);
        }
        (pending.client, pending.before) = (ClientRef::PROXY, NONE);
        Some((ticket, std::mem::replace(&mut pending.after, NONE)))
    }
}

fn ticket(core: usize, generation: u32, place: u32) -> Ticket {
    Ticket(
        (core as u64) << (PLACE_BITS + GENERATION_BITS)
            | u64::from(generation) << PLACE_BITS
            | u64::from(place),
    )
}

fn parts(ticket: Ticket) -> (u32, u32) {
    (
        (ticket.0 >> PLACE_BITS) as u32 & ((1 << GENERATION_BITS) - 1),
        ticket.0 as u32 & ((1 << PLACE_BITS) - 1),
    )
}

/// The core of the client that sent a request.
pub(crate) fn core_of(ticket: Ticket) -> usize {
    (ticket.0 >> (PLACE_BITS + GENERATION_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(requests: &mut Requests, first: &mut u32, stream: i16) -> Ticket {
        requests.add(3, first, (ClientRef { slot: 0, id: 1 }, stream, 0), AnswerForm::default())
    }

    #[test]
    fn an_answer_to_what_was_taken_back_is_nobodys() {
        let (mut requests, mut first) = (Requests::default(), NONE);
        let before = add(&mut requests, &mut first, 1);
        assert_eq!(core_of(before), 3);
        requests.detach_first(3, first);
        requests.take(before);
        first = NONE;
        let now = add(&mut requests, &mut first, 2);
        assert!(requests.take(before).is_none());
        assert_eq!(
            requests.take(now).map(|(pending, first)| (pending.stream, first)),
            Some((2, Some(NONE)))
        );
    }

    #[test]
    fn a_late_answer_is_nobodys_after_millions_of_other_requests() {
        let (mut requests, mut first) = (Requests::default(), NONE);
        let late = add(&mut requests, &mut first, 1);
        requests.take(late);
        for _ in 0..3_000_000 {
            first = NONE;
            let other = add(&mut requests, &mut first, 2);
            assert_ne!(other, late);
            requests.take(other);
        }
    }

    #[test]
    fn a_stream_id_finds_the_clients_own_request_until_it_is_answered() {
        let (mut requests, mut first) = (Requests::default(), NONE);
        let client = ClientRef { slot: 0, id: 1 };
        let one = add(&mut requests, &mut first, 5);
        assert_eq!(requests.by_stream(client, 5), None, "it is not to be withdrawn");
        requests.may_be_withdrawn(one);
        assert_eq!(requests.by_stream(client, 5), Some(one));
        for other in [ClientRef { slot: 0, id: 2 }, ClientRef { slot: 1, id: 1 }] {
            assert_eq!(requests.by_stream(other, 5), None, "it is another client's");
        }
        let again = add(&mut requests, &mut first, 5);
        requests.may_be_withdrawn(again);
        requests.take(one);
        assert_eq!(requests.by_stream(client, 5), Some(again));
        requests.detach_first(3, parts(again).1);
        assert!(requests.by_stream(client, 5).is_none() && requests.by_stream.is_empty());
    }

    #[test]
    fn a_clients_list_has_what_is_not_answered_whatever_the_order() {
        let (mut requests, mut first) = (Requests::default(), NONE);
        let tickets: Vec<Ticket> =
            (0..4).map(|stream| add(&mut requests, &mut first, stream)).collect();
        let streams = |requests: &Requests, first| {
            requests.unanswered(first).map(|one| one.stream).collect::<Vec<_>>()
        };
        assert_eq!(streams(&requests, first), [3, 2, 1, 0]);
        for answered in [1, 3] {
            let (_, changed) = requests.take(tickets[answered]).expect("it waits");
            first = changed.unwrap_or(first);
        }
        assert_eq!(streams(&requests, first), [2, 0]);
        let mut left = Vec::new();
        while let Some((ticket, next)) = requests.detach_first(3, first) {
            left.extend(requests.take(ticket).map(|(pending, _)| pending.stream));
            first = next;
        }
        assert_eq!((left, requests.len()), (vec![2, 0], 0));
    }
}
