//! The clients that an operator wants closed, and the state of closing them.

use std::sync::Arc;

use shunt_reactor::ClientHost;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::client::identity::PoolNames;
use crate::config::Network;
use crate::ids::ClientRef;

/// A condition on a name that a client may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameCondition {
    /// The client has this name.
    Is(String),
    /// The client has none.
    Missing,
}

impl NameCondition {
    fn is_met(&self, name: Option<&str>) -> bool {
        match self {
            NameCondition::Is(wanted) => name == Some(wanted),
            NameCondition::Missing => name.is_none(),
        }
    }

    /// The name, for a line of the log.
    pub fn text(&self) -> &str {
        match self {
            NameCondition::Is(name) => name,
            NameCondition::Missing => "(none)",
        }
    }
}

/// Conditions on clients. A client is selected if it meets every condition that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Role of the login, whole.
    pub role: Option<NameCondition>,
    /// Address without its port, or a network.
    pub address: Option<Network>,
    /// Name of the application.
    pub application: Option<NameCondition>,
    /// Address with its port, as the log and the page of slow queries show it.
    pub id: Option<String>,
}

impl Selection {
    /// True if there is no condition, so that every client is selected.
    pub fn is_everyone(&self) -> bool {
        *self == Self::default()
    }

    /// True if a client is selected whose pool has these names.
    pub(crate) fn is_meant(&self, client: &Client, names: Option<&PoolNames>) -> bool {
        // Pages show a shortened role.
        let role = names.and_then(|names| names.whole_role.as_deref());
        let application = client.driver.as_deref().map(|driver| &*driver.application);
        let application = application.filter(|name| !name.is_empty());
        let is_in = |network: Network| match client.peer.host() {
            ClientHost::Network(address) => network.contains(address),
            ClientHost::User(_) => false,
        };
        self.role.as_ref().is_none_or(|wanted| wanted.is_met(role))
            && self.application.as_ref().is_none_or(|wanted| wanted.is_met(application))
            && self.address.is_none_or(is_in)
            && self.id.as_deref().is_none_or(|wanted| client.peer.to_string() == wanted)
    }
}

/// The outcome on one core.
#[derive(Debug)]
pub struct CoreEviction {
    /// Number of the core.
    pub core: usize,
    /// Clients that were closed.
    pub closed: u64,
}

/// The clients of a selection while they are being closed.
pub(crate) struct Eviction {
    pub(crate) selection: Arc<Selection>,
    pub(crate) answer: mpsc::Sender<CoreEviction>,
    /// Slot of the next client.
    pub(crate) next: usize,
    pub(crate) closed: u64,
    /// Clients whose connections are away, or were when their turn came.
    pub(crate) away: Vec<ClientRef>,
    /// Time at which clients are closed wherever their connections are.
    pub(crate) until_ns: u64,
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use shunt_reactor::ConnId;

    use super::*;
    use crate::client::clients::Clients;
    use crate::client::identity::Driver;
    use crate::config::Kind as _;

    #[test]
    fn a_client_is_meant_if_it_meets_each_condition() {
        let mut clients = Clients::default();
        let conn = ConnId { index: 0, generation: 0 };
        let local = "127.0.0.1:9042".parse().expect("address");
        let peer = SocketAddr::from(([10, 0, 4, 7], 51_234));
        let slot = clients.insert(conn, local, peer.into(), 0);
        let driver = Driver { name: "D".into(), version: "1".into(), application: "shop".into() };
        let client = clients.get_mut(slot).expect("client");
        client.driver = Some(Arc::new(driver));
        let network = |text: &str| Network::from_text(text).ok();
        let text = |text: &str| Some(text.to_owned());
        let name = |name: &str| Some(NameCondition::Is(name.to_owned()));
        let missing = || Some(NameCondition::Missing);
        let none = Selection::default();
        for (selection, is_meant) in [
            (none.clone(), true),
            (Selection { application: name("shop"), ..none.clone() }, true),
            (Selection { application: name("cron"), ..none.clone() }, false),
            (Selection { address: network("10.0.4.0/24"), ..none.clone() }, true),
            (Selection { address: network("10.0.5.0/24"), ..none.clone() }, false),
            (Selection { id: text("10.0.4.7:51234"), ..none.clone() }, true),
            (Selection { id: text("10.0.4.7"), ..none.clone() }, false),
            (Selection { role: name("shop"), ..none.clone() }, false),
            (Selection { role: missing(), ..none.clone() }, true),
            (Selection { application: missing(), ..none.clone() }, false),
            (Selection { role: missing(), application: name("cron"), ..none.clone() }, false),
            (
                Selection {
                    application: name("shop"),
                    address: network("10.0.5.0/24"),
                    ..none.clone()
                },
                false,
            ),
        ] {
            assert_eq!(selection.is_meant(client, None), is_meant, "{selection:?}");
            assert_eq!(selection.is_everyone(), selection == none);
        }
        for name in ["", "shop"] {
            let (driver, version) = ("D".into(), "1".into());
            let driver = Driver { name: driver, version, application: name.into() };
            clients.get_mut(slot).expect("client").driver = Some(Arc::new(driver));
            let client = clients.get(slot).expect("client");
            let selection = Selection { application: missing(), ..none.clone() };
            assert_eq!(selection.is_meant(client, None), name.is_empty());
        }
    }

    #[test]
    fn a_role_is_meant_by_its_whole_name() {
        let mut clients = Clients::default();
        let conn = ConnId { index: 0, generation: 0 };
        let local = "127.0.0.1:9042".parse().expect("address");
        let slot = clients.insert(conn, local, SocketAddr::from(([10, 0, 4, 7], 1)).into(), 0);
        let client = clients.get(slot).expect("client");
        let role = "a_role_of_a_service_with_a_long_name".repeat(3);
        let names = PoolNames::new(Some(format!("\0{role}\0secret").as_bytes()), None);
        let is_meant = |role: &str| {
            let role = Some(NameCondition::Is(role.to_owned()));
            Selection { role, ..Selection::default() }.is_meant(client, Some(&names))
        };
        assert!(is_meant(&role));
        assert!(!is_meant(&role[..64]) && !is_meant(&format!("{role}2")));
        assert!(!is_meant(names.role.as_deref().expect("a role")), "others may begin like it");
        let missing = Selection { role: Some(NameCondition::Missing), ..Selection::default() };
        assert!(!missing.is_meant(client, Some(&names)));
    }
}
