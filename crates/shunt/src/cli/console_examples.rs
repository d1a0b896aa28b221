//! Examples in the help of the commands that ask a running process or change it.

pub(super) const READY_EXAMPLES: &str = "\
Examples:
  shunt ready
      Ends with code 0 if the proxy on this host takes clients; else it prints the reason.

  shunt ready --admin 10.0.9.1 --tls-ca /etc/shunt/ca.crt
";

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  shunt top
      Shows clients, queries, nodes, hot keys and alerts, and closes clients. Press ? for all keys.

  shunt top --once --table nodes
  shunt top --once --json
";

pub(super) const CLIENTS_EXAMPLES: &str = "\
Examples:
  shunt clients
      Lists the clients by role, application and address, those that send the most first.

  shunt clients --sort clients --limit 5
  shunt clients --admin 10.0.9.1 --token-file /etc/shunt/token --tls --json
";

pub(super) const CONNECTIONS_EXAMPLES: &str = "\
Examples:
  shunt connections
      Lists the connections of clients one by one, those that send the most first. `shunt kick --id`
      closes one of them.

  shunt connections --sort bytes-out --limit 5
";

pub(super) const FAILED_LOGINS_EXAMPLES: &str = "\
Examples:
  shunt failed-logins
      Lists the roles and addresses whose logins have failed, the latest first, and why.

  shunt failed-logins --sort count
";

pub(super) const NODES_EXAMPLES: &str = "\
Examples:
  shunt nodes
      Lists the nodes of the ring, the slowest in the last seconds first.

  shunt nodes --sort in-flight

  shunt nodes drain 10.0.0.7
      Sends no new queries to this node while other nodes can take them.
";

pub(super) const SLOW_EXAMPLES: &str = "\
Examples:
  shunt slow
      Lists the last slow queries. --slow-query-ms of the proxy says which are slow.

  shunt slow --sort total --limit 5
";

pub(super) const QUERIES_EXAMPLES: &str = "\
Examples:
  shunt queries
      Lists queries without their values, those that take the most time in total first.

  shunt queries --sort errors
";

pub(super) const HOT_EXAMPLES: &str = "\
Examples:
  shunt hot
      Lists the partition keys that are read and written the most.

  shunt hot --sort writes
";

pub(super) const RULES_EXAMPLES: &str = "\
Examples:
  shunt rules
      Lists the rules in their order, and how many statements each has acted on.

  shunt rules --sort hits --json
";

pub(super) const TENANTS_EXAMPLES: &str = "\
Examples:
  shunt tenants
      Lists the tenants in their order, and how often their limits held something back.

  shunt tenants --sort limited --json
";

pub(super) const ALERTS_EXAMPLES: &str = "\
Examples:
  shunt alerts
      Lists what is wrong with the proxy, the most severe first, and says what to do.

  shunt alerts --json
";

pub(super) const CONFIG_EXAMPLES: &str = "\
Examples:
  shunt config
      Lists the options in force and their sources: flag, file, admin (set while it runs), default.

  shunt config --changed

  shunt config set slow_query_ms 100
      Changes an option until the next successful reload, or a restart.

  shunt config reset slow_query_ms
      Gives an option the value from flags and file again.
";

pub(super) const LOG_LEVEL_EXAMPLES: &str = "\
Examples:
  shunt log-level
  shunt log-level debug
  shunt log-level info,shunt_proxy::control=debug

A proxy without --admin-token-file accepts changes only at a loopback address, such as 127.0.0.1.
";

pub(super) const KICK_EXAMPLES: &str = "\
Examples:
  shunt kick --application checkout
  shunt kick --role shop --address 10.0.4.0/24
      Closes clients that meet both conditions. Drivers reconnect: revoke the role's right to log in
      first, if they are to stay out.

  shunt kick --id 10.0.4.7:51234
";

pub(super) const DRAIN_EXAMPLES: &str = "\
Examples:
  shunt drain
      /readyz says 503. After drain_delay_ms the proxy closes idle clients over drain_close_ms. The
      proxy still accepts new clients, and serves until SIGTERM or `shunt undrain`.
";

pub(super) const UNDRAIN_EXAMPLES: &str = "\
Examples:
  shunt undrain
      /readyz says 200 again, and the proxy closes no more clients.
";

pub(super) const RELOAD_EXAMPLES: &str = "\
Examples:
  shunt reload
      Has the proxy read its configuration and certificates again, as SIGHUP does, and waits for the
      outcome.

In a unit of systemd:
  ExecReload=/usr/local/bin/shunt reload
";
