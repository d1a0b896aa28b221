//! Threads that execute the requests given up by event loops: those that wait for the disk or for
//! others, or take long.
//!
//! ```text
//! loop -> bounded queue -> worker with an executor -> answers of the loop -> mail -> connection
//! ```
//! One pool serves all loops of a process. Long requests have a separate queue and never occupy all
//! workers, so that a row on disk does not wait behind scans; a request that turns out to take long
//! goes to the end of that queue. Of the requests that lock one partition, only one has a worker
//! and the others wait aside: no number of them occupies all workers. Requests of clients that are
//! gone are dropped. Answers go to a list per loop, which is notified of the first: a full mailbox
//! loses none.

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
use crate::stop_outcome::{self, Stopped};
use crate::trace::Trace;

/// A request that was given up, with everything needed to execute it elsewhere.
pub(super) struct Job {
    pub(super) node: usize,
    pub(super) place: Place,
    /// Header of the request.
    pub(super) header: Header,
    pub(super) client: ClientState,
    pub(super) body: Vec<u8>,
    pub(super) long: bool,
    /// Lock of the partition that the request reads and then changes.
    pub(super) lock: Option<usize>,
    /// Requests of its connection already at workers, see `limits::WAITING_SHARE`.
    pub(super) others: usize,
    /// Set when its connection is closed.
    pub(super) gone: Arc<AtomicBool>,
    /// Begun where the request was given up.
    pub(super) trace: Option<Box<Trace>>,
}

/// Waiting requests in order of arrival, with their number and the bytes of their bodies, including
/// those waiting aside for a lock.
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

    /// Removes a request from the counts.
    fn remove_counts(&mut self, waits: &Waits) {
        self.count -= 1;
        self.bytes -= waits.job.body.len();
    }

    /// Longest remaining wait of the first request, if any.
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
    /// Number of workers at long requests.
    at_long: usize,
    /// Locks needed by requests that are at workers or wait aside.
    locks: HashMap<usize, Lock>,
    closed: bool,
}

/// One lock of partitions.
#[derive(Default)]
struct Lock {
    /// A worker has a request that needs the lock.
    taken: bool,
    /// The other requests, in order of arrival.
    aside: VecDeque<Waits>,
}

/// A request with the loop that gave it up, and the start of its wait.
struct Waits {
    job: Job,
    answers: Arc<Answers>,
    since: Instant,
}

impl Queue {
    /// The next request to execute; those for a row on disk come first. An expired one is only
    /// answered, without waiting for scans to end.
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
            self.line(next.job.long).remove_counts(&next);
            self.at_long += usize::from(next.job.long);
            return Some(next);
        }
    }

    fn line(&mut self, long: bool) -> &mut Line {
        if long { &mut self.long } else { &mut self.short }
    }

    /// Releases the lock of a finished request. The first request waiting aside for it is next in
    /// its line; each calls its successor, so none is forgotten.
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
    /// The loop has been notified.
    told: AtomicBool,
    mailer: Mailer<NodeMail>,
}

impl Answers {
    fn put(&self, answer: Waiting) {
        lock(&self.list).push(answer);
        if !self.told.swap(true, Ordering::AcqRel) {
            // A loop with a full mailbox checks after its turn; one that is gone has no waiting
            // clients.
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
    /// Passes a request to a worker, or returns false if too many wait already.
    pub(super) fn hand_over(&self, job: Job) -> bool {
        self.desk.put(Waits { job, answers: Arc::clone(&self.answers), since: Instant::now() })
    }

    /// True if there may be answers.
    pub(super) fn has_answers(&self) -> bool {
        self.answers.told.load(Ordering::Acquire)
    }

    /// Takes the answers that arrived since the last call.
    pub(super) fn take_answers(&self) -> Vec<Waiting> {
        // First: an answer that comes after the list was taken notifies again.
        self.answers.told.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.answers.list))
    }
}

/// Queue of requests for workers.
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

    /// Closes the queue and drops its requests.
    fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        (queue.short, queue.long) = (Line::default(), Line::default());
        queue.locks.clear();
        self.work.notify_all();
    }

    /// Reports that a worker has finished a request of this kind.
    fn finish_job(&self, long: bool, number: Option<usize>) {
        if !long && number.is_none() {
            return;
        }
        let mut queue = lock(&self.queue);
        queue.at_long -= usize::from(long);
        if let Some(number) = number {
            queue.give_back(number);
        }
        drop(queue);
        // Wakes a worker that may take the next request, or see that all are finished.
        self.work.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The worker threads.
pub(crate) struct Workers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
    all_ended: Receiver<()>,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system cannot create a thread.
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

    /// A link for the loop with this mailbox.
    pub(crate) fn link(&self, mailer: Mailer<NodeMail>) -> WorkerLink {
        let answers = Answers { list: Mutex::default(), told: AtomicBool::new(false), mailer };
        WorkerLink { desk: Arc::clone(&self.desk), answers: Arc::new(answers) }
    }

    /// Names of threads that have ended without being told to.
    pub(crate) fn dead_threads(&self) -> Vec<String> {
        stop_outcome::ended(&self.threads)
    }

    /// Ends the threads once no loop waits for an answer. Returns whether all ended in time and
    /// without panic; a current request continues until the process ends.
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

/// `_alive` is dropped at the end.
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
        desk.finish_job(long, number);
    }
}

/// The outcome of a request.
enum Executed {
    Answered(Box<Waiting>),
    /// Nothing was changed; a worker for long requests must execute it.
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
        // The client would wait forever, and others for this thread.
        let executed = catch_unwind(AssertUnwindSafe(|| match job.long {
            true => {
                Outcome::Done(executor.execute_until(ends, &mut job.client, &request, &mut body))
            }
            false => executor.execute_shortly(ends, &mut job.client, &request, &mut body),
        }));
        match executed {
            Ok(Outcome::Done(done)) => done,
            Ok(Outcome::WouldWait(given_up)) => {
                // The request has a place already.
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
