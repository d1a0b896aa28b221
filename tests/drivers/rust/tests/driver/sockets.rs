//! The TCP connections of this process as the kernel lists them, whatever the driver says about
//! itself.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const ESTABLISHED: &str = "01";

/// The remote ends of all established connections of this process.
pub fn remote_addresses() -> HashSet<SocketAddr> {
    let own = own_inodes();
    let mut remote = HashSet::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap().lines().skip(1) {
            let columns: Vec<&str> = line.split_whitespace().collect();
            if columns[3] == ESTABLISHED && own.contains(columns[9]) {
                remote.insert(parse(columns[2]));
            }
        }
    }
    remote
}

fn own_inodes() -> HashSet<String> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| {
            Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect()
}

/// Hexadecimal address:port; the address is made of 32-bit words in the machine's (little-endian)
/// order.
fn parse(field: &str) -> SocketAddr {
    let (address, port) = field.split_once(':').unwrap();
    let mut bytes = Vec::new();
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(str::from_utf8(word).unwrap(), 16).unwrap();
        bytes.extend(word.to_le_bytes());
    }
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(four),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).to_canonical(),
    };
    SocketAddr::new(address, u16::from_str_radix(port, 16).unwrap())
}
