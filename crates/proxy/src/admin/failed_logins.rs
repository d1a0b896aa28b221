//! The page of failed logins: the module asks the cores for their records, and adds up equal
//! ones.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use shunt_admin::Label as _;
use shunt_reactor::ClientHost;

use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
use crate::client::refused_logins::{CoreRefusedLogins, RefusedLogin};
use crate::control::{CoreMail, Mailbox};
use crate::limits;

/// Name of the page.
pub(super) const PAGE: &str = "failed_logins";

/// The records, asked from the cores.
#[derive(Debug)]
pub(super) struct FailedLogins(CachedAnswer);

impl FailedLogins {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes))
    }

    /// The failed logins of all cores, the latest first.
    pub(super) async fn page(&self) -> Value {
        self.0.recent(|mailboxes| ask_cores(mailboxes, PATIENCE)).await
    }
}

/// Equal failed logins of all cores: the latest, their number, and the ages of the first and of the
/// last, nanoseconds. The clocks of the cores have no common start.
struct Alike {
    latest: RefusedLogin,
    count: u64,
    first_age_ns: u64,
    last_age_ns: u64,
}

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration) -> Value {
    let mut all = HashMap::<(Box<str>, ClientHost, usize), Alike>::new();
    let take = |CoreRefusedLogins { core, now_ns, logins }| {
        for login in logins {
            let key = (login.role.clone(), login.address.host(), login.reason.index());
            let age_ns = |at_ns: u64| now_ns.saturating_sub(at_ns);
            let (first_age_ns, last_age_ns) = (age_ns(login.first_ns), age_ns(login.last_ns));
            let count = login.count;
            match all.get_mut(&key) {
                None => {
                    all.insert(key, Alike { latest: login, count, first_age_ns, last_age_ns });
                }
                Some(alike) => {
                    alike.count += count;
                    alike.first_age_ns = alike.first_age_ns.max(first_age_ns);
                    if last_age_ns < alike.last_age_ns {
                        (alike.latest, alike.last_age_ns) = (login, last_age_ns);
                    }
                }
            }
        }
        core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::RefusedLogins, take).await;
    let mut all: Vec<Alike> = all.into_values().collect();
    all.sort_by_key(|alike| (alike.last_age_ns, Reverse(alike.count)));
    let all = first_of_each_host(all, limits::REFUSED_LOGINS_MAX);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "failed_logins": all.iter().map(|alike| shown(alike, now)).collect::<Vec<_>>(),
        "cores_missing": missing,
    })
}

/// Leaves `most` rows, in the same order: the first row of each host, then the second of each, and
/// so on. A host that tries many roles must never push the rows of other hosts out.
fn first_of_each_host(rows: Vec<Alike>, most: usize) -> Vec<Alike> {
    let mut of_hosts = HashMap::<ClientHost, usize>::new();
    let ranked = rows.into_iter().enumerate().map(|(place, alike)| {
        let rank = of_hosts.entry(alike.latest.address.counted_host()).or_default();
        *rank += 1;
        (*rank, place, alike)
    });
    let mut ranked: Vec<(usize, usize, Alike)> = ranked.collect();
    ranked.sort_by_key(|(rank, place, _)| (*rank, *place));
    ranked.truncate(most);
    ranked.sort_by_key(|(_, place, _)| *place);
    ranked.into_iter().map(|(.., alike)| alike).collect()
}

fn shown(alike: &Alike, now: Duration) -> Value {
    let Alike { latest, count, first_age_ns, last_age_ns } = alike;
    let at_ms = |age_ns| now.saturating_sub(Duration::from_nanos(age_ns)).as_millis() as u64;
    let driver = latest.driver.as_deref();
    json!({
        "role": latest.role,
        "address": latest.address.host().to_string(),
        "client": latest.address.to_string(),
        "identity": latest.identity.as_deref(),
        "application": driver.map(|driver| &driver.application).filter(|name| !name.is_empty()),
        "driver": driver.map(|driver| &driver.name).filter(|name| !name.is_empty()),
        "reason": latest.reason.text(),
        "why": latest.why,
        "count": count,
        "first_unix_ms": at_ms(*first_age_ns),
        "last_unix_ms": at_ms(*last_age_ns),
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::metrics::Closing;

    fn core(index: usize, role: &'static str, count: u64, last_ns: u64) -> Mailbox {
        Box::new(move |mail| {
            let CoreMail::RefusedLogins(answer) = mail else { panic!("{mail:?}") };
            let login = RefusedLogin {
                role: role.into(),
                address: SocketAddr::from(([192, 0, 2, 1], 1 + index as u16)).into(),
                identity: None,
                driver: None,
                reason: Closing::Authentication,
                why: format!("said by core {index}").into(),
                count,
                first_ns: 0,
                last_ns,
            };
            let logins = vec![login];
            answer
                .try_send(CoreRefusedLogins { core: index, now_ns: 9_000_000_000, logins })
                .expect("room for every core");
            Ok(())
        })
    }

    #[tokio::test]
    async fn logins_that_are_alike_on_several_cores_are_one_row() {
        let cores = [
            core(0, "shop", 3, 5_000_000_000),
            core(1, "shop", 4, 8_000_000_000),
            core(2, "cron", 1, 7_000_000_000),
            Box::new(Err),
        ];
        let page = FailedLogins::new(cores.into()).page().await;
        let rows = page["failed_logins"].as_array().expect("a list");
        let shown: Vec<_> = rows.iter().map(|row| (&row["role"], &row["count"])).collect();
        assert_eq!(shown, [(&json!("shop"), &json!(7)), (&json!("cron"), &json!(1))]);
        assert_eq!(
            (&rows[0]["client"], &rows[0]["why"]),
            (&json!("192.0.2.1:2"), &json!("said by core 1"))
        );
        let time = |key: &str| rows[0][key].as_u64().expect("a time");
        assert_eq!(time("last_unix_ms") - time("first_unix_ms"), 8_000);
        assert_eq!(page["cores_missing"], json!([3]));
    }

    #[tokio::test]
    async fn a_host_with_many_roles_pushes_no_other_host_off_the_page() {
        const MOST: usize = limits::REFUSED_LOGINS_MAX;
        let of = |host: u8, role: String, last_ns: u64| RefusedLogin {
            role: role.into(),
            address: SocketAddr::from(([192, 0, 2, host], 1)).into(),
            identity: None,
            driver: None,
            reason: Closing::Authentication,
            why: "no".into(),
            count: 1,
            first_ns: 0,
            last_ns,
        };
        // Each core has room for the old one, and many new ones.
        let core = move |index: usize| -> Mailbox {
            Box::new(move |mail| {
                let CoreMail::RefusedLogins(answer) = mail else { panic!("{mail:?}") };
                let many = (1..MOST).map(|number| of(1, format!("{index} {number}"), 8));
                let logins = many.chain([of(2, "shop".to_owned(), 1)]).collect();
                answer
                    .try_send(CoreRefusedLogins { core: index, now_ns: 9, logins })
                    .expect("room for every core");
                Ok(())
            })
        };
        let page = FailedLogins::new([core(0), core(1)].into()).page().await;
        let rows = page["failed_logins"].as_array().expect("a list");
        assert_eq!(rows.len(), MOST);
        let last = rows.last().expect("a row");
        assert_eq!((&last["role"], &last["count"]), (&json!("shop"), &json!(2)));
    }
}
