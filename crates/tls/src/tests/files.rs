//! Files and options that cannot be used, and what the error says to do.

use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{DnType, date_time_ymd};

use super::authority::{Authority, Files, Pair, client_names, expired, not_yet_valid};
use crate::{Client, ClientAuth, ClientOptions, Server, Verify};

/// Error of a server with this certificate and key, without the directory.
fn error(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> String {
    let files = Files::new();
    let pair = Pair { certificate: String::new(), key: String::new() };
    let options = files.server_options(&pair);
    files.write("server.pem", certificate);
    files.write("server.key", key);
    let error = Server::open(options).err().expect("an error").to_string();
    error.replace(files.path("").to_str().expect("a path"), "")
}

#[test]
fn facts_of_files_are_known() {
    let ca = Authority::with("CA", |params| params.not_after = date_time_ymd(2090, 1, 1));
    let files = Files::new();
    let own = ca.issue(|params| {
        client_names(params);
        params.distinguished_name.push(DnType::CommonName, "a server");
        params.not_after = date_time_ymd(2080, 1, 1);
    });
    let mut options = files.server_options(&own);
    options.client_auth = ClientAuth::Optional;
    options.client_ca = Some(files.write("client-ca.pem", &ca.pem));
    let facts = Server::open(options).expect("a server").files();
    let [certificate, roots] = &facts[..] else { panic!("{facts:?}") };
    assert_eq!((certificate.usage, certificate.option), ("clients", "tls_certificate"));
    assert_eq!(certificate.path, files.path("server.pem"));
    assert_eq!(certificate.expires_s, date_time_ymd(2080, 1, 1).unix_timestamp());
    assert!(certificate.subject.contains("CN=a server"), "{}", certificate.subject);
    assert_eq!(certificate.sha256.len(), 16);
    assert_eq!((roots.usage, roots.option), ("clients", "tls_client_ca"));
    assert_eq!(roots.expires_s, date_time_ymd(2090, 1, 1).unix_timestamp());
    let client = Client::open(files.client_options(&ca, Some(&own))).expect("a client");
    let facts = client.files();
    let described: Vec<_> = facts.iter().map(|file| (file.usage, file.option)).collect();
    assert_eq!(described, [("nodes", "node_tls_ca"), ("nodes", "node_tls_certificate")]);
}

#[test]
fn a_chain_ends_with_its_first_certificate() {
    let ca = Authority::with("CA", |params| params.not_after = date_time_ymd(2070, 1, 1));
    let files = Files::new();
    let mut own = ca.server();
    own.certificate.push_str(&ca.pem);
    let facts = Server::open(files.server_options(&own)).expect("a server").files();
    assert_eq!(facts[0].expires_s, date_time_ymd(2070, 1, 1).unix_timestamp());
}

#[test]
fn an_old_ca_beside_a_new_one_is_no_fault() {
    let (old, new) = (Authority::with("old", expired), Authority::new("new"));
    let files = Files::new();
    let mut options = files.client_options(&new, None);
    options.ca = Some(files.write("ca.pem", format!("{}{}", old.pem, new.pem)));
    let facts = Client::open(options.clone()).expect("a client").files();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    assert!(facts[0].expires_s > now as i64);
    options.ca = Some(files.write("ca.pem", old.pem));
    let error = Client::open(options).expect_err("an error").to_string();
    assert!(error.contains("ca.pem: the CA `CN=old"), "{error}");
    assert!(
        error.ends_with("has expired, and the file has no other valid one: renew it"),
        "{error}"
    );
}

#[test]
fn a_ca_that_is_not_valid_yet_counts_for_none() {
    let end = |year| {
        move |params: &mut rcgen::CertificateParams| {
            params.not_after = date_time_ymd(year, 1, 1);
        }
    };
    let (early, present) =
        (Authority::with("early", not_yet_valid), Authority::with("present", end(4000)));
    let files = Files::new();
    let mut options = files.client_options(&early, None);
    let error = Client::open(options.clone()).expect_err("an error").to_string();
    assert!(error.contains("ca.pem: the CA `CN=early"), "{error}");
    let words =
        "is not valid yet, and the file has no other valid one: check the clock of this host";
    assert!(error.ends_with(words), "{error}");
    options.ca = Some(files.write("ca.pem", format!("{}{}", early.pem, present.pem)));
    let facts = Client::open(options).expect("a client").files();
    assert_eq!(facts[0].expires_s, date_time_ymd(4000, 1, 1).unix_timestamp());
}

#[test]
fn a_fault_that_differs_in_its_time_is_the_same() {
    let (ca, files) = (Authority::new("CA"), Files::new());
    let pair = |edit: fn(&mut rcgen::CertificateParams)| {
        ca.issue(|params| {
            params.distinguished_name.push(DnType::CommonName, "a server");
            edit(params);
        })
    };
    let error = |pair: &Pair| Server::open(files.server_options(pair)).err().expect("an error");
    let former = error(&pair(expired));
    let later = error(&pair(|params| {
        expired(params);
        params.not_after = date_time_ymd(2022, 1, 1);
    }));
    assert!(former != later && former.is_same_fault(&later), "{former}; {later}");
    let early = error(&pair(not_yet_valid));
    assert!(!former.is_same_fault(&early), "{early}");
}

#[test]
fn pairs_must_match_and_have_their_time() {
    let ca = Authority::new("CA");
    let (one, other) = (ca.server(), ca.server());
    assert_eq!(
        error(&one.certificate, &other.key),
        "tls_key server.key: the key does not belong to the certificate in server.pem"
    );
    let old = ca.issue(expired);
    let text = error(&old.certificate, &old.key);
    assert!(text.starts_with("tls_certificate server.pem: the certificate of `"), "{text}");
    assert!(text.ends_with("days ago: renew it"), "{text}");
    let early = ca.issue(not_yet_valid);
    let text = error(&early.certificate, &early.key);
    assert!(text.ends_with("days: check the clock of this host"), "{text}");
}

#[test]
fn other_formats_are_refused_with_the_command_that_converts_them() {
    let ca = Authority::new("CA");
    let Pair { certificate, key } = ca.server();
    let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let text = error(&certificate, &encrypted);
    assert!(text.contains("decrypt it: openssl pkey -in server.key -out"), "{text}");
    let old = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,1\n\nAA==\n";
    assert!(error(&certificate, old).contains("openssl pkey -in server.key"));
    let store = [0xFE, 0xED, 0xFE, 0xED, 0, 0, 0, 2];
    assert!(error(store, &key).contains("keytool -importkeystore -srckeystore server.pem"));
    let pkcs12 = [0x30, 0x82, 0x0A, 0, 2, 1, 3, 0x30];
    assert!(error(pkcs12, &key).contains("openssl pkcs12 -in server.pem -nokeys"));
    assert!(error(&certificate, pkcs12).contains("openssl pkcs12 -in server.key -nocerts"));
    let der = [0x30, 0x82, 1, 0, 0x30, 0x82, 1];
    assert!(error(der, &key).contains("openssl x509 -inform der -in server.pem"));
    assert!(error(&key, &key).ends_with("no certificate (`BEGIN CERTIFICATE`)"));
    assert!(error(&certificate, &certificate).ends_with("no private key (`BEGIN PRIVATE KEY`)"));
}

#[test]
fn large_files_are_refused() {
    let ca = Authority::new("CA");
    let text = error(vec![b'#'; (1 << 20) + 1], ca.server().key);
    assert!(text.contains("server.pem: the file is larger than 1 MiB"), "{text}");
}

#[test]
fn only_regular_files_are_read() {
    let files = Files::new();
    let mut options = files.server_options(&Authority::new("CA").server());
    options.key = files.path("");
    let error = Server::open(options).err().expect("an error").to_string();
    assert!(error.ends_with(": this is not a regular file"), "{error}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let ca = Authority::new("CA");
    let files = Files::new();
    let mut options = files.server_options(&ca.server());
    options.client_auth = ClientAuth::Required;
    let error = Server::open(options).err().expect("an error").to_string();
    assert!(error.starts_with("tls_client_auth: `required` needs tls_client_ca"), "{error}");

    let own = ca.client();
    let whole = files.client_options(&ca, Some(&own));
    let error = |options| Client::open(options).expect_err("an error").to_string();
    let text = error(ClientOptions { key: None, ..whole.clone() });
    assert_eq!(text, "node_tls_certificate: a certificate needs its key: node_tls_key");
    let text = error(ClientOptions { certificate: None, ..whole.clone() });
    assert_eq!(text, "node_tls_key: a key needs its certificate: node_tls_certificate");
    let text = error(ClientOptions { name: Some("a b".to_owned()), ..whole });
    assert_eq!(text, "node_tls_name: `a b` is neither a DNS name nor an IP address");
}

#[test]
fn keys_of_tickets_have_their_form() {
    let ca = Authority::new("CA");
    let files = Files::new();
    let mut options = files.server_options(&ca.server());
    let mut error = |content: &[u8]| {
        options.ticket_keys = Some(files.write("tickets", content));
        let error = Server::open(options.clone()).err().expect("an error").to_string();
        error.replace(files.path("").to_str().expect("a path"), "")
    };
    let line = data_encoding::BASE64.encode(&[1; 48]);
    let text = error(format!("{line}\nnot base64\n").as_bytes());
    let rest = "is not the base64 of 48 bytes: openssl rand -base64 48";
    assert_eq!(text, format!("tls_ticket_keys tickets: line 2 {rest}"));
    let long = data_encoding::BASE64.encode(&[1; 80]);
    assert_eq!(error(long.as_bytes()), format!("tls_ticket_keys tickets: line 1 {rest}"));
    assert!(error(b"\n\n").contains("the file has no key"));
    assert!(error(&[0xFF, 0xFE]).contains("the file is not text"));
}

#[test]
fn words_of_options_are_read_and_written() {
    for word in ["none", "optional", "required"] {
        assert_eq!(word.parse::<ClientAuth>().map(|auth| auth.to_string()), Ok(word.to_owned()));
    }
    for word in ["full", "ca", "none"] {
        assert_eq!(word.parse::<Verify>().map(|verify| verify.to_string()), Ok(word.to_owned()));
    }
    let error = "`yes` is not one of none, optional, required";
    assert_eq!("yes".parse::<ClientAuth>(), Err(error.to_owned()));
    assert!("yes".parse::<Verify>().is_err());
}
