//! Proxies delete obsolete rows, including a proxy that has lost the shard and does not know it.

use super::{LEASE_MS, Said, World};
use crate::types::{Write, WriteId};

impl World {
    /// A proxy reads the rows of a lock's partition to delete obsolete ones; it may no longer be
    /// the owner.
    pub(super) fn sweep(&mut self) {
        let proxy = self.random.below(2) as usize;
        let bucket = crate::bucket_of(&self.names[self.random.below(2) as usize]);
        let Some(known) = self.proxies[proxy].locks.known(bucket) else {
            return self.read_ahead(proxy, bucket);
        };
        let mut newest: Vec<(Vec<u8>, i64)> = Vec::new();
        for ((name, _), stored) in self.store.read(bucket, &mut self.random) {
            match newest.last_mut() {
                Some((of, newest_us)) if *of == name => {
                    *newest_us = stored.timestamp_us().max(*newest_us)
                }
                _ => newest.push((name, stored.timestamp_us())),
            }
        }
        let slow = self.random.one_in(10);
        let at_ms = self.now_ms + self.random.below(if slow { 3 * LEASE_MS } else { 100 });
        self.proxies[proxy].swept.push((at_ms, known, newest));
    }

    /// Reads a partition without a request.
    fn read_ahead(&mut self, proxy: usize, bucket: u16) {
        let (now, mut said) = (self.now(proxy), Said::default());
        self.proxies[proxy].locks.read_ahead(now, bucket, &mut said);
        self.take_up(proxy, said);
    }

    pub(super) fn delete_unneeded(&mut self, proxy: usize) {
        let (now, now_ms) = (self.now(proxy), self.now_ms);
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.proxies[proxy].swept)
            .into_iter()
            .partition(|(at_ms, ..)| *at_ms <= now_ms);
        self.proxies[proxy].swept = later;
        for (_, known, newest) in due {
            for (name, newest_us) in newest {
                let locks = &self.proxies[proxy].locks;
                let Some(unneeded) = locks.unneeded(now, known, &name, newest_us) else { continue };
                self.deletions += 1;
                let all = !self.random.one_in(3);
                let reached = if all { 3 } else { self.random.below(3) as usize };
                let what = (known.bucket, &name[..], unneeded);
                self.store.delete((now_ms, 9_000), what, reached, &mut self.random);
                if !all {
                    let (token, timestamp_us) = (unneeded.free_us, unneeded.free_us);
                    let row = crate::Row {
                        name: &name,
                        slot: b"",
                        owner: b"",
                        role: b"",
                        token,
                        ttl_ms: 0,
                        timestamp_us,
                    };
                    let (id, bucket) = (WriteId::UNWATCHED, known.bucket);
                    let write = Write { id, bucket, row, role: b"", is_release: false };
                    self.store.write((now_ms, 9_000), &write, 2, &mut self.random);
                }
            }
        }
    }
}
