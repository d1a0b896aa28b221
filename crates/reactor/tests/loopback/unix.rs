//! Clients of Unix sockets, and the socket's file.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use shunt_reactor::{
    Acceptor, ClientAddress, IoChoice, Listener, UNIX_PATH_BYTES_MAX, UnixAccess, listen,
    listen_unix,
};

use crate::support::*;

for_each_driver!(clients_of_both_kinds_share_a_loop,);

const ACCESS: UnixAccess = UnixAccess { mode: 0o640, user: None, group: None };

/// A path for one test, in a directory of its own that goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let own = std::process::id();
        let directory = std::env::temp_dir().join(format!("shunt-{own}-{name}"));
        std::fs::create_dir_all(&directory).unwrap();
        Place(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn stands_for() -> SocketAddr {
    ([127, 0, 0, 1], 9042).into()
}

fn open(path: &Path) -> std::io::Result<shunt_reactor::UnixListener> {
    listen_unix(path, ACCESS, stands_for())
}

fn clients_of_both_kinds_share_a_loop(choice: IoChoice) {
    let place = Place::new(&format!("both-{choice}"));
    let (handler, accepted) = reporting(|io, event, tell: &dyn Fn(_)| {
        if let Event::Accepted(_, origin) = &event {
            tell((origin.listener, origin.peer, origin.local));
        }
        echo(io, event)
    });
    let core = Loop::start(choice, handler);
    let tcp = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = open(&place.path()).unwrap();
    let acceptor =
        Acceptor::start_with(vec![tcp.into(), Listener::Unix(unix)], vec![core.slot()], None)
            .unwrap();
    let mut client = UnixStream::connect(place.path()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for count in [1, 1 << 10, 1 << 20] {
        let (sent, mut received) = (pattern(count, 3), vec![0; count]);
        let mut writer = client.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            std::io::Write::write_all(&mut writer, &sent).map(|()| sent)
        });
        std::io::Read::read_exact(&mut client, &mut received).unwrap();
        assert!(writing.join().unwrap().unwrap() == received);
    }
    let (listener, peer, local) = next(&accepted);
    let user = std::fs::metadata(&place.0).unwrap().uid();
    let own = ClientAddress::Unix { user, process: std::process::id() as i32 };
    assert_eq!((listener, peer, local), (1, own, stands_for()));
    assert_eq!(peer.direct(), None);
    round_trip(&mut connect(address), b"beside it");
    assert_eq!(next(&accepted).0, 0);
    assert!(acceptor.stop());
    assert!(!place.path().exists(), "the file goes with the listener");
    std::io::Write::write_all(&mut client, b"clients stay").unwrap();
    std::io::Read::read_exact(&mut client, &mut [0; 12]).unwrap();
}

#[test]
fn the_file_has_its_permissions() {
    let place = Place::new("mode");
    let _listener = open(&place.path()).unwrap();
    let mode = std::fs::metadata(place.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn only_a_file_that_nobody_listens_on_is_replaced() {
    let place = Place::new("stale");
    let first = open(&place.path()).unwrap();
    assert_eq!(open(&place.path()).unwrap_err().kind(), ErrorKind::AddrInUse);
    UnixStream::connect(place.path()).expect("the first one is still there");
    drop(first);
    // The standard library's listener leaves its file, as a process that dies does.
    drop(UnixListener::bind(place.path()).unwrap());
    let next = open(&place.path()).unwrap();
    UnixStream::connect(place.path()).unwrap();
    drop(next);
    std::fs::write(place.path(), "a file").unwrap();
    assert_eq!(open(&place.path()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), "a file");
}

#[test]
fn the_file_of_a_successor_stays() {
    let place = Place::new("successor");
    let first = open(&place.path()).unwrap();
    std::fs::remove_file(place.path()).unwrap();
    let _second = open(&place.path()).unwrap();
    drop(first);
    UnixStream::connect(place.path()).expect("the successor listens");
}

#[test]
fn a_lock_of_the_directory_holds_nobody_up() {
    let place = Place::new("lock");
    let directory = std::fs::File::open(&place.0).unwrap();
    directory.lock_shared().unwrap();
    drop(open(&place.path()).unwrap());
    // The lock file is the process's own.
    let lock = place.0.join("s.lock");
    assert_eq!(std::fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
    let other = std::fs::File::open(&lock).unwrap();
    other.lock().unwrap();
    assert_eq!(open(&place.path()).unwrap_err().kind(), ErrorKind::ResourceBusy);
}

#[test]
fn a_path_that_cannot_be_is_refused() {
    let place = Place::new("path");
    let long = Path::new("/").join("x".repeat(UNIX_PATH_BYTES_MAX));
    assert_eq!(open(&long).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(open(&place.0.join("none/s")).unwrap_err().kind(), ErrorKind::NotFound);
}
