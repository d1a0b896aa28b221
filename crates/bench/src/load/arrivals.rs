//! Open loop: gives each due arrival a free stream id, or lets it wait for one.
//!
//! In a token-aware load an arrival draws its key first and then waits only for the nodes of that
//! key. So a slow node delays its queries but gets no fewer of them.

use std::collections::VecDeque;

use shunt_reactor::Io;

use crate::load::{
    generator::{Generator, Phase},
    mix::Operation,
    operations::{Drawn, no_holder},
    pace::{Pace, WAITING_MAX},
    session::{Session, SessionRest, Step},
    timers::TIMER_ARRIVAL,
};

/// Free stream ids, and operations that wait for one; by target if the load is token-aware.
#[derive(Debug, Default)]
pub(super) struct Queues {
    free: Vec<VecDeque<(u32, u16)>>,
    held: Vec<VecDeque<Drawn>>,
    /// Number of operations in `held`.
    pub(super) held_total: usize,
}

impl Queues {
    pub(super) fn new(targets: usize) -> Self {
        Self {
            free: vec![VecDeque::new(); targets],
            held: vec![VecDeque::new(); targets],
            held_total: 0,
        }
    }
}

impl Generator {
    /// Uses a stream id that became free in an open loop.
    #[inline]
    pub(super) fn use_free(&mut self, io: &mut Io, rest: &mut SessionRest, stream: u16) {
        if self.routes.is_some() {
            if let Some(drawn) = self.queues.held[rest.target].pop_front() {
                self.queues.held_total -= 1;
                self.send_drawn(io, rest, stream, drawn);
            } else {
                self.queues.free[rest.target].push_back((rest.index as u32, stream));
            }
            return;
        }
        match self.pace.as_mut().and_then(Pace::take) {
            Some(intended_ns) => self.send(io, rest, stream, intended_ns),
            None => self.queues.free[0].push_back((rest.index as u32, stream)),
        }
    }

    pub(super) fn arrival_timer(&mut self) {
        self.armed_ns = 0;
    }

    pub(super) fn send_arrivals(&mut self, io: &mut Io, sessions: &mut [Session]) {
        if !matches!(self.phase, Phase::WarmUp | Phase::Round(_)) {
            return;
        }
        let Some(pace) = &mut self.pace else { return };
        let next_ns = pace.advance(io.now_ns());
        if self.armed_ns == 0 || self.armed_ns > next_ns {
            self.armed_ns = next_ns;
            io.set_timer(next_ns, TIMER_ARRIVAL);
        }
        if self.routes.is_some() {
            return self.send_routed(io, sessions);
        }
        while self.pace.as_ref().is_some_and(|pace| pace.waiting() > 0) {
            let Some((index, stream)) = self.pop_free(0, sessions) else { break };
            if let Some(intended_ns) = self.pace.as_mut().and_then(Pace::take) {
                self.send(io, &mut sessions[index].rest, stream, intended_ns);
            }
        }
    }

    fn send_routed(&mut self, io: &mut Io, sessions: &mut [Session]) {
        while let Some(intended_ns) = self.pace.as_mut().and_then(Pace::take) {
            let operation = self.mix.draw(&mut self.random);
            let key = match self.key_for(operation) {
                Ok(key) => key,
                Err(why) => return self.fail(io, why),
            };
            let (routes, free) = (&mut self.routes, &self.queues.free);
            let chosen = routes.as_mut().and_then(|routes| {
                routes.choose(key, &mut self.random, |target| !free[target].is_empty())
            });
            let Some(target) = chosen else { return self.fail(io, no_holder(key)) };
            let drawn = Drawn { operation, key, intended_ns };
            match self.pop_free(target, sessions) {
                Some((index, stream)) => {
                    self.send_drawn(io, &mut sessions[index].rest, stream, drawn)
                }
                None => self.hold(target, drawn),
            }
        }
    }

    fn hold(&mut self, target: usize, drawn: Drawn) {
        if self.queues.held_total < WAITING_MAX {
            self.queues.held[target].push_back(drawn);
            self.queues.held_total += 1;
            return;
        }
        if drawn.operation == Operation::Insert {
            self.growth.failed(drawn.key);
        }
        if let Some(pace) = &mut self.pace {
            pace.shed += 1;
        }
    }

    /// Takes the stream id that has been free for longest, with its connection.
    fn pop_free(&mut self, target: usize, sessions: &[Session]) -> Option<(usize, u16)> {
        while let Some((index, stream)) = self.queues.free[target].pop_front() {
            let Some(session) = sessions.get(index as usize) else { continue };
            // Stream ids of a connection that was lost meanwhile are still in the queue.
            let usable = session.rest.step == Step::Ready
                && session
                    .rest
                    .slots
                    .get(usize::from(stream))
                    .is_some_and(|slot| slot.intended_ns == 0);
            if usable {
                return Some((index as usize, stream));
            }
        }
        None
    }
}
