//! Bytes of clients before they are decoded: a compressed segment counts with the size that it
//! claims.

use shunt_reactor::Io;
use shunt_wire::cql::frame_v5::claimed_part;

use crate::client::Stall;
use crate::core::Core;
use crate::decode;
use crate::ids::ClientRef;
use crate::limits;
use crate::link::waiting;
use crate::tenants::waiting as tenants;

/// Reads on from clients that were held and no longer are, one after the other: bytes that the
/// reactor kept are read here, because in the next turn they would come all at once, and the first
/// client would take the room of all.
pub(crate) fn read_on(core: &mut Core, io: &mut Io) {
    loop {
        while let Some(woken) = core.clients.wake.pop_front() {
            read_on_from(core, io, woken);
        }
        if !waiting::unstall_next(core, io) && !tenants::unstall_next(core, io) {
            return;
        }
    }
}

fn read_on_from(core: &mut Core, io: &mut Io, woken: ClientRef) {
    let Some(client) = core.clients.find_mut(woken).filter(|client| !client.stalls.any()) else {
        return;
    };
    let conn = client.conn;
    if client.partial_since_ns != 0 {
        // The proxy held up the missing bytes; the client's time begins now.
        client.partial_since_ns = io.now_ns();
    }
    // The request that had to wait comes first: what a turn allows is meant for it, and not for the
    // segments behind it.
    if client.reader.carried_bytes() > 0 {
        decode::read(core, io, woken.slot, &[]);
    }
    let is_free = |core: &Core| core.clients.find(woken).is_some_and(|client| !client.stalls.any());
    if is_free(core) {
        let kept = io.take_kept(conn);
        if !kept.bytes().is_empty() {
            let used = received(core, io, woken.slot, kept.bytes());
            io.return_kept(conn, kept, used);
        }
    }
    if is_free(core) {
        io.resume_reading(conn);
    }
}

/// Handles bytes from a client; returns how many of them it consumed.
#[inline]
pub(crate) fn received(core: &mut Core, io: &mut Io, slot: u32, data: &[u8]) -> usize {
    let used = match core.clients.get(slot) {
        Some(client) if client.lz4 => inflate(core, io, slot, data),
        _ => decode::read(core, io, slot, data),
    };
    core.context.metrics.client_bytes_in.add(used as u64);
    used
}

/// Decompresses as many LZ4 segments as this turn may. A client that sent more waits in line for
/// that many bytes; other segments may have arrived when its turn comes.
#[inline(never)]
fn inflate(core: &mut Core, io: &mut Io, slot: u32, data: &[u8]) -> usize {
    let is_free = |core: &Core| {
        core.clients.get(slot).is_some_and(|client| client.segmented && !client.stalls.any())
    };
    if !is_free(core) {
        return decode::read(core, io, slot, data);
    }
    let (part_bytes, claimed) = claimed_part(data, limits::HEAVY_TURN_BYTES_MAX);
    if !core.clients.may_read(slot, claimed) {
        core.clients.wait_as_heavy(&core.router.pools, slot, limits::HEAVY_TURN_BYTES_MAX);
        core.clients.stall(&core.context.metrics, io, slot, Stall::HEAVY);
        return 0;
    }
    let (part, rest) = data.split_at(part_bytes);
    let used = decode::read(core, io, slot, part);
    if !rest.is_empty() && used == part.len() && is_free(core) {
        core.clients.wait_as_heavy(&core.router.pools, slot, limits::HEAVY_TURN_BYTES_MAX);
        core.clients.stall(&core.context.metrics, io, slot, Stall::HEAVY);
    }
    used
}
