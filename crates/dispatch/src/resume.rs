//! An answer that breaks off goes on with its rest from another backend, where that is certain to be the rest of it.
//!
//! Certain is what has the same strong entity tag and the same length (RFC 9110, section 8.8.1). The rest is asked for by `Range` and `If-Range`, and what
//! comes has to say that it is these bytes of that whole. Its head is for us alone: the client has had one. Never is anything put behind a part of an
//! answer that does not follow it; whose rest cannot be had is cut off, as it would be without all this.
//!
//! That leaves out answers in chunks and those that end with the connection, of which nobody knows what is left; those with a weak tag or none; several
//! ranges in one answer; and whatever is no GET.

use shunt_handover::limits::{ETAG_BYTES_MAX, HEAD_BYTES_MAX};
use shunt_handover::message::Framing;
use shunt_reactor::Io;
use shunt_wire::http1::{ContentRange, Framing as BodyFraming, HeadLimits, HeadReader, ResponseHead};
use tracing::debug;

use crate::state::{Answer, Dispatcher, Exchange};
use crate::{answer, failing, limits, reply};

/// What an agent passes on.
const ANSWER_HEAD: HeadLimits = HeadLimits { head_bytes: HEAD_BYTES_MAX, line_bytes: HEAD_BYTES_MAX, fields: 256 };

/// Fields of a request that ask for another part than the rest, or for none.
const LEFT_OUT: [&[u8]; 6] =
    [b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"];

/// The rest of an answer, as far as another backend can be asked for it.
#[derive(Debug)]
pub(crate) struct Rest {
    etag: Vec<u8>,
    /// What the client has not got: the first and the last byte, of so many.
    range: ContentRange,
    /// Bytes of the head in front of it, which are sent with it where the connection is handed over.
    head_bytes: u64,
    /// It was asked for, and its head has not come.
    is_awaited: bool,
    tries: u8,
}

impl Rest {
    /// All of an answer, none of which has been sent.
    pub(crate) fn of(exchange: &Exchange, head: &[u8], framing: Framing) -> Option<Box<Rest>> {
        let Framing::Length(length) = framing else { return None };
        let may_be = exchange.is_read && !exchange.to_head && exchange.body.is_none();
        if !may_be || length < limits::RESUMED_BYTES_MIN {
            return None;
        }
        let mut reader = HeadReader::new(ANSWER_HEAD);
        let response = ResponseHead::read(reader.read(head).ok()??, false).ok()?;
        let range = match response.status {
            200 => ContentRange { first: 0, last: length - 1, total: length },
            206 => response.content_range().filter(|range| range.last - range.first + 1 == length)?,
            _ => return None,
        };
        let etag = response.strong_etag().filter(|etag| etag.len() <= ETAG_BYTES_MAX)?.to_vec();
        Some(Box::new(Rest { etag, range, head_bytes: head.len() as u64, is_awaited: false, tries: 0 }))
    }

    /// True from the request for it until its head has come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Bytes that the client has not got.
    fn left(&self) -> u64 {
        (self.range.last + 1).saturating_sub(self.range.first)
    }

    /// The request for it, made of the one for the whole.
    pub(crate) fn request(&self, whole: &[u8]) -> Vec<u8> {
        let fields = whole.strip_suffix(b"\r\n").unwrap_or(whole);
        let mut request = Vec::with_capacity(whole.len() + self.etag.len() + 80);
        for line in fields.split_inclusive(|byte| *byte == b'\n') {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if !LEFT_OUT.iter().any(|left_out| name.eq_ignore_ascii_case(left_out)) {
                request.extend_from_slice(line);
            }
        }
        let ContentRange { first, last, .. } = self.range;
        request.extend_from_slice(format!("Range: bytes={first}-{last}\r\nIf-Range: ").as_bytes());
        request.extend_from_slice(&self.etag);
        request.extend_from_slice(b"\r\n\r\n");
        request
    }

    /// True of the head of an answer that is this rest and nothing else.
    fn is_in(&self, head: &[u8]) -> bool {
        let mut reader = HeadReader::new(ANSWER_HEAD);
        let Ok(Some(head)) = reader.read(head) else { return false };
        ResponseHead::read(head, false).is_ok_and(|response| {
            response.status == 206
                && response.content_range() == Some(self.range)
                && response.strong_etag() == Some(&*self.etag)
                && response.framing == BodyFraming::Length(self.left())
        })
    }
}

/// What an agent says of an answer that is to be a rest.
pub(crate) enum Offered {
    /// It is not, or was not asked for as one.
    NoRest,
    /// It is, with so many bytes in front that the client is not to have.
    Rest(u64),
    /// It should be, and is not, and has been dealt with; or there is none to be offered.
    Wrong,
}

/// An agent offers an answer: looks whether it is the rest that it was asked for, or one of which there may be a rest.
pub(crate) fn offered(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    client: usize,
    head: &[u8],
    framing: Framing,
) -> Offered {
    let Some(exchange) = dispatcher.clients.get_mut(client).and_then(|state| state.exchange.as_mut()) else {
        return Offered::Wrong;
    };
    let has_begun = exchange.answer.is_some();
    match &mut exchange.rest {
        Some(rest) if rest.is_awaited && !rest.is_in(head) => {
            refused(dispatcher, io, client);
            Offered::Wrong
        }
        Some(rest) if rest.is_awaited => {
            rest.head_bytes = head.len() as u64;
            Offered::Rest(rest.head_bytes)
        }
        // An answer of which some has been relayed is none to be offered.
        _ if has_begun => Offered::Wrong,
        _ => {
            exchange.rest = Rest::of(exchange, head, framing);
            Offered::NoRest
        }
    }
}

/// The head of an answer that is to be a rest: it ends here.
pub(crate) fn head(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, head: &[u8]) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    let Some(rest) = state.exchange.as_mut().and_then(|exchange| exchange.rest.as_mut()) else { return };
    match answer::status_of(head) {
        Some(100..=199) => state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns,
        _ if rest.is_in(head) => {
            rest.is_awaited = false;
            (state.writes, state.stalled_since_ns) = (io.writes_of(state.conn), io.now_ns());
        }
        _ => refused(dispatcher, io, client),
    }
}

/// What came is not the rest: it is of another version, or the server has no parts of it.
fn refused(dispatcher: &mut Dispatcher, io: &mut Io, client: usize) {
    if let Some(exchange) = failing::give_up(dispatcher, io, client) {
        go_on(dispatcher, io, client, exchange, "a backend has not the same");
    }
}

/// A client's connection is back with a part of its answer, of which this is how many bytes, those of the head among them.
pub(crate) fn came_back(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, answer_sent: u64) {
    let Some(mut exchange) = dispatcher.take_exchange(client) else { return reply::cut(dispatcher, io, client) };
    // An agent puts in a head as a whole.
    let body = exchange.rest.as_ref().and_then(|rest| answer_sent.checked_sub(rest.head_bytes));
    match (&mut exchange.rest, body) {
        (Some(rest), Some(body)) if body <= rest.left() => {
            rest.range.first += body;
            exchange.answer = Some(Answer { left: Some(rest.left()), uncredited: 0, goes_on: true });
            go_on(dispatcher, io, client, exchange, "the server has broken off its answer");
        }
        _ => reply::cut(dispatcher, io, client),
    }
}

/// An answer has broken off here; whoever sent it knows no more of it. Its rest is asked for, or its client cut off.
pub(crate) fn go_on(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, mut exchange: Exchange, reason: &str) {
    let left = exchange.answer.as_ref().and_then(|answer| answer.left);
    let (Some(rest), Some(left)) = (&mut exchange.rest, left) else {
        debug!(reason, "a client is cut off within an answer");
        return reply::cut(dispatcher, io, client);
    };
    rest.range.first = rest.range.last + 1 - left;
    rest.is_awaited = true;
    rest.tries += 1;
    if left == 0 {
        // It broke off behind its last byte.
        return answer::whole(dispatcher, io, client, &exchange);
    }
    let may_be = rest.tries <= limits::RESUMES_MAX;
    let Some(backend) = failing::choose(dispatcher, true, Some(exchange.backend)).ok().filter(|_| may_be) else {
        debug!(reason, "a client is cut off within an answer: no other backend can be asked for the rest");
        return reply::cut(dispatcher, io, client);
    };
    debug!(reason, left, "the rest of an answer is asked of another backend");
    dispatcher.metrics.resumed.add(1);
    if let Some(answer) = &mut exchange.answer {
        answer.uncredited = 0;
    }
    exchange.ticket = dispatcher.ticket();
    failing::send(dispatcher, io, client, exchange, backend);
}
