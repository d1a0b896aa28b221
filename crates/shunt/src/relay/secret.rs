//! The key that dispatchers and agents share, and unpredictable random numbers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};
use shunt_handover::session::{Instance, OwnerId, SharedKey};

use crate::faults::Fault;

/// Reads the key, without a trailing line end.
pub(super) fn key(flag: &'static str, path: &Path) -> Result<SharedKey, Fault> {
    let missing = "`head -c 32 /dev/urandom | base64 > FILE` makes one";
    let open = "other users can read it, and a program with the key can answer for every server";
    let bytes = private_file(flag, path, missing, open)?;
    SharedKey::new(&bytes).map_err(|error| failed(flag, path, &error))
}

fn failed(flag: &'static str, path: &Path, why: &dyn std::fmt::Display) -> Fault {
    Fault::new(flag, format_args!("{}: {why}", path.display()))
}

/// Reads a file that only its owner can read, without a trailing line end. `missing` is the advice
/// if it cannot be read, `open` the reason why others must not read it.
pub(crate) fn private_file(
    flag: &'static str,
    path: &Path,
    missing: &str,
    open: &str,
) -> Result<Vec<u8>, Fault> {
    let read = || {
        let mode = std::fs::metadata(path)?.permissions().mode();
        std::fs::read(path).map(|bytes| (mode, bytes))
    };
    let unread = |error| failed(flag, path, &format_args!("cannot be read: {error}; {missing}"));
    let (mode, mut bytes) = read().map_err(unread)?;
    if mode & 0o077 != 0 {
        return Err(failed(flag, path, &format_args!("{open}; `chmod 600` it")));
    }
    while bytes.pop_if(|byte| matches!(byte, b'\n' | b'\r')).is_some() {}
    Ok(bytes)
}

/// Fills the buffer from the operating system's generator.
pub(crate) fn random(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(rustix::io::Errno::INTR) => {}
            // No substitute could keep the guarantees of nonces.
            Err(error) => panic!("the operating system gives no random numbers: {error}"),
        }
    }
}

/// Returns a random name for this run of the process.
pub(super) fn instance() -> Instance {
    let mut bytes = [0; 8];
    random(&mut bytes);
    Instance(u64::from_be_bytes(bytes))
}

/// Identity of a dispatcher's event loop for the agents. It stays the same after a restart, and
/// differs for each name (the host's by default), address and loop.
pub(super) fn owner(name: Option<&str>, listen: std::net::SocketAddr, core: usize) -> OwnerId {
    let system = rustix::system::uname();
    let name = name.map_or(system.nodename().to_bytes(), str::as_bytes);
    let text = format!("{listen} {core}");
    let bytes = name.iter().chain(text.as_bytes());
    // FNV-1a: the hash must stay the same in every release.
    OwnerId(bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn file(text: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_key_is_taken_from_a_file_that_nobody_else_reads() {
        key("key-file", file(b"0123456789abcdef\n", 0o600).path()).unwrap();
        for (text, mode, expected) in [
            (&b"0123456789abcdef"[..], 0o644, "chmod 600"),
            (b"0123456789abcde\n", 0o600, "15 bytes"),
            (b"", 0o600, "0 bytes"),
        ] {
            let fault = key("key-file", file(text, mode).path()).unwrap_err();
            assert!(
                fault.message.contains(expected) && fault.flag == "key-file",
                "{}",
                fault.message
            );
        }
        assert!(
            key("key-file", Path::new("/nowhere/at/all"))
                .unwrap_err()
                .message
                .contains("/dev/urandom")
        );
    }

    #[test]
    fn owners_are_the_same_again_and_differ_by_address_and_loop() {
        let listen = "10.0.0.1:80".parse().unwrap();
        let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        for name in [None, Some("a"), Some("b")] {
            assert_eq!(owner(name, listen, 0), owner(name, listen, 0));
            assert_ne!(owner(name, listen, 0), owner(name, listen, 1));
            assert_ne!(owner(name, listen, 0), owner(name, "10.0.0.2:80".parse().unwrap(), 0));
        }
        assert_ne!(owner(Some("a"), listen, 0), owner(Some("b"), listen, 0));
        assert_eq!(owner(None, listen, 0), owner(Some(&host), listen, 0));
        assert_ne!(instance(), instance());
    }
}
