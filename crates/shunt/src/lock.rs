//! `shunt lock`: runs a command while it holds a lock.
//!
//! The command must never continue as if it held a lock that it has lost. So the TTL counts from
//! before the request for the lock, and the lock is renewed after a third of the TTL. If no renewal
//! has succeeded when a tenth of the TTL is left, the command and all processes that it has begun
//! get SIGTERM, and SIGKILL five seconds later.
//!
//! A thread of its own renews: a proxy that answers late must not keep the command from its signal.
//! The clock goes on while the host sleeps, as that of the proxies does.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, getpgrp};
use rustix::termios::tcgetpgrp;
use rustix::time::{ClockId, clock_gettime};
use shunt_proxy::control::client::{Client, Failed, Table};
use shunt_wire::cql::message::{Consistency, error_code};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind};

use crate::descendants;
use crate::exit::{Exit, LOCK_HELD, LOCK_LOST};
use crate::fleet::Access;
use crate::locks::shown;
use crate::times::seconds;

/// Time that one request waits at the proxy; the command repeats the request until `--wait`
/// expires.
const ROUND: Duration = Duration::from_millis(1_000);
/// Pause after a request that no proxy could serve.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Interval of the checks whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Interval in which the ends of orphans are taken.
const REAP_EVERY: Duration = Duration::from_secs(2);
/// Time between SIGTERM and SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

/// The exit code of shells for a command that cannot be run.
const NO_PROGRAM: u8 = 127;
/// Shortest TTL, in seconds, with which a lock can be renewed after its owner proxy has died, given
/// the default lease.
const TTL_SURVIVES: u32 = 10;

/// `shunt lock`.
#[derive(Args, Debug)]
pub(crate) struct Lock {
    #[command(flatten)]
    access: Access,
    /// Time to live of the lock, which is renewed while the command runs: seconds, or with a unit,
    /// as in 1m
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = |text: &str| seconds(text, 3..=86_400))]
    ttl: u32,
    /// Longest wait for the lock: seconds, or with a unit, as in 1m; 0 tries once
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = |text: &str| seconds(text, 0..=86_400))]
    wait: u32,
    /// Take a shared lock, beside other shared holders
    #[arg(long)]
    shared: bool,
    /// Take a lock in memory: faster, but unavailable for a while after a proxy dies
    #[arg(long)]
    fast: bool,
    /// Name of the owner. Two commands with the same owner count as one, and may run together
    /// [default: host, process and time]
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
    /// Exit code when another owner still holds the lock when --wait expires
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = LOCK_HELD)]
    conflict_exit_code: u8,
    /// Name of the lock
    #[arg(value_name = "NAME")]
    name: String,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<String>,
}

/// Reason why the lock was not obtained.
enum Refused {
    /// Another owner holds it; the text names the holder as far as known.
    Held(String),
    /// The request failed, whoever holds the lock.
    Failed(Failed),
}

/// A lock that is held.
struct Held {
    fence: i64,
    /// Time of the request that obtained the lock; see [`now`].
    asked: Duration,
}

/// The outcome of a renewal.
enum Renewal {
    /// The lock was renewed by a request of this time.
    Renewed { asked: Duration },
    /// The lock is no longer held.
    Lost,
}

/// A connection to a proxy, opened again when the proxy does not answer.
struct Proxy<'a> {
    lock: &'a Lock,
    owner: String,
    client: Option<Client>,
    /// A statement that was sent may have been carried out or not.
    is_in_doubt: bool,
}

/// Runs the command under the lock. Returns the command's exit code, if it ran to its end.
pub(crate) fn run(lock: &Lock) -> ExitCode {
    let (program, arguments) =
        lock.command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    // Checked before the lock is taken: a command that cannot run must not keep others out.
    if !is_program(program) {
        eprintln!("error: {program}: no such program");
        return ExitCode::from(NO_PROGRAM);
    }
    if !lock.fast && lock.ttl < TTL_SURVIVES {
        eprintln!(
            "warning: with --ttl {} the lock is lost if the proxy that keeps it dies: with the default lease another one can renew it \
             after about 6 s; give --ttl {TTL_SURVIVES} or more",
            lock.ttl
        );
    }
    let own = lock.owner.clone().unwrap_or_else(owner);
    let mut proxy = Proxy { lock, owner: own, client: None, is_in_doubt: false };
    let held = match proxy.acquire().inspect_err(|_| proxy.give_up()) {
        Ok(held) => held,
        Err(Refused::Held(who)) => {
            eprintln!("lock {} is held by {who}", lock.name);
            return ExitCode::from(lock.conflict_exit_code);
        }
        Err(Refused::Failed(failed)) => {
            eprintln!("error: {}", failed.message);
            return if failed.code.is_none() { Exit::NoRing } else { Exit::Configuration }.into();
        }
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("SHUNT_LOCK_NAME", &lock.name)
        .env("SHUNT_LOCK_FENCE", held.fence.to_string());
    let code = match run_and_renew(&mut command, &mut proxy, &held) {
        Ok(Some(status)) => code_of(status),
        Ok(None) => {
            eprintln!("lock {} was lost: the command was stopped", lock.name);
            return ExitCode::from(LOCK_LOST);
        }
        Err(error) => {
            eprintln!("error: {program}: {error}");
            NO_PROGRAM
        }
    };
    proxy.release(Some(held.fence));
    ExitCode::from(code)
}

/// True if the program exists, by its path or in a directory of PATH.
fn is_program(name: &str) -> bool {
    let may_run = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return may_run(Path::new(name));
    }
    // The directories that execvp(3) searches without PATH.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    !name.is_empty() && std::env::split_paths(&path).any(|directory| may_run(&directory.join(name)))
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(70);
    u8::try_from(code).unwrap_or(70)
}

/// Returns a unique owner name.
fn owner() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}:{}:{:x}", host.trim(), std::process::id(), now.as_micros())
}

impl Proxy<'_> {
    fn table(&self) -> &'static str {
        if self.lock.fast { "fast_rwlocks" } else { "rwlocks" }
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(u64::from(self.lock.ttl))
    }

    fn values(&self, more: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
        let first = [self.lock.name.clone().into_bytes(), self.owner.clone().into_bytes()];
        first.into_iter().chain(more.iter().cloned()).map(Some).collect()
    }

    /// Executes a statement. After a statement without an answer, the next one goes to whichever
    /// proxy answers.
    fn query(&mut self, text: &str, values: &[Option<Vec<u8>>]) -> Result<Table, Failed> {
        let client = match self.client.take() {
            Some(client) => client,
            // A proxy that does not answer must not use up the TTL or `--wait`, and one that has
            // the request wait must not seem to be silent.
            None => {
                let limit = (self.ttl() / 5).clamp(ROUND + ROUND / 2, ANSWER_MAX);
                self.lock.access.connect_to_locks(limit)?
            }
        };
        let client = self.client.insert(client);
        let answer = client.query(text, values, Consistency::ONE, None);
        if answer.as_ref().is_err_and(|failed| {
            failed.code.is_none_or(|code| code == error_code::IS_BOOTSTRAPPING)
        }) {
            self.client = None;
        }
        self.is_in_doubt |= answer
            .as_ref()
            .is_err_and(|failed| failed.code.is_none_or(|code| code == error_code::WRITE_TIMEOUT));
        answer
    }

    fn acquire(&mut self) -> Result<Held, Refused> {
        let until = now() + Duration::from_secs(u64::from(self.lock.wait));
        let text = format!(
            "INSERT INTO shunt.{} (name, owner, mode, wait_ms) VALUES (?, ?, ?, ?) IF NOT EXISTS USING TTL {}",
            self.table(),
            self.lock.ttl
        );
        let mode: &[u8] = if self.lock.shared { b"S" } else { b"X" };
        let (mut is_first, mut round) = (true, ROUND);
        loop {
            let asked = now();
            let left = until.saturating_sub(asked);
            let round_ms = left.min(round).as_millis() as i32;
            let values = self.values(&[mode.to_vec(), round_ms.to_be_bytes().to_vec()]);
            match self.query(&text, &values) {
                Ok(table) => {
                    let fence = table
                        .get(0, "fence")
                        .and_then(|fence| Some(i64::from_be_bytes(fence.try_into().ok()?)));
                    let is_granted = table.get(0, "[applied]") == Some(&[1]);
                    // An earlier request was granted, but its answer was lost.
                    let was_granted = table.get(0, "owner") == Some(self.owner.as_bytes());
                    if let Some(fence) = fence
                        && (is_granted || was_granted)
                    {
                        if !is_granted && is_first {
                            eprintln!(
                                "warning: {} holds lock {} already, and is taken for this command: if another command runs under that \
                                 --owner, both run at once, and the lock is released when the first of them ends",
                                self.owner, self.lock.name
                            );
                        }
                        let held = Held { fence, asked };
                        if is_granted || self.renew(&held).is_ok_and(|renewed| renewed) {
                            return Ok(held);
                        }
                    }
                    if left.is_zero() {
                        return Err(Refused::Held(holder_of(&table)));
                    }
                    if round < PAUSE {
                        pause(PAUSE);
                    }
                }
                Err(failed) => match wait_allowed(&failed).filter(|most| *most < round) {
                    Some(most) => {
                        round = most;
                        continue;
                    }
                    None if is_final(&failed) || left.is_zero() => {
                        return Err(Refused::Failed(failed));
                    }
                    None => pause(PAUSE),
                },
            }
            is_first = false;
        }
    }

    /// Renews the lock; `false` if it is no longer held.
    fn renew(&mut self, held: &Held) -> Result<bool, Failed> {
        let text = format!(
            "UPDATE shunt.{} USING TTL {} SET mode = '{}' WHERE name = ? AND owner = ? IF fence = ?",
            self.table(),
            self.lock.ttl,
            if self.lock.shared { 'S' } else { 'X' }
        );
        let values = self.values(&[held.fence.to_be_bytes().to_vec()]);
        self.query(&text, &values).map(|table| table.get(0, "[applied]") == Some(&[1]))
    }

    /// Renews the lock whenever a third of its TTL has passed, until it is lost or the other side
    /// of `ended` is gone.
    fn renew_until(&mut self, held: &Held, news: &Sender<Renewal>, ended: &Receiver<()>) {
        let third = self.ttl() / 3;
        let mut renew_at = held.asked + third;
        while ended.recv_timeout(renew_at.saturating_sub(now())) == Err(RecvTimeoutError::Timeout) {
            let asked = now();
            let renewal = match self.renew(held) {
                Ok(true) => Renewal::Renewed { asked },
                Ok(false) => Renewal::Lost,
                // The answer is unknown, or no proxy was reached: retry soon while time is left.
                Err(_) => {
                    renew_at = now() + PAUSE;
                    continue;
                }
            };
            renew_at = asked + third;
            let is_lost = matches!(renewal, Renewal::Lost);
            if news.send(renewal).is_err() || is_lost {
                return;
            }
        }
    }

    /// Gives back a lock that may have been granted although no answer said so. Another command may
    /// rely on an owner's text that was given.
    fn give_up(&mut self) {
        if self.is_in_doubt && self.lock.owner.is_none() {
            self.release(None);
        }
    }

    /// Releases the lock, whatever its fence if that is unknown; if that fails, the TTL ends it.
    fn release(&mut self, fence: Option<i64>) {
        let fence = fence.map(|fence| fence.to_be_bytes().to_vec());
        let test = if fence.is_some() { "fence = ?" } else { "EXISTS" };
        let text =
            format!("DELETE FROM shunt.{} WHERE name = ? AND owner = ? IF {test}", self.table());
        let values = self.values(fence.as_slice());
        for _ in 0..3 {
            if self.query(&text, &values).is_ok() {
                return;
            }
            pause(PAUSE);
        }
        eprintln!("lock {} could not be released; it ends when its TTL expires", self.lock.name);
    }
}

/// Returns the holder of a lock, from a refusal.
fn holder_of(table: &Table) -> String {
    let number = |column, length: usize| {
        let bytes: &[u8] = table.get(0, column).filter(|bytes| bytes.len() == length)?;
        Some(bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let owner = table.get(0, "owner").map(shown);
    match (owner, number("fence", 8), number("ttl_ms", 4)) {
        (Some(owner), Some(fence), Some(ttl_ms)) => {
            format!(
                "{owner} (fence {fence}, {:.1} s left unless it renews it)",
                ttl_ms as f64 / 1_000.0
            )
        }
        (Some(owner), ..) => owner,
        _ => "somebody else".to_owned(),
    }
}

/// True if a repeated request would get the same answer.
fn is_final(failed: &Failed) -> bool {
    failed
        .code
        .is_some_and(|code| code == error_code::BAD_CREDENTIALS || code >= error_code::SYNTAX_ERROR)
}

/// The longest wait that a proxy allows, if it refused a request because of its wait.
fn wait_allowed(failed: &Failed) -> Option<Duration> {
    let place = failed.message.find("lock_wait_max_ms")?;
    let before = failed.message[..place].trim_end_matches([' ', '(']);
    let digits = before.rsplit(|letter: char| !letter.is_ascii_digit()).next();
    Some(Duration::from_millis(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)))
}

fn pause(time: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    if let Ok(runtime) = runtime {
        runtime.block_on(async { tokio::time::sleep(time).await });
    }
}

/// Seconds since the host started, those included in which it slept.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Starts the command, and renews the lock until it ends. `None`: the lock was lost, and the
/// command was stopped.
///
/// # Errors
/// The command cannot be started, or cannot be watched; nothing of it runs then.
fn run_and_renew(
    command: &mut Command,
    proxy: &mut Proxy<'_>,
    held: &Held,
) -> std::io::Result<Option<ExitStatus>> {
    // All that can fail comes before the command.
    descendants::adopt()?;
    let signals = Signals::new()?;
    // Children that this process had before it became `shunt lock`.
    let others = descendants::all(&HashSet::new())?.into_iter().collect();
    let child = command.spawn()?;
    let ttl = proxy.ttl();
    thread::scope(|scope| {
        let (news, renewals) = mpsc::channel();
        let (_end, ended) = mpsc::channel();
        scope.spawn(move || proxy.renew_until(held, &news, &ended));
        let running = Running { child, signals, others, told: HashSet::new(), was_told: false };
        running.wait(held.asked, ttl, &renewals)
    })
}

/// The signals that go on to the command.
struct Signals {
    runtime: Runtime,
    streams: Vec<(Signal, unix::Signal)>,
}

/// The signals that this process ignores, a bit for each, by its line in /proc/self/status.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// True if the terminal sends this signal to the command as well.
fn comes_from_terminal(signal: Signal) -> bool {
    let foreground =
        || tcgetpgrp(File::open("/dev/tty").ok()?).ok().filter(|group| *group == getpgrp());
    (signal == Signal::INT || signal == Signal::QUIT) && foreground().is_some()
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let kinds = [
            (Signal::TERM, SignalKind::terminate()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
        ];
        let inside = runtime.enter();
        // Signals that the caller ignores, as nohup(1) does, stay ignored.
        let ignored = ignored_signals();
        let streams = kinds
            .into_iter()
            .filter(|(signal, _)| ignored >> (signal.as_raw() - 1) & 1 == 0)
            .map(|(signal, kind)| Ok((signal, unix::signal(kind)?)))
            .collect::<std::io::Result<Vec<_>>>()?;
        drop(inside);
        Ok(Signals { runtime, streams })
    }

    /// Waits for the next signal, for at most this time.
    fn next_within(&mut self, time: Duration) -> Option<Signal> {
        let Signals { runtime, streams } = self;
        let next = std::future::poll_fn(|context| {
            let mut arrived = streams.iter_mut().filter_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            arrived.next().map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        });
        runtime.block_on(async { tokio::time::timeout(time, next).await.ok() })
    }
}

/// A command that runs.
struct Running {
    child: Child,
    signals: Signals,
    /// Descendants that the command has not begun.
    others: HashSet<Pid>,
    /// Processes that have got SIGTERM from [`stop`](Running::stop).
    told: HashSet<Pid>,
    /// True once a signal went on to the command: the command has then ended when all of its
    /// processes have.
    was_told: bool,
}

impl Running {
    /// Waits for the end of the command. `None`: the lock was lost, and the command was stopped.
    fn wait(
        mut self,
        asked: Duration,
        ttl: Duration,
        renewals: &Receiver<Renewal>,
    ) -> std::io::Result<Option<ExitStatus>> {
        let trusted = ttl - ttl / 10;
        let mut sure_until = asked + trusted;
        let mut reap_at = asked;
        loop {
            if now() >= reap_at {
                descendants::reap_orphans(self.child.id());
                reap_at = now() + REAP_EVERY;
            }
            let ended = match self.child.try_wait() {
                Ok(ended) => ended,
                Err(error) => {
                    self.stop();
                    return Err(error);
                }
            };
            if let Some(status) = ended
                && (!self.was_told || self.processes().is_empty())
            {
                return Ok(Some(status));
            }
            match renewals.try_recv() {
                Ok(Renewal::Renewed { asked }) => sure_until = asked + trusted,
                Ok(Renewal::Lost) => sure_until = Duration::ZERO,
                Err(_) => {}
            }
            if now() >= sure_until {
                self.stop();
                return Ok(None);
            }
            // A terminal signals the command itself; a supervisor signals only this process.
            if let Some(signal) = self.signals.next_within(LOOK) {
                self.was_told = true;
                if comes_from_terminal(signal) {
                    continue;
                }
                descendants::tell(&self.processes(), signal, &mut HashSet::new());
            }
        }
    }

    /// The processes of the command that run.
    fn processes(&self) -> Vec<Pid> {
        let child = || i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        descendants::all(&self.others).unwrap_or_else(|_| child().into_iter().collect())
    }

    /// Stops the command and all processes that it has begun.
    fn stop(&mut self) {
        let until = now() + PATIENCE;
        loop {
            let (left, has_ended) = (self.processes(), !matches!(self.child.try_wait(), Ok(None)));
            if has_ended && left.is_empty() {
                descendants::reap_orphans(self.child.id());
                return;
            }
            if now() < until {
                descendants::tell(&left, Signal::TERM, &mut self.told);
            } else if now() < until + PATIENCE {
                descendants::tell(&left, Signal::KILL, &mut HashSet::new());
            } else {
                let numbers: Vec<_> = left.iter().map(|pid| pid.as_raw_nonzero()).collect();
                eprintln!("warning: processes {numbers:?} of the command could not be stopped");
                return;
            }
            pause(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_named_without_what_a_terminal_acts_upon() {
        let columns = ["owner", "fence", "ttl_ms"].map(str::to_owned).to_vec();
        let owner = Some(b"me\x1b]0;you\x07".to_vec());
        let row =
            vec![owner, Some(7_i64.to_be_bytes().to_vec()), Some(1_500_i32.to_be_bytes().to_vec())];
        let table = Table { columns, rows: vec![row] };
        assert_eq!(
            holder_of(&table),
            "me\\u{1b}]0;you\\u{7} (fence 7, 1.5 s left unless it renews it)"
        );
    }

    #[test]
    fn the_wait_that_a_proxy_allows_is_in_its_refusal() {
        let allowed = |message: &str| {
            wait_allowed(&Failed { code: Some(error_code::INVALID), message: message.to_owned() })
        };
        let told = "Shunt: wait_ms is 1000: 250 (lock_wait_max_ms) is the most, because drivers";
        assert_eq!(allowed(told), Some(Duration::from_millis(250)));
        let of_other = "Shunt: the proxy's options, such as lock_wait_max_ms, differ";
        assert_eq!(allowed(of_other), Some(Duration::ZERO));
        assert_eq!(allowed("Shunt: a TTL of 40 s: 30 s is the most"), None);
    }
}
