//! Files whose certificates do not belong together, and servers without names.

use rcgen::{CertificateParams, DnType, IsCa, KeyPair};

use super::authority::{Authority, Files, Pair};
use crate::{Client, Server};

/// Warnings or the error of a server about its certificate followed by others.
fn said(own: &Pair, others: &[&str]) -> Result<Vec<String>, String> {
    let files = Files::new();
    let Pair { certificate, key } = own;
    let certificate = [&[certificate.as_str()][..], others].concat().concat();
    let opened = Server::open(files.server_options(&Pair { certificate, key: key.clone() }));
    let bare = |text: String| text.replace(files.path("").to_str().expect("a path"), "");
    match opened {
        Ok(server) => {
            let about_chain = |text: &String| text.starts_with("tls_certificate ");
            Ok(server.warnings().into_iter().filter(about_chain).map(bare).collect())
        }
        Err(error) => Err(bare(error.to_string())),
    }
}

/// A certificate of a server at `shunt.example`, which signed itself.
fn self_signed(edit: impl FnOnce(&mut CertificateParams)) -> Pair {
    let mut params = CertificateParams::new(["shunt.example".to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, "a server");
    edit(&mut params);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    Pair { certificate, key: key.serialize_pem() }
}

const FINE: Result<Vec<String>, String> = Ok(Vec::new());

#[test]
fn whole_chains_are_accepted() {
    let root = Authority::new("root");
    let upper = root.intermediate("upper");
    let lower = upper.intermediate("lower");
    let own = lower.server();
    assert_eq!(said(&own, &[]), FINE, "clients may know the lower CA");
    assert_eq!(said(&own, &[&lower.pem]), FINE);
    assert_eq!(said(&own, &[&lower.pem, &upper.pem]), FINE);
    assert_eq!(said(&own, &[&lower.pem, &upper.pem, &root.pem]), FINE);
    assert_eq!(said(&own, &[&lower.pem, &lower.pem]), FINE, "a repetition does no harm");
    assert_eq!(said(&root.server(), &[&root.pem]), FINE);
}

#[test]
fn self_signed_certificates_are_accepted() {
    assert_eq!(said(&self_signed(|_| {}), &[]), FINE);
    // The default of `openssl req -x509`.
    let of_ca = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    assert_eq!(said(&self_signed(of_ca), &[]), FINE);
}

#[test]
fn cross_signed_intermediates_are_accepted_in_either_order() {
    let (old, new) = (Authority::new("old root"), Authority::new("new root"));
    let middle = new.intermediate("middle");
    let crossed = old.cross_sign("middle", &middle);
    let own = middle.server();
    assert_eq!(said(&own, &[&middle.pem, &crossed]), FINE);
    assert_eq!(said(&own, &[&crossed, &middle.pem]), FINE);
    assert_eq!(said(&own, &[&crossed, &old.pem, &middle.pem, &new.pem]), FINE);
    // The new root, signed by the old one.
    let bridge = old.cross_sign("new root", &new);
    assert_eq!(said(&own, &[&middle.pem, &bridge]), FINE);
    assert_eq!(said(&own, &[&middle.pem, &bridge, &old.pem]), FINE);
}

#[test]
fn a_missing_intermediate_is_named() {
    let root = Authority::new("root");
    let middle = root.intermediate("middle");
    let own = middle.server();
    let error = "tls_certificate server.pem: certificate 2 (`CN=root`) did not sign certificate 1 \
                 (`CN=a server`): put the certificate of `CN=middle`, which did, behind that one, \
                 and remove what is not of its chain";
    assert_eq!(said(&own, &[&root.pem]), Err(error.to_owned()));
    let other = root.intermediate("other");
    let error = said(&own, &[&other.pem, &root.pem]).expect_err("an error");
    assert!(error.contains("certificate 2 (`CN=other`) did not sign certificate 1"), "{error}");
}

#[test]
fn an_unrelated_certificate_is_named() {
    let (root, foreign) = (Authority::new("root"), Authority::new("foreign"));
    let middle = root.intermediate("middle");
    let own = middle.server();
    let error = said(&own, &[&middle.pem, &foreign.pem]).expect_err("an error");
    let words = "certificate 3 (`CN=foreign`) did not sign certificate 2 (`CN=middle`): put the \
                 certificate of `CN=root`";
    assert!(error.contains(words), "{error}");
    let namesake = Authority::new("root");
    let error = said(&own, &[&middle.pem, &namesake.pem]).expect_err("an error");
    let words = "certificate 3 (`CN=root`) has the name of the issuer of certificate 2 \
                 (`CN=middle`), but another key: replace it";
    assert!(error.contains(words), "{error}");
    let error = said(&root.server(), &[&foreign.pem]).expect_err("an error");
    assert!(error.contains("certificate 2 (`CN=foreign`) did not sign certificate 1"), "{error}");
}

#[test]
fn certificates_that_peers_do_without_are_warned_of() {
    let (root, foreign) = (Authority::new("root"), Authority::new("foreign"));
    let middle = root.intermediate("middle");
    let own = middle.server();
    let stray = |number: usize, name: &str| {
        format!(
            "tls_certificate server.pem: certificate {number} (`CN={name}`) is no part of the \
             chain of certificate 1 (`CN=a server`): remove it"
        )
    };
    let complete = said(&own, &[&middle.pem, &root.pem, &foreign.pem]);
    assert_eq!(complete, Ok(vec![stray(4, "foreign")]));
    let sibling = root.intermediate("sibling").pem;
    assert_eq!(said(&own, &[&middle.pem, &sibling]), Ok(vec![stray(3, "sibling")]));
    let alone = said(&self_signed(|_| {}), &[&foreign.pem]);
    assert_eq!(alone, Ok(vec![stray(2, "foreign")]));
    let early = "tls_certificate server.pem: certificate 2 (`CN=root`) comes before those that it \
                 signed, which some peers refuse: put each certificate before the one that signed \
                 it";
    assert_eq!(said(&own, &[&root.pem, &middle.pem]), Ok(vec![early.to_owned()]));
}

#[test]
fn files_of_many_certificates_are_refused() {
    let ca = Authority::new("CA");
    let others = vec![ca.pem.as_str(); 32];
    let error = said(&ca.server(), &others).expect_err("an error");
    assert!(error.contains("the file has 33 certificates, more than 32: leave only"), "{error}");
}

#[test]
fn a_chain_for_servers_is_checked_too() {
    let (ca, files) = (Authority::new("CA"), Files::new());
    let mut own = ca.client();
    own.certificate.push_str(&Authority::new("foreign").pem);
    let error = Client::open(files.client_options(&ca, Some(&own))).expect_err("an error");
    assert_eq!(error.option_name(), "node_tls_certificate");
    assert!(error.message().contains("certificate 2 (`CN=foreign`) did not sign"), "{error}");
}

#[test]
fn a_server_needs_a_subject_alt_name_and_a_client_does_not() {
    let (ca, files) = (Authority::new("CA"), Files::new());
    let own = ca.issue(|params| params.distinguished_name.push(DnType::CommonName, "a server"));
    let error = said(&own, &[]).expect_err("an error");
    let words = "tls_certificate server.pem: the certificate of `CN=a server` has no \
                 subjectAltName, and clients look at no other name: have it issued with";
    assert!(error.starts_with(words), "{error}");
    Client::open(files.client_options(&ca, Some(&own))).expect("a client");
}

#[test]
fn hosts_of_a_certificate_are_those_that_clients_accept() {
    let files = Files::new();
    let names = ["*.shunt.example", "10.0.9.1", "2001:db8::1"].map(str::to_owned);
    let names = CertificateParams::new(names).expect("names").subject_alt_names;
    let own = self_signed(|params| params.subject_alt_names = names);
    let server = Server::open(files.server_options(&own)).expect("a server");
    let warning = |hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        server.hosts_warning(&hosts)
    };
    for host in ["one.shunt.example", "10.0.9.1", "2001:db8::1"] {
        assert_eq!(warning(&["10.9.9.9", host]), None);
    }
    assert_eq!(warning(&[]), None, "nobody knows them");
    let text = warning(&["10.9.9.9", "shunt.example"]).expect("a warning");
    let words = "the certificate is for *.shunt.example, 10.0.9.1, 2001:db8::1, and clients reach \
                 10.9.9.9, shunt.example: unless they connect by another of its names, add that \
                 to subjectAltName";
    assert!(text.starts_with("tls_certificate ") && text.ends_with(words), "{text}");
}
