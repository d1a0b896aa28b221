//! Changes of single options while the proxy runs, as an operator asks for them at the admin
//! address.
//!
//! A value holds until the next successful reload, which reads flags and file again, or until the
//! end of the process. The change must never do the following; the tests below cover all but the
//! third:
//! - *Put a configuration into force that a reload would refuse.* The same checks apply to it.
//! - *Change a part of what belongs together.* The role and the password of the proxy's own login,
//!   and options that wait for a switch or a fleet, are refused.
//! - *Depend on what it does not change.* The level of the log must change even if a password
//!   cannot be read, or the ring has lost its datacentre: nothing here reads the files of
//!   identities, only a new value reads files of TLS, and only `local_datacentre` asks the ring.
//! - *Trust a local process as much as the configuration file.* Any user of the host can run one.
//!   Without tokens, the options that decide whom the proxy trusts and what it shows are refused.

use std::time::Instant;

use serde_json::json;
use shunt_proxy::admin::ChangeResult;
use shunt_proxy::config::{Change, Config, ConfigOption, OPTIONS, Problem};
use shunt_proxy::limits::{NAME_SHOWN_BYTES_MAX, REASON_SHOWN_BYTES_MAX};
use shunt_wire::printable::printable_to;
use tracing::{info, warn};

use super::ProxyPart;
use crate::logging;

/// Options that send clients' logins and queries elsewhere, or show values of queries.
const TRUST: [&str; 4] = ["contact_points", "node_port", "advertise", "log_values"];

/// Beginnings of options that decide about certificates, or send spans and a file of headers away.
const TRUST_BEGINNINGS: [&str; 5] = ["tls_", "node_tls_", "fleet_tls_", "handover_tls_", "otlp_"];

/// Kind of the lines about options that stay as they are.
const REFUSED: &str = "refused";

/// Options of the proxy's own login, which change together.
const LOGIN: [&str; 3] = ["username", "password", "password_file"];

impl ProxyPart {
    /// Gives an option this value; without one, that of flags and file. Returns the outcome.
    pub(super) fn set_option(&mut self, name: &str, value: Option<&str>) -> ChangeResult {
        let outcome = self.change_option(name, value);
        outcome.map_err(|problems| {
            let first = problems.first().map_or("the change was refused", String::as_str);
            if let Some(suppressed) = self.refusals.admit(REFUSED, Instant::now()) {
                // Both may have what the sender wrote, and a process may ask as often as it likes.
                let key = printable_to(name, NAME_SHOWN_BYTES_MAX);
                let why = printable_to(first, REASON_SHOWN_BYTES_MAX);
                warn!(key, why, suppressed, "the option stays as it is");
            }
            json!({ "error": first, "problems": problems })
        })
    }

    /// Logs the number of refusals that have no line.
    pub(super) fn tell_left_out_refusals(&self) {
        for (_, suppressed) in self.refusals.overdue(Instant::now()) {
            warn!(suppressed, "more changes of options were refused");
        }
    }

    fn change_option(
        &mut self,
        name: &str,
        value: Option<&str>,
    ) -> Result<serde_json::Value, Vec<String>> {
        let refused = |why: &str| vec![why.to_owned()];
        // The log may have to say why a drain takes long.
        if self.acceptor.is_none() && name != "log" {
            return Err(refused("the proxy is ending"));
        }
        let option = changeable(name).map_err(|why| vec![why])?;
        let wanted = self.pages.wanted_settings().filter(|_| self.reload.is_some());
        let Some(wanted) = wanted else {
            return Err(refused(
                "the options of this process are fixed: it reads no configuration",
            ));
        };
        let before = Config::clone(&self.config.borrow());
        if before.admin_token_file.is_none() && needs_token(name) {
            return Err(vec![format!(
                "`{name}` decides whom the proxy trusts, and without `admin_token_file` every \
                process of this host may ask for this change: change it in the configuration \
                file, and run `shunt reload`"
            )]);
        }
        let mut new = before.clone();
        match value {
            None => option.copy(&wanted, &mut new),
            Some(value) => {
                let faults = option.read_text(&mut new, value);
                if !faults.is_empty() {
                    return Err(faults.iter().map(|why| format!("`{name}`: {why}")).collect());
                }
            }
        }
        let (old, shown) = ((option.text)(&before), (option.text)(&new));
        let is_changed = option.is_changed(&before, &new);
        if is_changed {
            check(&before, &new, name)?;
            if name == "local_datacentre" {
                let datacentre = new.local_datacentre.as_deref();
                self.pages.has_datacentre(datacentre).map_err(|why| vec![why])?;
            }
            let files = self.prepare_files(&new)?;
            let Some(reload) = self.reload.take() else { return Err(refused("no reload")) };
            let (old, new_text) = (old.as_deref(), shown.as_deref());
            info!(key = name, old, new = new_text, "an operator has changed an option");
            self.put_into_force(&reload.filter, files, new);
            self.reload = Some(reload);
        }
        if is_changed || value.is_none() {
            self.pages.set_by_request(option.key, value.is_some());
        }
        Ok(json!({ "name": name, "value": shown, "old": old, "changed": is_changed }))
    }
}

/// True of an option that only an operator with a token may change.
fn needs_token(name: &str) -> bool {
    TRUST.contains(&name) || TRUST_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// The option of this name, if it can change on its own while the proxy runs.
fn changeable(name: &str) -> Result<&'static ConfigOption, String> {
    let option = OPTIONS.iter().find(|option| option.key == name);
    let option = option
        .ok_or_else(|| format!("there is no option `{name}`; `shunt config` lists all options"))?;
    if option.change != Change::OnReload {
        return Err(format!(
            "`{name}` needs a restart: change it in the configuration file, and restart the proxy"
        ));
    }
    if LOGIN.contains(&option.key) {
        return Err(format!(
            "`{name}` is a part of the proxy's login, which changes as a whole: change it in the \
            configuration file, and run `shunt reload`"
        ));
    }
    if !option.is_flag() {
        return Err(format!(
            "`{name}` is a table of the configuration file: change it there, and run `shunt reload`"
        ));
    }
    Ok(option)
}

/// Checks a configuration that differs from the present one in one option.
fn check(before: &Config, new: &Config, name: &str) -> Result<(), Vec<String>> {
    if !before.reloaded(new).waiting.is_empty() {
        return Err(vec![format!(
            "`{name}` needs a restart here, because of the fleet or of a TLS option that waits: \
            change it in the configuration file, and restart the proxy"
        )]);
    }
    let level = logging::filter(&new.log).err().map(|message| Problem { key: "log", message });
    let problems: Vec<String> = new
        .problems()
        .into_iter()
        .chain(level)
        .map(|Problem { key, message }| format!("`{key}`: {message}"))
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use shunt_proxy::admin::SourceMap;
    use shunt_proxy::config::Config;

    use super::super::tests::{config, end, started};
    use super::super::{ProxyPart, Reload};
    use crate::logging::FilterHandle;
    use crate::logging::tests::text_of;

    /// A part whose file has 900 clients at most.
    fn with_file() -> ProxyPart {
        let mut part = started();
        let load = || Ok((Config { clients_max: 900, ..config() }, SourceMap::default()));
        let (sources, filter) = (SourceMap::default(), FilterHandle::detached());
        part.reload = Some(Reload { load: Box::new(load), sources, filter });
        part.pages.set_settings(Arc::clone(&part.config.borrow()), SourceMap::default());
        assert!(part.reload_for_operator().is_ok());
        part
    }

    fn clients_max(part: &ProxyPart) -> usize {
        part.config.borrow().clients_max
    }

    fn error(outcome: Result<Value, Value>) -> String {
        outcome.unwrap_err()["error"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_value_holds_until_a_reload_or_until_it_is_given_back() {
        let mut part = with_file();
        let outcome = part.set_option("clients_max", Some("7")).unwrap();
        let expected =
            json!({ "name": "clients_max", "value": "7", "old": "900", "changed": true });
        assert_eq!((outcome, clients_max(&part)), (expected, 7));
        assert!(part.set_option("query_timeout_ms", Some("2s")).is_ok());
        assert_eq!(part.config.borrow().query_timeout_ms, 2_000);
        assert_eq!(part.set_option("clients_max", None).unwrap()["value"], "900");
        assert_eq!((clients_max(&part), part.config.borrow().query_timeout_ms), (900, 2_000));
        let same = part.set_option("clients_max", Some("900")).unwrap();
        assert_eq!(same["changed"], false);
        assert!(part.set_option("clients_max", Some("8")).is_ok());
        assert!(part.set_option("log", Some("debug")).is_ok());
        let reloaded = part.reload_for_operator().unwrap();
        assert_eq!(reloaded["applied"], json!(["query_timeout_ms", "clients_max", "log"]));
        assert_eq!(clients_max(&part), 900);
        assert_eq!(end(&mut part), []);
        assert!(error(part.set_option("clients_max", Some("7"))).contains("ending"));
        assert!(part.set_option("log", Some("debug")).is_ok());
    }

    #[test]
    fn a_value_that_a_reload_would_refuse_changes_nothing() {
        let mut part = with_file();
        for (name, value, why) in [
            ("clients_max", Some("many"), "expected a whole number"),
            ("clients_max", Some("0"), "clients_max"),
            ("clients_max", Some(""), "clients_max"),
            ("log", Some("loud"), "no level"),
            ("contact_points", Some(""), "contact_points"),
            ("cores", Some("2"), "needs a restart"),
            ("cores", None, "needs a restart"),
            ("password", Some("secret"), "login"),
            ("identity", Some("a"), "table"),
            ("client_max", Some("7"), "no option"),
        ] {
            let said = error(part.set_option(name, value));
            assert!(said.contains(why), "{name} {value:?}: {said}");
        }
        assert_eq!(clients_max(&part), 900);
        part.reload = None;
        assert!(error(part.set_option("log", Some("debug"))).contains("fixed"));
        assert_eq!(end(&mut part), []);
    }

    /// A process of this host may ask for changes of what it likes, as often as it likes.
    #[test]
    fn refusals_write_few_and_short_lines() {
        let mut part = with_file();
        let (name, value) = ("client\n".repeat(2_000), "v\"\u{1b}".repeat(5_000));
        let begun = std::time::Instant::now();
        let log = text_of(|| {
            for _ in 0..300 {
                assert!(error(part.set_option(&name, Some("7"))).contains("no option"));
                assert!(part.set_option("clients_max", Some(&value)).is_err());
                assert!(part.set_option("cores", Some(&value)).is_err());
            }
        });
        let lines_max = 1 + begun.elapsed().as_secs() as usize;
        let lines = log.lines().filter(|line| line.contains("stays as it is"));
        assert!((1..=lines_max).contains(&lines.count()), "{log}");
        assert!(log.lines().all(|line| line.len() < 1_024), "{log}");
        assert_eq!(end(&mut part), []);
    }

    /// Otherwise any process of this host could lead the clients' logins to a node of its own.
    #[test]
    fn whom_the_proxy_trusts_is_changed_by_an_operator_with_a_token_alone() {
        let mut part = with_file();
        let options = [
            ("contact_points", "192.0.2.1"),
            ("advertise", "192.0.2.1"),
            ("node_tls_verify", "none"),
            ("tls_client_auth", "none"),
            ("otlp_endpoint", "http://192.0.2.1:4318"),
            ("log_values", "on"),
        ];
        for (name, value) in options {
            let said = error(part.set_option(name, Some(value)));
            assert!(said.contains("admin_token_file"), "{name}: {said}");
        }
        part.config.send_modify(|config| {
            let (admin, admin_token_file) =
                (Config::default().admin, Some("/etc/shunt/token".into()));
            *config = Arc::new(Config { admin, admin_token_file, ..Config::clone(config) });
        });
        assert!(part.set_option("contact_points", Some("127.0.0.1:2")).is_ok());
        assert!(part.set_option("log_values", Some("on")).is_ok());
        assert_eq!(end(&mut part), []);
    }

    #[test]
    fn a_core_that_takes_no_mail_has_one_configuration_waiting() {
        let mut part = with_file();
        let (mailer, _inbox) = shunt_reactor::mailbox(1).unwrap();
        part.mailers.push(mailer);
        for clients_max in 1..100 {
            assert!(part.set_option("clients_max", Some(&clients_max.to_string())).is_ok());
        }
        assert!(part.waiting.len() <= part.mailers.len(), "{}", part.waiting.len());
        assert_eq!(end(&mut part), []);
    }
}
