//! Files, and CAs of the system, that change under a server and a client.

use std::cell::RefCell;
use std::fs;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::authority::{Authority, Files, Pair, expired};
use super::link::{Peer, pair};
use crate::{Client, ClientAuth, ClientOptions, Reloaded, Server, TlsError};

/// Faults of both sides of a new connection.
fn connect(client: &Client, server: &Server) -> [&'static str; 2] {
    let (client, server) = pair(client.session("localhost"), server.session());
    [client.fault(), server.fault()]
}

struct Setting {
    ca: Authority,
    files: Files,
    server: Server,
    client: Client,
}

fn setting() -> Setting {
    let ca = Authority::new("CA");
    let files = Files::new();
    let mut options = files.server_options(&ca.server());
    options.client_auth = ClientAuth::Required;
    options.client_ca = Some(files.write("client-ca.pem", &ca.pem));
    options.ticket_keys = Some(files.write("tickets", data_encoding::BASE64.encode(&[1; 48])));
    let server = Server::open(options).expect("a server");
    let own = ca.client();
    let client = Client::open(files.client_options(&ca, Some(&own))).expect("a client");
    Setting { ca, files, server, client }
}

fn is_unsettled(result: Result<Reloaded, TlsError>) -> bool {
    matches!(result, Ok(Reloaded::Unsettled(_)))
}

#[test]
fn the_same_content_changes_nothing() {
    let setting = setting();
    let facts = setting.server.files();
    assert_eq!(setting.server.reload(setting.files.settled()), Ok(Reloaded::Unchanged));
    assert_eq!(setting.client.reload(setting.files.settled()), Ok(Reloaded::Unchanged));
    // A file that is written again with the same content is the same.
    let content = fs::read(setting.files.path("server.pem")).expect("a file");
    setting.files.write("server.pem", content);
    assert_eq!(setting.server.reload(setting.files.settled()), Ok(Reloaded::Unchanged));
    assert_eq!(setting.server.files(), facts);
}

#[test]
fn new_sessions_use_the_new_certificate_and_old_ones_stay() {
    let setting = setting();
    let Setting { ca, files, server, client } = &setting;
    let (mut near, mut far) = pair(client.session("localhost"), server.session());
    let waiting = server.session();
    let former = server.files();
    // The server's certificate comes from another CA from now on.
    let new = Authority::new("new CA");
    files.server_options(&new.server());
    assert_eq!(server.reload(files.settled()), Ok(Reloaded::Changed));
    assert_ne!(server.files()[0].sha256, former[0].sha256);
    assert_eq!(server.files()[1], former[1]);
    // A client without tickets sees it.
    let fresh = || Client::open(files.client_options(ca, Some(&ca.client()))).expect("a client");
    assert_eq!(connect(&fresh(), server)[0], "the CA of the peer's certificate is unknown");
    let (_, waiting) = pair(client.session("localhost"), waiting);
    assert_eq!(waiting.fault(), "none");
    // The clients learn of it.
    files.write("ca.pem", format!("{}{}", ca.pem, new.pem));
    assert_eq!(client.reload(files.settled()), Ok(Reloaded::Changed));
    assert_eq!(connect(client, server), ["none", "none"]);
    let sealed = near.seal(b"question");
    far.take(&sealed);
    assert_eq!(far.plain, b"question");
}

#[test]
fn files_whose_writer_may_not_be_done_are_not_used_yet() {
    let setting = setting();
    let Setting { ca, files, server, client } = &setting;
    let former = (server.files(), client.files());
    // The first half of what its writer has to say.
    let both = format!("{}{}", Authority::new("another CA").pem, ca.pem);
    let half = &both[..both.len() - ca.pem.len()];
    for name in ["client-ca.pem", "ca.pem"] {
        files.write(name, half);
    }
    let early = files.settled() - Duration::from_millis(500);
    assert!(is_unsettled(server.reload(early)));
    assert!(is_unsettled(client.reload(early)));
    assert_eq!((server.files(), client.files()), former);
    assert_eq!(connect(client, server), ["none", "none"]);
    for name in ["client-ca.pem", "ca.pem"] {
        files.write(name, &both);
    }
    assert_eq!(server.reload(files.settled()), Ok(Reloaded::Changed));
    assert_eq!(client.reload(files.settled()), Ok(Reloaded::Changed));
    assert_eq!(connect(client, server), ["none", "none"]);
    // A file that is cut is no error while its writer is at work.
    files.write("server.pem", "");
    let early = files.settled() - Duration::from_millis(500);
    assert!(is_unsettled(server.reload(early)));
    assert!(server.reload(files.settled()).is_err());
}

#[test]
fn files_that_are_touched_all_the_time_are_used_when_their_content_stays() {
    let Setting { ca, files, server, client } = &setting();
    let former = server.files();
    files.server_options(&ca.server());
    files.write("ca.pem", format!("{}{}", ca.pem, Authority::new("another CA").pem));
    let touch = |now| {
        for name in ["server.pem", "ca.pem"] {
            let file = fs::File::options().append(true).open(files.path(name)).expect("a file");
            file.set_modified(now).expect("a time");
        }
    };
    let now = files.settled();
    let names = |reloaded: Reloaded, text: &str| match reloaded {
        Reloaded::Unsettled(error) => error.to_string().contains(text),
        _ => false,
    };
    for (ms, is_used) in [(0, false), (900, false), (1_000, true)] {
        let now = now + Duration::from_millis(ms);
        touch(now);
        let (server, client) = (server.reload(now), client.reload(now));
        if is_used {
            assert_eq!((server, client), (Ok(Reloaded::Changed), Ok(Reloaded::Changed)));
        } else {
            assert!(names(server.expect("no fault"), "server.pem: the file changes"));
            assert!(names(client.expect("no fault"), "ca.pem: the file changes"));
        }
    }
    assert_ne!(server.files()[0].sha256, former[0].sha256);
    // Other content waits anew, and so does the same after a clock was set back.
    let steps = [(2_000, "b", false), (3_000, "c", false), (1_000, "c", false), (2_000, "c", true)];
    for (ms, text, is_used) in steps {
        let now = now + Duration::from_millis(ms);
        files.write("ca.pem", format!("{}{text}", ca.pem));
        touch(now);
        assert_eq!(client.reload(now) == Ok(Reloaded::Changed), is_used, "{ms} {text}");
    }
}

/// Writes files, and expects that the server keeps what it has and says why.
fn refuses(setting: &Setting, write: impl FnOnce(&Files), text: &str) {
    let former = setting.server.files();
    write(&setting.files);
    let error = setting.server.reload(setting.files.settled()).expect_err("an error").to_string();
    let directory = setting.files.path("");
    let error = error.replace(directory.to_str().expect("a path"), "");
    assert!(error.contains(text), "`{error}` is not `{text}`");
    assert_eq!(setting.server.files(), former);
    assert_eq!(connect(&setting.client, &setting.server), ["none", "none"]);
}

fn write_pair(files: &Files, pair: &Pair) {
    files.server_options(pair);
}

#[test]
fn files_that_cannot_be_used_leave_the_old_ones() {
    let setting = setting();
    let ca = &setting.ca;
    let former = ["server.pem", "server.key", "client-ca.pem", "tickets"]
        .map(|name| (name, fs::read(setting.files.path(name)).expect("a file")));
    let restore = || {
        for (name, content) in &former {
            setting.files.write(name, content);
        }
    };
    let key = |files: &Files| _ = files.write("server.key", ca.server().key);
    let text = "tls_key server.key: the key does not belong to the certificate in server.pem";
    refuses(&setting, key, text);
    restore();
    let old = ca.issue(expired);
    refuses(&setting, |files| write_pair(files, &old), "expired");
    restore();
    let strange = Authority::new("another CA").pem;
    let strange = [former[0].1.as_slice(), strange.as_bytes()].concat();
    let broken = |files: &Files| _ = files.write("server.pem", &strange);
    refuses(&setting, broken, "tls_certificate server.pem: certificate 2 (`CN=another CA`) did");
    restore();
    let empty = |files: &Files| _ = files.write("server.pem", "");
    refuses(&setting, empty, "tls_certificate server.pem: the file is empty");
    restore();
    let cut = |files: &Files| _ = files.write("server.pem", &former[0].1[..200]);
    refuses(&setting, cut, "tls_certificate server.pem: the file is not valid PEM");
    restore();
    let gone = |files: &Files| fs::remove_file(files.path("server.key")).expect("a file");
    refuses(&setting, gone, "tls_key server.key: cannot read the file: ");
    restore();
    let none = |files: &Files| _ = files.write("client-ca.pem", "# no CA\n");
    refuses(&setting, none, "tls_client_ca client-ca.pem: the file has no certificate");
    restore();
    let short = |files: &Files| _ = files.write("tickets", "c2hvcnQ=\n");
    refuses(&setting, short, "tls_ticket_keys tickets: line 1 is not the base64 of 48 bytes");
    restore();
    assert_eq!(setting.server.reload(setting.files.settled()), Ok(Reloaded::Unchanged));
}

#[test]
fn a_revoked_ca_refuses_its_clients() {
    let setting = setting();
    assert_eq!(connect(&setting.client, &setting.server), ["none", "none"]);
    setting.files.write("client-ca.pem", Authority::new("another CA").pem);
    assert_eq!(setting.server.reload(setting.files.settled()), Ok(Reloaded::Changed));
    let [_, server] = connect(&setting.client, &setting.server);
    assert_eq!(server, "the CA of the peer's certificate is unknown");
}

thread_local! {
    /// CAs of the system, and why others cannot be read.
    static SYSTEM: RefCell<(Vec<CertificateDer<'static>>, Option<String>)> =
        const { RefCell::new((Vec::new(), None)) };
}

fn set_system(authorities: &[&Authority]) {
    let der = |ca: &&Authority| CertificateDer::from_pem_slice(ca.pem.as_bytes()).expect("PEM");
    SYSTEM.set((authorities.iter().map(der).collect(), None));
}

#[test]
fn the_cas_of_the_system_are_read_again() {
    let (old, new, files) = (Authority::new("old CA"), Authority::new("new CA"), Files::new());
    let open = || Client::open_with(ClientOptions::default(), || SYSTEM.with_borrow(Clone::clone));
    set_system(&[]);
    assert!(open().is_err_and(|error| error.to_string().contains("the system has no CAs")));
    set_system(&[&old]);
    let client = open().expect("a client");
    let server = Server::open(files.server_options(&new.server())).expect("a server");
    assert_eq!(connect(&client, &server)[0], "the CA of the peer's certificate is unknown");
    assert_eq!(client.reload(files.settled()), Ok(Reloaded::Unchanged));
    for system in [[&old, &new], [&new, &old]] {
        set_system(&system);
        let is_first = system[0].pem == old.pem;
        let result = if is_first { Reloaded::Changed } else { Reloaded::Unchanged };
        assert_eq!(client.reload(files.settled()), Ok(result), "their order says nothing");
        assert_eq!(connect(&client, &server), ["none", "none"]);
    }
    set_system(&[]);
    assert!(client.reload(files.settled()).is_err());
    assert_eq!(connect(&client, &server), ["none", "none"]);
}

#[test]
fn cas_of_the_system_that_cannot_be_read_are_missed() {
    let (ca, other, files) = (Authority::new("CA"), Authority::new("another CA"), Files::new());
    files.server_options(&ca.server());
    let open = || Client::open_with(ClientOptions::default(), || SYSTEM.with_borrow(Clone::clone));
    let fail = || SYSTEM.with_borrow_mut(|(_, fault)| *fault = Some("permission denied".into()));
    set_system(&[]);
    fail();
    let error = open().expect_err("no CA").to_string();
    let words = "node_tls_ca: the CAs of the system cannot be read: permission denied: name a file";
    assert!(error.starts_with(words), "{error}");
    set_system(&[&ca]);
    fail();
    let words = "node_tls_ca: some CAs of the system cannot be read: permission denied";
    assert_eq!(open().expect("a client").warnings(), [words]);
    // A reload does not give up CAs that cannot be read for the moment.
    set_system(&[&ca, &other]);
    let client = open().expect("a client");
    assert!(client.warnings().is_empty());
    set_system(&[&ca]);
    fail();
    let error = client.reload(files.settled()).expect_err("a CA is missing").to_string();
    assert_eq!(error, words);
    set_system(&[&ca]);
    assert_eq!(client.reload(files.settled()), Ok(Reloaded::Changed));
}

#[test]
fn a_new_certificate_is_taken_whatever_the_fault_of_the_systems_cas() {
    let (ca, other, files) = (Authority::new("CA"), Authority::new("another CA"), Files::new());
    let server = Server::open(files.server_options(&ca.server())).expect("a server");
    let fail =
        |fault: &str| SYSTEM.with_borrow_mut(|(_, current)| *current = Some(fault.to_owned()));
    let renew = || {
        let ClientOptions { certificate, key, .. } = files.client_options(&ca, Some(&ca.client()));
        ClientOptions { certificate, key, ..ClientOptions::default() }
    };
    let used = |client: &Client| client.files()[0].sha256.clone();
    let warning = |fault| format!("node_tls_ca: some CAs of the system cannot be read: {fault}");

    // The fault that was there from the start refuses nothing.
    set_system(&[&other]);
    fail("first");
    let client = Client::open_with(renew(), || SYSTEM.with_borrow(Clone::clone)).expect("a client");
    let former = used(&client);
    renew();
    assert_eq!(client.reload(files.settled()), Ok(Reloaded::Changed));
    assert_ne!(used(&client), former);
    assert_eq!(client.warnings()[0], warning("first"));
    set_system(&[&ca, &other]);
    fail("first");
    assert_eq!(client.reload(files.settled()), Ok(Reloaded::Changed));
    assert_eq!(connect(&client, &server), ["none", "none"]);

    // With a new fault the former CAs stay, at each reload.
    set_system(&[&other]);
    fail("second");
    for _ in 0..2 {
        let error = client.reload(files.settled()).expect_err("a CA is missing").to_string();
        assert_eq!(error, warning("second"));
        let former = used(&client);
        renew();
        assert_eq!(client.reload(files.settled()), Ok(Reloaded::Changed));
        assert_ne!(used(&client), former);
        assert_eq!(client.warnings()[0], warning("second"));
        assert_eq!(connect(&client, &server), ["none", "none"]);
    }

    // Without a fault a CA that is missing was removed.
    set_system(&[&other]);
    assert_eq!(client.reload(files.settled()), Ok(Reloaded::Changed));
    assert!(!client.warnings().iter().any(|warning| warning.contains("CAs")));
    assert_eq!(connect(&client, &server)[0], "the CA of the peer's certificate is unknown");
}

#[test]
fn clients_with_the_same_content_are_alike() {
    let setting = setting();
    let Setting { ca, files, client, .. } = &setting;
    let own = ca.client();
    let other = Client::open(files.client_options(ca, Some(&own))).expect("a client");
    assert!(!client.is_alike(&other), "it has another certificate");
    let mut options = files.client_options(ca, Some(&own));
    let again = Client::open(options.clone()).expect("a client");
    assert!(again.is_alike(&other));
    let copy = files.write("copy.pem", fs::read(files.path("ca.pem")).expect("a file"));
    options.ca = Some(copy);
    assert!(Client::open(options.clone()).expect("a client").is_alike(&other));
    options.name = Some("other.example".to_owned());
    assert!(!Client::open(options).expect("a client").is_alike(&other));
}
