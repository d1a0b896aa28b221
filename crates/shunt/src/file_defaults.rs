//! The configuration file of `shunt dispatch`, `shunt agent` and `shunt multiget`: TOML, whose keys
//! are the options' names with `_` for `-`. The file's values become defaults of the command line,
//! so that flags override them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, FromArgMatches as _};
use toml::de::{DeTable, DeValue};

use crate::cli::Cli;
use crate::exit::Exit;
use crate::faults::Sources;
use crate::help;
use crate::settings::{one_line, place_of};

/// Least similarity (Jaro-Winkler, 0 to 1) at which another key is suggested.
const LIKENESS_MIN: f64 = 0.75;

/// Parses the command line. If it cannot be parsed, or asks for help, prints the text and returns
/// the status to end with.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<(Cli, Sources), Exit> {
    let (sources, error) = match read(arguments) {
        Ok(read) => return Ok(read),
        Err(failed) => failed,
    };
    sources.unread.iter().for_each(|line| eprintln!("error: {line}"));
    if is_told(&error, &sources.unread) {
        return Err(Exit::Configuration);
    }
    if let (false, true) = (sources.file.as_os_str().is_empty(), error.use_stderr()) {
        eprintln!("with the values of {}:", sources.file.display());
    }
    // A closed output is no error.
    let _ = error.print();
    if error.use_stderr() { Err(Exit::Configuration) } else { Err(Exit::Done) }
}

/// Parses the command line of a command that has such a file. Leaves out options that are wrong and
/// notes them, so that the remaining faults are found as well.
fn read(mut arguments: Vec<OsString>) -> Result<(Cli, Sources), (Sources, clap::Error)> {
    let shows_all = help::take_help_all(&mut arguments);
    let mut command = help::arrange(Cli::command(), shows_all);
    let mut sources = Sources::default();
    let names = subcommands(&arguments);
    if let Some((names, path)) = names.as_ref().zip(path(&arguments)) {
        sources.file = path;
        command = defaults(command, names, &mut sources);
        sources.places.retain(|flag, _| tokens_of(&arguments, &format!("--{flag}")).is_empty());
    }
    loop {
        let matched = command.clone().try_get_matches_from(&arguments);
        let parsed = matched.and_then(|matches| {
            Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
        });
        let error = match parsed {
            Ok(cli) => return Ok((cli, sources)),
            Err(error) => error,
        };
        let Some((line, wrong)) = names.as_ref().and_then(|_| left_out(&arguments, &error)) else {
            return Err((sources, error));
        };
        sources.unread.push(line);
        arguments.drain(wrong);
    }
}

/// True if every option reported as missing was given but could not be read. That fault is reported
/// already.
fn is_told(error: &clap::Error, unread: &[String]) -> bool {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return false;
    };
    let is_told = |option: &String| {
        let flag = option.split(' ').next().unwrap_or_default();
        let (flag, key) = (
            format!("{flag}: "),
            format!("`{}`: ", flag.trim_start_matches('-').replace('-', "_")),
        );
        unread.iter().any(|line| line.contains(&flag) || line.contains(&key))
    };
    error.kind() == ErrorKind::MissingRequiredArgument && missing.iter().all(is_told)
}

/// Returns the position of a wrong option on the command line, and a line about it; `None` if the
/// error is of another kind.
fn left_out(
    arguments: &[OsString],
    error: &clap::Error,
) -> Option<(String, std::ops::Range<usize>)> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = option.split([' ', '=']).next().filter(|flag| flag.starts_with("--"))?;
    let wrong = tokens_of(arguments, flag);
    let message = match error.kind() {
        ErrorKind::UnknownArgument => head(error),
        _ => format!("{flag}: {}", why(error)?),
    };
    (!wrong.is_empty()).then_some((message, wrong))
}

/// Returns the range of an option and its values on the command line.
fn tokens_of(arguments: &[OsString], flag: &str) -> std::ops::Range<usize> {
    let text = |at: usize| arguments.get(at).map(|word| word.to_string_lossy());
    let with_value = format!("{flag}=");
    let is_it = |word: &str| word == flag || word.starts_with(&with_value);
    let Some(start) = (0..arguments.len()).find(|at| text(*at).is_some_and(|word| is_it(&word)))
    else {
        return 0..0;
    };
    let mut end = start + 1;
    while text(start).is_some_and(|word| word == flag)
        && text(end).is_some_and(|word| !word.starts_with('-'))
    {
        end += 1;
    }
    start..end
}

/// Returns the fault of a value; `None` if the error is of another kind.
fn why(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    match (error.kind(), std::error::Error::source(error), error.get(ContextKind::ValidValue)) {
        (ErrorKind::ValueValidation, Some(why), _) => Some(format!("{why}, found `{value}`")),
        (ErrorKind::InvalidValue, _, Some(ContextValue::Strings(valid))) if !value.is_empty() => {
            Some(format!("there are {}, found `{value}`", valid.join(", ")))
        }
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, ..) => Some(head(error)),
        _ => None,
    }
}

/// Returns an error's message in one line, without the usage text.
fn head(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\nUsage").next().unwrap_or_default();
    let text = text.split("\n\nFor more").next().unwrap_or_default();
    let lines = text.strip_prefix("error: ").unwrap_or(text).lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns the names of the command and its subcommands, if this command has such a file.
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

/// Returns the path that `--config` names.
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

/// Returns the command line with the file's values, as far as they can be read, as its defaults.
fn defaults(command: Command, names: &[String], sources: &mut Sources) -> Command {
    let text = match std::fs::read_to_string(&sources.file) {
        Ok(text) => text,
        Err(error) => {
            sources.unread.push(format!("{}: cannot be read: {error}", sources.file.display()));
            return command;
        }
    };
    let (table, broken) = DeTable::parse_recoverable(&text);
    let mut found: Vec<_> = Vec::new();
    for error in &broken {
        let place = place_of(&text, error.span().unwrap_or(0..0));
        found.push((place, one_line(error.message())));
    }
    let broken_lines: Vec<usize> = found.iter().map(|(place, _)| place.line).collect();
    let known = options(&command, names);
    let mut values = Vec::new();
    for (key, value) in table.into_inner() {
        let place = place_of(&text, key.span());
        if broken_lines.contains(&place.line) {
            // Further errors in a broken line follow from the first.
            continue;
        }
        let key = key.into_inner().into_owned();
        let flag = key.replace('_', "-");
        if !known.contains(&flag) || key.contains('-') {
            found.push((place, unknown(&key, &known)));
            continue;
        }
        let place = place_of(&text, value.span());
        match texts(value.get_ref()) {
            None => found.push((
                place,
                format!("`{key}`: a text, a number, or a list of these is expected"),
            )),
            Some(texts) => match fault_of(&command, names, &flag, &texts) {
                Some(why) => found.push((place, format!("`{key}`: {why}"))),
                None => {
                    sources.places.insert(flag.clone(), place);
                    values.push((flag, texts));
                }
            },
        }
    }
    found.sort_by_key(|(place, _)| *place);
    let lines: Vec<String> =
        found.iter().map(|(place, message)| sources.at(*place, message)).collect();
    sources.unread.extend(lines);
    with_values(command, names, values)
}

/// Builds the message for an unknown key.
fn unknown(key: &str, known: &[String]) -> String {
    let likely = known.iter().map(|flag| flag.replace('-', "_"));
    let nearest =
        likely.max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
    let hint = nearest.filter(|near| strsim::jaro_winkler(near, key) >= LIKENESS_MIN);
    let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("unknown key `{key}`{hint}")
}

/// Returns the fault of an option's values, in the words of the command line.
fn fault_of(command: &Command, names: &[String], flag: &str, texts: &[String]) -> Option<String> {
    let values = texts.iter().map(|text| format!("--{flag}={text}"));
    let line = std::iter::once("shunt".to_owned()).chain(names.iter().cloned()).chain(values);
    let error = command.clone().try_get_matches_from(line).err()?;
    match error.kind() {
        ErrorKind::ArgumentConflict if texts.len() > 1 => {
            Some("one value is expected, found a list".to_owned())
        }
        _ => why(&error),
    }
}

/// Returns the long flags of a command, except those about the command line itself.
fn options(command: &Command, names: &[String]) -> Vec<String> {
    let found = names.iter().try_fold(command, |command, name| command.find_subcommand(name));
    let flags = found
        .into_iter()
        .flat_map(Command::get_arguments)
        .filter_map(|argument| argument.get_long());
    flags.filter(|flag| *flag != "config").map(str::to_owned).collect()
}

fn with_values(command: Command, names: &[String], values: Vec<(String, Vec<String>)>) -> Command {
    match names.split_first() {
        Some((first, rest)) => {
            command.mut_subcommand(first, |inner| with_values(inner, rest, values))
        }
        None => command.mut_args(|argument| {
            let given = values.iter().find(|(flag, _)| argument.get_long() == Some(flag));
            match given {
                Some((_, texts)) => argument.required(false).default_values(texts.clone()),
                None => argument,
            }
        }),
    }
}

/// Converts a value to its texts on the command line.
fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::String(text) => Some(vec![text.clone().into_owned()]),
        DeValue::Integer(number) => {
            let number = i128::from_str_radix(number.as_str(), number.radix());
            number.ok().map(|number| vec![number.to_string()])
        }
        DeValue::Array(values) => {
            let one = |value: &DeValue<'_>| if value.is_array() { None } else { texts(value) };
            let each: Option<Vec<Vec<String>>> =
                values.iter().map(|value| one(value.get_ref())).collect();
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

    /// Parses file and command line; returns every fault if any part cannot be read.
    fn parsed(text: &str, line: &str) -> Result<Cli, Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let line = line.replace("FILE", file.path().to_str().unwrap());
        match read(line.split(' ').map(OsString::from).collect()) {
            Ok((cli, sources)) if sources.unread.is_empty() => Ok(cli),
            Ok((_, sources)) => Err(sources.unread),
            Err((sources, error)) => Err([sources.unread, vec![error.to_string()]].concat()),
        }
    }

    const GOOD: &str = "listen = \"127.0.0.1:80\"\nbackend = [\"10.0.0.1:7000\", \"10.0.0.2:7000\"]\nkey_file = \"key\"\nclients_max = 7\nhead_timeout_ms = \"5s\"\n";

    #[test]
    fn a_file_has_what_the_command_line_does_not() {
        for line in [
            "shunt dispatch --config FILE --clients-max 9",
            "shunt check dispatch --config=FILE --clients-max 9",
        ] {
            let text = format!("{:?}", parsed(GOOD, line).unwrap().command);
            for part in [
                "127.0.0.1:80",
                "10.0.0.1:7000",
                "10.0.0.2:7000",
                "clients_max: 9",
                "head_timeout_ms: 5s",
            ] {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
        let agent = "listen = \"127.0.0.1:7000\"\nupstream = \"127.0.0.1:80\"\nkey_file = \"key\"\nvip = [\"192.0.2.1:80\"]\n";
        assert!(matches!(
            parsed(agent, "shunt agent --config FILE").unwrap().command,
            Some(cli::Command::Agent(_))
        ));
    }

    #[test]
    fn an_option_that_is_given_replaces_all_that_the_file_has_of_it() {
        let text = format!(
            "{:?}",
            parsed(GOOD, "shunt dispatch --config FILE --backend 10.0.0.3:7000").unwrap().command
        );
        assert!(text.contains("10.0.0.3:7000") && !text.contains("10.0.0.1:7000"), "{text}");
    }

    #[test]
    fn errors_of_the_file_name_the_fault() {
        for (text, expected) in [
            ("bakend = \"10.0.0.1:7000\"\n", "did you mean `backend`?"),
            ("head-timeout-ms = 5\n", "did you mean `head_timeout_ms`?"),
            ("config = \"other\"\n", "unknown key `config`"),
            ("listen = [[\"127.0.0.1:80\"]]\n", "`listen`: a text, a number, or a list"),
            ("clients_max = true\n", "`clients_max`: a text"),
            ("listen = \n", ":1:"),
            (
                "listen = [\"127.0.0.1:80\"]\nclients_max = [1, 2]\n",
                ":2:15: `clients_max`: one value is expected",
            ),
            ("handover = \"perhaps\"\n", ":1:12: `handover`: there are off, auto, found `perhaps`"),
            (
                "clients_max = \"many\"\nlisten = \"127.0.0.1:80\"\nbackend = \"h:1\"\nkey_file = \"k\"\n",
                ":1:15: `clients_max`: a number from 1 is expected, found `many`",
            ),
        ] {
            let problems = parsed(text, "shunt dispatch --config FILE").unwrap_err().join("\n");
            assert!(problems.contains(expected), "{text}: {problems}");
        }
        let line =
            "shunt dispatch --config FILE --no-such-flag 5 --clients-max many --cores=0 --log info";
        let problems = parsed(GOOD, line).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, expected) in problems.iter().zip([
            "'--no-such-flag'",
            "--clients-max: ",
            "--cores: 1 to 1024 are allowed, found `0`",
        ]) {
            assert!(problem.contains(expected) && problem.lines().count() == 1, "{problem}");
        }
    }

    #[test]
    fn the_commands_within_multiget_have_one_each() {
        let text = "server = [\"10.0.0.1:6379\", \"10.0.0.2:6379\"]\nresend_ms = \"5ms\"\n";
        for line in
            ["shunt multiget serve --config FILE", "shunt check multiget serve --config FILE"]
        {
            let parsed = format!("{:?}", parsed(text, line).unwrap().command);
            assert!(
                parsed.contains("10.0.0.2:6379") && parsed.contains("resend_ms: 5ms"),
                "{parsed}"
            );
        }
        let problems = parsed("alow = \"10.0.0.0/8\"\n", "shunt multiget shim --config FILE")
            .unwrap_err()
            .join("\n");
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
