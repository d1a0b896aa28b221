//! Bytes of clients before they are decoded: a compressed segment counts with the size that it
//! claims.

use shunt_reactor::Io;
use shunt_wire::cql::frame_v5::claimed_part;

use crate::client::Stall;
use crate::core::Core;
use crate::decode;
use crate::limits;

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
        core.clients.wait_as_heavy(slot, limits::HEAVY_TURN_BYTES_MAX);
        core.clients.stall(&core.context.metrics, io, slot, Stall::HEAVY);
        return 0;
    }
    let (part, rest) = data.split_at(part_bytes);
    let used = decode::read(core, io, slot, part);
    if !rest.is_empty() && used == part.len() && is_free(core) {
        core.clients.wait_as_heavy(slot, limits::HEAVY_TURN_BYTES_MAX);
        core.clients.stall(&core.context.metrics, io, slot, Stall::HEAVY);
    }
    used
}
