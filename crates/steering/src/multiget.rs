//! The table of servers that a multiget's parts go to, written from user space. Its layout is that
//! of bpf/multiget.bpf.c.
//!
//! | map | key | value |
//! |---|---|---|
//! | `servers` | number of the server, 4 bytes | IPv6 or mapped IPv4 address 16; port 2; hardware address 6; interface 4, 0: that of the request; version of IP 4, 0: no server |
//! | `allowed` | bits 4, and the address that begins with them, as IPv6, 16: who may send to a gateway | 4 |
//! | `costs` | 0, 4 bytes | nanoseconds of each second that a request uses at a gateway, 8; 0: no limit |
//! | `sources` | IPv6 or mapped IPv4 address, of IPv6 the first half, 16 | time since boot at which the cost of all its requests is paid off, in nanoseconds, 8 |
//! | `services` | as those of the other programs | 4: which [`Parts`] |
//! | `counters` | number of a [`Split`] | 8, for each processor |

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, Map, MapData};

use crate::error::Error;
use crate::flow::{Mac, mapped};
use crate::maps::{Counters, OPEN, of_entry, of_map, pinned};
use crate::neighbours::neighbours;
use crate::rate::Rate;

pub(crate) const MAPS: [&str; 6] =
    ["servers", "allowed", "costs", "sources", "services", "counters"];

/// Servers that a program can know: their number is one byte.
pub const SERVERS_MAX: usize = 256;
/// Interval between checks for the hosts' replies.
const LOOK: Duration = Duration::from_millis(20);
const SERVER_BYTES: usize = 32;

/// Keys that a part carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All keys of the multiget.
    Full = 1,
    /// The keys of the part's server.
    Trimmed = 2,
}

/// A server's shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// Address at which it takes datagrams.
    pub address: SocketAddr,
    /// Hardware address of its host, or of the router towards it, in a network that this host is
    /// in.
    pub mac: Mac,
    /// Number of the interface that reaches it; 0: the one requests arrive on.
    pub interface: u32,
}

/// Counters of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Requests split.
    Requests,
    /// Parts of these requests.
    Parts,
    /// Parts for which the kernel had no room.
    Lost,
    /// Dropped: shorter than its header says.
    Short,
    /// Dropped: more bytes than the header says, or than a datagram may have.
    Long,
    /// Dropped: another layout.
    Version,
    /// Dropped: neither MGET nor GET.
    Op,
    /// Dropped: already split.
    Clo,
    /// Dropped: no keys, or too many.
    NumKey,
    /// Dropped: the numbers of groups and servers differ.
    KeyIdx,
    /// Dropped: no servers, too many, or not the first group.
    Place,
    /// Dropped: a server is named twice.
    Server,
    /// Dropped: keys that end before they begin.
    Ends,
    /// Dropped: not a single whole datagram.
    Packet,
    /// Dropped: a server that the table lacks, or has with the other version of IP.
    Unknown,
    /// Dropped at a gateway: the sender is not allowed.
    Source,
    /// Dropped at a gateway: the sender exceeds its rate.
    Rate,
}

impl Split {
    /// Each counter with its name, in the order of the programs.
    pub const ALL: [(Split, &str); 17] = [
        (Split::Requests, "split"),
        (Split::Parts, "parts"),
        (Split::Lost, "lost"),
        (Split::Short, "short"),
        (Split::Long, "long"),
        (Split::Version, "version"),
        (Split::Op, "op"),
        (Split::Clo, "clo"),
        (Split::NumKey, "numkey"),
        (Split::KeyIdx, "keyidx"),
        (Split::Place, "place"),
        (Split::Server, "server"),
        (Split::Ends, "ends"),
        (Split::Packet, "packet"),
        (Split::Unknown, "unknown"),
        (Split::Source, "source"),
        (Split::Rate, "rate"),
    ];

    /// True if the counter is a reason for a drop.
    #[must_use]
    pub fn is_reason(self) -> bool {
        !matches!(self, Split::Requests | Split::Parts | Split::Lost)
    }
}

/// Sources whose multigets a gateway splits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// Networks of the allowed addresses, each with its prefix length.
    pub allow: &'a [(IpAddr, u8)],
    /// Rate allowed to each source.
    pub rate: Rate,
}

/// Maps of a loaded program that splits.
pub struct Splitter {
    pins: PathBuf,
    servers: Array<MapData, [u8; SERVER_BYTES]>,
    costs: Array<MapData, u64>,
    counters: Counters,
}

impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splitter").field("pins", &self.pins).finish_non_exhaustive()
    }
}

impl Splitter {
    /// Opens the maps pinned in this directory.
    ///
    /// # Errors
    /// The directory has no such program's pins, or this process may not open them.
    pub fn open(pins: &Path) -> Result<Splitter, Error> {
        let array = |name| pinned(pins, name).map(Map::Array);
        Ok(Splitter {
            pins: pins.to_owned(),
            servers: Array::try_from(array("servers")?).map_err(|error| of_map(OPEN, &error))?,
            costs: Array::try_from(array("costs")?).map_err(|error| of_map(OPEN, &error))?,
            counters: Counters::open(pins)?,
        })
    }

    /// Directory of the pins.
    #[must_use]
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// Shims, each with the number of its server.
    #[must_use]
    pub fn shims(&self) -> Vec<(u32, Shim)> {
        let all = (0..self.servers.len())
            .filter_map(|number| Some((number, read(&self.servers.get(&number, 0).ok()?)?)));
        all.collect()
    }

    /// Sets the shims of the first servers.
    ///
    /// # Errors
    /// `shims` has more than [`SERVERS_MAX`], or the kernel refuses.
    pub(crate) fn set(&mut self, shims: &[Shim]) -> Result<(), Error> {
        if shims.len() > SERVERS_MAX {
            return Err(Error::Full("servers"));
        }
        (0..).zip(shims).try_for_each(|(number, shim)| {
            self.servers.set(number, bytes(shim), 0).map_err(|error| of_entry("servers", &error))
        })
    }

    /// Allows the network of `bits` leading bits of this address to send to a gateway.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub(crate) fn allow(&mut self, address: IpAddr, bits: u8) -> Result<(), Error> {
        let map = Map::LpmTrie(pinned(&self.pins, "allowed")?);
        let mut allowed =
            LpmTrie::<_, [u8; 16], u32>::try_from(map).map_err(|error| of_map(OPEN, &error))?;
        // IPv4 addresses are mapped into an IPv6 network.
        let bits = u32::from(bits) + if address.is_ipv4() { 96 } else { 0 };
        allowed
            .insert(&Key::new(bits, mapped(address)), 1, 0)
            .map_err(|error| of_entry("sources", &error))
    }

    /// Sets the rate that a gateway allows each source.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn limit(&mut self, rate: Rate) -> Result<(), Error> {
        self.costs.set(0, rate.cost_ns(), 0).map_err(|error| of_entry("costs", &error))
    }

    /// Rate that a gateway allows each source.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate::of_cost(self.costs.get(&0, 0).unwrap_or(0))
    }

    /// Value of a counter since the program was loaded.
    #[must_use]
    pub fn count(&self, which: Split) -> u64 {
        self.counters.of(which as u32)
    }
}

fn bytes(shim: &Shim) -> [u8; SERVER_BYTES] {
    let mut bytes = [0; SERVER_BYTES];
    bytes[..16].copy_from_slice(&mapped(shim.address.ip()));
    bytes[16..18].copy_from_slice(&shim.address.port().to_be_bytes());
    bytes[18..24].copy_from_slice(&shim.mac.0);
    bytes[24..28].copy_from_slice(&shim.interface.to_ne_bytes());
    bytes[28..].copy_from_slice(&if shim.address.is_ipv4() { 4u32 } else { 6 }.to_ne_bytes());
    bytes
}

fn read(bytes: &[u8; SERVER_BYTES]) -> Option<Shim> {
    let number = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let (mut octets, mut mac) = ([0; 16], [0; 6]);
    octets.copy_from_slice(&bytes[..16]);
    mac.copy_from_slice(&bytes[18..24]);
    let address = SocketAddr::new(
        IpAddr::from(octets).to_canonical(),
        u16::from_be_bytes([bytes[16], bytes[17]]),
    );
    (number(28) != 0).then(|| Shim { address, mac: Mac(mac), interface: number(24) })
}

/// Resolves the hardware addresses of these hosts.
///
/// # Errors
/// The first host that did not reply in time.
pub fn find_hosts(hosts: &[IpAddr], within: Duration) -> Result<HashMap<IpAddr, Mac>, IpAddr> {
    let until = Instant::now() + within;
    loop {
        let known = neighbours().unwrap_or_default();
        let missing: Vec<IpAddr> =
            hosts.iter().filter(|host| !known.contains_key(host)).copied().collect();
        let Some(first) = missing.first() else { return Ok(known) };
        if Instant::now() >= until {
            return Err(*first);
        }
        for host in missing {
            // Sending makes the kernel resolve the address; the result does not matter. Port 9
            // discards datagrams.
            let from = if host.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let _ = UdpSocket::bind(from).and_then(|socket| socket.send_to(&[], (host, 9)));
        }
        std::thread::park_timeout(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_what_its_bytes_say() {
        for address in ["10.0.0.7:9700", "[2001:db8::7]:1"] {
            let shim = Shim {
                address: address.parse().expect("address"),
                mac: Mac([2, 0, 0, 0, 1, 7]),
                interface: 7 << 20,
            };
            assert_eq!(read(&bytes(&shim)), Some(shim));
        }
        assert_eq!(read(&[0; SERVER_BYTES]), None);
    }

    #[test]
    fn a_host_that_is_not_there_is_named() {
        let nobody: IpAddr = "192.0.2.77".parse().expect("address");
        assert_eq!(find_hosts(&[nobody], Duration::from_millis(1)), Err(nobody));
        assert!(find_hosts(&[], Duration::ZERO).is_ok());
    }
}
