//! Tests of what the store keeps, for how long, and whose statements push out whose.

use shunt_wire::cql::statement;

use super::*;

fn statement(id: u32, text: &str) -> PreparedStatement {
    let mut bytes = [0; ID_BYTES];
    bytes[..4].copy_from_slice(&id.to_le_bytes());
    PreparedStatement::opaque(&bytes, text, &statement::classify(text), None)
}

fn find(cache: &mut PreparedCache, id: u32) -> Option<u32> {
    cache.find(&statement(id, "").id)
}

fn learn(cache: &mut PreparedCache, id: u32, text: &str) -> bool {
    cache.learn(Account::default(), statement(id, text))
}

/// A text of this many bytes.
fn long(bytes: usize) -> String {
    let mut text = "SELECT ''".to_owned();
    text.extend(std::iter::repeat_n(' ', bytes - text.len()));
    text
}

#[test]
fn cores_find_statements_that_another_core_learned() {
    let store = Arc::new(PreparedStore::new());
    let (mut one, mut other) = (PreparedCache::new(Arc::clone(&store)), PreparedCache::new(store));
    assert_eq!(find(&mut other, 7), None);
    learn(&mut one, 7, "SELECT a");
    let number = find(&mut other, 7).unwrap();
    assert_eq!(other.get(number).unwrap().statement.text.as_deref(), Some("SELECT a"));
}

#[test]
fn learnt_again_it_keeps_its_number() {
    let mut cache = PreparedCache::new(Arc::default());
    assert!(learn(&mut cache, 1, "SELECT a"));
    assert!(learn(&mut cache, 2, "SELECT b"));
    let number = find(&mut cache, 1).unwrap();
    assert!(!learn(&mut cache, 1, "SELECT c"));
    assert_eq!(find(&mut cache, 1), Some(number));
    assert_eq!(cache.get(number).unwrap().statement.text.as_deref(), Some("SELECT c"));
    assert_eq!((cache.store.len(), cache.replaced), (2, 1), "what rules know of it is outdated");
}

#[test]
fn a_node_does_not_replace_a_statement_by_another() {
    let store = Arc::new(PreparedStore::new());
    let [mut one, mut other, mut new] = [(); 3].map(|()| PreparedCache::new(Arc::clone(&store)));
    let prepare = |cache: &mut PreparedCache, text: &str| {
        cache.learn_from_node(Account::default(), statement(1, text))
    };
    let write = "UPDATE ks.t SET v = 1 WHERE k = ?";
    assert_eq!(prepare(&mut one, write), Ok(true));
    for cache in [&mut one, &mut other] {
        assert_eq!(prepare(cache, "SELECT v FROM ks.t WHERE k = ?"), Err(ForeignId));
        assert_eq!(prepare(cache, "UPDATE ks.u SET v = 1 WHERE k = ?"), Err(ForeignId));
        assert_eq!(prepare(cache, write), Ok(false));
    }
    let number = find(&mut new, 1).unwrap();
    let known = new.get(number).unwrap().statement;
    assert_eq!((known.text.as_deref(), known.work), (Some(write), Work::Write));

    // Texts that are not kept are told apart too.
    let texts = ["SELECT a", "SELECT b"].map(|text| format!("{text}{}", long(1 << 17)));
    let mut prepare = |text: &str| one.learn_from_node(Account::default(), statement(2, text));
    assert_eq!(prepare(&texts[0]), Ok(true));
    assert_eq!(prepare(&texts[1]), Err(ForeignId));
    assert_eq!(prepare(&texts[0]), Ok(true));
}

#[test]
fn a_text_on_other_tables_is_another_statement() {
    let mut cache = PreparedCache::new(Arc::default());
    let mut prepare = |text: &str, keyspace: &str| {
        let id = [7; ID_BYTES];
        let parsed = statement::classify(text);
        let learned = PreparedStatement::opaque(&id, text, &parsed, Some(keyspace));
        cache.learn_from_node(Account::default(), learned)
    };
    assert_eq!(prepare("SELECT v FROM t WHERE k = ?", "one"), Ok(true));
    assert_eq!(prepare("SELECT v FROM t WHERE k = ?", "two"), Err(ForeignId));
    assert_eq!(prepare("SELECT v FROM t WHERE k = ?", "one"), Ok(false));
}

#[test]
fn the_first_leave_when_there_are_too_many() {
    let mut cache = PreparedCache::new(Arc::default());
    learn(&mut cache, 0, "SELECT a");
    let number = find(&mut cache, 0).unwrap();
    for id in 1..=limits::PREPARED_STATEMENTS_MAX as u32 {
        learn(&mut cache, id, "SELECT b");
    }
    assert_eq!((find(&mut cache, 0), cache.get(number).is_none()), (None, true));
    assert!(find(&mut cache, 1).is_some());
    assert_eq!((cache.store.len(), cache.store.evicted()), (limits::PREPARED_STATEMENTS_MAX, 1));
    learn(&mut cache, 0, "SELECT a");
    assert_ne!(find(&mut cache, 0), Some(number), "a number is never another's");
}

#[test]
fn the_first_leave_when_they_are_too_large() {
    let mut cache = PreparedCache::new(Arc::default());
    let text = long(limits::PREPARED_TEXT_BYTES_MAX);
    let count = (limits::PREPARED_BYTES_MAX / limits::PREPARED_TEXT_BYTES_MAX) as u32 + 10;
    for id in 0..count {
        learn(&mut cache, id, &text);
    }
    assert_eq!(find(&mut cache, 0), None);
    assert!(find(&mut cache, count - 1).is_some());
    assert!(
        cache.met.bytes <= limits::PREPARED_BYTES_MAX
            && cache.store.bytes() <= limits::PREPARED_BYTES_MAX
    );
    assert_eq!(cache.store.len() as u64, u64::from(count) - cache.store.evicted());
}

/// The statements of `of` that are left while others of the largest size arrive, and some are
/// executed.
fn left_after_a_flood(
    account: impl Fn(u32) -> Account,
    of: std::ops::Range<u32>,
    executed: &[u32],
) -> Vec<u32> {
    let store = Arc::new(PreparedStore::new());
    let (mut one, mut other) =
        (PreparedCache::new(Arc::clone(&store)), PreparedCache::new(Arc::clone(&store)));
    for id in of.clone() {
        one.learn(account(id), statement(id, "SELECT a"));
    }
    // Another core learns it again meanwhile: it is still one statement.
    for id in executed {
        assert!(one.look_up(&statement(*id, "").id).is_some());
        other.learn(account(*id), statement(*id, "SELECT b"));
    }
    let (text, flood) = (long(limits::PREPARED_TEXT_BYTES_MAX), account(u32::MAX));
    for id in 0..3 * (limits::PREPARED_BYTES_MAX / limits::PREPARED_TEXT_BYTES_MAX) as u32 {
        other.learn(flood, statement(1_000_000 + id, &text));
        for id in executed {
            assert!(one.look_up(&statement(*id, "").id).is_some(), "{id}");
        }
    }
    of.filter(|id| store.find(&statement(*id, "").id).is_some()).collect()
}

#[test]
fn a_flood_does_not_push_out_executed_statements() {
    assert_eq!(left_after_a_flood(|_| Account::default(), 0..10, &[3, 7]), [3, 7]);
}

#[test]
fn one_role_does_not_push_out_what_another_prepared() {
    let by_role = |id: u32| Account::of(Some(if id < 10 { b"ann" } else { b"bob" }));
    assert_eq!(left_after_a_flood(by_role, 0..10, &[]), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_role_that_has_most_statements_gives_one_up() {
    let store = Arc::new(PreparedStore::new());
    let mut cache = PreparedCache::new(Arc::clone(&store));
    let [ann, bob] = ["ann", "bob"]
        .map(|role| move |first: u32| Account::of(Some(format!("{first}\0{role}\0x").as_bytes())));
    for id in 0..100 {
        cache.learn(ann(0), statement(id, "SELECT a"));
    }
    for id in 100..100 + limits::PREPARED_STATEMENTS_MAX as u32 {
        // The first part of a login may be anything.
        cache.learn(bob(id % 7), statement(id, "SELECT b"));
    }
    assert!((0..100).all(|id| store.find(&statement(id, "").id).is_some()));
    assert_eq!((store.len(), store.evicted()), (limits::PREPARED_STATEMENTS_MAX, 100));
}

#[test]
fn a_text_that_is_too_long_is_not_kept_and_told_to_all_nodes_each_time() {
    let mut cache = PreparedCache::new(Arc::default());
    let text = long(limits::PREPARED_TEXT_BYTES_MAX + 1);
    for _ in 0..2 {
        assert!(learn(&mut cache, 1, &text));
    }
    let (_, learned) = cache.look_up(&statement(1, "").id).unwrap();
    assert_eq!((&learned.statement.text, learned.statement.work), (&None, Work::Read));
    assert!(cache.store.bytes() < 1_000);
}

#[test]
fn ids_of_another_length_are_left_to_the_node() {
    let mut cache = PreparedCache::new(Arc::default());
    let short =
        PreparedStatement::opaque(b"short", "SELECT a", &statement::classify("SELECT a"), None);
    cache.learn(Account::default(), short);
    assert_eq!((cache.find(b"short"), cache.store.len()), (None, 0));
}

/// Parsing such a text would hold the core up, and without its text the batch is no transaction.
#[test]
fn a_batch_without_a_kept_text_is_not_parsed() {
    let (begin, end) = ("BEGIN BATCH INSERT INTO ks.t (k) VALUES (?);", "APPLY BATCH");
    for (bytes, is_parsed) in
        [(limits::PREPARED_TEXT_BYTES_MAX, true), (limits::PREPARED_TEXT_BYTES_MAX + 1, false)]
    {
        let text = format!("{begin}{}{end}", " ".repeat(bytes - begin.len() - end.len()));
        let statement = statement(1, &text);
        assert_eq!(
            (statement.text.is_some(), statement.tables.is_some()),
            (is_parsed, is_parsed),
            "{bytes}"
        );
    }
}
