//! The threads that execute what an event loop gave up: requests that wait for the disk, or for
//! others, or take long.
//!
//! ```text
//! loop -> queue, bounded -> worker, with an executor -> answers for the loop -> mail to it -> connection
//! ```
//! One pool for all loops of a process. Requests that take long have a queue of their own and never
//! all workers, so that a row on disk does not wait behind scans; one that turns out to take long
//! goes to the end of that queue. Of requests that lock one partition a single one has a worker,
//! the others wait aside: no number of them takes the workers away. Who is gone is not worked for.
//! Answers lie in a list of their loop, which is told of the first: none is lost when its mailbox
//! is full.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_reactor::Mailer;
use shunt_wire::cql::envelope::Header;

use super::requests::{Place, Waiting};
use crate::error::CqlError;
use crate::execute::{ClientState, Ends, Executor, Outcome, Request, refused};
use crate::limits;
use crate::mail::NodeMail;
use crate::shared::Shared;
use crate::stopped::{self, Stopped};
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
    /// The lock of the partition that it reads and then changes.
    pub(super) lock: Option<usize>,
    /// Requests of its connection that are with workers already, see `limits::WAITING_SHARE`.
    pub(super) others: usize,
    /// Set when its connection is closed.
    pub(super) gone: Arc<AtomicBool>,
    /// Begun where it was given up.
    pub(super) trace: Option<Box<Trace>>,
}

/// Requests that wait, in the order in which they came, with how many they are and the bytes of
/// their bodies: those that wait aside for a lock count as well.
#[derive(Default)]
struct Line {
    waits: VecDeque<Waits>,
    count: usize,
    bytes: usize,
}

impl Line {
    fn has_room(&self, job: &Job) -> bool {
        let (others, bytes) = (job.others, job.others * job.body.len());
        let has_few = others < limits::WAITING_SHARE
            && bytes < limits::WAITING_BYTES_MAX / limits::WAITING_SHARE;
        let part = if has_few { 1 } else { 2 };
        self.count < limits::WAITING_REQUESTS_MAX / part
            && self.bytes + job.body.len() <= limits::WAITING_BYTES_MAX / part
    }

    fn push(&mut self, waits: Waits) {
        self.count += 1;
        self.bytes += waits.job.body.len();
        self.waits.push_back(waits);
    }

    /// One of them waits no longer.
    fn left(&mut self, waits: &Waits) {
        self.count -= 1;
        self.bytes -= waits.job.body.len();
    }

    /// How long its first may still wait, if there is one.
    fn patience(&self) -> Option<Duration> {
        self.waits
            .front()
            .map(|first| limits::WAITING_TIME_MAX.saturating_sub(first.since.elapsed()))
    }
}

#[derive(Default)]
struct Queue {
    short: Line,
    long: Line,
    /// Workers at requests that take long.
    at_long: usize,
    /// Locks that requests need who are with workers, or wait aside.
    locks: HashMap<usize, Lock>,
    closed: bool,
}

/// One lock of partitions.
#[derive(Default)]
struct Lock {
    /// A worker has a request that needs it.
    taken: bool,
    /// The others, in the order in which they came.
    aside: VecDeque<Waits>,
}

/// A request with the loop that gave it up, and since when it waits.
struct Waits {
    job: Job,
    answers: Arc<Answers>,
    since: Instant,
}

impl Queue {
    /// The next one to be executed; those that wait for a row on disk go first. One whose time is
    /// over is only answered, and that does not wait for scans to end.
    fn next(&mut self) -> Option<Waits> {
        loop {
            let next = match self.short.waits.pop_front() {
                Some(next) => next,
                None if self.at_long < limits::WORKERS_LONG
                    || self.long.patience() == Some(Duration::ZERO) =>
                {
                    self.long.waits.pop_front()?
                }
                None => return None,
            };
            if let Some(lock) = next.job.lock {
                let lock = self.locks.entry(lock).or_default();
                if lock.taken {
                    lock.aside.push_back(next);
                    continue;
                }
                lock.taken = true;
            }
            self.line(next.job.long).left(&next);
            self.at_long += usize::from(next.job.long);
            return Some(next);
        }
    }

    fn line(&mut self, long: bool) -> &mut Line {
        if long { &mut self.long } else { &mut self.short }
    }

    /// A worker is done with a request that needed a lock. The first who waits aside for it is the
    /// next in its line; each that has been calls the one behind it, so none is left.
    fn give_back(&mut self, number: usize) {
        let Some(lock) = self.locks.get_mut(&number) else { return };
        lock.taken = false;
        match lock.aside.pop_front() {
            Some(next) => self.line(next.job.long).waits.push_front(next),
            None => drop(self.locks.remove(&number)),
        }
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
            // A loop with a full mailbox looks after its turn; one that is gone has nobody who
            // waits.
            let _ = self.mailer.post(NodeMail::Answers);
        }
    }
}

/// The link of one loop to the workers.
pub(crate) struct WorkerLink {
    desk: Arc<Desk>,
    answers: Arc<Answers>,
}

impl WorkerLink {
    /// Hands a request over, or says that too many wait already.
    pub(super) fn hand_over(&self, job: Job) -> bool {
        self.desk.put(Waits { job, answers: Arc::clone(&self.answers), since: Instant::now() })
    }

    /// True if it is worth looking for answers.
    pub(super) fn has_answers(&self) -> bool {
        self.answers.told.load(Ordering::Acquire)
    }

    /// Takes what has been answered since the last time.
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
        let line = queue.line(waits.job.long);
        if !line.has_room(&waits.job) {
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
                Some(patience) => {
                    self.work
                        .wait_timeout(queue, patience)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    /// Nobody waits any more: what is in the queue is forgotten.
    fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        (queue.short, queue.long) = (Line::default(), Line::default());
        queue.locks.clear();
        self.work.notify_all();
    }

    /// A worker is done with a request of this kind.
    fn done(&self, long: bool, number: Option<usize>) {
        if !long && number.is_none() {
            return;
        }
        let mut queue = lock(&self.queue);
        queue.at_long -= usize::from(long);
        if let Some(number) = number {
            queue.give_back(number);
        }
        drop(queue);
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
            let (desk, shared, alive) =
                (Arc::clone(&workers.desk), Arc::clone(shared), alive.clone());
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

    /// Those that have ended, although nobody told them to.
    pub(crate) fn dead_threads(&self) -> Vec<String> {
        stopped::ended(&self.threads)
    }

    /// Ends them when no loop is left that waits for an answer. Says whether all ended within the
    /// limit, and well; what one is at then goes on until the process ends.
    pub(crate) fn stop(mut self, limit: Duration) -> Stopped {
        self.desk.close();
        let ended = self.all_ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        Stopped::of(ended, self.threads.drain(..))
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
        let (node, long, number) = (job.node, job.long, job.lock);
        match execute(&mut executors[node], since, job) {
            Executed::Answered(answer) => answers.put(*answer),
            Executed::TakesLong(job) => {
                let (place, header) = (job.place, job.header);
                if !desk.put(Waits { job: *job, answers: Arc::clone(&answers), since }) {
                    answers.put(too_many(place, header));
                }
            }
        }
        desk.done(long, number);
    }
}

/// The outcome of a request.
enum Executed {
    Answered(Box<Waiting>),
    /// Nothing was changed; it is for those who take long.
    TakesLong(Box<Job>),
}

fn too_many(place: Place, header: Header) -> Waiting {
    let mut body = Vec::new();
    let what = "too many requests that take long wait already".to_owned();
    let done = refused(&CqlError::Overloaded(what), header.version, &mut body);
    Waiting::new(0, place, Header::response(header.version, header.stream, done.opcode), body, None)
}

fn execute(executor: &mut Executor, since: Instant, mut job: Job) -> Executed {
    let Header { version, flags, opcode, stream, .. } = job.header;
    let mut body = Vec::new();
    let done = if job.gone.load(Ordering::Relaxed) {
        refused(&CqlError::TimedOut, version, &mut body)
    } else if since.elapsed() > limits::WAITING_TIME_MAX {
        let what = format!("the request waited {} s for a worker", since.elapsed().as_secs());
        refused(&CqlError::Overloaded(what), version, &mut body)
    } else {
        executor.resume(job.trace.take());
        let request = Request { version, flags, opcode, body: &job.body };
        let ends = Ends { until: Some(since + limits::READ_TIME_MAX), gone: Arc::clone(&job.gone) };
        // Whoever asked would wait for ever, and everybody for this thread.
        let executed = catch_unwind(AssertUnwindSafe(|| match job.long {
            true => {
                Outcome::Done(executor.execute_until(ends, &mut job.client, &request, &mut body))
            }
            false => executor.execute_shortly(ends, &mut job.client, &request, &mut body),
        }));
        match executed {
            Ok(Outcome::Done(done)) => done,
            Ok(Outcome::WouldWait(given_up)) => {
                // It has a place already.
                (job.long, job.trace, job.others) = (true, given_up.trace, 0);
                return Executed::TakesLong(Box::new(job));
            }
            Err(_) => {
                let what = "the node failed at this request; its log says how".to_owned();
                body.clear();
                refused(&CqlError::Server(what), version, &mut body)
            }
        }
    };
    let header = Header { flags: done.flags, ..Header::response(version, stream, done.opcode) };
    Executed::Answered(Box::new(Waiting::new(
        done.durable_at.unwrap_or(0),
        job.place,
        header,
        body,
        done.trace,
    )))
}

#[cfg(test)]
mod tests;
