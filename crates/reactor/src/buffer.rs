//! The loop's pool of byte buffers. A connection holds a buffer only while it has bytes in it, so
//! idle connections cost none, and the few buffers in use stay warm in the cache (last in, first
//! out). The pool keeps buffers by size class: a reply of 100 bytes must not sit in a buffer that
//! once held a megabyte.
//!
//! A burst leaves many buffers behind, and each of them grows to the largest message it ever
//! carries. So the pool gives the buffers that a class did not need for a while back to the
//! allocator, the coldest first: memory follows the load down again.

/// Capacity of the smallest class; each next class is eight times larger: 1 KB, 8 KB, 64 KB, 512
/// KB, 4 MB.
const CLASS_BYTES_MIN: usize = 1 << 10;
const CLASS_SHIFT: u32 = 3;
const CLASSES: usize = 5;
/// Classes searched for a buffer: one up to 512 times too large is not searched.
const CLASSES_TRIED: usize = 3;
/// Largest buffer kept; larger ones go back to the allocator.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// Least interval between trims.
const TRIM_NS: u64 = 5_000_000_000;
/// Bytes freed at once from which the pool tells the operating system.
const GIVEN_BACK_MIN: usize = 256 << 10;
/// Bytes that may lie idle for ever: steady load never asks the allocator.
const IDLE_BYTES_KEPT: usize = 1 << 20;

/// Buffers of one size class.
struct Class {
    /// Idle buffers; the one used last is at the end.
    idle: Vec<Vec<u8>>,
    /// Minimum of the idle buffers since the last trim, which were not needed.
    spare: usize,
}

impl Class {
    #[inline]
    fn pop(&mut self) -> Option<Vec<u8>> {
        let buffer = self.idle.pop();
        self.spare = self.spare.min(self.idle.len());
        buffer
    }
}

/// Buffers ready for use, bounded in total bytes.
pub(crate) struct Pool {
    classes: [Class; CLASSES],
    bytes: usize,
    bytes_max: usize,
    trim_at_ns: u64,
    /// Time of the last large release, until it has reached the operating system.
    freed_much_ns: Option<u64>,
}

impl Pool {
    pub(crate) fn new(bytes_max: usize) -> Pool {
        let class = |_| Class { idle: Vec::with_capacity(256), spare: 0 };
        Pool {
            classes: std::array::from_fn(class),
            bytes: 0,
            bytes_max,
            trim_at_ns: 0,
            freed_much_ns: None,
        }
    }

    /// Takes an empty buffer for about `expected` bytes. If the right class has none, a somewhat
    /// larger one is as good: buffers that grew while they were filled would otherwise pile up
    /// there.
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
        for larger in
            &mut self.classes[(class + 1).min(CLASSES)..(class + CLASSES_TRIED).min(CLASSES)]
        {
            if let Some(buffer) = larger.pop() {
                self.bytes -= buffer.capacity();
                return buffer;
            }
        }
        Vec::with_capacity(expected.max(CLASS_BYTES_MIN << (class as u32 * CLASS_SHIFT)))
    }

    /// Takes an empty buffer for bytes that may lie for long: one that is not much larger, except
    /// for a few bytes. The pool's own may be hundreds of times as large.
    pub(crate) fn take_close(&mut self, bytes: usize) -> Vec<u8> {
        let most = (2 * bytes).max(CLASS_BYTES_MIN << CLASS_SHIFT);
        let buffer = self.take(bytes);
        if buffer.capacity() <= most {
            return buffer;
        }
        self.put(buffer);
        Vec::with_capacity(bytes)
    }

    /// Takes a buffer back and forgets its contents. Frees it beyond the bounds.
    #[inline]
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if !(CLASS_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&capacity)
            || self.bytes + capacity > self.bytes_max
        {
            return;
        }
        buffer.clear();
        self.bytes += capacity;
        self.classes[class_of(capacity)].idle.push(buffer);
    }

    /// Frees, once in a while, half of the buffers that no class needed since the last time, as
    /// long as more than a little is idle.
    #[inline]
    pub(crate) fn trim(&mut self, now_ns: u64) {
        if now_ns >= self.trim_at_ns {
            self.trim_at_ns = now_ns.saturating_add(TRIM_NS);
            self.free_spare(now_ns);
        }
    }

    /// Time of the last large release that the operating system should get, until
    /// [`given_back`](Pool::given_back) is called.
    #[inline]
    pub(crate) fn freed_much_ns(&self) -> Option<u64> {
        self.freed_much_ns
    }

    pub(crate) fn given_back(&mut self) {
        self.freed_much_ns = None;
    }

    #[cold]
    fn free_spare(&mut self, now_ns: u64) {
        let before = self.bytes;
        for class in self.classes.iter_mut().rev() {
            let mut freed = 0;
            for buffer in &class.idle[..class.spare.div_ceil(2)] {
                if self.bytes <= IDLE_BYTES_KEPT {
                    break;
                }
                self.bytes -= buffer.capacity();
                freed += 1;
            }
            class.idle.drain(..freed);
            class.spare = class.idle.len();
        }
        if before - self.bytes >= GIVEN_BACK_MIN {
            self.freed_much_ns = Some(now_ns);
        }
    }

    /// Bytes lying idle in the pool.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The smallest class in which every buffer holds `bytes` (the largest class for anything beyond
/// it).
#[inline]
fn class_for(bytes: usize) -> usize {
    if bytes <= CLASS_BYTES_MIN {
        return 0;
    }
    let steps = bytes.saturating_sub(1) >> CLASS_BYTES_MIN.trailing_zeros();
    let class = (usize::BITS - steps.leading_zeros()).div_ceil(CLASS_SHIFT) as usize;
    class.min(CLASSES - 1)
}

/// The class of a buffer of this capacity, which is at least that of the class.
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
        for expected in
            [0, 1, 1023, 1024, 1025, 8192, 8193, 65536, 65537, 524_288, 524_289, 4 << 20]
        {
            let buffer = pool.take(expected);
            assert!(buffer.capacity() >= expected && buffer.is_empty(), "{expected}");
            pool.put(buffer);
            let again = pool.take(expected);
            assert!(again.capacity() >= expected, "{expected}");
            pool.put(again);
        }
    }

    #[test]
    fn a_buffer_to_lie_for_long_is_not_much_larger_than_asked_for() {
        let mut pool = Pool::new(64 << 20);
        let large = [60_000, 500_000].map(|bytes| pool.take(bytes));
        large.into_iter().for_each(|buffer| pool.put(buffer));
        let before = pool.bytes();
        for bytes in [1, 1_000, 8_192, 8_193, 8_300, 16_600, 65_536] {
            let capacity = pool.take_close(bytes).capacity();
            assert!((bytes..=(2 * bytes).max(8 << 10)).contains(&capacity), "{bytes}: {capacity}");
        }
        assert!(pool.bytes() + 65_536 >= before, "the large ones stay for others");
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
    fn a_bursts_buffers_are_given_back_and_those_in_use_stay() {
        let mut pool = Pool::new(64 << 20);
        let burst: Vec<_> = (0..1000).map(|_| pool.take(30_000)).collect();
        burst.into_iter().for_each(|buffer| pool.put(buffer));
        let after_burst = pool.bytes();
        let mut warmest = std::ptr::null();
        for round in 1..=20 {
            let in_use: Vec<_> = (0..10).map(|_| pool.take(30_000)).collect();
            warmest = in_use[9].as_ptr();
            in_use.into_iter().rev().for_each(|buffer| pool.put(buffer));
            pool.trim(round * TRIM_NS);
            pool.trim(round * TRIM_NS + 1); // too early to count
        }
        assert!(after_burst > 20 * IDLE_BYTES_KEPT, "{after_burst}");
        assert!(pool.freed_much_ns().is_some());
        pool.given_back();
        assert_eq!(pool.freed_much_ns(), None);
        assert!(pool.bytes() <= IDLE_BYTES_KEPT, "{}", pool.bytes());
        let again: Vec<_> = (0..10).map(|_| pool.take(30_000)).collect();
        assert_eq!(again[9].as_ptr(), warmest);
    }

    #[test]
    fn a_class_that_was_emptied_since_the_last_trim_loses_nothing() {
        let mut pool = Pool::new(64 << 20);
        pool.trim(1);
        for round in 1..=5 {
            let all: Vec<_> = (0..100).map(|_| pool.take(60_000)).collect();
            all.into_iter().for_each(|buffer| pool.put(buffer));
            let before = pool.bytes();
            pool.trim(round * 2 * TRIM_NS);
            if round > 1 {
                assert_eq!(pool.bytes(), before);
            }
        }
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
