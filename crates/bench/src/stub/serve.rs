//! `shunt bench stub`: the stub on sockets, with one event loop per core and statistics over HTTP.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::AtomicUsize,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use shunt_reactor::{
    Acceptor, CoreSlot, IoChoice, LoopOptions, Mailer, listen, mailbox, raise_fd_limit,
    run as run_loop,
};

use crate::{
    measure::cpu,
    stub::{
        AggregateLimits, Hook, Memory, Report, Ring, Stub, StubArgs, StubMail, StubOptions,
        encryption, hook,
    },
};

/// Limits of aggregated frames that the stub offers.
pub const AGGREGATE_LIMITS: AggregateLimits =
    AggregateLimits { count_max: 1024, bytes_max: 1 << 20 };
/// Most connections that wait for each loop.
const MAILBOX_CAPACITY: usize = 16_384;
/// Time after which a loop without a report is left out.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs stub nodes until the process ends.
///
/// # Errors
/// A wrong argument, an address in use, or a loop that cannot run.
pub fn run(args: &StubArgs) -> io::Result<()> {
    if let Some(cpu) = args.cpu {
        cpu::pin(&[cpu])?;
    }
    raise_fd_limit(1 << 16);
    let stub = Running::start(args)?;
    println!("{}", stub.describe());
    if let Some(address) = args.statistics {
        serve_statistics(TcpListener::bind(address)?, stub.mailers.clone())?;
    }
    if args.until_input_closes {
        // Any end of the input, even an error, means that the stub is no longer needed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        return Ok(());
    }
    stub.join()
}

/// Stub nodes served by threads of this process.
pub struct Running {
    addresses: Vec<SocketAddr>,
    mailers: Vec<Mailer<StubMail>>,
    threads: Vec<thread::JoinHandle<io::Result<()>>>,
    _acceptor: Acceptor,
}

impl Running {
    /// Listens on all addresses and starts the loops. With port 0 each node gets its own port.
    ///
    /// # Errors
    /// A wrong argument or an address in use.
    pub fn start(args: &StubArgs) -> io::Result<Self> {
        let listeners: Vec<_> = args
            .addresses()
            .map_err(invalid)?
            .into_iter()
            .map(listen)
            .collect::<io::Result<_>>()?;
        let addresses: Vec<_> =
            listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let choice: IoChoice = args.io.parse().map_err(invalid)?;
        let security = encryption::open(args)?;
        let ring = Ring::even(&addresses, 1);
        let memory: Option<Memory> = args.remember.then(Memory::default);
        let (mut cores, mut mailers, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for core in 0..args.cores {
            let (mailer, inbox) = mailbox(MAILBOX_CAPACITY)?;
            let load = Arc::new(AtomicUsize::new(0));
            mailers.push(mailer.clone());
            cores.push(CoreSlot { mailer, load: load.clone() });
            let options = StubOptions {
                answer_bytes: args.answer_bytes as usize,
                memory: memory.clone(),
                aggregate: args.aggregate.then_some(AGGREGATE_LIMITS),
                echo: args.echo,
                protocol_max: args.protocol_max,
                hook: hook_of(args, u64::from(core))?,
                ..StubOptions::new(ring.clone())
            };
            let loop_options = LoopOptions { load: Some(load), ..LoopOptions::default() };
            threads.push(
                thread::Builder::new().name(format!("stub-{core}")).spawn(move || {
                    run_loop(choice, loop_options, &mut Stub::new(options), inbox)
                })?,
            );
        }
        let listeners = listeners.into_iter().map(Into::into).collect();
        let acceptor = Acceptor::start_with(listeners, cores, security)?;
        Ok(Self { addresses, mailers, threads, _acceptor: acceptor })
    }

    /// Returns the bound addresses, in ring order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the counts of all loops so far.
    pub fn report(&self) -> Report {
        collect(&self.mailers)
    }

    fn describe(&self) -> String {
        let mut text = String::from("stub nodes:");
        for address in &self.addresses {
            // Writing to a String cannot fail.
            let _ = write!(text, " {address}");
        }
        text
    }

    fn join(self) -> io::Result<()> {
        for thread in self.threads {
            thread.join().map_err(|_| io::Error::other("a loop panicked"))??;
        }
        Ok(())
    }
}

fn hook_of(args: &StubArgs, seed: u64) -> io::Result<Option<Hook>> {
    let faults: Vec<_> = args
        .faults
        .iter()
        .map(|text| hook::parse_fault(text, args.delay_us * 1000))
        .collect::<Result<_, _>>()
        .map_err(invalid)?;
    Ok((!faults.is_empty()).then(|| hook::random(seed, faults)))
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

fn collect(mailers: &[Mailer<StubMail>]) -> Report {
    let (sender, receiver) = sync_channel(mailers.len());
    let asked = mailers
        .iter()
        .filter(|mailer| mailer.post(StubMail::Report(sender.clone())).is_ok())
        .count();
    let mut report = Report::default();
    for _ in 0..asked {
        match receiver.recv_timeout(REPORT_TIMEOUT) {
            Ok(part) => report.merge(part),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    report
}

fn serve_statistics(listener: TcpListener, mailers: Vec<Mailer<StubMail>>) -> io::Result<()> {
    thread::Builder::new().name("statistics".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves early is no error.
            let _ = answer_http(stream, &mailers);
        }
    })?;
    Ok(())
}

fn answer_http(stream: TcpStream, mailers: &[Mailer<StubMail>]) -> io::Result<()> {
    stream.set_read_timeout(Some(REPORT_TIMEOUT))?;
    let mut lines = BufReader::new(stream.try_clone()?.take(16_384)).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let body = serde_json::to_string(&collect(mailers))?;
    let length = body.len();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Reads the statistics of a stub in another process.
///
/// # Errors
/// No server answers there, or its answer is no report.
pub fn fetch_report(address: SocketAddr) -> io::Result<Report> {
    Ok(serde_json::from_str(&crate::measure::http_get(address, "/")?)?)
}
