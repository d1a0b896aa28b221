//! The supervisor with parts that fail on request, on a clock that only the test moves.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;

const DRAIN: Duration = Duration::from_secs(30);
const CLOSE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// Longest time between two heartbeats that the service manager accepts.
const WATCHDOG: Duration = Duration::from_secs(8);

/// The moment when a part ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// As soon as it drains.
    AtOnce,
    /// As soon as it drains, with the death of one of its threads.
    Dying,
    /// As soon as its clients are cut off.
    CutOff,
    /// Never without the test.
    Never,
}

/// State that a fake part shares with the test.
struct Fake {
    name: &'static str,
    ends: Ends,
    /// Statuses that it returns at the next looks.
    failures: VecDeque<Exit>,
    has_ended: bool,
    has_retry: bool,
    is_stuck: bool,
    was_dropped: bool,
    diary: Rc<RefCell<Vec<String>>>,
}

impl Fake {
    fn note(&self, what: &str) {
        self.diary.borrow_mut().push(format!("{} {what}", self.name));
    }
}

struct FakePart(Rc<RefCell<Fake>>);

impl Part for FakePart {
    fn look(&mut self) -> Option<Exit> {
        self.0.borrow_mut().failures.pop_front()
    }

    fn has_retry(&self) -> bool {
        self.0.borrow().has_retry
    }

    fn is_stuck(&self, _now: Instant) -> bool {
        self.0.borrow().is_stuck
    }

    fn reload(&mut self) {
        self.0.borrow().note("reload");
    }

    fn drain(&mut self, signal: Option<&'static str>) -> Duration {
        let mut fake = self.0.borrow_mut();
        fake.note(&format!("drain {}", signal.unwrap_or("-")));
        fake.has_ended |= matches!(fake.ends, Ends::AtOnce | Ends::Dying);
        if fake.ends == Ends::Dying {
            fake.failures.push_back(Exit::Internal);
        }
        DRAIN
    }

    fn cut_off(&mut self) -> Duration {
        let mut fake = self.0.borrow_mut();
        fake.note("cut off");
        fake.has_ended |= fake.ends == Ends::CutOff;
        CLOSE
    }

    fn has_ended(&self) -> bool {
        self.0.borrow().has_ended
    }

    fn give_up(&self) {
        self.0.borrow().note("given up");
    }
}

impl Drop for FakePart {
    fn drop(&mut self) {
        self.0.borrow_mut().was_dropped = true;
    }
}

/// A process of two parts, `a` before `b`.
struct Scene {
    supervisor: Supervisor,
    fakes: [Rc<RefCell<Fake>>; 2],
    diary: Rc<RefCell<Vec<String>>>,
    /// Messages to the service manager.
    told: Rc<RefCell<Vec<String>>>,
    start: Instant,
    now: Instant,
    exit: Option<Exit>,
}

impl Scene {
    fn new(ends: [Ends; 2], hangup: Hangup) -> Self {
        let diary = Rc::<RefCell<Vec<String>>>::default();
        let fake = |name, ends| {
            let (failures, diary) = (VecDeque::new(), Rc::clone(&diary));
            let fake = Fake {
                name,
                ends,
                failures,
                has_ended: false,
                has_retry: false,
                is_stuck: false,
                was_dropped: false,
                diary,
            };
            Rc::new(RefCell::new(fake))
        };
        let fakes = [fake("a", ends[0]), fake("b", ends[1])];
        let parts =
            fakes.iter().map(|fake| Box::new(FakePart(Rc::clone(fake))) as Box<dyn Part>).collect();
        let now = Instant::now();
        let told = Rc::<RefCell<Vec<String>>>::default();
        let telling = Rc::clone(&told);
        let send = move |states: &[sd_notify::NotifyState<'_>]| {
            let states = states.iter().filter(|state| !state.to_string().starts_with("MONO"));
            telling.borrow_mut().extend(states.map(ToString::to_string));
        };
        let manager = Manager::new(Box::new(send), Some(WATCHDOG));
        Self {
            supervisor: Supervisor::with_manager(parts, hangup, manager),
            fakes,
            diary,
            told,
            start: now,
            now,
            exit: None,
        }
    }

    fn step(&mut self, event: Option<Event>) {
        assert_eq!(self.exit, None, "it has ended");
        self.exit = self.supervisor.step(event, self.now);
    }

    fn signal(&mut self, signal: &'static str) {
        self.step(Some(Event::Stop { signal, at: self.now }));
    }

    fn hangup(&mut self) {
        self.step(Some(Event::Hangup { at: self.now }));
    }

    fn fails(&mut self, part: usize, exit: Exit) {
        self.fakes[part].borrow_mut().failures.push_back(exit);
        self.step(Some(Event::Look));
    }

    fn ends(&mut self, part: usize) {
        self.fakes[part].borrow_mut().has_ended = true;
        self.step(Some(Event::Look));
    }

    /// Lets time pass and calls the supervisor when it is due.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..10_000 {
            let wait = self.supervisor.due(self.now);
            if self.exit.is_some() || self.now + wait > until {
                self.now = until;
                return;
            }
            self.now += wait;
            self.step(None);
        }
        panic!("the supervisor does not wait");
    }

    /// Lets enough time pass for every wait to end; returns the time of the end.
    fn pass_until_the_end(&mut self) -> Duration {
        while self.exit.is_none() {
            let wait = self.supervisor.due(self.now);
            assert!(self.now - self.start < 10 * (DRAIN + CLOSE), "there is no end to it");
            self.now += wait;
            self.step(None);
        }
        self.now - self.start
    }

    fn diary(&self) -> Vec<String> {
        self.diary.borrow().clone()
    }

    /// Takes the messages to the service manager.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.borrow_mut())
    }

    /// Lets time pass; returns the longest time between two heartbeats.
    fn silence(&mut self, time: Duration) -> Duration {
        let (until, mut last, mut longest) = (self.now + time, self.now, Duration::ZERO);
        while self.now < until && self.exit.is_none() {
            self.now += self.supervisor.due(self.now).min(until - self.now);
            self.step(None);
            longest = longest.max(self.now - last);
            if self.told().iter().any(|told| told == "WATCHDOG=1") {
                last = self.now;
            }
        }
        longest
    }
}

fn never() -> Scene {
    Scene::new([Ends::Never; 2], Hangup::Reload)
}

#[test]
fn a_signal_drains_one_part_after_the_other() {
    let mut scene = never();
    scene.pass(DRAIN);
    scene.signal("SIGTERM");
    scene.pass(SECOND);
    assert_eq!(scene.diary(), ["a drain SIGTERM"], "b serves a until that has ended");
    scene.ends(0);
    assert_eq!(scene.diary(), ["a drain SIGTERM", "b drain -"]);
    // The unused time of `a` does not add to that of `b`, and the used time does not reduce it.
    scene.pass(DRAIN - SECOND);
    assert_eq!(scene.exit, None);
    scene.ends(1);
    assert_eq!((scene.exit, scene.diary().len()), (Some(Exit::Done), 2));
}

#[test]
fn a_part_that_takes_too_long_is_cut_off_and_that_is_no_failure() {
    let mut scene = Scene::new([Ends::CutOff, Ends::CutOff], Hangup::Reload);
    scene.signal("SIGINT");
    assert_eq!(scene.pass_until_the_end(), 2 * DRAIN);
    assert_eq!(scene.exit, Some(Exit::Done));
    assert_eq!(scene.diary(), ["a drain SIGINT", "a cut off", "b drain -", "b cut off"]);
}

#[test]
fn signals_within_a_second_of_the_first_are_one_order() {
    let mut scene = never();
    scene.signal("SIGTERM");
    scene.signal("SIGTERM");
    scene.signal("SIGINT");
    scene.pass(SECOND / 2);
    scene.signal("SIGINT");
    scene.pass(SECOND / 2 - Duration::from_nanos(1));
    scene.signal("SIGTERM");
    assert_eq!((scene.exit, scene.diary()), (None, vec!["a drain SIGTERM".to_owned()]));
    scene.ends(0);
    scene.ends(1);
    assert_eq!(scene.exit, Some(Exit::Done));
}

/// Counted from the first signal, so that a user who repeats the order often does not delay the end
/// for ever.
#[test]
fn a_signal_after_a_second_ends_at_once_wherever_it_is() {
    let to_where: [&dyn Fn(&mut Scene); 4] = [
        &|scene| scene.pass(SECOND / 2),
        &|scene| scene.pass(DRAIN),
        &|scene| scene.ends(0),
        &|scene| {
            scene.ends(0);
            scene.pass(DRAIN);
        },
    ];
    for (index, go) in to_where.into_iter().enumerate() {
        let mut scene = never();
        scene.signal("SIGTERM");
        go(&mut scene);
        let passed = scene.now - scene.start;
        if passed < SECOND {
            scene.signal("SIGTERM");
            assert_eq!(scene.exit, None, "{index}");
            scene.pass(SECOND - passed);
        }
        let before = scene.diary();
        scene.signal("SIGTERM");
        assert_eq!((scene.exit, scene.diary()), (Some(Exit::Interrupted), before), "{index}");
    }
}

/// The process was stopped, or the supervisor was busy with a reload.
#[test]
fn a_signal_counts_from_its_arrival() {
    let mut scene = never();
    let first = scene.now;
    scene.pass(SECOND * 5);
    scene.step(Some(Event::Stop { signal: "SIGTERM", at: first }));
    scene.step(Some(Event::Stop { signal: "SIGINT", at: first + SECOND / 2 }));
    assert_eq!(scene.exit, None);
    scene.step(Some(Event::Stop { signal: "SIGINT", at: first + SECOND }));
    assert_eq!(scene.exit, Some(Exit::Interrupted));
}

#[test]
fn a_death_while_serving_ends_in_order_and_not_with_0() {
    for part in 0..2 {
        let mut scene = never();
        scene.fails(part, Exit::Internal);
        assert_eq!(scene.diary(), ["a drain -"]);
        // A user who sees the failure and sends the first signal does not cut the drain short.
        scene.pass(SECOND * 2);
        scene.signal("SIGTERM");
        scene.ends(0);
        scene.ends(1);
        assert_eq!(scene.exit, Some(Exit::Internal), "{part}");
        assert_eq!(scene.diary(), ["a drain -", "b drain -"]);
    }
    let mut scene = never();
    scene.fails(0, Exit::Internal);
    scene.signal("SIGTERM");
    scene.pass(SECOND);
    scene.signal("SIGTERM");
    assert_eq!(scene.exit, Some(Exit::Interrupted));
}

/// A thread that panics sends no message.
#[test]
fn a_death_without_a_word_is_noticed_while_it_serves_and_while_it_drains() {
    for part in 0..2 {
        for is_draining in [false, true] {
            let mut scene = never();
            if is_draining {
                scene.signal("SIGTERM");
            }
            scene.pass(SECOND / 2);
            scene.fakes[part].borrow_mut().failures.push_back(Exit::Internal);
            scene.pass(LOOK_EVERY);
            assert!(scene.fakes[part].borrow().failures.is_empty(), "{part} {is_draining}");
            assert_eq!(scene.diary(), [if is_draining { "a drain SIGTERM" } else { "a drain -" }]);
            scene.ends(0);
            scene.ends(1);
            assert_eq!(scene.exit, Some(Exit::Internal), "{part} {is_draining}");
        }
    }
}

#[test]
fn a_death_during_the_drain_does_not_end_with_0() {
    for part in 0..2 {
        for before in [true, false] {
            let mut scene = never();
            scene.signal("SIGTERM");
            if before {
                scene.fails(part, Exit::Internal);
            }
            scene.ends(0);
            if !before {
                // Also for a part that has ended.
                scene.fails(part, Exit::Internal);
            }
            assert_eq!(scene.exit, None, "b has its time all the same");
            scene.ends(1);
            assert_eq!(scene.exit, Some(Exit::Internal), "{part} {before}");
        }
    }
}

#[test]
fn another_reason_to_end_has_its_own_status_unless_a_thread_dies() {
    for (failures, expected) in [
        (&[Exit::NoRing][..], Exit::NoRing),
        (&[Exit::NoRing, Exit::Unfit], Exit::NoRing),
        (&[Exit::Unfit, Exit::Internal], Exit::Internal),
        (&[Exit::Internal, Exit::Unfit], Exit::Internal),
    ] {
        let mut scene = Scene::new([Ends::Never, Ends::AtOnce], Hangup::Reload);
        scene.fakes[0].borrow_mut().failures.extend(failures);
        scene.step(Some(Event::Look));
        scene.ends(0);
        assert_eq!(scene.exit, Some(expected), "{failures:?}");
    }
}

#[test]
fn a_part_that_does_not_end_is_given_up_and_the_next_has_its_time() {
    let mut scene = never();
    scene.signal("SIGTERM");
    assert_eq!(scene.pass_until_the_end(), 2 * (DRAIN + CLOSE));
    assert_eq!(scene.exit, Some(Exit::Internal));
    let expected =
        ["a drain SIGTERM", "a cut off", "a given up", "b drain -", "b cut off", "b given up"]
            .map(str::to_owned);
    assert_eq!(scene.diary(), expected);
}

#[test]
fn nobody_left_to_hear_signals_is_a_death() {
    let mut scene = Scene::new([Ends::AtOnce, Ends::AtOnce], Hangup::Reload);
    scene.step(Some(Event::Deaf));
    assert_eq!((scene.exit, scene.diary().len()), (Some(Exit::Internal), 2));
}

#[test]
fn hangup_reloads_while_it_serves() {
    let mut scene = never();
    scene.hangup();
    assert_eq!(scene.diary(), ["a reload", "b reload"]);
    scene.signal("SIGTERM");
    scene.pass(SECOND * 2);
    scene.hangup();
    assert_eq!((scene.exit, scene.diary().len()), (None, 3), "it neither reloads nor ends at once");
}

#[test]
fn hangup_ends_where_there_is_nothing_to_reload() {
    let mut scene = Scene::new([Ends::Never; 2], Hangup::End);
    scene.hangup();
    scene.signal("SIGTERM");
    assert_eq!((scene.exit, scene.diary()), (None, vec!["a drain SIGHUP".to_owned()]));
    scene.pass(SECOND);
    scene.hangup();
    assert_eq!(scene.exit, Some(Exit::Interrupted));
}

#[test]
fn a_part_that_could_not_do_something_is_called_again_soon() {
    let mut scene = never();
    assert_eq!(scene.supervisor.due(scene.now), LOOK_EVERY, "nothing is to be done");
    scene.fakes[1].borrow_mut().has_retry = true;
    assert_eq!(scene.supervisor.due(scene.now), RETRY);
    scene.signal("SIGTERM");
    scene.pass(DRAIN - RETRY / 2);
    assert!(scene.supervisor.due(scene.now) <= RETRY / 2, "the limit is sooner");
}

/// For any behaviour of the parts and any cause of the end: each part is told to end, in order, and
/// has its time; no failure ends with 0; the process ends.
#[test]
fn promises_hold_for_any_behaviour_of_the_parts() {
    let all = [Ends::AtOnce, Ends::Dying, Ends::CutOff, Ends::Never];
    let causes: [&dyn Fn(&mut Scene); 5] = [
        &|scene| scene.signal("SIGTERM"),
        &|scene| scene.fails(0, Exit::Internal),
        &|scene| scene.fails(1, Exit::Internal),
        &|scene| scene.fails(0, Exit::Unfit),
        &|scene| scene.step(Some(Event::Deaf)),
    ];
    for (a, b) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
        for (index, cause) in causes.iter().enumerate() {
            let mut scene = Scene::new([a, b], Hangup::Reload);
            cause(&mut scene);
            let time = scene.pass_until_the_end();
            let case = format!("{a:?} {b:?} {index}: {:?} after {time:?}", scene.diary());
            let of_one = |ends| match ends {
                Ends::AtOnce | Ends::Dying => (Duration::ZERO, vec!["drain"]),
                Ends::CutOff => (DRAIN, vec!["drain", "cut off"]),
                Ends::Never => (DRAIN + CLOSE, vec!["drain", "cut off", "given up"]),
            };
            let ((time_a, of_a), (time_b, of_b)) = (of_one(a), of_one(b));
            assert_eq!(time, time_a + time_b, "{case}");
            let expected = of_a
                .iter()
                .map(|what| format!("a {what}"))
                .chain(of_b.iter().map(|what| format!("b {what}")));
            let happened = scene
                .diary()
                .into_iter()
                .map(|line| line.replace(" -", "").replace(" SIGTERM", ""));
            assert!(happened.eq(expected), "{case}");
            let is_bad = [a, b].iter().any(|ends| matches!(ends, Ends::Dying | Ends::Never));
            let status = match index {
                0 if !is_bad => Exit::Done,
                3 if !is_bad => Exit::Unfit,
                _ => Exit::Internal,
            };
            assert_eq!(scene.exit, Some(status), "{case}");
        }
    }
}

/// The same with events from a channel, which are there before the supervisor looks.
#[test]
fn the_supervisor_runs_on_events_and_leaves_ended_parts_alone() {
    for (ends, later, expected) in
        [(Ends::AtOnce, false, Exit::Done), (Ends::Never, true, Exit::Interrupted)]
    {
        let scene = Scene::new([ends; 2], Hangup::Reload);
        let events = Events::new();
        let (teller, told) = events.teller();
        teller.tell("something");
        assert_eq!(told.try_recv(), Ok("something"));
        let at = scene.start;
        for at in [Some(at), later.then_some(at + SECOND)].into_iter().flatten() {
            events.sender.send(Event::Stop { signal: "SIGTERM", at }).expect("it is there");
        }
        assert_eq!(scene.supervisor.run(&events), expected);
        assert!(scene.fakes.iter().all(|fake| !fake.borrow().was_dropped), "dropping could wait");
    }
}

#[test]
fn heartbeats_come_while_all_parts_serve_and_while_they_drain() {
    let mut scene = never();
    assert!(scene.silence(10 * WATCHDOG) <= WATCHDOG / 2);
    scene.signal("SIGTERM");
    // The loops of a part that drains end one by one.
    scene.fakes[0].borrow_mut().is_stuck = true;
    assert!(scene.silence(DRAIN) <= WATCHDOG / 2);
}

#[test]
fn a_part_that_stands_still_stops_the_heartbeats_until_it_serves_again() {
    let mut scene = never();
    scene.silence(WATCHDOG);
    scene.fakes[1].borrow_mut().is_stuck = true;
    assert_eq!(scene.silence(10 * WATCHDOG), 10 * WATCHDOG);
    scene.fakes[1].borrow_mut().is_stuck = false;
    assert!(scene.silence(10 * WATCHDOG) <= WATCHDOG / 2);
}

#[test]
fn the_service_manager_learns_of_reloads_and_gets_the_time_of_each_step_of_the_end() {
    let mut scene = Scene::new([Ends::CutOff, Ends::AtOnce], Hangup::Reload);
    scene.hangup();
    assert_eq!(scene.told(), ["RELOADING=1", "READY=1", "WATCHDOG=1"]);
    scene.signal("SIGTERM");
    scene.pass_until_the_end();
    let told = scene.told();
    let mut told: Vec<&str> =
        told.iter().map(String::as_str).filter(|told| *told != "WATCHDOG=1").collect();
    told.retain(|told| *told != "STOPPING=1");
    let drain = "EXTEND_TIMEOUT_USEC=35000000";
    assert_eq!(told, [drain, "EXTEND_TIMEOUT_USEC=15000000", drain]);
}
