//! Starts the binary, reads its output, sends HTTP requests to it.

#![cfg_attr(
    not(feature = "node"),
    allow(dead_code, reason = "some of it is for tests of the embedded node")
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_testing::blocking::Client;

/// A read that the stub answers.
pub(crate) const READ: &str = "SELECT v FROM bench.kv WHERE k = 0x01";
/// Longest wait for any event; only a broken test reaches it.
const GUARD: Duration = Duration::from_secs(180);
/// Timeouts of a proxy in milliseconds, for tests about something else.
const PATIENT: [(&str, &str); 4] = [
    ("--query-timeout-ms", "86400000"),
    ("--connect-timeout-ms", "180000"),
    ("--handshake-timeout-ms", "180000"),
    ("--drain-timeout-ms", "86400000"),
];

pub(crate) fn shunt(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(arguments);
    command
}

/// Runs the command to its end.
pub(crate) fn output(arguments: &[&str]) -> (i32, String, String) {
    ended(&shunt(arguments).output().expect("start"))
}

fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("ended by a signal"), text(&output.stdout), text(&output.stderr))
}

/// A ring of one stub node; ends with the test.
pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    child: Child,
    _input: ChildStdin,
}

impl Stub {
    pub(crate) fn start() -> Self {
        let mut command =
            shunt(&["bench", "stub", "--listen", "127.0.0.1:0", "--until-input-closes"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start");
        let input = child.stdin.take().expect("piped");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        let address = line.split_whitespace().last().and_then(|address| address.parse().ok());
        Self {
            address: address.unwrap_or_else(|| panic!("no address in {line:?}")),
            child,
            _input: input,
        }
    }
}

impl Stub {
    /// Stops it from answering; its connections stay open.
    pub(crate) fn freeze(&self) {
        freeze(&self.child);
    }

    /// Resumes it; it then answers everything received meanwhile.
    pub(crate) fn thaw(&self) {
        signal(&self.child, "CONT");
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The log of a process, readable while it runs.
pub(crate) struct Log {
    text: Arc<Mutex<String>>,
    reading: JoinHandle<()>,
}

impl Log {
    pub(crate) fn of(errors: ChildStderr) -> Self {
        let text = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&text);
        let reading = std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let mut written = written.lock().expect("log");
                written.push_str(&line);
                written.push('\n');
            }
        });
        Self { text, reading }
    }

    /// Waits until the log contains a text.
    pub(crate) fn wait_for(&self, text: &str) {
        eventually(|| self.text.lock().expect("log").contains(text));
    }

    /// Returns the whole log, after the process has ended.
    pub(crate) fn whole(self) -> String {
        self.reading.join().expect("the log's reader");
        std::mem::take(&mut *self.text.lock().expect("log"))
    }
}

/// A running proxy; ends with the test at the latest.
pub(crate) struct Proxy {
    child: Child,
    /// `None` once it has ended.
    log: Option<Log>,
    pub(crate) clients: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Proxy {
    /// Starts it on free ports and reads its addresses from its standard output.
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command =
            shunt(&["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "2"]);
        for (option, value) in PATIENT.iter().filter(|(option, _)| !options.contains(option)) {
            command.args([option, value]);
        }
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start");
        let log = child.stderr.take().map(Log::of);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut next = || lines.next().expect("the proxy said nothing").expect("read");
        let clients =
            next().rsplit(' ').next().and_then(|address| address.parse().ok()).expect("address");
        let status = next();
        let admin = status.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/status"));
        let admin = admin.and_then(|address| address.parse().ok()).expect("address");
        assert_eq!(next(), format!("connect with: cqlsh 127.0.0.1 {}", SocketAddr::port(&clients)));
        Self { child, log, clients, admin }
    }

    /// A new client in protocol v4.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.clients, 4)
    }

    /// Returns status code and body of a page.
    pub(crate) fn page(&self, path: &str) -> (u16, String) {
        page(self.admin, path)
    }

    pub(crate) fn wait_until_ready(&self) {
        eventually(|| self.page("/readyz").0 == 200);
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Sends these signals so that all of them arrive at once.
    pub(crate) fn signals_at_once(&self, names: &[&str]) {
        signals_at_once(&self.child, names);
    }

    /// Repeats a signal until the process ends; returns exit code and log.
    pub(crate) fn end_by_repeating(mut self, name: &str) -> (i32, String) {
        repeat_until_it_ends(&mut self.child, name);
        self.end()
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Waits until this many queries are in flight.
    pub(crate) fn wait_in_flight(&self, count: u64) {
        eventually(|| {
            let status: serde_json::Value =
                serde_json::from_str(&self.page("/status").1).expect("JSON");
            status["in_flight"] == count
        });
    }

    /// Waits until it has ended without an order.
    pub(crate) fn wait_until_ended(&mut self) {
        eventually(|| self.child.try_wait().expect("wait").is_some());
    }

    /// Ends it; returns exit code and log.
    pub(crate) fn end(mut self) -> (i32, String) {
        let code = self.child.wait().expect("wait").code().expect("ended by a signal");
        (code, self.log.take().expect("once").whole())
    }

    /// Waits until the log contains a text.
    pub(crate) fn wait_logged(&self, text: &str) {
        self.log.as_ref().expect("it runs").wait_for(text);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns status code and body of a page of an admin interface. The interface allows five seconds
/// for a request, so this sends the request again if this process was paused before it sent it.
pub(crate) fn page(admin: SocketAddr, path: &str) -> (u16, String) {
    let mut page = None;
    in_time(|| {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(admin).expect("connect");
        let mut answer = String::new();
        let sent =
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        let received = sent.and_then(|()| stream.read_to_string(&mut answer));
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        page = code.zip(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()));
        let is_late = begun.elapsed() >= Duration::from_secs(5);
        assert!(page.is_some() || is_late, "no page {path}: {received:?} {answer:?}");
        if page.is_some() { Ok(()) } else { Err(format!("{received:?} {answer:?}")) }
    });
    page.expect("in time")
}

/// Returns the state of each thread of a process: the third field of /proc/PID/task/TID/stat.
/// Leaves out a thread that ends meanwhile.
fn thread_states(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("process");
    let state = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.expect("thread").path().join("stat")).ok()?;
        Some(stat.rsplit_once(") ").expect("name").1[..1].to_owned())
    };
    tasks.filter_map(state).collect()
}

pub(crate) fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
}

/// Repeats a step that a pause of the machine makes late; a step that hangs is late every time. The
/// error says what was late.
pub(crate) fn in_time(mut step: impl FnMut() -> Result<(), String>) {
    let mut late = Vec::new();
    while let Err(what) = step() {
        late.push(what);
        assert!(late.len() < 5, "late each time: {late:#?}");
    }
}

/// Stops a process with SIGSTOP until it gets SIGCONT.
fn freeze(child: &Child) {
    signal(child, "STOP");
    // The signal is sent, but each thread stops only when it next leaves the kernel.
    eventually(|| thread_states(child.id()).iter().all(|state| state == "T"));
}

/// Sends these signals to a process so that all of them arrive at once.
pub(crate) fn signals_at_once(child: &Child, names: &[&str]) {
    freeze(child);
    names.iter().for_each(|name| signal(child, name));
    signal(child, "CONT");
}

/// Repeats a signal until the process has ended: signals of the first second count as one.
pub(crate) fn repeat_until_it_ends(child: &mut Child, name: &str) {
    eventually(|| {
        signal(child, name);
        std::thread::park_timeout(Duration::from_millis(100));
        child.try_wait().expect("wait").is_some()
    });
}

/// Waits until a condition holds.
pub(crate) fn eventually(mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < GUARD, "it never happened");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
