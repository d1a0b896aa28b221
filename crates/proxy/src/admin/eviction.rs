//! The change that closes clients: the module reads the conditions, and asks the cores.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use shunt_admin::Change;
use shunt_wire::printable::printable_to;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::config_changes::{PAUSE, refused};
use super::core_answers::{PATIENCE, ask_all};
use crate::client::selection::{CoreEviction, NameCondition, Selection};
use crate::config::{Kind as _, Network};
use crate::control::{CoreMail, Mailbox};
use crate::limits;

/// Name of the change.
pub(super) const KICK: &str = "kick";

/// The cores, which close their clients.
pub(super) struct Evictions {
    mailboxes: Arc<[Mailbox]>,
    /// Held by the eviction under way, with the time of the next.
    running: Mutex<Option<Instant>>,
}

impl fmt::Debug for Evictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Evictions")
    }
}

impl Evictions {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self { mailboxes, running: Mutex::default() }
    }

    /// Closes the clients that meet the conditions, or all clients if `all` is true and there is
    /// none. A core carries out one eviction at a time.
    pub(super) fn kick(&self, parameters: &Value, from: IpAddr) -> Change<'_> {
        let selection = match selection(parameters) {
            Ok(selection) => Arc::new(selection),
            Err(why) => return refused(why),
        };
        Box::pin(async move {
            let Ok(mut running) = self.running.try_lock() else {
                return Err(
                    json!({ "error": "another kick is running; try again when it has ended" }),
                );
            };
            if let Some(due) = running.filter(|due| *due > Instant::now()) {
                sleep_until(due).await;
            }
            *running = Some(Instant::now() + PAUSE);
            let mut closed = 0;
            let question = |answer| CoreMail::Kick(Arc::clone(&selection), answer);
            let take = |outcome: CoreEviction| {
                closed += outcome.closed;
                outcome.core
            };
            let missing = ask_all(&self.mailboxes, PATIENCE, question, take).await;
            let Selection { role, address, application, id } = &*selection;
            info!(
                closed,
                %from,
                role = role.as_ref().map(shown),
                address = address.map(display),
                application = application.as_ref().map(shown),
                id = id.as_deref().map(|id| printable_to(id, limits::NAME_SHOWN_BYTES_MAX)),
                all = selection.is_everyone(),
                cores_missing = ?missing,
                "an operator has closed clients"
            );
            Ok(json!({ "closed": closed, "cores_missing": missing }))
        })
    }
}

/// A condition in the log. The sender may have written a name of any length.
fn shown(condition: &NameCondition) -> String {
    printable_to(condition.text(), limits::NAME_SHOWN_BYTES_MAX)
}

/// Sets a condition on a name, which a request may give once.
fn set(
    condition: &mut Option<NameCondition>,
    key: &str,
    wanted: NameCondition,
) -> Result<(), String> {
    match condition.replace(wanted) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}` contradicts another condition")),
    }
}

/// The selection of a request.
fn selection(parameters: &Value) -> Result<Selection, String> {
    let parameters = parameters.as_object().ok_or("an object is expected")?;
    let (mut selection, mut all) = (Selection::default(), false);
    for (key, value) in parameters {
        let text = || {
            let text = value.as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or_else(|| format!("`{key}`: a text is expected"))
        };
        match key.as_str() {
            // Pages and the log cut long roles, and several may have the same beginning.
            "role" if value.as_str().is_some_and(|role| role.ends_with('…')) => {
                return Err("`role` was shortened for display; give the whole role".to_owned());
            }
            "role" => set(&mut selection.role, key, NameCondition::Is(text()?))?,
            "application" => set(&mut selection.application, key, NameCondition::Is(text()?))?,
            "without_role" | "without_application" if value != &Value::Bool(true) => {
                return Err(format!("`{key}`: true is expected"));
            }
            "without_role" => set(&mut selection.role, key, NameCondition::Missing)?,
            "without_application" => set(&mut selection.application, key, NameCondition::Missing)?,
            "id" => selection.id = Some(text()?),
            "address" => {
                let network = Network::from_text(&text()?);
                selection.address = Some(network.map_err(|why| format!("`address` {why}"))?);
            }
            "all" => all = value.as_bool().ok_or("`all`: true or false is expected")?,
            _ => {
                let why = "unknown parameter; use role, without_role, address, application, \
                    without_application, id or all";
                return Err(why.to_owned());
            }
        }
    }
    match (all, selection.is_everyone()) {
        (true, false) => Err("`all` and a condition exclude each other".to_owned()),
        (false, true) => Err("no condition; to close every client, set `all`".to_owned()),
        _ => Ok(selection),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn the_cores_outcomes_are_added_and_a_silent_one_is_named() {
        let answers = |core: usize, closed| -> Mailbox {
            Box::new(move |mail| {
                let CoreMail::Kick(selection, answer) = mail else { panic!("{mail:?}") };
                assert_eq!(selection.role, Some(NameCondition::Is("shop".to_owned())));
                answer.try_send(CoreEviction { core, closed }).expect("room for every core");
                Ok(())
            })
        };
        let silent: Mailbox = Box::new(|_| Ok(()));
        let mailboxes: Arc<[Mailbox]> = [answers(0, 3), silent, answers(2, 4)].into();
        let outcome = Evictions::new(mailboxes).kick(&json!({ "role": "shop" }), HERE).await;
        assert_eq!(outcome, Ok(json!({ "closed": 7, "cores_missing": [1] })));
    }

    #[tokio::test]
    async fn an_eviction_under_way_is_not_replaced_by_another() {
        let (asked, mut evictions) = tokio::sync::mpsc::unbounded_channel();
        let mailbox: Mailbox = Box::new(move |mail| {
            let CoreMail::Kick(_, answer) = mail else { panic!("{mail:?}") };
            asked.send(answer).expect("the test goes on");
            Ok(())
        });
        let cores = Evictions::new([mailbox].into());
        let shop = json!({ "role": "shop" });
        let first = cores.kick(&shop, HERE);
        let others = async {
            let answer = evictions.recv().await.expect("the first eviction");
            let other = cores.kick(&json!({ "role": "cron" }), HERE).await;
            assert_eq!(
                other,
                Err(json!({ "error": "another kick is running; try again when it has ended" }))
            );
            answer.try_send(CoreEviction { core: 0, closed: 3 }).expect("somebody waits");
        };
        let (outcome, ()) = tokio::join!(first, others);
        assert_eq!(outcome, Ok(json!({ "closed": 3, "cores_missing": [] })));
        // An operator who goes away ends it.
        tokio::select! {
            outcome = cores.kick(&shop, HERE) => panic!("{outcome:?}"),
            answer = evictions.recv() => assert!(answer.is_some()),
        }
        let again = async {
            let answer = evictions.recv().await.expect("the next eviction");
            answer.try_send(CoreEviction { core: 0, closed: 0 }).expect("somebody waits");
        };
        assert!(tokio::join!(cores.kick(&shop, HERE), again).0.is_ok());
    }

    #[test]
    fn nobody_closes_all_clients_by_mistake() {
        for refused in [
            json!({}),
            json!({ "role": "" }),
            json!({ "all": false }),
            json!({ "all": true, "role": "shop" }),
            json!({ "rolle": "shop" }),
            json!({ "role": null }),
            json!({ "without_role": false }),
            json!({ "without_role": "true" }),
            json!({ "without_role": true, "role": "shop" }),
            json!({ "without_application": true, "application": "shop" }),
            json!({ "without_role": true, "all": true }),
            json!({ "role": "shop_with_a_long_na…" }),
            json!({ "address": "10.0.0.1/8" }),
            json!([]),
        ] {
            assert!(selection(&refused).is_err(), "{refused}");
        }
        assert!(selection(&json!({ "all": true })).is_ok_and(|all| all.is_everyone()));
        assert!(selection(&json!({ "id": "10.0.4.7:51234", "role": "shop" })).is_ok());
        let missing = Some(NameCondition::Missing);
        let without = json!({ "without_role": true, "address": "10.0.4.7" });
        assert!(selection(&without).is_ok_and(|one| one.role == missing));
        let without = json!({ "without_application": true });
        assert!(selection(&without).is_ok_and(|one| one.application == missing));
    }
}
