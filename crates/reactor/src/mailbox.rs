//! The way for other threads to reach a loop: a bounded queue under a lock, and an eventfd that
//! wakes the loop when the queue was empty before. It carries configuration, cluster state and
//! accepted connections, never a query.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;

use crate::placement::Parcel;
use crate::service::Accepted;
use crate::sync::{Arc, Mutex, MutexGuard, Wake};

#[cfg(all(test, feature = "loom"))]
mod models;

/// An entry of the queue.
pub(crate) enum Item<M> {
    Mail(M),
    Connection(Parcel, Accepted),
}

struct Queue<M> {
    items: VecDeque<Item<M>>,
    closed: bool,
}

struct Shared<M> {
    queue: Mutex<Queue<M>>,
    capacity: usize,
    wake: Wake,
}

impl<M> Shared<M> {
    /// Locks the queue. A poisoned lock means that a poster panicked between two complete
    /// operations; the queue is sound.
    fn lock(&self) -> MutexGuard<'_, Queue<M>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, item: Item<M>) -> Result<(), Item<M>> {
        let mut queue = self.lock();
        if queue.closed || queue.items.len() >= self.capacity {
            return Err(item);
        }
        let was_empty = queue.items.is_empty();
        queue.items.push_back(item);
        drop(queue);
        if was_empty {
            self.wake.ring();
        }
        Ok(())
    }
}

/// The sending side of a loop's mailbox.
pub struct Mailer<M> {
    shared: Arc<Shared<M>>,
}

impl<M> Clone for Mailer<M> {
    fn clone(&self) -> Self {
        Mailer { shared: self.shared.clone() }
    }
}

impl<M> Mailer<M> {
    /// Posts to the loop; gives the mail back if the queue is full or the loop is gone.
    pub fn post(&self, mail: M) -> Result<(), M> {
        self.shared.push(Item::Mail(mail)).map_err(|item| match item {
            Item::Mail(mail) => mail,
            Item::Connection(..) => unreachable!("the item just pushed"),
        })
    }

    /// Hands an accepted connection to the loop; gives the socket back if the queue is full or the
    /// loop is gone.
    pub fn adopt(&self, socket: impl Into<OwnedFd>, origin: Accepted) -> Result<(), OwnedFd> {
        self.adopt_secured((socket.into(), None), origin).map_err(|(socket, _)| socket)
    }

    /// Same as [`adopt`](Mailer::adopt), for a connection that may have a session.
    pub(crate) fn adopt_secured(&self, parcel: Parcel, origin: Accepted) -> Result<(), Parcel> {
        self.shared.push(Item::Connection(parcel, origin)).map_err(|item| match item {
            Item::Connection(parcel, _) => parcel,
            Item::Mail(_) => unreachable!("the item just pushed"),
        })
    }

    /// True if the loop has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }
}

/// The loop's side of its mailbox; give it to [`run`](crate::run).
pub struct Inbox<M> {
    shared: Arc<Shared<M>>,
    /// Items taken from the queue, not yet handed over.
    taken: VecDeque<Item<M>>,
}

/// A mailbox for one loop that holds at most `capacity` items. Fails if no eventfd is available.
pub fn mailbox<M>(capacity: usize) -> io::Result<(Mailer<M>, Inbox<M>)> {
    let wake = Wake::new()?;
    let queue = Mutex::new(Queue { items: VecDeque::with_capacity(capacity), closed: false });
    let shared = Arc::new(Shared { queue, capacity, wake });
    Ok((
        Mailer { shared: shared.clone() },
        Inbox { shared, taken: VecDeque::with_capacity(capacity) },
    ))
}

impl<M> Inbox<M> {
    /// Readable when something was posted.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Takes the posted items. Call when [`wake_fd`](Inbox::wake_fd) was readable.
    pub(crate) fn collect(&mut self) {
        // Quiet first: mail posted after the queue was taken rings again.
        self.shared.wake.quiet();
        let mut queue = self.shared.lock();
        if self.taken.is_empty() {
            std::mem::swap(&mut self.taken, &mut queue.items);
        } else {
            self.taken.append(&mut queue.items);
        }
    }

    /// The next item taken.
    pub(crate) fn next(&mut self) -> Option<Item<M>> {
        self.taken.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

impl<M> Drop for Inbox<M> {
    /// Accepts nothing from here on; drops the items that were not handed over with the queue.
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let items = std::mem::take(&mut queue.items);
        drop(queue);
        drop(items);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn mail_arrives_in_order_within_a_bound_until_the_close() {
        let (mailer, mut inbox) = mailbox(2).unwrap();
        assert_eq!(mailer.post(1), Ok(()));
        assert_eq!(mailer.clone().post(2), Ok(()));
        assert_eq!(mailer.post(3), Err(3));
        inbox.collect();
        assert!(matches!(inbox.next(), Some(Item::Mail(1))));
        assert_eq!(mailer.post(4), Ok(()));
        inbox.collect();
        assert!(matches!(inbox.next(), Some(Item::Mail(2))));
        assert!(matches!(inbox.next(), Some(Item::Mail(4))));
        assert!(inbox.next().is_none() && inbox.is_empty());
        drop(inbox);
        assert_eq!(mailer.post(5), Err(5));
        assert!(mailer.is_closed());
    }

    /// A sleeping loop finds a connection only if the eventfd wakes it.
    #[test]
    fn an_adopted_connection_wakes_the_loop() {
        let (mailer, mut inbox) = mailbox::<u32>(2).unwrap();
        let is_readable = |inbox: &Inbox<u32>| {
            let mut events =
                [rustix::event::PollFd::new(&inbox.shared.wake, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut events, Some(&rustix::event::Timespec::default())).unwrap()
                == 1
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 9042));
        let origin = Accepted { listener: 0, peer: address.into(), local: address };
        for _ in 0..2 {
            assert!(!is_readable(&inbox));
            let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
            assert!(mailer.adopt(socket, origin).is_ok());
            assert!(is_readable(&inbox));
            inbox.collect();
            assert!(matches!(inbox.next(), Some(Item::Connection(..))));
        }
    }
}
