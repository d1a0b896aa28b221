//! The loop's pool of byte buffers. A connection holds a buffer only while it has bytes in it, so idle connections
//! cost none, and the few buffers in use stay warm in the cache (last in, first out). Buffers are kept by size class:
//! a reply of 100 bytes must not sit in a buffer that once held a megabyte.

/// Capacity of the smallest class; each next class is eight times larger: 1 KB, 8 KB, 64 KB, 512 KB, 4 MB.
const CLASS_BYTES_MIN: usize = 1 << 10;
const CLASS_SHIFT: u32 = 3;
const CLASSES: usize = 5;
/// So many classes are looked into for a buffer: one up to 512 times too large is not.
const CLASSES_TRIED: usize = 3;
/// Larger buffers go back to the allocator.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// Buffers ready for use, bounded in total bytes.
pub(crate) struct Pool {
    classes: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
    bytes_max: usize,
}

impl Pool {
    pub(crate) fn new(bytes_max: usize) -> Pool {
        Pool { classes: std::array::from_fn(|_| Vec::with_capacity(256)), bytes: 0, bytes_max }
    }

    /// An empty buffer for about `expected` bytes. If there is none of the right class, a somewhat larger one is as
    /// good: buffers that grew while they were filled would otherwise pile up there.
    #[inline]
    pub(crate) fn take(&mut self, expected: usize) -> Vec<u8> {
        let class = class_for(expected);
        match self.classes[class].pop() {
            Some(buffer) => {
                self.bytes -= buffer.capacity();
                buffer
            }
            None => self.take_larger(class, expected),
        }
    }

    #[cold]
    fn take_larger(&mut self, class: usize, expected: usize) -> Vec<u8> {
        for larger in &mut self.classes[(class + 1).min(CLASSES)..(class + CLASSES_TRIED).min(CLASSES)] {
            if let Some(buffer) = larger.pop() {
                self.bytes -= buffer.capacity();
                return buffer;
            }
        }
        Vec::with_capacity(expected.max(CLASS_BYTES_MIN << (class as u32 * CLASS_SHIFT)))
    }

    /// Takes a buffer back; its contents are forgotten. Beyond the bounds it is freed.
    #[inline]
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if !(CLASS_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&capacity) || self.bytes + capacity > self.bytes_max {
            return;
        }
        buffer.clear();
        self.bytes += capacity;
        self.classes[class_of(capacity)].push(buffer);
    }

    /// Bytes lying idle in the pool.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The smallest class whose every buffer holds `bytes` (the largest class for anything beyond it).
#[inline]
fn class_for(bytes: usize) -> usize {
    if bytes <= CLASS_BYTES_MIN {
        return 0;
    }
    let steps = bytes.saturating_sub(1) >> CLASS_BYTES_MIN.trailing_zeros();
    let class = (usize::BITS - steps.leading_zeros()).div_ceil(CLASS_SHIFT) as usize;
    class.min(CLASSES - 1)
}

/// The class a buffer of this capacity belongs to: it is at least as large as the class says.
#[inline]
fn class_of(capacity: usize) -> usize {
    if capacity < CLASS_BYTES_MIN << CLASS_SHIFT {
        return 0;
    }
    let class = ((capacity / CLASS_BYTES_MIN).ilog2() / CLASS_SHIFT) as usize;
    class.min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_at_least_as_large_as_asked_for() {
        let mut pool = Pool::new(64 << 20);
        for expected in [0, 1, 1023, 1024, 1025, 8192, 8193, 65536, 65537, 524_288, 524_289, 4 << 20] {
            let buffer = pool.take(expected);
            assert!(buffer.capacity() >= expected && buffer.is_empty(), "{expected}");
            pool.put(buffer);
            let again = pool.take(expected);
            assert!(again.capacity() >= expected, "{expected}");
            pool.put(again);
        }
    }

    #[test]
    fn a_returned_buffer_is_used_again() {
        let mut pool = Pool::new(1 << 20);
        let mut buffer = pool.take(100);
        buffer.extend_from_slice(b"abc");
        let address = buffer.as_ptr();
        pool.put(buffer);
        let again = pool.take(100);
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty());
    }

    #[test]
    fn the_pool_is_bounded_in_bytes() {
        let mut pool = Pool::new(10_000);
        let buffers: Vec<_> = (0..20).map(|_| pool.take(1024)).collect();
        for buffer in buffers {
            pool.put(buffer);
        }
        assert!(pool.bytes() <= 10_000);
        pool.put(Vec::with_capacity(BUFFER_BYTES_MAX + 1));
        assert!(pool.bytes() <= 10_000);
    }

    #[test]
    fn a_large_buffer_is_not_given_out_for_a_small_reply() {
        let mut pool = Pool::new(64 << 20);
        let large = pool.take(600_000);
        pool.put(large);
        assert!(pool.take(100).capacity() < 8192);
        let mut pool = Pool::new(64 << 20);
        let somewhat_larger = pool.take(9000);
        let address = somewhat_larger.as_ptr();
        pool.put(somewhat_larger);
        let small = pool.take(100);
        assert_eq!(small.as_ptr(), address);
    }
}
