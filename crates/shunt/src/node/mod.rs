//! `shunt node`: the embedded node alone, and the operator's tasks on its data.

mod options;
mod part;
pub(crate) mod up;

use std::sync::Arc;

use shunt_admin::Pages;
use shunt_node::maintenance;
use shunt_node::run::{Nodes, NodesOptions, StartError};
use tracing::info;

pub(crate) use options::NodeCommand;
use options::{NodeOptions, NodeSettings, Task};
use part::{Manner, NodesPart, Telling};

use crate::admin;
use crate::exit::{Exit, Failure};
use crate::open_files;
use crate::proxy::{Schemes, announce, shown};
use crate::relay::RelayTls;
use crate::supervise::{Events, Hangup, Supervisor};

/// Runs the command.
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

/// Starts nodes; a failure has the matching exit code.
pub(crate) fn start(options: NodesOptions, flag: &str) -> Result<Nodes, Failure> {
    Nodes::start(options).map_err(|failed| match failed {
        StartError::Listen { address, error } => admin::cannot_listen(flag, address, &error),
        StartError::Other(message) => Failure { exit: Exit::Data, message },
    })
}

fn serve(options: &NodeOptions) -> Exit {
    match options::begin(options.check(), |settings| &settings.common) {
        Ok(settings) => run_node(&settings).unwrap_or_else(Failure::report),
        Err(exit) => exit,
    }
}

fn run_node(settings: &NodeSettings) -> Result<Exit, Failure> {
    let listener = settings.common.admin.clone().map(admin::bind).transpose()?;
    settings.common.warn_of_pages();
    let tls = RelayTls::open(&settings.common.admin_tls, None, None)?;
    let events = Events::new();
    let telling = Telling::new(&events);
    let mut parts = settings.nodes();
    parts.ended = telling.loops();
    open_files::allow_clients(settings.clients_max, 0);
    let nodes = start(parts, "--listen")?;
    events.catch_signals()?;
    let admin_address = listener.as_ref().and_then(|(sockets, _)| sockets.local_addr());
    let start_admin = |(sockets, access)| {
        let parts = std::iter::once(nodes.admin() as Arc<dyn shunt_admin::Part>);
        let parts = parts.chain(tls.part()).collect();
        let pages = Pages::with_access(env!("CARGO_PKG_VERSION"), parts, tls.access(access));
        admin::start(sockets, pages, telling.admin())
    };
    let _socket_file = listener.map(start_admin).transpose()?;
    let schemes = Schemes::of(&tls.listeners);
    announce(nodes.addresses(), &[], admin_address, None, schemes);
    let given = settings.common.admin.as_ref();
    admin::announce_unix(given);
    let (listening, admin) = (nodes.addresses(), shown(admin_address, given));
    info!(?listening, %admin, version = env!("CARGO_PKG_VERSION"), "started");
    let manner = Manner {
        drain_limit: settings.drain_timeout,
        late: "clients did not read their answers in time and are cut off",
        died: "an event loop has died, so the process ends",
    };
    let part = NodesPart::new(nodes, telling, manner, tls);
    Ok(Supervisor::new(vec![Box::new(part)], Hangup::Reload).run(&events))
}
