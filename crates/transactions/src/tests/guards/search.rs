//! Breadth first through all states: the first violation found has a shortest history.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};

use super::events::{Bounds, Event};
use super::happen::{Model, Seen};

/// The result of a search.
pub(super) struct FoundRecord {
    pub(super) states: usize,
    pub(super) machines: usize,
    pub(super) depth: u32,
    pub(super) seen: Seen,
    /// A violation, and the history that leads there.
    pub(super) violation: Option<(String, String)>,
    /// The limit of states was reached.
    pub(super) is_cut: bool,
}

/// Looks at all states, or at so many.
pub(super) fn search(bounds: Bounds, states_max: usize) -> FoundRecord {
    let mut model = Model::new(bounds);
    let mut first = model.begin();
    for event in bounds.begun {
        let mut events = Vec::new();
        model.events(&first, &mut events);
        assert!(events.contains(event), "{event:?} cannot happen here, but {events:?}");
        assert_eq!(model.happen(&mut first, *event), Ok(()));
    }
    let mut known = HashSet::new();
    // For each state the one before it, and what happened between.
    let mut from: Vec<(u32, Option<Event>)> = vec![(0, None)];
    let mut open = VecDeque::from([(0_u32, 0_u32, first.clone())]);
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    first.encode(&mut bytes);
    known.insert(hash(&bytes));
    let (mut depth, mut violation, mut is_cut) = (0, None, false);
    'search: while let Some((number, steps, state)) = open.pop_front() {
        depth = steps;
        model.events(&state, &mut events);
        for &event in &events {
            let mut after = state.clone();
            match model.happen(&mut after, event) {
                Err(what) if what.starts_with(bounds.sought) => {
                    violation = Some((what, history(bounds, &from, number, event)));
                    break 'search;
                }
                // Another violation is not what is sought; nothing that comes behind it counts.
                Err(_) => continue,
                Ok(()) => {}
            }
            after.encode(&mut bytes);
            if !known.insert(hash(&bytes)) {
                continue;
            }
            if from.len() >= states_max {
                is_cut = true;
                break 'search;
            }
            open.push_back((from.len() as u32, steps + 1, after));
            from.push((number, Some(event)));
        }
    }
    FoundRecord {
        states: from.len(),
        machines: model.machines.len(),
        depth,
        seen: model.seen,
        violation,
        is_cut,
    }
}

/// A history in which each wish is granted by the first event that can, if any can then.
pub(super) fn led(bounds: Bounds, wishes: &[&dyn Fn(&Event) -> bool]) -> &'static [Event] {
    let mut model = Model::new(bounds);
    let (mut state, mut events, mut history) = (model.begin(), Vec::new(), Vec::new());
    for wish in wishes {
        model.events(&state, &mut events);
        if let Some(event) = events.iter().copied().find(|event| wish(event)) {
            assert_eq!(model.happen(&mut state, event), Ok(()));
            history.push(event);
        }
    }
    history.leak()
}

/// Hash of a state, for its place among those that are known: with a million states, two have the
/// same in one search of 40 million.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Tells what happened, from the beginning.
fn history(bounds: Bounds, from: &[(u32, Option<Event>)], mut number: u32, last: Event) -> String {
    let mut events = vec![last];
    while let (before, Some(event)) = from[number as usize] {
        events.push(event);
        number = before;
    }
    events.extend(bounds.begun.iter().rev());
    let mut model = Model::new(bounds);
    let mut state = model.begin();
    let mut text = String::new();
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
