//! The end of a turn: completes frames and segments just before the loop writes each link's buffer
//! in one system call. A frame that should gather more queries stays open.

use shunt_reactor::Io;

use crate::context::Context;
use crate::limits;
use crate::link::links::Links;
use crate::link::{Link, LinkWriter};

/// Timer of a frame that has gathered long enough.
pub(crate) const GATHER_TIMER: u64 = 2;

/// Completes the frames and segments of all links; returns the number of queries sent.
#[inline]
pub(crate) fn links(links: &mut Links, context: &Context, io: &mut Io) -> u32 {
    let (now, gather_ns) = (io.now_ns(), context.config.gather_us * 1_000);
    let mut queries = 0;
    let mut position = 0;
    let mut next_ns = u64::MAX;
    while let Some(&key) = links.dirty.get(position) {
        let Some(link) = links.get_mut(key).filter(|link| link.dirty) else {
            links.dirty.swap_remove(position);
            continue;
        };
        if gathers(link, now, gather_ns) {
            io.hold(link.conn, true);
            next_ns = next_ns.min(link.dirty_since_ns + gather_ns);
            position += 1;
            continue;
        }
        (link.dirty, link.urgent) = (false, false);
        match &mut link.writer {
            LinkWriter::Envelopes => {}
            LinkWriter::Segments(writer) => writer.finish(io.output(link.conn)),
            LinkWriter::Aggregate(writer) => {
                io.hold(link.conn, false);
                writer.finish(io.output(link.conn));
                context.metrics.aggregated_frames.add(u64::from(writer.take_frames()));
            }
        }
        let (count, node) = (std::mem::take(&mut link.queries_unflushed), link.node);
        queries += count;
        links.dirty.swap_remove(position);
        if let Some(node) = links.node(node) {
            node.metrics.queries.add(u64::from(count));
            node.metrics.in_flight.set(u64::from(node.in_flight));
            if count > 0 {
                node.metrics.writes.add(1);
                context.metrics.queries_per_write.record(u64::from(count));
            }
        }
    }
    if next_ns < links.gather_timer_ns {
        links.gather_timer_ns = next_ns;
        io.set_timer(next_ns, GATHER_TIMER);
    }
    queries
}

/// True if the open frame should wait for more queries.
///
/// A node takes the frames of a link one after the other, so while it works on one, a fuller next
/// frame is worth more than an earlier one. The frame goes out once it has as many queries as are
/// unanswered (which bounds the wait by the time the node needs anyway), once it has enough queries
/// to spread its cost, or after `gather_ns`.
#[inline]
fn gathers(link: &Link, now_ns: u64, gather_ns: u64) -> bool {
    let LinkWriter::Aggregate(writer) = &link.writer else { return false };
    let gathered = writer.count() as usize;
    let unanswered = link.unanswered().saturating_sub(gathered);
    gathered < unanswered.min(limits::FRAME_GATHERED_MAX)
        && unanswered >= limits::FRAME_GATHER_UNANSWERED_MIN
        && !link.urgent
        && !link.full
        && !writer.has_frames()
        && now_ns < link.dirty_since_ns.saturating_add(gather_ns)
}
