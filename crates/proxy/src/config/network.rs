//! Networks in options: an address, or an address with the length of a prefix (CIDR).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::kinds::Kind;

/// A network: all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first address. An IPv4 address is kept in its IPv6 form (`::ffff:a.b.c.d`).
    first: Ipv6Addr,
    /// Number of bits that its addresses have in common, of 128.
    bits: u32,
}

/// Bits in front of an IPv4 address in its IPv6 form.
const MAPPED_BITS: u32 = 96;

impl Network {
    /// True if an address belongs to the network.
    pub fn contains(self, address: IpAddr) -> bool {
        let differing = mapped(address).to_bits() ^ self.first.to_bits();
        differing.leading_zeros() >= self.bits
    }

    /// True if every address of a protocol version belongs to the network.
    pub fn is_everything(self) -> bool {
        self.bits == 0 || self.bits == MAPPED_BITS && self.first.to_ipv4_mapped().is_some()
    }
}

/// Writes the network as an operator would: an address alone has no prefix.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = self.first.to_ipv4_mapped().filter(|_| self.bits >= MAPPED_BITS);
        let (address, bits) = match v4 {
            Some(address) => (IpAddr::V4(address), self.bits - MAPPED_BITS),
            None => (IpAddr::V6(self.first), self.bits),
        };
        match self.bits {
            128 => write!(f, "{address}"),
            _ => write!(f, "{address}/{bits}"),
        }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

impl Kind for Network {
    const EXPECTED: &'static str = "an address or a network such as \"10.0.8.0/24\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err("is neither an IP address nor a network such as 10.0.8.0/24".to_owned());
        };
        let before = if address.is_ipv4() { MAPPED_BITS } else { 0 };
        let bits = match bits.map(str::parse::<u32>) {
            None => 128,
            Some(Ok(bits)) if bits <= 128 - before => before + bits,
            Some(_) => {
                return Err(format!("has no prefix of 0 to {} bits behind the /", 128 - before));
            }
        };
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let first = Ipv6Addr::from_bits(mapped(address).to_bits() & mask);
        if first != mapped(address) {
            let shown = first.to_ipv4_mapped().filter(|_| before > 0);
            let shown = shown.map_or(IpAddr::V6(first), IpAddr::V4);
            let bits = bits - before;
            return Err(format!("has bits behind its prefix: give {shown}/{bits} or {address}"));
        }
        Ok(Self { first, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::from_text(text).unwrap_or_else(|why| panic!("{text} {why}"))
    }

    #[test]
    fn a_network_has_the_addresses_of_its_prefix() {
        for (text, inside, outside) in [
            ("10.0.8.0/24", "10.0.8.255", "10.0.9.0"),
            ("10.0.8.0/24", "::ffff:10.0.8.1", "::10.0.8.1"),
            ("10.0.8.7", "10.0.8.7", "10.0.8.6"),
            ("10.0.8.7/32", "10.0.8.7", "10.0.8.6"),
            ("0.0.0.0/0", "192.0.2.1", "2001:db8::1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::1", "::1", "::2"),
            ("::ffff:10.0.8.7", "10.0.8.7", "10.0.8.6"),
        ] {
            let network = network(text);
            assert_eq!(network.to_string(), text.replace("/32", "").replace("::ffff:", ""));
            let contains = |address: &str| network.contains(address.parse().expect("address"));
            assert!(contains(inside) && !contains(outside), "{text}");
        }
        assert!(network("::/0").contains([192, 0, 2, 1].into()));
        for (text, is_everything) in
            [("0.0.0.0/0", true), ("::/0", true), ("0.0.0.0/1", false), ("::1", false)]
        {
            assert_eq!(network(text).is_everything(), is_everything, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, why) in [
            ("", "neither"),
            ("balancer.example", "neither"),
            ("10.0.8.1:9042", "neither"),
            ("10.0.8.0/33", "0 to 32 bits"),
            ("10.0.8.0/", "0 to 32 bits"),
            ("10.0.8.0/-1", "0 to 32 bits"),
            ("::/129", "0 to 128 bits"),
            ("10.0.8.1/24", "give 10.0.8.0/24 or 10.0.8.1"),
            ("2001:db8::1/64", "give 2001:db8::/64 or 2001:db8::1"),
        ] {
            let error = Network::from_text(text).expect_err(text);
            assert!(error.contains(why), "{text} {error}");
        }
    }
}
