//! Hardware addresses of the hosts that this one has talked to, from the kernel (RTM_GETNEIGH,
//! rtnetlink(7)).

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::flow::Mac;

/// Largest answer of the kernel in bytes (NLMSG_GOODSIZE is less).
const ANSWER_BYTES: usize = 64 << 10;

/// The hosts of this host's networks, by IPv4 and IPv6 addresses.
///
/// # Errors
/// The kernel refuses.
pub fn neighbours() -> io::Result<HashMap<IpAddr, Mac>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_DUMP | NLM_F_REQUEST;
    let asked = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    let mut question = NetlinkMessage::new(header, NetlinkPayload::from(asked));
    question.finalize();
    let mut bytes = vec![0; question.buffer_len()];
    question.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (mut found, mut answer) = (HashMap::new(), vec![0; ANSWER_BYTES]);
    loop {
        let read = socket.recv(&mut &mut answer[..], 0)?;
        if read_answer(&answer[..read], &mut found)? {
            return Ok(found);
        }
    }
}

/// Reads the messages of one datagram; true if the last was among them.
fn read_answer(mut bytes: &[u8], found: &mut HashMap<IpAddr, Mac>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let message =
            NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).map_err(io::Error::other)?;
        match &message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(neighbour)) => {
                found.extend(entry(neighbour))
            }
            _ => {}
        }
        // Messages begin at multiples of four.
        let length = (message.header.length as usize).next_multiple_of(4);
        bytes = bytes.get(length.max(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// A host and its hardware address, if that is known.
fn entry(of: &NeighbourMessage) -> Option<(IpAddr, Mac)> {
    let address = of.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
            Some(IpAddr::from(*address))
        }
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some(IpAddr::from(*address))
        }
        _ => None,
    })?;
    let mac = of.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(&bytes[..]).ok(),
        _ => None,
    })?;
    let is_one = mac[0] & 1 == 0 && mac != [0; 6];
    is_one.then_some((address, Mac(mac)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(address: Option<IpAddr>, mac: Option<&[u8]>) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.attributes.extend(address.map(|address| {
            NeighbourAttribute::Destination(match address {
                IpAddr::V4(address) => NeighbourAddress::Inet(address),
                IpAddr::V6(address) => NeighbourAddress::Inet6(address),
            })
        }));
        message
            .attributes
            .extend(mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.to_vec())));
        message
    }

    #[test]
    fn hosts_with_a_hardware_address_of_their_own_are_known() {
        for address in ["10.99.0.31", "fd00:99::31"] {
            let address: IpAddr = address.parse().expect("address");
            assert_eq!(
                entry(&neighbour(Some(address), Some(&[2, 0, 0, 0, 1, 7]))),
                Some((address, Mac([2, 0, 0, 0, 1, 7])))
            );
            for none in [&[0; 6][..], &[1, 0, 0x5e, 0, 0, 1], &[2, 0, 0, 0, 1]] {
                assert_eq!(entry(&neighbour(Some(address), Some(none))), None);
            }
            assert_eq!(entry(&neighbour(Some(address), None)), None);
        }
        assert_eq!(entry(&neighbour(None, Some(&[2, 0, 0, 0, 1, 7]))), None);
    }

    #[test]
    fn the_kernel_says_whom_it_knows() {
        // The kernel may know no host; the test needs only an answer that can be read.
        let known = neighbours().expect("an answer");
        assert!(known.values().all(|mac| mac.0[0] & 1 == 0));
    }
}
