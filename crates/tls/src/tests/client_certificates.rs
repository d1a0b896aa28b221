//! Clients of one process that show different certificates, and certificates that are renewed.

use std::time::Duration;

use rcgen::{CertificateParams, DnType, SanType};

use super::authority::{Authority, Files, Pair, client_names, server};
use super::link::{End, pair};
use crate::{Client, ClientAuth, Renewed, Server, is_alert, is_of_own_certificate};

fn named(ca: &Authority, edit: impl FnOnce(&mut CertificateParams)) -> Pair {
    ca.issue(|params| {
        client_names(params);
        edit(params);
    })
}

fn open(files: &Files, ca: &Authority, own: &Pair) -> Client {
    Client::open(files.client_options(ca, Some(own))).expect("a client")
}

/// The names that the server sees, and whether it resumed. The client takes its tickets.
fn seen(client: &Client, server: &Server) -> (Vec<String>, bool) {
    let (near, far) = connect(client, server);
    assert_eq!([near.fault(), far.fault()], ["none", "none"]);
    let names = far.names().iter().map(|name| (*name).to_owned()).collect();
    (names, far.session.info().resumed)
}

fn connect(client: &Client, server: &Server) -> (End, End) {
    pair(client.session("localhost"), server.session())
}

/// A ticket of one certificate must not let another one in.
#[test]
fn clients_with_two_certificates_resume_their_own_sessions_alone() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::Required);
    let uri = |uri: &str| {
        named(&ca, |params| {
            params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a name"))]
        })
    };
    let [shop, billing] = ["spiffe://a/shop", "spiffe://a/billing"]
        .map(|name| (open(&Files::new(), &ca, &uri(name)), name));
    for round in 0..3 {
        for (client, name) in [&shop, &billing] {
            let (names, resumed) = seen(client, &server);
            assert_eq!((names[0].as_str(), resumed), (*name, round > 0));
        }
    }
}

#[test]
fn a_renewed_client_has_the_new_files_and_no_ticket_of_the_former() {
    let (ca, files) = (Authority::new("CA"), Files::new());
    let server = server(&ca, ClientAuth::Required);
    let former = open(&files, &ca, &ca.client());
    let renewed = |former: &Client| former.renewed(files.settled());
    assert!(matches!(renewed(&former), Ok(Renewed::Unchanged)));
    assert!(!seen(&former, &server).1 && seen(&former, &server).1);
    let other = named(&ca, |params| params.distinguished_name.push(DnType::CommonName, "other"));
    files.client_options(&ca, Some(&other));
    assert!(matches!(
        former.renewed(files.settled() - Duration::from_secs(1)),
        Ok(Renewed::Unsettled(_))
    ));
    let Ok(Renewed::Changed(new)) = renewed(&former) else { panic!("it is not renewed") };
    assert!(!new.is_alike(&former));
    let (names, resumed) = seen(&new, &server);
    assert!(names.contains(&"other".to_owned()) && !resumed, "{names:?}");
    assert!(seen(&former, &server).0.contains(&"orders".to_owned()));
    files.write("client.pem", "no certificate");
    assert!(renewed(&former).is_err());
}

/// Nodes may choose a role by any of these names.
#[test]
fn a_certificate_with_other_names_has_another_digest() {
    let ca = Authority::new("CA");
    let of = |ca: &Authority, own: &Pair| open(&Files::new(), ca, own).subject().expect("a digest");
    let subject = of(&ca, &ca.client());
    assert_eq!(of(&ca, &ca.client()), subject, "the same names with another key");
    let others = [
        named(&ca, |params| params.distinguished_name.push(DnType::CommonName, "other")),
        named(&ca, |params| params.distinguished_name.push(DnType::OrganizationName, "other")),
        named(&ca, |params| {
            params.subject_alt_names.pop();
        }),
        named(&ca, |params| params.subject_alt_names.reverse()),
    ];
    assert!(others.iter().all(|own| of(&ca, own) != subject));
    let stranger = Authority::new("another CA");
    assert_ne!(of(&stranger, &stranger.client()), subject);
    let files = Files::new();
    let without = Client::open(files.client_options(&ca, None)).expect("a client");
    assert_eq!(without.subject(), None);
}

#[test]
fn a_server_that_refuses_a_certificate_says_so() {
    let (ca, stranger) = (Authority::new("CA"), Authority::new("stranger"));
    let server = server(&ca, ClientAuth::Required);
    let (near, _) = connect(&open(&Files::new(), &ca, &stranger.client()), &server);
    assert!(near.fault.is_some_and(is_of_own_certificate), "{}", near.fault());
    assert!(near.fault.is_some_and(is_alert));
    let other = open(&Files::new(), &stranger, &ca.client());
    let (near, _) = connect(&other, &server);
    assert!(near.fault.is_some_and(|fault| !is_of_own_certificate(fault)), "{}", near.fault());
    assert!(near.fault.is_some_and(|fault| !is_alert(fault)), "this side judged the other");
}
