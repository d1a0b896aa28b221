//! Random operations against a map as the engine: the cache always agrees with the map.

use std::collections::HashMap;

use super::*;

const TABLES: u64 = 3;
const ROWS: u64 = 1_500;

/// A cache, the engine behind it, and reads of both in progress.
struct Model {
    seed: u64,
    random: Random,
    disk: Disk,
    cache: RowCache,
    engine: HashMap<Vec<u8>, Vec<u8>>,
    tickets: Vec<(SsdTicket, Option<Vec<u8>>)>,
    fills: Vec<(FillToken, Vec<u8>, Option<Vec<u8>>)>,
    hits: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let disk = Disk::default();
        let cache = Self::open(&disk, seed);
        let engine = HashMap::new();
        let random = Random::new(seed);
        let mut model = Model {
            seed,
            random,
            disk,
            cache,
            engine,
            tickets: Vec::new(),
            fills: Vec::new(),
            hits: 0,
        };
        for (table, row) in
            (0..TABLES as u32).flat_map(|table| (0..ROWS).map(move |row| (table, row)))
        {
            let record = model.any_record();
            model.engine.insert(key_of(table, row), record);
        }
        model
    }

    fn open(disk: &Disk, seed: u64) -> RowCache {
        let mut ssd = small_ssd(3 + seed % 6);
        ssd.admission =
            if seed.is_multiple_of(2) { SsdAdmission::All } else { SsdAdmission::ReadAgain };
        open_on(disk, (256 << 10) << (seed % 2), ssd)
    }

    /// A few rows are requested often.
    fn any_key(&mut self) -> Vec<u8> {
        let end = 1 + self.random.below(ROWS);
        let row = self.random.below(end);
        key_of(self.random.below(TABLES) as u32, row)
    }

    /// Mostly small, some larger than a page.
    fn any_record(&mut self) -> Vec<u8> {
        let bytes = match self.random.below(20) {
            0 => self.random.below(60_000),
            1..3 => self.random.below(9_000),
            _ => self.random.below(1_000),
        };
        let mut record = vec![self.random.next() as u8; bytes as usize + 8];
        record[..8].copy_from_slice(&self.random.next().to_le_bytes());
        record
    }

    fn check(&mut self, key: &[u8], row: &CachedRow) {
        self.hits += 1;
        assert_eq!(
            row.record(),
            self.engine.get(key).map(|row| &row[..]),
            "seed {}, key {key:?}",
            self.seed
        );
    }

    fn read(&mut self) {
        let key = self.any_key();
        match self.cache.lookup(&key) {
            Lookup::Hit(row) => self.check(&key, &row),
            Lookup::OnSsd(ticket) if self.random.one_in(4) => {
                let now = self.engine.get(&key).cloned();
                self.tickets.push((ticket, now));
            }
            Lookup::OnSsd(ticket) => match self.cache.read_ssd(ticket) {
                Some(row) => self.check(&key, &row),
                None => self.fill(key),
            },
            Lookup::Miss => self.fill(key),
        }
    }

    fn fill(&mut self, key: Vec<u8>) {
        let token = self.cache.begin_fill(&key);
        let record = self.engine.get(&key).cloned();
        if self.random.one_in(4) {
            self.fills.push((token, key, record));
        } else {
            self.cache.fill(token, &key, record.as_deref());
        }
    }

    /// Ends a long read. It must not restore a row overwritten in the meantime.
    fn finish_a_read(&mut self) {
        if !self.fills.is_empty() {
            let (token, key, record) =
                self.fills.swap_remove(self.random.below(self.fills.len() as u64) as usize);
            self.cache.fill(token, &key, record.as_deref());
        }
        if !self.tickets.is_empty() {
            let (ticket, then) =
                self.tickets.swap_remove(self.random.below(self.tickets.len() as u64) as usize);
            let key = ticket.key().to_vec();
            if let Some(row) = self.cache.read_ssd(ticket) {
                assert_eq!(row.record(), then.as_deref(), "seed {}: what was looked up", self.seed);
                self.check(&key, &row);
            }
        }
    }

    fn write(&mut self) {
        let key = self.any_key();
        let record = (!self.random.one_in(5)).then(|| self.any_record());
        let how = self.random.below(4);
        let guard = (how < 2).then(|| self.cache.begin_write(&key));
        match &record {
            Some(record) => self.engine.insert(key.clone(), record.clone()),
            None => self.engine.remove(&key),
        };
        let update = |_: Option<&[u8]>| record.clone().map_or(Update::Absent, Update::Record);
        match (how, guard) {
            (0, Some(guard)) => guard.update(update),
            (_, Some(guard)) => drop(guard),
            (2, None) => self.cache.update(&key, update),
            (_, None) => self.cache.invalidate(&key),
        }
    }

    fn clear(&mut self) {
        let key = self.any_key();
        let table = &key[..4];
        self.engine.retain(|key, _| !key.starts_with(table));
        self.cache.clear_table(table);
    }

    fn step(&mut self) {
        match self.random.below(1_000) {
            0 if self.random.one_in(10) => {
                self.tickets.clear();
                self.fills.clear();
                self.cache = Self::open(&self.disk, self.seed);
            }
            1 if self.random.one_in(5) => self.cache.disable_ssd(),
            1..5 => self.cache.enable_ssd().expect("the disk is sound"),
            5 if self.random.one_in(10) => self.clear(),
            10..60 => self.cache.wait_for_cascade(),
            60..160 => self.write(),
            160..300 => self.finish_a_read(),
            _ => self.read(),
        }
    }
}

#[test]
fn the_cache_says_what_the_engine_says() {
    let (mut collected, mut rewritten) = (0, 0);
    for seed in 0..8 {
        let mut model = Model::new(seed);
        for _ in 0..20_000 {
            model.step();
        }
        let statistics = model.cache.statistics();
        collected += statistics.ssd_segments_collected;
        rewritten += statistics.ssd_rows_rewritten;
        assert!(model.hits > 500, "seed {seed}: {} hits", model.hits);
        assert_eq!(
            (statistics.ssd_read_errors, statistics.ssd_write_errors),
            (0, 0),
            "seed {seed}: a sound disk"
        );
    }
    assert!(
        collected > 12 && rewritten > 50,
        "{collected} segments were collected, {rewritten} rows in them kept"
    );
}
