//! Rows of durable locks, as another proxy may have written them, between requests for those locks:
//! the input is a list of steps, each with the bytes it needs.

use std::collections::BTreeMap;

use shunt_locks::{
    Asked, Handle, Lease, Limits, LoadId, Locks, Mode, Namespace, Now, Outcome, Row, Sink, Ticket,
    Write, WriteId, Written, shard_of,
};

const NAME: &[u8] = b"a lock";
const OWNERS: [&[u8]; 4] = [b"", b"ann", b"bob", b"an owner whose name is longer"];
const ROLES: [&[u8]; 2] = [b"", b"role"];

/// Requests of the locks without an answer yet, and clients without one.
#[derive(Default)]
struct Heard {
    loads: Vec<LoadId>,
    /// Key of the last row of a page that was not the last.
    read: Option<(&'static [u8], &'static [u8])>,
    writes: Vec<WriteId>,
    open: BTreeMap<u64, Option<Handle>>,
}

impl Sink for Heard {
    fn reply(&mut self, ticket: Ticket, _: Outcome<'_>) {
        assert!(self.open.remove(&ticket.0).is_some(), "an answer to nobody");
    }

    fn write(&mut self, write: Write<'_>) {
        assert!(write.row.name == NAME && write.row.slot.len() <= 32);
        if write.id != WriteId::UNWATCHED {
            self.writes.push(write.id);
        }
    }

    fn load(&mut self, load: LoadId) {
        self.loads.push(load);
        self.read = None;
    }
}

/// Bytes of the input, then zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn one(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number, often small.
    fn number(&mut self) -> i64 {
        match self.one() {
            255 => i64::from_le_bytes(std::array::from_fn(|_| self.one())),
            254 => i64::MAX,
            253 => i64::MIN,
            small => i64::from(small),
        }
    }

    fn of<'b>(&mut self, all: &[&'b [u8]]) -> &'b [u8] {
        all[usize::from(self.one()) % all.len()]
    }

    fn row(&mut self) -> Row<'static> {
        Row {
            name: self.of(&[NAME, b"another", b""]),
            slot: self.of(&OWNERS),
            owner: self.of(&OWNERS),
            role: self.of(&ROLES),
            token: self.number(),
            ttl_ms: self.number() as u32,
            timestamp_us: self.number(),
        }
    }
}

/// Tries one input.
pub fn run(data: &[u8]) {
    let shard = shard_of(NAME);
    let mut locks = Locks::new(Limits::default());
    let (mut bytes, mut heard) = (Bytes(data), Heard::default());
    let mut now = Now { boot_ns: 1_000_000_000, wall_us: 1_000 };
    let lease = Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX };
    locks.set_lease(now, lease, &mut heard);
    locks.gain(now, shard, 0, 0, &mut heard);
    for ticket in 0..64 {
        if bytes.0.is_empty() {
            break;
        }
        step(&mut locks, &mut now, ticket, shard, &mut bytes, &mut heard);
        let mut modes = Vec::new();
        locks.queue(now, Namespace::Durable, NAME, |holder, _| {
            modes.extend((holder.fence != 0).then_some(holder.mode));
            true
        });
        assert!(modes.len() < 2 || !modes.contains(&Mode::Exclusive), "{modes:?}");
    }
    locks.lose(shard, &mut heard);
    assert!(heard.open.is_empty(), "not answered: {:?}", heard.open.keys());
    assert!(locks.is_empty() && locks.holds() == 0 && locks.requests() == 0);
}

fn step(
    locks: &mut Locks,
    now: &mut Now,
    ticket: u64,
    shard: u8,
    bytes: &mut Bytes<'_>,
    heard: &mut Heard,
) {
    let operation = bytes.one();
    match operation % 10 {
        0..=3 => {
            let (owner, role) = (bytes.of(&OWNERS[1..]), bytes.of(&ROLES));
            let asked = Asked {
                namespace: Namespace::Durable,
                name: NAME,
                role,
                owner,
                ticket: Ticket(ticket),
            };
            heard.open.insert(ticket, None);
            let ttl_ms = bytes.number() as u32;
            let handle = match operation % 10 {
                0 => {
                    let mode =
                        if bytes.one().is_multiple_of(2) { Mode::Exclusive } else { Mode::Shared };
                    let wait_ms = u32::from(bytes.one());
                    locks.acquire(*now, &asked, mode, (ttl_ms, wait_ms), heard)
                }
                1 => locks.renew(*now, &asked, None, (ttl_ms, None), heard),
                2 => locks.release(*now, &asked, None, bytes.one() == 1, heard),
                _ => locks.look(*now, &asked, heard),
            };
            if let Some(open) = heard.open.get_mut(&ticket) {
                *open = handle;
            }
        }
        4 | 5 => {
            let Some(load) = heard.loads.pop() else { return };
            // Each row once, in the table's order, also over several pages, as a node guarantees.
            let mut rows: Vec<Row<'static>> = (0..bytes.one() % 8).map(|_| bytes.row()).collect();
            let key = |row: &Row<'static>| (row.name, row.slot);
            rows.sort_by_key(key);
            rows.dedup_by_key(|row| key(row));
            rows.retain(|row| heard.read.is_none_or(|read| key(row) > read));
            heard.read = rows.last().map(key).or(heard.read);
            let last = operation % 10 == 4;
            locks.loaded(*now, load, rows.into_iter(), last, heard);
            if !last {
                heard.loads.push(load);
            }
        }
        6 => {
            if let Some(load) = heard.loads.pop() {
                locks.load_failed(load, heard);
            }
        }
        7 => {
            let Some(write) = heard.writes.pop() else { return };
            let written = [Written::Acknowledged, Written::Unknown, Written::NotSent]
                [usize::from(bytes.one()) % 3];
            locks.written(*now, write, written, heard);
        }
        8 => {
            now.boot_ns += u64::from(bytes.one()) * 50_000_000;
            while locks.tick(*now, heard) {}
        }
        _ => {
            if bytes.one().is_multiple_of(4) {
                locks.lose(shard, heard);
                locks.gain(*now, shard, 0, 0, heard);
            } else if let Some((ticket, Some(handle))) = heard.open.pop_first() {
                _ = ticket;
                locks.cancel(*now, handle, heard);
            }
        }
    }
}
