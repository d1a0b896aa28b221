//! Rows of one transaction: their content, and what the transaction keeps of it.

use shunt_fleet::schema::TRANSACTION_TABLES;
use shunt_wire::cql::message::Values;

use super::*;
use crate::guard::request::{Guard, Safeguards};

fn asked(fence: i64, key: &'static [u8]) -> Request<'static> {
    let guard = Some(Guard { is_fast: false, name: "l", fence, is_over: false });
    let safeguards = Safeguards { guard, key };
    Request {
        text: "t",
        keyspace: "ks",
        version: 4,
        types: 4,
        role: "r",
        safeguards,
        values: Values::default(),
        options: None,
    }
}

fn rows(fence: i64, key: &'static [u8]) -> GuardRows {
    GuardRows::for_request(&asked(fence, key), "main", "ks")
}

#[test]
fn a_fence_that_was_seen_refuses_those_before_it() {
    for (seen, is_refused, is_written) in [
        (None, false, true),
        (Some(6), false, true),
        (Some(7), false, false),
        (Some(8), true, false),
    ] {
        let mut rows = rows(7, b"");
        rows.fence = seen;
        assert_eq!(rows.check().is_err(), is_refused, "{seen:?}");
        if !is_refused {
            rows.decide(true, None);
            assert_eq!(!rows.writes.is_empty(), is_written, "{seen:?}");
        }
    }
}

#[test]
fn a_known_fence_is_not_read_and_its_row_is_shared() {
    let (claim, mut fences) = (Some(Claim(1)), Fences::default());
    let begun = |fence: i64, key: &'static [u8], fences: &mut Fences| {
        let mut one = rows(fence, key);
        one.share(claim, fences);
        one.begin(claim, fences);
        one
    };
    let mode = |rows: &GuardRows| rows.partitions().next().expect("a fence").1;
    // The first reads, and writes; until it is committed nothing is known.
    let mut first = begun(7, b"", &mut fences);
    assert_eq!((mode(&first), first.count(), first.check()), (Mode::Exclusive, 1, Ok(None)));
    first.decide(true, None);
    first.decided(&mut fences);
    assert_eq!(mode(&begun(7, b"", &mut fences)), Mode::Exclusive);
    first.committed(&mut fences);
    // The others of that fence share it, and read only what they have besides.
    let mut next = begun(7, b"k", &mut fences);
    assert_eq!((mode(&next), next.count(), next.check()), (Mode::Shared, 1, Ok(None)));
    assert!(
        next.read_statement(0).is_some_and(|(text, _)| text.contains("txn_outcome"))
            && next.read_statement(1).is_none()
    );
    next.decide(true, Some(Vec::new()));
    next.decided(&mut fences);
    assert!(next.writes.iter().all(|write| write.table == "txn_outcome"));
    next.committed(&mut fences);
    // A later fence has the row alone, and from its decision on nobody shares it.
    let waiting = begun(7, b"", &mut fences);
    let mut later = begun(8, b"", &mut fences);
    assert_eq!((mode(&later), later.count(), later.check()), (Mode::Exclusive, 0, Ok(None)));
    later.decide(false, None);
    later.decided(&mut fences);
    assert_eq!(
        (mode(&waiting), mode(&begun(7, b"", &mut fences))),
        (Mode::Shared, Mode::Exclusive)
    );
    later.committed(&mut fences);
    let mut late = waiting;
    late.begin(claim, &mut fences);
    assert!(
        late.check().is_err_and(|fault| fault.why.contains("fence 7")),
        "it waited while a later one came"
    );
    assert!(begun(7, b"", &mut fences).check().is_err_and(|fault| fault.why.contains("fence 7")));
    // Another ownership knows nothing.
    let mut other = rows(8, b"");
    other.share(Some(Claim(2)), &mut fences);
    other.begin(Some(Claim(2)), &mut fences);
    assert_eq!((mode(&other), other.count()), (Mode::Exclusive, 1));
    other.share(None, &mut fences);
    other.begin(None, &mut fences);
    assert_eq!((mode(&other), other.count()), (Mode::Exclusive, 1));
}

#[test]
fn a_row_that_is_shared_is_not_written() {
    for (found, is_refused) in [(None, true), (Some(6), true), (Some(7), false), (Some(8), true)] {
        for outcome in [false, true] {
            let (claim, mut fences) = (Some(Claim(1)), Fences::default());
            let mut one = rows(7, b"k");
            let row = one.fence_row().expect("a guard");
            fences.put(row, Claim(1), 7);
            one.share(claim, &mut fences);
            fences.forget(row);
            one.begin(claim, &mut fences);
            assert_eq!(one.count(), 2);
            one.fence = found;
            let known = KeptOutcome { applied: true, body: (*b"body").into() };
            one.outcome = outcome.then_some((one.request, known));
            // What was carried out is told also behind a later fence, which needs no raising.
            let is_refused = is_refused && !(outcome && found == Some(8));
            assert_eq!(one.check().is_err(), is_refused, "{found:?} {outcome}");
            if !is_refused {
                one.raise();
                assert!(!one.writes_fence());
                one.decide(true, None);
                assert!(outcome || !one.writes_fence());
            }
            one.writes.clear();
            one.decided(&mut fences);
            assert_eq!(fences.get(row, Claim(1)), found);
        }
    }
}

#[test]
fn an_outcome_is_told_again_to_the_same_request_only() {
    let mut one = rows(7, b"k");
    let known = KeptOutcome { applied: true, body: (*b"body").into() };
    one.outcome = Some((one.request, known.clone()));
    // Whatever has become of the lock.
    one.fence = Some(9);
    assert_eq!(one.check(), Ok(Some(&known)));
    one.request[0] ^= 1;
    assert!(one.check().is_err_and(|fault| fault.why.contains("shunt-idempotency")));
    let mut over = rows(7, b"k");
    over.guard.as_mut().expect("a guard").is_over = true;
    assert!(over.check().is_err_and(|fault| fault.why.contains("fence 7")));
    over.outcome = Some((over.request, known.clone()));
    assert_eq!(over.check(), Ok(Some(&known)));
    for (seen, is_raised) in [(None, true), (Some(6), true), (Some(7), false), (Some(8), false)] {
        let mut again = rows(7, b"k");
        again.fence = seen;
        again.raise();
        assert_eq!(again.writes.len(), usize::from(is_raised), "{seen:?}");
    }
    let mut first = rows(7, b"k");
    assert_eq!(first.check(), Ok(None));
    first.decide(false, Some(b"answer".to_vec()));
    assert_eq!(first.writes.len(), 2);
    assert!(first.writes[1].values.contains(&Value::Bytes(vec![0])));
}

#[test]
fn rows_have_partitions_of_their_own() {
    let all =
        |rows: &GuardRows| rows.partitions().map(|(partition, _)| partition).collect::<Vec<_>>();
    let one = all(&rows(7, b"k"));
    assert_eq!((one.len(), &one), (2, &all(&rows(8, b"k"))));
    assert_ne!(one[1], all(&rows(7, b"l"))[1]);
    let mut other = rows(7, b"k");
    other.role = "s".into();
    assert_ne!(one[1], all(&other)[1]);
    other.domain = "other".into();
    assert_ne!(one[0], all(&other)[0]);
    let none = GuardRows::for_request(
        &Request { safeguards: Safeguards::default(), ..asked(1, b"") },
        "main",
        "ks",
    );
    assert_eq!((none.count(), all(&none).len()), (0, 0));
}

#[test]
fn each_statement_has_a_value_for_each_of_its_markers() {
    let mut rows = rows(7, b"k");
    rows.decide(true, Some(Vec::new()));
    for place in 0..2 {
        let (text, list) = rows.read_statement(place).expect("a read");
        assert_eq!(list.values().len(), text.matches('?').count());
    }
    for Write { table, text, values } in &rows.writes {
        assert_eq!(values.len(), text.matches('?').count(), "{text}");
        assert!(
            text.contains(table)
                && TRANSACTION_TABLES.iter().any(|made| made.contains(&format!(".{table} (")))
        );
    }
    assert!(rows.read_statement(2).is_none());
}
