//! Resumption of a connection whose agent is lost, at the client's place in the answer, where that
//! is safe.
//!
//! Three facts make it safe:
//! - No other host ends the connection. The kernel of an agent's host lets no FIN and no reset of
//!   an agent's connections out unless the client's FIN came first: neither when a process dies,
//!   nor from a process that was paused. Any bytes of the answer that it still sends equal those
//!   sent from here, because only answers that every backend gives alike are resumed
//!   ([`OwnerSink::could_go_on`]).
//! - The client's packets are dropped: from here on no host acknowledges them. Bytes that the
//!   agent's host acknowledged since the connection left have passed here and were recorded: then
//!   the connection is given up, because they are lost with the agent.
//! - The client reveals its progress itself: it is probed until two replies agree, after everything
//!   under way has arrived.

use super::{Due, Gone, Kept, Look, NotSalvaged, Owner, OwnerSink, Seen, Stage, Then};
use crate::limits::{KEPT_BYTES_MAX, LOOKS_MAX, WINDOW_MAX};
use crate::message::Ticket;
use crate::types::Flow;
use crate::weakened::Step;
use shunt_reactor::moving::{Frozen, TcpState, Window};

/// True if a connection goes on here without its agent, or is about to.
pub(super) fn is_salvaged(stage: &Stage) -> bool {
    matches!(stage, Stage::Salvaging { .. } | Stage::Restoring { then: Then::Salvaged { .. } })
}

impl Owner {
    /// Keeps the data with which a connection could go on if its agent is lost.
    pub(super) fn keep(&mut self, now_ms: u64, ticket: Ticket, frozen: &Frozen) {
        let Some(known) = self.moves.get_mut(&ticket) else { return };
        (known.state, known.frozen_at_ms) = (Some(frozen.state), now_ms);
        if frozen.unread.len() > KEPT_BYTES_MAX {
            return;
        }
        let queued = (frozen.unacknowledged.len() + frozen.unsent.len()) as u64;
        known.kept = Some(Kept { queued, unread: frozen.unread.clone() });
    }

    /// The agent that has or may have this connection is lost for good.
    pub(super) fn agent_lost(&mut self, now_ms: u64, ticket: Ticket, sink: &mut impl OwnerSink) {
        let Some(known) = self.moves.get(&ticket) else { return };
        let flow = known.flow;
        let others =
            self.on_their_way - usize::from(!matches!(known.stage, Stage::There | Stage::Lost));
        let has_room = others < self.limits.moves;
        if !has_room
            || known.kept.is_none()
            || known.state.is_none()
            || !sink.could_go_on(flow, None)
        {
            return self.gone(ticket, Gone::AgentLost, sink);
        }
        // The check must never come first: bytes that the client sends then might be acknowledged
        // at the agent's host and be lost.
        if self.steps.has(Step::HoldBeforeLook) && !sink.hold(flow, self.limits.lease_ms) {
            return self.gone(ticket, Gone::AgentLost, sink);
        }
        self.enter(ticket, Stage::Salvaging { looks: 0, last: None });
        self.look(now_ms, ticket, sink);
    }

    /// Checks the client's progress, and resumes there or probes once more.
    pub(super) fn look(&mut self, now_ms: u64, ticket: Ticket, sink: &mut impl OwnerSink) {
        let Some(known) = self.moves.get_mut(&ticket) else { return };
        let (flow, answer_before, frozen_at_ms) =
            (known.flow, known.answer_sent, known.frozen_at_ms);
        let (Some(state), Some(kept), Stage::Salvaging { looks, last }) =
            (known.state, &known.kept, &mut known.stage)
        else {
            return;
        };
        let Some(seen) = sink.seen(flow) else {
            return self.gone(ticket, Gone::NotSalvaged(NotSalvaged::NotFound), sink);
        };
        let received = state.receive_sequence.wrapping_add(kept.unread.len() as u32);
        // A forged packet, perhaps: it says nothing about the client.
        let is_foreign =
            seen.acknowledged.is_some_and(|(first, _)| is_far(first, state.send_sequence))
                || seen.sequence_end.is_some_and(|end| is_far(end, received));
        if is_foreign {
            return self.gone(ticket, Gone::NotSalvaged(NotSalvaged::NotFound), sink);
        }
        let is_more = |end: u32| end.wrapping_sub(received).cast_signed() > 0;
        let has_sent_more = seen.has_ended || seen.sequence_end.is_some_and(is_more);
        if has_sent_more && self.steps.has(Step::NothingUnheard) {
            return self.gone(ticket, Gone::NotSalvaged(NotSalvaged::ClientSentMore), sink);
        }
        let acknowledged = acknowledged(&state, &seen);
        let state = advanced(&state, acknowledged, now_ms.saturating_sub(frozen_at_ms));
        let is_new = last.is_some_and(|last| seen.packets > last.packets);
        let is_same = last.is_some_and(|last| last.is_new && acknowledged == last.acknowledged);
        let empty = Frozen {
            state,
            unacknowledged: Vec::new(),
            unsent: Vec::new(),
            unread: kept.unread.clone(),
        };
        if !(is_new && is_same) {
            if *looks >= LOOKS_MAX {
                return self.gone(ticket, Gone::NotSalvaged(NotSalvaged::NotFound), sink);
            }
            *looks += 1;
            *last = Some(Look { packets: seen.packets, acknowledged, is_new });
            self.deadlines.set(Due::Wait(ticket), now_ms + self.limits.look_ms);
            let mut probe = empty;
            probe.take_unread();
            return sink.probe(flow, probe);
        }
        let answer_sent = acknowledged.checked_sub(kept.queued).map(|of_it| answer_before + of_it);
        match answer_sent.filter(|sent| sink.could_go_on(flow, Some(*sent))) {
            Some(answer_sent) => self.restore(ticket, empty, Then::Salvaged { answer_sent }, sink),
            None => self.gone(ticket, Gone::NotSalvaged(NotSalvaged::NoPlace), sink),
        }
    }
}

fn is_far(number: u32, known: u32) -> bool {
    number.wrapping_sub(known).cast_signed().unsigned_abs() > WINDOW_MAX
}

/// Bytes that the client has acknowledged since the connection was frozen.
pub(super) fn acknowledged(state: &TcpState, seen: &Seen) -> u64 {
    let of = |(first, more): (u32, u64)| {
        // The first acknowledgement may be older: it was under way at the freeze.
        let before = first.wrapping_sub(state.send_sequence).cast_signed();
        more.saturating_add_signed(before.into())
    };
    seen.acknowledged.map_or(0, of)
}

/// Builds enough of a state for a reset from the record of the client's packets.
pub(super) fn state_of(flow: Flow, seen: &Seen) -> Option<TcpState> {
    /// The smallest MSS of any host (RFC 9293, section 3.7.1).
    const MSS: u16 = 536;
    let (first, more) = seen.acknowledged?;
    let received = seen.sequence_end?;
    let (update, bytes) = (received, u32::from(MSS));
    Some(TcpState {
        local: flow.local,
        peer: flow.peer,
        send_sequence: first.wrapping_add(more as u32),
        receive_sequence: received,
        mss: MSS,
        timestamp: None,
        sack: false,
        window_scales: None,
        window: Window {
            send_update: update,
            send: bytes,
            largest: bytes,
            receive: bytes,
            receive_update: update,
        },
    })
}

/// The state once the client has this many bytes more.
pub(super) fn place(state: &TcpState, acknowledged: u64) -> TcpState {
    TcpState { send_sequence: state.send_sequence.wrapping_add(acknowledged as u32), ..*state }
}

/// The state this long after the freeze. A client drops, and since Linux 6.14 does not even answer,
/// packets with timestamps older than the last (RFC 7323, section 5.3). The agent's clock, in
/// milliseconds, went on beside ours and may have been faster.
#[must_use]
pub fn aged(state: &TcpState, elapsed_ms: u64) -> TcpState {
    let ahead_ms = elapsed_ms + elapsed_ms / 512 + 1_000;
    TcpState {
        timestamp: state.timestamp.map(|timestamp| timestamp.wrapping_add(ahead_ms as u32)),
        ..*state
    }
}

/// The state once the client has this many bytes more, this long after the freeze.
fn advanced(state: &TcpState, acknowledged: u64, elapsed_ms: u64) -> TcpState {
    let mut now = aged(&place(state, acknowledged), elapsed_ms);
    // The client announces its current window with its next packet.
    now.window.send = state.window.send.min(u32::from(state.mss));
    now
}
