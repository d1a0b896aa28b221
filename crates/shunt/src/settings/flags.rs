//! The proxy's options on the command line: a flag for each of [`OPTIONS`], with `-` for `_`.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use shunt_proxy::config::{ConfigOption, DefaultText, OPTIONS, Written};

/// The flags that were given, each with its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags(pub(super) Vec<(&'static ConfigOption, Written)>);

impl Flags {
    /// Returns the keys of the given flags.
    pub(super) fn keys(&self) -> Vec<&'static str> {
        self.0.iter().map(|(option, _)| option.key).collect()
    }
}

/// Returns an option's flag, without `--`.
pub(super) fn flag(key: &str) -> String {
    key.replace('_', "-")
}

fn argument(option: &ConfigOption) -> Arg {
    let help = match option.default {
        DefaultText::Words("") => option.help.to_owned(),
        DefaultText::Value(default) | DefaultText::Words(default) => {
            format!("{} [default: {default}]", option.help)
        }
    };
    let argument = Arg::new(option.key)
        .long(flag(option.key))
        .value_name(option.value_name)
        .help(help)
        .help_heading(option.section)
        .action(ArgAction::Set);
    if option.is_list { argument.action(ArgAction::Append).value_delimiter(',') } else { argument }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let flags = OPTIONS.iter().filter(|option| option.is_flag());
        flags.fold(command, |command, option| command.arg(argument(option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |option: &'static ConfigOption| {
            let mut texts = matches.get_many::<String>(option.key)?.cloned().map(Written::Text);
            let written =
                if option.is_list { Written::List(texts.collect()) } else { texts.next()? };
            Some((option, written))
        };
        let flags = OPTIONS.iter().filter(|option| option.is_flag());
        Ok(Self(flags.filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
