//! The page of locks: the module asks the cores for those that this proxy owns.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
use super::fleet::queue_shown;
use crate::control::{CoreMail, Mailbox};
use crate::locks::status::{CoreLockList, Queue};

/// Name of the page.
pub(super) const PAGE: &str = "locks";
/// Most locks on the page.
const LOCKS_MAX: usize = 2_000;

/// The locks of the cores.
#[derive(Debug)]
pub(super) struct LockList(CachedAnswer);

impl LockList {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes))
    }

    /// The locks of this proxy, those with the longest queues first. `fleet`: the fleet that the
    /// proxy is a part of.
    pub(super) async fn page(&self, fleet: Option<&str>) -> Value {
        let mut page = self.0.recent(|mailboxes| ask_cores(mailboxes, PATIENCE)).await;
        let is_cut = page["cut"] == true;
        let cut = is_cut.then(|| {
            format!("the list is cut: those with the longest queues are here, {LOCKS_MAX} at most")
        });
        let part = fleet.map(|fleet| {
            format!(
                "this proxy owns only a part of the locks of the fleet {fleet}; `shunt locks` shows \
                 the locks of all its proxies"
            )
        });
        page["fleet"] = json!(fleet);
        page["warnings"] = part.into_iter().chain(cut).collect();
        page
    }
}

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration) -> Value {
    let (mut locks, mut is_cut) = (Vec::<Queue>::new(), false);
    let take = |list: CoreLockList| {
        locks.extend(list.locks);
        is_cut |= list.is_cut;
        list.core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::LockList, take).await;
    locks.sort_by(|one, other| {
        let order = |lock: &Queue| (Reverse(lock.waiters), lock.is_durable);
        order(one).cmp(&order(other)).then_with(|| one.name.cmp(&other.name))
    });
    is_cut |= locks.len() > LOCKS_MAX;
    locks.truncate(LOCKS_MAX);
    json!({
        "locks": locks.iter().map(queue_shown).collect::<Vec<_>>(),
        "cut": is_cut,
        "cores_missing": missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(index: usize, count: usize, waiters: u32) -> Mailbox {
        Box::new(move |mail| {
            let CoreMail::LockList(answer) = mail else { panic!("{mail:?}") };
            let lock = |number| Queue {
                name: format!("{index}-{number:04}"),
                is_durable: true,
                owner: Some("ann".to_owned()),
                is_shared: false,
                fence: Some(7),
                ttl_ms: Some(900),
                waiters,
            };
            let locks = (0..count).map(lock).collect();
            answer
                .try_send(CoreLockList { core: index, locks, is_cut: false })
                .expect("room for every core");
            Ok(())
        })
    }

    #[tokio::test]
    async fn the_page_says_that_it_is_a_part_and_that_it_is_cut() {
        let few: [Mailbox; 2] = [core(0, 2, 0), core(1, 1, 9)];
        let page = LockList::new(few.into()).page(Some("main")).await;
        let names: Vec<_> =
            page["locks"].as_array().expect("a list").iter().map(|lock| &lock["name"]).collect();
        assert_eq!(names, ["1-0000", "0-0000", "0-0001"]);
        let warnings = page["warnings"].as_array().expect("a list");
        assert!(warnings.len() == 1 && warnings[0].as_str().is_some_and(|it| it.contains("main")));
        let many: [Mailbox; 3] = [core(0, LOCKS_MAX, 0), core(1, 1, 9), Box::new(Err)];
        let page = LockList::new(many.into()).page(Some("main")).await;
        assert_eq!(page["locks"].as_array().map(Vec::len), Some(LOCKS_MAX));
        assert_eq!((&page["locks"][0]["name"], &page["cut"]), (&json!("1-0000"), &json!(true)));
        assert_eq!(
            (page["warnings"].as_array().map(Vec::len), &page["cores_missing"]),
            (Some(2), &json!([2]))
        );
        let alone = LockList::new(Vec::new().into()).page(None).await;
        assert_eq!((&alone["locks"], &alone["warnings"]), (&json!([]), &json!([])));
    }
}
