//! Execution of requests at a proxy with scripted answers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use shunt_proxy::control::client::{Failed, Table};
use shunt_wire::cql::message::error_code;

use crate::limits::{PAUSE, RENEW_AFTER};
use crate::locks::{Proxy, Waiting, carry_out};
use crate::reply::Reply;
use crate::request::LockRequest;

type Answer = Result<Table, Failed>;
/// A statement and its values.
type Asked = (String, Vec<Vec<u8>>);

/// On a machine that adds more delay than this, a run does not count.
const LATE: Duration = Duration::from_millis(RENEW_AFTER.as_millis() as u64 / 8);

/// Gives scripted answers, each with a delay, and records the statements.
struct Scripted {
    answers: VecDeque<(Duration, Answer)>,
    asked: Vec<Asked>,
    lacks_answers: bool,
    /// Time of the last answer.
    answered: Instant,
    stood_still: bool,
}

impl Proxy for Scripted {
    async fn query(&mut self, text: &str, values: &[Option<Vec<u8>>], _: Duration) -> Answer {
        self.stood_still |= self.answered.elapsed() > PAUSE + LATE;
        let asked = Instant::now();
        self.asked.push((
            text.to_owned(),
            values.iter().map(|value| value.clone().expect("no nulls")).collect(),
        ));
        let Some((late, answer)) = self.answers.pop_front() else {
            self.lacks_answers = true;
            return error(error_code::SERVER_ERROR);
        };
        tokio::time::sleep(late).await;
        self.stood_still |= asked.elapsed() > late + LATE;
        self.answered = Instant::now();
        answer
    }
}

fn row(applied: bool, owner: Option<&str>, fence: i64) -> Answer {
    let columns =
        ["[applied]", "name", "owner", "fence", "ttl_ms", "waiters"].map(str::to_owned).to_vec();
    let held = owner.is_some();
    let values = vec![
        Some(vec![u8::from(applied)]),
        held.then(|| b"n".to_vec()),
        owner.map(|owner| owner.as_bytes().to_vec()),
        held.then(|| fence.to_be_bytes().to_vec()),
        held.then(|| 15_000i32.to_be_bytes().to_vec()),
        held.then(|| 0i32.to_be_bytes().to_vec()),
    ];
    Ok(Table { columns, rows: vec![values] })
}

fn error(code: i32) -> Answer {
    Err(Failed { code: Some(code), message: "said so".to_owned() })
}

/// Runs a request; returns its outcome and the statements. A run on a machine that stalled is
/// repeated.
fn run<const N: usize>(
    request: (Method, &str),
    answers: [(Duration, Answer); N],
    stopping: bool,
) -> (Result<Reply, Failed>, Vec<Asked>) {
    for _ in 0..50 {
        let (done, proxy) = run_once(&request, answers.to_vec(), stopping);
        if !proxy.stood_still {
            assert!(
                !proxy.lacks_answers,
                "more statements than the test has answers for: {:?}",
                proxy.asked
            );
            assert!(proxy.answers.is_empty(), "statements are missing: {:?}", proxy.asked);
            return (done, proxy.asked);
        }
    }
    panic!("the machine stood still each time")
}

fn run_once(
    (method, path): &(Method, &str),
    answers: Vec<(Duration, Answer)>,
    stopping: bool,
) -> (Result<Reply, Failed>, Scripted) {
    let (path, query) =
        path.split_once('?').map_or((*path, None), |(path, query)| (path, Some(query)));
    let request = LockRequest::read(method, path, query).expect("a request");
    let is_stopping = || stopping;
    let waiting = Waiting { round_max: Duration::from_millis(1_500), is_stopping: &is_stopping };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut proxy = Scripted {
        answers: answers.into(),
        asked: Vec::new(),
        lacks_answers: false,
        answered: Instant::now(),
        stood_still: false,
    };
    let done = runtime.block_on(carry_out(&mut proxy, &request, &waiting));
    proxy.stood_still |= proxy.answered.elapsed() > LATE;
    (done, proxy)
}

const NOW: Duration = Duration::ZERO;
const PUT: (Method, &str) = (Method::PUT, "/v1/locks/n?owner=me");
const WAIT: (Method, &str) = (Method::PUT, "/v1/locks/n?owner=me&wait=20");

fn status(done: &Result<Reply, Failed>) -> StatusCode {
    done.as_ref().expect("an answer").status()
}

fn text(done: &Result<Reply, Failed>) -> String {
    done.as_ref().expect("an answer").text()
}

#[test]
fn a_lock_that_is_free_takes_one_statement() {
    let (done, asked) = run(PUT, [(NOW, row(true, Some("me"), 7))], false);
    assert_eq!(status(&done), StatusCode::OK);
    assert!(text(&done).contains(r#""applied":true"#) && text(&done).contains(r#""fence":7"#));
    let wait = 0i32.to_be_bytes().to_vec();
    assert_eq!(asked[0].1, [b"n".to_vec(), b"me".to_vec(), wait]);
}

#[test]
fn a_lock_that_is_held_is_told_with_its_holder() {
    let (done, _) = run(PUT, [(NOW, row(false, Some("other"), 7))], false);
    assert_eq!(status(&done), StatusCode::CONFLICT);
    assert!(text(&done).contains(r#""owner":"other""#));
}

/// A lock must never be reported that ended while its grant was on the way.
#[test]
fn a_lock_that_was_waited_for_is_renewed_before_it_is_told_of() {
    let late = RENEW_AFTER + Duration::from_millis(100);
    let (done, asked) =
        run(WAIT, [(late, row(true, Some("me"), 7)), (NOW, row(true, Some("me"), 7))], false);
    assert!(asked[1].0.starts_with("UPDATE shunt.locks USING TTL 15"), "{asked:?}");
    assert!(asked[1].1.contains(&7i64.to_be_bytes().to_vec()), "of this grant and no other");
    assert!(status(&done) == StatusCode::OK && text(&done).contains(r#""applied":true"#));
    // The hold has ended: the lock is requested again.
    let answers = [
        (late, row(true, Some("me"), 7)),
        (NOW, row(false, None, 0)),
        (NOW, row(true, Some("me"), 8)),
    ];
    let (done, _) = run(WAIT, answers, false);
    assert!(status(&done) == StatusCode::OK && text(&done).contains(r#""fence":8"#));
    let answers = [(late, row(true, Some("me"), 7)), (NOW, row(false, Some("other"), 8))];
    assert_eq!(status(&run(PUT, answers, false).0), StatusCode::CONFLICT);
    // The renewal is in doubt, and so is the answer.
    let answers = [(late, row(true, Some("me"), 7)), (NOW, error(error_code::WRITE_TIMEOUT))];
    assert_eq!(
        run(WAIT, answers, false).0.expect_err("no answer").code,
        Some(error_code::WRITE_TIMEOUT)
    );
}

/// An answer must never say that nothing was carried out while the lock is the client's.
#[test]
fn a_lock_that_was_granted_and_could_not_be_renewed_is_in_doubt() {
    let late = RENEW_AFTER + Duration::from_millis(100);
    let granted = [(late, row(true, Some("me"), 7)), (NOW, row(false, Some("me"), 7))];
    for (first, code) in
        granted.into_iter().zip([error_code::IS_BOOTSTRAPPING, error_code::OVERLOADED])
    {
        let failed = run(WAIT, [first, (NOW, error(code))], false).0.expect_err("no answer");
        assert!(
            failed.code.is_some() && failed.message.contains("said so"),
            "the connection is of use: {failed:?}"
        );
        assert_eq!(
            Reply::of_statement(&failed, true).status(),
            StatusCode::GATEWAY_TIMEOUT,
            "{code:#06x}"
        );
    }
}

#[test]
fn a_repeated_acquire_finds_and_renews_the_hold() {
    let (done, asked) =
        run(PUT, [(NOW, row(false, Some("me"), 7)), (NOW, row(true, Some("me"), 7))], false);
    assert_eq!((status(&done), asked.len()), (StatusCode::OK, 2));
    assert!(text(&done).contains(r#""applied":false"#) && text(&done).contains(r#""fence":7"#));
}

#[test]
fn a_wait_is_repeated_only_if_nothing_was_carried_out() {
    let answers = [
        (NOW, error(error_code::IS_BOOTSTRAPPING)),
        (NOW, row(false, Some("other"), 1)),
        (NOW, row(true, Some("me"), 7)),
    ];
    let (done, asked) = run(WAIT, answers, false);
    assert_eq!((status(&done), asked.len()), (StatusCode::OK, 3));
    assert_eq!(asked[0].1[2], 1_500i32.to_be_bytes(), "as long as the proxy lets a request wait");
    for code in [
        error_code::WRITE_TIMEOUT,
        error_code::OVERLOADED,
        error_code::INVALID,
        error_code::UNAUTHORIZED,
    ] {
        assert_eq!(
            run(WAIT, [(NOW, error(code))], false).0.expect_err("no answer").code,
            Some(code)
        );
    }
    let (done, _) = run(PUT, [(NOW, error(error_code::IS_BOOTSTRAPPING))], false);
    assert_eq!(
        done.expect_err("no answer").code,
        Some(error_code::IS_BOOTSTRAPPING),
        "it does not wait"
    );
}

#[test]
fn a_stopping_proxy_keeps_no_waiting_client() {
    let (done, asked) = run(WAIT, [(NOW, row(false, Some("other"), 1))], true);
    assert_eq!(
        (status(&done), &asked[0].1[2][..]),
        (StatusCode::CONFLICT, &0i32.to_be_bytes()[..])
    );
}

#[test]
fn a_wait_leaves_something_of_the_hold() {
    let path = "/v1/locks/n?owner=me&wait=20&ttl=3";
    let (_, asked) = run((Method::PUT, path), [(NOW, row(true, Some("me"), 7))], false);
    let wait_ms = i32::from_be_bytes(asked[0].1[2][..].try_into().expect("an int"));
    assert!(wait_ms < 2_000, "the proxy refuses a wait that is not a second shorter: {wait_ms}");
}

#[test]
fn renewing_and_releasing_say_who_has_the_lock() {
    for (method, verb) in [(Method::PATCH, "UPDATE"), (Method::DELETE, "DELETE")] {
        for (path, answer, expected) in [
            ("/v1/locks/n?owner=me&fence=7", row(true, Some("me"), 7), StatusCode::OK),
            ("/v1/locks/n?owner=me", row(false, None, 0), StatusCode::NOT_FOUND),
            ("/v1/locks/n?owner=me", row(false, Some("other"), 8), StatusCode::CONFLICT),
            ("/v1/locks/n?owner=me&fence=7", row(false, Some("me"), 8), StatusCode::CONFLICT),
        ] {
            let (done, asked) = run((method.clone(), path), [(NOW, answer)], false);
            assert_eq!(status(&done), expected, "{method} {path}");
            let (statement, values) = &asked[0];
            assert!(
                statement.starts_with(verb) && statement.matches('?').count() == values.len(),
                "{statement}"
            );
            assert_eq!(statement.ends_with("AND fence = ?"), path.contains("fence"), "{statement}");
        }
    }
}

#[test]
fn each_kind_of_lock_has_its_table() {
    for (flags, table) in [
        ("", "shunt.locks "),
        ("&shared=true", "shunt.rwlocks "),
        ("&fast=true", "shunt.fast_locks "),
        ("&fast=true&shared=true", "shunt.fast_rwlocks "),
    ] {
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            let path = format!("/v1/locks/n?owner=me{flags}");
            let (_, asked) = run((method, &path), [(NOW, row(true, Some("me"), 7))], false);
            let (statement, values) = &asked[0];
            assert!(statement.contains(table), "{statement}");
            assert_eq!(statement.matches('?').count(), values.len(), "{statement}");
        }
    }
    let (done, asked) =
        run((Method::GET, "/v1/locks/n?fast=true"), [(NOW, Ok(Table::default()))], false);
    assert!(asked[0].0.contains("shunt.fast_locks") && status(&done) == StatusCode::NOT_FOUND);
    let (done, asked) =
        run((Method::GET, "/v1/locks/n/queue"), [(NOW, Ok(Table::default()))], false);
    assert!(asked[0].0.ends_with("AND fast = false") && status(&done) == StatusCode::NOT_FOUND);
}
