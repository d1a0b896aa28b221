//! Gathers the writes of one turn of an event loop into one batch for the engine, with one log
//! record and one place to wait for.
//!
//! Gathered writes are not visible yet. They are therefore executed before a read of one of their
//! partitions, before a request goes to a worker, and at the end of the turn.

use std::cell::RefCell;
use std::mem::take;
use std::sync::Arc;

use shunt_storage::StoreError;
use shunt_storage::engine::EngineError;
use shunt_storage::store::Durability;
use shunt_topology::Token;

use super::mutate::Write;
use crate::error::CqlError;
use crate::limits;
use crate::shared::Shared;

/// Outcome of a request with gathered writes.
#[derive(Clone, Debug)]
pub(crate) enum Carried {
    /// The write succeeded; the answer is true now.
    Written,
    /// The answer is true once the node's log is durable up to here.
    Durable(u64),
    /// Compaction falls behind; the request has written nothing.
    Stalled,
    /// The request failed, alone or with all others.
    Failed(CqlError),
}

/// Writes gathered by one event loop.
pub(crate) struct Gathering {
    shared: Arc<Shared>,
    node: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    writes: Vec<Write>,
    /// For each request: end of its writes, and their durability.
    requests: Vec<(usize, Durability)>,
    /// Outcomes of executed, unanswered requests, in order.
    carried: Vec<Carried>,
    /// True if a sync is to be requested at the end of the turn.
    batch: bool,
    periodic: Option<Durability>,
}

impl Gathering {
    /// Starts empty, for the store of the node with this number.
    pub(super) fn new(shared: Arc<Shared>, node: usize) -> Gathering {
        Gathering { shared, node, state: RefCell::default() }
    }

    /// Adds the writes of a request. At [`limits::GATHERED_WRITES_MAX`] all are executed.
    pub(super) fn add(&self, mut writes: Vec<Write>, durability: Durability) {
        let mut state = self.state.borrow_mut();
        state.writes.append(&mut writes);
        let end = state.writes.len();
        state.requests.push((end, durability));
        if end >= limits::GATHERED_WRITES_MAX {
            self.carry_out_in(&mut state);
            self.sync_in(&mut state);
        }
    }

    /// Executes the writes if one is in this partition, which is about to be read.
    pub(super) fn before_read(&self, token: Token) {
        let mut state = self.state.borrow_mut();
        if state.writes.iter().any(|write| write.partition.token == token) {
            self.carry_out_in(&mut state);
        }
    }

    /// Executes the writes, before many partitions are read or a worker reads.
    pub(super) fn carry_out(&self) {
        self.carry_out_in(&mut self.state.borrow_mut());
    }

    /// Executes the gathered writes, requests the syncs, and returns the outcomes in order.
    pub(super) fn finish(&self) -> Vec<Carried> {
        let mut state = self.state.borrow_mut();
        self.carry_out_in(&mut state);
        self.sync_in(&mut state);
        take(&mut state.carried)
    }

    fn carry_out_in(&self, state: &mut State) {
        if state.requests.is_empty() {
            return;
        }
        let State { writes, requests, carried, batch, periodic } = state;
        let starts = std::iter::once(0).chain(requests.iter().map(|(end, _)| *end));
        let of_each = starts
            .zip(&*requests)
            .map(|(start, (end, _))| writes[start..*end].iter().map(Write::mutation));
        let first = carried.len();
        match self.shared.stores()[self.node].append(of_each) {
            Ok(appended) => {
                for (_, durability) in &*requests {
                    carried.push(match durability {
                        Durability::Batch => Carried::Durable(appended.ticket.0),
                        Durability::Periodic { .. } => Carried::Written,
                    });
                    match durability {
                        Durability::Batch => *batch = true,
                        Durability::Periodic { .. } => *periodic = Some(*durability),
                    }
                }
                for (place, error) in appended.refused {
                    carried[first + place] = Carried::Failed(error.into());
                }
            }
            Err(StoreError::Engine(EngineError::Busy)) => {
                carried.extend(requests.iter().map(|_| Carried::Stalled));
            }
            Err(error) => {
                let error = CqlError::from(error);
                carried.extend(requests.iter().map(|_| Carried::Failed(error.clone())));
            }
        }
        writes.clear();
        requests.clear();
    }

    fn sync_in(&self, state: &mut State) {
        let store = &self.shared.stores()[self.node];
        if take(&mut state.batch) {
            store.request_sync(Durability::Batch);
            // The batch sync makes all other writes durable as well.
            state.periodic = None;
        } else if let Some(periodic) = state.periodic.take() {
            store.request_sync(periodic);
        }
    }
}
