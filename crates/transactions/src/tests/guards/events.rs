//! Events that can happen next.

use super::machine::{Machines, Sent};
use super::state::{Change, FENCE, Fate, Message, Proxy, Request, State, What, X};
use crate::engine::weakened::Without;
use crate::{Claim, Place};

/// Number of events, and steps that are left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) requests: &'static [Request],
    /// Number of times that the shard changes its owner.
    pub(super) take_overs: u8,
    /// Proxies that end without a word, and statements of which nobody hears in time.
    pub(super) faults: u8,
    /// Deadlines of clients pass.
    pub(super) deadlines: bool,
    /// A step of the crate.
    pub(super) without: Option<Without>,
    /// A step of the code around it.
    pub(super) left_out: LeftOut,
    /// Only such a violation is looked for.
    pub(super) sought: &'static str,
    /// Events before the search begins.
    pub(super) begun: &'static [Event],
}

/// A step around the crate that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    Nothing,
    /// The fence is written, and compared with nothing.
    Comparison,
    /// The row of the fence is not locked.
    FenceLock,
    /// Fences are not written.
    Raise,
    /// Unfinished work of former owners is not searched for.
    Recovery,
    /// Records that are found are not written again.
    Rewriting,
    /// The next owner's timestamps need not be above those that were given.
    Floor,
    /// Generations of former owners are not sealed.
    Seal,
    /// A fence that is known is known also after the shard was another's.
    Ownership,
    /// A fence that is known stays so while another is written.
    Forgetting,
    /// A request that shares the row goes by what was known when it came.
    SecondLook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Arrives {
        request: u8,
        proxy: u8,
    },
    /// Two replicas, by their bits, are read for a request, which is decided then; `new` says which
    /// messages have come there since.
    Reads {
        request: u8,
        proxy: u8,
        pair: u8,
        new: u16,
    },
    /// A statement of a transaction, or of an opening, was acknowledged; `new` replicas were not
    /// known to have it.
    Acknowledged {
        proxy: u8,
        what: What,
        new: u8,
    },
    FoundRecord {
        proxy: u8,
        what: What,
        new: u8,
    },
    /// No answer came.
    Unknown {
        proxy: u8,
        what: What,
    },
    TriesAgain {
        proxy: u8,
    },
    Deadlines {
        proxy: u8,
    },
    LeaseEnds {
        proxy: u8,
    },
    Renews {
        proxy: u8,
    },
    Dies {
        proxy: u8,
    },
    TakesOver {
        proxy: u8,
    },
    HearsOfItsDeath {
        proxy: u8,
    },
    ReadsRow {
        proxy: u8,
    },
    ReadsLog {
        proxy: u8,
        pair: u8,
        new: u16,
    },
    OpensAgain {
        proxy: u8,
    },
    /// The conditional statement with this number is executed.
    Changes {
        number: u8,
    },
}

const PAIRS: [u8; 3] = [0b011, 0b101, 0b110];

/// The row that a write of a request is to.
pub(super) fn row_of(bounds: &Bounds, what: What) -> Option<u8> {
    let What::Write(request, number) = what else { return None };
    let writes = bounds.requests[usize::from(request)].writes;
    Some(if number == 0 { writes.unwrap_or(FENCE) } else { FENCE })
}

/// The result of this request's read.
pub(super) fn is_read(bounds: &Bounds, request: u8, what: What) -> bool {
    match row_of(bounds, what) {
        Some(FENCE) => true,
        Some(X) => bounds.requests[usize::from(request)].reads,
        _ => false,
    }
}

/// Somebody may read yet where it lies, so that it makes a difference which replicas have it.
pub(super) fn is_read_later(bounds: &Bounds, state: &State, what: What) -> bool {
    let Some(row) = row_of(bounds, what) else {
        return state.take_overs < bounds.take_overs
            || state.proxies.iter().any(|proxy| proxy.opening.is_some());
    };
    state.requests.iter().zip(bounds.requests).any(|(asked, of)| {
        let is_undecided =
            asked.timestamp_us == 0 && matches!(asked.fate, Fate::OnItsWay | Fate::At(_));
        is_undecided && (row == FENCE || row == X && of.reads)
    })
}

/// No opening reads the log of a generation that is sealed, but who has begun to before.
fn is_sealed(state: &State, what: What) -> bool {
    let What::Record(_, place) = what else { return false };
    let is_being_read = |proxy: &Proxy| {
        let page = proxy.opening.as_ref().and_then(|opener| opener.wanted.page);
        page.is_some_and(|page| page.generation == place.generation)
    };
    place.generation <= state.row.sealed && !state.proxies.iter().any(is_being_read)
}

/// Puts states that differ in nothing that matters for what comes in one form.
pub(super) fn simplify(bounds: &Bounds, state: &mut State) {
    let is_open = |proxy: &Proxy, claim: Claim| {
        proxy.opening.as_ref().is_some_and(|opener| opener.opening.claim() == claim)
    };
    let (row, proxies) = (state.row, &state.proxies);
    // What would find its condition broken, and of which nobody would hear.
    state.changes.retain(|(claim, change)| {
        let may_hold = match change {
            Change::Claim(read) => *read == Some((row.generation, row.sealed)),
            Change::Seal(claimed) => (row.generation, row.claim) == (*claimed, *claim),
        };
        may_hold || proxies.iter().any(|proxy| is_open(proxy, *claim))
    });
    let matters: Vec<bool> = state
        .messages
        .iter()
        .map(|message| {
            is_read_later(bounds, state, message.what) && !is_sealed(state, message.what)
        })
        .collect();
    for (message, matters) in state.messages.iter_mut().zip(&matters) {
        if !matters {
            message.at = [0, 0b001, 0b011, 0b011][message.at.count_ones() as usize];
        }
    }
    state.put_in_order(&matters);
}

/// Results of reading a page of the log.
pub(super) fn is_in(page: Place, what: What) -> bool {
    let What::Record(_, place) = what else { return false };
    place.generation == page.generation
        && place.position.bucket() == page.position.bucket()
        && place >= page
}

/// The messages that may have come to one of these replicas, and are not known to be at either, and
/// the number of ways.
pub(super) fn ways(state: &State, pair: u8, is_read: impl Fn(What) -> bool) -> (Vec<usize>, u16) {
    let is_open =
        |(_, message): &(usize, &Message)| message.at & pair == 0 && is_read(message.what);
    let open: Vec<usize> =
        state.messages.iter().enumerate().filter(is_open).map(|(number, _)| number).collect();
    let ways = 3u16.pow(open.len() as u32);
    (open, ways)
}

/// Says where these messages have come: for each neither, the first or the second of the pair.
/// Where it is at both the second is settled when somebody reads there again.
pub(super) fn come(state: &mut State, pair: u8, open: &[usize], mut new: u16) {
    let first = pair & pair.wrapping_neg();
    for number in open {
        state.messages[*number].at |= [0, first, pair & !first][usize::from(new % 3)];
        new /= 3;
    }
}

/// Ways in which a quorum gets a message.
fn quorums(bounds: &Bounds, state: &State, message: &Message) -> Vec<u8> {
    let at = message.at;
    if at.count_ones() >= 2 {
        return vec![0];
    }
    if !is_read_later(bounds, state, message.what) {
        return vec![0b011 & !at];
    }
    PAIRS.into_iter().filter(|pair| pair & at == at).map(|pair| pair & !at).collect()
}

/// The message that a statement of a request is.
pub(super) fn what_of(request: u8, sent: Sent) -> What {
    match sent {
        Sent::Record(place) => What::Record(request, place),
        Sent::Write(number) => What::Write(request, number as u8),
    }
}

/// Events that can happen to a state.
pub(super) fn events(bounds: &Bounds, machines: &Machines, state: &State, out: &mut Vec<Event>) {
    out.clear();
    for number in 0..2 {
        let proxy = &state.proxies[usize::from(number)];
        if proxy.is_gone {
            of_fleet(bounds, machines, state, number, out);
            continue;
        }
        of_transactions(bounds, machines, state, number, out);
        of_opening(bounds, machines, state, number, out);
        of_fleet(bounds, machines, state, number, out);
    }
    out.extend((0..state.changes.len() as u8).map(|number| Event::Changes { number }));
}

fn of_transactions(
    bounds: &Bounds,
    machines: &Machines,
    state: &State,
    number: u8,
    out: &mut Vec<Event>,
) {
    let proxy = &state.proxies[usize::from(number)];
    let machine = machines.get(proxy.machine);
    if machine.engine.holds(super::happen::now(proxy, number), 0) {
        let waiting =
            state.requests.iter().zip(0u8..).filter(|(asked, _)| asked.fate == Fate::OnItsWay);
        out.extend(waiting.map(|(_, request)| Event::Arrives { request, proxy: number }));
    }
    let facts = machine.facts();
    for of in &facts {
        let request = of.request;
        if of.is_reading {
            for pair in PAIRS {
                let (_, ways) = ways(state, pair, |what| is_read(bounds, request, what));
                out.extend((0..ways).map(|new| Event::Reads { request, proxy: number, pair, new }));
            }
        }
        for sent in &of.sent {
            let what = what_of(request, *sent);
            let Some(message) = state.messages.iter().find(|message| message.what == what) else {
                continue;
            };
            let new = quorums(bounds, state, message);
            out.extend(new.into_iter().map(|new| Event::Acknowledged { proxy: number, what, new }));
            if state.faults < bounds.faults {
                out.push(Event::Unknown { proxy: number, what });
            }
        }
    }
    if facts.iter().any(|of| of.is_again) {
        out.push(Event::TriesAgain { proxy: number });
    }
    if bounds.deadlines && !proxy.is_late && machine.engine.open() > 0 {
        out.push(Event::Deadlines { proxy: number });
    }
}

fn of_opening(
    bounds: &Bounds,
    machines: &Machines,
    state: &State,
    number: u8,
    out: &mut Vec<Event>,
) {
    let proxy = &state.proxies[usize::from(number)];
    let Some(opener) = &proxy.opening else { return };
    // Where it does not hold the shard, it does nothing with what it hears of its row and records
    // but ask again.
    let holds = machines.get(proxy.machine).engine.holds(super::happen::now(proxy, number), 0);
    let wanted = &opener.wanted;
    if wanted.row && holds {
        out.push(Event::ReadsRow { proxy: number });
    }
    if let Some(page) = wanted.page {
        for pair in PAIRS {
            let (_, ways) = ways(state, pair, |what| is_in(page, what));
            out.extend((0..ways).map(|new| Event::ReadsLog { proxy: number, pair, new }));
        }
    }
    for message in &state.messages {
        let is_awaited = match message.what {
            What::Record(_, place) => holds && wanted.appends.contains(&place),
            What::Write(request, write) => wanted.applies.iter().any(|(place, number)| {
                *number == u16::from(write)
                    && state
                        .messages
                        .iter()
                        .any(|message| message.what == What::Record(request, *place))
            }),
        };
        if is_awaited {
            let what = message.what;
            let new = quorums(bounds, state, message);
            out.extend(new.into_iter().map(|new| Event::FoundRecord { proxy: number, what, new }));
        }
    }
    if opener.opening.next_due_ms().is_some() && holds {
        out.push(Event::OpensAgain { proxy: number });
    }
}

fn of_fleet(bounds: &Bounds, machines: &Machines, state: &State, number: u8, out: &mut Vec<Event>) {
    let proxy = &state.proxies[usize::from(number)];
    let machine = machines.get(proxy.machine);
    let is_owner = state.owner == number;
    let thinks_so = machine.engine.shards[0].is_owned;
    let may_change = state.take_overs < bounds.take_overs;
    if is_owner && !proxy.is_gone && !proxy.has_lease {
        out.push(Event::Renews { proxy: number });
    }
    // Of an owner that nobody may follow nothing comes.
    if is_owner && !proxy.is_gone && proxy.has_lease && may_change {
        out.push(Event::LeaseEnds { proxy: number });
    }
    if is_owner && !proxy.is_gone && may_change && state.faults < bounds.faults {
        out.push(Event::Dies { proxy: number });
    }
    if proxy.is_dead && !proxy.is_gone && thinks_so {
        out.push(Event::HearsOfItsDeath { proxy: number });
    }
    let owner = &state.proxies[usize::from(state.owner)];
    let is_free = owner.is_gone || !owner.has_lease;
    let may_begin = proxy.is_gone || !thinks_so;
    if !is_owner && is_free && may_begin && may_change {
        out.push(Event::TakesOver { proxy: number });
    }
    // A process that has ended begins anew.
    if is_owner && proxy.is_gone && may_change {
        out.push(Event::TakesOver { proxy: number });
    }
}
