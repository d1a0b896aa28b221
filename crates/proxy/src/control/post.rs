//! Delivery of mail to the cores. A core's mailbox is bounded; mail that it does not take at once
//! waits here, in order.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use super::state::CoreMail;
use crate::metrics::ControlMetrics;

/// Puts one mail into a core's mailbox, or gives it back if that is full or the core gone.
pub type Mailbox = Box<dyn Fn(CoreMail) -> Result<(), CoreMail> + Send + Sync>;

/// Mail kept per core; beyond it the oldest schema event is dropped (drivers read the schema again
/// anyway).
const WAITING_MAX: usize = 1024;
/// Interval between attempts to deliver mail that did not fit a core's mailbox.
pub(super) const POST_RETRY: Duration = Duration::from_millis(20);

/// Mailboxes of all cores, with the waiting mail.
pub(super) struct Post {
    cores: Vec<(Mailbox, VecDeque<CoreMail>)>,
    metrics: Arc<ControlMetrics>,
}

impl Post {
    pub(super) fn new(mailboxes: Vec<Mailbox>, metrics: Arc<ControlMetrics>) -> Self {
        Self {
            cores: mailboxes.into_iter().map(|mailbox| (mailbox, VecDeque::new())).collect(),
            metrics,
        }
    }

    /// Sends mail to every core.
    pub(super) fn send_all(&mut self, mail: &CoreMail) {
        for core in 0..self.cores.len() {
            self.send(core, mail.clone());
        }
    }

    /// Sends mail to one core; ignores a core that does not exist.
    pub(super) fn send(&mut self, core: usize, mail: CoreMail) {
        let Some((mailbox, waiting)) = self.cores.get_mut(core) else { return };
        let refused = if waiting.is_empty() { mailbox(mail).err() } else { Some(mail) };
        let Some(mail) = refused else { return };
        self.metrics.mail_delayed.add(1);
        if matches!(mail, CoreMail::Cluster(_) | CoreMail::Fleet(_)) {
            // Only the newest state counts.
            waiting.retain(|waiting| discriminant(waiting) != discriminant(&mail));
        }
        waiting.push_back(mail);
        if waiting.len() > WAITING_MAX {
            let event = waiting.iter().position(|mail| matches!(mail, CoreMail::SchemaEvent(_)));
            waiting.remove(event.unwrap_or_default());
        }
    }

    /// Tries to deliver the waiting mail.
    pub(super) fn retry(&mut self) {
        for (mailbox, waiting) in &mut self.cores {
            while let Some(mail) = waiting.pop_front() {
                if let Err(mail) = mailbox(mail) {
                    waiting.push_front(mail);
                    break;
                }
            }
        }
    }

    /// True if mail waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.cores.iter().any(|(_, waiting)| !waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::fleet::roster::{Fleet, Member};

    /// A mailbox of a given room that can be emptied.
    fn mailbox(room: usize) -> (Mailbox, Arc<Mutex<Vec<CoreMail>>>) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let inside = Arc::clone(&taken);
        let mailbox = move |mail| {
            let mut inside = inside.lock().expect("lock");
            if inside.len() < room {
                inside.push(mail);
                Ok(())
            } else {
                Err(mail)
            }
        };
        (Box::new(mailbox), taken)
    }

    fn event(number: u8) -> CoreMail {
        CoreMail::SchemaEvent(Arc::from([number].as_slice()))
    }

    fn numbers(taken: &Mutex<Vec<CoreMail>>) -> Vec<u8> {
        let number = |mail: CoreMail| match mail {
            CoreMail::SchemaEvent(body) => body[0],
            other => panic!("{other:?}"),
        };
        taken.lock().expect("lock").drain(..).map(number).collect()
    }

    #[test]
    fn a_full_mailbox_makes_mail_wait_in_order() {
        let (mailbox, taken) = mailbox(2);
        let mut post = Post::new(vec![mailbox], Arc::default());
        (0..5).for_each(|number| post.send(0, event(number)));
        post.send(7, event(9));
        assert_eq!((numbers(&taken), post.is_waiting()), (vec![0, 1], true));
        post.retry();
        assert_eq!(numbers(&taken), [2, 3]);
        post.send_all(&event(5));
        post.retry();
        assert_eq!((numbers(&taken), post.is_waiting()), (vec![4, 5], false));
    }

    #[test]
    fn only_the_newest_waiting_fleet_is_delivered() {
        let fleet = |number: u8| {
            let member = |number| Member {
                address: ([10, 0, 0, number], 9042).into(),
                incarnation: [0; 16],
            };
            Arc::new(Fleet::new(vec![member(1), member(number)], 0).expect("a fleet"))
        };
        let (mailbox, taken) = mailbox(2);
        let mut post = Post::new(vec![mailbox], Arc::default());
        [event(0), event(1), CoreMail::Fleet(fleet(2)), event(2), CoreMail::Fleet(fleet(3))]
            .into_iter()
            .for_each(|mail| post.send(0, mail));
        assert_eq!(numbers(&taken), [0, 1]);
        post.retry();
        let taken: Vec<CoreMail> = taken.lock().expect("lock").drain(..).collect();
        match &taken[..] {
            [CoreMail::SchemaEvent(_), CoreMail::Fleet(newest)] => assert_eq!(newest, &fleet(3)),
            other => panic!("{other:?}"),
        }
        assert!(!post.is_waiting());
    }

    #[test]
    fn waiting_mail_is_bounded() {
        let (mailbox, taken) = mailbox(0);
        let mut post = Post::new(vec![mailbox], Arc::default());
        (0..2 * WAITING_MAX).for_each(|_| post.send(0, event(1)));
        post.send(0, CoreMail::Drain);
        assert_eq!(post.cores[0].1.len(), WAITING_MAX);
        assert!(matches!(post.cores[0].1.back(), Some(CoreMail::Drain)));
        assert!(numbers(&taken).is_empty());
    }
}
