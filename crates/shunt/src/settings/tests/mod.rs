//! Every option works in the file and as a flag and means the same in both.

use std::path::PathBuf;

use clap::Parser;
use shunt_proxy::config::{Allowed, Config, ConfigOption, OPTIONS};

use super::example::{example, in_file};
use super::*;

mod manual;

/// A command line of settings alone.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    settings: Settings,
}

/// Returns a value other than the default.
fn other_than_default(option: &ConfigOption) -> String {
    match option.allowed {
        // Some defaults are the lowest or the highest value, but none is the highest but one.
        Allowed::Numbers(_, highest) => (highest - 1).to_string(),
        _ => example(option),
    }
}

/// A file of this test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("shunt-settings-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("write");
        Self(path)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load(arguments: &[String]) -> Result<Config, SettingsError> {
    let line = std::iter::once("shunt".to_owned()).chain(arguments.iter().cloned());
    Line::try_parse_from(line).expect("arguments").settings.load()
}

fn needs_fleet(key: &str) -> bool {
    ["locks_http", "transaction_commit"].contains(&key)
        || key.starts_with("lock_")
        || key.starts_with("fleet_")
}

/// Other options without which this one is refused, whatever its value.
fn needed(key: &str) -> Vec<String> {
    let line: &[&str] = match key {
        "handover" => &["--handover-key-file=key"],
        "handover_key_file" => &["--handover=auto"],
        _ if key.starts_with("handover_") => &["--handover=auto", "--handover-key-file=key"],
        "multiget_keys_max" => &["--multiget=split"],
        "tls" => &["--tls-certificate=tls.crt", "--tls-key=tls.key"],
        "node_tls_certificate" => &["--node-tls-key=tls.key"],
        "node_tls_key" => &["--node-tls-certificate=tls.crt"],
        "admin_tls_certificate" => &["--admin-tls-key=tls.key"],
        "admin_tls_key" => &["--admin-tls-certificate=tls.crt"],
        "admin_tls_client_ca" => &["--admin-tls-certificate=tls.crt", "--admin-tls-key=tls.key"],
        "unix_mode" | "unix_owner" => &["--listen=127.0.0.1:9042,unix:/run/shunt/cql.sock"],
        "client_backlog_bytes" => &["--clients-bytes-max=8GiB"],
        "otlp_headers_file" | "otlp_ca" | "otlp_service_name" => {
            &["--otlp-endpoint=https://192.0.2.9:4318"]
        }
        "fleet_tls" => {
            &["--fleet=main", "--tls=optional", "--tls-certificate=tls.crt", "--tls-key=tls.key"]
        }
        _ if needs_fleet(key) || key.starts_with("locks_http_tls") => &["--fleet=main"],
        _ => &[],
    };
    let mut line: Vec<_> = line.iter().map(ToString::to_string).collect();
    if let Some(rest) = key.strip_prefix("locks_http_tls") {
        line.push("--locks-http=127.0.0.1:9190".to_owned());
        for (part, file) in [("certificate", "tls.crt"), ("key", "tls.key")] {
            if !rest.is_empty() && rest != format!("_{part}") {
                line.push(format!("--locks-http-tls-{part}={file}"));
            }
        }
    }
    line
}

/// True for an option that is refused without another one, which is refused without it.
fn is_one_of_a_pair(key: &str) -> bool {
    let stem = key.strip_suffix("_certificate").or(key.strip_suffix("_key"));
    stem.is_some_and(|stem| ["admin_tls", "locks_http_tls"].contains(&stem))
}

/// Other options that a valid configuration with this one needs.
fn companions(key: &str) -> Vec<String> {
    let mut line = needed(key);
    if key != "contact_points" {
        line.push("--contact-points=192.0.2.7".to_owned());
    }
    match key {
        "username" => line.push("--password=p".to_owned()),
        "password" | "password_file" => line.push("--username=u".to_owned()),
        _ => {}
    }
    line
}

#[test]
fn every_option_is_a_flag_and_a_key_and_means_the_same() {
    let password = Scratch::new("secret", "from-file\n");
    let path = password.path();
    for option in OPTIONS.iter().filter(|option| option.is_flag()) {
        let key = option.key;
        let flag_value =
            if key == "password_file" { path.clone() } else { other_than_default(option) };
        let file_value = in_file(option, &flag_value);
        let base = companions(key);
        let mut plain = vec!["--contact-points=192.0.2.7".to_owned()];
        // A companion option, not a part of the same value.
        match key {
            "handover" => {}
            _ if is_one_of_a_pair(key) && key.starts_with("locks") => {
                plain.extend(needed("locks_http_tls"))
            }
            _ if is_one_of_a_pair(key) => {}
            "handover_key_file" => plain.extend(needed("handover_name")),
            _ => plain.extend(needed(key)),
        }
        let plain = load(&plain).expect("plain");

        let flag = format!("--{}={flag_value}", flag(key));
        let by_flag = load(&[base.clone(), vec![flag]].concat()).expect(key);
        let file = Scratch::new(key, &format!("{key} = {file_value}\n"));
        let by_file = load(&[base, vec![format!("--config={}", file.path())]].concat()).expect(key);

        assert_eq!(by_flag.reloaded(&by_file).changed, Vec::<&str>::new(), "{key}");
        assert_eq!(by_flag.reloaded(&by_file).waiting, Vec::<&str>::new(), "{key}");
        let difference = plain.reloaded(&by_flag);
        // Hand-over needs a key, and a certificate too.
        let parts = if key == "handover" || is_one_of_a_pair(key) { 2 } else { 1 };
        assert_eq!(
            difference.changed.len() + difference.waiting.len(),
            parts,
            "{key}: {difference:?}"
        );
        assert_eq!(format!("{by_flag:?}"), format!("{by_file:?}"), "{key}");
    }
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
    let file = Scratch::new(
        "precedence",
        "contact_points = [\"a\"]\nclients_max = 5\nlinks_per_node = 2\n",
    );
    let config =
        load(&[format!("--config={}", file.path()), "--clients-max=7".to_owned()]).expect("valid");
    assert_eq!((config.clients_max, config.links_per_node, config.in_flight_max), (7, 2, 16_384));
}

#[test]
fn problems_say_where_the_value_came_from() {
    let file = Scratch::new("problems", "\ncores = 0\n");
    let error = load(&[format!("--config={}", file.path()), "--clients-max=0".to_owned()])
        .expect_err("invalid");
    let text = error.to_string();
    assert!(text.contains(&format!("{}:2:1: `cores`: 0 is out of range", file.path())), "{text}");
    assert!(text.contains("--clients-max: 0 is out of range"), "{text}");
    assert!(text.contains("`contact_points` (--contact-points): no contact point"), "{text}");
}

/// A file and a command line with one fault of each kind.
#[test]
fn all_errors_are_reported_together_with_their_places() {
    let text = "contact_points = \"10.0.0.1\"\nlisten = [\"nowhere:0:0\"]\nquery_timeout_ms = \"12 parsecs\"\nlog = \"inof\"\n\
                frobnicate = 1\nclients_byte_max = 5\nlinks_per_node = 99\nauth_cache_ms = 12s\n";
    let file = Scratch::new("everything", text);
    let flags = ["--cores=two", "--drain-timeout-ms=-3s", "--clients-max=0", "--aggregate=maybe"]
        .map(str::to_owned);
    let error = load(&[&[format!("--config={}", file.path())], &flags[..]].concat())
        .expect_err("invalid")
        .to_string();
    let path = file.path();
    let expected = [
        format!("error: {path}:1:18: `contact_points`: expected a list in square brackets, each of it text in quotes, found `10.0.0.1`"),
        format!("error: {path}:2:10: `listen`: `nowhere:0:0` has `0:0` instead of a port from 1 to 65535"),
        format!("error: {path}:3:20: `query_timeout_ms`: expected a time such as `12s`, `500ms` or `1h`, or a number of milliseconds, found `12 parsecs`"),
        format!("error: {path}:5:1: unknown key `frobnicate`; `shunt proxy --help` lists all"),
        format!("error: {path}:6:1: unknown key `clients_byte_max`; did you mean `clients_bytes_max`?"),
        format!("error: {path}:8:"),
        "error: --cores: expected a whole number from 1, found `two`".to_owned(),
        "error: --aggregate: expected \"auto\" or \"off\", found `maybe`".to_owned(),
        "error: --drain-timeout-ms: expected a time such as `12s`, `500ms` or `1h`, or a number of milliseconds, found `-3s`".to_owned(),
        "error: --clients-max: 0 is out of range; allowed are 1 to 10000000".to_owned(),
        format!("error: {path}:7:1: `links_per_node`: 99 is out of range; allowed are 1 to 64"),
        format!("error: {path}:4:1: `log`: `inof` is no level"),
    ];
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{error}");
    for (line, expected) in lines.iter().zip(&expected) {
        assert!(line.starts_with(expected), "{line}\nis not\n{expected}");
    }
}

/// Without a fleet, such options would be accepted but have no effect. A file may have all keys
/// with their defaults.
#[test]
fn options_of_a_fleet_are_refused_without_one() {
    let file = Scratch::new(
        "no-fleet",
        "contact_points = [\"a\"]\nlock_wait_max_ms = 1500\nlock_rows_kept_ms = 5000\n",
    );
    let flags = ["--fleet-replicas-min=1", "--fleet-state=/run/shunt/fleet"].map(str::to_owned);
    let from_file = format!("--config={}", file.path());
    let error = load(&[std::slice::from_ref(&from_file), &flags[..]].concat())
        .expect_err("no fleet")
        .to_string();
    let remedy = |key: &str| {
        format!(
            "only a proxy of a fleet has locks and transactions: set fleet to the fleet's name, \
            or remove {key}"
        )
    };
    let expected = [
        format!("error: --fleet-replicas-min: {}", remedy("fleet_replicas_min")),
        format!("error: --fleet-state: {}", remedy("fleet_state")),
        format!("error: {}:3:1: `lock_rows_kept_ms`: {}", file.path(), remedy("lock_rows_kept_ms")),
    ];
    assert_eq!(error.lines().collect::<Vec<_>>(), expected);
    load(&[&[from_file, "--fleet=main".to_owned()], &flags[..]].concat())
        .expect("with one it is valid");
}

/// In this case it is unknown whether a fleet is configured.
#[test]
fn a_fleet_that_cannot_be_read_is_not_called_missing() {
    let text = "contact_points = [\"a\"]\nfleet = 5\nlock_rows_kept_ms = 5000\n";
    let file = Scratch::new("unreadable-fleet", text);
    for (path, says) in
        [(file.path(), "`fleet`"), ("/nowhere/shunt.toml".to_owned(), "cannot be read")]
    {
        let error = load(&[format!("--config={path}"), "--lock-wait-max-ms=5000".to_owned()])
            .expect_err("no text");
        let error = error.to_string();
        assert!(error.lines().count() == 1 && error.contains(says), "{error}");
    }
}

#[test]
fn an_unreadable_option_is_not_called_missing() {
    for text in [
        "contact_pionts = [\"a\"]",
        "contact_points = 5",
        "contact_points = [\"a\"\ncores = 2",
        "= 3",
    ] {
        let file = Scratch::new("unknown", text);
        let error = load(&[format!("--config={}", file.path())]).expect_err("invalid").to_string();
        assert!(!error.contains("no contact point"), "{error}");
    }
    let error = load(&["--config=/nowhere/shunt.toml".to_owned(), "--cores=0".to_owned()])
        .expect_err("invalid");
    let error = error.to_string();
    assert!(
        error.contains("cannot be read") && error.contains("--cores: 0 is out of range"),
        "{error}"
    );
    assert!(!error.contains("no contact point"), "{error}");
}

#[test]
fn times_and_sizes_have_units_in_the_file_and_as_flags() {
    let file = Scratch::new(
        "units",
        "contact_points = [\"a\"]\nquery_timeout_ms = \"15s\"\nframe_bytes_max = \"16MiB\"\n",
    );
    let flags = [
        "--connect-timeout-ms=1500ms",
        "--gather-us=1ms",
        "--window-us=50us",
        "--clients-bytes-max=1.5GiB",
    ];
    let flags = flags.map(str::to_owned);
    let config =
        load(&[&[format!("--config={}", file.path())], &flags[..]].concat()).expect("valid");
    assert_eq!(
        (config.query_timeout_ms, config.connect_timeout_ms, config.gather_us),
        (15_000, 1_500, 1_000)
    );
    assert_eq!(config.window_us, shunt_proxy::config::Window::Fixed { us: 50 });
    assert_eq!((config.frame_bytes_max, config.clients_bytes_max), (16 << 20, 3 << 29));
}

#[test]
fn a_missing_file_and_half_a_login_are_named() {
    let error =
        load(&["--config=/nowhere/shunt.toml".to_owned()]).expect_err("invalid").to_string();
    assert!(error.starts_with("error: /nowhere/shunt.toml: cannot be read"), "{error}");
    let error = load(&["--contact-points=a".to_owned(), "--username=u".to_owned()])
        .expect_err("invalid")
        .to_string();
    assert_eq!(error, "error: --username: has no password; give `password_file`\n");
}

#[test]
fn a_password_shows_nowhere() {
    let config =
        load(&["--contact-points=a", "--username=u", "--password=hunter2"].map(str::to_owned))
            .expect("valid");
    assert!(!format!("{config:?}").contains("hunter2"));
    let file = Scratch::new(
        "unquoted",
        "contact_points = [\"a\"]\nusername = \"u\"\npassword = 48151623\n",
    );
    let error = load(&[format!("--config={}", file.path())]).expect_err("no text").to_string();
    assert!(
        error.contains(":3:12: `password`: must be text in quotes") && !error.contains("48151623"),
        "{error}"
    );
}
