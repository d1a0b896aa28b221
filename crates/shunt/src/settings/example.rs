//! A configuration file with every option at its default, as the packages install it.

use std::fmt::Write as _;

use shunt_proxy::config::{Allowed, Change, ConfigOption, DefaultText, OPTIONS};

/// Widest comment in columns.
const WIDTH_MAX: usize = 100;

const HEAD: &str = "\
# Configuration of `shunt proxy`. Each line that sets an option shows its default, or an example
# where an option has none. Remove the `#` to change it. `shunt check --config FILE` finds mistakes;
# `systemctl reload shunt` applies what can change without a restart.
";

/// Returns a valid value of an option, in the form of a flag.
pub(super) fn example(option: &ConfigOption) -> String {
    match option.allowed {
        Allowed::Form(_, example) => example.to_owned(),
        Allowed::WordOr(word, ..) => word.to_owned(),
        Allowed::Numbers(lowest, _) => lowest.to_string(),
        Allowed::Tables(_, lines) => lines.join("\n"),
    }
}

/// Converts the text of a flag to its form in the file.
pub(super) fn in_file(option: &ConfigOption, text: &str) -> String {
    let scalar = |text: &str| {
        // TOML has no number with a leading zero.
        let is_number = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
        if is_number { text.to_owned() } else { format!("{text:?}") }
    };
    if option.is_list {
        format!("[{}]", text.split(',').map(scalar).collect::<Vec<_>>().join(", "))
    } else {
        scalar(text)
    }
}

/// Returns the file. All of it is comments, so that an upgrade of Shunt can change defaults.
pub(crate) fn file() -> String {
    let mut file = HEAD.to_owned();
    let mut section = "";
    for option in OPTIONS {
        if section != option.section {
            let _ = writeln!(file, "\n\n# ---- {}", option.section);
            section = option.section;
        }
        file.push('\n');
        write_option(&mut file, option);
    }
    file
}

fn write_option(file: &mut String, option: &ConfigOption) {
    let default = match option.default {
        DefaultText::Words("") => " No default.".to_owned(),
        DefaultText::Words(words) => format!(" Default: {words}."),
        DefaultText::Value(_) => String::new(),
    };
    let restart = match option.change {
        Change::OnReload => "",
        Change::AfterRestart => " Needs a restart.",
    };
    write_comment(file, &format!("{}.{default}{restart}", option.help.trim_end_matches('.')));
    if let Allowed::Tables(_, lines) = option.allowed {
        let _ = writeln!(file, "#[[{}]]", option.key);
        lines.iter().for_each(|line| {
            let _ = writeln!(file, "#    {line}");
        });
        return;
    }
    let text = match option.default {
        DefaultText::Value(value) => value.to_owned(),
        DefaultText::Words(_) => example(option),
    };
    let _ = writeln!(file, "#{} = {}", option.key, in_file(option, &text));
}

/// Writes a text as comments, broken between words.
fn write_comment(file: &mut String, text: &str) {
    let mut columns = 0;
    for word in text.split_whitespace() {
        if columns > 0 && columns + 1 + word.chars().count() > WIDTH_MAX {
            file.push('\n');
            columns = 0;
        }
        if columns == 0 {
            file.push('#');
            columns = 1;
        }
        let _ = write!(file, " {word}");
        columns += 1 + word.chars().count();
    }
    file.push('\n');
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::file::parse;
    use super::*;
    use shunt_proxy::config::Config;

    #[test]
    fn the_file_changes_nothing() {
        let mut config = Config::default();
        let read = parse(&file(), &mut config);
        assert!(read.errors.is_empty() && read.places.is_empty(), "{:?}", read.errors);
        let changed = OPTIONS.iter().find(|option| option.is_changed(&config, &Config::default()));
        assert!(changed.is_none());
    }

    /// An operator removes the mark of any line with a default and gets what was in force before.
    #[test]
    fn each_default_in_the_file_is_the_default() {
        let text = file();
        for option in OPTIONS {
            let DefaultText::Value(_) = option.default else { continue };
            let start = format!("#{} = ", option.key);
            let line = text.lines().find(|line| line.starts_with(&start)).unwrap();
            let mut config = Config::default();
            let read = parse(&line[1..], &mut config);
            assert!(read.errors.is_empty(), "{line}: {:?}", read.errors);
            assert!(!option.is_changed(&config, &Config::default()), "{line}");
        }
    }

    #[test]
    fn each_option_is_there_once_and_no_line_is_too_long() {
        let text = file();
        for option in OPTIONS {
            let starts = [format!("#{} = ", option.key), format!("#[[{}]]", option.key)];
            let count =
                text.lines().filter(|line| starts.iter().any(|start| line.starts_with(start)));
            assert_eq!(count.count(), 1, "{}", option.key);
        }
        let long = text.lines().find(|line| line.starts_with("# ") && line.len() > WIDTH_MAX + 20);
        assert_eq!(long, None);
    }
}
