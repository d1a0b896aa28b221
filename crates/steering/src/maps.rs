//! The maps of the programs, used from user space. Their layouts are those of bpf/handover.bpf.c.
//!
//! | map | key | value |
//! |---|---|---|
//! | `steered_flows` | flow, 36 bytes | end of its lease, boot-time ns, 8 bytes; hardware address 6; is held 2 |
//! | `seen_flows` | flow | packets 8, acknowledged 8, end of the last packet 8, first acknowledgement 4, has ended 4: written by the program |
//! | `owned_flows` | flow | end of its lease 8, is ready 4, may end 4 |
//! | `services` | virtual address and port, 20 bytes | 4 |
//! | `counters` | number of a [`Count`] | 8, for each processor |

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::flow::{FLOW_BYTES, Flow, Mac, SERVICE_BYTES, service_key};

pub(crate) const MAPS: [&str; 5] =
    ["steered_flows", "seen_flows", "owned_flows", "services", "counters"];

type Flows<const BYTES: usize> = HashMap<MapData, [u8; FLOW_BYTES], [u8; BYTES]>;
/// Bytes of an entry in `steered_flows` or `owned_flows`.
const ENTRY_BYTES: usize = 16;
const SEEN_BYTES: usize = 32;

/// The programs' record of a steered connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets from the client.
    pub packets: u64,
    /// The first acknowledgement, a sequence number, and the bytes acknowledged since.
    pub acknowledged: Option<(u32, u64)>,
    /// Sequence number after the client's last byte.
    pub sequence_end: Option<u32>,
    /// The client has ended its stream or the connection.
    pub has_ended: bool,
}

/// Counters of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Packets sent on to a backend.
    Steered,
    /// Packets whose entry was past its lease, treated as if it were absent.
    Expired,
    /// Packets whose hop limit was used up.
    HopsOver,
    /// Resets and FINs of this host's kernel that were dropped.
    ResetsKeptBack,
    /// Packets for the virtual address while the connection was not here.
    NotReady,
    /// Packets for connections that are here.
    Passed,
    /// Packets of held connections, which were dropped.
    Held,
    /// Packets of this host's kernel for connections that are not here, which were dropped.
    Muted,
}

impl Count {
    /// Each counter with its name, in the order of the programs.
    pub const ALL: [(Count, &str); 8] = [
        (Count::Steered, "steered"),
        (Count::Expired, "expired"),
        (Count::HopsOver, "hops_over"),
        (Count::ResetsKeptBack, "resets_kept_back"),
        (Count::NotReady, "not_ready"),
        (Count::Passed, "passed"),
        (Count::Held, "held"),
        (Count::Muted, "muted"),
    ];
}

/// Maps of the loaded programs.
pub struct Steering {
    pins: PathBuf,
    steered: Flows<ENTRY_BYTES>,
    seen: Flows<SEEN_BYTES>,
    owned: Flows<ENTRY_BYTES>,
    counters: Counters,
}

/// Virtual addresses whose packets the programs handle.
pub(crate) struct Services(HashMap<MapData, [u8; SERVICE_BYTES], u32>);

impl Services {
    /// Opens the map pinned in this directory.
    pub(crate) fn open(pins: &Path) -> Result<Services, Error> {
        let map = Map::HashMap(pinned(pins, "services")?);
        HashMap::try_from(map).map(Services).map_err(|error| of_map(OPEN, &error))
    }

    /// Makes the programs handle packets for this address, in this mode if they know several.
    pub(crate) fn serve(&mut self, local: SocketAddr, how: u32) -> Result<(), Error> {
        self.0
            .insert(service_key(local), how, 0)
            .map_err(|error| of_entry("virtual addresses", &error))
    }
}

/// The programs' counters, one value for each processor.
pub(crate) struct Counters(PerCpuArray<MapData, u64>);

impl Counters {
    /// Opens the map pinned in this directory.
    pub(crate) fn open(pins: &Path) -> Result<Counters, Error> {
        let map = Map::PerCpuArray(pinned(pins, "counters")?);
        PerCpuArray::try_from(map).map(Counters).map_err(|error| of_map(OPEN, &error))
    }

    /// Sum over all processors since the programs were loaded.
    pub(crate) fn of(&self, which: u32) -> u64 {
        self.0.get(&which, 0).map_or(0, |each| each.iter().sum())
    }
}

pub(crate) const OPEN: &str = "open the pinned maps";

/// Opens a map by its name.
pub(crate) fn pinned(pins: &Path, name: &str) -> Result<MapData, Error> {
    let path = pins.join(name);
    match fs::symlink_metadata(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NotLoaded(pins.to_owned()));
        }
        Err(_) => {
            return Err(Error::NotAllowed("look into the pins' directory, or one that it is in"));
        }
    }
    MapData::from_pin(&path).map_err(|error| of_map(OPEN, &error))
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering").field("pins", &self.pins).finish_non_exhaustive()
    }
}

impl Steering {
    /// Opens the maps pinned in this directory.
    ///
    /// # Errors
    /// The directory has no pins, or this process may not open them.
    pub fn open(pins: &Path) -> Result<Steering, Error> {
        Ok(Steering {
            pins: pins.to_owned(),
            steered: flows(pins, "steered_flows")?,
            seen: flows(pins, "seen_flows")?,
            owned: flows(pins, "owned_flows")?,
            counters: Counters::open(pins)?,
        })
    }

    /// Directory of the pins.
    #[must_use]
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// Redirects packets of this connection to this host until the lease ends. A repeated call
    /// renews the lease.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn steer(&mut self, flow: &Flow, to: Mac, lease: Duration) -> Result<(), Error> {
        let key = flow.key();
        // The record must exist before the first packet is redirected. One left by an expired entry
        // may be another connection's.
        let is_renewed =
            self.steered.get(&key, 0).is_ok_and(|entry| !is_over(&entry, boot_time_ns()));
        if !is_renewed || self.seen.get(&key, 0).is_err() {
            self.seen
                .insert(key, [0; SEEN_BYTES], 0)
                .map_err(|error| of_entry("moved connections", &error))?;
        }
        let mut value = entry(lease);
        value[8..14].copy_from_slice(&to.0);
        self.steered.insert(key, value, 0).map_err(|error| of_entry("moved connections", &error))
    }

    /// Records and drops packets of this connection until the lease ends. A repeated call renews
    /// the lease.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn hold(&mut self, flow: &Flow, lease: Duration) -> Result<(), Error> {
        let mut value = entry(lease);
        value[14..].copy_from_slice(&1u16.to_ne_bytes());
        self.steered
            .insert(flow.key(), value, 0)
            .map_err(|error| of_entry("moved connections", &error))
    }

    /// Ends the redirection of this connection's packets, if any.
    pub fn unsteer(&mut self, flow: &Flow) {
        let key = flow.key();
        // A missing entry is not an error.
        let _ = self.steered.remove(&key);
        let _ = self.seen.remove(&key);
    }

    /// Record of a connection since it was steered; `None` if it was not.
    #[must_use]
    pub fn seen(&self, flow: &Flow) -> Option<Seen> {
        let value = self.seen.get(&flow.key(), 0).ok()?;
        let long = |at: usize| value[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let short = |at: usize| value[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let (acknowledged, sequence_end, first) = (long(8), long(16), short(24));
        // The program sets bit 32 once acknowledgements are known.
        let more = acknowledged.checked_sub((1 << 32) + u64::from(first));
        Some(Seen {
            packets: long(0),
            acknowledged: more.map(|more| (first, more)),
            sequence_end: (sequence_end > 0).then_some(sequence_end as u32),
            has_ended: short(28) != 0,
        })
    }

    /// Drops packets of this connection, which is about to come here.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn expect(&mut self, flow: &Flow, lease: Duration) -> Result<(), Error> {
        self.put_owned(flow, lease, false, false)
    }

    /// Lets packets reach this host's socket of the connection. A repeated call renews the lease.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn own(&mut self, flow: &Flow, lease: Duration) -> Result<(), Error> {
        self.put_owned(flow, lease, true, false)
    }

    /// Lets this host's kernel answer the client's FIN until the lease ends.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn let_end(&mut self, flow: &Flow, lease: Duration) -> Result<(), Error> {
        self.put_owned(flow, lease, true, true)
    }

    /// Removes the entry of a connection that this host no longer has, if any.
    pub fn disown(&mut self, flow: &Flow) {
        let _ = self.owned.remove(&flow.key());
    }

    fn put_owned(
        &mut self,
        flow: &Flow,
        lease: Duration,
        is_ready: bool,
        may_end: bool,
    ) -> Result<(), Error> {
        let mut value = entry(lease);
        value[8..12].copy_from_slice(&u32::from(is_ready).to_ne_bytes());
        value[12..].copy_from_slice(&u32::from(may_end).to_ne_bytes());
        self.owned
            .insert(flow.key(), value, 0)
            .map_err(|error| of_entry("connections that are here", &error))
    }

    /// Steered connections, including those past their leases.
    #[must_use]
    pub fn steered(&self) -> Vec<Flow> {
        self.steered.keys().filter_map(Result::ok).map(|key| Flow::of_key(&key)).collect()
    }

    /// Connections that are here or expected, including those past their leases.
    #[must_use]
    pub fn owned(&self) -> Vec<Flow> {
        self.owned.keys().filter_map(Result::ok).map(|key| Flow::of_key(&key)).collect()
    }

    /// Removes entries past their leases, which the programs ignore. Returns their number.
    pub fn sweep(&mut self) -> usize {
        let now_ns = boot_time_ns();
        let over = |flows: &Flows<ENTRY_BYTES>| {
            let all = flows.iter().filter_map(Result::ok);
            all.filter(|(_, value)| is_over(value, now_ns))
                .map(|(key, _)| Flow::of_key(&key))
                .collect::<Vec<_>>()
        };
        let (steered, owned) = (over(&self.steered), over(&self.owned));
        steered.iter().for_each(|flow| self.unsteer(flow));
        owned.iter().for_each(|flow| self.disown(flow));
        steered.len() + owned.len()
    }

    /// Value of a counter since the programs were loaded.
    #[must_use]
    pub fn count(&self, which: Count) -> u64 {
        self.counters.of(which as u32)
    }
}

fn flows<const BYTES: usize>(pins: &Path, name: &str) -> Result<Flows<BYTES>, Error> {
    Flows::try_from(Map::HashMap(pinned(pins, name)?)).map_err(|error| of_map(OPEN, &error))
}

/// An entry with this lease and no other field set.
fn entry(lease: Duration) -> [u8; ENTRY_BYTES] {
    let mut value = [0; ENTRY_BYTES];
    value[..8].copy_from_slice(&expires_ns(lease).to_ne_bytes());
    value
}

/// True if the entry is past its lease.
fn is_over(entry: &[u8; ENTRY_BYTES], now_ns: u64) -> bool {
    let mut expires_ns = [0; 8];
    expires_ns.copy_from_slice(&entry[..8]);
    u64::from_ne_bytes(expires_ns) < now_ns
}

/// End of a lease that begins now, on the programs' clock.
fn expires_ns(lease: Duration) -> u64 {
    boot_time_ns().saturating_add(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX))
}

fn boot_time_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

pub(crate) fn of_map(what: &'static str, error: &MapError) -> Error {
    match error {
        MapError::SyscallError(call) if is_denied(&call.io_error) => Error::NotAllowed(what),
        other => Error::Kernel(what, chain(other)),
    }
}

pub(crate) fn of_entry(what: &'static str, error: &MapError) -> Error {
    match error {
        MapError::SyscallError(call)
            if call.io_error.raw_os_error() == Some(rustix::io::Errno::TOOBIG.raw_os_error()) =>
        {
            Error::Full(what)
        }
        other => of_map("write to the pinned maps", other),
    }
}

pub(crate) fn is_denied(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

/// Text of an error with its chain of causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
