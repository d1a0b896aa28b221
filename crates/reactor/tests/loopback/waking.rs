//! Wake-ups of the loop besides sockets: mail from other threads, and timers.

use std::sync::mpsc::{Receiver, channel};

use shunt_reactor::IoChoice;

use crate::support::*;

for_each_driver!(
    mail_from_many_threads,
    a_full_mailbox_says_so,
    timers_in_order,
    a_timer_set_by_a_timer
);

fn mail_from_many_threads(choice: IoChoice) {
    const EACH: u64 = 5000;
    let (handler, told) = reporting(|_, event, tell| {
        if let Event::Mail(mail) = event {
            tell(mail);
        }
        0
    });
    let core = Loop::start(choice, handler);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mailer = core.mailer.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    while mailer.post(thread << 32 | number).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut expected = [0; 4];
        for _ in 0..4 * EACH {
            let mail: u64 = next(&told);
            let thread = (mail >> 32) as usize;
            assert_eq!(mail & 0xffff_ffff, expected[thread]);
            expected[thread] += 1;
        }
    });
}

fn a_full_mailbox_says_so(choice: IoChoice) {
    let (full, is_full) = channel::<()>();
    let (handler, told): (_, Receiver<u64>) = reporting(move |_, event, tell| {
        if let Event::Mail(mail) = event {
            tell(mail);
            // The loop is blocked while the other thread fills the queue. After that nobody sends,
            // and this ends at once.
            let _ = is_full.recv();
        }
        0
    });
    let core = Loop::start(choice, handler);
    let mut posted = 0;
    let back = loop {
        match core.mailer.post(posted) {
            Ok(()) => posted += 1,
            Err(back) => break back,
        }
    };
    drop(full);
    assert_eq!(back, posted);
    assert_eq!(next(&told), 0);
    while core.mailer.post(STOP).is_err() {
        std::thread::yield_now();
    }
}

fn timers_in_order(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| {
        match event {
            Event::Started => {
                let now = io.now_ns();
                tell((0, now));
                for (after_us, key) in [(3000, 5), (1000, 2), (2000, 4), (1000, 3), (0, 1)] {
                    io.set_timer(now + after_us * 1000, key);
                }
            }
            Event::Timer(key) => tell((key, io.now_ns())),
            _ => {}
        }
        0
    });
    let _core = Loop::start(choice, handler);
    // Count from the time they were set: the first may be late.
    let (_, set_ns) = next(&told);
    let due: Vec<(u64, u64)> = (0..5).map(|_| next(&told)).collect();
    assert_eq!(due.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let after_us = due.iter().map(|(_, at_ns)| (at_ns - set_ns) / 1000);
    assert!(
        after_us.zip([0, 1000, 1000, 2000, 3000]).all(|(after, wanted)| after >= wanted),
        "a timer was early"
    );
}

fn a_timer_set_by_a_timer(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| {
        match event {
            Event::Started => io.set_timer(0, 0),
            Event::Timer(100) => tell(io.counters().turns),
            // Due at once, yet not within the same turn: a turn must end.
            Event::Timer(key) => io.set_timer(io.now_ns(), key + 1),
            _ => {}
        }
        0
    });
    let _core = Loop::start(choice, handler);
    assert!(next(&told) >= 100);
}
