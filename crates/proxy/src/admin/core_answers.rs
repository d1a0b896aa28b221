//! Answers of all cores to one question of an admin page. The page names a core that does not
//! answer in time instead of waiting for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::control::{CoreMail, Mailbox};

/// Deadline for the answers of all cores together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Age up to which an answer is shown again, so that each core answers once a second however often
/// the page is requested.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The cores, and their last answer to one question.
pub(super) struct CachedAnswer {
    mailboxes: Arc<[Mailbox]>,
    age_max: Duration,
    last: Mutex<Last>,
}

/// The last time that the cores were asked.
#[derive(Default)]
struct Last {
    answer: Option<(Instant, Value)>,
    /// Time of a question whose answer nobody has waited for. The cores have answered it all the
    /// same, so a client that gives up each request must never have them asked more often.
    given_up: Option<Instant>,
}

impl fmt::Debug for CachedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CachedAnswer")
    }
}

impl CachedAnswer {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self { mailboxes, age_max: AGE_MAX, last: Mutex::default() }
    }

    /// The last answer, or a new one from `ask` if that is too old.
    pub(super) async fn recent<'a, F>(&'a self, ask: impl FnOnce(&'a [Mailbox]) -> F) -> Value
    where
        F: Future<Output = Value>,
    {
        let mut last = self.last.lock().await;
        if let Some((at, value)) = &last.answer
            && at.elapsed() < self.age_max
        {
            return value.clone();
        }
        if let Some(at) = last.given_up {
            sleep_until(at + self.age_max).await;
        }
        last.given_up = Some(Instant::now());
        let value = ask(&self.mailboxes).await;
        *last = Last { answer: Some((Instant::now(), value.clone())), given_up: None };
        value
    }
}

/// Asks all cores; `take` gets each answer with the core's number. Returns the cores that did not
/// answer.
pub(crate) async fn ask_all<A>(
    mailboxes: &[Mailbox],
    patience: Duration,
    question: impl Fn(mpsc::Sender<A>) -> CoreMail,
    mut take: impl FnMut(A) -> usize,
) -> Vec<usize> {
    let (sender, mut answers) = mpsc::channel(mailboxes.len().max(1));
    let mut missing: Vec<usize> = (0..mailboxes.len()).collect();
    for mailbox in mailboxes {
        // A core with a full mailbox counts as one that did not answer.
        let _ = mailbox(question(sender.clone()));
    }
    drop(sender);
    let until = Instant::now() + patience;
    while let Ok(Some(answer)) = timeout_at(until, answers.recv()).await {
        let core = take(answer);
        missing.retain(|missing| *missing != core);
    }
    missing
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::hot_keys::CoreHotKeys;

    /// A core that counts its questions, and answers them if it is told so.
    fn core(asked: &Arc<AtomicUsize>, answers: bool) -> Mailbox {
        let asked = Arc::clone(asked);
        let kept = std::sync::Mutex::new(Vec::new());
        Box::new(move |mail| {
            let CoreMail::HotKeys(answer) = mail else { panic!("{mail:?}") };
            asked.fetch_add(1, Ordering::Relaxed);
            let tables = Vec::new();
            let told = CoreHotKeys { core: 0, sample: 1, window_ns: 1, tables, missed_max: 0 };
            match answers {
                true => answer.try_send(told).expect("room"),
                false => kept.lock().expect("no panic").push(answer),
            }
            Ok(())
        })
    }

    fn answer_of(mailbox: Mailbox, age_max: Duration) -> CachedAnswer {
        CachedAnswer { age_max, ..CachedAnswer::new([mailbox].into()) }
    }

    async fn ask_core(mailboxes: &[Mailbox]) -> Value {
        let patience = Duration::from_millis(20);
        ask_all(mailboxes, patience, CoreMail::HotKeys, |answer| answer.core).await.into()
    }

    #[tokio::test]
    async fn requests_that_are_given_up_ask_the_cores_once_in_a_period() {
        let asked = Arc::<AtomicUsize>::default();
        let mut answer = answer_of(core(&asked, false), Duration::from_secs(3_600));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            let page = pin!(answer.recent(ask_core));
            assert_eq!(page.poll(&mut context), Poll::Pending);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // The next period has come.
        answer.age_max = Duration::ZERO;
        assert_eq!(answer.recent(ask_core).await, serde_json::json!([0]), "the core is silent");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn an_answer_is_shown_for_a_period() {
        for (age_max, times) in [(Duration::from_secs(3_600), 1), (Duration::ZERO, 10)] {
            let asked = Arc::<AtomicUsize>::default();
            let answer = answer_of(core(&asked, true), age_max);
            for _ in 0..10 {
                assert_eq!(answer.recent(ask_core).await, serde_json::json!([]));
            }
            assert_eq!(asked.load(Ordering::Relaxed), times);
        }
    }
}
