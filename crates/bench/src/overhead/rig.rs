//! Load generator and nodes on one event loop: with two CPUs, one is for what is measured and one for all the rest, and
//! the rest is cheapest without switches between processes.
//!
//! The loop runs as long as the comparison; loads are started on it one after another.

use std::{
    cell::RefCell,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::AtomicUsize,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use shunt_reactor::{
    Accepted, Acceptor, CloseReason, ConnId, CoreSlot, Io, IoChoice, LoopOptions, Mailer, Service, listen, mailbox,
    run as run_loop,
};

use crate::{
    load::{Load, LoadOptions, Mark, NodeSide, Phase, RoundReport},
    measure::{Watch, cpu, watch::node_side},
    stub::{Report, Ring, Stub, StubOptions},
};

/// Called with every mark of a load, on the rig's thread.
pub(super) type OnMark = Box<dyn FnMut(Mark) + Send>;

/// A load to run.
struct Job {
    options: LoadOptions,
    watch: Watch,
    on_mark: OnMark,
    answer: SyncSender<Result<RoundReport, String>>,
}

enum RigMail {
    Run(Box<Job>),
    Stop,
}

/// The thread with the loop.
pub(super) struct Rig {
    mailer: Mailer<RigMail>,
    thread: Option<thread::JoinHandle<io::Result<()>>>,
    acceptor: Option<Acceptor>,
}

impl Rig {
    /// Starts nodes at `addresses` on `cpu`.
    pub(super) fn start(addresses: &[SocketAddr], aggregate: bool, cpu: usize, choice: IoChoice) -> io::Result<Self> {
        let listeners = addresses
            .iter()
            .map(|&address| listen(address))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| io::Error::new(error.kind(), format!("{addresses:?}: {error}")))?;
        let (mailer, inbox) = mailbox(16_384)?;
        let load = Arc::new(AtomicUsize::new(0));
        let core = CoreSlot { mailer: mailer.clone(), load: load.clone() };
        let options = StubOptions {
            aggregate: aggregate.then_some(crate::stub::serve::AGGREGATE_LIMITS),
            ..StubOptions::new(Ring::even(addresses, 1))
        };
        let thread = thread::Builder::new().name("rig".into()).spawn(move || {
            cpu::pin(&[cpu])?;
            let loop_options = LoopOptions { load: Some(load), ..LoopOptions::default() };
            let mut rig = RigService::new(Stub::new(options));
            run_loop(choice, loop_options, &mut rig, inbox)
        })?;
        let acceptor = cpu::with_pinned(cpu, || Acceptor::start(listeners, vec![core]))?;
        Ok(Self { mailer, thread: Some(thread), acceptor: Some(acceptor) })
    }

    /// Runs a load of one round to its end.
    pub(super) fn run(&self, options: LoadOptions, watch: Watch, on_mark: OnMark) -> io::Result<RoundReport> {
        let (answer, result) = sync_channel(1);
        let job = Job { options, watch, on_mark, answer };
        let gone = || io::Error::other("the load generator's loop has ended");
        self.mailer.post(RigMail::Run(Box::new(job))).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())?.map_err(io::Error::other)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.acceptor.take());
        let _ = self.mailer.post(RigMail::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The present load and who waits for it.
struct Running {
    load: Load,
    watch: Rc<RefCell<Watch>>,
    answer: SyncSender<Result<RoundReport, String>>,
    phase: Phase,
    before: Report,
    nodes: NodeSide,
}

struct RigService {
    stub: Stub,
    running: Option<Running>,
    /// Connections that belong to the nodes, by index; all others are the load's.
    of_stub: Vec<Option<ConnId>>,
}

impl RigService {
    fn new(stub: Stub) -> Self {
        Self { stub, running: None, of_stub: Vec::new() }
    }

    fn is_of_stub(&self, conn: ConnId) -> bool {
        self.of_stub.get(conn.index as usize) == Some(&Some(conn))
    }

    fn start(&mut self, io: &mut Io, job: Job) {
        let Job { options, watch, mut on_mark, answer } = job;
        let watch = Rc::new(RefCell::new(watch));
        let watching = watch.clone();
        let observer = Box::new(move |mark| {
            on_mark(mark);
            match mark {
                Mark::Ready => {}
                Mark::RoundStart(_) => watching.borrow_mut().begin(),
                Mark::RoundEnd(_) => watching.borrow_mut().end(),
            }
        });
        let options = LoadOptions { stops_loop: false, ..options };
        let mut load = Load::new(options, observer);
        load.started(io);
        self.running = Some(Running {
            load,
            watch,
            answer,
            phase: Phase::Connecting,
            before: Report::default(),
            nodes: NodeSide::default(),
        });
    }

    /// Follows the load's phases: counts of the nodes around its round, and its end.
    fn follow(&mut self, io: &mut Io) {
        let Some(running) = &mut self.running else {
            return;
        };
        let phase = running.load.phase();
        if phase == running.phase {
            return;
        }
        match (running.phase, phase) {
            (_, Phase::Round(_)) => running.before = self.stub.report(io),
            (Phase::Round(_), _) => {
                running.nodes = node_side(&running.before, &self.stub.report(io));
            }
            _ => {}
        }
        running.phase = phase;
        if phase == Phase::Done
            && let Some(mut running) = self.running.take()
        {
            running.load.close_all(io);
            // Whoever asked may have given up meanwhile.
            let _ = running.answer.send(running.outcome());
        }
    }
}

impl Running {
    fn outcome(&self) -> Result<RoundReport, String> {
        if let Some(failure) = self.load.failure() {
            return Err(failure.to_owned());
        }
        let round = self.load.rounds().first().ok_or("no round was run")?;
        let mut report = RoundReport::new(round);
        self.watch.borrow().complete(0, &mut report);
        report.nodes = NodeSide { queries_per_write: report.nodes.queries_per_write, ..self.nodes };
        Ok(report)
    }
}

impl Service for RigService {
    type Mail = RigMail;

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        let index = conn.index as usize;
        if self.of_stub.len() <= index {
            self.of_stub.resize(index + 1, None);
        }
        self.of_stub[index] = Some(conn);
        self.stub.accepted(io, conn, origin);
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        match &mut self.running {
            Some(running) => running.load.connected(io, conn),
            None => io.abort(conn),
        }
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        if self.is_of_stub(conn) {
            return self.stub.received(io, conn, data);
        }
        match &mut self.running {
            Some(running) => running.load.received(io, conn, data),
            None => data.len(),
        }
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        if self.is_of_stub(conn) {
            self.stub.closed(io, conn, reason);
        } else if let Some(running) = &mut self.running {
            running.load.closed(io, conn, reason);
        }
    }

    /// Only the nodes ask for it.
    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        self.stub.drained(io, conn);
    }

    /// The nodes have no timers: nothing here makes them misbehave.
    fn timer(&mut self, io: &mut Io, key: u64) {
        if let Some(running) = &mut self.running {
            running.load.timer(io, key);
        }
    }

    fn mail(&mut self, io: &mut Io, mail: RigMail) {
        match mail {
            RigMail::Run(job) => self.start(io, *job),
            RigMail::Stop => io.stop(),
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        self.stub.turn_ended(io);
        if let Some(running) = &mut self.running {
            running.load.turn_ended(io);
        }
        self.follow(io);
    }
}
