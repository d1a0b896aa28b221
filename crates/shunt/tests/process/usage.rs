//! Commands that start nothing, and wrong usage.

use std::path::PathBuf;

use crate::support::{Stub, output};

/// A configuration file that is removed with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("shunt-usage-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).expect("write");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn version_is_short_and_verbose_is_complete() {
    let (code, text, _) = output(&["--version"]);
    assert_eq!((code, text), (0, format!("shunt {}\n", env!("CARGO_PKG_VERSION"))));
    let (code, text, _) = output(&["--version", "-v"]);
    assert_eq!(code, 0);
    for part in ["commit: ", "compiler: rustc ", "epoll: available", "uring: ", "kernel programs: "]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn check_tells_valid_from_invalid() {
    let good = File::new("good", "contact_points = [\"10.0.0.1\"]\n");
    let (code, text, _) = output(&["check", "--config", good.path()]);
    assert_eq!((code, text), (0, format!("{}: valid\n", good.path())));

    let bad = File::new("bad", "contact_pionts = [\"10.0.0.1\"]\n");
    let (code, _, errors) = output(&["check", "--config", bad.path()]);
    let expected = format!(
        "error: {}:1:1: unknown key `contact_pionts`; did you mean `contact_points`?\n",
        bad.path()
    );
    assert_eq!((code, errors), (2, expected));
}

/// A fault in the file hides no fault in the flags, and the first fault hides no second.
#[test]
fn everything_that_is_wrong_is_told_in_one_go() {
    let bad = File::new(
        "many",
        "cores = \"two\"\nclients_max = 0\nfrobnicate = 1\nquery_timeout_ms = \"12s\"\n",
    );
    for command in ["check", "proxy"] {
        let (code, _, errors) = output(&[
            command,
            "--config",
            bad.path(),
            "--io",
            "kqueue",
            "--drain-timeout-ms",
            "1x",
        ]);
        assert_eq!(code, 2, "{errors}");
        for part in [
            "1:9: `cores`",
            "2:1: `clients_max`",
            "3:1: unknown key",
            "--io:",
            "--drain-timeout-ms:",
            "no contact point",
        ] {
            assert!(errors.contains(part), "{command}: {part} is not in {errors}");
        }
        assert_eq!(errors.lines().count(), 6, "{errors}");
    }
}

/// A node reports as much as the proxy.
#[cfg(feature = "node")]
#[test]
fn everything_that_is_wrong_for_a_node_is_told_in_one_go() {
    for (command, flags, count) in [
        (
            "node",
            &[
                "--cores",
                "0",
                "--drain-timeout-ms",
                "2d",
                "--memtable-bytes",
                "64M",
                "--listen",
                "?:x",
                "--log",
                "inof",
                "--row-cache-bytes",
                "0",
                "--row-cache-ssd",
                "does-not-matter",
                "--row-cache-ssd-bytes",
                "1GiB",
            ][..],
            6,
        ),
        (
            "up",
            &[
                "--nodes",
                "0",
                "--node-port",
                "70000",
                "--reserve-bytes",
                "much",
                "--admin",
                "of",
                "--log-format",
                "xml",
            ],
            5,
        ),
    ] {
        let (code, _, errors) = output(&[&[command, "--data", "does-not-matter"], flags].concat());
        assert_eq!(
            (code, errors.lines().filter(|line| line.starts_with("error: --")).count()),
            (2, count),
            "{errors}"
        );
    }
}

/// As in the proxy, each fault of the file has its place.
#[test]
fn everything_that_is_wrong_for_a_dispatcher_or_sidecar_is_told_in_one_go() {
    let relay = "listen = \"127.0.0.1:80\"\nbackend = [\"10.0.0.1:7000\", \"10.0.0.1:7000\"]\nclients_max = \"many\"\n\
                 key_file = \"/nowhere/key\"\nfrobnicate = 1\nhead_timeout_ms = \"5x\"\nadmin = [[1]]\n";
    let relay = File::new("relay", relay);
    let sidecar = "server = [\"10.0.0.1:6379\", \"10.0.0.1:6379\"]\nresend = 5\ncores = 0\npassword_file = \"/nowhere/word\"\n\
                   switch = \"10.0.0.9:9700\"\n";
    let sidecar = File::new("sidecar", sidecar);
    for (command, file, told) in [
        (
            &["check", "dispatch"][..],
            &relay,
            &[
                "2:11: `backend`: 10.0.0.1:7000 is given twice",
                "3:15: `clients_max`: ",
                "4:12: `key_file`: /nowhere/key: cannot be read",
                "5:1: unknown key `frobnicate`",
                "6:19: `head_timeout_ms`: ",
                "7:9: `admin`: a text",
                "--io-what",
            ][..],
        ),
        (
            &["check", "multiget", "serve"],
            &sidecar,
            &[
                "1:10: `server`: 10.0.0.1:6379 is named twice",
                "2:1: unknown key `resend`; did you mean `resend_ms`?",
                "3:9: `cores`: 1 to 1024",
                "4:17: `password_file`: /nowhere/word: cannot be read",
                "5:10: `switch`: --mode netmc alone sends to 10.0.0.9:9700",
                "--io-what",
            ],
        ),
    ] {
        let (code, said, errors) =
            output(&[command, &["--io-what", "--config", file.path()]].concat());
        assert_eq!((code, said.as_str()), (2, ""), "{errors}");
        for part in told {
            assert_eq!(
                errors.matches(part).count(),
                1,
                "{command:?}: {part} is not there once: {errors}"
            );
        }
        assert_eq!(errors.lines().count(), told.len(), "{errors}");
        assert!(errors.lines().all(|line| line.starts_with("error: ")), "{errors}");
    }
    // A value that could not be read is not reported as missing as well.
    let file = File::new("no-address", "listen = \"nowhere\"\nkey_file = \"/nowhere/key\"\n");
    let (code, _, errors) =
        output(&["check", "dispatch", "--config", file.path(), "--backend", "10.0.0.1:7000"]);
    assert!(
        code == 2 && errors.contains(":1:10: `listen`: ") && errors.lines().count() == 1,
        "{code} {errors}"
    );
}

/// A user who gives such an option expects it to have an effect.
#[test]
fn options_that_do_nothing_are_refused_by_name() {
    let file = tempfile::NamedTempFile::new().expect("a file that nobody else reads");
    std::fs::write(file.path(), "0123456789abcdef").expect("write");
    let key_file = file.path().to_str().expect("text");
    let proxy = &["check", "--contact-points", "10.0.0.1"][..];
    let sidecar = &["check", "multiget", "serve", "--server", "10.0.0.1:6379"][..];
    let (key, address) = (["--key-file", key_file], "127.0.0.1:1");
    let dispatch =
        [&["check", "dispatch", "--listen", address, "--backend", "10.0.0.1:1"], &key[..]].concat();
    let agent =
        [&["check", "agent", "--listen", address, "--upstream", address], &key[..]].concat();
    let (dispatch, agent) = (&dispatch[..], &agent[..]);
    for (command, option, value) in [
        (sidecar, "--resend-ms", "5"),
        (sidecar, "--shim-port", "9701"),
        (sidecar, "--from", "127.0.0.1:0"),
        (dispatch, "--handover-socket", "/tmp/none"),
        (dispatch, "--handover-pins", "/sys/fs/bpf/mine"),
        (agent, "--handover-socket", "/tmp/none"),
        (agent, "--handover-pins", "/sys/fs/bpf/mine"),
        (proxy, "--handover-threshold", "4096"),
        (proxy, "--handover-agent-port", "7002"),
        (proxy, "--handover-key-file", key_file),
        (proxy, "--handover-name", "a"),
        (proxy, "--handover-pins", "/sys/fs/bpf/mine"),
        (proxy, "--multiget-keys-max", "5"),
    ] {
        assert_eq!(output(command).0, 0, "{command:?}");
        let (code, _, errors) = output(&[command, &[option, value]].concat());
        assert!(
            code == 2 && errors.contains(&format!("error: {option}: ")),
            "{command:?} {option}: {code} {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

/// The interface does not exist, so nothing is loaded.
#[test]
fn options_that_a_role_of_the_switch_does_not_have_are_refused_by_name() {
    let load = ["switch", "load", "--interface", "shunt-none", "--role"];
    let idle = [
        ("dispatcher", "--vip", "10.0.0.1:80"),
        ("dispatcher", "--server", "10.0.0.1:80"),
        ("dispatcher", "--rate-max", "5"),
        ("dispatcher", "--parts", "full"),
        ("dispatcher", "--servers-interface", "lo"),
        ("multiget-client", "--allow", "10.0.0.0/8"),
        ("multiget-client", "--rate-max", "5"),
    ];
    for (role, option, value) in idle {
        let needed: &[&str] = if role == "dispatcher" {
            &[]
        } else {
            &["--vip", "10.0.0.1:80", "--server", "10.0.0.2:80=02:00:00:00:00:01"]
        };
        let (code, _, errors) = output(&[&load[..], &[role], needed, &[option, value]].concat());
        assert!(
            code == 2 && errors.contains(&format!("error: {option}: has no effect")),
            "{role} {option}: {errors}"
        );
    }
}

#[test]
fn values_that_contradict_one_another_are_refused_with_words() {
    let proxy = &["check", "--contact-points", "10.0.0.1"][..];
    let sidecar = &["check", "multiget", "serve", "--server", "10.0.0.1:6379", "--mode", "cli"][..];
    for (command, options, told) in [
        (
            proxy,
            &["--clients-bytes-max", "1MiB", "--client-backlog-bytes", "2MiB"][..],
            "--clients-bytes-max: ",
        ),
        (proxy, &["--query-timeout-ms", "1"], "--query-timeout-ms: 1 is out of range"),
        (proxy, &["--connect-timeout-ms", "1"], "--connect-timeout-ms: 1 is out of range"),
        (proxy, &["--handshake-timeout-ms", "1"], "--handshake-timeout-ms: 1 is out of range"),
        (sidecar, &["--timeout-ms", "0"], "--timeout-ms: "),
        (sidecar, &["--timeout-ms", "1"], "--timeout-ms: "),
        (sidecar, &["--resend-ms", "0"], "--resend-ms: "),
        (sidecar, &["--resend-ms", "2s"], "--resend-ms: "),
        (&["check", "multiget", "shim"], &["--timeout-ms", "0"], "--timeout-ms: "),
        (sidecar, &["--clients-max", "0"], "--clients-max: "),
    ] {
        let (code, _, errors) = output(&[command, options].concat());
        assert!(
            code == 2 && errors.contains(&format!("error: {told}")),
            "{options:?}: {code} {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    let (code, _, errors) =
        output(&["switch", "balance", "--dispatcher", "10.0.0.1:1", "--interval-ms", "0"]);
    assert!(code == 2 && errors.contains("10ms is the least"), "{code} {errors}");
}

#[test]
fn wrong_usage_is_code_2() {
    assert_eq!(output(&[]).0, 2);
    assert_eq!(output(&["proxy", "--no-such-flag"]).0, 2);
    let (code, _, errors) = output(&["proxy"]);
    assert!(code == 2 && errors.contains("--contact-points"), "{code} {errors}");
    let (code, _, errors) = output(&["proxy", "--contact-points", "10.0.0.1", "--log", "inof"]);
    assert!(code == 2 && errors.contains("--log: `inof` is no level"), "{code} {errors}");
}

#[test]
fn a_taken_address_is_code_3() {
    let stub = Stub::start();
    let taken = stub.address.to_string();
    let common = ["proxy", "--contact-points", "192.0.2.1"];
    for other in
        [["--listen", &taken, "--admin", "off"], ["--listen", "127.0.0.1:0", "--admin", &taken]]
    {
        let (code, _, errors) = output(&[&common[..], &other[..]].concat());
        assert!(
            code == 3 && errors.contains("cannot listen on") && errors.contains(&taken),
            "{code} {errors}"
        );
    }
}

/// A command that cannot run must keep nobody out. No server listens at the contact point, which is
/// not even asked.
#[test]
fn a_lock_is_not_taken_for_a_command_that_is_not_there() {
    for program in ["no-such-program", "/nowhere/program", "/etc/passwd", ""] {
        let (code, _, errors) =
            output(&["lock", "--contact-points", "127.0.0.1:1", "--wait", "0", "a", "--", program]);
        assert_eq!((code, errors), (127, format!("error: {program}: no such program\n")));
    }
}

#[test]
fn a_lock_whose_time_is_shorter_than_it_takes_to_replace_its_proxy_is_warned_of() {
    for (options, is_warned) in
        [(&["--ttl", "9"][..], true), (&["--ttl", "10"], false), (&["--ttl", "9", "--fast"], false)]
    {
        let arguments = [
            &["lock", "--contact-points", "127.0.0.1:1", "--wait", "0"],
            options,
            &["a", "--", "true"],
        ]
        .concat();
        let (code, _, errors) = output(&arguments);
        assert!(
            code != 0 && errors.contains("if the proxy that keeps it dies") == is_warned,
            "{code} {errors}"
        );
    }
}
