//! Faults that the checks of a configuration find.

use super::super::{AdminAddress, HttpAddress, STREAMS_MAX, Secret, Window};
use super::*;

fn valid() -> Config {
    Config { contact_points: vec!["10.0.0.1".to_owned()], ..Config::default() }
}

fn keys(config: &Config) -> Vec<&'static str> {
    config.problems().iter().map(|problem| problem.key).collect()
}

#[test]
fn the_defaults_need_only_a_contact_point() {
    assert_eq!(valid().problems(), []);
    assert_eq!(keys(&Config::default()), ["contact_points"]);
}

#[test]
fn a_proxy_must_not_be_its_own_node() {
    let mut config = valid();
    config.contact_points = vec!["127.0.0.1".to_owned()];
    assert_eq!(keys(&config), ["contact_points"]);
    config.contact_points = vec!["127.0.0.1:9043".to_owned()];
    assert_eq!(config.problems(), []);
    config.listen.tcp = vec!["0.0.0.0:9043".parse().expect("address")];
    assert_eq!(keys(&config), ["contact_points"]);
}

#[test]
fn every_bound_is_checked() {
    let mut config = valid();
    config.cores = 0;
    config.in_flight_max = STREAMS_MAX + 1;
    config.frame_bytes_max = 10;
    config.query_timeout_ms = 0;
    config.window_us = Window::Fixed { us: 1_000_000 };
    config.admin = config.listen.tcp.first().copied().map(AdminAddress::from);
    config.advertise = Some("0.0.0.0:9042".parse().expect("address"));
    config.username = Some(String::new());
    config.password = Some(Secret::new("x"));
    config.node_port = Some(0);
    config.local_datacentre = Some(String::new());
    let mut found = keys(&config);
    found.sort_unstable();
    let mut expected = [
        "admin",
        "advertise",
        "node_port",
        "query_timeout_ms",
        "window_us",
        "cores",
        "in_flight_max",
        "frame_bytes_max",
        "username",
        "local_datacentre",
    ];
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn locks_over_http_need_a_fleet_and_an_address_of_their_own() {
    let with = |http: &str, fleet: Option<&str>| Config {
        locks_http: Some(HttpAddress::from(http.parse::<SocketAddr>().expect("address"))),
        fleet: fleet.map(str::to_owned),
        ..valid()
    };
    assert_eq!(with("127.0.0.1:9190", Some("main")).problems(), []);
    for (http, fleet) in
        [("127.0.0.1:9190", None), ("127.0.0.1:9042", Some("main")), ("0.0.0.0:9180", Some("main"))]
    {
        assert_eq!(keys(&with(http, fleet)), ["locks_http"], "{http} {fleet:?}");
    }
}

#[test]
fn options_of_locks_need_a_fleet_unless_they_are_the_default() {
    let with = |fleet: Option<&str>| Config {
        fleet: fleet.map(str::to_owned),
        fleet_replicas_min: 1,
        fleet_state: Some("/run/shunt/fleet".into()),
        lock_wait_max_ms: 30_000,
        lock_rows_kept_ms: 0,
        transaction_commit: crate::config::Commit::Lwt,
        locks_http: Some(HttpAddress::from(SocketAddr::from(([127, 0, 0, 1], 9190)))),
        fleet_tls: Switch::On,
        fleet_tls_ca: Some("ca.crt".into()),
        fleet_tls_name: Some("shunt.example".to_owned()),
        tls: Tls::Optional,
        tls_certificate: Some("tls.crt".into()),
        tls_key: Some("tls.key".into()),
        ..valid()
    };
    assert_eq!(with(Some("main")).problems(), []);
    let problems = with(None).problems();
    let found: Vec<&str> = problems.iter().map(|problem| problem.key).collect();
    let fleet =
        OPTIONS.iter().filter(|option| option.section == FLEET_SECTION).map(|option| option.key);
    assert_eq!(found, fleet.filter(|key| *key != "fleet").collect::<Vec<_>>());
    assert_eq!(found.len(), 9);
    for Problem { key, message } in &problems {
        assert!(
            message.contains("set fleet") && message.ends_with(&format!("remove {key}")),
            "{message}"
        );
    }
}

#[test]
fn tls_needs_its_files_and_contradictions_are_named() {
    let whole = || Config {
        tls: Tls::Required,
        tls_certificate: Some("tls.crt".into()),
        tls_key: Some("tls.key".into()),
        ..valid()
    };
    let mutual = |auth, ca: Option<&str>| Config {
        tls_client_auth: auth,
        tls_client_ca: ca.map(Into::into),
        ..whole()
    };
    assert_eq!(whole().problems(), []);
    assert_eq!(mutual(ClientAuth::Required, Some("ca.crt")).problems(), []);
    let bare = Config { tls: Tls::Optional, ..valid() };
    assert_eq!(keys(&bare), ["tls_certificate", "tls_key"]);
    assert_eq!(keys(&mutual(ClientAuth::Optional, None)), ["tls_client_auth"]);
    assert_eq!(keys(&mutual(ClientAuth::None, Some("ca.crt"))), ["tls_client_ca"]);
    let handover = |tls| Config {
        tls,
        handover: Handover::Auto,
        handover_key_file: Some("key".into()),
        ..whole()
    };
    assert_eq!(keys(&handover(Tls::Required)), ["handover"]);
    assert_eq!(handover(Tls::Optional).problems(), []);
    let member = |tls| Config { tls, fleet: Some("main".to_owned()), ..whole() };
    assert_eq!(keys(&member(Tls::Required)), ["fleet_tls"]);
    assert_eq!(member(Tls::Optional).problems(), []);
    let secured = |tls| Config { fleet_tls: Switch::On, ..member(tls) };
    assert_eq!(keys(&secured(Tls::Off)), ["fleet_tls"]);
    assert_eq!(secured(Tls::Optional).problems(), []);
    assert_eq!(secured(Tls::Required).problems(), []);
}

#[test]
fn contradictions_of_tls_to_nodes_are_named() {
    let nodes = Config { node_tls: Switch::On, ..valid() };
    assert_eq!(nodes.problems(), [], "the authorities of the system");
    let lone = Config { node_tls_certificate: Some("a.crt".into()), ..nodes.clone() };
    assert_eq!(keys(&lone), ["node_tls_certificate"]);
    let lone = Config { node_tls_key: Some("a.key".into()), ..nodes.clone() };
    assert_eq!(keys(&lone), ["node_tls_key"]);
    assert_eq!(Config { node_tls: Switch::Off, ..lone.clone() }.problems(), []);
    let whole = Config { node_tls_certificate: Some("a.crt".into()), ..lone };
    assert_eq!(whole.problems(), []);
    let verified = |verify| Config {
        node_tls_verify: verify,
        node_tls_ca: Some("ca.crt".into()),
        node_tls_name: Some("nodes".to_owned()),
        ..nodes.clone()
    };
    assert_eq!(verified(Verify::Full).problems(), []);
    assert_eq!(keys(&verified(Verify::Ca)), ["node_tls_name"]);
    assert_eq!(keys(&verified(Verify::None)), ["node_tls_name", "node_tls_ca"]);
    let handover =
        Config { handover: Handover::Auto, handover_key_file: Some("key".into()), ..nodes.clone() };
    assert_eq!(keys(&handover), ["handover"]);
    let off = Config { node_tls: Switch::Off, ..verified(Verify::None) };
    assert_eq!(off.idle_node_tls(), ["node_tls_ca", "node_tls_verify", "node_tls_name"]);
}

#[test]
fn tls_to_agents_needs_both_files_of_its_certificate() {
    let agents = Config {
        handover: Handover::Auto,
        handover_key_file: Some("key".into()),
        handover_tls: Switch::On,
        ..valid()
    };
    assert_eq!(agents.problems(), []);
    let key = Config { handover_tls_key: Some("a.key".into()), ..agents.clone() };
    assert_eq!(keys(&key), ["handover_tls_key"]);
    let certificate = Config { handover_tls_certificate: Some("a.crt".into()), ..agents };
    assert_eq!(keys(&certificate), ["handover_tls_certificate"]);
    let off = Config { handover_tls: Switch::Off, ..certificate };
    assert_eq!(
        (off.problems(), off.idle_handover_tls()),
        (vec![], vec!["handover_tls_certificate"])
    );
    let none = Config { handover: Handover::Off, handover_key_file: None, ..off };
    assert_eq!(keys(&none), ["handover_tls_certificate"]);
}

#[test]
fn options_of_tls_may_stand_while_it_is_off_and_are_listed() {
    let off = Config {
        tls_certificate: Some("tls.crt".into()),
        tls_client_auth: ClientAuth::Required,
        tls_threads: 2,
        ..valid()
    };
    assert_eq!(off.problems(), []);
    assert_eq!(off.idle_tls(), ["tls_certificate", "tls_client_auth", "tls_threads"]);
    assert_eq!(Config { tls: Tls::Required, ..off }.idle_tls(), Vec::<&str>::new());
}

#[test]
fn options_that_need_a_restart_are_found() {
    let old = valid();
    let contact_points = old.listen.tcp.iter().map(ToString::to_string).collect();
    let new = Config {
        listen: vec!["127.0.0.1:9999".parse::<SocketAddr>().expect("address")].into(),
        contact_points,
        ..valid()
    };
    assert_eq!(keys(&new), Vec::<&str>::new());
    assert_eq!(keys(&old.reloaded(&new).config), ["contact_points"]);
}

#[test]
fn reload_keeps_what_needs_a_restart() {
    let old = valid();
    let new = Config { cores: 7, clients_max: 5, ..valid() };
    let reloaded = old.reloaded(&new);
    assert_eq!((reloaded.config.cores, reloaded.config.clients_max), (old.cores, 5));
    assert_eq!((reloaded.changed, reloaded.waiting), (vec!["clients_max"], vec!["cores"]));
}

#[test]
fn a_login_is_told_of_as_one() {
    let on =
        Config { node_tls: Switch::On, node_tls_ca: Some("/etc/shunt/ca.crt".into()), ..valid() };
    let reloaded = on.reloaded(&valid());
    assert_eq!(reloaded.waiting, ["node_tls", "node_tls_ca"], "no half of TLS is left");
    assert_eq!(reloaded.config.node_tls_ca, on.node_tls_ca);
    let other = Config { node_tls_ca: Some("/etc/shunt/other.crt".into()), ..on.clone() };
    assert_eq!(on.reloaded(&other).changed, ["node_tls_ca"]);
    let login = |password| Config {
        username: Some("shunt".to_owned()),
        password: Some(Secret::new(password)),
        ..valid()
    };
    assert_eq!(valid().reloaded(&login("old")).changed, ["username"]);
    let moved = Config { password_file: Some("elsewhere".into()), ..login("old") };
    assert_eq!(login("old").reloaded(&moved).changed, Vec::<&str>::new());
    let reloaded = login("old").reloaded(&login("new"));
    assert_eq!(reloaded.changed, ["username"]);
    assert_eq!(reloaded.config.credentials(), login("new").credentials());
}
