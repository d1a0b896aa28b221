//! A simulation of clients, a switch, shims, coordinators and servers from a seed: datagrams are
//! lost, duplicated, delayed and forged, shims are killed and paused, the switch is away or sends
//! to the wrong server, and values change meanwhile.
//!
//! | file | content |
//! |---|---|
//! | `world.rs` | the clock, the network, and the events |
//! | `hosts.rs` | servers with their shims, the switch |
//! | `history.rs` | values over time, and which of them a read may return |

mod history;
mod hosts;
mod world;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::collection::vec;
use proptest::prelude::*;
use shunt_reactor::sim::for_seeds;
use shunt_wire::netmc::{Op, Trim, split};

use crate::client::{Client, ClientOptions, Event, Failure, Weakened};
use crate::limits::{self, PROBE_NS};
use crate::mode::Mode;
use crate::place;
use crate::shim::{Found, Rejected, Shim, ShimOptions};
use world::{Kind, World};

/// Seeds of each run.
const SEEDS: u64 = 200;
/// Seeds within which a left-out step must be noticed.
const SEEDS_TO_NOTICE: u64 = 400;

fn run(seed: u64, kind: Kind) {
    if let Err(wrong) = World::new(seed, kind, Weakened::default()).run() {
        panic!("{kind:?}: {wrong}");
    }
}

#[test]
fn every_multiget_is_whole_and_true_in_time_on_any_network() {
    let mut counts = [0; 11];
    for_seeds(SEEDS, |seed| {
        let kind = [Kind::Client, Kind::Network, Kind::Coordinator][(seed % 3) as usize];
        let mut world = World::new(seed, kind, Weakened::default());
        if let Err(wrong) = world.run() {
            panic!("{kind:?}: {wrong}");
        }
        for (total, count) in counts.iter_mut().zip(world.happened()) {
            *total += count;
        }
    });
    if std::env::var_os("SHUNT_SIM_SEED").is_none() {
        assert!(
            counts.iter().all(|count| *count > 40),
            "something that is to be survived did not happen: {counts:?}"
        );
    }
}

#[test]
fn in_a_quiet_network_nothing_is_asked_twice_or_over_tcp() {
    for_seeds(50, |seed| run(seed, Kind::Quiet));
}

#[test]
fn a_server_that_is_gone_is_named_by_the_deadline_and_others_are_not_held_up() {
    for_seeds(100, |seed| run(seed, Kind::ServersGone));
}

#[test]
fn a_multiget_that_never_got_room_says_so_and_blames_no_server() {
    let options = ClientOptions {
        shims: vec!["192.0.2.1:9700".parse().unwrap()],
        mode: Mode::Cli,
        deadline_ns: 100,
        resend_ns: 1_000,
        seed: 0,
    };
    let mut client = Client::new(options);
    let keys: Vec<Vec<u8>> =
        (0..16 * limits::WINDOW_GROUPS).map(|key| key.to_string().into_bytes()).collect();
    for user in 0..2 {
        client
            .begin(user, user, Op::MultiGet, keys.iter().map(Vec::as_slice), &mut |_, _| {})
            .unwrap();
    }
    client.look(100, &mut |_, _| {});
    let failures: Vec<Failure> = std::iter::from_fn(|| client.event())
        .map(|event| match event {
            Event::Failed { failure, .. } => failure,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(failures, [Failure::Deadline { server: 0 }]);
    // The second one gets the first one's room at last, and is sent.
    client.look(101, &mut |_, _| {});
    assert!(matches!(
        client.event(),
        Some(Event::Failed { failure: Failure::Deadline { .. }, .. })
    ));
    assert_eq!(client.groups(), (0, 0));
}

/// Keys of this server, of two.
fn keys_of(server: usize, count: usize) -> Vec<Vec<u8>> {
    let keys = (0..).map(|key: u32| key.to_string().into_bytes());
    keys.filter(|key| place::server(key, 2) == server).take(count).collect()
}

#[test]
fn a_server_that_does_not_answer_leaves_others_half_of_the_window() {
    let shims = ["192.0.2.1:9700", "192.0.2.2:9700"].map(|address| address.parse().unwrap());
    let options = ClientOptions {
        shims: shims.into(),
        mode: Mode::Cli,
        deadline_ns: 10 * PROBE_NS,
        resend_ns: 1_000,
        seed: 0,
    };
    let (mut client, mut user) = (Client::new(options), 0);
    // Starts a multiget of whole groups; returns the datagrams per server.
    let mut begin = |client: &mut Client, now_ns: u64, server: usize, groups: usize| {
        let (keys, mut sent) = (keys_of(server, 16 * groups), [0; 2]);
        user += 1;
        let mut out = |to, _: &[u8]| sent[usize::from(to == shims[1])] += 1;
        client.begin(now_ns, user, Op::MultiGet, keys.iter().map(Vec::as_slice), &mut out).unwrap();
        sent
    };
    let fetched = |client: &mut Client| -> usize {
        let events = std::iter::from_fn(|| client.event());
        events
            .map(|event| {
                if let Event::Fetch { keys, .. } = event { keys.len() } else { panic!("{event:?}") }
            })
            .sum()
    };
    assert_eq!(begin(&mut client, 0, 0, 100), [limits::WINDOW_GROUPS / 2, 0]);
    assert_eq!(begin(&mut client, 0, 1, 10), [0, 10]);
    assert_eq!(fetched(&mut client), 0);
    // Once it is known to be silent, nothing waits for it or for the window.
    let mut now_ns = 0;
    while client.silent().count() < 2 {
        now_ns = client.due_at_ns().unwrap();
        client.look(now_ns, &mut |_, _| {});
    }
    assert_eq!((fetched(&mut client), client.groups()), (16 * 110, (0, 0)));
    // It is tried again with one group at a time.
    assert_eq!((begin(&mut client, now_ns + 1, 0, 20), fetched(&mut client)), ([0, 0], 16 * 20));
    let now_ns = now_ns + limits::PROBE_NS;
    assert_eq!((begin(&mut client, now_ns, 0, 20), fetched(&mut client)), ([1, 0], 16 * 19));
    assert_eq!((begin(&mut client, now_ns + 1, 0, 20), fetched(&mut client)), ([0, 0], 16 * 20));
}

/// A shim's answer to a client's request: the same value for every key, but only the first
/// datagrams.
fn half_answer(
    client: &mut Client,
    now_ns: u64,
    from: SocketAddr,
    data: &[u8],
    value: &[u8],
    most: usize,
) {
    let options =
        ShimOptions { allow: vec!["0.0.0.0/0".parse().unwrap()], rate: 10, others_rate: 0 };
    let asked = Shim::new(&options).datagram(0, from, data).unwrap();
    let mut replies = Vec::new();
    let found = asked.keys().map(|_| Found::Value(value)).collect::<Vec<_>>();
    asked.answer(found.into_iter(), &mut Vec::new(), |reply| replies.push(reply.to_vec()));
    replies
        .iter()
        .take(most)
        .for_each(|reply| client.datagram(now_ns, from, reply, &mut |_, _| {}));
}

#[test]
fn a_shim_that_answers_three_groups_in_a_row_by_halves_is_silent_until_one_is_whole() {
    let shim = hosts::shim_address(0);
    let options = ClientOptions {
        shims: vec![shim],
        mode: Mode::Cli,
        deadline_ns: 10 * PROBE_NS,
        resend_ns: 1_000,
        seed: 0,
    };
    let (mut client, mut now_ns) = (Client::new(options), 0);
    // Requests two values that do not fit one datagram; returns the number of requests. One value
    // comes, or both.
    let mut ask = |client: &mut Client, later_ns: u64, most: usize| {
        let (keys, mut sent) = (keys_of(0, 2), Vec::new());
        now_ns += later_ns;
        client
            .begin(now_ns, now_ns, Op::MultiGet, keys.iter().map(Vec::as_slice), &mut |_, data| {
                sent.push(data.to_vec())
            })
            .unwrap();
        let asked = sent.len();
        sent.iter().for_each(|data| half_answer(client, now_ns, shim, data, &[0; 1_000], most));
        while client.groups().0 > 0 {
            now_ns = client.due_at_ns().unwrap();
            client.look(now_ns, &mut |_, _| {});
        }
        (asked, client.silent().count())
    };
    // A whole answer in between restarts the count.
    for most in [1, 1, 2, 1, 1] {
        assert_eq!(ask(&mut client, 1, most), (1, 0));
    }
    assert_eq!(ask(&mut client, 1, 1), (1, 1));
    assert_eq!(ask(&mut client, 1, 2), (0, 1));
    // A half answer to a trial changes nothing, a whole one does.
    assert_eq!(ask(&mut client, PROBE_NS, 1), (1, 1));
    assert_eq!(ask(&mut client, 1, 2), (0, 1));
    assert_eq!(ask(&mut client, PROBE_NS, 2), (1, 0));
    assert_eq!(ask(&mut client, 1, 1), (1, 0));
}

/// Starts a multiget of two coordinating shims' keys; returns its first datagrams.
fn asks_a_coordinator(client: &mut Client, now_ns: u64) -> Vec<(SocketAddr, Vec<u8>)> {
    let (keys, mut sent) = ([keys_of(0, 2), keys_of(1, 1)].concat(), Vec::new());
    let mut out = |to: SocketAddr, data: &[u8]| sent.push((to, data.to_vec()));
    client.begin(now_ns, now_ns, Op::MultiGet, keys.iter().map(Vec::as_slice), &mut out).unwrap();
    sent
}

#[test]
fn a_coordinator_that_does_not_answer_costs_three_multigets_their_time_and_is_tried_again() {
    const RESEND_NS: u64 = 1_000;
    let shims = ["192.0.2.1:9700", "192.0.2.2:9700"].map(|address| address.parse().unwrap());
    let options = ClientOptions {
        shims: shims.into(),
        mode: Mode::Coordinator,
        deadline_ns: 10 * PROBE_NS,
        resend_ns: RESEND_NS,
        seed: 0,
    };
    let mut client = Client::new(options);
    let whose = |sent: &[(SocketAddr, Vec<u8>)]| sent.iter().map(|(to, _)| *to).collect::<Vec<_>>();
    let mut now_ns = 0;
    // The server with most of the keys; once it is known to be gone, the other one, and then each
    // server.
    for coordinator in [0, 1] {
        for _ in 0..limits::MISSES_MAX {
            assert_eq!(whose(&asks_a_coordinator(&mut client, now_ns)), [shims[coordinator]]);
            now_ns += RESEND_NS;
            let mut sent = Vec::new();
            client.look(now_ns, &mut |to, _| sent.push(to));
            // No key waits longer: the servers get requests themselves. Other keys are older and
            // may be due as well.
            assert!(shims.iter().all(|shim| sent.contains(shim)));
        }
    }
    assert_eq!(whose(&asks_a_coordinator(&mut client, now_ns)), shims);
    assert_eq!((client.counts().coordinated, client.counts().uncoordinated), (6, 6));
    // It is tried again, and is back once it answers.
    now_ns += PROBE_NS;
    let sent = asks_a_coordinator(&mut client, now_ns);
    assert_eq!(whose(&sent), [shims[0]]);
    assert_eq!(whose(&asks_a_coordinator(&mut client, now_ns)), [shims[1]]);
    assert_eq!(whose(&asks_a_coordinator(&mut client, now_ns)), shims);
    let options =
        ShimOptions { allow: vec!["0.0.0.0/0".parse().unwrap()], rate: 10, others_rate: 0 };
    let asked = Shim::coordinating(&options, &shims, 0).datagram(0, shims[1], &sent[0].1).unwrap();
    let mut replies = Vec::new();
    asked.answer([Found::Nothing; 3].into_iter(), &mut Vec::new(), |reply| {
        replies.push(reply.to_vec())
    });
    client.datagram(now_ns, shims[1], &replies[0], &mut |_, _| {});
    assert_eq!(client.counts().foreign, 1);
    client.datagram(now_ns, shims[0], &replies[0], &mut |_, _| {});
    assert_eq!(whose(&asks_a_coordinator(&mut client, now_ns)), [shims[0]]);
}

#[test]
fn a_switch_that_does_not_reach_a_server_costs_three_multigets_their_time_and_is_tried_again() {
    const RESEND_NS: u64 = 1_000;
    let shims = [0, 1].map(hosts::shim_address);
    let switch = hosts::Switch::address();
    let options = ClientOptions {
        shims: shims.into(),
        mode: Mode::Netmc { switch },
        deadline_ns: 10 * PROBE_NS,
        resend_ns: RESEND_NS,
        seed: 0,
    };
    let mut client = Client::new(options);
    let whose = |sent: &[(SocketAddr, Vec<u8>)]| sent.iter().map(|(to, _)| *to).collect::<Vec<_>>();
    let options =
        ShimOptions { allow: vec!["0.0.0.0/0".parse().unwrap()], rate: 100, others_rate: 0 };
    let mut shim = Shim::new(&options);
    // A server's answer to its part, or to a direct request.
    let mut answer = |client: &mut Client, now_ns: u64, server: usize, data: &[u8]| {
        let (mut parts, mut replies) = (Vec::new(), Vec::new());
        let _ = split(data, Trim::Own, &mut Vec::new(), |of, part| {
            parts.push((usize::from(of), part.to_vec()))
        });
        let part =
            parts.into_iter().find(|(of, _)| *of == server).map_or(data.to_vec(), |(_, part)| part);
        let asked = shim.datagram(0, switch, &part).unwrap();
        let nothing = asked.keys().map(|_| Found::Nothing).collect::<Vec<_>>();
        asked.answer(nothing.into_iter(), &mut Vec::new(), |reply| replies.push(reply.to_vec()));
        replies
            .iter()
            .for_each(|reply| client.datagram(now_ns, shims[server], reply, &mut |_, _| {}));
    };
    let mut now_ns = 0;
    for _ in 0..limits::MISSES_MAX {
        let sent = asks_a_coordinator(&mut client, now_ns);
        assert_eq!(whose(&sent), [switch]);
        answer(&mut client, now_ns, 0, &sent[0].1);
        now_ns += RESEND_NS;
        let mut again = Vec::new();
        client.look(now_ns, &mut |to, data| again.push((to, data.to_vec())));
        // No key waits longer: that server gets its request directly.
        assert_eq!(whose(&again), [shims[1]]);
        answer(&mut client, now_ns, 1, &again[0].1);
    }
    // The switch gets nothing for that server, and a request for one other server needs no switch.
    let sent = asks_a_coordinator(&mut client, now_ns);
    assert_eq!((whose(&sent), client.counts().unswitched), (vec![shims[1], shims[0]], 3));
    assert_eq!(client.under_way(), 1);
    sent.iter()
        .zip([1, 0])
        .for_each(|((_, data), server)| answer(&mut client, now_ns, server, data));
    assert_eq!(client.under_way(), 0);
    // A later trial uses the switch, and after its answer all requests do again.
    now_ns += PROBE_NS;
    let sent = asks_a_coordinator(&mut client, now_ns);
    assert_eq!(whose(&sent), [switch]);
    assert_eq!(whose(&asks_a_coordinator(&mut client, now_ns)).len(), 2);
    answer(&mut client, now_ns, 1, &sent[0].1);
    assert_eq!(whose(&asks_a_coordinator(&mut client, now_ns)), [switch]);
}

#[test]
fn a_coordinator_that_knows_other_servers_refuses_and_none_answers_for_strangers() {
    let shims: Vec<SocketAddr> = (0..2).map(hosts::shim_address).collect();
    let options =
        ClientOptions { shims, mode: Mode::Coordinator, deadline_ns: 9, resend_ns: 1, seed: 0 };
    let sent = asks_a_coordinator(&mut Client::new(options), 0);
    let (from, allow) = ("10.0.0.1:4000".parse().unwrap(), vec!["10.0.0.0/8".parse().unwrap()]);
    let vouched = ShimOptions { allow, rate: 10, others_rate: 0 };
    let stranger = ShimOptions { allow: Vec::new(), rate: 10, others_rate: 10 };
    for (options, servers, expected) in [
        (&vouched, 2, None),
        (&vouched, 3, Some(Rejected::Elsewhere)),
        (&vouched, 0, Some(Rejected::NotSplit)),
        (&stranger, 2, Some(Rejected::Source)),
    ] {
        let peers: Vec<SocketAddr> = (0..servers).map(hosts::shim_address).collect();
        let asked = Shim::coordinating(options, &peers, 0).datagram(0, from, &sent[0].1);
        assert_eq!(asked.err(), expected, "{servers} servers");
    }
}

/// A coordinator with another order would report other servers' keys as missing.
#[test]
fn answers_of_a_coordinator_that_has_the_servers_in_another_order_are_not_taken() {
    let shims: Vec<SocketAddr> = (0..3).map(hosts::shim_address).collect();
    let vouched =
        ShimOptions { allow: vec!["0.0.0.0/0".parse().unwrap()], rate: 10, others_rate: 0 };
    for (order, is_taken) in
        [([0, 1, 2], true), ([0, 2, 1], false), ([2, 1, 0], false), ([1, 0, 2], false)]
    {
        let (shims, mode) = (shims.clone(), Mode::Coordinator);
        let mut client =
            Client::new(ClientOptions { shims, mode, deadline_ns: 9, resend_ns: 1, seed: 0 });
        let sent = asks_a_coordinator(&mut client, 0);
        let peers = order.map(hosts::shim_address);
        let own = peers.iter().position(|peer| *peer == sent[0].0).unwrap();
        let asked =
            Shim::coordinating(&vouched, &peers, own).datagram(0, sent[0].0, &sent[0].1).unwrap();
        let nothing = asked.keys().map(|_| Found::Nothing);
        let replies = &mut Vec::new();
        asked.answer(nothing, &mut Vec::new(), |reply| replies.push(reply.to_vec()));
        replies.iter().for_each(|reply| client.datagram(0, sent[0].0, reply, &mut |_, _| {}));
        let expected = if is_taken { (0, 0) } else { (1, replies.len() as u64) };
        assert_eq!((client.under_way(), client.counts().foreign), expected, "{order:?}");
    }
}

#[test]
fn a_shim_that_knows_its_server_answers_for_no_other_one() {
    let shims: Vec<SocketAddr> = (0..2).map(hosts::shim_address).collect();
    let options = ClientOptions { shims, mode: Mode::Cli, deadline_ns: 9, resend_ns: 1, seed: 0 };
    let peers: Vec<SocketAddr> = (0..2).map(hosts::shim_address).collect();
    let sent = asks_a_coordinator(&mut Client::new(options), 0);
    let (from, allow) = ("10.0.0.1:4000".parse().unwrap(), vec!["10.0.0.0/8".parse().unwrap()]);
    let options = ShimOptions { allow, rate: 10, others_rate: 0 };
    for own in 0..2 {
        let mut shim = Shim::coordinating(&options, &peers, own);
        for (to, data) in &sent {
            let expected = (*to != hosts::shim_address(own)).then_some(Rejected::Elsewhere);
            assert_eq!(shim.datagram(0, from, data).err(), expected, "{to} asked, {own} has it");
            // A shim that does not coordinate does not know the number of its server.
            assert!(Shim::new(&options).datagram(0, from, data).is_ok());
        }
    }
}

#[test]
fn values_that_are_too_much_for_an_answer_are_not_gathered() {
    let options = ClientOptions {
        shims: vec![hosts::shim_address(0)],
        mode: Mode::Cli,
        deadline_ns: 9,
        resend_ns: 1,
        seed: 0,
    };
    let (mut client, long) = (Client::new(options), [b'k'; 2_000]);
    let keys = [&long[..1_500], &long[..1_600], &long];
    client.begin(0, 7, Op::MultiGet, keys.into_iter(), &mut |_, _| {}).unwrap();
    let Some(Event::Fetch { ticket, keys, .. }) = client.event() else {
        panic!("they fit no datagram")
    };
    let value = vec![0; limits::COMMAND_BYTES_MAX / 2 + 1];
    client.fetched(ticket, keys[0], Some(&value));
    assert!(client.event().is_none());
    client.fetched(ticket, keys[1], Some(&value));
    assert!(matches!(client.event(), Some(Event::Failed { user: 7, failure: Failure::TooLarge })));
    client.fetched(ticket, keys[2], Some(&value));
    assert!(client.event().is_none() && client.under_way() == 0 && client.counts().failed == 1);
}

#[test]
fn abandoned_multigets_leave_the_window_to_others() {
    let options = ClientOptions {
        shims: vec![hosts::shim_address(0)],
        mode: Mode::Cli,
        deadline_ns: 9,
        resend_ns: 1,
        seed: 0,
    };
    let (mut client, mut sent) = (Client::new(options), 0);
    let keys: Vec<Vec<u8>> =
        (0..32 * limits::WINDOW_GROUPS).map(|key| key.to_string().into_bytes()).collect();
    for user in 0..3 {
        client
            .begin(0, user, Op::MultiGet, keys.iter().map(Vec::as_slice), &mut |_, _| sent += 1)
            .unwrap();
    }
    assert_eq!((sent, client.under_way()), (limits::WINDOW_GROUPS, 3));
    client.abandon(0, &[0, 1].into(), &mut |_, _| sent += 1);
    assert_eq!(
        (sent, client.under_way(), client.counts().abandoned),
        (2 * limits::WINDOW_GROUPS, 1, 2)
    );
    assert!(client.event().is_none());
}

proptest! {
    #[test]
    fn no_datagram_panics_or_is_believed(
        mut data in vec(any::<u8>(), 0..120), kind in 0u8..8, id in 0u32..3, changes in vec((0usize..40, any::<u8>()), 0..3), is_reply: bool,
    ) {
        let shim_address = "192.0.2.1:9700".parse().unwrap();
        let options = ClientOptions { shims: vec![shim_address], mode: Mode::Cli, deadline_ns: 9, resend_ns: 1, seed: 0 };
        let (mut client, mut sent) = (Client::new(options), Vec::new());
        client.begin(0, 1, Op::MultiGet, [&b"a"[..], b"bc"].into_iter(), &mut |_, data| sent.push(data.to_vec())).unwrap();
        let allow = vec!["0.0.0.0/0".parse().unwrap()];
        let mut shim = Shim::new(&ShimOptions { allow, rate: 10, others_rate: 0 });
        if is_reply {
            let asked = shim.datagram(0, shim_address, &sent[0]).unwrap();
            asked.answer([Found::Value(b"v"), Found::Nothing].into_iter(), &mut Vec::new(), |reply| data = reply.to_vec());
        } else if data.len() > 5 {
            data[0] = 0x10 | kind;
            data[1..5].copy_from_slice(&id.to_be_bytes());
        }
        for (at, byte) in changes {
            if let Some(place) = data.get_mut(at) {
                *place = byte;
            }
        }
        let _ = shim.datagram(0, shim_address, &data);
        let _ = shim.datagram(0, shim_address, &[&sent[0][..1], &data[data.len().min(1)..]].concat());
        client.datagram(0, shim_address, &data, &mut |_, _| {});
        while let Some(event) = client.event() {
            match event {
                Event::Done { values, .. } => {
                    prop_assert!(is_reply);
                    prop_assert_eq!(values.iter().len(), 2);
                }
                Event::Fetch { server, keys, .. } => prop_assert!(server == 0 && keys.len() <= 2),
                Event::Failed { .. } => prop_assert!(false, "nothing has failed"),
            }
        }
    }
}

fn is_noticed(weakened: Weakened) {
    let noticed = (0..SEEDS_TO_NOTICE).any(|seed| {
        let kind = [Kind::Client, Kind::Network, Kind::ServersGone, Kind::Coordinator]
            [(seed % 4) as usize];
        !matches!(
            catch_unwind(AssertUnwindSafe(|| World::new(seed, kind, weakened).run())),
            Ok(Ok(()))
        )
    });
    assert!(noticed, "{weakened:?} went unnoticed");
}

#[test]
fn without_a_look_at_the_source_a_wrong_server_is_believed() {
    is_noticed(Weakened { no_source: true, ..Weakened::default() });
}

#[test]
fn without_a_look_at_the_keys_a_forged_answer_is_believed() {
    is_noticed(Weakened { no_key: true, ..Weakened::default() });
}

#[test]
fn without_counting_each_key_once_a_part_passes_for_the_whole() {
    is_noticed(Weakened { not_once: true, ..Weakened::default() });
}

#[test]
fn without_the_window_too_much_is_under_way() {
    is_noticed(Weakened { no_window: true, ..Weakened::default() });
}

#[test]
fn without_the_deadline_somebody_waits_for_ever() {
    is_noticed(Weakened { no_deadline: true, ..Weakened::default() });
}

#[test]
fn without_tcp_to_fall_back_on_a_dead_shim_takes_its_server_along() {
    is_noticed(Weakened { no_fallback: true, ..Weakened::default() });
}

#[test]
fn without_forgetting_ids_they_pile_up() {
    is_noticed(Weakened { ids_stay: true, ..Weakened::default() });
}

#[test]
fn without_looking_at_what_is_missing_all_is_asked_again() {
    is_noticed(Weakened { all_again: true, ..Weakened::default() });
}

#[test]
fn deadlines_of_what_is_answered_do_not_pile_up() {
    for mode in [Mode::Tcp, Mode::Cli] {
        let shims = vec!["192.0.2.1:9700".parse().unwrap()];
        let mut client = Client::new(ClientOptions {
            shims,
            mode,
            deadline_ns: u64::MAX,
            resend_ns: u64::MAX,
            seed: 0,
        });
        for user in 0..100_000 {
            client
                .begin(user, user, Op::MultiGet, [&b"key"[..]].into_iter(), &mut |_, _| {})
                .unwrap();
            if let Some(Event::Fetch { ticket, keys, .. }) = client.event() {
                client.fetched(ticket, keys[0], None);
            }
            client.abandon(user, &HashSet::from([user]), &mut |_, _| {});
            while client.event().is_some() {}
        }
        assert!(client.dues() < 3_000, "{mode:?}: {}", client.dues());
    }
}
