//! The promises of `Service` and `Io`, one per test, over the simulated network.

mod sim_support;

use shunt_reactor::sim::{MILLISECOND, Options, SECOND, World, for_seeds};
use shunt_reactor::{CloseReason, ConnId, Io, LoopOptions};
use sim_support::checked::Checked;
use sim_support::pair::Pair;
use sim_support::script::{Script, Seen};

#[test]
fn unconsumed_bytes_are_presented_again_with_what_follows() {
    let mut pair = Pair::new(1, Options::calm());
    pair.called_mut(|script| script.least = 6);
    pair.caller_io(|io, conn| io.output(conn).extend_from_slice(b"abc"));
    pair.settle();
    assert_eq!(pair.called().bytes(), b"");
    assert_eq!(pair.called_io(|io, conn| io.unread(conn)), 3);
    pair.caller_io(|io, conn| io.output(conn).extend_from_slice(b"defg"));
    pair.settle();
    assert_eq!(pair.called().bytes(), b"abcdefg");
}

#[test]
fn a_paused_connection_is_presented_on_resume_without_new_bytes() {
    for_seeds(50, |seed| {
        let mut pair = Pair::new(seed, Options::crumbs());
        pair.called_mut(|script| (script.appetite, script.pause_after_received) = (2, true));
        pair.caller_io(|io, conn| io.output(conn).extend_from_slice(b"abcdef"));
        pair.settle();
        assert!((1..=2).contains(&pair.called().bytes().len()));
        assert!(pair.called_io(|io, conn| io.is_paused(conn)));
        pair.settle();
        assert!((1..=2).contains(&pair.called().bytes().len()));
        for _ in 0..6 {
            pair.called_io(Io::resume_reading);
            pair.settle();
        }
        assert_eq!(pair.called().bytes(), b"abcdef");
    });
}

#[test]
fn pausing_holds_the_sender_back() {
    let mut pair = Pair::new(2, Options { window_bytes: 10_000..10_001, ..Options::calm() });
    pair.called_io(Io::pause_reading);
    pair.caller_io(|io, conn| io.output(conn).resize(1 << 20, 7));
    pair.settle();
    let backlog = pair.caller_io(|io, conn| io.backlog(conn));
    assert_eq!(backlog, (1 << 20) - 10_000);
    pair.called_io(Io::resume_reading);
    pair.world.run_for(20 * SECOND);
    assert_eq!(pair.called().bytes().len(), 1 << 20);
    assert_eq!(pair.caller_io(|io, conn| io.backlog(conn)), 0);
}

/// A peer that takes most of a large buffer must not hold the memory of all of it.
#[test]
fn the_last_bytes_of_a_large_buffer_do_not_keep_its_memory() {
    let mut pair = Pair::new(2, Options { window_bytes: 10_000..10_001, ..Options::calm() });
    pair.caller_io(|io, conn| io.output(conn).resize(1 << 20, 7));
    assert!(pair.caller_io(|io, conn| io.output_memory(conn)) >= 1 << 20);
    while pair.caller_io(|io, conn| io.backlog(conn)) > 30_000 {
        pair.world.run_for(MILLISECOND / 10);
    }
    pair.called_io(Io::pause_reading);
    pair.settle();
    let (backlog, memory) = pair.caller_io(|io, conn| (io.backlog(conn), io.output_memory(conn)));
    assert!(backlog > 0 && memory <= 256 << 10, "{memory} bytes of memory for {backlog}");
    pair.called_io(Io::resume_reading);
    pair.settle();
    assert_eq!(pair.called().bytes(), vec![7; 1 << 20]);
    assert_eq!(pair.caller_io(|io, conn| io.output_memory(conn)), 0);
}

/// Output to peers that closed their side and read nothing has a bound, and so do their places.
#[test]
fn connections_that_close_are_few_and_small() {
    const CALLERS: usize = 20;
    const BYTES: usize = 100_000;
    let mut world = World::new(1, Options { window_bytes: 10_000..10_001, ..Options::calm() });
    let options = LoopOptions {
        closing_bytes_max: 500_000,
        connections_max: CALLERS + 2,
        ..LoopOptions::default()
    };
    let called = world.add_with("called", options, Checked::new(Script::new()));
    let address = "10.9.9.9:7".parse().unwrap();
    world.listen(called, address);
    let mut callers = Vec::new();
    let mut connect = |world: &mut World, reads: bool| {
        let caller = world.add("caller", Checked::new(Script::new()));
        let conn = world.with(caller, |_, io| {
            let conn = io.connect(address, SECOND);
            if !reads {
                io.pause_reading(conn);
            }
            conn
        });
        callers.push(conn);
        world.run_for(SECOND / 10);
        caller
    };
    for _ in 0..CALLERS {
        connect(&mut world, false);
    }
    let accepted: Vec<ConnId> = world
        .host(called)
        .inner
        .seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Accepted(conn, _) => Some(*conn),
            _ => None,
        })
        .collect();
    assert_eq!(accepted.len(), CALLERS);
    world.with(called, |_, io| {
        for conn in &accepted {
            io.output(*conn).resize(BYTES, 7);
            io.close(*conn);
        }
        let bytes = io.closing_bytes();
        assert!((BYTES..=500_000).contains(&bytes), "{bytes}");
    });
    world.run_for(SECOND / 10);
    // Five places are taken by those that close. The others are free, and more than are free come.
    let readers: Vec<_> = (0..CALLERS + 1).map(|_| connect(&mut world, true)).collect();
    let counters = world.with(called, |_, io| *io.counters());
    assert_eq!((counters.refused, counters.accepts), (0, 2 * CALLERS as u64 + 1));
    assert!(readers.iter().all(|reader| world.host(*reader).inner.closed().is_empty()));
    world.run_for(20 * SECOND);
    assert_eq!(world.with(called, |_, io| io.closing_bytes()), 0);
}

#[test]
fn close_sends_what_was_written_and_is_not_reported() {
    for_seeds(50, |seed| {
        let mut pair = Pair::new(seed, Options::crumbs());
        pair.caller_io(|io, conn| {
            io.output(conn).resize(20_000, 9);
            io.close(conn);
            assert!(!io.is_open(conn));
            io.output(conn).extend_from_slice(b"into the void");
        });
        pair.world.run_for(60 * SECOND);
        // The linger ends a close that takes longer; then the rest is lost and the peer sees a
        // reset.
        match pair.called().closed()[..] {
            [CloseReason::Peer] => assert_eq!(pair.called().bytes(), vec![9; 20_000]),
            [CloseReason::Reset] => assert!(pair.called().bytes().len() <= 20_000),
            ref other => panic!("{other:?}"),
        }
        assert_eq!(pair.caller().closed(), []);
    });
}

#[test]
fn a_quick_close_arrives_whole_and_in_order() {
    let mut pair = Pair::new(3, Options::calm());
    pair.caller_io(|io, conn| {
        io.output(conn).resize(300_000, 9);
        io.close(conn);
    });
    pair.world.run_for(10 * SECOND);
    assert_eq!(pair.called().closed(), [CloseReason::Peer]);
    assert_eq!(pair.called().bytes().len(), 300_000);
    assert_eq!(pair.world.with(pair.caller, |_, io| io.connections()), 0);
    assert_eq!(pair.world.with(pair.called, |_, io| io.connections()), 0);
}

#[test]
fn abort_resets_and_is_not_reported() {
    let mut pair = Pair::new(4, Options::calm());
    pair.caller_io(|io, conn| {
        io.output(conn).extend_from_slice(b"lost");
        io.abort(conn);
    });
    pair.settle();
    assert_eq!(pair.called().closed(), [CloseReason::Reset]);
    assert_eq!(pair.called().bytes(), b"");
    assert_eq!(pair.caller().closed(), []);
}

#[test]
fn drained_comes_once_when_the_backlog_has_fallen() {
    let mut pair = Pair::new(5, Options { window_bytes: 1000..1001, ..Options::calm() });
    pair.called_io(Io::pause_reading);
    pair.caller_io(|io, conn| {
        io.output(conn).resize(5000, 1);
        io.notify_drained(conn, 2000);
    });
    pair.settle();
    assert!(!pair.caller().seen.contains(&Seen::Drained(pair.out)));
    pair.called_io(Io::resume_reading);
    pair.settle();
    let drained = pair.caller().seen.iter().filter(|seen| matches!(seen, Seen::Drained(_))).count();
    assert_eq!(drained, 1);
}

#[test]
fn a_turns_output_leaves_in_one_write() {
    let mut pair = Pair::new(6, Options::calm());
    let before = pair.caller_io(|io, conn| io.writes_of(conn));
    pair.caller_io(|io, conn| (0..100).for_each(|_| io.output(conn).extend_from_slice(b"query")));
    pair.settle();
    assert_eq!(pair.caller_io(|io, conn| io.writes_of(conn)), before + 1);
    assert_eq!(pair.called().bytes(), b"query".repeat(100));
}

#[test]
fn held_bytes_leave_once_they_are_released() {
    // A window too small for the held bytes, so that the peer's reading wakes the connection
    // meanwhile.
    let mut pair = Pair::new(6, Options { window_bytes: 100..101, ..Options::calm() });
    pair.caller_io(|io, conn| io.output(conn).resize(5_000, 1));
    for part in [b"one ", b"two "] {
        pair.caller_io(|io, conn| {
            io.hold(conn, true);
            io.output(conn).extend_from_slice(part);
        });
        pair.settle();
    }
    let sent = pair.called().bytes().len();
    assert!(sent >= 5_000 && !pair.called().bytes().ends_with(b"two "), "{sent}");
    assert_eq!(pair.caller_io(|io, conn| io.backlog(conn)), 5_008 - sent);
    pair.caller_io(|io, conn| io.hold(conn, false));
    pair.settle();
    assert!(pair.called().bytes().ends_with(b"one two "));
}

#[test]
fn a_close_sends_what_is_held() {
    let mut pair = Pair::new(7, Options::calm());
    pair.caller_io(|io, conn| {
        io.output(conn).extend_from_slice(b"held");
        io.hold(conn, true);
    });
    pair.settle();
    assert_eq!(pair.called().bytes(), b"");
    pair.caller_io(Io::close);
    pair.settle();
    assert_eq!(pair.called().bytes(), b"held");
    assert_eq!(pair.called().closed(), [CloseReason::Peer]);
}

#[test]
fn the_sent_log_survives_a_loss() {
    for_seeds(50, |seed| {
        let mut pair = Pair::new(seed, Options { window_bytes: 16..64, ..Options::crumbs() });
        let sequences = pair.caller_io(|io, conn| {
            io.keep_sent(conn);
            io.output(conn).extend_from_slice(b"first");
            io.retain(conn)
        });
        pair.world.run_for(SECOND / 2);
        let second = pair.caller_io(|io, conn| {
            io.output(conn).extend_from_slice(&[5; 500]);
            io.retain(conn)
        });
        let both = [sequences, second];
        pair.caller_io(|io, conn| {
            assert_eq!(io.sent(conn, both[0]), b"first");
            assert_eq!(io.sent(conn, both[1]), [5; 500]);
        });
        pair.world.kill(pair.called);
        pair.settle();
        assert_eq!(pair.caller().closed().len(), 1);
        assert_eq!(pair.caller_io(|io, conn| io.sent(conn, both[0]).len()), 0);
    });
}

#[test]
fn released_buffers_are_no_longer_kept() {
    let mut pair = Pair::new(7, Options::calm());
    let sequence = pair.caller_io(|io, conn| {
        io.keep_sent(conn);
        io.output(conn).extend_from_slice(b"once");
        assert_eq!(io.retain(conn), io.retain(conn));
        io.retain(conn)
    });
    pair.settle();
    assert!(pair.caller_io(|io, conn| io.retained_bytes(conn)) > 0);
    pair.caller_io(|io, conn| (0..3).for_each(|_| io.release(conn, sequence)));
    assert_eq!(
        pair.caller_io(|io, conn| (io.retained_bytes(conn), io.sent(conn, sequence).len())),
        (0, 0)
    );
}

#[test]
fn small_writes_after_a_large_one_are_kept_in_small_buffers() {
    let mut pair =
        Pair::new(13, Options { window_bytes: 8 << 20..(8 << 20) + 1, ..Options::calm() });
    pair.caller_io(|io, conn| {
        io.keep_sent(conn);
        io.output(conn).resize(16 << 20, 7);
    });
    pair.settle();
    assert_eq!(pair.caller_io(|io, conn| io.backlog(conn)), 0);
    for _ in 0..5 {
        pair.caller_io(|io, conn| {
            io.output(conn).extend_from_slice(&[1; 100]);
            io.retain(conn);
        });
        pair.settle();
    }
    let retained = pair.caller_io(|io, conn| io.retained_bytes(conn));
    assert!((500..1 << 20).contains(&retained), "{retained}");
}

#[test]
fn timers_and_mail_come_in_order_and_not_early() {
    for_seeds(50, |seed| {
        let mut pair = Pair::new(seed, Options::crumbs());
        let start = pair.world.now_ns();
        pair.world.with(pair.caller, |_, io| {
            for key in [30, 10, 20] {
                io.set_timer(io.now_ns() + key * MILLISECOND, key);
            }
        });
        (0..5).for_each(|mail| pair.world.post(pair.caller, mail));
        pair.world.run_for(9 * MILLISECOND);
        assert!(!pair.caller().seen.iter().any(|seen| matches!(seen, Seen::Timer(_))));
        pair.settle();
        let seen = |wanted: fn(&Seen) -> Option<u64>| {
            pair.caller().seen.iter().filter_map(wanted).collect::<Vec<_>>()
        };
        assert_eq!(
            seen(|seen| if let Seen::Timer(key) = seen { Some(*key) } else { None }),
            [10, 20, 30]
        );
        assert_eq!(
            seen(|seen| if let Seen::Mail(n) = seen { Some(u64::from(*n)) } else { None }),
            [0, 1, 2, 3, 4]
        );
        assert!(pair.world.now_ns() > start);
    });
}

#[test]
fn a_window_gathers_more_events_into_fewer_turns() {
    let turns_with = |window_ns: u64| {
        let mut pair = Pair::new(8, Options::calm());
        pair.called_io(|io, _| io.set_window_ns(window_ns));
        let before = pair.called().turns;
        for _ in 0..200 {
            pair.caller_io(|io, conn| io.output(conn).push(1));
            pair.world.run_for(10_000);
        }
        pair.settle();
        assert_eq!(pair.called().bytes().len(), 200);
        pair.called().turns - before
    };
    assert!(turns_with(500_000) * 4 < turns_with(0));
}

#[test]
fn buffers_of_a_burst_of_output_are_given_back() {
    let mut pair = Pair::new(12, Options::calm());
    // Each connection holds its own buffer until the burst is over.
    let address = pair.address;
    let connections = pair.world.with(pair.caller, |_, io| {
        (0..200).map(|_| io.connect(address, SECOND)).collect::<Vec<_>>()
    });
    pair.settle();
    pair.world.with(pair.caller, |_, io| {
        for &conn in &connections {
            io.output(conn).resize(60_000, 7);
        }
    });
    pair.settle();
    let after_burst = pair.caller_io(|io, _| io.idle_buffer_bytes());
    assert!(after_burst >= 200 * 60_000, "{after_burst}");
    for _ in 0..60 {
        pair.world.run_for(SECOND);
        pair.caller_io(|io, conn| io.output(conn).push(1));
    }
    // One MiB stays for good, and buffers in use meanwhile may have come back to it.
    let a_minute_later = pair.caller_io(|io, _| io.idle_buffer_bytes());
    assert!(a_minute_later < 2 << 20, "{a_minute_later}");
}
