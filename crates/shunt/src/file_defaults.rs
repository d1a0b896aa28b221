//! The configuration file of `shunt dispatch`, `shunt agent` and `shunt multiget`: TOML, the options' names with `_` for `-`. What it says are defaults of the
//! command line, so that an option that is given there goes before it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use crate::cli::Cli;
use crate::exit::Exit;

/// Least likeness (Jaro-Winkler, 0 to 1) at which another key is suggested.
const LIKENESS_MIN: f64 = 0.75;

/// Parses the command line. If that is not possible, or help was asked for, the text is out, and the process ends with this status.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, Exit> {
    let mut command = Cli::command();
    let named = path(&arguments).zip(subcommands(&arguments));
    if let Some((path, names)) = &named {
        match defaults(command, names, path) {
            Ok(changed) => command = changed,
            Err(problems) => {
                problems.iter().for_each(|problem| eprintln!("error: {}: {problem}", path.display()));
                return Err(Exit::Configuration);
            }
        }
    }
    let matched: Result<ArgMatches, clap::Error> = command.try_get_matches_from_mut(arguments);
    let parsed =
        matched.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    parsed.map_err(|error| {
        if let (Some((path, _)), true) = (named, error.use_stderr()) {
            eprintln!("with what {} has:", path.display());
        }
        // Nobody listening is no error.
        let _ = error.print();
        if error.use_stderr() { Exit::Configuration } else { Exit::Done }
    })
}

/// The commands that have such a file, as far as this is one of them.
fn subcommands(arguments: &[OsString]) -> Option<Vec<String>> {
    let mut words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let first = words.next()?;
    let mut names = vec![first];
    if first == "check" {
        names.push(words.next()?);
    }
    if names.last() == Some(&"multiget") {
        names.push(words.next()?);
    }
    matches!(
        names[..],
        ["dispatch" | "agent"]
            | ["check", "dispatch" | "agent"]
            | ["multiget", "serve" | "shim"]
            | ["check", "multiget", "serve" | "shim"]
    )
    .then(|| names.into_iter().map(str::to_owned).collect())
}

/// The file that `--config` names.
fn path(arguments: &[OsString]) -> Option<PathBuf> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--") => return None,
            Some("--config") => return words.next().map(PathBuf::from),
            Some(text) => {
                if let Some(path) = text.strip_prefix("--config=") {
                    return Some(path.into());
                }
            }
            None => {}
        }
    }
    None
}

/// The command line with the file's values as its defaults.
fn defaults(command: Command, names: &[String], path: &std::path::Path) -> Result<Command, Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|error| vec![format!("cannot be read: {error}")])?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| vec![error.to_string()])?;
    let known = options(&command, names);
    let mut problems = Vec::new();
    let mut values = Vec::new();
    for (key, value) in table {
        let flag = key.replace('_', "-");
        if !known.contains(&flag) || key.contains('-') {
            let likely = known.iter().map(|flag| flag.replace('-', "_"));
            let nearest = likely.max_by(|a, b| strsim::jaro_winkler(a, &key).total_cmp(&strsim::jaro_winkler(b, &key)));
            let hint = nearest.filter(|near| strsim::jaro_winkler(near, &key) >= LIKENESS_MIN);
            let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            problems.push(format!("unknown key `{key}`{hint}"));
            continue;
        }
        match texts(&value) {
            Some(texts) => values.push((flag, texts)),
            None => problems.push(format!("`{key}`: a text, a number, or a list of these is expected")),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(with_values(command, names, values))
}

/// The long flags of a command, but for those that are about the command line itself.
fn options(command: &Command, names: &[String]) -> Vec<String> {
    let found = names.iter().try_fold(command, |command, name| command.find_subcommand(name));
    let flags = found.into_iter().flat_map(Command::get_arguments).filter_map(|argument| argument.get_long());
    flags.filter(|flag| *flag != "config").map(str::to_owned).collect()
}

fn with_values(command: Command, names: &[String], values: Vec<(String, Vec<String>)>) -> Command {
    match names.split_first() {
        Some((first, rest)) => command.mut_subcommand(first, |inner| with_values(inner, rest, values)),
        None => command.mut_args(|argument| {
            let given = values.iter().find(|(flag, _)| argument.get_long() == Some(flag));
            match given {
                Some((_, texts)) => argument.required(false).default_values(texts.clone()),
                None => argument,
            }
        }),
    }
}

/// A value as the command line would have it.
fn texts(value: &toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::String(text) => Some(vec![text.clone()]),
        toml::Value::Integer(number) => Some(vec![number.to_string()]),
        toml::Value::Array(values) => {
            let each: Option<Vec<Vec<String>>> =
                values.iter().map(|value| if value.is_array() { None } else { texts(value) }).collect();
            each.map(|all| all.concat())
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::cli;

    fn parsed(text: &str, line: &str) -> Result<Cli, Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let line = line.replace("FILE", file.path().to_str().unwrap());
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (path, names) = path(&arguments).zip(subcommands(&arguments)).unwrap();
        let command = defaults(Cli::command(), &names, &path)?;
        let matches = command.try_get_matches_from(&arguments).map_err(|error| vec![error.to_string()])?;
        Ok(Cli::from_arg_matches(&matches).unwrap())
    }

    const GOOD: &str = "listen = \"127.0.0.1:80\"\nbackend = [\"10.0.0.1:7000\", \"10.0.0.2:7000\"]\nkey_file = \"key\"\nclients_max = 7\nhead_timeout_ms = \"5s\"\n";

    #[test]
    fn a_file_has_what_the_command_line_does_not() {
        for line in
            ["shunt dispatch --config FILE --clients-max 9", "shunt check dispatch --config=FILE --clients-max 9"]
        {
            let text = format!("{:?}", parsed(GOOD, line).unwrap().command);
            for part in ["127.0.0.1:80", "10.0.0.1:7000", "10.0.0.2:7000", "clients_max: 9", "head_timeout_ms: 5s"] {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
        let agent =
            "listen = \"127.0.0.1:7000\"\nupstream = \"127.0.0.1:80\"\nkey_file = \"key\"\nvip = [\"192.0.2.1:80\"]\n";
        assert!(matches!(parsed(agent, "shunt agent --config FILE").unwrap().command, Some(cli::Command::Agent(_))));
    }

    #[test]
    fn an_option_that_is_given_replaces_all_that_the_file_has_of_it() {
        let text =
            format!("{:?}", parsed(GOOD, "shunt dispatch --config FILE --backend 10.0.0.3:7000").unwrap().command);
        assert!(text.contains("10.0.0.3:7000") && !text.contains("10.0.0.1:7000"), "{text}");
    }

    #[test]
    fn what_is_wrong_in_it_is_named() {
        for (text, expected) in [
            ("bakend = \"10.0.0.1:7000\"\n", "did you mean `backend`?"),
            ("head-timeout-ms = 5\n", "did you mean `head_timeout_ms`?"),
            ("config = \"other\"\n", "unknown key `config`"),
            ("listen = [[\"127.0.0.1:80\"]]\n", "`listen`: a text, a number, or a list"),
            ("clients_max = true\n", "`clients_max`: a text"),
            ("listen = \n", "line 1"),
            (
                "clients_max = \"many\"\nlisten = \"127.0.0.1:80\"\nbackend = \"h:1\"\nkey_file = \"k\"\n",
                "'--clients-max <N>'",
            ),
        ] {
            let problems = parsed(text, "shunt dispatch --config FILE").unwrap_err().join("\n");
            assert!(problems.contains(expected), "{text}: {problems}");
        }
        assert!(parsed(GOOD, "shunt dispatch --config FILE --no-such-flag").is_err());
    }

    #[test]
    fn the_commands_within_multiget_have_one_each() {
        let text = "server = [\"10.0.0.1:6379\", \"10.0.0.2:6379\"]\nresend_ms = \"5ms\"\n";
        for line in ["shunt multiget serve --config FILE", "shunt check multiget serve --config FILE"] {
            let parsed = format!("{:?}", parsed(text, line).unwrap().command);
            assert!(parsed.contains("10.0.0.2:6379") && parsed.contains("resend_ms: 5ms"), "{parsed}");
        }
        let problems = parsed("alow = \"10.0.0.0/8\"\n", "shunt multiget shim --config FILE").unwrap_err().join("\n");
        assert!(problems.contains("did you mean `allow`?"), "{problems}");
    }

    #[test]
    fn only_these_commands_have_such_a_file() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(subcommands(&words("shunt proxy --config a")), None);
        assert_eq!(subcommands(&words("shunt check --config a")), None);
        assert_eq!(path(&words("shunt agent -- --config a")), None);
    }
}
