//! Every option works in the file and as a flag and means the same in both.

use std::path::PathBuf;

use clap::Parser;
use shunt_proxy::config::Config;

use super::*;

/// A command line with nothing but the settings.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    settings: Settings,
}

/// Each key with a value that is not its default: as a flag and as TOML.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("listen", "127.0.0.2:9142,[::1]:9142", r#"["127.0.0.2:9142", "[::1]:9142"]"#),
    ("contact_points", "a,b:9043", r#"["a", "b:9043"]"#),
    ("admin", "127.0.0.1:9999", r#""127.0.0.1:9999""#),
    ("advertise", "192.0.2.1", r#""192.0.2.1""#),
    ("node_port", "9043", "9043"),
    ("local_datacentre", "dc9", r#""dc9""#),
    ("username", "role", r#""role""#),
    ("password", "secret", r#""secret""#),
    ("password_file", "@", "@"),
    ("refresh_interval_ms", "1001", "1001"),
    ("require_ring_ms", "1002", "1002"),
    ("cores", "9", "9"),
    ("io", "epoll", r#""epoll""#),
    ("window_us", "auto", r#""auto""#),
    ("gather_us", "250", "250"),
    ("aggregate", "off", r#""off""#),
    ("query_timeout_ms", "1003", "1003"),
    ("connect_timeout_ms", "1004", "1004"),
    ("drain_timeout_ms", "1005", "1005"),
    ("handshake_timeout_ms", "1006", "1006"),
    ("heartbeat_interval_ms", "1007", "1007"),
    ("auth_cache_ms", "1008", "1008"),
    ("clients_max", "1009", "1009"),
    ("links_per_node", "3", "3"),
    ("in_flight_max", "1010", "1010"),
    ("frame_bytes_max", "1000011", "1000011"),
    ("client_backlog_bytes", "1000012", "1000012"),
    ("clients_bytes_max", "100000013", "100000013"),
    ("log", "debug", r#""debug""#),
    ("log_format", "json", r#""json""#),
];

/// A file of this test run that goes away with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-settings-{}-{name}", std::process::id()));
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

/// Other options that this one needs to make a valid configuration.
fn companions(key: &str) -> Vec<String> {
    let mut line = Vec::new();
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
    let keys: Vec<&str> = EXAMPLES.iter().map(|example| example.0).collect();
    assert_eq!(Options::keys(), keys, "the examples must list every option");
    let password = Scratch::new("secret", "from-file\n");
    for (key, flag_value, file_value) in EXAMPLES {
        let flag_value = flag_value.replace('@', &password.path());
        let file_value = file_value.replace('@', &format!("{:?}", password.path()));
        let base = companions(key);
        let plain = load(&["--contact-points=192.0.2.7".to_owned()]).expect("plain");

        let flag = format!("--{}={flag_value}", key.replace('_', "-"));
        let by_flag = load(&[base.clone(), vec![flag]].concat()).expect(key);
        let file = Scratch::new(key, &format!("{key} = {file_value}\n"));
        let by_file = load(&[base, vec![format!("--config={}", file.path())]].concat()).expect(key);

        assert_eq!(by_flag.reloaded(&by_file).changed, Vec::<&str>::new(), "{key}");
        assert_eq!(by_flag.reloaded(&by_file).waiting, Vec::<&str>::new(), "{key}");
        let difference = plain.reloaded(&by_flag);
        assert_eq!(difference.changed.len() + difference.waiting.len(), 1, "{key}: {difference:?}");
        assert_eq!(format!("{by_flag:?}"), format!("{by_file:?}"), "{key}");
    }
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
    let file = Scratch::new("precedence", "contact_points = [\"a\"]\nclients_max = 5\nlinks_per_node = 2\n");
    let config = load(&[format!("--config={}", file.path()), "--clients-max=7".to_owned()]).expect("valid");
    assert_eq!((config.clients_max, config.links_per_node, config.in_flight_max), (7, 2, 16_384));
}

#[test]
fn problems_say_where_the_value_came_from() {
    let file = Scratch::new("problems", "\ncores = 0\n");
    let error = load(&[format!("--config={}", file.path()), "--clients-max=0".to_owned()]).expect_err("invalid");
    let text = error.to_string();
    assert!(text.contains(&format!("{}:2:1: `cores`: 0 is out of range", file.path())), "{text}");
    assert!(text.contains("--clients-max: 0 is out of range"), "{text}");
    assert!(text.contains("`contact_points` (--contact-points): no node"), "{text}");
}

#[test]
fn a_missing_file_and_half_a_login_are_named() {
    let error = load(&["--config=/nowhere/shunt.toml".to_owned()]).expect_err("invalid").to_string();
    assert!(error.starts_with("error: /nowhere/shunt.toml: cannot be read"), "{error}");
    let error = load(&["--contact-points=a".to_owned(), "--username=u".to_owned()]).expect_err("invalid").to_string();
    assert_eq!(error, "error: --username: has no password; give `password_file`\n");
}

#[test]
fn a_password_shows_nowhere() {
    let config = load(&["--contact-points=a", "--username=u", "--password=hunter2"].map(str::to_owned)).expect("valid");
    assert!(!format!("{config:?}").contains("hunter2"));
    let file = Scratch::new("unquoted", "contact_points = [\"a\"]\nusername = \"u\"\npassword = 48151623\n");
    let error = load(&[format!("--config={}", file.path())]).expect_err("no text").to_string();
    assert!(error.contains(":3:12: `password`: must be text in quotes") && !error.contains("48151623"), "{error}");
}
