//! The table of dispatchers behind one virtual address, written from user space. Its layout is that
//! of bpf/gateway.bpf.c.
//!
//! | map | key | value |
//! |---|---|---|
//! | `dispatchers` | 0 to 63, 4 bytes | hardware address 6; state 1 ([`State`], 0: none); 1 zero; interface 4, 0: the one packets arrive on |
//! | `placed_flows` | flow, 36 bytes | hardware address 6; key in `dispatchers` 2; time last seen in seconds since boot 4: written by the program, evicted when unused for long |
//! | `services`, `counters` | as those of the other programs | |

use std::fmt;
use std::path::{Path, PathBuf};

use aya::maps::{Array, Map, MapData};

use crate::error::Error;
use crate::flow::Mac;
use crate::maps::{Counters, OPEN, of_entry, of_map, pinned};

pub(crate) const MAPS: [&str; 4] = ["dispatchers", "placed_flows", "services", "counters"];

/// Dispatchers per gateway.
pub const DISPATCHERS_MAX: usize = 64;

/// Traffic that a dispatcher gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Packets of its connections, and new connections.
    TakesNew = 1,
    /// Packets of its connections; new ones only if all other dispatchers are in this state too.
    KeepsOld = 2,
}

/// A dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Hardware address of its host, in a network that this host is in.
    pub mac: Mac,
    /// Traffic that it gets.
    pub state: State,
    /// Number of the interface that reaches it; 0: the one packets arrive on.
    pub interface: u32,
}

/// Counters of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Connections placed.
    New,
    /// Packets of placed connections.
    Kept,
    /// Packets of connections that were unknown, or whose dispatcher was gone, and that were placed
    /// then.
    Unknown,
    /// Packets without any dispatcher.
    Nowhere,
    /// Packets whose hop limit was used up.
    HopsOver,
}

impl Placed {
    /// Each counter with its name, in the order of the program.
    pub const ALL: [(Placed, &str); 5] = [
        (Placed::New, "placed"),
        (Placed::Kept, "kept"),
        (Placed::Unknown, "unknown"),
        (Placed::Nowhere, "nowhere"),
        (Placed::HopsOver, "hops_over"),
    ];
}

/// Maps of a loaded gateway program.
pub struct Gateway {
    pins: PathBuf,
    dispatchers: Array<MapData, [u8; 12]>,
    counters: Counters,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("pins", &self.pins).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Opens the maps pinned in this directory.
    ///
    /// # Errors
    /// The directory has no gateway's pins, or this process may not open them.
    pub fn open(pins: &Path) -> Result<Gateway, Error> {
        let map = Map::Array(pinned(pins, "dispatchers")?);
        Ok(Gateway {
            pins: pins.to_owned(),
            dispatchers: Array::try_from(map).map_err(|error| of_map(OPEN, &error))?,
            counters: Counters::open(pins)?,
        })
    }

    /// Directory of the pins.
    #[must_use]
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// Dispatchers with their keys.
    #[must_use]
    pub fn targets(&self) -> Vec<(u32, Target)> {
        let all = (0..self.dispatchers.len())
            .filter_map(|key| Some((key, read(&self.dispatchers.get(&key, 0).ok()?)?)));
        all.collect()
    }

    /// Replaces the dispatchers. One that stays keeps its key, and with it its connections.
    ///
    /// # Errors
    /// `targets` has more than [`DISPATCHERS_MAX`], or the kernel refuses.
    pub fn set(&mut self, targets: &[Target]) -> Result<(), Error> {
        for (key, value) in placed_in(&self.targets(), targets).ok_or(Error::Full("dispatchers"))? {
            self.dispatchers
                .set(key, value.map_or([0; 12], |target| bytes(&target)), 0)
                .map_err(|error| of_entry("dispatchers", &error))?;
        }
        Ok(())
    }

    /// Value of a counter since the program was loaded.
    #[must_use]
    pub fn count(&self, which: Placed) -> u64 {
        self.counters.of(which as u32)
    }
}

/// Writes that turn the current dispatchers into the wanted ones; `None` if there are too many.
fn placed_in(there: &[(u32, Target)], wanted: &[Target]) -> Option<Vec<(u32, Option<Target>)>> {
    let mut writes = Vec::new();
    let key_of =
        |target: &Target| there.iter().find(|(_, old)| old.mac == target.mac).map(|(key, _)| *key);
    let mut free =
        (0..DISPATCHERS_MAX as u32).filter(|key| !there.iter().any(|(used, _)| used == key));
    for target in wanted {
        match key_of(target) {
            Some(key) if there.contains(&(key, *target)) => {}
            Some(key) => writes.push((key, Some(*target))),
            None => writes.push((free.next()?, Some(*target))),
        }
    }
    // Removals come after additions, so that there is always a dispatcher.
    let is_gone = |old: &Target| !wanted.iter().any(|target| target.mac == old.mac);
    writes.extend(there.iter().filter(|(_, old)| is_gone(old)).map(|(key, _)| (*key, None)));
    Some(writes)
}

fn bytes(target: &Target) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..6].copy_from_slice(&target.mac.0);
    bytes[6] = target.state as u8;
    bytes[8..].copy_from_slice(&target.interface.to_ne_bytes());
    bytes
}

fn read(bytes: &[u8; 12]) -> Option<Target> {
    let state = match bytes[6] {
        1 => State::TakesNew,
        2 => State::KeepsOld,
        _ => return None,
    };
    let [a, b, c, d, e, g, _, _, interface @ ..] = *bytes;
    Some(Target { mac: Mac([a, b, c, d, e, g]), state, interface: u32::from_ne_bytes(interface) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(last: u8, state: State) -> Target {
        Target { mac: Mac([2, 0, 0, 0, 1, last]), state, interface: u32::from(last) << 20 }
    }

    #[test]
    fn a_dispatcher_is_what_its_bytes_say() {
        for one in [target(7, State::TakesNew), target(9, State::KeepsOld)] {
            assert_eq!(read(&bytes(&one)), Some(one));
        }
        assert_eq!(read(&[0; 12]), None);
    }

    #[test]
    fn dispatchers_keep_their_keys_and_those_that_come_are_there_before_others_go() {
        let (one, two, three) =
            (target(1, State::TakesNew), target(2, State::TakesNew), target(3, State::TakesNew));
        assert_eq!(placed_in(&[], &[one, two]), Some(vec![(0, Some(one)), (1, Some(two))]));
        let there = [(0, one), (1, two)];
        assert_eq!(placed_in(&there, &[two, one]), Some(vec![]));
        assert_eq!(placed_in(&there, &[three, two]), Some(vec![(2, Some(three)), (0, None)]));
        let drained = target(2, State::KeepsOld);
        assert_eq!(placed_in(&there, &[one, drained]), Some(vec![(1, Some(drained))]));
        let all: Vec<Target> = (0..64).map(|last| target(last, State::TakesNew)).collect();
        assert_eq!(placed_in(&[], &all).map(|writes| writes.len()), Some(64));
        assert_eq!(placed_in(&[(0, target(99, State::TakesNew))], &all), None);
    }
}
