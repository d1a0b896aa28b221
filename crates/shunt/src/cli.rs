//! The command line.

mod console_examples;

use clap::{Args, Parser, Subcommand};
use shunt_bench::cli::BenchCommand;

use crate::console::{
    Alerts, Clients, Connections, Drain, FailedLogins, Hot, Kick, LogLevel, Nodes, Options,
    Queries, Ready, Reload, Rules, Slow, Tenants, Top,
};
use crate::doctor::Doctor;
use crate::fleet::Fleet;
use crate::generate::Generate;
use crate::help;
use crate::lock::Lock;
use crate::locks::Locks;
use crate::multiget::Multiget;
#[cfg(feature = "node")]
use crate::node::{NodeCommand, up::UpOptions};
#[cfg(not(feature = "node"))]
use crate::node_stub::Ignored;
use crate::relay::{AgentCommand, DispatchCommand};
use crate::settings::Settings;
use crate::switch::Switch;

const ABOUT: &str = "\
A query tier for Apache Cassandra and compatible stores.

Point any CQL driver at Shunt instead of at a node. Shunt sends each query to a replica of its key,
and puts the queries of all clients for one node into a few large writes.";

#[cfg(feature = "node")]
const EXAMPLES: &str = "\
Examples:
  shunt up
  shunt proxy --contact-points 10.0.0.1,10.0.0.2 --listen 0.0.0.0:9042
  shunt check --config shunt.toml
  shunt help proxy

`shunt help COMMAND` lists the options and the exit codes of a command.
";

#[cfg(not(feature = "node"))]
const EXAMPLES: &str = "\
Examples:
  shunt proxy --contact-points 10.0.0.1,10.0.0.2 --listen 0.0.0.0:9042
  shunt check --config shunt.toml
  shunt help proxy

`shunt help COMMAND` lists the options and the exit codes of a command.
";

#[cfg(feature = "node")]
const UP_EXAMPLES: &str = "\
Examples:
  shunt up
      Starts three nodes with their data in ./shunt-data, and the proxy on 127.0.0.1:9042.
      `cqlsh 127.0.0.1 9042` connects.

  shunt up --nodes 1 --data /tmp/try --listen 127.0.0.1:9999

  shunt up --proxies 3
      Starts a fleet of three proxies, which share locks, on 127.0.0.1:9042, 127.0.0.2:9042 and
      127.0.0.3:9042.

One node, on this machine, keeps each row. Beyond one machine the store is Apache Cassandra: see
`shunt help proxy`.
";

#[cfg(feature = "node")]
const NODE_EXAMPLES: &str = "\
Examples:
  shunt node --data /var/lib/shunt
      Runs a store for one machine on 127.0.0.1:9042. Drivers and `shunt proxy` treat it like a
      small Cassandra.

  shunt node snapshot --data /var/lib/shunt /backup/monday
  shunt node check /backup/monday

Signals:
  SIGTERM, SIGINT  stop accepting, deliver answers (--drain-timeout-ms), close the store; a second
                   signal, a second or more later, ends the process at once
";

const PROXY_EXAMPLES: &str = "\
Examples:
  shunt proxy --contact-points 10.0.0.1,10.0.0.2
      Finds the ring through any of these nodes. Clients connect to 127.0.0.1:9042; metrics are on
      port 9180.

  shunt proxy --contact-points cassandra.example --listen 0.0.0.0:9042 --local-datacentre dc1
      Serves clients on other machines, and uses the nodes of dc1 only.

  shunt proxy --config shunt.toml --log debug
      A flag overrides the file. The file has the same names with `_` for `-`:
          contact_points = [\"10.0.0.1\", \"10.0.0.2\"]
          listen = [\"0.0.0.0:9042\"]
          clients_max = 20000
          query_timeout_ms = \"10s\"
      Times and sizes take units (`500ms`, `12s`, `256MiB`, `1GB`); a plain number is in the unit of
      the option's name.

Signals:
  SIGTERM, SIGINT  stop accepting, finish the queries in flight (--drain-timeout-ms), end; a second
                   signal, a second or more later, ends the process at once
  SIGHUP           read the file again and apply what can change without closing clients
";

const SWITCH_EXAMPLES: &str = "\
Examples:
  shunt switch load --role dispatcher --interface eth0
      On a dispatcher's host. Clients' packets pass untouched until a connection is handed over.

  shunt switch load --role backend --interface eth0 --vip 203.0.113.10:80 --user shunt
      On a backend's host, which has 203.0.113.10 on its loopback interface. The agent then runs as
      shunt, with CAP_NET_ADMIN.

  shunt switch load --role gateway --interface eth0 --vip 203.0.113.10:80
  shunt switch balance --dispatcher 10.0.0.21:9180,10.0.0.22:9180
      On a host that has 203.0.113.10, in front of several dispatchers. The gateway asks each at its
      --admin address whether it is ready.

  shunt switch load --role multiget-client --interface eth0 --vip 10.0.0.200:9700 \\
      --server 10.0.0.7:9700 10.0.0.8:9700
      On a host that sends multigets to 10.0.0.200, an address that no host has. The program sends
      each server its part. All clients list the servers in the same order.

  shunt switch status
  shunt switch clean
";

const DISPATCH_EXAMPLES: &str = "\
Examples:
  shunt dispatch --listen 0.0.0.0:80 --backend 10.0.0.7:7001 10.0.0.8:7001 --key-file key
      GET and HEAD go to the backend with the fewest requests in flight, all else to the first one.

  shunt dispatch --config dispatch.toml --log debug
      A flag overrides the file. The file has the same names with `_` for `-`:
          listen = \"0.0.0.0:80\"
          backend = [\"10.0.0.7:7001\", \"10.0.0.8:7001\"]
          key_file = \"/etc/shunt/key\"

Signals:
  SIGTERM, SIGINT  stop accepting, finish the answers under way (--drain-timeout-ms), end; a second
                   signal, a second or more later, ends the process at once
";

const AGENT_EXAMPLES: &str = "\
Examples:
  head -c 32 /dev/urandom | base64 > key && chmod 600 key
  shunt agent --listen 10.0.0.7:7001 --upstream 127.0.0.1:8080 --protocol http --key-file key
      Beside a stock server on 127.0.0.1:8080. Dispatchers with the same key connect to port 7001.

  shunt agent --config agent.toml
      The file has the same names with `_` for `-`: listen, upstream, key_file,
      vip = [\"203.0.113.10:80\"], ...
";

const MULTIGET_EXAMPLES: &str = "\
Examples:
  shunt multiget serve --listen 127.0.0.1:6380 --server 10.0.0.7:6379 10.0.0.8:6379
      Beside an application, which connects to port 6380. Every sidecar lists the servers in the
      same order.

  shunt multiget shim --listen 10.0.0.7:9700 --server 127.0.0.1:6379 --allow 10.0.0.0/8
      Beside each Redis or Valkey, at port 9700 of its host, for --mode cli, coordinator and netmc.
      Sidecars in 10.0.0.0/8 may send requests.

  shunt multiget serve --mode netmc --switch 10.0.0.200:9700 --server 10.0.0.7:6379 10.0.0.8:6379
      The sidecar sends one request for several servers to 10.0.0.200. `shunt help switch` says
      which program splits it.

Signals:
  SIGTERM, SIGINT  finish the requests under way (--drain-timeout-ms), end; a second signal, a
                   second or more later, ends the process at once
";

const CHECK_EXAMPLES: &str = "\
Examples:
  shunt check --config shunt.toml
      Checks the configuration of `shunt proxy`.

  shunt check dispatch --config dispatch.toml
  shunt check agent --config agent.toml
  shunt check multiget serve --config sidecar.toml
";

const LOCK_EXAMPLES: &str = "\
Examples:
  shunt lock nightly-report -- ./report.sh
  shunt lock --wait 0 -E 0 rebuild-index -- ./rebuild.sh
      Ends with code 0, and runs nothing, while another host runs it.

  shunt lock --shared deploy -- ./serve.sh

The command finds SHUNT_LOCK_NAME and SHUNT_LOCK_FENCE in its environment. Have the store that it
writes to refuse a fence below the largest one it has seen.
";

const DOCTOR_EXAMPLES: &str = "\
Example:
  shunt doctor --contact-points 10.0.0.1

Each line is a finding: ok, warning or error, its subject, and the remedy.
";

const FLEET_EXAMPLES: &str = "\
Examples:
  shunt fleet init --contact-points 10.0.0.1
  shunt fleet status --contact-points 10.0.0.1
  shunt fleet drain --contact-points 10.0.0.1 10.0.0.5:9042
";

const LOCKS_EXAMPLES: &str = "\
Examples:
  shunt locks
      Lists the locks of all proxies of the fleet, those with the longest queues first.

  shunt locks nightly-report
      Shows the holders of that lock, and its queue in order.

  shunt locks nightly-report --release --force
      Takes the lock from its holder, and names that holder. The next holder gets a larger fence.
";

const BENCH_EXAMPLES: &str = "\
Examples:
  shunt bench run --smoke
      Runs each scenario briefly.

  shunt bench compare ./shunt-before
      Compares this build with another one, in one run.
";

const GENERATE_EXAMPLES: &str = "\
Examples:
  shunt generate man /usr/local/share/man/man1
  shunt generate completions bash > /etc/bash_completion.d/shunt
  shunt generate configuration > shunt.toml
";

/// Shunt's command line.
#[derive(Debug, Parser)]
#[command(name = "shunt", about = ABOUT, after_help = EXAMPLES)]
#[command(disable_version_flag = true, subcommand_required = false, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Print the version; with -v also commit, compiler and I/O drivers
    #[arg(long, short = 'V')]
    pub(crate) version: bool,
    /// With -V, print the details of the build, too
    #[arg(long, short, requires = "version")]
    pub(crate) verbose: bool,
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The commands of Shunt.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run nodes and the proxy in one process, for a first look
    #[cfg(feature = "node")]
    #[command(after_help = help::ending(UP_EXAMPLES, "up"))]
    Up(Box<UpOptions>),
    /// Refuses: this build has no embedded node
    #[cfg(not(feature = "node"))]
    #[command(hide = true, disable_help_flag = true)]
    Up(Ignored),
    /// Run the proxy
    #[command(after_help = help::ending(PROXY_EXAMPLES, "proxy"))]
    Proxy(Box<Settings>),
    /// Run an embedded node, or copy or verify its data
    #[cfg(feature = "node")]
    #[command(after_help = help::ending(NODE_EXAMPLES, "node"))]
    Node(Box<NodeCommand>),
    /// Refuses: this build has no embedded node
    #[cfg(not(feature = "node"))]
    #[command(hide = true, disable_help_flag = true)]
    Node(Ignored),
    /// Accept HTTP requests, and have agents beside unmodified servers answer them
    #[command(after_help = help::ending(DISPATCH_EXAMPLES, "dispatch"))]
    Dispatch(Box<DispatchCommand>),
    /// Answer the requests of dispatchers or proxies, beside a stock server
    #[command(after_help = help::ending(AGENT_EXAMPLES, "agent"))]
    Agent(Box<AgentCommand>),
    /// Read keys of several Redis servers at once, through a sidecar
    #[command(after_help = help::ending(MULTIGET_EXAMPLES, "multiget"))]
    Multiget(Box<Multiget>),
    /// Load, show or remove the kernel programs that steer packets
    #[command(after_help = help::ending(SWITCH_EXAMPLES, "switch"))]
    Switch(Box<Switch>),
    /// Check a configuration without starting anything
    #[command(after_help = help::ending(CHECK_EXAMPLES, "check"))]
    Check(Box<Check>),
    /// Create, show or drain a fleet of proxies, which share locks
    #[command(after_help = help::ending(FLEET_EXAMPLES, "fleet"))]
    Fleet(Box<Fleet>),
    /// Check whether the nodes are fit for a fleet's locks
    #[command(after_help = help::ending(DOCTOR_EXAMPLES, "doctor"))]
    Doctor(Box<Doctor>),
    /// Run a command while holding a lock
    #[command(after_help = help::ending(LOCK_EXAMPLES, "lock"))]
    Lock(Box<Lock>),
    /// List locks, show a queue, or take a lock from its holder
    #[command(after_help = help::ending(LOCKS_EXAMPLES, "locks"))]
    Locks(Box<Locks>),
    /// Check whether a running proxy takes clients, for health checks without a shell
    #[command(after_help = help::ending(console_examples::READY_EXAMPLES, "ready"))]
    Ready(Box<Ready>),
    /// Watch a running proxy in the terminal
    #[command(after_help = help::ending(console_examples::TOP_EXAMPLES, "top"))]
    Top(Box<Top>),
    /// List the clients of a running proxy, those that send the most first
    #[command(after_help = help::ending(console_examples::CLIENTS_EXAMPLES, "clients"))]
    Clients(Box<Clients>),
    /// List the connections of a running proxy's clients one by one
    #[command(after_help = help::ending(console_examples::CONNECTIONS_EXAMPLES, "connections"))]
    Connections(Box<Connections>),
    /// List the logins that have failed lately at a running proxy
    #[command(after_help = help::ending(console_examples::FAILED_LOGINS_EXAMPLES, "failed-logins"))]
    FailedLogins(Box<FailedLogins>),
    /// List the nodes as a running proxy sees them, the slowest first
    #[command(after_help = help::ending(console_examples::NODES_EXAMPLES, "nodes"))]
    Nodes(Box<Nodes>),
    /// List the last slow queries of a running proxy
    #[command(after_help = help::ending(console_examples::SLOW_EXAMPLES, "slow"))]
    Slow(Box<Slow>),
    /// List the queries of a running proxy that take most time
    #[command(after_help = help::ending(console_examples::QUERIES_EXAMPLES, "queries"))]
    Queries(Box<Queries>),
    /// List the partition keys that a running proxy is asked for most
    #[command(after_help = help::ending(console_examples::HOT_EXAMPLES, "hot"))]
    Hot(Box<Hot>),
    /// List the rules of a running proxy, and how often they acted
    #[command(after_help = help::ending(console_examples::RULES_EXAMPLES, "rules"))]
    Rules(Box<Rules>),
    /// List the tenants of a running proxy, and how often they reached their limits
    #[command(after_help = help::ending(console_examples::TENANTS_EXAMPLES, "tenants"))]
    Tenants(Box<Tenants>),
    /// List the conditions of a running proxy that need attention
    #[command(after_help = help::ending(console_examples::ALERTS_EXAMPLES, "alerts"))]
    Alerts(Box<Alerts>),
    /// List the options of a running proxy, and where they come from, or set one
    #[command(after_help = help::ending(console_examples::CONFIG_EXAMPLES, "config"))]
    Config(Box<Options>),
    /// Show or set the level of a running proxy's log
    #[command(after_help = help::ending(console_examples::LOG_LEVEL_EXAMPLES, "log-level"))]
    LogLevel(Box<LogLevel>),
    /// Close clients of a running proxy
    #[command(
        override_usage = "shunt kick [OPTIONS] <CONDITION>...\n       shunt kick [OPTIONS] --all"
    )]
    #[command(after_help = help::ending(console_examples::KICK_EXAMPLES, "kick"))]
    Kick(Box<Kick>),
    /// Have a running proxy tell its balancer to send clients elsewhere, and close clients
    #[command(after_help = help::ending(console_examples::DRAIN_EXAMPLES, "drain"))]
    Drain(Box<Drain>),
    /// Take the drain of a running proxy back
    #[command(after_help = help::ending(console_examples::UNDRAIN_EXAMPLES, "undrain"))]
    Undrain(Box<Drain>),
    /// Have a running proxy read its configuration again, and wait for the outcome
    #[command(after_help = help::ending(console_examples::RELOAD_EXAMPLES, "reload"))]
    Reload(Box<Reload>),
    /// Write man pages, completions or a configuration file with all options
    #[command(after_help = help::ending(GENERATE_EXAMPLES, "generate"))]
    Generate(Box<Generate>),
    /// Measure the proxy against direct connections, and generate load
    #[command(after_help = help::ending(BENCH_EXAMPLES, "bench"))]
    Bench(Box<Bench>),
}

/// `shunt check`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Check {
    /// The command, if not `shunt proxy`.
    #[command(subcommand)]
    pub(crate) of: Option<Checked>,
    /// Options of `shunt proxy`.
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Other commands whose configuration can be checked.
#[derive(Debug, Subcommand)]
pub(crate) enum Checked {
    /// The configuration of `shunt dispatch`, and whether this host can hand over
    Dispatch(Box<DispatchCommand>),
    /// The configuration of `shunt multiget`
    Multiget(Box<Multiget>),
    /// The configuration of `shunt agent`, and whether this host can take connections
    Agent(Box<AgentCommand>),
}

/// `shunt bench`.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// The measurement to make.
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_of_the_commands_about_locks_take_units() {
        for arguments in [
            "lock --wait 10s --ttl 1m job -- true",
            "lock --wait 10 --ttl 60 job -- true",
            "fleet init --lease-ms 6s --max-ttl-ms 30s",
            "fleet init --lease-ms 6000 --max-ttl-ms 30000",
            "fleet drain --wait 2m 10.0.0.5:9042",
        ] {
            let parsed = Cli::try_parse_from(std::iter::once("shunt").chain(arguments.split(' ')));
            assert!(parsed.is_ok(), "{arguments}: {parsed:?}");
        }
        for arguments in
            ["lock --wait 10q job -- true", "lock --ttl 2s job -- true", "fleet init --lease-ms 6h"]
        {
            let error = Cli::try_parse_from(std::iter::once("shunt").chain(arguments.split(' ')));
            let error = error.expect_err(arguments).to_string();
            assert!(
                error.contains("are allowed") && error.contains("such as"),
                "{arguments}: {error}"
            );
        }
    }

    #[test]
    fn help_names_examples_and_exit_codes() {
        let of_every_build =
            [&["shunt", "--help"][..], &["shunt", "help", "proxy"], &["shunt", "help", "locks"]];
        let of_the_node = [&["shunt", "up", "--help"][..], &["shunt", "help", "node"]];
        for path in of_every_build
            .into_iter()
            .chain(of_the_node.into_iter().filter(|_| cfg!(feature = "node")))
        {
            let help = Cli::try_parse_from(path).expect_err("help ends the parsing").to_string();
            assert!(help.contains("Examples:"), "{help}");
        }
    }
}
