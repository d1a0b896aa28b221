//! The terminal of `shunt top`, and the threads that wait for keys, pages and signals.
//!
//! The thread that draws never waits for the proxy. The terminal is as before when the command
//! ends, by a key, a signal, an error or a panic.

use std::io::{self, IsTerminal as _, Stdout, stdin, stdout};
use std::panic;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::Show;
use ratatui_crossterm::crossterm::event::{self, Event, KeyEvent};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::super::http::{AdminAccess, refused};
use super::state::{Action, State, TABLES};
use super::{frame, pages};
use crate::exit::{Exit, Failure};

/// Time from an answer to the next request.
const INTERVAL: Duration = Duration::from_secs(2);
/// Shortest wait for an input, while the thread that asks has no room for a request.
const WAIT_MIN: Duration = Duration::from_millis(50);
/// Events that wait to be handled.
const EVENTS_MAX: usize = 256;

/// An event that changes the screen.
enum Input {
    Key(KeyEvent),
    Resize,
    Pages(Result<Vec<(&'static str, Value)>, Failure>),
    Kicked(Result<Value, Failure>),
    /// SIGTERM, SIGHUP or SIGINT.
    Signal,
    /// The keyboard is gone.
    NoKeys,
}

/// A request for the thread that asks the proxy.
enum Request {
    /// The pages of the table with this index.
    Pages(usize),
    Kick(Value),
}

/// The terminal in the state that drawing needs. It is restored at the end of the value, and by a
/// hook at a panic of any thread.
struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    fn open() -> Result<Self, Failure> {
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            former(info);
        }));
        prepare().map(Self).map_err(|error| {
            restore();
            Failure::internal("the terminal cannot be set up", error)
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn prepare() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(stdout()))
}

/// Restores the terminal. Errors are dropped, as there is no terminal to show them on.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}

/// Shows the tables until a key or a signal ends the command.
///
/// # Errors
/// Standard output is no terminal, or the proxy does not answer the first request.
pub(super) fn run(access: AdminAccess, table: usize) -> Result<Exit, Failure> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(refused("`shunt top` needs a terminal; --once prints one frame".to_owned()));
    }
    let mut state = State::new(table);
    // A failure of the first request is printed as by other commands.
    state.set_pages(pages(&access, &TABLES[table])?);
    let (inputs, inbox) = sync_channel(EVENTS_MAX);
    start_signals(inputs.clone())?;
    let mut screen = Screen::open()?;
    start_keys(inputs.clone())?;
    let requests = start_requests(access, inputs)?;
    converse(&mut screen, &mut state, table, &inbox, &requests)
}

/// Draws, and handles one input after the other.
fn converse(
    screen: &mut Screen,
    state: &mut State,
    table: usize,
    inbox: &Receiver<Input>,
    requests: &SyncSender<Request>,
) -> Result<Exit, Failure> {
    let (mut shown, mut due) = (table, Instant::now() + INTERVAL);
    let (mut is_asking, mut has_failed) = (false, false);
    loop {
        let drawn = screen.0.draw(|area| frame::draw(area, state));
        drawn.map_err(|error| Failure::internal("the terminal cannot be written to", error))?;
        let table = state.table().name;
        let table = TABLES.iter().position(|known| known.name == table).unwrap_or(shown);
        if !is_asking && (table != shown || (due <= Instant::now() && !state.is_paused())) {
            shown = table;
            is_asking = requests.try_send(Request::Pages(table)).is_ok();
        }
        let wait = if is_asking || state.is_paused() { INTERVAL } else { due - Instant::now() };
        match inbox.recv_timeout(wait.max(WAIT_MIN)) {
            Err(RecvTimeoutError::Timeout) | Ok(Input::Resize) => {}
            Err(RecvTimeoutError::Disconnected) | Ok(Input::NoKeys) => return Ok(Exit::Done),
            Ok(Input::Signal) => return Ok(Exit::Interrupted),
            Ok(Input::Key(key)) => match state.press(key) {
                Action::Draw => {}
                Action::Ask => due = Instant::now(),
                Action::Quit => return Ok(Exit::Done),
                Action::Interrupt => return Ok(Exit::Interrupted),
                Action::Kick(conditions) => {
                    if requests.try_send(Request::Kick(conditions)).is_err() {
                        state.set_message("too many requests are under way".to_owned());
                    }
                }
            },
            Ok(Input::Pages(answer)) => {
                (is_asking, due) = (false, Instant::now() + INTERVAL);
                match answer {
                    Ok(pages) => {
                        state.set_pages(pages);
                        if has_failed {
                            state.set_message(String::new());
                        }
                        has_failed = false;
                    }
                    Err(failure) => {
                        state.set_message(failure.message);
                        has_failed = true;
                    }
                }
            }
            Ok(Input::Kicked(answer)) => {
                state.set_message(match answer {
                    Ok(outcome) => kick_outcome(&outcome),
                    Err(failure) => failure.message,
                });
                due = Instant::now();
            }
        }
    }
}

fn kick_outcome(outcome: &Value) -> String {
    let is_whole = outcome["cores_missing"].as_array().is_none_or(Vec::is_empty);
    let rest = if is_whole { "" } else { "; some cores did not answer in time, try again" };
    format!("closed {} clients{rest}", outcome["closed"])
}

/// Starts a thread that ends with the process; it is never joined.
fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| Failure::internal("a thread could not be started", error))
}

fn start_keys(inputs: SyncSender<Input>) -> Result<(), Failure> {
    start("keys", move || {
        loop {
            let input = match event::read() {
                Ok(Event::Key(key)) => Input::Key(key),
                Ok(Event::Resize(..)) => Input::Resize,
                Ok(_) => continue,
                Err(_) => Input::NoKeys,
            };
            let is_last = matches!(input, Input::NoKeys);
            if inputs.send(input).is_err() || is_last {
                return;
            }
        }
    })
}

fn start_requests(
    access: AdminAccess,
    inputs: SyncSender<Input>,
) -> Result<SyncSender<Request>, Failure> {
    let (requests, inbox) = sync_channel(2);
    start("requests", move || {
        for request in inbox {
            let input = match request {
                Request::Pages(table) => Input::Pages(pages(&access, &TABLES[table])),
                Request::Kick(conditions) => {
                    let answer = access.post("/kick", &conditions);
                    Input::Kicked(answer.and_then(|answer| answer.page()))
                }
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    })?;
    Ok(requests)
}

fn start_signals(inputs: SyncSender<Input>) -> Result<(), Failure> {
    let failed = |error| Failure::internal("signals cannot be waited for", error);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    drop(guard);
    start("signals", move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        let _ = inputs.send(Input::Signal);
    })
}
