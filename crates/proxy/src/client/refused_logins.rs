//! The logins that have failed lately, by role, host and reason, for the admin pages.
//!
//! A client can claim any role, so the record has a bound. When an entry needs room, the host with
//! the most entries loses its oldest one: a flood of roles from one host displaces only its own
//! entries. An IPv6 network of 64 bits is one host there, because a single client may use all of
//! its addresses.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_admin::Label as _;
use shunt_reactor::{ClientAddress, ClientHost};
use shunt_wire::printable::printable_to;
use tokio::sync::mpsc;

use crate::client::identity::{Driver, Who};
use crate::limits;
use crate::metrics::Closing;

/// Failed logins with the same role, host and reason. All texts are printable and of bounded
/// length.
#[derive(Clone, Debug)]
pub struct RefusedLogin {
    /// Role that the client claimed.
    pub role: Box<str>,
    /// Client of the last one.
    pub address: ClientAddress,
    /// Identity by certificate.
    pub identity: Option<Arc<str>>,
    /// Driver of the last one.
    pub driver: Option<Arc<Driver>>,
    /// Reason, as metrics name it.
    pub reason: Closing,
    /// Reason of the last one in words: mostly a node's.
    pub why: Box<str>,
    /// Number of them.
    pub count: u64,
    /// Times of the first and of the last one, on the clock of the core.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
}

/// The record of one core.
#[derive(Debug)]
pub struct CoreRefusedLogins {
    /// Number of the core.
    pub core: usize,
    /// Time of the answer, on the clock of the core.
    pub now_ns: u64,
    /// Failed logins, in no order.
    pub logins: Vec<RefusedLogin>,
}

/// Role, host, and number of the reason.
type Key = (Box<str>, ClientHost, usize);

/// The owner of a core's record.
#[derive(Default)]
pub(crate) struct RefusedLogins(HashMap<Key, RefusedLogin>);

impl RefusedLogins {
    /// Notes a client that was closed because its login failed. `why` may quote a node.
    pub(crate) fn note(&mut self, who: &Who, reason: Closing, why: &str, now_ns: u64) {
        let is_login = matches!(
            reason,
            Closing::Authentication | Closing::LoginUnchecked | Closing::NoIdentity
        );
        if !is_login {
            return;
        }
        let host = who.address.host();
        let key = (Box::from(who.role()), host, reason.index());
        if !self.0.contains_key(&key) && self.0.len() >= limits::REFUSED_LOGINS_MAX {
            self.make_room();
        }
        let new = || RefusedLogin {
            role: who.role().into(),
            address: who.address,
            identity: None,
            driver: None,
            reason,
            why: "".into(),
            count: 0,
            first_ns: now_ns,
            last_ns: now_ns,
        };
        let login = self.0.entry(key).or_insert_with(new);
        login.count += 1;
        login.last_ns = now_ns;
        login.address = who.address;
        login.identity.clone_from(&who.identity);
        login.driver.clone_from(&who.driver);
        login.why = printable_to(why, limits::REASON_SHOWN_BYTES_MAX).into();
    }

    /// Forgets the oldest entry of the host that has most.
    fn make_room(&mut self) {
        let mut hosts = HashMap::<ClientHost, usize>::new();
        let host_of = |login: &RefusedLogin| login.address.counted_host();
        self.0.values().for_each(|login| *hosts.entry(host_of(login)).or_default() += 1);
        let Some(most) = hosts.values().copied().max() else { return };
        let of_most = self.0.iter().filter(|(_, login)| hosts.get(&host_of(login)) == Some(&most));
        let oldest = of_most.min_by_key(|(_, login)| login.last_ns).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.0.remove(&key);
        }
    }

    /// Answers the admin pages.
    pub(crate) fn report(
        &self,
        core: usize,
        now_ns: u64,
        answer: &mpsc::Sender<CoreRefusedLogins>,
    ) {
        let logins = self.0.values().cloned().collect();
        // The requester has gone, or has room for the answer of each core.
        let _ = answer.try_send(CoreRefusedLogins { core, now_ns, logins });
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::client::identity::PoolNames;

    fn who(role: &str, host: u8, port: u16) -> Who {
        let token = format!("\0{role}\0secret");
        let names = PoolNames::new(Some(token.as_bytes()), None);
        let address = SocketAddr::from(([192, 0, 2, host], port));
        Who::new(address.into(), Some(&names), None)
    }

    #[test]
    fn logins_that_are_alike_are_one_entry_with_the_last_reason() {
        let mut record = RefusedLogins::default();
        for port in 1..=3 {
            let why = format!("no {port}");
            record.note(&who("shop", 1, port), Closing::Authentication, &why, port.into());
        }
        record.note(&who("shop", 2, 9), Closing::Authentication, "no", 4);
        record.note(&who("shop", 1, 9), Closing::Operator, "no login", 5);
        assert_eq!(record.0.len(), 2);
        let key = ("shop".into(), who("", 1, 0).address.host(), Closing::Authentication.index());
        let login = &record.0[&key];
        assert_eq!((login.count, login.first_ns, login.last_ns), (3, 1, 3));
        assert_eq!((&*login.why, login.address.to_string()), ("no 3", "192.0.2.1:3".to_owned()));
    }

    #[test]
    fn a_host_with_many_roles_pushes_out_no_other() {
        let mut record = RefusedLogins::default();
        record.note(&who("shop", 2, 1), Closing::Authentication, "no", 0);
        for number in 0..10 * limits::REFUSED_LOGINS_MAX as u64 {
            let who = who(&format!("role{number}"), 1, 1);
            record.note(&who, Closing::Authentication, "no", 1 + number);
            assert!(record.0.len() <= limits::REFUSED_LOGINS_MAX);
        }
        let roles = || record.0.keys().map(|(role, ..)| &**role);
        assert!(roles().any(|role| role == "shop"), "the oldest of all stays");
        let last = format!("role{}", 10 * limits::REFUSED_LOGINS_MAX - 1);
        assert!(roles().any(|role| role == last));
    }

    #[test]
    fn a_client_with_many_addresses_pushes_out_no_other() {
        let mut record = RefusedLogins::default();
        record.note(&who("shop", 2, 1), Closing::Authentication, "no", 0);
        let names = PoolNames::new(Some(b"\0eve\0secret"), None);
        for number in 0..2 * limits::REFUSED_LOGINS_MAX as u16 {
            let address = std::net::Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, number);
            let who = Who::new(SocketAddr::from((address, 1)).into(), Some(&names), None);
            record.note(&who, Closing::Authentication, "no", u64::from(number) + 1);
        }
        assert!(record.0.len() <= limits::REFUSED_LOGINS_MAX);
        assert!(record.0.keys().any(|(role, ..)| &**role == "shop"));
    }
}
