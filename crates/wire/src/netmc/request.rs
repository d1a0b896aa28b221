//! Requests: whole ones from clients, and parts from switches.

use super::{
    CLO_SPLIT, CLO_TRIMMED, DATAGRAM_BYTES_MAX, HEADER_BYTES, KEY_BYTES_MAX, KEYS_MAX, Malformed,
    Op, u16_at, u32_at,
};

const CLO_SPLIT_AND_TRIMMED: u8 = CLO_SPLIT | CLO_TRIMMED;

/// The keys of one server in a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Group {
    /// Number of the server; switch and client map it to an address.
    pub server: u8,
    /// Number of the request's keys in this group; they follow those of the group before.
    pub keys: u8,
}

/// A request with a valid header. The keys are not checked before [`own_keys`](Request::own_keys).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'d> {
    /// [`Op::MultiGet`] or [`Op::Get`].
    pub op: Op,
    /// Number of the request at its client.
    pub id: u32,
    /// Number of the group that this is for; 0 before the split.
    pub oid: u8,
    /// Keys of this group; before the split, of all groups.
    pub numkey: u8,
    /// One bit per key from the top; a 1 ends a group. In a part the bits of earlier groups are
    /// shifted out.
    pub keyidx: u16,
    /// Position of its first key among all keys.
    pub startidx: u8,
    /// [`CLO_SPLIT`] and [`CLO_TRIMMED`].
    pub clo: u8,
    pub(crate) servers: &'d [u8],
    ends: &'d [u8],
    pub(crate) keys: &'d [u8],
}

/// Encoded length of a key in bytes.
pub fn key_bytes(key: &[u8]) -> usize {
    2 + key.len()
}

/// Length of a request with this many groups whose keys take `keys_bytes` together.
pub fn request_bytes(groups: usize, keys_bytes: usize) -> usize {
    HEADER_BYTES + 3 * groups + keys_bytes
}

/// Appends a whole request. The keys come in the order of the groups, as many as the groups count.
///
/// # Panics
/// There is no group, a group is empty, there are more than [`KEYS_MAX`] keys, or a key is longer
/// than [`KEY_BYTES_MAX`]. The client must check these first.
pub fn encode_request<'k>(
    out: &mut Vec<u8>,
    op: Op,
    id: u32,
    groups: &[Group],
    mut keys: impl Iterator<Item = &'k [u8]>,
) {
    let numkey: usize = groups.iter().map(|group| usize::from(group.keys)).sum();
    assert!(!groups.is_empty() && groups.iter().all(|group| group.keys > 0) && numkey <= KEYS_MAX);
    let start = out.len();
    out.push(op.to_byte());
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&[0, numkey as u8]);
    let (mut keyidx, mut last) = (0u16, 0);
    for group in groups {
        last += u32::from(group.keys);
        keyidx |= 1 << (u16::BITS - last);
    }
    out.extend_from_slice(&keyidx.to_be_bytes());
    out.extend_from_slice(&[0, 0, groups.len() as u8]);
    out.extend(groups.iter().map(|group| group.server));
    let ends = out.len();
    out.resize(ends + 2 * groups.len(), 0);
    let first = out.len();
    for (index, group) in groups.iter().enumerate() {
        for key in keys.by_ref().take(usize::from(group.keys)) {
            assert!(key.len() <= KEY_BYTES_MAX);
            out.extend_from_slice(&(key.len() as u16).to_be_bytes());
            out.extend_from_slice(key);
        }
        let end = (out.len() - first) as u16;
        out[ends + 2 * index..ends + 2 * index + 2].copy_from_slice(&end.to_be_bytes());
    }
    debug_assert!(Request::parse(&out[start..]).is_ok_and(|request| request.own_keys().is_ok()));
}

impl<'d> Request<'d> {
    /// Reads the header and validates its fields against each other and the length.
    ///
    /// # Errors
    /// The first field that is invalid.
    pub fn parse(data: &'d [u8]) -> Result<Request<'d>, Malformed> {
        let first = data.first().ok_or(Malformed::Short)?;
        if data.len() > DATAGRAM_BYTES_MAX {
            return Err(Malformed::Long);
        }
        let op = Op::of(*first)?;
        if !matches!(op, Op::MultiGet | Op::Get) {
            return Err(Malformed::Op { found: first & 15 });
        }
        if data.len() < HEADER_BYTES {
            return Err(Malformed::Short);
        }
        let id = u32_at(data, 1).ok_or(Malformed::Short)?;
        let keyidx = u16_at(data, 7).ok_or(Malformed::Short)?;
        let (oid, numkey, startidx, clo, numsrv) =
            (data[5], data[6], data[9], data[10], usize::from(data[11]));
        if numsrv == 0 || numsrv > KEYS_MAX {
            return Err(Malformed::Place);
        }
        let (ends_at, keys_at) = (HEADER_BYTES + numsrv, HEADER_BYTES + 3 * numsrv);
        if data.len() < keys_at {
            return Err(Malformed::Short);
        }
        let (servers, ends, keys) =
            (&data[HEADER_BYTES..ends_at], &data[ends_at..keys_at], &data[keys_at..]);
        let request = Request { op, id, oid, numkey, keyidx, startidx, clo, servers, ends, keys };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), Malformed> {
        let (numkey, keyidx) = (u32::from(self.numkey), self.keyidx);
        if numkey == 0 || numkey > KEYS_MAX as u32 || (self.op == Op::Get && numkey != 1) {
            return Err(Malformed::NumKey);
        }
        let groups_left = match self.clo {
            0 => {
                if self.oid != 0 || self.startidx != 0 {
                    return Err(Malformed::Place);
                }
                // The last key ends a group, and no group ends behind it.
                if keyidx.trailing_zeros() != u16::BITS - numkey {
                    return Err(Malformed::KeyIdx);
                }
                self.servers.len()
            }
            CLO_SPLIT | CLO_SPLIT_AND_TRIMMED => {
                let last = u32::from(self.startidx) + numkey;
                if usize::from(self.oid) >= self.servers.len()
                    || self.startidx < self.oid
                    || last as usize > KEYS_MAX
                    || (self.oid == 0 && self.startidx != 0)
                {
                    return Err(Malformed::Place);
                }
                // The remaining bits are shifted by the keys up to the end of this group.
                if keyidx.trailing_zeros() < last.min(u16::BITS) && keyidx != 0 {
                    return Err(Malformed::KeyIdx);
                }
                self.servers.len() - 1 - usize::from(self.oid)
            }
            _ => return Err(Malformed::Clo),
        };
        if keyidx.count_ones() as usize != groups_left {
            return Err(Malformed::KeyIdx);
        }
        let is_twice = |(at, server)| self.servers[..at].contains(server);
        if self.servers.iter().enumerate().any(is_twice) {
            return Err(Malformed::Server);
        }
        self.check_ends()
    }

    fn check_ends(&self) -> Result<(), Malformed> {
        let rise = (0..self.servers.len()).all(|group| self.range(group).is_some());
        let here = match self.clo & CLO_TRIMMED {
            0 => usize::from(self.end(self.servers.len() - 1)),
            _ => self.range(usize::from(self.oid)).map_or(0, |range| range.len()),
        };
        match (rise, here.cmp(&self.keys.len())) {
            (false, _) => Err(Malformed::Ends),
            (true, std::cmp::Ordering::Greater) => Err(Malformed::Short),
            (true, std::cmp::Ordering::Less) => Err(Malformed::Long),
            (true, std::cmp::Ordering::Equal) => Ok(()),
        }
    }

    fn end(&self, group: usize) -> u16 {
        u16_at(self.ends, 2 * group).unwrap_or(0)
    }

    /// Range of a group's keys in the KEYS of the whole request; `None` if the end precedes the
    /// start.
    pub(crate) fn range(&self, group: usize) -> Option<std::ops::Range<usize>> {
        let start = if group == 0 { 0 } else { self.end(group - 1) };
        let end = self.end(group);
        (start < end).then_some(usize::from(start)..usize::from(end))
    }

    /// True if a switch has split the request, or it has one group: a server may answer it.
    pub fn is_for_one_server(&self) -> bool {
        self.clo & CLO_SPLIT != 0 || self.servers.len() == 1
    }

    /// Number of the server that the part is for; for a whole request, of the first server.
    pub fn server(&self) -> u8 {
        self.servers[usize::from(self.oid)]
    }

    /// Server number of each of the [`own_keys`](Request::own_keys).
    pub fn own_servers(&self) -> impl Iterator<Item = u8> {
        let ends_before = |position: u32| {
            (u32::from(self.keyidx) >> (u16::BITS - position)).count_ones() as usize
        };
        let group = move |position| {
            if self.clo & CLO_SPLIT == 0 { ends_before(position) } else { usize::from(self.oid) }
        };
        (0..u32::from(self.numkey)).map(move |position| self.servers[group(position)])
    }

    /// The keys of this group; for a whole request, of all groups.
    ///
    /// # Errors
    /// KEYS does not hold NUMKEY keys, a group ends within a key, or a key is repeated: a few bytes
    /// could make a server send a large value many times.
    pub fn own_keys(&self) -> Result<OwnKeys<'d>, Malformed> {
        let own = match self.clo {
            CLO_SPLIT => &self.keys[self.range(usize::from(self.oid)).ok_or(Malformed::Ends)?],
            _ => self.keys,
        };
        let keys = OwnKeys { left: own };
        let (mut at, mut count, mut group) = (0, 0, 0);
        let mut ends_left = self.keyidx;
        for key in keys.clone() {
            let is_twice = || keys.clone().take(usize::from(count)).any(|before| before == key);
            if key.len() > KEY_BYTES_MAX || count == self.numkey || is_twice() {
                return Err(Malformed::Keys);
            }
            at += key_bytes(key);
            count += 1;
            if self.clo == 0 {
                if ends_left & 0x8000 != 0 {
                    if at != usize::from(self.end(group)) {
                        return Err(Malformed::Keys);
                    }
                    group += 1;
                }
                ends_left <<= 1;
            }
        }
        if at != own.len() || count != self.numkey { Err(Malformed::Keys) } else { Ok(keys) }
    }
}

/// Iterator over keys.
#[derive(Clone, Debug)]
pub struct OwnKeys<'d> {
    left: &'d [u8],
}

impl<'d> Iterator for OwnKeys<'d> {
    type Item = &'d [u8];

    fn next(&mut self) -> Option<&'d [u8]> {
        let length = usize::from(u16_at(self.left, 0)?);
        let key = self.left.get(2..2 + length)?;
        self.left = &self.left[2 + length..];
        Some(key)
    }
}
