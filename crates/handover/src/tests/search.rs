//! Histories: drawn by a seed, to their end; or all of them, breadth first, so that the first
//! violation has a shortest history.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::events::{Event, KINDS};
use super::world::{Bounds, World};

/// SplitMix64.
#[derive(Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Events of a history with faults, and those after them until all is at rest.
const EVENTS: usize = 300;
const EVENTS_TO_REST_MAX: usize = 30_000;

/// Results of a history.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    pub(super) handed_over: u32,
    pub(super) came_back: u32,
    pub(super) salvaged: u32,
    pub(super) is_whole: bool,
}

/// Runs one history.
pub(super) fn history(bounds: Bounds, seed: u64) -> Result<Came, String> {
    let mut random = Random(seed);
    let mut world = World::new(bounds);
    let (mut events, mut told) = (Vec::new(), Vec::new());
    let mut happen = |world: &mut World, event: Event| {
        told.push(event);
        world.happen(event).map_err(|what| tell(bounds, seed, &told, &what))
    };
    let mut stopped = None;
    // Each history delays some kinds of events and not others.
    let lateness: [usize; KINDS] = std::array::from_fn(|_| [0, 0, 8, 15][random.below(4)]);
    for _ in 0..EVENTS {
        world.events(&mut events);
        // One process at a time is paused for a while, and all others go on.
        if random.below(30) == 0 {
            stopped = [None, Some(0), Some(1), Some(2)][random.below(4)];
        }
        if events.iter().any(|event| event.process().is_none_or(|host| Some(host) != stopped)) {
            events.retain(|event| event.process().is_none_or(|host| Some(host) != stopped));
        }
        let faults = events
            .iter()
            .filter(|event| event.is_fault() || matches!(event, Event::Ticks { .. }))
            .count();
        // Faults are rare, so that other events happen between them.
        if faults > 0 && random.below(12) > 0 {
            events.retain(|event| !event.is_fault() && !matches!(event, Event::Ticks { .. }));
        }
        if events.is_empty() {
            break;
        }
        let mut event = events[random.below(events.len())];
        for _ in 0..3 {
            if random.below(16) < lateness[event.kind()] {
                event = events[random.below(events.len())];
            }
        }
        happen(&mut world, event)?;
    }
    (world.breaks, world.kills, world.failures, world.losses) = (0, 0, 0, 0);
    world.ticks = u8::MAX;
    for _ in 0..EVENTS_TO_REST_MAX {
        if is_at_rest(&world) {
            let (handed_over, came_back, salvaged) =
                (world.handed_over, world.came_back, world.salvaged);
            let is_whole = world.client.received.len() == world.whole();
            let is_cut = world.client.is_closed && world.is_ended;
            if is_whole || is_cut {
                return Ok(Came { handed_over, came_back, salvaged, is_whole });
            }
            return Err(tell(bounds, seed, &told, "at rest, and the client waits"));
        }
        world.events(&mut events);
        // Time passes when only events are left that can repeat for ever.
        let is_busy = events.iter().any(|event| !is_repeated(*event));
        let only_time = events.iter().all(|event| matches!(event, Event::Ticks { .. }));
        if !only_time && (is_busy || random.below(8) > 0) {
            events.retain(|event| !matches!(event, Event::Ticks { .. }));
        }
        world.ticks = u8::MAX;
        if events.is_empty() {
            return Err(tell(
                bounds,
                seed,
                &told,
                "nothing more can happen, and it is not at rest",
            ));
        }
        let event = events[random.below(events.len())];
        happen(&mut world, event)?;
    }
    Err(tell(bounds, seed, &told, "it does not come to rest"))
}

fn is_repeated(event: Event) -> bool {
    use Event::{Arrives, ClientSends, ComesDown, Guarded, LeftSends, Sends, Steered, Ticks};
    matches!(
        event,
        ClientSends { .. }
            | Steered { .. }
            | Guarded { .. }
            | Arrives { .. }
            | Sends { .. }
            | LeftSends { .. }
            | ComesDown { .. }
            | Ticks { .. }
    )
}

/// The client has everything, or knows that it has not; no process keeps any state.
fn is_at_rest(world: &World) -> bool {
    let is_answered = world.client.is_closed
        || world.client.received.len() == world.whole()
            && usize::from(world.client.sent) == usize::from(world.bounds.requests);
    let owner_rests = world
        .owner
        .as_ref()
        .is_some_and(|(machine, service)| machine.is_empty() && service.exchange.is_none());
    let agents_rest = world.agents[1..].iter().all(|agent| {
        agent
            .as_ref()
            .is_some_and(|(machine, service, _)| machine.is_empty() && service.answers.is_empty())
    });
    let hosts_rest =
        world.hosts.iter().all(|host| host.restoring.is_none() && host.taken_out.is_none())
            && world.hosts[1..].iter().all(|host| host.socket.is_none());
    is_answered && owner_rests && agents_rest && hosts_rest && world.steered_to().is_none()
}

fn tell(bounds: Bounds, seed: u64, events: &[Event], what: &str) -> String {
    let mut text = format!("{what}\n  {bounds:?}, seed {seed}\n");
    // Endless repetitions at the end are of no interest.
    let end = events.len()
        - events.iter().rev().take_while(|event| is_repeated(**event)).count().saturating_sub(20);
    for (number, event) in events.iter().enumerate().take(end).skip(end.saturating_sub(160)) {
        _ = writeln!(text, "{number:4}. {event:?}");
    }
    text
}

/// Results of a search.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) depth: u32,
    pub(super) violation: Option<String>,
    pub(super) is_cut: bool,
    pub(super) was_taken: bool,
}

/// Visits all states, or this many of the nearest.
pub(super) fn search(bounds: Bounds, states_max: usize) -> Found {
    let first = World::new(bounds);
    let mut known = HashSet::from([hash(&first)]);
    let mut from: Vec<(u32, Option<Event>)> = vec![(0, None)];
    let mut open = VecDeque::from([(0_u32, 0_u32, first)]);
    let mut found = Found { states: 0, depth: 0, violation: None, is_cut: false, was_taken: false };
    let mut events = Vec::new();
    'search: while let Some((number, steps, world)) = open.pop_front() {
        found.depth = steps;
        world.events(&mut events);
        for &event in &events {
            let mut after = world.clone();
            if let Err(what) = after.happen(event) {
                let mut told = vec![event];
                let mut at = number;
                while let (before, Some(event)) = from[at as usize] {
                    told.push(event);
                    at = before;
                }
                told.reverse();
                found.violation = Some(tell(bounds, 0, &told, &what));
                break 'search;
            }
            found.was_taken |= after.handed_over > 0;
            if !known.insert(hash(&after)) {
                continue;
            }
            if from.len() >= states_max {
                found.is_cut = true;
                break 'search;
            }
            open.push_back((from.len() as u32, steps + 1, after));
            from.push((number, Some(event)));
        }
    }
    found.states = from.len();
    found
}

fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
