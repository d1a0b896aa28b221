//! Connections and hardware addresses in the form that the maps use.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A client's connection to a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The virtual address, which is the side that moves.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
}

/// Bytes of a key in the maps of flows.
pub(crate) const FLOW_BYTES: usize = 36;
/// Bytes of a key in the map of services.
pub(crate) const SERVICE_BYTES: usize = 20;

impl Flow {
    /// `struct flow` of the programs.
    pub(crate) fn key(&self) -> [u8; FLOW_BYTES] {
        let mut key = [0; FLOW_BYTES];
        key[..16].copy_from_slice(&mapped(self.peer.ip()));
        key[16..32].copy_from_slice(&mapped(self.local.ip()));
        key[32..34].copy_from_slice(&self.peer.port().to_be_bytes());
        key[34..].copy_from_slice(&self.local.port().to_be_bytes());
        key
    }

    pub(crate) fn of_key(key: &[u8; FLOW_BYTES]) -> Flow {
        let address = |at: usize, port_at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&key[at..at + 16]);
            let port = u16::from_be_bytes([key[port_at], key[port_at + 1]]);
            SocketAddr::new(IpAddr::from(octets).to_canonical(), port)
        };
        Flow { peer: address(0, 32), local: address(16, 34) }
    }
}

/// `struct service` of the programs.
pub(crate) fn service_key(local: SocketAddr) -> [u8; SERVICE_BYTES] {
    let mut key = [0; SERVICE_BYTES];
    key[..16].copy_from_slice(&mapped(local.ip()));
    key[16..18].copy_from_slice(&local.port().to_be_bytes());
    key
}

/// IPv4 addresses as ::ffff:a.b.c.d.
pub(crate) fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Hardware address of a host in a network that both hosts share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

/// Error for a text that is not a hardware address.
#[derive(Debug, PartialEq, Eq)]
pub struct BadMac(String);

impl fmt::Display for BadMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no hardware address; they are written as 02:00:5e:10:00:01", self.0)
    }
}

impl std::error::Error for BadMac {}

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(bad)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        // Refuse group addresses: packets for one host must not go to a group.
        let is_one = parts.next().is_none() && octets[0] & 1 == 0 && octets != [0; 6];
        is_one.then_some(Mac(octets)).ok_or_else(bad)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_what_its_key_says_whatever_its_addresses_are() {
        for (local, peer) in
            [("10.0.0.1:80", "192.168.1.9:40000"), ("[2001:db8::1]:443", "[fe80::2]:1")]
        {
            let flow = Flow {
                local: local.parse().expect("address"),
                peer: peer.parse().expect("address"),
            };
            assert_eq!(Flow::of_key(&flow.key()), flow);
        }
        let flow = Flow {
            local: "10.0.0.1:80".parse().expect("address"),
            peer: "1.2.3.4:258".parse().expect("address"),
        };
        assert_eq!(flow.key()[10..16], [0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!((&flow.key()[32..34], &flow.key()[34..36]), (&[1, 2][..], &[0, 80][..]));
    }

    #[test]
    fn hardware_addresses_are_of_one_host() {
        let mac: Mac = "02:00:5e:10:00:Ff".parse().expect("address");
        assert_eq!(
            (mac, mac.to_string().as_str()),
            (Mac([2, 0, 0x5e, 0x10, 0, 0xff]), "02:00:5e:10:00:ff")
        );
        for bad in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "2:0:5e:10:0:1",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "zz:00:5e:10:00:01",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(BadMac(bad.to_owned())));
        }
    }
}
