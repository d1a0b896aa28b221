//! Placement of keys on servers: the slots of Redis Cluster (its specification, "Key distribution
//! model"), in equal ranges in the order of the servers, as `redis-cli --cluster create` deals them
//! out. So `{hash tags}` keep keys together here, too.

use std::net::{IpAddr, SocketAddr};

/// Number of slots.
pub const SLOTS: usize = 16_384;

/// Placement of keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Places {
    /// This many servers have equal ranges of slots, in their order.
    Equal(usize),
    /// Server of each slot.
    Slots(Vec<u8>),
}

impl Places {
    /// The server that has a key.
    pub fn server(&self, key: &[u8]) -> usize {
        match self {
            Places::Equal(servers) => server(key, *servers),
            Places::Slots(places) => {
                places.get(usize::from(slot(key))).copied().map_or(0, usize::from)
            }
        }
    }

    /// Keys with the same group may share a command to their server: a group is a server, or a slot
    /// of a cluster.
    pub fn group(&self, key: &[u8]) -> usize {
        match self {
            Places::Equal(servers) => server(key, *servers),
            Places::Slots(_) => usize::from(slot(key)),
        }
    }
}

/// Digest of the servers' shims in their order (FNV-1a), never 0: a sidecar and a coordinator with
/// the same list have the same digest.
pub fn list_digest(shims: &[SocketAddr]) -> u32 {
    let mut digest: u32 = 0x811c_9dc5;
    let mut add = |byte: u8| digest = (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    for shim in shims {
        let address = match shim.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        address.octets().into_iter().chain(shim.port().to_be_bytes()).for_each(&mut add);
    }
    digest.max(1)
}

/// Slot of a key.
pub fn slot(key: &[u8]) -> u16 {
    crc16(hashed(key)) % SLOTS as u16
}

/// Server of a key, among this many servers.
pub fn server(key: &[u8], servers: usize) -> usize {
    usize::from(slot(key)) * servers / SLOTS
}

/// Hashed part of a key. "if the key contains a {...} pattern only the substring between { and } is
/// hashed", if the first such substring is not empty.
fn hashed(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').map(|length| &rest[..length])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC16, polynomial 0x1021, nothing reflected, from 0 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // The specification's example, and answers of CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, expected) in [(&b"foo"[..], 12_182), (b"bar", 5_061), (b"hello", 866), (b"", 0)] {
            assert_eq!(slot(key), expected, "{key:?}");
        }
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS as u16);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    #[test]
    fn every_server_has_its_share_in_order() {
        for servers in [1, 2, 3, 5, 7, 256] {
            let mut counts = vec![0; servers];
            let mut last = 0;
            for slot in 0..SLOTS {
                let server = slot * servers / SLOTS;
                assert!(server >= last && server < servers);
                (last, counts[server]) = (server, counts[server] + 1);
            }
            let (least, most) =
                (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
            assert!(most - least <= 1, "{servers} servers: {least} to {most} slots");
        }
    }
}
