//! Allowed sources and their rates. A datagram's source can be forged, so this limits the traffic
//! that a shim can be made to send to others; it is no access control.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{Rejected, ShimOptions};
use crate::limits;

const SECOND_NS: u64 = 1_000_000_000;
/// Shortest interval between searches of a full table for silent sources: unknown sources may come
/// with every datagram, and must not each cost a search.
const SWEEP_NS: u64 = SECOND_NS / 10;

/// Addresses with the same leading bits, as in `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// Error for a text that is not a prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PrefixError;

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address with a number of bits is expected, such as 10.0.0.0/8, fd00::/8 or 10.0.0.7")
    }
}

impl std::error::Error for PrefixError {}

impl Prefix {
    /// An address with these leading bits, and their number.
    pub fn bits(&self) -> (IpAddr, u8) {
        (self.address, self.bits)
    }

    /// True if the address begins with these bits; IPv4 within IPv6 is IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| PrefixError))?;
        if bits > all { Err(PrefixError) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Requests per second, all of which may come at once.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left_ns: u64,
    seen_at_ns: u64,
}

impl Bucket {
    fn full(now_ns: u64) -> Self {
        Self { left_ns: SECOND_NS, seen_at_ns: now_ns }
    }

    /// Remaining part of a second's worth.
    fn left_at(&self, now_ns: u64) -> u64 {
        self.left_ns.saturating_add(now_ns.saturating_sub(self.seen_at_ns)).min(SECOND_NS)
    }

    fn take(&mut self, now_ns: u64, rate: u32) -> bool {
        let (left_ns, cost_ns) = (self.left_at(now_ns), SECOND_NS / u64::from(rate.max(1)));
        let is_let_in = rate > 0 && left_ns >= cost_ns;
        *self = Self {
            left_ns: if is_let_in { left_ns - cost_ns } else { left_ns },
            seen_at_ns: now_ns,
        };
        is_let_in
    }
}

/// Address under which a source is counted: for IPv6 the /64, because one host may have all its
/// addresses.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

/// Sources and their rates.
#[derive(Debug)]
pub struct Admission {
    allow: Vec<Prefix>,
    rate: u32,
    others_rate: u32,
    sources: HashMap<IpAddr, Bucket>,
    /// Earliest time of the next search of the table.
    sweep_at_ns: u64,
    /// Shared rate of sources without a place in the table.
    crowd: Bucket,
    others: Bucket,
}

impl Admission {
    /// Creates an admission that has seen no source.
    pub fn new(options: &ShimOptions) -> Self {
        let ShimOptions { allow, rate, others_rate } = options.clone();
        let (crowd, others) = (Bucket::full(0), Bucket::full(0));
        Self { allow, rate, others_rate, sources: HashMap::new(), sweep_at_ns: 0, crowd, others }
    }

    /// Admits a request; true if its source is allowed by name.
    ///
    /// # Errors
    /// The reason for dropping it.
    pub fn admit(&mut self, now_ns: u64, from: IpAddr) -> Result<bool, Rejected> {
        if !self.allow.iter().any(|prefix| prefix.contains(from)) {
            if self.others_rate == 0 {
                return Err(Rejected::Source);
            }
            return if self.others.take(now_ns, self.others_rate) {
                Ok(false)
            } else {
                Err(Rejected::Rate)
            };
        }
        let from = source(from);
        let is_full = self.sources.len() >= limits::SOURCES_MAX;
        if is_full && now_ns >= self.sweep_at_ns && !self.sources.contains_key(&from) {
            self.sweep_at_ns = now_ns.saturating_add(SWEEP_NS);
            // A source silent for a second equals an unknown one.
            self.sources.retain(|_, bucket| bucket.left_at(now_ns) < SECOND_NS);
        }
        let bucket = if self.sources.len() < limits::SOURCES_MAX || self.sources.contains_key(&from)
        {
            self.sources.entry(from).or_insert_with(|| Bucket::full(now_ns))
        } else {
            &mut self.crowd
        };
        if bucket.take(now_ns, self.rate) { Ok(true) } else { Err(Rejected::Rate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(rate: u32, others_rate: u32) -> Admission {
        let allow = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        Admission::new(&ShimOptions { allow, rate, others_rate })
    }

    fn let_in(admission: &mut Admission, now_ns: u64, from: &str, times: usize) -> usize {
        (0..times).filter(|_| admission.admit(now_ns, from.parse().unwrap()).is_ok()).count()
    }

    #[test]
    fn prefixes_contain_what_begins_like_them() {
        for (prefix, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.6", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("fd00::/8", "fdab::1", true),
            ("::/0", "2001:db8::1", true),
        ] {
            let found = prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap());
            assert_eq!(found, expected, "{address} in {prefix}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/x"] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError), "{text}");
        }
    }

    #[test]
    fn each_source_has_a_rate_of_its_own_and_others_one_together() {
        let mut admission = admission(10, 5);
        assert_eq!(let_in(&mut admission, 0, "10.0.0.1", 30), 10);
        assert_eq!(let_in(&mut admission, 0, "10.0.0.2", 30), 10);
        assert_eq!(let_in(&mut admission, SECOND_NS / 2, "10.0.0.1", 30), 5);
        assert_eq!(
            let_in(&mut admission, 0, "192.0.2.1", 3) + let_in(&mut admission, 0, "192.0.2.2", 9),
            5
        );
        assert_eq!(admission.admit(0, "192.0.2.3".parse().unwrap()), Err(Rejected::Rate));
        assert_eq!(let_in(&mut admission, 3 * SECOND_NS, "192.0.2.1", 30), 5);
    }

    #[test]
    fn addresses_of_ipv6_that_one_host_may_have_share_a_rate() {
        let mut admission = admission(10, 0);
        let found = (0..40u8)
            .map(|last| let_in(&mut admission, 0, &format!("fd00::1:{last}:9"), 1))
            .sum::<usize>();
        assert_eq!((found, admission.sources.len()), (10, 1));
        assert_eq!(let_in(&mut admission, 0, "fd00:0:0:1::1", 20), 10);
        // IPv4 within IPv6 is IPv4.
        assert_eq!(let_in(&mut admission, 0, "::ffff:10.0.0.1", 20), 10);
        assert_eq!(let_in(&mut admission, 0, "::ffff:10.0.0.2", 20), 10);
        assert_eq!(let_in(&mut admission, 0, "10.0.0.2", 20), 0);
    }

    #[test]
    fn sources_beyond_the_table_share_a_rate_until_others_are_quiet() {
        let mut admission = admission(10, 0);
        for index in 0..limits::SOURCES_MAX as u32 {
            assert!(admission.admit(0, IpAddr::from((0x0a00_0000 + index).to_be_bytes())).is_ok());
        }
        let crowd = (0..40u8)
            .map(|last| let_in(&mut admission, 0, &format!("10.9.9.{last}"), 1))
            .sum::<usize>();
        assert_eq!((crowd, admission.sources.len()), (10, limits::SOURCES_MAX));
        assert_eq!(let_in(&mut admission, 2 * SECOND_NS, "10.9.9.9", 20), 10);
        assert_eq!(admission.sources.len(), 1);
    }

    #[test]
    fn a_stranger_with_every_datagram_has_the_table_looked_through_once_in_a_while() {
        let mut admission = admission(1_000, 0);
        for index in 0..limits::SOURCES_MAX as u32 {
            assert!(admission.admit(0, IpAddr::from((0x0a00_0000 + index).to_be_bytes())).is_ok());
        }
        // The first search finds no silent source; a millisecond later all are silent, and no
        // search runs.
        for (now_ns, left) in
            [(0, limits::SOURCES_MAX), (SECOND_NS / 1_000, limits::SOURCES_MAX), (SWEEP_NS, 1)]
        {
            assert!(admission.admit(now_ns, "10.9.9.9".parse().unwrap()).is_ok());
            assert_eq!(admission.sources.len(), left, "after {now_ns} ns");
        }
    }
}
