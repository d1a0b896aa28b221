//! The text of `--help`: commands in groups, everyday options first, and the rest under
//! `--help-all`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

use crate::exit;

/// Commands by purpose, in the order in which `shunt --help` lists them.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Proxy", &["up", "proxy", "node", "check"]),
    ("A running proxy", exit::CONSOLE),
    ("Locks and fleets", &["fleet", "doctor", "lock", "locks"]),
    ("Large answers", &["dispatch", "agent", "switch"]),
    ("Redis", &["multiget"]),
    ("Tools", &["generate", "bench", "help"]),
];

/// Everyday options of the commands that have many. `--help` shows these and each required one,
/// `--help-all` shows all of them.
const BASIC: [(&[&str], &[&str]); 7] = [
    (&["proxy"], PROXY),
    (&["check"], PROXY),
    (&["up"], &["nodes", "data", "proxies", "listen", "admin", "node-port", "insecure", "log"]),
    (&["node"], &["data", "listen", "admin", "cores", "clients-max", "insecure", "log"]),
    (
        &["dispatch"],
        &[
            "listen",
            "backend",
            "key-file",
            "handover",
            "tls",
            "tls-certificate",
            "tls-key",
            "agent-tls",
            "agent-tls-ca",
            "admin",
            "cores",
            "config",
            "log",
        ],
    ),
    (
        &["agent"],
        &[
            "listen",
            "upstream",
            "protocol",
            "key-file",
            "vip",
            "handover-threshold",
            "admin",
            "cores",
            "config",
            "log",
        ],
    ),
    (
        &["multiget", "serve"],
        &[
            "listen",
            "server",
            "mode",
            "cluster",
            "tls",
            "tls-certificate",
            "tls-key",
            "server-tls",
            "server-tls-ca",
            "admin",
            "cores",
            "config",
            "password-file",
            "log",
        ],
    ),
];

const PROXY: &[&str] = &[
    "config",
    "contact-points",
    "listen",
    "advertise",
    "admin",
    "tls",
    "tls-certificate",
    "tls-key",
    "tls-client-ca",
    "tls-client-auth",
    "node-tls",
    "node-tls-ca",
    "local-datacentre",
    "username",
    "password-file",
    "cores",
    "fleet",
    "fleet-state",
    "handover",
    "multiget",
    "query-timeout-ms",
    "drain-timeout-ms",
    "clients-max",
    "log",
    "log-format",
];

/// Widest help text in columns, on wider terminals.
const WIDTH_MAX: usize = 100;

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n";

/// True if the arguments have `--help-all`, which is replaced by `--help` so that parsing ends
/// there. Words after `--` belong to another program and stay.
pub(crate) fn take_help_all(arguments: &mut [OsString]) -> bool {
    let own = arguments.iter_mut().take_while(|word| *word != OsStr::new("--"));
    let mut found = false;
    for word in own.filter(|word| *word == OsStr::new("--help-all")) {
        *word = OsString::from("--help");
        found = true;
    }
    found
}

/// Returns the command line with its help: commands in groups, and advanced options hidden unless
/// `shows_all`.
pub(crate) fn arrange(command: Command, shows_all: bool) -> Command {
    let template = format!("{TEMPLATE}\n{}Options:\n{{options}}{{after-help}}", groups(&command));
    let command = command.max_term_width(WIDTH_MAX).help_template(template);
    BASIC.into_iter().fold(command, |command, (path, basic)| split(command, path, basic, shows_all))
}

/// Hides the options of a command that are not in `basic`, and adds `--help-all`.
fn split(command: Command, path: &[&str], basic: &[&str], shows_all: bool) -> Command {
    let Some((first, rest)) = path.split_first() else {
        let all = Arg::new("help-all")
            .long("help-all")
            .action(ArgAction::SetTrue)
            .help("Print help with every option");
        return command
            .mut_args(|argument| {
                let is_basic = argument.is_required_set()
                    || argument.get_long().is_none_or(|flag| basic.contains(&flag));
                argument.hide(!shows_all && !is_basic)
            })
            .arg(all);
    };
    if command.find_subcommand(first).is_none() {
        return command;
    }
    command.mut_subcommand(first, |inner| split(inner, rest, basic, shows_all))
}

/// Lists the commands under the headings of their groups.
fn groups(command: &Command) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(heading);
        text.push_str(":\n");
        for name in names {
            let about = match command.find_subcommand(name) {
                Some(found) if found.is_hide_set() => continue,
                Some(found) => found.get_about().map(ToString::to_string).unwrap_or_default(),
                None if *name == "help" => "Print the help of a command".to_owned(),
                None => continue,
            };
            text.push_str(&format!("  {name:<width$}  {about}\n"));
        }
        text.push('\n');
    }
    text
}

/// Formats the examples and the exit codes of `command` for the end of its help.
pub(crate) fn ending(examples: &str, command: &str) -> String {
    format!("{examples}\n{}", exit::help(command))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn help(line: &str, shows_all: bool) -> String {
        let words = std::iter::once("shunt").chain(line.split(' '));
        let command = arrange(Cli::command(), shows_all);
        command.try_get_matches_from(words).expect_err("help ends the parsing").to_string()
    }

    #[test]
    fn each_command_is_in_one_group() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        for name in visible.map(Command::get_name) {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name} is in {groups} groups");
        }
        assert!(help("--help", false).contains("Locks and fleets:\n  fleet "));
    }

    #[test]
    fn descriptions_of_commands_begin_in_one_column() {
        let text = help("--help", false);
        let commands = text.lines().take_while(|line| *line != "Options:");
        let commands = commands.filter_map(|line| line.strip_prefix("  "));
        let column = |line: &str| {
            let (name, rest) = line.split_once("  ").expect("a command and its description");
            name.len() + rest.len() - rest.trim_start().len()
        };
        let columns: std::collections::BTreeSet<_> = commands.map(column).collect();
        assert_eq!(columns.len(), 1, "{text}");
    }

    #[test]
    fn basic_options_exist() {
        let command = Cli::command();
        for (path, basic) in BASIC {
            let found = path.iter().try_fold(&command, |inner, name| inner.find_subcommand(name));
            // A build without the node lacks two commands.
            let Some(found) = found.filter(|found| !found.is_hide_set()) else { continue };
            for flag in basic {
                let exists = found.get_arguments().any(|option| option.get_long() == Some(flag));
                assert!(exists, "{path:?} has no --{flag}");
            }
        }
    }

    #[test]
    fn advanced_options_are_under_help_all() {
        for line in ["proxy --help", "dispatch --help", "multiget serve --help"] {
            let (short, all) = (help(line, false), help(line, true));
            assert!(short.contains("--help-all") && all.lines().count() > short.lines().count());
        }
        assert!(!help("proxy --help", false).contains("--in-flight-max"));
        assert!(help("proxy --help", true).contains("--in-flight-max"));
    }

    #[test]
    fn help_all_is_help_but_for_the_command_of_a_lock() {
        let line = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let mut own = line("shunt proxy --help-all");
        assert!(take_help_all(&mut own));
        assert_eq!(own, line("shunt proxy --help"));
        let mut other = line("shunt lock job -- tool --help-all");
        assert!(!take_help_all(&mut other));
        assert_eq!(other, line("shunt lock job -- tool --help-all"));
    }

    #[test]
    fn help_has_at_most_a_hundred_columns() {
        fn all(command: &Command, path: &str, long: &mut Vec<String>) {
            let mut shown = command.clone();
            for line in shown.render_help().to_string().lines() {
                if line.chars().count() > WIDTH_MAX {
                    long.push(format!("{path}: {line}"));
                }
            }
            for inner in command.get_subcommands() {
                all(inner, &format!("{path} {}", inner.get_name()), long);
            }
        }
        let mut command = arrange(Cli::command(), true);
        command.build();
        let mut long = Vec::new();
        all(&command, "shunt", &mut long);
        assert!(long.is_empty(), "{}", long.join("\n"));
    }
}
