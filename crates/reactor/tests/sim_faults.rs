//! The faults themselves: what each side hears when hosts and networks fail.

mod sim_support;

use shunt_reactor::sim::{MILLISECOND, Options, Random, SECOND, TornSession, World, for_seeds};
use shunt_reactor::{CloseReason, LoopOptions};
use sim_support::checked::Checked;
use sim_support::pair::Pair;
use sim_support::script::{Script, Seen};
use std::io::ErrorKind;

#[test]
fn a_reset_is_seen_by_both_ends() {
    for_seeds(50, |seed| {
        let mut pair = Pair::new(seed, Options::crumbs());
        pair.caller_io(|io, conn| io.output(conn).extend_from_slice(b"half of it may arrive"));
        pair.world.reset(pair.caller, pair.out);
        pair.settle();
        assert_eq!(pair.caller().closed(), [CloseReason::Reset]);
        assert_eq!(pair.called().closed(), [CloseReason::Reset]);
        assert!(b"half of it may arrive".starts_with(&pair.called().bytes()));
    });
}

#[test]
fn a_frozen_host_keeps_its_connections_and_goes_on_after_the_thaw() {
    let mut pair = Pair::new(1, Options { window_bytes: 1000..1001, ..Options::calm() });
    pair.world.freeze(pair.called);
    pair.caller_io(|io, conn| io.output(conn).resize(3000, 1));
    let late = pair.world.with(pair.caller, |_, io| io.connect(pair.address, SECOND));
    pair.settle();
    // The kernel of the frozen host takes a window of bytes and the connection; the service sees
    // neither.
    assert_eq!(pair.caller_io(|io, conn| io.backlog(conn)), 2000);
    assert!(pair.caller().seen.contains(&Seen::Connected(late)));
    assert_eq!(pair.called().seen.len(), 1);
    pair.world.thaw(pair.called);
    pair.settle();
    assert_eq!(pair.called().bytes().len(), 3000);
    assert_eq!(
        pair.called().seen.iter().filter(|seen| matches!(seen, Seen::Accepted(..))).count(),
        2
    );
    assert_eq!((pair.caller().closed(), pair.called().closed()), (vec![], vec![]));
}

#[test]
fn timers_of_a_frozen_host_are_late_and_not_lost() {
    let mut pair = Pair::new(2, Options::calm());
    pair.world.with(pair.called, |_, io| io.set_timer(io.now_ns() + MILLISECOND, 5));
    pair.world.freeze(pair.called);
    pair.settle();
    assert!(!pair.called().seen.contains(&Seen::Timer(5)));
    pair.world.thaw(pair.called);
    pair.world.run_for(MILLISECOND);
    assert!(pair.called().seen.contains(&Seen::Timer(5)));
}

#[test]
fn a_killed_host_ends_its_connections_and_refuses_until_its_restart() {
    for_seeds(50, |seed| {
        let mut pair = Pair::new(seed, Options::crumbs());
        pair.caller_io(|io, conn| io.output(conn).extend_from_slice(b"x"));
        assert!(pair.world.kill(pair.called).is_some());
        assert!(!pair.world.is_running(pair.called) && pair.world.kill(pair.called).is_none());
        pair.settle();
        assert!(matches!(pair.caller().closed()[..], [CloseReason::Reset | CloseReason::Peer]));
        pair.world.with(pair.caller, |_, io| io.connect(pair.address, SECOND));
        pair.settle();
        assert_eq!(
            pair.caller().closed()[1..],
            [CloseReason::ConnectFailed(ErrorKind::ConnectionRefused)]
        );
        pair.world.restart(pair.called, Checked::new(Script::new()));
        let again = pair.world.with(pair.caller, |_, io| io.connect(pair.address, SECOND));
        pair.settle();
        assert!(pair.caller().seen.contains(&Seen::Connected(again)));
        assert!(pair.called().accepted_conn().is_some());
    });
}

#[test]
fn a_host_without_power_tells_nobody() {
    let mut pair = Pair::new(3, Options::calm());
    pair.world.power_off(pair.called);
    pair.world.with(pair.caller, |_, io| io.connect(pair.address, 3 * SECOND));
    pair.world.run_for(10 * SECOND);
    assert_eq!(pair.caller().closed(), [CloseReason::ConnectTimedOut]);
    // After the restart it knows nothing of the old connection and resets it at the first byte.
    pair.world.restart(pair.called, Checked::new(Script::new()));
    pair.caller_io(|io, conn| io.output(conn).push(1));
    pair.settle();
    assert_eq!(pair.caller().closed()[1..], [CloseReason::Reset]);
}

#[test]
fn a_half_open_connection_is_given_up_in_the_end() {
    let mut pair = Pair::new(4, Options::calm());
    pair.world.silence(pair.caller, pair.out);
    pair.caller_io(|io, conn| io.output(conn).push(1));
    pair.world.run_for(50 * SECOND);
    assert_eq!((pair.caller().closed(), pair.called().closed()), (vec![], vec![]));
    pair.world.run_for(50 * SECOND);
    let timed_out = [CloseReason::Error(ErrorKind::TimedOut)];
    assert_eq!(
        (pair.caller().closed(), pair.called().closed()),
        (timed_out.to_vec(), timed_out.to_vec())
    );
    assert_eq!(pair.called().bytes(), b"");
}

#[test]
fn a_short_cut_delays_and_a_long_one_breaks() {
    for_seeds(30, |seed| {
        let mut pair = Pair::new(seed, Options::crumbs());
        pair.caller_io(|io, conn| io.output(conn).extend_from_slice(b"before"));
        pair.world.cut(pair.caller, pair.called);
        pair.caller_io(|io, conn| io.output(conn).extend_from_slice(b" during"));
        pair.world.run_for(20 * SECOND);
        assert!(pair.called().bytes().len() < 13);
        pair.world.join(pair.called, pair.caller);
        pair.settle();
        assert_eq!(pair.called().bytes(), b"before during");
        pair.world.run_for(100 * SECOND);
        assert_eq!(pair.called().closed(), []);

        pair.world.cut(pair.caller, pair.called);
        pair.world.run_for(100 * SECOND);
        let timed_out = [CloseReason::Error(ErrorKind::TimedOut)];
        assert_eq!(
            (pair.caller().closed(), pair.called().closed()),
            (timed_out.to_vec(), timed_out.to_vec())
        );
    });
}

#[test]
fn a_connect_across_a_cut_succeeds_once_it_is_joined() {
    let mut pair = Pair::new(5, Options::calm());
    pair.world.cut(pair.caller, pair.called);
    let late = pair.world.with(pair.caller, |_, io| io.connect(pair.address, 20 * SECOND));
    pair.world.run_for(4 * SECOND);
    pair.world.join(pair.caller, pair.called);
    pair.world.run_for(4 * SECOND);
    assert!(pair.caller().seen.contains(&Seen::Connected(late)));
}

#[test]
fn connects_fail_as_the_options_say() {
    let mut pair = Pair::new(6, Options::calm());
    pair.world.set_options(Options { connect_refused: 1.0, ..Options::calm() });
    pair.world.with(pair.caller, |_, io| io.connect(pair.address, SECOND));
    pair.settle();
    pair.world.set_options(Options { connect_lost: 1.0, ..Options::calm() });
    pair.world.with(pair.caller, |_, io| io.connect(pair.address, SECOND / 2));
    pair.settle();
    let refused = CloseReason::ConnectFailed(ErrorKind::ConnectionRefused);
    assert_eq!(pair.caller().closed(), [refused, CloseReason::ConnectTimedOut]);
}

#[test]
fn a_full_table_turns_connections_away() {
    let mut pair = Pair::new(7, Options::calm());
    let options = LoopOptions { connections_max: 1, ..LoopOptions::default() };
    let small = pair.world.add_with("small", options, Checked::new(Script::new()));
    pair.world.listen(small, "10.8.8.8:1".parse().unwrap());
    for _ in 0..3 {
        pair.world.with(pair.caller, |_, io| io.connect("10.8.8.8:1".parse().unwrap(), SECOND));
    }
    pair.settle();
    assert_eq!(pair.caller().closed().len(), 2);
    assert_eq!(pair.world.io(small).counters().refused, 2);
}

#[test]
fn a_host_that_stops_itself_is_gone_for_the_others() {
    let mut pair = Pair::new(8, Options::calm());
    pair.called_io(|io, _| io.stop());
    pair.world.post(pair.called, 0);
    pair.settle();
    assert!(!pair.world.is_running(pair.called));
    assert_eq!(pair.caller().closed().len(), 1);
}

/// The caller's kernel has sent the first flight, and nobody has answered it.
#[test]
fn a_peer_that_ends_a_handshake_was_reached() {
    for_seeds(50, |seed| {
        for is_reset in [false, true] {
            let mut world = World::new(seed, Options::crumbs().sealed());
            let address = "10.9.9.9:7".parse().unwrap();
            let caller = world.add("caller", Checked::new(Script::new()));
            let called = world.add("called", Checked::new(Script::new()));
            world.listen(called, address);
            world.freeze(called);
            let session = Box::new(TornSession::new(Random::new(seed), true));
            let out = world.with(caller, |_, io| io.connect_with(address, 60 * SECOND, session));
            let is_sent = |world: &mut World| world.io(caller).counters().bytes_out > 0;
            assert!(world.run_until(SECOND, is_sent));
            if is_reset {
                world.reset(caller, out);
            } else {
                world.kill(called);
            }
            world.run_for(SECOND);
            let closed = world.host(caller).inner.closed();
            assert_eq!(closed, [CloseReason::HandshakeEnded]);
        }
    });
}
