//! Chains of certificates: those that are verified, and those that are refused unread.

use rcgen::SanType;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error};

use super::authority::{Authority, Files, Pair, client_names, server};
use super::link::{End, Plain, client_config, pair, shake};
use crate::{Client, ClientAuth, Server, Verify};

const TOO_MANY: &str = "the peer's chain has more than 5 intermediate certificates";
const TOO_LARGE: &str = "the peer's chain of certificates is larger than 24 KiB";

/// A certificate `count` authorities below `ca`, with their certificates behind it.
fn below(ca: &Authority, count: usize, issue: impl Fn(&Authority) -> Pair) -> Pair {
    let mut authorities: Vec<Authority> = Vec::new();
    for number in 0..count {
        let next = authorities.last().unwrap_or(ca).intermediate(&format!("CA {number}"));
        authorities.push(next);
    }
    let mut pair = issue(authorities.last().unwrap_or(ca));
    for authority in authorities.iter().rev() {
        pair.certificate.push_str(&authority.pem);
    }
    pair
}

/// What a server finds wrong with a client of this certificate, with each version.
fn faults(ca: &Authority, own: &Pair) -> [&'static str; 2] {
    let server = server(ca, ClientAuth::Required);
    [&TLS12, &TLS13].map(|version| {
        let mut plain = Plain::client(client_config(ca, Some(own), &[version]));
        let mut end = End::new(server.session());
        shake(&mut plain, &mut end);
        let alert = Error::AlertReceived(AlertDescription::CertificateUnknown);
        assert_eq!(plain.error == Some(alert), end.fault.is_some());
        end.fault()
    })
}

#[test]
fn clients_chains_have_five_intermediates_at_most() {
    let ca = Authority::new("CA");
    assert_eq!(faults(&ca, &below(&ca, 5, Authority::client)), ["none"; 2]);
    assert_eq!(faults(&ca, &below(&ca, 6, Authority::client)), [TOO_MANY; 2]);
}

#[test]
fn clients_chains_have_a_length() {
    let ca = Authority::new("CA");
    let with_names = |count: usize| {
        ca.issue(|params| {
            client_names(params);
            for number in 0..count {
                let name = format!("{number:0>100}.example");
                params.subject_alt_names.push(SanType::DnsName(name.try_into().expect("a name")));
            }
        })
    };
    assert_eq!(faults(&ca, &with_names(200)), ["none"; 2]);
    assert_eq!(faults(&ca, &with_names(250)), [TOO_LARGE; 2]);
}

#[test]
fn certificates_of_one_name_are_refused_before_any_search() {
    let ca = Authority::new("CA");
    let mut own = ca.client();
    for _ in 0..10 {
        own.certificate.push_str(&Authority::new("one name").pem);
    }
    let filler = Authority::new("another name").pem;
    own.certificate.push_str(&filler.repeat(90));
    assert_eq!(faults(&ca, &own), [TOO_MANY; 2]);
}

#[test]
fn nodes_chains_have_five_intermediates_at_most() {
    let ca = Authority::new("CA");
    for (count, verify, fault) in [
        (5, Verify::Full, "none"),
        (5, Verify::Ca, "none"),
        (6, Verify::Full, TOO_MANY),
        (6, Verify::Ca, TOO_MANY),
        (6, Verify::None, "none"),
    ] {
        let files = Files::new();
        let own = below(&ca, count, Authority::server);
        let node = Server::open(files.server_options(&own)).expect("a node");
        let mut options = files.client_options(&ca, None);
        options.verify = verify;
        let client = Client::open(options).expect("a client");
        let (client, _) = pair(client.session("localhost"), node.session());
        assert_eq!(client.fault(), fault, "{count} {verify}");
    }
}
