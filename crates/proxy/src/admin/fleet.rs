//! The fleet for `/status`: the counters of the cores, and, on request, its members and the longest
//! queues.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shunt_fleet::Shown;

use super::alert_kinds::{self as kinds, Alert};
use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
use crate::control::{CoreMail, Mailbox};
use crate::limits::CLOCK_BEHIND_MAX_US;
use crate::locks::status::{CoreLocks, FleetShown, Queue, UNREADABLE_MAX, longest};
use crate::metrics::{CoreMetrics, LockMetrics};
use crate::transactions::writes::attempts::{Unmade, oldest};

/// The locks of the cores, with their last answers.
#[derive(Debug)]
pub(super) struct Locks(CachedAnswer);

impl Locks {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes))
    }

    /// The members and the longest queues, as fields of an object.
    async fn asked(&self) -> Value {
        self.0.recent(|mailboxes| ask_cores(mailboxes, PATIENCE)).await
    }

    /// The state of this proxy's locks, the members of the fleet, and alerts for an operator.
    pub(super) async fn status(
        &self,
        name: &str,
        cores: &[Arc<CoreMetrics>],
    ) -> (Value, Vec<Alert>) {
        let mut status = self.asked().await;
        let sum = |number: fn(&LockMetrics) -> u64| -> u64 {
            cores.iter().map(|core| number(&core.locks)).sum()
        };
        status["name"] = name.into();
        status["lease"] = (sum(|locks| locks.lease.get()) > 0).into();
        status["shards"] = sum(|locks| locks.shards.get()).into();
        status["held"] = sum(|locks| locks.held.get()).into();
        status["waiting"] = sum(|locks| locks.waiting.get()).into();
        let behind_us = cores.iter().map(|core| core.clock_behind_us.get()).max().unwrap_or(0);
        status["clock_behind_ms"] = (behind_us / 1_000).into();
        let mut found = of_counters(sum, status["not_a_member"].as_str());
        if behind_us > CLOCK_BEHIND_MAX_US.unsigned_abs() {
            let text = format!(
                "the clock of this proxy's host is {} ms behind the nodes': it decides no transactions that write; set the clock right \
                 (NTP), or stop this proxy, so that another decides",
                behind_us / 1_000
            );
            found.push(Alert::new(&kinds::CLOCK_BEHIND, text));
        }
        let unmeasured = cores.iter().filter(|core| core.clock_unmeasured.get() > 0).count();
        if unmeasured > 0 {
            let text = format!(
                "no node has told {unmeasured} cores of this proxy its time lately: they decide no transactions that write; see whether \
                 the nodes answer within a second"
            );
            found.push(Alert::new(&kinds::CLOCK_UNMEASURED, text));
        }
        if let Some(rival) = status["rival"].as_str() {
            let text = format!(
                "another live member, {rival}, has this proxy's address: requests for its locks \
                reach this proxy, which refuses them; give each a different address \
                (--advertise), and stop one of the two"
            );
            found.push(Alert::new(&kinds::FLEET_ADDRESSES, text));
        }
        let count: usize = cores.iter().map(|core| core.locks.unreadable.all().count()).sum();
        found.extend(unreadable_alerts(&status["unreadable"], count));
        found.extend(status["unmade"].as_array().into_iter().flatten().map(unmade_alert));
        for address in
            status["shared_addresses"].as_array().into_iter().flatten().filter_map(Value::as_str)
        {
            let text = format!(
                "two live members have the address {address}: requests for the locks of one reach \
                the other, which refuses them; give each a different address (--advertise), and \
                stop one of the two"
            );
            found.push(Alert::new(&kinds::FLEET_ADDRESSES, text));
        }
        status["alerts"] = found.iter().map(Alert::text).collect();
        (status, found)
    }
}

fn of_counters(
    sum: impl Fn(fn(&LockMetrics) -> u64) -> u64,
    not_a_member: Option<&str>,
) -> Vec<Alert> {
    let unsealed = sum(|locks| locks.unsealed.get());
    let mut found = Vec::new();
    let mut add = |kind, text| found.push(Alert::new(kind, text));
    if let Some(why) = not_a_member {
        let text = format!("this proxy is not a member of its fleet, and serves no locks: {why}");
        add(&kinds::FLEET_NO_LEASE, text);
    } else if sum(|locks| locks.lease.get()) == 0 {
        let text = "this proxy has no valid lease and grants no locks; the log says why";
        add(&kinds::FLEET_NO_LEASE, text.to_owned());
    }
    let unknown_format = sum(|locks| locks.unknown_format.get());
    if unknown_format > 0 {
        let text = format!(
            "the fleet's rows have format {unknown_format}, which this version does not know, so \
            this proxy is no member; run the version of the other proxies"
        );
        add(&kinds::FLEET_FORMAT, text);
    }
    if unsealed > 0 {
        let text = format!(
            "the work of {unsealed} dead members is not finished; it takes long only if no proxy \
            lives"
        );
        add(&kinds::FLEET_UNSEALED, text);
    }
    let foreign = sum(|locks| locks.foreign.get());
    if foreign > 0 {
        let text = format!(
            "{foreign} tables of the keyspace shunt have rows, which no proxy writes: `shunt \
            doctor` names them and the remedy"
        );
        add(&kinds::LOCK_FOREIGN_ROWS, text);
    }
    if sum(|locks| locks.told_to_leave.get()) > 0 {
        add(&kinds::FLEET_LEAVING, "an operator has told this proxy to leave".to_owned());
    }
    found
}

/// One alert for each named partition, and one for the remaining ones of `count`.
fn unreadable_alerts(named: &Value, count: usize) -> Vec<Alert> {
    let named = named.as_array().map_or(&[][..], Vec::as_slice);
    let of_one = |one: &Value| {
        let subject = one["bucket"].to_string();
        let text = format!(
            "the locks of partition {subject} are not served: the row with the name {} in \
            shunt_meta.lock has a form that no proxy writes; find out which client wrote it, and \
            delete it",
            one["name"]
        );
        Alert::about(&kinds::LOCK_UNREADABLE_ROW, subject, text)
    };
    let mut found: Vec<Alert> = named.iter().map(of_one).collect();
    let others = count.saturating_sub(named.len());
    if others > 0 {
        let text = format!(
            "the locks of {others} further partitions are not served because of such rows: see \
            shunt_lock_unreadable_partitions and the log"
        );
        found.push(Alert::about(&kinds::LOCK_UNREADABLE_ROW, "others".to_owned(), text));
    }
    found
}

fn unmade_alert(one: &Value) -> Alert {
    let (writes, table) = (&one["writes"], one["table"].as_str().unwrap_or_default());
    let (seconds, why) =
        (one["since_ms"].as_u64().unwrap_or(0) / 1_000, one["why"].as_str().unwrap_or_default());
    let waits = match one["former_owners"].as_bool() {
        Some(true) => {
            "no transaction of its keyspace, and of others that share its shard, is carried out before that"
        }
        _ => "other transactions on their partitions wait",
    };
    let text = format!(
        "writes of committed transactions on {table}, {writes} of them, could not be made for {seconds} s ({why}), and {waits}: bring up the \
         nodes that have its replicas, or lower its replication factor; they are given up if it is dropped"
    );
    Alert::about(&kinds::TRANSACTIONS_UNMADE, table.to_owned(), text)
}

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration) -> Value {
    let (mut queues, mut fleet, mut not_a_member, mut unreadable) =
        (Vec::new(), None, None, Vec::new());
    let mut unmade = Vec::new();
    let take = |told: CoreLocks| {
        queues.extend(told.queues);
        longest(&mut queues);
        fleet = told.fleet.or(fleet.take());
        not_a_member = told.not_a_member.or(not_a_member.take());
        unreadable.extend(told.unreadable);
        unmade.extend(told.unmade);
        told.core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::Locks, take).await;
    unreadable.sort();
    unreadable.truncate(UNREADABLE_MAX);
    oldest(&mut unmade);
    let members = |fleet: &FleetShown| {
        fleet.members.iter().map(|member| member_shown(fleet, member)).collect()
    };
    json!({
        "epoch": fleet.as_ref().map(|fleet| fleet.epoch),
        "lease_left_ms": fleet.as_ref().map(|fleet| fleet.lease_left_ms),
        "members": fleet.as_ref().map(members).unwrap_or_else(Vec::<Value>::new),
        "not_a_member": not_a_member,
        "rival": fleet.as_ref().and_then(rival),
        "shared_addresses": fleet.as_ref().map(shared_addresses).unwrap_or_default(),
        "members_not_shown": fleet.as_ref().map_or(0, |fleet| fleet.others),
        "unreadable": unreadable.iter().map(|(bucket, name)| json!({ "bucket": bucket, "name": name })).collect::<Vec<_>>(),
        "unmade": unmade.iter().map(unmade_shown).collect::<Vec<_>>(),
        "queues": queues.iter().map(queue_shown).collect::<Vec<_>>(),
        "cores_missing": missing,
    })
}

/// Another live member at this one's address.
fn rival(fleet: &FleetShown) -> Option<String> {
    let mut rivals = fleet.members.iter().filter(|member| member.is_rival);
    rivals
        .find(|member| Some(&member.address) == own_address(fleet))
        .map(|member| member.incarnation.to_string())
}

/// Addresses that several other members have.
fn shared_addresses(fleet: &FleetShown) -> Vec<String> {
    let rivals = fleet.members.iter().filter(|member| member.is_rival);
    let mut shared: Vec<String> = rivals.map(|member| member.address.clone()).collect();
    shared.retain(|address| Some(address) != own_address(fleet));
    shared.sort_unstable();
    shared.dedup();
    shared
}

fn own_address(fleet: &FleetShown) -> Option<&String> {
    fleet
        .members
        .iter()
        .find(|member| member.incarnation == fleet.own)
        .map(|member| &member.address)
}

fn member_shown(fleet: &FleetShown, member: &Shown) -> Value {
    json!({
        "address": member.address,
        "incarnation": member.incarnation.to_string(),
        "is_this": member.incarnation == fleet.own,
        "state": member.state.word(member.leaving),
        "shards": member.shards,
        "silent_ms": member.silent_ns / 1_000_000,
    })
}

pub(super) fn queue_shown(queue: &Queue) -> Value {
    json!({
        "name": queue.name,
        "kept": if queue.is_durable { "durable" } else { "memory" },
        "owner": queue.owner,
        "shared": queue.is_shared,
        "fence": queue.fence,
        "ttl_ms": queue.ttl_ms,
        "waiters": queue.waiters,
    })
}

fn unmade_shown(one: &Unmade) -> Value {
    json!({
        "table": one.table,
        "writes": one.writes,
        "since_ms": one.since_ms,
        "why": one.why,
        "former_owners": one.is_found,
    })
}

#[cfg(test)]
mod tests {
    use shunt_fleet::{Incarnation, State};

    use super::*;

    fn queue(name: &str, waiters: u32) -> Queue {
        Queue {
            name: name.to_owned(),
            is_durable: waiters.is_multiple_of(2),
            owner: (waiters > 1).then(|| "ann".to_owned()),
            is_shared: false,
            fence: Some(7),
            ttl_ms: Some(900),
            waiters,
        }
    }

    fn member(number: u8, state: State, leaving: bool) -> Shown {
        Shown {
            incarnation: Incarnation([number; 16]),
            address: format!("10.0.0.{number}:9042"),
            state,
            leaving,
            shards: usize::from(number),
            is_rival: number == 2,
            silent_ns: 2_500_000,
        }
    }

    /// The answer of a core without locks.
    fn told(core: usize) -> CoreLocks {
        CoreLocks {
            core,
            queues: Vec::new(),
            fleet: None,
            not_a_member: None,
            unreadable: Vec::new(),
            unmade: Vec::new(),
        }
    }

    /// A core that gives this answer to every question.
    fn core(tell: impl Fn() -> CoreLocks + Send + Sync + 'static) -> Mailbox {
        Box::new(move |mail| {
            let CoreMail::Locks(answer) = mail else { panic!("{mail:?}") };
            answer.try_send(tell()).expect("room for every core");
            Ok(())
        })
    }

    #[tokio::test]
    async fn the_cores_reports_are_merged() {
        let members = || {
            [
                (State::Live, false),
                (State::Live, true),
                (State::Dead, true),
                (State::Sealed, true),
                (State::Sealed, false),
            ]
        };
        let members = move || {
            (1..)
                .zip(members())
                .map(|(number, (state, leaving))| member(number, state, leaving))
                .collect()
        };
        let fleet = move || FleetShown {
            own: Incarnation([1; 16]),
            epoch: 4,
            lease_left_ms: 5_000,
            members: members(),
            others: 2,
        };
        assert_eq!(
            (rival(&fleet()), shared_addresses(&fleet())),
            (None, vec!["10.0.0.2:9042".to_owned()])
        );
        let mut copied = fleet();
        copied.members[0].address = copied.members[1].address.clone();
        assert_eq!(rival(&copied).as_deref(), Some("02020202-0202-0202-0202-020202020202"));
        assert_eq!(shared_addresses(&copied), [""; 0]);
        let one = core(move || CoreLocks {
            core: 0,
            queues: vec![queue("b", 3)],
            fleet: Some(fleet()),
            ..told(0)
        });
        let two = core(|| CoreLocks {
            queues: (0..10)
                .map(|number| queue(&format!("c{number}"), 1))
                .chain([queue("a", 8)])
                .collect(),
            ..told(1)
        });
        let value = ask_cores(&[one, two], PATIENCE).await;
        let states: Vec<&Value> =
            value["members"].as_array().expect("a list").iter().map(|one| &one["state"]).collect();
        assert_eq!(states, ["live", "leaving", "dead", "left", "sealed"]);
        let first = json!({
            "address": "10.0.0.1:9042", "incarnation": "01010101-0101-0101-0101-010101010101", "is_this": true,
            "state": "live", "shards": 1, "silent_ms": 2,
        });
        assert_eq!(
            (&value["members"][0], &value["members"][1]["is_this"]),
            (&first, &json!(false))
        );
        assert_eq!(
            (&value["epoch"], &value["lease_left_ms"], &value["members_not_shown"]),
            (&json!(4), &json!(5_000), &json!(2))
        );
        let queues = value["queues"].as_array().expect("a list");
        assert_eq!((queues.len(), &queues[0]["kept"]), (10, &json!("durable")), "{value}");
        let second = json!({
            "name": "b", "kept": "memory", "owner": "ann", "shared": false, "fence": 7, "ttl_ms": 900, "waiters": 3,
        });
        assert_eq!((&queues[1], &queues[2]["owner"]), (&second, &Value::Null));
        assert_eq!(value["cores_missing"], json!([]));
        assert_eq!(
            (&value["rival"], &value["shared_addresses"]),
            (&Value::Null, &json!(["10.0.0.2:9042"]))
        );
    }

    #[tokio::test]
    async fn a_core_that_does_not_answer_is_named_and_the_others_are_shown() {
        let kept = std::sync::Mutex::new(Vec::new());
        let deaf: Mailbox = Box::new(move |mail| {
            kept.lock().expect("lock").push(mail);
            Ok(())
        });
        let one = core(|| CoreLocks { queues: vec![queue("b", 3)], ..told(1) });
        let value = ask_cores(&[deaf, one, Box::new(Err)], Duration::from_millis(20)).await;
        assert_eq!(
            (&value["cores_missing"], &value["queues"][0]["name"]),
            (&json!([0, 2]), &json!("b"))
        );
        assert_eq!(
            (&value["members"], &value["epoch"]),
            (&json!([]), &Value::Null),
            "core 0 knows of them"
        );
    }

    #[tokio::test]
    async fn partitions_whose_rows_cannot_be_read_are_named_some_of_them() {
        let metrics = [0, 1].map(|core| Arc::new(CoreMetrics::new(core)));
        let tell = |number: usize, buckets: std::ops::Range<u16>| {
            metrics[number].locks.lease.set(1);
            metrics[number].locks.unreadable.set(buckets.clone());
            let unreadable: Vec<(u16, String)> =
                buckets.map(|bucket| (bucket, format!("n\"{bucket}"))).collect();
            core(move || CoreLocks { unreadable: unreadable.clone(), ..told(number) })
        };
        let mailboxes = vec![tell(0, 900..903), tell(1, 20..29)];
        let status = Locks::new(mailboxes.into()).status("main", &metrics).await.0;
        let alerts: Vec<&str> =
            status["alerts"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!(
            (alerts.len(), &status["unreadable"][9]),
            (11, &json!({ "bucket": 900, "name": "n\"900" })),
            "{status}"
        );
        assert!(
            alerts[0].contains("partition 20") && alerts[0].contains(r#""n\"20""#),
            "{}",
            alerts[0]
        );
        assert!(alerts[10].contains("2 further partitions"), "{}", alerts[10]);
    }

    #[tokio::test]
    async fn tables_whose_transactions_cannot_be_made_are_alerts_that_say_what_waits() {
        let unmade = |table: &str, since_ms: u64, is_found: bool| Unmade {
            table: table.to_owned(),
            writes: 2,
            since_ms,
            why: "Cannot achieve consistency level QUORUM".to_owned(),
            is_found,
        };
        let metrics = Arc::new(CoreMetrics::new(0));
        metrics.locks.lease.set(1);
        let first =
            core(move || CoreLocks { unmade: vec![unmade("ks.a", 7_500, false)], ..told(0) });
        let second =
            core(move || CoreLocks { unmade: vec![unmade("ks.b", 90_000, true)], ..told(1) });
        let status = Locks::new(vec![first, second].into()).status("main", &[metrics]).await.0;
        let alerts: Vec<&str> =
            status["alerts"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert!(alerts.len() == 2 && status["unmade"][1]["writes"] == 2, "{status}");
        for (alert, words) in alerts.iter().zip([
            ["ks.b", "for 90 s (Cannot achieve", "share its shard"],
            ["ks.a", "for 7 s (Cannot achieve", "on their partitions wait"],
        ]) {
            assert!(words.iter().all(|word| alert.contains(word)), "{alert}");
        }
    }

    #[tokio::test]
    async fn a_proxy_that_is_no_member_says_why() {
        let why = || Some("there is no fleet 'nope'".to_owned());
        let one = core(move || CoreLocks { not_a_member: why(), ..told(0) });
        let status = Locks::new(vec![one].into()).status("nope", &[]).await.0;
        let alerts = status["alerts"].as_array().expect("a list");
        assert!(
            alerts.len() == 1
                && alerts[0].as_str().is_some_and(|text| text.contains("no fleet 'nope'")),
            "{status}"
        );
    }
}
