//! Several proxies as one part of the process: the fleet of `shunt up`.
//!
//! When an operator orders a proxy to leave its fleet, that proxy drains and ends alone, and the
//! others continue. If it is the last one that serves, the process ends with it, as `shunt proxy`
//! does. The part must never do the following; the tests below cover each:
//! - *End the process, or another proxy, for an order to one of them*, while another serves.
//! - *Hang* on a proxy that drains alone: that proxy has the same limits as when the process ends,
//!   and is given up after them.
//! - *Hide that a thread has died*, even of a proxy that drains alone or has ended.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tracing::info;

use crate::exit::Exit;
use crate::supervise::Part;

/// Stages of a proxy's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining { until: Instant },
    Closing { until: Instant },
    Ended,
}

struct One<P> {
    address: SocketAddr,
    part: P,
    phase: Phase,
}

impl<P: Part> One<P> {
    /// Drains the proxy if it serves; returns the time that it may still take.
    fn drain(&mut self, signal: Option<&'static str>, now: Instant) -> Duration {
        match self.phase {
            Phase::Serving => {
                let limit = self.part.drain(signal);
                self.phase = Phase::Draining { until: now + limit };
                limit
            }
            Phase::Draining { until } | Phase::Closing { until } => {
                until.saturating_duration_since(now)
            }
            Phase::Ended => Duration::ZERO,
        }
    }

    /// Continues the end of a proxy that drains alone.
    fn advance(&mut self, now: Instant) -> Option<Exit> {
        match self.phase {
            Phase::Serving | Phase::Ended => None,
            Phase::Draining { .. } | Phase::Closing { .. } if self.part.has_ended() => {
                info!(proxy = %self.address, "it was told to leave and has stopped; the other \
                proxies continue");
                self.phase = Phase::Ended;
                None
            }
            Phase::Draining { until } if now >= until => {
                self.phase = Phase::Closing { until: now + self.part.cut_off() };
                None
            }
            Phase::Closing { until } if now >= until => {
                self.part.give_up();
                self.phase = Phase::Ended;
                Some(Exit::Internal)
            }
            Phase::Draining { .. } | Phase::Closing { .. } => None,
        }
    }
}

/// Proxies that end one by one when ordered to, and all together with the process.
pub(crate) struct Proxies<P> {
    all: Vec<One<P>>,
    /// The process is ending; from then on the supervisor keeps the time limits.
    is_ending: bool,
}

impl<P: Part> Proxies<P> {
    /// Creates the part of these proxies, each with its address.
    pub(crate) fn new(parts: impl IntoIterator<Item = (SocketAddr, P)>) -> Self {
        let one = |(address, part)| One { address, part, phase: Phase::Serving };
        Self { all: parts.into_iter().map(one).collect(), is_ending: false }
    }

    fn look_at(&mut self, now: Instant) -> Option<Exit> {
        for index in 0..self.all.len() {
            let Some(exit) = self.all[index].part.look() else { continue };
            let serve = self.all.iter().filter(|one| one.phase == Phase::Serving).count();
            // `Done` comes from a proxy that was told to leave.
            if exit != Exit::Done || self.is_ending || serve <= 1 {
                return Some(exit);
            }
            self.all[index].drain(None, now);
        }
        if self.is_ending {
            return None;
        }
        self.all.iter_mut().find_map(|one| one.advance(now))
    }

    fn running(&mut self) -> impl Iterator<Item = &mut One<P>> {
        self.all.iter_mut().filter(|one| !one.part.has_ended())
    }
}

impl<P: Part> Part for Proxies<P> {
    fn look(&mut self) -> Option<Exit> {
        self.look_at(Instant::now())
    }

    fn is_stuck(&self, now: Instant) -> bool {
        let serves = |one: &&One<P>| one.phase == Phase::Serving;
        self.all.iter().filter(serves).any(|one| one.part.is_stuck(now))
    }

    fn has_retry(&self) -> bool {
        self.all.iter().any(|one| one.part.has_retry())
    }

    fn reload(&mut self) {
        self.all.iter_mut().for_each(|one| one.part.reload());
    }

    fn drain(&mut self, signal: Option<&'static str>) -> Duration {
        let now = Instant::now();
        self.is_ending = true;
        self.all.iter_mut().map(|one| one.drain(signal, now)).max().unwrap_or_default()
    }

    fn cut_off(&mut self) -> Duration {
        self.running().map(|one| one.part.cut_off()).max().unwrap_or_default()
    }

    fn has_ended(&self) -> bool {
        self.all.iter().all(|one| one.part.has_ended())
    }

    fn give_up(&self) {
        self.all.iter().filter(|one| !one.part.has_ended()).for_each(|one| one.part.give_up());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;

    const DRAIN: Duration = Duration::from_secs(30);
    const CLOSE: Duration = Duration::from_secs(10);

    #[derive(Default)]
    struct Fake {
        diary: Vec<&'static str>,
        tells: VecDeque<Exit>,
        has_ended: bool,
    }

    #[derive(Clone, Default)]
    struct FakePart(Rc<RefCell<Fake>>);

    impl FakePart {
        fn note(&self, what: &'static str) {
            self.0.borrow_mut().diary.push(what);
        }

        fn diary(&self) -> Vec<&'static str> {
            self.0.borrow().diary.clone()
        }

        fn tells(&self, exit: Exit) {
            self.0.borrow_mut().tells.push_back(exit);
        }

        fn ends(&self) {
            self.0.borrow_mut().has_ended = true;
        }
    }

    impl Part for FakePart {
        fn look(&mut self) -> Option<Exit> {
            self.0.borrow_mut().tells.pop_front()
        }

        fn reload(&mut self) {
            self.note("reload");
        }

        fn drain(&mut self, signal: Option<&'static str>) -> Duration {
            self.note(signal.unwrap_or("drain"));
            DRAIN
        }

        fn cut_off(&mut self) -> Duration {
            self.note("cut off");
            CLOSE
        }

        fn has_ended(&self) -> bool {
            self.0.borrow().has_ended
        }

        fn give_up(&self) {
            self.note("given up");
        }
    }

    fn three() -> ([FakePart; 3], Proxies<FakePart>) {
        let fakes = [(); 3].map(|()| FakePart::default());
        let numbered = fakes
            .iter()
            .cloned()
            .zip(1..)
            .map(|(fake, host)| (([127, 0, 0, host], 9042).into(), fake));
        let proxies = Proxies::new(numbered);
        (fakes, proxies)
    }

    #[test]
    fn a_proxy_told_to_leave_ends_alone_and_the_last_ends_all() {
        let ([a, b, c], mut proxies) = three();
        let now = Instant::now();
        b.tells(Exit::Done);
        assert_eq!(proxies.look_at(now), None);
        assert_eq!([a.diary(), b.diary(), c.diary()], [vec![], vec!["drain"], vec![]]);
        b.ends();
        // Holds no matter how long ago it ended.
        for seconds in [1, 10, 100, 1_000] {
            assert_eq!(proxies.look_at(now + Duration::from_secs(seconds)), None);
        }
        assert_eq!(b.diary(), ["drain"], "it has ended in time");
        // Both at once: one of them counts as the last.
        a.tells(Exit::Done);
        c.tells(Exit::Done);
        assert_eq!(proxies.look_at(now), Some(Exit::Done));
        assert!(!proxies.has_ended());
        assert_eq!(proxies.drain(None), DRAIN, "the last has its time");
        assert_eq!([a.diary(), b.diary(), c.diary()], [["drain"]; 3].map(Vec::from));
        a.ends();
        assert!(!proxies.has_ended());
        c.ends();
        assert!(proxies.has_ended());
    }

    #[test]
    fn a_proxy_that_drains_too_long_is_cut_off_and_given_up() {
        let ([a, b, c], mut proxies) = three();
        let now = Instant::now();
        b.tells(Exit::Done);
        let nanosecond = Duration::from_nanos(1);
        for at in [now, now + DRAIN - nanosecond] {
            assert_eq!(proxies.look_at(at), None);
        }
        assert_eq!(b.diary(), ["drain"]);
        for at in [now + DRAIN, now + DRAIN + CLOSE - nanosecond] {
            assert_eq!(proxies.look_at(at), None);
        }
        assert_eq!(b.diary(), ["drain", "cut off"]);
        assert_eq!(proxies.look_at(now + DRAIN + CLOSE), Some(Exit::Internal));
        assert_eq!((b.diary().len(), a.diary(), c.diary()), (3, vec![], vec![]));
        // That ends the process; the others still get their time.
        assert_eq!(proxies.drain(None), DRAIN);
        assert_eq!((a.diary(), c.diary(), b.diary().len()), (vec!["drain"], vec!["drain"], 3));
    }

    #[test]
    fn a_thread_that_dies_is_told_whatever_its_proxy_is_at() {
        for (drains, has_ended) in [(false, false), (true, false), (true, true)] {
            let ([_, b, _], mut proxies) = three();
            let now = Instant::now();
            if drains {
                b.tells(Exit::Done);
                assert_eq!(proxies.look_at(now), None);
            }
            if has_ended {
                b.ends();
                assert_eq!(proxies.look_at(now), None);
            }
            b.tells(Exit::Internal);
            assert_eq!(proxies.look_at(now), Some(Exit::Internal), "{drains} {has_ended}");
        }
    }

    #[test]
    fn a_signal_drains_all_at_once_and_none_of_them_twice() {
        let ([a, b, c], mut proxies) = three();
        b.tells(Exit::Done);
        assert_eq!(proxies.look_at(Instant::now()), None);
        assert_eq!(proxies.drain(Some("SIGTERM")), DRAIN);
        assert_eq!(
            [a.diary(), b.diary(), c.diary()],
            [["SIGTERM"], ["drain"], ["SIGTERM"]].map(Vec::from)
        );
        a.ends();
        assert_eq!(proxies.cut_off(), CLOSE);
        proxies.give_up();
        assert_eq!(
            (a.diary().len(), b.diary(), c.diary().len()),
            (1, vec!["drain", "cut off", "given up"], 3)
        );
        // From then on the supervisor decides when a limit is over.
        assert_eq!(proxies.look_at(Instant::now() + 10 * DRAIN), None);
        assert_eq!(b.diary().len(), 3);
    }
}
