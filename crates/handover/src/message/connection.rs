//! A frozen connection as bytes, and the checks that it must pass before a kernel is given it.
//!
//! ```text
//! u8 family (4, 6) | local address | u16 port | peer address | u16 port | u32 send sequence | u32 receive sequence | u16 MSS
//! u8 flags (1 timestamps, 2 SACK, 4 scaling) | u32 timestamp | u8 send scale | u8 receive scale | 5 x u32 window
//! u32 length + bytes, three times: unacknowledged, unsent, unread
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::error::Error;
use crate::limits::{QUEUE_BYTES_MAX, UNREAD_BYTES_MAX};
use shunt_reactor::moving::{Frozen, TcpState, Window};

const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const SCALING: u8 = 4;
/// Linux accepts no smaller MSS (`TCP_MIN_SND_MSS`).
const MSS_MIN: u16 = 48;
/// RFC 7323, section 2.3: a shift count is at most 14.
const SCALE_MAX: u8 = 14;

/// Fields of a payload, read from its front.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) kind: u8,
}

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::Short(self.kind))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Error::Short(self.kind))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads a boolean byte, 0 or 1.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Error> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Field(name)),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::Behind(self.kind)) }
    }

    pub(crate) fn addresses(&mut self) -> Result<(SocketAddr, SocketAddr), Error> {
        let family = self.u8()?;
        let mut address = || -> Result<SocketAddr, Error> {
            let ip: IpAddr = match family {
                4 => Ipv4Addr::from(self.array::<4>()?).into(),
                6 => Ipv6Addr::from(self.array::<16>()?).into(),
                _ => return Err(Error::Field("address family")),
            };
            Ok(SocketAddr::new(ip, self.u16()?))
        };
        let (local, peer) = (address()?, address()?);
        check_addresses(local, peer)?;
        Ok((local, peer))
    }

    fn queue(&mut self, name: &'static str) -> Result<Vec<u8>, Error> {
        let length = self.u32()? as usize;
        if length > most(name) {
            return Err(Error::Oversized(name));
        }
        Ok(self.bytes(length)?.to_vec())
    }

    pub(crate) fn frozen(&mut self) -> Result<Frozen, Error> {
        let state = self.state()?;
        let unacknowledged = self.queue("unacknowledged")?;
        let unsent = self.queue("unsent")?;
        let unread = self.queue(UNREAD)?;
        Ok(Frozen { state, unacknowledged, unsent, unread })
    }

    fn state(&mut self) -> Result<TcpState, Error> {
        let (local, peer) = self.addresses()?;
        let (send_sequence, receive_sequence, mss, flags) =
            (self.u32()?, self.u32()?, self.u16()?, self.u8()?);
        if flags & !(TIMESTAMPS | SACK | SCALING) != 0 {
            return Err(Error::Field("TCP options"));
        }
        let timestamp = self.u32()?;
        let scales = (self.u8()?, self.u8()?);
        if flags & TIMESTAMPS == 0 && timestamp != 0 {
            return Err(Error::Contradictory("a timestamp where timestamps were not agreed on"));
        }
        if flags & SCALING == 0 && scales != (0, 0) {
            return Err(Error::Contradictory("window scales where scaling was not agreed on"));
        }
        let window = Window {
            send_update: self.u32()?,
            send: self.u32()?,
            largest: self.u32()?,
            receive: self.u32()?,
            receive_update: self.u32()?,
        };
        let state = TcpState {
            local,
            peer,
            send_sequence,
            receive_sequence,
            mss,
            timestamp: (flags & TIMESTAMPS != 0).then_some(timestamp),
            sack: flags & SACK != 0,
            window_scales: (flags & SCALING != 0).then_some(scales),
            window,
        };
        check_state(&state)?;
        Ok(state)
    }
}

/// Refuses addresses that no connection can have.
fn check_addresses(local: SocketAddr, peer: SocketAddr) -> Result<(), Error> {
    if local.is_ipv4() != peer.is_ipv4() {
        return Err(Error::Contradictory("the addresses of a connection are of two families"));
    }
    for (address, name) in [(local, "local address"), (peer, "peer address")] {
        let is_broadcast = matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
        if address.port() == 0
            || address.ip().is_unspecified()
            || address.ip().is_multicast()
            || is_broadcast
        {
            return Err(Error::Field(name));
        }
    }
    if local == peer {
        return Err(Error::Contradictory("a connection from an address to itself"));
    }
    Ok(())
}

/// Limit of a queue's bytes.
fn most(queue: &str) -> usize {
    if queue == UNREAD { UNREAD_BYTES_MAX } else { QUEUE_BYTES_MAX }
}

/// Name of the queue of bytes that the client has sent and no process has read.
const UNREAD: &str = "unread";

/// Checks that a connection can be sent.
pub(crate) fn check_frozen(frozen: &Frozen) -> Result<(), Error> {
    check_addresses(frozen.state.local, frozen.state.peer)?;
    check_state(&frozen.state)?;
    let queues = [
        (&frozen.unacknowledged, "unacknowledged"),
        (&frozen.unsent, "unsent"),
        (&frozen.unread, UNREAD),
    ];
    match queues.into_iter().find(|(queue, name)| queue.len() > most(name)) {
        Some((_, name)) => Err(Error::Oversized(name)),
        None => Ok(()),
    }
}

/// Refuses state that a kernel would reject, or accept to its harm.
fn check_state(state: &TcpState) -> Result<(), Error> {
    if state.mss < MSS_MIN {
        return Err(Error::Field("MSS"));
    }
    if state.window_scales.is_some_and(|(send, receive)| send > SCALE_MAX || receive > SCALE_MAX) {
        return Err(Error::Field("window scale"));
    }
    if state.window.send > state.window.largest {
        return Err(Error::Contradictory(
            "the peer's window is larger than the largest that it has offered",
        ));
    }
    Ok(())
}

pub(crate) fn put_addresses(
    local: SocketAddr,
    peer: SocketAddr,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    check_addresses(local, peer)?;
    out.push(if local.is_ipv4() { 4 } else { 6 });
    for address in [local, peer] {
        match address.ip() {
            IpAddr::V4(ip) => out.extend(ip.octets()),
            IpAddr::V6(ip) => out.extend(ip.octets()),
        }
        out.extend(address.port().to_be_bytes());
    }
    Ok(())
}

/// Appends a connection.
///
/// # Errors
/// The decoder would refuse it; the appended bytes are then useless.
pub fn encode_frozen(frozen: &Frozen, out: &mut Vec<u8>) -> Result<(), Error> {
    check_frozen(frozen)?;
    let state = &frozen.state;
    put_addresses(state.local, state.peer, out)?;
    out.extend(state.send_sequence.to_be_bytes());
    out.extend(state.receive_sequence.to_be_bytes());
    out.extend(state.mss.to_be_bytes());
    let flag = |is_on: bool, flag: u8| if is_on { flag } else { 0 };
    let scaling = state.window_scales.is_some();
    out.push(
        flag(state.timestamp.is_some(), TIMESTAMPS)
            | flag(state.sack, SACK)
            | flag(scaling, SCALING),
    );
    out.extend(state.timestamp.unwrap_or(0).to_be_bytes());
    let (send, receive) = state.window_scales.unwrap_or((0, 0));
    out.extend([send, receive]);
    let window = state.window;
    for value in
        [window.send_update, window.send, window.largest, window.receive, window.receive_update]
    {
        out.extend(value.to_be_bytes());
    }
    let queues = [
        (&frozen.unacknowledged, "unacknowledged"),
        (&frozen.unsent, "unsent"),
        (&frozen.unread, UNREAD),
    ];
    for (queue, name) in queues {
        if queue.len() > most(name) {
            return Err(Error::Oversized(name));
        }
        out.extend((queue.len() as u32).to_be_bytes());
        out.extend(queue);
    }
    Ok(())
}

/// Decodes a connection from bytes that hold nothing else.
///
/// # Errors
/// The bytes are no connection, or one that contradicts itself or is too large.
pub fn decode_frozen(bytes: &[u8]) -> Result<Frozen, Error> {
    let mut fields = Fields { rest: bytes, kind: crate::message::kinds::kind::TAKE };
    let frozen = fields.frozen()?;
    fields.end()?;
    Ok(frozen)
}
