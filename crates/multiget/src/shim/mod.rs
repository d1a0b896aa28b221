//! The server's side: a datagram becomes a query to the server beside it, and the values become
//! replies of a size that passes the network.
//!
//! The shim forgets a request once it is answered; a repeated request gets the values of that time.
//! `admission.rs` limits sources, rates and sizes of answers. A request for several servers needs a
//! coordinating shim (`coordinator.rs`).

mod admission;
mod coordinator;

use std::net::SocketAddr;

use shunt_wire::netmc::{
    DATAGRAM_BYTES_MAX, HEADER_BYTES, Item, Malformed, Op, ReplyWriter, Request, Status, item_bytes,
};

pub use admission::{Admission, Prefix, PrefixError};
pub use coordinator::{Coordinator, CoordinatorOptions};

use crate::client::Values;
use crate::limits;
use crate::place;

/// Options of a shim.
#[derive(Clone, Debug)]
pub struct ShimOptions {
    /// Sources that get whole answers.
    pub allow: Vec<Prefix>,
    /// Requests per second from each of these.
    pub rate: u32,
    /// Requests per second from all others together; 0 gives them no answers.
    pub others_rate: u32,
}

/// Reason why a datagram is dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rejected {
    /// Not a valid request.
    Malformed(Malformed),
    /// No switch has split it, and this shim does not coordinate.
    NotSplit,
    /// By this shim's list, one of its keys has another server than it names, or it is for another
    /// server than the one beside this shim.
    Elsewhere,
    /// The source is not allowed, and others get no answers.
    Source,
    /// The source exceeds its rate, or all unlisted sources together do.
    Rate,
}

/// An admitted request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Address to answer.
    pub from: SocketAddr,
    /// [`Op::MultiGet`], or [`Op::Get`] if a server's error differs from a missing value.
    pub op: Op,
    id: u32,
    oid: u8,
    startidx: u8,
    /// The request is for several servers.
    is_whole: bool,
    /// Digest of the list of servers by which it is answered; 0 for one server.
    list: u32,
    bytes: Vec<u8>,
    /// End of each key in `bytes`.
    ends: Vec<u16>,
    /// Limit on the bytes of all answers.
    bytes_max: usize,
}

/// The server's answer for a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found<'v> {
    /// The value.
    Value(&'v [u8]),
    /// No value.
    Nothing,
    /// An error.
    Error,
}

/// Admission and parsing of requests.
#[derive(Debug)]
pub struct Shim {
    admission: Admission,
    /// Number of servers if it coordinates, otherwise 0.
    servers: usize,
    /// Number of its own server.
    own: usize,
    /// Digest of the list of servers.
    list: u32,
}

impl Shim {
    /// Creates a shim that has seen no source.
    pub fn new(options: &ShimOptions) -> Self {
        Self { admission: Admission::new(options), servers: 0, own: 0, list: 0 }
    }

    /// Creates a shim that coordinates the servers of these shims, and is number `own` of them.
    pub fn coordinating(options: &ShimOptions, shims: &[SocketAddr], own: usize) -> Self {
        Self { servers: shims.len(), own, list: place::list_digest(shims), ..Self::new(options) }
    }

    /// Parses and admits a datagram.
    ///
    /// # Errors
    /// The reason for dropping it. The source is not told: with a forged source, the answer would
    /// be an unwanted datagram to another host.
    pub fn datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        data: &[u8],
    ) -> Result<Asked, Rejected> {
        let mut asked = self.read(from, data)?;
        if !self.admission.admit(now_ns, from.ip())? {
            if asked.is_whole {
                // An unlisted source may cause one datagram, not one to each server.
                return Err(Rejected::Source);
            }
            asked.bytes_max = limits::AMPLIFICATION_MAX * data.len();
        }
        Ok(asked)
    }

    /// Parses a datagram that this shim has sent itself.
    ///
    /// # Errors
    /// The datagram is not valid.
    pub(crate) fn own(&self, own: SocketAddr, data: &[u8]) -> Result<Asked, Rejected> {
        self.read(own, data)
    }

    fn read(&self, from: SocketAddr, data: &[u8]) -> Result<Asked, Rejected> {
        let request = Request::parse(data).map_err(Rejected::Malformed)?;
        let is_whole = !request.is_for_one_server();
        if is_whole && self.servers == 0 {
            return Err(Rejected::NotSplit);
        }
        let keys = request.own_keys().map_err(Rejected::Malformed)?;
        let is_placed = |(key, server)| place::server(key, self.servers) == usize::from(server);
        if is_whole && !keys.clone().zip(request.own_servers()).all(is_placed) {
            return Err(Rejected::Elsewhere);
        }
        // The sender has the servers in another order: if this server lacks the key, that says
        // nothing about the intended one.
        if !is_whole && self.servers > 0 && usize::from(request.server()) != self.own {
            return Err(Rejected::Elsewhere);
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(usize::from(request.numkey)));
        for key in keys {
            bytes.extend_from_slice(key);
            ends.push(bytes.len() as u16);
        }
        let Request { op, id, oid, startidx, .. } = request;
        let list = if is_whole { self.list } else { 0 };
        Ok(Asked {
            from,
            op,
            id,
            oid,
            startidx,
            is_whole,
            list,
            bytes,
            ends,
            bytes_max: usize::MAX,
        })
    }
}

impl Asked {
    /// True if it is for several servers, and so for a [`Coordinator`].
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Number of keys.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|index| {
            let start = if index == 0 { 0 } else { usize::from(self.ends[index - 1]) };
            &self.bytes[start..usize::from(self.ends[index])]
        })
    }

    /// Calls `each` with every reply, from values that a coordinator has gathered.
    pub(crate) fn answer_gathered(
        &self,
        values: &Values,
        buffer: &mut Vec<u8>,
        each: impl FnMut(&[u8]),
    ) {
        let found = values.iter().zip(values.known()).map(|(value, is_known)| match value {
            Some(value) => Found::Value(value),
            None if is_known => Found::Nothing,
            None => Found::Error,
        });
        self.answer(found, buffer, each);
    }

    /// Starts the reply whose first item is the key at `index`.
    fn begin_reply<'b>(&self, buffer: &'b mut Vec<u8>, index: usize) -> ReplyWriter<'b> {
        ReplyWriter::begin(buffer, self.op, self.id, self.oid, self.startidx + index as u8)
            .with_list_digest(self.list)
    }

    /// Calls `each` with every reply. Keys without an entry in `found` are marked for TCP.
    pub fn answer<'v>(
        &self,
        mut found: impl Iterator<Item = Found<'v>>,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) {
        let least: usize = self
            .keys()
            .map(|key| item_bytes(&Item { status: Status::Miss, key, value: &[] }))
            .sum();
        let mut room = self.bytes_max.saturating_sub(HEADER_BYTES + least);
        buffer.clear();
        let mut writer = self.begin_reply(buffer, 0);
        for (index, key) in self.keys().enumerate() {
            let mut item = Item { status: Status::AskOverTcp, key, value: &[] };
            match found.next() {
                Some(Found::Value(value)) => (item.status, item.value) = (Status::Hit, value),
                Some(Found::Nothing) => item.status = Status::Miss,
                Some(Found::Error) | None => {}
            }
            // Each value might start a datagram of its own.
            let costs = item.value.len() + HEADER_BYTES;
            if HEADER_BYTES + item_bytes(&item) > DATAGRAM_BYTES_MAX
                || (item.status == Status::Hit && costs > room)
            {
                (item.status, item.value) = (Status::TooBig, &[]);
            } else if item.status == Status::Hit {
                room -= costs;
            }
            if writer.bytes() + item_bytes(&item) > DATAGRAM_BYTES_MAX {
                each(buffer);
                buffer.clear();
                writer = self.begin_reply(buffer, index);
            }
            writer.push(&item);
        }
        each(buffer);
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::netmc::{Group, KEYS_MAX, ReplyReader, encode_request};

    use super::*;

    fn shim(allow: &str, others_rate: u32) -> Shim {
        let allow = allow.split(' ').map(|text| text.parse().unwrap()).collect();
        Shim::new(&ShimOptions { allow, rate: 10, others_rate })
    }

    fn request(keys: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_request(
            &mut out,
            Op::MultiGet,
            7,
            &[Group { server: 1, keys: keys.len() as u8 }],
            keys.iter().copied(),
        );
        out
    }

    fn replies(asked: &Asked, values: &[Found<'_>]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        asked.answer(values.iter().copied(), &mut Vec::new(), |reply| found.push(reply.to_vec()));
        found
    }

    fn statuses(replies: &[Vec<u8>]) -> Vec<Status> {
        replies
            .iter()
            .flat_map(|reply| ReplyReader::parse(reply).unwrap().map(|item| item.status))
            .collect()
    }

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn values_go_over_as_many_datagrams_as_they_need_and_each_says_where_it_belongs() {
        let keys: Vec<Vec<u8>> = (0..16).map(|key| format!("key {key}").into_bytes()).collect();
        let data = request(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let asked = shim("127.0.0.0/8", 0).datagram(0, from("127.0.0.1:1"), &data).unwrap();
        let value = [b'v'; 500];
        let replies = replies(&asked, &[Found::Value(&value); 16]);
        assert_eq!(replies.len(), 8);
        let mut next = 0;
        for reply in &replies {
            assert!(reply.len() <= DATAGRAM_BYTES_MAX);
            let reader = ReplyReader::parse(reply).unwrap();
            assert_eq!((reader.header.startidx, reader.header.id), (next, 7));
            for item in reader {
                assert_eq!((item.key, item.value), (&*keys[usize::from(next)], &value[..]));
                next += 1;
            }
        }
        assert_eq!(usize::from(next), KEYS_MAX);
    }

    #[test]
    fn a_status_reports_large_missing_and_unanswered_keys() {
        let data = request(&[b"a", b"b", b"c", b"d", b"e"]);
        let asked = shim("127.0.0.0/8", 0).datagram(0, from("127.0.0.1:1"), &data).unwrap();
        let fits = vec![0; DATAGRAM_BYTES_MAX - HEADER_BYTES - 6];
        let not = vec![0; fits.len() + 1];
        let replies = replies(
            &asked,
            &[Found::Value(&fits), Found::Value(&not), Found::Nothing, Found::Error],
        );
        let expected =
            [Status::Hit, Status::TooBig, Status::Miss, Status::AskOverTcp, Status::AskOverTcp];
        assert_eq!(statuses(&replies), expected);
    }

    #[test]
    fn a_source_that_nobody_vouches_for_gets_three_times_what_it_sent_at_most() {
        for (count, value) in [(1, 0), (1, 30), (1, 1400), (3, 20), (16, 1), (16, 100), (16, 1000)]
        {
            for length in if count == 1 { [0, 1, 50] } else { [1, 2, 50] } {
                let keys: Vec<Vec<u8>> =
                    (0..count).map(|number| vec![b'a' + number as u8; length]).collect();
                let data = request(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
                let asked = shim("127.0.0.0/8", 9).datagram(0, from("10.0.0.1:1"), &data).unwrap();
                let value = vec![0; value];
                let replies = replies(&asked, &vec![Found::Value(&value); count]);
                let bytes: usize = replies.iter().map(Vec::len).sum();
                assert!(bytes <= 3 * data.len(), "{bytes} for {}", data.len());
                assert_eq!(statuses(&replies).len(), count);
            }
        }
    }

    #[test]
    fn malformed_and_foreign_datagrams_are_dropped() {
        let mut shim = shim("127.0.0.0/8", 0);
        let mut out = Vec::new();
        let groups = [Group { server: 1, keys: 1 }, Group { server: 2, keys: 1 }];
        encode_request(&mut out, Op::MultiGet, 7, &groups, [&b"a"[..], b"b"].into_iter());
        assert_eq!(shim.datagram(0, from("127.0.0.1:1"), &out), Err(Rejected::NotSplit));
        assert!(matches!(
            shim.datagram(0, from("127.0.0.1:1"), b"\x11"),
            Err(Rejected::Malformed(Malformed::Short))
        ));
        let data = request(&[b"a"]);
        assert_eq!(shim.datagram(0, from("10.0.0.1:1"), &data), Err(Rejected::Source));
    }
}
