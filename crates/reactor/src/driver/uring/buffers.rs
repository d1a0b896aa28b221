//! Receive buffers that the kernel picks from when bytes arrive, so that idle connections hold
//! none. With incremental consumption (Linux 6.12) many small messages share one buffer.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::ring::Ring;

/// The only buffer group.
pub(super) const GROUP: u16 = 0;
const PAGE_BYTES: usize = 4096;
/// `IOU_PBUF_RING_INC`.
const INCREMENTAL: u16 = 2;

/// Page-aligned memory.
struct Pages {
    start: *mut u8,
    layout: Layout,
}

impl Pages {
    fn new(bytes: usize) -> Pages {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE_BYTES), PAGE_BYTES)
            .unwrap_or_else(|_| panic!("{bytes} bytes of receive buffers"));
        // SAFETY: the layout is not empty: both uses ask for at least one entry.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Pages { start, layout }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start, self.layout) }
    }
}

/// The buffers and the ring that offers them to the kernel. Must not be dropped before the io_uring
/// it is registered with.
pub(super) struct Buffers {
    ring: Pages,
    memory: Pages,
    count: u16,
    buffer_bytes: usize,
    /// Next entry to fill; free-running.
    tail: u16,
    /// Bytes used of each buffer.
    offsets: Vec<u32>,
}

impl Buffers {
    /// Registers the buffers: few large ones if the kernel can use them piecemeal, else many small
    /// ones.
    pub(super) fn new(ring: &Ring) -> io::Result<Buffers> {
        Buffers::register(ring, 32, 64 << 10, INCREMENTAL)
            .or_else(|_| Buffers::register(ring, 256, 16 << 10, 0))
    }

    fn register(ring: &Ring, count: u16, buffer_bytes: usize, flags: u16) -> io::Result<Buffers> {
        let mut buffers = Buffers {
            ring: Pages::new(usize::from(count) * size_of::<BufRingEntry>()),
            memory: Pages::new(usize::from(count) * buffer_bytes),
            count,
            buffer_bytes,
            tail: 0,
            offsets: vec![0; usize::from(count)],
        };
        // SAFETY: the ring's memory is page-aligned, has room for `count` entries, and outlives the
        // io_uring.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers.ring.start as u64,
                count,
                GROUP,
                flags,
            )?;
        }
        for buffer in 0..count {
            buffers.offer(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// Puts a buffer into the ring; the kernel sees it after [`publish`](Buffers::publish).
    fn offer(&mut self, buffer: u16) {
        self.offsets[usize::from(buffer)] = 0;
        let position = usize::from(self.tail & (self.count - 1));
        let offset = usize::from(buffer) * self.buffer_bytes;
        // SAFETY: the position is below the count, for which there is room; the kernel does not
        // read entries beyond the published tail. Only address, length and id are written: the
        // first entry's last field is the tail.
        unsafe {
            let entry = &mut *self.ring.start.cast::<BufRingEntry>().add(position);
            entry.set_addr(self.memory.start.add(offset) as u64);
            entry.set_len(self.buffer_bytes as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail lies inside the first entry, is aligned for u16, and is shared with the
        // kernel alone.
        let tail = unsafe {
            &*BufRingEntry::tail(self.ring.start.cast::<BufRingEntry>()).cast::<AtomicU16>()
        };
        tail.store(self.tail, Ordering::Release);
    }

    /// The bytes of a completion that used `buffer`.
    #[inline]
    pub(super) fn bytes(&self, buffer: u16, length: usize) -> &[u8] {
        let offset = self.offsets[usize::from(buffer)] as usize;
        assert!(offset + length <= self.buffer_bytes);
        // SAFETY: inside the memory by the assertion and the index above; initialised (zeroed, then
        // written by the kernel), and not written again before `used`.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.start.add(usize::from(buffer) * self.buffer_bytes + offset),
                length,
            )
        }
    }

    /// Marks the bytes as handled. With `more` the kernel goes on filling this buffer after them.
    #[inline]
    pub(super) fn used(&mut self, buffer: u16, length: usize, more: bool) {
        if more {
            self.offsets[usize::from(buffer)] += length as u32;
        } else {
            self.offer(buffer);
            self.publish();
        }
    }
}
