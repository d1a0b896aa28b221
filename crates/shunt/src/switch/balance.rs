//! `shunt switch balance`: directs new connections to the ready ones of several dispatchers.
//!
//! | a dispatcher's `/readyz` | its state |
//! |---|---|
//! | 200 | takes new connections |
//! | anything else, or nothing from a reachable host | keeps its connections: its process drains, starts, is paused or is gone, and connections that its host has handed over go on |
//! | nothing from its host, [`LOST`] times in a row | gone: its connections go to other dispatchers, which reset them |
//!
//! Without a ready dispatcher, or without this process, the table keeps its content. It also does
//! so until each dispatcher has answered or has been silent for long enough to count as gone. The
//! balancer must never remove a dispatcher that it has not reached yet, nor the last one because it
//! reaches none.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use shunt_reactor::SessionFault;
use shunt_steering::{DISPATCHERS_MAX, Gateway, Mac, State, Target, interface_index, neighbours};
use shunt_tls::{Client, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Pins;
use crate::fleet::TlsAccess;
use crate::print;
use crate::relay::patience;

/// Number of silent checks in a row after which a host counts as gone.
const LOST: u32 = 3;
/// Start of the answer of a ready dispatcher.
const READY: [u8; 12] = *b"HTTP/1.1 200";

/// `shunt switch balance`.
#[derive(Args, Debug)]
pub(super) struct Balance {
    /// Address of a dispatcher's host in the gateway's network, with the port of its --admin;
    /// repeatable
    #[arg(long = "dispatcher", value_name = "ADDR:PORT", required = true, num_args = 1.., value_delimiter = ',')]
    dispatchers: Vec<SocketAddr>,
    /// Interval of the health checks, and the deadline of each
    #[arg(long, value_name = "MS", default_value = "1s", value_parser = patience)]
    interval_ms: Duration,
    /// Interface towards the dispatchers [default: the one that packets arrive on]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    #[command(flatten)]
    pins: Pins,
    /// TLS of the dispatchers' admin pages.
    #[command(flatten)]
    tls: TlsAccess,
}

/// Outcome of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Ready,
    NotReady,
    /// The proxy's admin pages cannot be asked over TLS.
    Unproven(SessionFault),
    Nothing,
}

/// Knowledge about a dispatcher.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    mac: Option<Mac>,
    /// `None` before its first answer, and once it is gone.
    state: Option<State>,
    silent: u32,
    /// The reason why its admin pages cannot be asked over TLS.
    fault: Option<SessionFault>,
}

impl Known {
    /// True after its first answer, or after a long silence.
    fn is_known(&self) -> bool {
        self.state.is_some() || self.silent >= LOST
    }

    /// Records the outcome of a check; true if the state changed.
    fn heard(&mut self, said: Said) -> bool {
        let (before, fault_before) = (self.state, self.fault);
        self.fault = match said {
            Said::Unproven(fault) => Some(fault),
            Said::Nothing => fault_before,
            Said::Ready | Said::NotReady => None,
        };
        self.silent = if said == Said::Nothing { self.silent + 1 } else { 0 };
        self.state = match said {
            Said::Ready => Some(State::TakesNew),
            Said::NotReady | Said::Unproven(_) => Some(State::KeepsOld),
            Said::Nothing if self.silent >= LOST => None,
            Said::Nothing => before,
        };
        self.state != before || self.fault != fault_before
    }
}

impl Balance {
    #[expect(clippy::disallowed_methods, reason = "this process has nothing else to do meanwhile")]
    pub(super) fn run(&self) -> Result<String, String> {
        if self.dispatchers.len() > DISPATCHERS_MAX {
            return Err(format!(
                "--dispatcher: {} of them; a gateway can have {DISPATCHERS_MAX}",
                self.dispatchers.len()
            ));
        }
        let interface = match &self.interface {
            None => 0,
            Some(name) => interface_index(name).map_err(|error| error.to_string())?,
        };
        let tls = self.tls.client().map_err(|error| error.to_string())?;
        let mut gateway = Gateway::open(&self.pins.pins).map_err(|error| error.to_string())?;
        let _alone = alone(&self.pins.pins)?;
        let mut known: BTreeMap<SocketAddr, Known> =
            self.dispatchers.iter().map(|dispatcher| (*dispatcher, Known::default())).collect();
        loop {
            let began = Instant::now();
            self.ask_all(&mut known, tls.as_deref());
            let targets = targets(&known, interface);
            let is_known = known.values().all(Known::is_known);
            if is_known && targets.iter().any(|target| target.state == State::TakesNew) {
                gateway.set(&targets).map_err(|error| error.to_string())?;
            }
            thread::sleep(self.interval_ms.saturating_sub(began.elapsed()));
        }
    }

    /// Checks all dispatchers in parallel, and applies and logs what has changed.
    fn ask_all(&self, known: &mut BTreeMap<SocketAddr, Known>, tls: Option<&Client>) {
        let said: Vec<(SocketAddr, Said)> = thread::scope(|scope| {
            let asked: Vec<_> = known
                .keys()
                .map(|dispatcher| {
                    (*dispatcher, scope.spawn(|| ask(*dispatcher, tls, self.interval_ms)))
                })
                .collect();
            asked
                .into_iter()
                .map(|(dispatcher, asked)| (dispatcher, asked.join().unwrap_or(Said::Nothing)))
                .collect()
        });
        // The kernel has looked up the hardware address of each host that answered or refused.
        let macs = neighbours().unwrap_or_default();
        for (dispatcher, said) in said {
            let Some(known) = known.get_mut(&dispatcher) else { continue };
            known.mac = macs.get(&dispatcher.ip()).copied().or(known.mac);
            if known.heard(said) {
                print(&format!("{dispatcher} {}\n", words(known)));
            }
        }
    }
}

fn words(known: &Known) -> String {
    if let (Some(SessionFault(why)), Some(_)) = (known.fault, known.state) {
        return format!("cannot be asked over TLS ({why}); it keeps only its existing connections");
    }
    let words = match (known.state, known.mac) {
        (Some(_), None) => "is not in this host's layer-2 network, so it gets no connections",
        (Some(State::TakesNew), _) => "takes new connections",
        (Some(State::KeepsOld), _) => "is not ready; it keeps only its existing connections",
        (None, _) => {
            "does not answer, so its connections go to other dispatchers, which reset them"
        }
    };
    words.to_owned()
}

fn targets(known: &BTreeMap<SocketAddr, Known>, interface: u32) -> Vec<Target> {
    known
        .values()
        .filter_map(|one| Some(Target { mac: one.mac?, state: one.state?, interface }))
        .collect()
}

/// Takes a lock against a second balancer: two would undo each other's entries again and again. The
/// lock lasts as long as the returned file.
fn alone(pins: &Path) -> Result<File, String> {
    let directory = File::open(pins)
        .map_err(|error| format!("{}: cannot be opened: {error}", pins.display()))?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(format!(
            "{}: another `shunt switch balance` controls this gateway: end it first, and give one \
            process all dispatchers",
            pins.display()
        )),
        Err(TryLockError::Error(error)) => {
            Err(format!("{}: cannot be locked: {error}", pins.display()))
        }
    }
}

/// Asks a dispatcher whether it is ready, within a total time of `within`.
fn ask(dispatcher: SocketAddr, tls: Option<&Client>, within: Duration) -> Said {
    let until = Instant::now() + within;
    let mut connection = match TcpStream::connect_timeout(&dispatcher, within) {
        Ok(connection) => connection,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Said::NotReady,
        Err(_) => return Said::Nothing,
    };
    let request =
        format!("GET /readyz HTTP/1.1\r\nHost: {dispatcher}\r\nConnection: close\r\n\r\n");
    if let Some(tls) = tls {
        return ask_over_tls(connection, tls, dispatcher, &request, until);
    }
    let mut answer = || -> std::io::Result<[u8; 12]> {
        let left =
            || Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
        let left = || left().ok_or(ErrorKind::TimedOut);
        connection.set_write_timeout(Some(left()?))?;
        // Small enough for the kernel to buffer it at once.
        connection.write_all(request.as_bytes())?;
        let (mut status, mut count) = ([0; 12], 0);
        while count < status.len() {
            connection.set_read_timeout(Some(left()?))?;
            match connection.read(&mut status[count..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => count += more,
            }
        }
        Ok(status)
    };
    // A host that accepted the connection is alive, whatever its process does.
    if answer().is_ok_and(|status| status == READY) { Said::Ready } else { Said::NotReady }
}

/// Same as [`ask`], over TLS.
fn ask_over_tls(
    connection: TcpStream,
    tls: &Client,
    dispatcher: SocketAddr,
    request: &str,
    until: Instant,
) -> Said {
    let answer = async {
        connection.set_nonblocking(true)?;
        let connection = tokio::net::TcpStream::from_std(connection)?;
        let session = tls.session(&dispatcher.ip().to_canonical().to_string());
        let mut stream = Stream::connect(connection, session).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        Ok::<_, std::io::Error>(status)
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Said::NotReady;
    };
    let answer = async { tokio::time::timeout_at(until.into(), answer).await };
    match runtime.block_on(answer) {
        Ok(Ok(status)) if status == READY => Said::Ready,
        Ok(Err(error)) => {
            let fault = error.get_ref().and_then(|inner| inner.downcast_ref());
            fault.copied().map_or(Said::NotReady, Said::Unproven)
        }
        _ => Said::NotReady,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatcher_that_says_nothing_is_gone_only_after_a_while() {
        let mut known = Known::default();
        assert!(!known.heard(Said::Nothing) && known.state.is_none() && !known.is_known());
        assert!(known.heard(Said::Ready) && !known.heard(Said::Ready) && known.is_known());
        assert!(!known.heard(Said::Nothing) && !known.heard(Said::Nothing));
        assert_eq!(known.state, Some(State::TakesNew));
        assert!(known.heard(Said::Nothing));
        assert!(known.state.is_none() && known.is_known());
        assert!(known.heard(Said::NotReady));
        assert_eq!(known.state, Some(State::KeepsOld));
    }

    #[test]
    fn a_backend_that_refuses_or_stays_silent_is_there_and_not_ready() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        assert_eq!(ask(address, None, Duration::from_secs(5)), Said::NotReady);
        // Also for a process that does not accept the connection.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address");
        assert_eq!(ask(address, None, Duration::from_millis(50)), Said::NotReady);
    }

    #[test]
    fn a_backend_that_answers_byte_by_byte_is_not_waited_for() {
        let trickling = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = trickling.local_addr().expect("an address");
        let talking = thread::spawn(move || {
            let mut connection = trickling.accept().expect("a connection").0;
            for byte in b"HTTP/1.1 200 OK" {
                let _ = connection.write_all(&[*byte]);
                // Each answer is in time, but all of them together are not.
                thread::park_timeout(Duration::from_millis(200));
            }
        });
        assert_eq!(ask(address, None, Duration::from_secs(1)), Said::NotReady);
        talking.join().expect("it has said all");
    }

    #[test]
    fn a_second_one_on_the_same_gateway_is_refused() {
        let pins = std::env::temp_dir().join(format!("shunt-balance-{}", std::process::id()));
        std::fs::create_dir_all(&pins).expect("a directory");
        let first = alone(&pins).expect("nobody else is there");
        let why = alone(&pins).expect_err("the first is there");
        assert!(why.contains("another `shunt switch balance`"), "{why}");
        drop(first);
        alone(&pins).expect("the first is gone");
        std::fs::remove_dir(&pins).expect("it is empty");
    }
}
