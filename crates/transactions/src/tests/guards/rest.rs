//! The final state: when no proxy has anything to do any more, all that was late has come
//! or never does, and what one replica has all have.

use super::events::{Bounds, row_of};
use super::happen::Seen;
use super::machine::Machines;
use super::state::{FENCE, Fate, Message, State, What, X, Y};
use crate::engine::types::Outcome;

/// The timestamp of a write.
pub(super) fn timestamp(state: &State, what: What) -> Option<i64> {
    let What::Write(request, number) = what else { return None };
    Some(state.requests[usize::from(request)].timestamp_us + i64::from(number))
}

fn is_rest(machines: &Machines, state: &State) -> bool {
    let is_done = |number: usize| {
        let proxy = &state.proxies[number];
        proxy.is_gone || proxy.opening.is_none() && machines.get(proxy.machine).engine.open() == 0
    };
    let owner = &state.proxies[usize::from(state.owner)];
    let serves = !owner.is_gone && machines.get(owner.machine).engine.shards[0].is_open;
    serves && is_done(0) && is_done(1)
}

/// Looks at a state; an error says what may never be.
pub(super) fn look(
    bounds: &Bounds,
    machines: &Machines,
    state: &State,
    seen: &mut Seen,
) -> Result<(), String> {
    if !is_rest(machines, state) {
        return Ok(());
    }
    seen.rests += 1;
    note(bounds, state, seen);
    let faults = [
        behind(bounds, state),
        lost(bounds, state),
        unread(bounds, state),
        descends(bounds, state),
    ];
    faults.into_iter().flatten().find(|fault| fault.starts_with(bounds.sought)).map_or(Ok(()), Err)
}

/// A later write of the same row, if one is there for certain. What no replica is known to have may
/// come yet, or never.
fn is_overwritten(bounds: &Bounds, state: &State, message: &Message) -> bool {
    let is_later = |other: &Message| {
        row_of(bounds, other.what) == row_of(bounds, message.what)
            && timestamp(state, other.what) > timestamp(state, message.what)
    };
    state.messages.iter().any(|other| other.at != 0 && is_later(other))
}

/// Something with an earlier fence is there, and was not on a quorum when something with a later
/// one was acknowledged, or hides that.
fn behind(bounds: &Bounds, state: &State) -> Option<String> {
    let is_data = |message: &&Message| matches!(row_of(bounds, message.what), Some(X | Y));
    let hides = |message: &Message| {
        state.messages.iter().any(|other| {
            let (
                What::Record(by, _) | What::Write(by, _),
                What::Record(request, _) | What::Write(request, _),
            ) = (other.what, message.what);
            let [other_fence, fence] =
                [by, request].map(|request| bounds.requests[usize::from(request)].fence);
            let is_one_row = row_of(bounds, other.what) == row_of(bounds, message.what);
            is_one_row && other_fence > fence && is_committed(state.requests[usize::from(by)].fate)
        })
    };
    let is_wrong = |message: &&Message| {
        (message.is_behind || message.at != 0 && hides(message))
            && !is_overwritten(bounds, state, message)
    };
    let message = state.messages.iter().filter(is_data).find(is_wrong)?;
    Some(format!(
        "behind a later fence: {:?} is there, and nobody need have seen it when that was acknowledged",
        message.what
    ))
}

fn is_of(request: usize, message: &Message) -> bool {
    matches!(message.what, What::Write(of, _) if usize::from(of) == request)
}

fn is_committed(fate: Fate) -> bool {
    matches!(fate, Fate::Answered(Outcome::Committed { .. }))
}

/// Something was acknowledged, and neither is there nor anything that was written over it.
fn lost(bounds: &Bounds, state: &State) -> Option<String> {
    let is_there = |message: &&Message| message.at != 0 || is_overwritten(bounds, state, message);
    state.requests.iter().enumerate().filter(|(_, asked)| is_committed(asked.fate)).find_map(|(request, asked)| {
        let writes = usize::from(bounds.requests[request].writes.is_some()) + usize::from(asked.raises);
        let there = state.messages.iter().filter(|message| is_of(request, message)).filter(is_there).count();
        let is_lost = there < writes;
        is_lost
            .then(|| format!("lost: request {request} was acknowledged, and {there} of its {writes} writes are there"))
    })
}

/// Somebody has written down what was read with a later fence, and something with an earlier one is
/// there that is not in it.
fn unread(bounds: &Bounds, state: &State) -> Option<String> {
    for (request, asked) in state.requests.iter().enumerate() {
        let of = bounds.requests[request];
        let is_copy =
            |message: &&Message| is_of(request, message) && row_of(bounds, message.what) == Some(Y);
        let copy = state.messages.iter().find(is_copy);
        if !of.reads || !copy.is_some_and(|copy| is_committed(asked.fate) || copy.at != 0) {
            continue;
        }
        let is_data =
            |message: &&Message| row_of(bounds, message.what) == Some(X) && message.at != 0;
        for message in state.messages.iter().filter(is_data) {
            let What::Write(writer, _) = message.what else { continue };
            let is_earlier = bounds.requests[usize::from(writer)].fence < of.fence;
            if is_earlier && asked.seen != writer + 1 && !is_overwritten(bounds, state, message) {
                return Some(format!(
                    "not read: {:?} is there, and request {request} had not read it",
                    message.what
                ));
            }
        }
    }
    None
}

/// Two are there, of which the later one, by its timestamp, has the earlier fence, whatever was
/// told of either.
fn descends(bounds: &Bounds, state: &State) -> Option<String> {
    let there = || state.messages.iter().filter(|message| message.at != 0);
    let of = |message: &Message| {
        let What::Write(request, _) = message.what else { return None };
        Some((timestamp(state, message.what)?, bounds.requests[usize::from(request)].fence))
    };
    let wrong = there().find_map(|one| {
        let (at, fence) = of(one)?;
        there()
            .find(|other| of(other).is_some_and(|(later, lower)| later > at && lower < fence))
            .map(|other| (one, other))
    });
    wrong.map(|(one, other)| {
        format!("descends: {:?} is there behind {:?}, with an earlier fence", other.what, one.what)
    })
}

/// Events that a search has seen.
fn note(bounds: &Bounds, state: &State, seen: &mut Seen) {
    let committed = |fence: u8| {
        state.requests.iter().zip(bounds.requests).any(|(asked, of)| {
            of.fence == fence && matches!(asked.fate, Fate::Answered(Outcome::Committed { .. }))
        })
    };
    seen.both_committed |= committed(1) && committed(2);
    seen.read_under_the_later |= committed(2) && state.requests.iter().any(|asked| asked.seen != 0);
    let is_made = |request: usize| {
        state.messages.iter().any(|message| {
            row_of(bounds, message.what).is_some_and(|row| row != FENCE)
                && matches!(message.what, What::Write(of, _) if usize::from(of) == request)
        })
    };
    let is_undecided =
        |fate: Fate| matches!(fate, Fate::NeverAnswered | Fate::Answered(Outcome::InDoubt));
    seen.never_made |= state
        .requests
        .iter()
        .enumerate()
        .any(|(number, asked)| is_undecided(asked.fate) && !is_made(number));
}
