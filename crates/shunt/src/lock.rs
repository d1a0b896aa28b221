//! `shunt lock`: runs a command while it holds a lock.
//!
//! The command must never continue as if it held a lock that it has lost. So the TTL counts from
//! before the request for the lock, and the lock is renewed after a third of the TTL. If no renewal
//! has succeeded when a tenth of the TTL is left, the command gets SIGTERM, and SIGKILL five
//! seconds later.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use shunt_proxy::control::client::{Client, Failed, Table};
use shunt_wire::cql::message::{Consistency, error_code};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{Exit, LOCK_HELD, LOCK_LOST};
use crate::fleet::Access;
use crate::locks::shown;
use crate::times::seconds;

/// Time that one request waits at the proxy; the command repeats the request until `--wait`
/// expires.
const ROUND: Duration = Duration::from_millis(1_000);
/// Pause after a request that no proxy could serve.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of the checks whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);
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
    /// Time of the request that obtained or renewed the lock.
    asked: Instant,
}

/// A connection to a proxy, opened again when the proxy does not answer.
struct Proxy<'a> {
    lock: &'a Lock,
    owner: String,
    client: Option<Client>,
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
    let mut proxy = Proxy { lock, owner: lock.owner.clone().unwrap_or_else(owner), client: None };
    let held = match proxy.acquire() {
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
    let ended =
        command.spawn().and_then(|child| Running { child }.wait_and_renew(&mut proxy, &held));
    let code = match ended {
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
    proxy.release(&held);
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
            // A proxy that does not answer must not use up the TTL.
            None => self.lock.access.connect_to_locks(self.ttl() / 5)?,
        };
        let client = self.client.insert(client);
        let answer = client.query(text, values, Consistency::ONE, None);
        if answer.as_ref().is_err_and(|failed| {
            failed.code.is_none_or(|code| code == error_code::IS_BOOTSTRAPPING)
        }) {
            self.client = None;
        }
        answer
    }

    fn acquire(&mut self) -> Result<Held, Refused> {
        let until = Instant::now() + Duration::from_secs(u64::from(self.lock.wait));
        let text = format!(
            "INSERT INTO shunt.{} (name, owner, mode, wait_ms) VALUES (?, ?, ?, ?) IF NOT EXISTS USING TTL {}",
            self.table(),
            self.lock.ttl
        );
        let mode: &[u8] = if self.lock.shared { b"S" } else { b"X" };
        let mut is_first = true;
        loop {
            let asked = Instant::now();
            let left = until.saturating_duration_since(asked);
            let round_ms = left.min(ROUND).as_millis() as i32;
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
                }
                Err(failed) if is_final(&failed) || left.is_zero() => {
                    return Err(Refused::Failed(failed));
                }
                Err(_) => pause(PAUSE),
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

    /// Releases the lock; if that fails, the TTL ends it.
    fn release(&mut self, held: &Held) {
        let text =
            format!("DELETE FROM shunt.{} WHERE name = ? AND owner = ? IF fence = ?", self.table());
        let values = self.values(&[held.fence.to_be_bytes().to_vec()]);
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

fn pause(time: Duration) {
    if let Ok(runtime) = runtime() {
        runtime.block_on(async { tokio::time::sleep(time).await });
    }
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// A running command.
struct Running {
    child: Child,
}

impl Running {
    /// Waits for the command's end and renews the lock until then. `None`: the lock was lost, and
    /// the command was stopped.
    fn wait_and_renew(
        mut self,
        proxy: &mut Proxy<'_>,
        held: &Held,
    ) -> std::io::Result<Option<ExitStatus>> {
        let signals = runtime()?;
        let (mut terminate, mut interrupt) = {
            let _inside = signals.enter();
            (unix::signal(SignalKind::terminate())?, unix::signal(SignalKind::interrupt())?)
        };
        let ttl = proxy.ttl();
        let mut sure_until = held.asked + ttl - ttl / 10;
        let mut renew_at = held.asked + ttl / 3;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            let now = Instant::now();
            if now >= sure_until {
                return self.stop().map(|()| None);
            }
            if now >= renew_at {
                match proxy.renew(held) {
                    Ok(true) => {
                        sure_until = now + ttl - ttl / 10;
                        renew_at = now + ttl / 3;
                    }
                    Ok(false) => return self.stop().map(|()| None),
                    // The answer is unknown, or no proxy was reached: retry soon while time is
                    // left.
                    Err(_) => renew_at = now + PAUSE,
                }
            }
            // A terminal signals the command itself; a supervisor signals only this process.
            let told = signals.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => Some(Signal::TERM),
                    _ = interrupt.recv() => Some(Signal::INT),
                    () = tokio::time::sleep(LOOK) => None,
                }
            });
            if let Some(signal) = told {
                self.tell(signal);
            }
        }
    }

    fn tell(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The command may have ended already.
            let _ = kill_process(pid, signal);
        }
    }

    fn stop(&mut self) -> std::io::Result<()> {
        self.tell(Signal::TERM);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            pause(LOOK);
        }
        self.child.kill()?;
        self.child.wait().map(|_| ())
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
}
