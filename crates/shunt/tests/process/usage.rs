//! What can be had without starting anything, and what is refused.

use std::path::PathBuf;

use crate::support::{Stub, output};

/// A configuration file that goes away with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-usage-{}-{name}.toml", std::process::id()));
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
    for part in ["commit: ", "compiler: rustc ", "epoll: available", "uring: "] {
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
    let expected = format!("error: {}:1:1: unknown key `contact_pionts`; did you mean `contact_points`?\n", bad.path());
    assert_eq!((code, errors), (2, expected));
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
    for other in [["--listen", &taken, "--admin", "off"], ["--listen", "127.0.0.1:0", "--admin", &taken]] {
        let (code, _, errors) = output(&[&common[..], &other[..]].concat());
        assert!(code == 3 && errors.contains("cannot listen on") && errors.contains(&taken), "{code} {errors}");
    }
}
