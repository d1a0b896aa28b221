//! Assignment of requests to workers.

use super::*;
use shunt_reactor::ConnId;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Consistency, encode, error_code};

fn job(long: bool, bytes: usize) -> Job {
    let place = Place::Envelope { conn: ConnId { index: 0, generation: 1 } };
    let header = Header::request(4, 0, opcode::QUERY);
    let (client, gone) = (ClientState::default(), Arc::default());
    Job {
        node: 0,
        place,
        header,
        client,
        body: vec![0; bytes],
        long,
        lock: None,
        others: 0,
        gone,
        trace: None,
    }
}

/// Gives a statement up like a loop.
fn given_up(executor: &mut Executor, text: &str, long: bool) -> Job {
    let mut body = Vec::new();
    encode::query_simple(&mut body, 4, text, Consistency::ONE);
    let request = Request { version: 4, flags: 0, opcode: opcode::QUERY, body: &body };
    let outcome = executor.execute_at_once(&mut ClientState::default(), &request, &mut Vec::new());
    let Outcome::WouldWait(given_up) = outcome else { panic!("{text}: {outcome:?}") };
    assert_eq!(given_up.long, long, "{text}");
    Job { body, lock: given_up.lock, ..job(long, 0) }
}

/// A node with a table, and workers for it.
fn node() -> (tempfile::TempDir, Arc<Shared>, Executor) {
    let directory = tempfile::tempdir().unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9042));
    let info = crate::cluster::ClusterInfo::new("test", &[address]);
    let shared = Arc::new(Shared::open(directory.path(), info, &Default::default()).unwrap());
    let mut executor = Executor::new(Arc::clone(&shared), 0);
    for text in [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durability = \
         'periodic'",
        "CREATE TABLE k.t (p int, c int, v int, PRIMARY KEY (p, c))",
    ] {
        run(&mut executor, text);
    }
    (directory, shared, executor)
}

fn run(executor: &mut Executor, text: &str) {
    let mut body = Vec::new();
    encode::query_simple(&mut body, 4, text, Consistency::ONE);
    let request = Request { version: 4, flags: 0, opcode: opcode::QUERY, body: &body };
    let done = executor.execute(&mut ClientState::default(), &request, &mut Vec::new());
    assert_eq!(done.opcode, opcode::RESULT, "{text}");
}

fn answered(executed: Executed) -> Waiting {
    match executed {
        Executed::Answered(waiting) => *waiting,
        Executed::TakesLong(_) => panic!("it takes long"),
    }
}

/// Arrival of a job that has not waited, however long this thread is paused before execution.
fn just_now() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Waits for a number of answers.
fn answers(link: &WorkerLink, count: usize) -> usize {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut come = 0;
    while come < count && Instant::now() < deadline {
        come += link.take_answers().len();
        std::thread::yield_now();
    }
    come
}

#[test]
fn requests_that_lock_one_partition_take_one_worker() {
    let (_directory, shared, mut executor) = node();
    let locking: Vec<Job> = (0..2 * limits::WORKERS)
        .map(|row| {
            let text = format!("INSERT INTO k.t (p, c, v) VALUES (1, {row}, 1) IF NOT EXISTS");
            given_up(&mut executor, &text, false)
        })
        .collect();
    let number = locking[0].lock.expect("a lock");
    assert!(locking.iter().all(|job| job.lock == Some(number)));
    let held = shared.hold_lock(number);
    let (mailer, _inbox) = shunt_reactor::mailbox(64).unwrap();
    let workers = Workers::start(&shared).unwrap();
    let link = workers.link(mailer);
    let count = locking.len();
    locking.into_iter().for_each(|job| assert!(link.hand_over(job)));
    // The holder of the lock is slow; a read does not wait for it.
    let read = Job {
        body: given_up(&mut executor, "SELECT count(*) FROM k.t", true).body,
        ..job(false, 0)
    };
    assert!(link.hand_over(read));
    assert_eq!(answers(&link, 1), 1, "the read found no worker");
    drop(held);
    assert_eq!(answers(&link, count), count, "each has its turn");
    assert!(lock(&link.desk.queue).locks.is_empty());
    assert!(workers.stop(Duration::from_secs(60)).is_in_time());
}

#[test]
fn a_worker_that_dies_is_named() {
    let (_directory, shared, _executor) = node();
    let (mailer, _inbox) = shunt_reactor::mailbox(64).unwrap();
    let workers = Workers::start(&shared).unwrap();
    assert!(workers.dead_threads().is_empty());
    // The node does not exist.
    assert!(workers.link(mailer).hand_over(Job { node: 9, ..job(false, 0) }));
    while workers.dead_threads().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(workers.dead_threads().len(), 1);
    assert_eq!(workers.stop(Duration::from_secs(60)), Stopped::Died);
}

#[test]
fn requests_that_prove_long_move_to_the_workers_for_long_ones() {
    let (_directory, _shared, mut executor) = node();
    for first in (0..limits::WORKER_RECORDS + 100).step_by(100) {
        let insert = |row| format!("INSERT INTO k.t (p, c, v) VALUES (1, {row}, 1);");
        let inserts: String = (first..first + 100).map(insert).collect();
        run(&mut executor, &format!("BEGIN UNLOGGED BATCH {inserts} APPLY BATCH"));
    }
    // As if its first row had been on disk.
    let text = "SELECT count(*) FROM k.t WHERE p = 1";
    let cold = Job { long: false, ..given_up(&mut executor, text, true) };
    let Executed::TakesLong(long) = execute(&mut executor, just_now(), cold) else {
        panic!("{text}")
    };
    assert!(long.long && !answered(execute(&mut executor, just_now(), *long)).is_any_error());
    let Some(long_ago) = Instant::now().checked_sub(limits::WAITING_TIME_MAX / 2) else { return };
    let over = Ends { until: Some(long_ago), ..Ends::default() };
    let mut body = Vec::new();
    encode::query_simple(&mut body, 4, text, Consistency::ONE);
    let request = Request { version: 4, flags: 0, opcode: opcode::QUERY, body: &body };
    let mut out = Vec::new();
    let done = executor.execute_until(over, &mut ClientState::default(), &request, &mut out);
    assert_eq!(
        (done.opcode, &out[..4]),
        (opcode::ERROR, &error_code::READ_TIMEOUT.to_be_bytes()[..])
    );
    // A request of a client that is gone is not begun.
    let gone = given_up(&mut executor, "INSERT INTO k.t (p, c) VALUES (9, 9) IF NOT EXISTS", false);
    gone.gone.store(true, Ordering::Relaxed);
    assert!(answered(execute(&mut executor, just_now(), gone)).is_any_error());
    let again =
        given_up(&mut executor, "INSERT INTO k.t (p, c) VALUES (9, 9) IF NOT EXISTS", false);
    assert!(!answered(execute(&mut executor, just_now(), again)).is_any_error());
}

/// Link of a loop whose inbox is gone.
fn link() -> WorkerLink {
    let (mailer, _) = shunt_reactor::mailbox(1).unwrap();
    let answers = Answers { list: Mutex::default(), told: AtomicBool::new(false), mailer };
    WorkerLink { desk: Arc::default(), answers: Arc::new(answers) }
}

#[test]
fn waiting_requests_are_bounded() {
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

/// However many requests one connection sends, others get places.
#[test]
fn one_connection_takes_half_of_the_places_and_no_more() {
    for (long, bytes, few) in [
        (false, 1, limits::WAITING_SHARE),
        (true, 1, limits::WAITING_SHARE),
        (false, limits::WAITING_BYTES_MAX / 256, 4),
        (false, limits::WAITING_BYTES_MAX / 4, 1),
    ] {
        let link = link();
        let taken = (0..)
            .take_while(|others| link.hand_over(Job { others: *others, ..job(long, bytes) }))
            .count();
        assert!(taken > few && taken <= limits::WAITING_REQUESTS_MAX / 2, "{taken}");
        for others in 0..few {
            assert!(
                link.hand_over(Job { others, ..job(long, bytes) }),
                "no place left for another"
            );
        }
    }
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
    link.desk.finish_job(true, None);
    assert_eq!(lock(&link.desk.queue).next().map(|waits| waits.job.long), Some(true));
}

#[test]
fn overdue_long_requests_are_answered_while_scans_continue() {
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
        link.answers.put(Waiting::new(
            0,
            place,
            Header::response(4, 0, opcode::RESULT),
            Vec::new(),
            None,
        ));
    }
    assert!(link.has_answers());
    assert_eq!((link.take_answers().len(), link.has_answers()), (2, false));
}

#[test]
fn overdue_requests_are_answered_as_overloaded() {
    let (_directory, _shared, mut executor) = node();
    let Some(long_ago) = Instant::now().checked_sub(limits::WAITING_TIME_MAX * 2) else { return };
    let waiting = answered(execute(&mut executor, long_ago, job(false, 1)));
    assert!(waiting.is_error(error_code::OVERLOADED));
    let waiting = answered(execute(&mut executor, just_now(), job(false, 1)));
    assert!(waiting.is_error(error_code::PROTOCOL_ERROR));
}
