//! `shunt node`: the embedded node, alone, and what operators do with its data.

mod options;
pub(crate) mod up;

use std::sync::Arc;
use std::time::Duration;

use shunt_admin::{Pages, Part};
use shunt_node::maintenance;
use shunt_node::run::{Nodes, NodesOptions, StartError};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

pub(crate) use options::NodeCommand;
use options::{NodeOptions, NodeSettings, Task};

use crate::admin;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::open_files;
use crate::proxy::announce;
use crate::signals::{Asked, Signals};

/// Runs what was asked for.
pub(crate) fn run(command: NodeCommand) -> Exit {
    match command.task {
        None => serve(&command.options),
        Some(Task::Snapshot(task)) => match maintenance::snapshot(&task.data, &task.to) {
            Ok(()) => {
                crate::print(&format!("copied to {}\n", task.to.display()));
                Exit::Done
            }
            Err(why) => refuse(&why),
        },
        Some(Task::Check(task)) => match maintenance::check(&task.data) {
            Ok(problems) if problems.is_empty() => {
                crate::print(&format!("{}: sound\n", task.data.display()));
                Exit::Done
            }
            Ok(problems) => {
                problems.iter().for_each(|problem| eprintln!("damaged: {problem}"));
                Exit::Data
            }
            Err(why) => refuse(&why),
        },
    }
}

fn refuse(why: &str) -> Exit {
    eprintln!("error: {why}");
    Exit::Data
}

/// Starts nodes; a failure has the exit code that fits it.
pub(crate) fn start(options: NodesOptions, flag: &str) -> Result<Nodes, Failure> {
    Nodes::start(options).map_err(|failed| match failed {
        StartError::Listen { address, error } => admin::cannot_listen(flag, address, &error),
        StartError::Other(message) => Failure { exit: Exit::Data, message },
    })
}

fn serve(options: &NodeOptions) -> Exit {
    let settings = match options.check() {
        Ok(settings) => settings,
        Err(problems) => {
            eprint!("{problems}");
            return Exit::Configuration;
        }
    };
    let (level, format) = &settings.log;
    if let Err(why) = logging::start(level, *format) {
        eprintln!("logging could not be started: {why}");
        return Exit::Internal;
    }
    match run_node(options, &settings) {
        Ok(exit) => exit,
        Err(failure) => failure.report(),
    }
}

fn run_node(options: &NodeOptions, settings: &NodeSettings) -> Result<Exit, Failure> {
    options.reach.check(settings.listen)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal("the admin runtime could not be made", error))?;
    let listener = settings.admin.map(admin::listen).transpose()?;
    let (ended, mut endings) = mpsc::unbounded_channel();
    let mut parts = settings.nodes();
    parts.ended = Arc::new(move |node, failure| {
        // Nobody listens any more when the process is about to end.
        let _ = ended.send((node, failure));
    });
    open_files::allow_clients(settings.clients_max);
    let nodes = start(parts, "--listen")?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::catch().map_err(|error| Failure::internal("signals cannot be caught", error))?
    };
    let admin_address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    if let Some(listener) = listener {
        let pages = Pages::new(env!("CARGO_PKG_VERSION"), vec![nodes.admin() as Arc<dyn Part>]);
        runtime.spawn(admin::serve(listener, pages));
    }
    announce(nodes.addresses(), admin_address);
    let outcome: Result<Exit, Failure> = runtime.block_on(async {
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Reload => info!("there is nothing to read again: a node has no configuration file"),
                    Asked::Stop(signal) => {
                        return Ok(drain(nodes, signal, settings.drain_timeout, &mut signals).await);
                    }
                },
                Some((node, failure)) = endings.recv() => {
                    let failure = failure.unwrap_or_else(|| "nobody told it to end".to_owned());
                    error!(node, %failure, "an event loop has died, so the process ends");
                    return Ok(Exit::Internal);
                }
            }
        }
    });
    // Dropped as usual it would wait for the drain, which a second signal says not to wait for.
    runtime.shutdown_background();
    outcome
}

async fn drain(nodes: Nodes, signal: &str, limit: Duration, signals: &mut Signals) -> Exit {
    info!(signal, ?limit, "draining: no new clients, answers are delivered");
    let stopped = tokio::task::spawn_blocking(move || nodes.stop(limit));
    tokio::select! {
        stopped = stopped => {
            if !matches!(stopped, Ok(true)) {
                warn!("clients did not take their answers in time and are cut off");
            }
            info!("stopped");
            Exit::Done
        }
        _ = again(signals) => {
            warn!("second signal, ending without waiting any longer");
            Exit::Interrupted
        }
    }
}

/// Waits for another signal to end.
async fn again(signals: &mut Signals) {
    while signals.next().await == Asked::Reload {}
}
