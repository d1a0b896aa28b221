//! The signals that end a process or reload its configuration. A separate thread receives them, so
//! that each has its time of arrival, however busy the other threads are.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Event;

/// The caught signals.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Starts the thread. Signals are caught from the moment this returns.
pub(super) fn catch(events: Sender<Event>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        }
    };
    let hear = move || {
        let _ = catch_unwind(AssertUnwindSafe(|| runtime.block_on(forward(signals, &events))));
        // A process that only SIGKILL can stop must not go on.
        let _ = events.send(Event::Deaf);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(hear).map(drop)
}

async fn forward(mut signals: Signals, events: &Sender<Event>) {
    loop {
        let event = signals.next().await;
        if events.send(event).is_err() {
            return;
        }
    }
}

impl Signals {
    /// Waits for the next signal.
    async fn next(&mut self) -> Event {
        let stop = |signal| Event::Stop { signal, at: Instant::now() };
        tokio::select! {
            // A reload requested before the end is still done and logged.
            biased;
            _ = self.hangup.recv() => Event::Hangup { at: Instant::now() },
            _ = self.terminate.recv() => stop("SIGTERM"),
            _ = self.interrupt.recv() => stop("SIGINT"),
        }
    }
}
