//! Models of the mailbox: every order in which posters and their loop can meet, within a bound of
//! preemptions.
//!
//! `cargo test -p shunt-reactor --features loom --lib models`. A loop that sleeps with mail shows
//! as a deadlock. So that nothing is left out unnoticed, each model lists the outcomes it must have
//! seen.

#![allow(clippy::unwrap_used, reason = "a model may panic")]

use std::collections::BTreeSet;

use loom::thread;

use super::*;

/// Switches away from a thread that could go on; most mistakes take one or two.
const PREEMPTIONS_MAX: usize = 3;

/// The outcomes of all executions of a model.
fn outcomes<T: Ord + Send + 'static>(model: impl Fn() -> T + Send + Sync + 'static) -> BTreeSet<T> {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    let inserted = seen.clone();
    builder.check(move || {
        let outcome = model();
        inserted.lock().unwrap().insert(outcome);
    });
    std::mem::take(&mut *seen.lock().unwrap())
}

/// A turn of the loop like that of `run`, with room for one piece of mail.
fn turn(inbox: &mut Inbox<u32>) -> Option<u32> {
    if inbox.shared.wake.wait(inbox.is_empty()) {
        inbox.collect();
    }
    match inbox.next() {
        Some(Item::Mail(mail)) => Some(mail),
        Some(Item::Connection(..)) => unreachable!("none was posted"),
        None => None,
    }
}

/// Never: mail is lost, doubled or overtakes mail of the same poster, or a loop sleeps with mail in
/// its queue.
///
/// Caught: `collect` reads the eventfd after it took the queue; `collect` swaps the queue with one
/// that is not empty; `push` checks whether the queue is empty before it has the lock it pushes
/// under; `push` rings first; `push` does not ring.
#[test]
fn all_mail_arrives_in_order_and_wakes_the_loop() {
    let seen = outcomes(|| {
        let (mailer, mut inbox) = mailbox(4).unwrap();
        let posters = [vec![10, 11], vec![20]].map(|mails| {
            let mailer = mailer.clone();
            thread::spawn(move || mails.into_iter().for_each(|mail| mailer.post(mail).unwrap()))
        });
        let mut received = Vec::new();
        while received.len() < 3 {
            received.extend(turn(&mut inbox));
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert!(received.iter().filter(|mail| **mail < 20).eq(&[10, 11]), "{received:?}");
        assert!(received.contains(&20) && inbox.is_empty() && inbox.shared.lock().items.is_empty());
        received
    });
    assert_eq!(seen, [vec![10, 11, 20], vec![10, 20, 11], vec![20, 10, 11]].into());
}

/// Never: a queue exceeds its bound, or a poster hears of a refusal of mail that arrives, or the
/// reverse.
///
/// Caught: `push` checks for room before it has the lock it pushes under.
#[test]
fn mail_that_does_not_fit_is_given_back() {
    let seen = outcomes(|| {
        let (mailer, mut inbox) = mailbox(1).unwrap();
        let posters = [1, 2].map(|mail| {
            let mailer = mailer.clone();
            thread::spawn(move || mailer.post(mail).map(|()| mail))
        });
        // One of the two finds an empty queue.
        let mut received = vec![];
        while received.is_empty() {
            assert!(inbox.shared.lock().items.len() <= 1);
            received.extend(turn(&mut inbox));
        }
        let outcomes = posters.map(|poster| poster.join().unwrap());
        let accepted: Vec<u32> = outcomes.iter().filter_map(|outcome| outcome.ok()).collect();
        while received.len() < accepted.len() {
            received.extend(turn(&mut inbox));
        }
        received.sort_unstable();
        assert_eq!(received, accepted);
        assert!(inbox.is_empty() && inbox.shared.lock().items.is_empty());
        accepted
    });
    assert_eq!(seen, [vec![1], vec![2], vec![1, 2]].into());
}

/// Never: mail is accepted and then kept in no queue, as long as a poster lives.
///
/// Caught: the inbox takes the queue under one lock and closes it under the next; it does not close
/// it.
#[test]
fn a_closing_mailbox_drops_the_mail_that_it_accepts() {
    let seen = outcomes(|| {
        let (mailer, inbox) = mailbox(2).unwrap();
        let mail = std::sync::Arc::new(());
        let posters = [mail.clone(), mail.clone()].map(|mail| {
            let mailer = mailer.clone();
            thread::spawn(move || mailer.post(mail).is_ok())
        });
        drop(inbox);
        let accepted = posters.map(|poster| poster.join().unwrap());
        assert_eq!(
            std::sync::Arc::strong_count(&mail),
            1,
            "mail is left in a queue that nobody empties"
        );
        assert!(mailer.is_closed() && mailer.post(mail).is_err());
        accepted
    });
    assert_eq!(seen, [[false, false], [false, true], [true, false], [true, true]].into());
}
