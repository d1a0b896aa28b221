//! Properties of options: the command line, the file, the checks, the reload and the table of
//! `docs/configuration.md` all use [`OPTIONS`], which the macro here makes of the list in
//! `config/options.rs`.

mod text;

use std::path::PathBuf;

use shunt_reactor::IoChoice;
use shunt_tls::{ClientAuth, Verify};

use super::address::Listeners;
use super::kinds::{Readable, Written};
use super::options::{Config, OPTIONS};
use super::rule::RuleList;
use super::tenant::TenantList;
use super::unix::{Mode, Owner};
use super::values::{
    Aggregate, Commit, Credentials, Handover, Hedge, LogFormat, Multiget, Secret, Switch, Tls,
    Window,
};
pub(super) use text::AsText;

/// An option of the proxy.
#[derive(Debug)]
pub struct ConfigOption {
    /// Name of the field of [`Config`] and key of the file; the flag has `-` for `_`.
    pub key: &'static str,
    /// Heading of the help under which it stands.
    pub section: &'static str,
    /// Placeholder of the value in the help.
    pub value_name: &'static str,
    /// Purpose, as the help shows it.
    pub help: &'static str,
    /// Value of an option that is not given.
    pub default: DefaultText,
    /// The values that may be given.
    pub allowed: Allowed,
    /// Time at which a changed value takes effect.
    pub change: Change,
    /// Text of the manual beyond the help, in Markdown; may be empty.
    pub manual: &'static str,
    /// True if a flag has commas between its parts, and the file a list.
    pub is_list: bool,
    /// The value of a configuration, as an operator would write it; secrets are hidden. `None` if
    /// there is none.
    pub text: fn(&Config) -> Option<String>,
    pub(super) read: fn(&mut Config, &Written) -> Vec<String>,
    pub(super) number: fn(&Config) -> Option<u64>,
    pub(super) differs: fn(&Config, &Config) -> bool,
    pub(super) copy: fn(&Config, &mut Config),
}

impl ConfigOption {
    /// Reads a value into its field; returns a message for each fault.
    pub fn read(&self, config: &mut Config, written: &Written) -> Vec<String> {
        (self.read)(config, written)
    }

    /// Reads a value as a flag gives it, with commas between the parts of a list; returns a message
    /// for each fault.
    pub fn read_text(&self, config: &mut Config, text: &str) -> Vec<String> {
        let part = |part: &str| Written::Text(part.trim().to_owned());
        let written = match self.is_list {
            true => Written::List(
                text.split(',').filter(|it| !it.trim().is_empty()).map(part).collect(),
            ),
            false => Written::Text(text.to_owned()),
        };
        self.read(config, &written)
    }

    /// Copies the value of one configuration into another.
    pub fn copy(&self, from: &Config, to: &mut Config) {
        (self.copy)(from, to);
    }

    /// True if two configurations differ in it.
    pub fn is_changed(&self, one: &Config, other: &Config) -> bool {
        (self.differs)(one, other)
    }

    /// True if the command line has a flag for it.
    pub fn is_flag(&self) -> bool {
        !matches!(self.allowed, Allowed::Tables(..))
    }
}

/// The default of an option, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultText {
    /// A value in the form of the option.
    Value(&'static str),
    /// A description of a value known only later; empty: none.
    Words(&'static str),
}

/// The values that an option may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A number from the first to the second, in the unit of the option's name.
    Numbers(u64, u64),
    /// A word, or a number from the second to the third.
    WordOr(&'static str, u64, u64),
    /// A description of the form, with an example other than the default.
    Form(&'static str, &'static str),
    /// Tables of the file, and no flag: a description of the form, and the lines of an example.
    Tables(&'static str, &'static [&'static str]),
}

/// Time at which a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// With a reload.
    OnReload,
    /// Only after a restart.
    AfterRestart,
}

/// Switches that wait for a restart. Until then the options that begin with their names wait too: a
/// switch and half of what belonged to it would serve nobody.
const SWITCHES: [&str; 4] = ["tls", "node_tls", "fleet_tls", "handover_tls"];

impl Config {
    /// Login of the control connection; clients always use their own.
    pub fn credentials(&self) -> Option<Credentials> {
        let (username, password) = self.username.clone().zip(self.password.clone())?;
        Some(Credentials { username, password })
    }

    /// True if an option belongs to a switch that `new` has in another position.
    fn waits_with_its_switch(&self, new: &Config, key: &str) -> bool {
        let is_its =
            |switch: &str| key.strip_prefix(switch).is_some_and(|rest| rest.starts_with('_'));
        OPTIONS.iter().any(|option| {
            SWITCHES.contains(&option.key) && is_its(option.key) && (option.differs)(self, new)
        })
    }

    /// True of an option that a proxy of a fleet keeps until a restart: a member has agreed with
    /// its fleet by this datacentre's nodes.
    fn waits_with_its_fleet(&self, key: &str) -> bool {
        self.fleet.is_some() && key == "local_datacentre"
    }

    /// Takes over `new` as far as a running proxy can: keys that only a restart can change keep
    /// their present value. Also names the changed keys, and those among them that wait for the
    /// restart.
    pub fn reloaded(&self, new: &Config) -> Reloaded {
        let mut config = new.clone();
        let (mut changed, mut waiting) = (Vec::new(), Vec::new());
        for option in OPTIONS.iter().filter(|option| (option.differs)(self, new)) {
            match option.change {
                Change::OnReload
                    if !self.waits_with_its_switch(new, option.key)
                        && !self.waits_with_its_fleet(option.key) =>
                {
                    changed.push(option.key);
                }
                _ => {
                    (option.copy)(self, &mut config);
                    waiting.push(option.key);
                }
            }
        }
        config.tenant.adopt(&self.tenant);
        config.rule.adopt(&self.rule);
        // The login counts as one, whichever of its options changed.
        changed.retain(|key| !["username", "password", "password_file"].contains(key));
        if self.credentials() != config.credentials() {
            changed.push("username");
        }
        Reloaded { config, changed, waiting }
    }
}

/// The result of [`Config::reloaded`].
#[derive(Debug)]
pub struct Reloaded {
    /// The configuration to go on with.
    pub config: Config,
    /// Keys whose new value takes effect now.
    pub changed: Vec<&'static str>,
    /// Keys whose new value needs a restart.
    pub waiting: Vec<&'static str>,
}

/// A field that may be a number, for the comparison with its range.
pub(super) trait MaybeNumber {
    fn number(&self) -> Option<u64> {
        None
    }
}

impl MaybeNumber for u16 {
    fn number(&self) -> Option<u64> {
        Some((*self).into())
    }
}

impl MaybeNumber for u32 {
    fn number(&self) -> Option<u64> {
        Some((*self).into())
    }
}

impl MaybeNumber for u64 {
    fn number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl MaybeNumber for usize {
    fn number(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl MaybeNumber for Window {
    fn number(&self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Fixed { us } => Some(*us),
        }
    }
}

impl MaybeNumber for String {}
impl MaybeNumber for IoChoice {}
impl MaybeNumber for Aggregate {}
impl MaybeNumber for Handover {}
impl MaybeNumber for Hedge {}
impl MaybeNumber for PathBuf {}
impl MaybeNumber for Multiget {}
impl MaybeNumber for LogFormat {}
impl MaybeNumber for Commit {}
impl MaybeNumber for Secret {}
impl MaybeNumber for Tls {}
impl MaybeNumber for ClientAuth {}
impl MaybeNumber for Switch {}
impl MaybeNumber for Verify {}
impl MaybeNumber for Listeners {}
impl MaybeNumber for Mode {}
impl MaybeNumber for Owner {}
impl MaybeNumber for TenantList {}
impl MaybeNumber for RuleList {}
impl<T> MaybeNumber for Option<T> {}
impl<T> MaybeNumber for Vec<T> {}

/// The default of a field, from the text in the list.
pub(super) fn default_value<K: Readable + Into<F>, F>(key: &str, text: &str) -> F {
    let mut faults = Vec::new();
    let written = Written::Text(text.to_owned());
    let written = if K::IS_LIST { Written::List(vec![written]) } else { written };
    let value = K::read(&written, &mut faults);
    value.unwrap_or_else(|| panic!("the default of {key} is not valid: {faults:?}")).into()
}

/// Turns the list of options into [`Config`] with a field for each, its defaults, and [`OPTIONS`].
// An option is its field, with its help text as comment, and
//   kind:     the reader of the value; for a unit, `Millis`, `Micros` or `Bytes`
//   value:    the placeholder of the value in the help
//   default:  its text in the form of a flag, or a value and its description
//   allowed:  `Numbers`, which are checked; or a form and an example
//   change:   `OnReload`, or `AfterRestart`: a reload keeps the old value and says so
//   manual:   text of docs/configuration.md beyond the help, if any
// `config/validate.rs` has the rules between options. After a change run
//   UPDATE_DOCS=1 cargo test -p shunt the_manual
macro_rules! options {
    ($( section $section:literal; $(
        $(#[doc = $help:literal])+
        $key:ident: $type:ty {
            kind: $kind:ty,
            value: $value_name:literal,
            default: $default:expr $(=> $words:literal)?,
            allowed: $allowed:expr,
            change: $change:ident,
            $(manual: $manual:literal,)?
        }
    )+ )+) => {
        /// Settings, one field for each option, validated by [`Config::problems`].
        #[derive(Clone, Debug)]
        pub struct Config {
            $($( $(#[doc = $help])+ pub $key: $type, )+)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($( $key: options!(@value $key, $kind, $default $(=> $words)?), )+)+ }
            }
        }

        /// The options of the proxy, in the order of the help.
        pub static OPTIONS: &[ConfigOption] = &[$($(
            ConfigOption {
                key: stringify!($key),
                section: $section,
                value_name: $value_name,
                help: concat!($($help),+).trim_ascii_start(),
                default: options!(@text $default $(=> $words)?),
                allowed: $allowed,
                change: Change::$change,
                manual: concat!("" $(, $manual)?),
                is_list: <$kind as Readable>::IS_LIST,
                read: |config, written| {
                    let mut faults = Vec::new();
                    if let Some(value) = <$kind as Readable>::read(written, &mut faults) {
                        config.$key = value.into();
                    }
                    faults
                },
                text: |config| config.$key.as_text(),
                number: |config| config.$key.number(),
                differs: |one, other| one.$key != other.$key,
                copy: |from, to| to.$key = from.$key.clone(),
            },
        )+)+];
    };
    (@value $key:ident, $kind:ty, $text:expr) => { default_value::<$kind, _>(stringify!($key), $text) };
    (@value $key:ident, $kind:ty, $value:expr => $words:literal) => { $value };
    (@text $text:expr) => { DefaultText::Value($text) };
    (@text $value:expr => $words:literal) => { DefaultText::Words($words) };
}

pub(super) use options;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_datacentre_of_a_fleets_proxy_waits_for_a_restart() {
        for fleet in [None, Some("main".to_owned())] {
            let of = |name: Option<&str>| Config {
                fleet: fleet.clone(),
                local_datacentre: name.map(str::to_owned),
                ..Config::default()
            };
            for (old, new) in [(Some("dc1"), Some("dc2")), (Some("dc1"), None), (None, Some("dc2"))]
            {
                let reloaded = of(old).reloaded(&of(new));
                let (lasts, waiting) = match fleet {
                    Some(_) => (old, vec!["local_datacentre"]),
                    None => (new, Vec::new()),
                };
                assert_eq!(reloaded.config.local_datacentre.as_deref(), lasts);
                assert_eq!(reloaded.waiting, waiting, "{fleet:?}: {old:?} to {new:?}");
            }
        }
    }
}
