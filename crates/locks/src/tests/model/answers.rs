//! Answers to clients, their beliefs, and the invariants on both.

use super::events::{Model, TTL};
use super::machine::Answer;
use super::state::{Belief, Operation, Pending, State};

impl Model {
    /// A client receives the answer to its request, and believes it.
    pub(super) fn told(&mut self, state: &mut State, client: u8, answer: &Answer) {
        let of = &mut state.clients[usize::from(client)];
        let Some(Pending { operation, age, proxy }) = of.pending.take() else {
            self.violation.get_or_insert(format!(
                "client {client} did not ask, or was answered before: {answer:?}"
            ));
            return;
        };
        let (belief, before) = (of.belief, of.heard);
        let left = |ticks: u8| ticks.saturating_sub(age);
        match (answer, operation) {
            (&Answer::Granted { shared, fence }, Operation::Acquire { waits, .. }) => {
                if let Some(belief) = belief.filter(|belief| belief.fence != fence) {
                    self.violation.get_or_insert(format!(
                        "client {client} is granted {fence} and has {belief:?}"
                    ));
                }
                self.saw_fence(state, client, shared, fence);
                self.seen.exclusive |= !shared;
                self.seen.shared |= shared;
                self.seen.after_wait |= waits && age > 0;
                self.believe(state, client, Belief { shared, fence, left: left(TTL) });
            }
            (&Answer::Granted { shared, fence }, Operation::Renew { longer }) => {
                let ttl = if longer { self.bounds.longest } else { TTL };
                self.seen.renewed = true;
                self.believe(state, client, Belief { shared, fence, left: left(ttl) });
            }
            (&Answer::Own { shared, fence, left: ticks }, Operation::Acquire { .. }) => {
                if let Some(belief) = belief.filter(|belief| belief.fence != fence) {
                    self.violation.get_or_insert(format!(
                        "client {client} asks again, is told {fence}, has {belief:?}"
                    ));
                }
                self.seen.told_again = true;
                self.seen.told_by_next_owner |=
                    before == fence && state.take_overs > 0 && proxy == 1;
                self.saw_fence(state, client, shared, fence);
                self.believe(state, client, Belief { shared, fence, left: left(ticks) });
            }
            (Answer::Refused | Answer::Own { .. }, Operation::Renew { .. }) => {
                state.clients[usize::from(client)].belief = None;
            }
            _ => {}
        }
    }

    /// Checks a fence told to its holder: it must be above all fences told to others before.
    /// Sharers of a lock may be told in any order.
    fn saw_fence(&mut self, state: &mut State, client: u8, shared: bool, fence: i32) {
        let of = &mut state.clients[usize::from(client)];
        let known = of.heard == fence;
        of.heard = of.heard.max(fence);
        let (exclusive, any) = state.highest;
        let below = if shared { exclusive } else { any };
        if fence < below || fence == below && !shared && !known {
            self.violation.get_or_insert(format!(
                "client {client} has fence {fence}, and {below} was there before"
            ));
        }
        state.highest = (if shared { exclusive } else { exclusive.max(fence) }, any.max(fence));
    }

    fn believe(&mut self, state: &mut State, client: u8, belief: Belief) {
        state.clients[usize::from(client)].belief = (belief.left > 0).then_some(belief);
        if belief.left == 0 {
            return;
        }
        for (other, of) in
            state.clients.iter().enumerate().filter(|(other, _)| *other != usize::from(client))
        {
            let Some(held) = of.belief else { continue };
            if !held.shared || !belief.shared {
                let what =
                    format!("two holders: client {client} {belief:?}, client {other} {held:?}");
                self.violation.get_or_insert(what);
            } else {
                self.seen.shared_by_two = true;
            }
        }
    }
}
