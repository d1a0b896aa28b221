//! The threads that execute what an event loop gave up: requests that wait for the disk, or for others, or take long.
//!
//! ```text
//! loop -> queue, bounded -> worker, with an executor -> answers for the loop -> mail to it -> connection
//! ```
//! One pool for all loops of a process. Requests known to take long have a queue of their own and never all workers, so
//! that a row on disk does not wait behind scans. Answers lie in a list of their loop, which is told of the first: none is
//! lost when its mailbox is full.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_reactor::Mailer;
use shunt_wire::cql::envelope::Header;

use super::NodeMail;
use super::requests::{Place, Waiting};
use crate::error::CqlError;
use crate::execute::{ClientState, Executor, Request, refused};
use crate::limits;
use crate::shared::Shared;
use crate::trace::Trace;

/// A request that was given up, with all that it needs elsewhere.
pub(super) struct Job {
    pub(super) node: usize,
    pub(super) place: Place,
    /// The request's.
    pub(super) header: Header,
    pub(super) client: ClientState,
    pub(super) body: Vec<u8>,
    pub(super) long: bool,
    /// Begun where it was given up.
    pub(super) trace: Option<Box<Trace>>,
}

/// Requests that wait, in the order in which they came, and the bytes of their bodies.
#[derive(Default)]
struct Line {
    waits: VecDeque<Waits>,
    bytes: usize,
}

impl Line {
    fn has_room(&self, bytes: usize) -> bool {
        self.waits.len() < limits::WAITING_REQUESTS_MAX && self.bytes + bytes <= limits::WAITING_BYTES_MAX
    }

    fn push(&mut self, waits: Waits) {
        self.bytes += waits.job.body.len();
        self.waits.push_back(waits);
    }

    fn pop(&mut self) -> Option<Waits> {
        let first = self.waits.pop_front()?;
        self.bytes -= first.job.body.len();
        Some(first)
    }

    /// How long its first may still wait, if there is one.
    fn patience(&self) -> Option<Duration> {
        self.waits.front().map(|first| limits::WAITING_TIME_MAX.saturating_sub(first.since.elapsed()))
    }
}

#[derive(Default)]
struct Queue {
    short: Line,
    long: Line,
    /// Workers at requests that take long.
    at_long: usize,
    closed: bool,
}

/// A request with the loop that gave it up, and since when it waits.
struct Waits {
    job: Job,
    answers: Arc<Answers>,
    since: Instant,
}

impl Queue {
    /// The next one to be executed; those that wait for a row on disk go first. One whose time is over is only answered,
    /// and that does not wait for scans to end.
    fn next(&mut self) -> Option<Waits> {
        let next = match self.short.pop() {
            Some(next) => next,
            None if self.at_long < limits::WORKERS_LONG || self.long.patience() == Some(Duration::ZERO) => {
                self.long.pop()?
            }
            None => return None,
        };
        self.at_long += usize::from(next.job.long);
        Some(next)
    }
}

/// Answers on their way to a loop.
struct Answers {
    list: Mutex<Vec<Waiting>>,
    /// The loop has been told.
    told: AtomicBool,
    mailer: Mailer<NodeMail>,
}

impl Answers {
    fn put(&self, answer: Waiting) {
        lock(&self.list).push(answer);
        if !self.told.swap(true, Ordering::AcqRel) {
            // A loop with a full mailbox looks after its turn; one that is gone has nobody who waits.
            let _ = self.mailer.post(NodeMail::Answers);
        }
    }
}

/// What one loop has of the workers.
pub(crate) struct WorkerLink {
    desk: Arc<Desk>,
    answers: Arc<Answers>,
}

impl WorkerLink {
    /// Hands a request over, or says that too many wait already.
    pub(super) fn hand_over(&self, job: Job) -> bool {
        self.desk.put(Waits { job, answers: Arc::clone(&self.answers), since: Instant::now() })
    }

    /// Whether it is worth looking for answers.
    pub(super) fn has_answers(&self) -> bool {
        self.answers.told.load(Ordering::Acquire)
    }

    /// What has been answered since the last time.
    pub(super) fn take_answers(&self) -> Vec<Waiting> {
        // First: an answer that comes after the list was taken tells again.
        self.answers.told.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.answers.list))
    }
}

/// Where requests wait for workers.
#[derive(Default)]
struct Desk {
    queue: Mutex<Queue>,
    work: Condvar,
}

impl Desk {
    fn put(&self, waits: Waits) -> bool {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return false;
        }
        let line = if waits.job.long { &mut queue.long } else { &mut queue.short };
        if !line.has_room(waits.job.body.len()) {
            return false;
        }
        line.push(waits);
        drop(queue);
        self.work.notify_one();
        true
    }

    fn take(&self) -> Option<Waits> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(next) = queue.next() {
                return Some(next);
            }
            if queue.closed {
                return None;
            }
            queue = match queue.long.patience() {
                None => self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => self.work.wait_timeout(queue, patience).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Nobody waits any more: what is in the queue is forgotten.
    fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        (queue.short, queue.long) = (Line::default(), Line::default());
        self.work.notify_all();
    }

    fn done_with_long(&self) {
        lock(&self.queue).at_long -= 1;
        // One that may take up the next, or see that all is done.
        self.work.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads.
pub(crate) struct Workers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
    all_ended: Receiver<()>,
}

impl Workers {
    /// Starts them.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Workers> {
        let (alive, all_ended) = channel();
        let mut workers = Workers { desk: Arc::default(), threads: Vec::new(), all_ended };
        for index in 0..limits::WORKERS {
            let (desk, shared, alive) = (Arc::clone(&workers.desk), Arc::clone(shared), alive.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            workers.threads.push(thread.spawn(move || work(&desk, &shared, alive))?);
        }
        Ok(workers)
    }

    /// For the loop with this mailbox.
    pub(crate) fn link(&self, mailer: Mailer<NodeMail>) -> WorkerLink {
        let answers = Answers { list: Mutex::default(), told: AtomicBool::new(false), mailer };
        WorkerLink { desk: Arc::clone(&self.desk), answers: Arc::new(answers) }
    }

    /// Ends them when no loop is left that waits for an answer. Says whether all ended within the limit; what one is at
    /// then goes on until the process ends.
    pub(crate) fn stop(mut self, limit: Duration) -> bool {
        self.desk.close();
        let ended = self.all_ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        ended && self.threads.drain(..).all(|thread| thread.join().is_ok())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.desk.close();
    }
}

/// `_alive` is dropped when it ends.
fn work(desk: &Desk, shared: &Arc<Shared>, _alive: Sender<()>) {
    let mut executors: Vec<Executor> =
        (0..shared.stores().len()).map(|node| Executor::new(Arc::clone(shared), node)).collect();
    while let Some(Waits { job, answers, since }) = desk.take() {
        let (node, long) = (job.node, job.long);
        answers.put(execute(&mut executors[node], since, job));
        if long {
            desk.done_with_long();
        }
    }
}

fn execute(executor: &mut Executor, since: Instant, mut job: Job) -> Waiting {
    let Header { version, flags, opcode, stream, .. } = job.header;
    let mut body = Vec::new();
    let done = if since.elapsed() > limits::WAITING_TIME_MAX {
        let what = format!("the request waited {} s for a worker", since.elapsed().as_secs());
        refused(&CqlError::Overloaded(what), version, &mut body)
    } else {
        executor.resume(job.trace.take());
        let request = Request { version, flags, opcode, body: &job.body };
        // Whoever asked would wait for ever, and everybody for this thread.
        let executed = catch_unwind(AssertUnwindSafe(|| executor.execute(&mut job.client, &request, &mut body)));
        executed.unwrap_or_else(|_| {
            let what = "the node failed at this request; its log says how".to_owned();
            body.clear();
            refused(&CqlError::Server(what), version, &mut body)
        })
    };
    let header = Header { flags: done.flags, ..Header::response(version, stream, done.opcode) };
    Waiting::new(done.durable_at.unwrap_or(0), job.place, header, body, done.trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_reactor::ConnId;
    use shunt_wire::cql::envelope::opcode;

    fn job(long: bool, bytes: usize) -> Job {
        let place = Place::Envelope { conn: ConnId { index: 0, generation: 1 } };
        let header = Header::request(4, 0, opcode::QUERY);
        Job { node: 0, place, header, client: ClientState::default(), body: vec![0; bytes], long, trace: None }
    }

    /// Of a loop whose inbox is gone.
    fn link() -> WorkerLink {
        let (mailer, _) = shunt_reactor::mailbox(1).unwrap();
        let answers = Answers { list: Mutex::default(), told: AtomicBool::new(false), mailer };
        WorkerLink { desk: Arc::default(), answers: Arc::new(answers) }
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let link = link();
        for _ in 0..limits::WAITING_REQUESTS_MAX {
            assert!(link.hand_over(job(false, 1)));
        }
        assert!(!link.hand_over(job(false, 1)));
        assert!(link.desk.take().is_some());
        assert!(!link.hand_over(job(false, limits::WAITING_BYTES_MAX)), "bytes count, too");
        assert!(link.hand_over(job(true, 1)));
        link.desk.close();
        assert!(!link.hand_over(job(true, 1)) && link.desk.take().is_none());
    }

    #[test]
    fn rows_on_disk_go_before_what_takes_long_and_never_wait_for_all_of_it() {
        let link = link();
        for _ in 0..limits::WORKERS {
            assert!(link.hand_over(job(true, 1)));
        }
        assert!(link.hand_over(job(false, 1)));
        let mut next = || lock(&link.desk.queue).next().map(|waits| waits.job.long);
        assert_eq!(next(), Some(false));
        let long = std::iter::from_fn(&mut next).count();
        assert_eq!(long, limits::WORKERS_LONG, "the others are kept free");
        link.desk.done_with_long();
        assert_eq!(lock(&link.desk.queue).next().map(|waits| waits.job.long), Some(true));
    }

    #[test]
    fn what_takes_long_and_has_waited_too_long_is_answered_while_scans_go_on() {
        let link = link();
        let Some(long_ago) = Instant::now().checked_sub(limits::WAITING_TIME_MAX * 2) else { return };
        lock(&link.desk.queue).at_long = limits::WORKERS_LONG;
        assert!(link.hand_over(job(true, 1)));
        assert!(lock(&link.desk.queue).next().is_none());
        lock(&link.desk.queue).long.waits[0].since = long_ago;
        assert!(link.desk.take().is_some());
    }

    #[test]
    fn rows_on_disk_have_room_however_many_wait_that_take_long() {
        let link = link();
        while link.hand_over(job(true, 1)) {}
        assert!(link.hand_over(job(false, 1)));
    }

    #[test]
    fn answers_are_found_though_nobody_could_be_told() {
        let link = link();
        let place = Place::Envelope { conn: ConnId { index: 0, generation: 1 } };
        assert!(!link.has_answers());
        for _ in 0..2 {
            link.answers.put(Waiting::new(0, place, Header::response(4, 0, opcode::RESULT), Vec::new(), None));
        }
        assert!(link.has_answers());
        assert_eq!((link.take_answers().len(), link.has_answers()), (2, false));
    }

    #[test]
    fn who_waited_too_long_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9042));
        let info = crate::cluster::ClusterInfo::new("test", &[address]);
        let shared = Arc::new(Shared::open(directory.path(), info, &Default::default()).unwrap());
        let mut executor = Executor::new(shared, 0);
        let Some(long_ago) = Instant::now().checked_sub(limits::WAITING_TIME_MAX * 2) else { return };
        let waiting = execute(&mut executor, long_ago, job(false, 1));
        assert!(waiting.is_error(shunt_wire::cql::message::error_code::OVERLOADED));
        let waiting = execute(&mut executor, Instant::now(), job(false, 1));
        assert!(waiting.is_error(shunt_wire::cql::message::error_code::PROTOCOL_ERROR));
    }
}
