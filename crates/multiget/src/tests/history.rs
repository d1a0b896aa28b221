//! History of values.

use std::collections::BTreeMap;

/// All writes by key: time and version; `None` for a deletion.
#[derive(Debug, Default)]
pub(super) struct History {
    writes: BTreeMap<Vec<u8>, Vec<(u64, Option<u64>)>>,
}

/// The value of a version: some do not fit a datagram.
pub(super) fn value(key: &[u8], version: u64) -> Vec<u8> {
    let mut value = [key, b"=", version.to_string().as_bytes(), b";"].concat();
    match version % 10 {
        0 => value.resize(2_000, b'.'),
        1..=3 => value.resize(600, b'.'),
        _ => {}
    }
    value
}

impl History {
    pub(super) fn write(&mut self, now_ns: u64, key: &[u8], version: Option<u64>) {
        self.writes.entry(key.to_vec()).or_insert_with(|| vec![(0, None)]).push((now_ns, version));
    }

    pub(super) fn now(&self, key: &[u8]) -> Option<u64> {
        self.writes.get(key).and_then(|writes| writes.last()).and_then(|(_, version)| *version)
    }

    /// True if the key had this value at some moment between the two.
    pub(super) fn was_current(
        &self,
        key: &[u8],
        found: Option<&[u8]>,
        from_ns: u64,
        to_ns: u64,
    ) -> bool {
        let nothing = vec![(0, None)];
        let writes = self.writes.get(key).unwrap_or(&nothing);
        writes.iter().enumerate().any(|(index, (begins_ns, version))| {
            let ends_ns = writes.get(index + 1).map_or(u64::MAX, |(at_ns, _)| *at_ns);
            let is_it = match (version, found) {
                (None, None) => true,
                (Some(version), Some(found)) => value(key, *version) == found,
                _ => false,
            };
            is_it && *begins_ns <= to_ns && ends_ns >= from_ns
        })
    }
}
