//! Requests for several servers: started, sent to all shims, and answered. Datagrams for this shim
//! itself do not leave it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_reactor::Io;
use shunt_wire::netmc::Op;

use super::{DUE, Store};
use crate::metrics::Why;
use crate::shim::{Asked, Coordinator, CoordinatorOptions};

#[derive(Debug)]
pub(super) struct Coordinated {
    pub(super) own: SocketAddr,
    coordinator: Coordinator,
    /// Datagrams of this shim to itself.
    own_datagrams: VecDeque<Vec<u8>>,
    /// Time for which the timer is set.
    armed_ns: Option<u64>,
}

impl Coordinated {
    pub(super) fn new(options: &CoordinatorOptions) -> Self {
        let coordinator = Coordinator::new(options);
        Self { own: options.own, coordinator, own_datagrams: VecDeque::new(), armed_ns: None }
    }

    pub(super) fn send_itself(&mut self, data: &[u8]) {
        self.own_datagrams.push_back(data.to_vec());
    }

    pub(super) fn under_way(&self) -> usize {
        self.coordinator.under_way()
    }

    /// Calls the coordinator, and sends its datagrams.
    fn with<T>(
        &mut self,
        io: &mut Io,
        call: impl FnOnce(&mut Coordinator, u64, &mut dyn FnMut(SocketAddr, &[u8])) -> T,
    ) -> T {
        let Self { own, coordinator, own_datagrams, .. } = self;
        call(coordinator, io.now_ns(), &mut |to, data| match to == *own {
            true => own_datagrams.push_back(data.to_vec()),
            false => io.send_datagram(to, data),
        })
    }

    fn arm(&mut self, io: &mut Io) {
        let Some(due_ns) = self.coordinator.due_at_ns() else { return };
        if self.armed_ns.is_none_or(|armed_ns| due_ns < armed_ns) {
            self.armed_ns = Some(due_ns);
            io.set_timer(due_ns, DUE);
        }
    }
}

impl Store {
    pub(super) fn begin(&mut self, io: &mut Io, asked: Asked) {
        let Some(coordinated) = &mut self.coordinated else { return };
        match coordinated.with(io, |coordinator, now_ns, out| coordinator.begin(now_ns, asked, out))
        {
            Ok(()) => self.metrics.coordinated.add(1),
            Err(_) => self.metrics.rejected.of(Why::Busy).add(1),
        }
    }

    /// Takes a shim's reply.
    pub(super) fn gather(&mut self, io: &mut Io, from: SocketAddr, data: &[u8]) {
        let Some(coordinated) = &mut self.coordinated else { return };
        coordinated
            .with(io, |coordinator, now_ns, out| coordinator.datagram(now_ns, from, data, out));
    }

    pub(super) fn look(&mut self, io: &mut Io) {
        let Some(coordinated) = &mut self.coordinated else { return };
        // Overtaken timers fire too, and each would set another one.
        if coordinated.armed_ns.is_none_or(|armed_ns| armed_ns <= io.now_ns()) {
            coordinated.armed_ns = None;
            coordinated.with(io, |coordinator, now_ns, out| coordinator.look(now_ns, out));
        }
    }

    /// Handles datagrams of this shim to itself, and answers requests that have all their values.
    /// Call it after all other work.
    pub(super) fn coordinate(&mut self, io: &mut Io) {
        while let Some(coordinated) = &mut self.coordinated {
            let own = coordinated.own;
            if let Some(data) = coordinated.own_datagrams.pop_front() {
                if Op::is_reply(&data) {
                    self.gather(io, own, &data);
                } else if let Ok(asked) = self.shim.own(own, &data) {
                    self.serve(io, asked);
                }
            } else if let Some((asked, values)) = coordinated.coordinator.answered() {
                let metrics = &self.metrics;
                asked.answer_gathered(&values, &mut self.buffer, |reply| {
                    metrics.replies.add(1);
                    io.send_datagram(asked.from, reply);
                });
            } else {
                return coordinated.arm(io);
            }
        }
    }
}
