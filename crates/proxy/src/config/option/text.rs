//! Values of options as text, in the form in which a file or a flag gives them.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;

use shunt_otlp::Endpoint;
use shunt_reactor::IoChoice;
use shunt_tls::{ClientAuth, Verify};

use crate::config::address::{AdminAddress, HttpAddress, Listen, Listeners};
use crate::config::network::Network;
use crate::config::rule::RuleList;
use crate::config::tenant::TenantList;
use crate::config::unix::{ListenAddress, Mode, Owner};
use crate::config::values::{
    Aggregate, Commit, Handover, Hedge, LogFormat, Multiget, Secret, Switch, Tls, Window,
};

/// The text of secrets.
const HIDDEN: &str = "***";

/// A value that has a text.
pub(in crate::config) trait AsText {
    /// The value as an operator would write it; `None` if there is none.
    fn as_text(&self) -> Option<String>;
}

macro_rules! displayed {
    ($($kind:ty),+) => {
        $(impl AsText for $kind {
            fn as_text(&self) -> Option<String> {
                Some(self.to_string())
            }
        })+
    };
}

/// Types whose values are words, named as their variants.
macro_rules! worded {
    ($($kind:ty),+) => {
        $(impl AsText for $kind {
            fn as_text(&self) -> Option<String> {
                Some(word(self))
            }
        })+
    };
}

displayed!(u16, u32, u64, usize, String, SocketAddr, IoChoice, ClientAuth, Verify, Endpoint);
worded!(Aggregate, Commit, Handover, LogFormat, Multiget, Switch, Tls);

fn word(value: &impl Debug) -> String {
    format!("{value:?}").to_ascii_lowercase()
}

impl AsText for PathBuf {
    fn as_text(&self) -> Option<String> {
        Some(self.display().to_string())
    }
}

impl AsText for Secret {
    fn as_text(&self) -> Option<String> {
        Some(HIDDEN.to_owned())
    }
}

impl AsText for Window {
    fn as_text(&self) -> Option<String> {
        match self {
            Self::Auto => Some("auto".to_owned()),
            Self::Fixed { us } => Some(us.to_string()),
        }
    }
}

impl AsText for Hedge {
    fn as_text(&self) -> Option<String> {
        match self {
            Self::Off | Self::P99 => Some(word(self)),
            Self::After { ms } => Some(format!("{ms}ms")),
        }
    }
}

impl AsText for HttpAddress {
    fn as_text(&self) -> Option<String> {
        let names = self.names.iter().map(|name| format!(",{name}"));
        Some(format!("{}{}", self.listen, names.collect::<String>()))
    }
}

impl AsText for AdminAddress {
    fn as_text(&self) -> Option<String> {
        let unix = self.unix.as_ref().map(|path| format!("unix:{}", path.display()));
        list(self.http.as_ref().and_then(AsText::as_text).into_iter().chain(unix))
    }
}

impl AsText for TenantList {
    fn as_text(&self) -> Option<String> {
        self.text()
    }
}

impl AsText for RuleList {
    fn as_text(&self) -> Option<String> {
        self.text()
    }
}

impl AsText for Listeners {
    fn as_text(&self) -> Option<String> {
        let paths = self.unix.iter().map(|path| format!("unix:{}", path.display()));
        list(self.tcp.iter().map(ToString::to_string).chain(paths))
    }
}

impl AsText for ListenAddress {
    fn as_text(&self) -> Option<String> {
        Some(match self {
            Self::Tcp(Listen(address)) => address.to_string(),
            Self::Unix(path) => format!("unix:{}", path.display()),
        })
    }
}

impl AsText for Mode {
    fn as_text(&self) -> Option<String> {
        Some(format!("{:04o}", self.0))
    }
}

impl AsText for Owner {
    fn as_text(&self) -> Option<String> {
        match (self.user.as_deref(), self.group.as_deref()) {
            (None, None) => None,
            (user, None) => user.map(str::to_owned),
            (user, Some(group)) => Some(format!("{}:{group}", user.unwrap_or_default())),
        }
    }
}

impl AsText for Network {
    fn as_text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl<T: AsText> AsText for Option<T> {
    fn as_text(&self) -> Option<String> {
        self.as_ref().and_then(AsText::as_text)
    }
}

impl<T: AsText> AsText for Vec<T> {
    fn as_text(&self) -> Option<String> {
        list(self.iter().filter_map(AsText::as_text))
    }
}

fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| items.join(","))
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, DefaultText, OPTIONS, Secret, Written};

    #[test]
    fn the_default_of_each_option_has_the_text_of_the_manual() {
        let config = Config::default();
        for option in OPTIONS {
            let DefaultText::Value(text) = option.default else { continue };
            let shown = (option.text)(&config).unwrap_or_else(|| "off".to_owned());
            assert_eq!(shown, text, "{}", option.key);
        }
    }

    #[test]
    fn a_value_that_is_read_has_its_own_text() {
        for (key, text) in [
            ("listen", "127.0.0.2:9142,unix:/run/shunt/cql.sock"),
            ("unix_owner", ":apps"),
            ("admin", "10.0.9.1:9180,proxy.example"),
            ("proxy_protocol_from", "10.0.8.7,10.0.8.128/25"),
            ("tls", "required"),
            ("cores", "3"),
        ] {
            let option = OPTIONS.iter().find(|option| option.key == key).expect("an option");
            let mut config = Config::default();
            let mut parts: Vec<Written> = vec![Written::Text(text.to_owned())];
            if option.is_list {
                parts = text.split(',').map(|part| Written::Text(part.to_owned())).collect();
            }
            let written = if option.is_list { Written::List(parts) } else { parts.remove(0) };
            assert!(option.read(&mut config, &written).is_empty(), "{key}");
            assert_eq!((option.text)(&config).as_deref(), Some(text));
        }
    }

    #[test]
    fn secrets_have_no_text_of_their_own() {
        let config = Config { password: Some(Secret::new("hunter2")), ..Config::default() };
        let texts: Vec<String> = OPTIONS.iter().filter_map(|o| (o.text)(&config)).collect();
        assert!(texts.contains(&"***".to_owned()) && !texts.join(" ").contains("hunter2"));
    }
}
