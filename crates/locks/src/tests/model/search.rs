//! Breadth first through all states: the first violation found has a shortest history.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};

use super::events::{Bounds, Event, Model, Seen};

/// Results of a search.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) machines: usize,
    pub(super) depth: u32,
    pub(super) seen: Seen,
    /// The violation, and the history that leads to it.
    pub(super) violation: Option<(String, String)>,
    /// The limit on states was reached.
    pub(super) cut: bool,
}

/// Visits all states, or this many.
pub(super) fn search(bounds: Bounds, states_max: usize) -> Found {
    let mut model = Model::new(bounds);
    let mut known = HashSet::new();
    // For each state its predecessor, and the event between.
    let mut from: Vec<(u32, Event)> = Vec::new();
    let mut open = VecDeque::new();
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    let first = model.begin();
    first.encode(&mut bytes);
    known.insert(hash(&bytes));
    from.push((0, Event::Tick));
    open.push_back((0_u32, 0_u32, first));
    let (mut depth, mut violation, mut cut) = (0, None, false);
    'search: while let Some((number, steps, state)) = open.pop_front() {
        depth = steps;
        model.events(&state, &mut events);
        for &event in &events {
            let mut after = state.clone();
            if let Err(what) = model.happen(&mut after, event) {
                violation = Some((what, history(bounds, &from, number, event)));
                break 'search;
            }
            after.encode(&mut bytes);
            if !known.insert(hash(&bytes)) {
                continue;
            }
            if from.len() >= states_max {
                cut = true;
                break 'search;
            }
            open.push_back((from.len() as u32, steps + 1, after));
            from.push((number, event));
        }
    }
    Found {
        states: from.len(),
        machines: model.machines(),
        depth,
        seen: model.seen,
        violation,
        cut,
    }
}

/// Hash of a state, for the set of known states: with ten million states, one search in 400,000 has
/// a collision.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Describes the events from the beginning.
fn history(bounds: Bounds, from: &[(u32, Event)], mut number: u32, last: Event) -> String {
    let mut events = vec![last];
    while number > 0 {
        let (before, event) = from[number as usize];
        events.push(event);
        number = before;
    }
    let mut model = Model::new(bounds);
    model.log = Some(Vec::new());
    let mut state = model.begin();
    let mut text = String::new();
    for line in model.log.take().into_iter().flatten() {
        _ = writeln!(text, "       {line}");
    }
    for (step, event) in events.into_iter().rev().enumerate() {
        model.log = Some(Vec::new());
        _ = writeln!(text, "{:3}. {event:?}", step + 1);
        let outcome = model.happen(&mut state, event);
        for line in model.log.take().into_iter().flatten() {
            _ = writeln!(text, "       {line}");
        }
        if let Err(what) = outcome {
            _ = writeln!(text, "     ! {what}");
        }
    }
    text
}
