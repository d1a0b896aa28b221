//! Changes that an operator asks for at the admin address, and the main thread makes: a reload, the
//! value of an option, such as the level of the log, and a drain.
//!
//! Without tokens, each process of the host may ask for changes. So the main thread gets one change
//! at a time, [`PAUSE`] after the one before: it has signals and heartbeats to attend to, and each
//! change writes lines into the log. The next changes wait for their turn, the oldest first.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use shunt_admin::{Change, Json};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::info;

/// Names of the changes.
pub(super) const RELOAD: &str = "reload";
pub(super) const LOG_LEVEL: &str = "log_level";
pub(super) const SET_OPTION: &str = "set_option";
pub(super) const DRAIN: &str = "drain";
pub(super) const UNDRAIN: &str = "undrain";

/// Longest time that a change may take, with the wait for its turn. The main thread reads files,
/// and joins no other thread meanwhile.
const PATIENCE: Duration = Duration::from_secs(8);
/// Shortest time between two changes.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// The outcome of a change: an object for the answer. A refusal has the reason in `error`.
pub type ChangeResult = Result<Json, Json>;

/// A change for the main thread, with the channel for its outcome.
#[derive(Debug)]
pub enum ConfigChange {
    /// Read the configuration again.
    Reload(Answer),
    /// Log at this level, until the configuration is read again.
    LogLevel(String, Answer),
    /// Give an option a value, until the configuration is read again. Without one, give it the
    /// value of flags and file.
    SetOption {
        /// Key of the option.
        name: String,
        /// The value, as a flag gives it.
        value: Option<String>,
        /// The channel for the outcome.
        answer: Answer,
    },
    /// Send clients to other proxies, or take such an order back.
    Drain {
        /// False: take it back.
        drains: bool,
        /// The channel for the outcome.
        answer: Answer,
    },
}

/// The channel for the outcome of a change.
#[derive(Debug)]
pub struct Answer {
    sender: oneshot::Sender<ChangeResult>,
    /// The turn of the change, until the main thread is done with it.
    turn: Option<Turn>,
}

impl Answer {
    /// Tells the operator the outcome, unless nobody waits for it any more.
    pub fn send(self, verdict: ChangeResult) {
        // The operator may ask for the next change at once.
        drop(self.turn);
        let _ = self.sender.send(verdict);
    }

    fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The channel of a change that has waited for no turn.
impl From<oneshot::Sender<ChangeResult>> for Answer {
    fn from(sender: oneshot::Sender<ChangeResult>) -> Self {
        Self { sender, turn: None }
    }
}

impl ConfigChange {
    /// True if nobody waits for the outcome any more: the operator has gone away, or has heard that
    /// the main thread did not answer in time.
    pub fn is_abandoned(&self) -> bool {
        match self {
            ConfigChange::Reload(answer)
            | ConfigChange::LogLevel(_, answer)
            | ConfigChange::SetOption { answer, .. }
            | ConfigChange::Drain { answer, .. } => answer.is_abandoned(),
        }
    }
}

/// Hands a change to the main thread.
type Sender = Box<dyn Fn(ConfigChange) + Send + Sync>;

/// The right to hand over a change, with the time of the next one.
type Turn = OwnedMutexGuard<Option<Instant>>;

/// The main thread's end of the channel, once it is connected.
pub(super) struct ConfigChanges {
    sender: OnceLock<Sender>,
    turn: Arc<Mutex<Option<Instant>>>,
    pause: Duration,
}

impl Default for ConfigChanges {
    fn default() -> Self {
        Self { sender: OnceLock::new(), turn: Arc::default(), pause: PAUSE }
    }
}

impl fmt::Debug for ConfigChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigChanges")
    }
}

impl ConfigChanges {
    pub(super) fn connect(&self, sender: Sender) {
        let _ = self.sender.set(sender);
    }

    /// Hands a change to the main thread, and waits for its outcome.
    pub(super) fn change(
        &self,
        name: &str,
        parameters: &Value,
        from: IpAddr,
    ) -> Option<Change<'_>> {
        let make: Box<dyn FnOnce(Answer) -> ConfigChange + Send> = match name {
            RELOAD => Box::new(ConfigChange::Reload),
            DRAIN => Box::new(|answer| ConfigChange::Drain { drains: true, answer }),
            UNDRAIN => Box::new(|answer| ConfigChange::Drain { drains: false, answer }),
            LOG_LEVEL => match parameters.get("level").and_then(Value::as_str).map(str::to_owned) {
                Some(level) => Box::new(|answer| ConfigChange::LogLevel(level, answer)),
                None => return Some(refused("`level` is missing")),
            },
            SET_OPTION => match option(parameters) {
                Ok((name, value)) => {
                    Box::new(|answer| ConfigChange::SetOption { name, value, answer })
                }
                Err(why) => return Some(refused(why)),
            },
            _ => return None,
        };
        let Some(send) = self.sender.get() else {
            return Some(refused("this process has no configuration that a command can change"));
        };
        let name = name.to_owned();
        Some(Box::pin(async move {
            let error = |why: &str| Err(json!({ "error": why }));
            let until = Instant::now() + PATIENCE;
            let Ok(turn) = timeout_at(until, self.take_turn()).await else {
                return error("too many changes wait for their turn; try again later");
            };
            info!(change = name.as_str(), %from, "an operator asks for a change");
            let (sender, verdict) = oneshot::channel();
            send(make(Answer { sender, turn: Some(turn) }));
            match timeout_at(until, verdict).await {
                Ok(Ok(verdict)) => verdict,
                Ok(Err(_)) => error("the proxy is ending"),
                Err(_) => error("the main thread has not answered in time"),
            }
        }))
    }

    /// Waits until the main thread is done with the change before, and has had a pause.
    async fn take_turn(&self) -> Turn {
        let mut turn = Arc::clone(&self.turn).lock_owned().await;
        if let Some(due) = turn.filter(|due| *due > Instant::now()) {
            sleep_until(due).await;
        }
        *turn = Some(Instant::now() + self.pause);
        turn
    }
}

/// The name and the value of an option in a request.
fn option(parameters: &Value) -> Result<(String, Option<String>), &'static str> {
    let name = parameters.get("name").and_then(Value::as_str).ok_or("`name` is missing")?;
    let value = match parameters.get("value") {
        Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        _ => return Err("`value` is missing: a text, or null for the value from flags and file"),
    };
    Ok((name.to_owned(), value))
}

/// A change that is refused at once.
pub(super) fn refused(why: impl Into<String>) -> Change<'static> {
    let why = why.into();
    Box::pin(std::future::ready(Err(json!({ "error": why }))))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn orders() -> (ConfigChanges, mpsc::Receiver<ConfigChange>) {
        let (sender, taken) = mpsc::channel();
        let orders = ConfigChanges { pause: Duration::ZERO, ..ConfigChanges::default() };
        orders.connect(Box::new(move |order| sender.send(order).expect("the test goes on")));
        (orders, taken)
    }

    fn debug(orders: &ConfigChanges) -> Change<'_> {
        orders.change(LOG_LEVEL, &json!({ "level": "debug" }), HERE).expect("a change")
    }

    fn poll(change: &mut Change<'_>) -> Poll<ChangeResult> {
        change.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn an_order_is_abandoned_with_the_wait_for_its_outcome() {
        let (orders, taken) = orders();
        let mut change = debug(&orders);
        assert!(poll(&mut change).is_pending());
        let order = taken.try_recv().expect("the order");
        assert!(!order.is_abandoned());
        drop(change);
        assert!(order.is_abandoned());
    }

    /// The main thread would do nothing else if it had a queue of orders that never ends.
    #[tokio::test]
    async fn the_main_thread_has_one_order_at_a_time_whoever_gives_up() {
        let (orders, taken) = orders();
        for _ in 0..100 {
            assert!(poll(&mut debug(&orders)).is_pending());
        }
        let given_up = taken.try_recv().expect("the first order");
        assert!(given_up.is_abandoned() && taken.try_recv().is_err(), "one at a time");
        let (mut first, mut second) = (debug(&orders), debug(&orders));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        assert!(taken.try_recv().is_err(), "the main thread still has the order");
        drop(given_up);
        for change in [&mut first, &mut second] {
            assert!(poll(change).is_pending());
            let Ok(ConfigChange::LogLevel(level, answer)) = taken.try_recv() else {
                panic!("an order")
            };
            assert!(taken.try_recv().is_err(), "one at a time");
            answer.send(Ok(json!({ "level": level })));
            assert_eq!(poll(change), Poll::Ready(Ok(json!({ "level": "debug" }))));
        }
    }
}
