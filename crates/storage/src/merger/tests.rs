//! Cost of merging very many fragments: counted, not timed.

use super::*;
use crate::catalogue::Limits;
use crate::row::{Cell, CellValue, ColumnId, Cut, Deletion, PartitionKey, RangeTombstone};
use allocation_counter::measure;

fn merger() -> RowMerger {
    RowMerger {
        catalogue: Arc::new(Catalogue::in_memory(Limits::default())),
        grace: Arc::default(),
        clock: Arc::new(|| 0),
        rewrites: None,
        broken: AtomicU64::new(0),
        looks_for_schemas: AtomicBool::new(false),
    }
}

fn key(target: Target<'_>) -> Vec<u8> {
    key::record(TableId(1), PartitionKey(&[0; 9]), target).unwrap()
}

/// Bytes that merging `count` fragments allocates: data copied repeatedly is also allocated
/// repeatedly.
fn cost(count: u32, key: &[u8], fragment: impl Fn(u32, &Catalogue) -> Vec<u8>) -> u64 {
    let merger = merger();
    // Shuffled, so that no fragment continues the previous one.
    let fragments: Vec<Vec<u8>> =
        (0..count).map(|number| fragment(number * 7919 % count, &merger.catalogue)).collect();
    let parts: Vec<&[u8]> = fragments.iter().map(Vec::as_slice).collect();
    let mut merged = [0, 0];
    let spent = measure(|| {
        merged = [
            merger.merge(key, None, &parts, true).len(),
            merger.merge_fragments(key, &parts).unwrap().len(),
        ];
    });
    assert!(
        merged[0] > count as usize * 4 && merged[0] == merged[1],
        "{count} fragments became {merged:?} bytes"
    );
    spent.bytes_total
}

fn grows_like_its_work(key: &[u8], fragment: impl Fn(u32, &Catalogue) -> Vec<u8>) {
    let (few, many) = (cost(500, key, &fragment), cost(4_000, key, &fragment));
    // Eight times as many: a logarithm may make it twelve times, a square makes it 64.
    assert!(many < few * 16, "500 fragments take {few} bytes, 4,000 take {many}");
}

#[test]
fn headers_of_many_ranges_cost_what_their_ranges_cost() {
    grows_like_its_work(&key(Target::Header), |number, _| {
        let at = |number: u32| number.to_be_bytes().to_vec();
        let deletion = Deletion { timestamp: i64::from(number), local: 1 };
        let range = RangeTombstone {
            start: Cut::Before(at(number * 2)),
            end: Cut::Before(at(number * 2 + 1)),
            deletion,
        };
        let mut out = Vec::new();
        encode_header(&Header { deletion: None, ranges: vec![range] }, &mut out);
        out
    });
}

#[test]
fn collections_of_many_elements_cost_what_their_elements_cost() {
    grows_like_its_work(&key(Target::Row(b"r")), |number, catalogue| {
        let path = Some(number.to_be_bytes().to_vec());
        let value = CellValue::Live(b"v".to_vec());
        let cell = Cell { column: ColumnId(1), path, timestamp: 1, expiry: None, value };
        let mut out = Vec::new();
        encode_row(&Row { cells: vec![cell], ..Row::default() }, TableId(1), catalogue, &mut out);
        out
    });
}
