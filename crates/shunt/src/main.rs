//! The `shunt` binary: the command line and the wiring, nothing else.

/// Prints to standard error. The macros of the standard library panic where standard error would
/// block.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::complain(format_args!($($text)*)) };
}

/// Prints a line to standard error.
macro_rules! eprintln {
    ($($text:tt)*) => { eprint!("{}\n", format_args!($($text)*)) };
}

#[cfg(not(feature = "node"))]
mod node_stub;
mod admin;
mod cli;
mod console;
mod descendants;
mod doctor;
mod exit;
mod faults;
mod file_defaults;
mod fleet;
mod generate;
mod help;
mod lock;
mod locks;
mod log_queue;
mod logging;
mod multiget;
#[cfg(feature = "node")]
mod node;
mod open_files;
mod output;
mod proxy;
mod relay;
mod settings;
mod supervise;
mod switch;
mod systemd;
mod times;
mod version;

use std::process::ExitCode;

use cli::{Checked, Command};
use exit::Exit;
pub(crate) use output::print;
use settings::Settings;

fn main() -> ExitCode {
    let code = run();
    logging::finish();
    code
}

fn run() -> ExitCode {
    let (cli, sources) = match file_defaults::parse(std::env::args_os().collect()) {
        Ok(parsed) => parsed,
        Err(exit) => return exit.into(),
    };
    match cli.command {
        Some(Command::Proxy(settings)) => proxy::run(*settings).into(),
        #[cfg(feature = "node")]
        Some(Command::Up(options)) => node::up::run(&options).into(),
        #[cfg(feature = "node")]
        Some(Command::Node(command)) => node::run(*command).into(),
        #[cfg(not(feature = "node"))]
        Some(Command::Up(ignored)) => node_stub::run("up", &ignored).into(),
        #[cfg(not(feature = "node"))]
        Some(Command::Node(ignored)) => node_stub::run("node", &ignored).into(),
        Some(Command::Dispatch(command)) => relay::dispatch(&command, &sources).into(),
        Some(Command::Agent(command)) => relay::agent(&command, &sources).into(),
        Some(Command::Multiget(command)) => multiget::run(&command, &sources).into(),
        Some(Command::Switch(command)) => switch::run(&command).into(),
        Some(Command::Check(command)) => match command.of {
            None => check(&command.settings),
            Some(Checked::Dispatch(command)) => relay::check_dispatch(&command, &sources),
            Some(Checked::Multiget(command)) => multiget::check(&command, &sources),
            Some(Checked::Agent(command)) => relay::check_agent(&command, &sources),
        }
        .into(),
        Some(Command::Doctor(doctor)) => doctor::run(&doctor).into(),
        Some(Command::Fleet(fleet)) => fleet::run(&fleet).into(),
        Some(Command::Lock(lock)) => lock::run(&lock),
        Some(Command::Locks(locks)) => locks::run(&locks).into(),
        Some(Command::Ready(ready)) => ready.run().into(),
        Some(Command::Top(top)) => top.run().into(),
        Some(Command::Clients(clients)) => clients.run().into(),
        Some(Command::Nodes(nodes)) => nodes.run().into(),
        Some(Command::Connections(connections)) => connections.run().into(),
        Some(Command::FailedLogins(logins)) => logins.run().into(),
        Some(Command::Slow(slow)) => slow.run().into(),
        Some(Command::Queries(queries)) => queries.run().into(),
        Some(Command::Hot(hot)) => hot.run().into(),
        Some(Command::Rules(rules)) => rules.run().into(),
        Some(Command::Tenants(tenants)) => tenants.run().into(),
        Some(Command::Alerts(alerts)) => alerts.run().into(),
        Some(Command::Config(options)) => options.run().into(),
        Some(Command::LogLevel(level)) => level.run().into(),
        Some(Command::Kick(kick)) => kick.run().into(),
        Some(Command::Drain(drain)) => drain.run(true).into(),
        Some(Command::Undrain(drain)) => drain.run(false).into(),
        Some(Command::Reload(reload)) => reload.run().into(),
        Some(Command::Generate(generate)) => generate.run().into(),
        Some(Command::Bench(bench)) => shunt_bench::cli::run(bench.command),
        None => {
            print(&version::text(cli.verbose));
            Exit::Done.into()
        }
    }
}

/// `shunt check`: reports everything that `shunt proxy` would refuse, and starts nothing.
fn check(settings: &Settings) -> Exit {
    match settings.load() {
        Ok(config) => {
            match relay::cql::check(&config) {
                Ok(warning) => warning.iter().for_each(|warning| eprintln!("warning: {warning}")),
                Err(failure) => {
                    eprintln!("error: {}", failure.message);
                    return failure.exit;
                }
            }
            for warning in shunt_proxy::admission::check(&config) {
                eprintln!("warning: {warning}");
            }
            let outgoing = shunt_proxy::tls::check_outgoing(&config);
            let warnings = shunt_proxy::tls::check(&config)
                .and_then(|warnings| Ok([warnings, outgoing?].concat()));
            match warnings {
                Ok(warnings) => {
                    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
                }
                Err(error) => {
                    eprintln!("error: {error}");
                    return Exit::Configuration;
                }
            }
            let name = settings.config.as_ref().map(|path| format!("{}: ", path.display()));
            print(&format!("{}valid\n", name.unwrap_or_default()));
            Exit::Done
        }
        Err(problems) => {
            eprint!("{problems}");
            Exit::Configuration
        }
    }
}
