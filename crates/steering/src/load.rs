//! Loading and unloading of the programs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::{fs, io};

use rustix::net::{AddressFamily, SocketType};

use crate::check::holds_pins;
use crate::error::Error;
use crate::maps::{MAPS, Services};
use crate::multiget::{Parts, Shim, Sources, Splitter};
use crate::{gateway, multiget};

/// Default directory of the pins.
pub const DEFAULT_PINS: &str = "/sys/fs/bpf/shunt";

/// Role of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Clients' connections begin and end here.
    Dispatcher,
    /// Clients' connections come here for a while.
    Backend,
    /// Packets come here first, and go on to one of several dispatchers.
    Gateway,
    /// Multigets are made here, and split on their way out.
    MultigetClient,
    /// Others' multigets come here, and are split on their way in.
    MultigetGateway,
}

/// Each role.
const ROLES: [Role; 5] =
    [Role::Dispatcher, Role::Backend, Role::Gateway, Role::MultigetClient, Role::MultigetGateway];

/// Direction of the packets that a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Role {
    /// Programs of the role, in the order of pinning.
    fn programs(self) -> &'static [(&'static str, Way)] {
        match self {
            Role::Dispatcher => &[("dispatcher_in", Way::In), ("dispatcher_out", Way::Out)],
            Role::Backend => &[("backend_in", Way::In), ("backend_out", Way::Out)],
            Role::Gateway => &[("gateway_in", Way::In)],
            Role::MultigetClient => &[("multiget_out", Way::Out)],
            Role::MultigetGateway => &[("multiget_in", Way::In)],
        }
    }

    /// Maps of these programs.
    fn maps(self) -> &'static [&'static str] {
        match self {
            Role::Dispatcher | Role::Backend => &MAPS,
            Role::Gateway => &gateway::MAPS,
            Role::MultigetClient | Role::MultigetGateway => &multiget::MAPS,
        }
    }

    /// True if the role is pinned there, judged by its last program.
    fn is_at(self, pins: &Path) -> bool {
        self.programs().last().is_some_and(|(last, _)| pins.join(last).exists())
    }
}

/// Attaches the programs of this role to an interface, for these virtual addresses, and pins them
/// and their maps in this directory.
///
/// # Errors
/// The missing prerequisite and its remedy. Nothing is left behind then.
pub fn load(interface: &str, role: Role, vips: &[SocketAddr], pins: &Path) -> Result<(), Error> {
    load_and(interface, role, pins, || serve(pins, vips, 1))
}

/// Like [`load`], for a role that splits multigets to these addresses into parts for these servers;
/// at a gateway only multigets from these sources.
///
/// # Errors
/// The missing prerequisite and its remedy. Nothing is left behind then.
pub fn load_splitter(
    interface: &str,
    role: Role,
    vips: &[SocketAddr],
    shims: &[Shim],
    parts: Parts,
    sources: Sources<'_>,
    pins: &Path,
) -> Result<(), Error> {
    load_and(interface, role, pins, || {
        let mut splitter = Splitter::open(pins)?;
        splitter.set(shims)?;
        sources.allow.iter().try_for_each(|(address, bits)| splitter.allow(*address, *bits))?;
        splitter.limit(sources.rate)?;
        serve(pins, vips, parts as u32)
    })
}

fn serve(pins: &Path, vips: &[SocketAddr], how: u32) -> Result<(), Error> {
    let mut services = Services::open(pins)?;
    vips.iter().try_for_each(|vip| services.serve(*vip, how))
}

fn load_and(
    interface: &str,
    role: Role,
    pins: &Path,
    fill: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    interface_index(interface)?;
    if !pins.parent().is_some_and(holds_pins) {
        return Err(Error::NoPins(pins.to_owned()));
    }
    match fs::create_dir(pins) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Pins without the last program come from a load that was killed.
            if ROLES.into_iter().any(|role| role.is_at(pins)) {
                return Err(Error::Loaded(pins.to_owned()));
            }
            clean(pins)?;
            fs::create_dir(pins).map_err(|error| {
                Error::Kernel("make a directory for the pins", error.to_string())
            })?;
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::NotAllowed("make a directory for the pins"));
        }
        Err(error) => {
            return Err(Error::Kernel("make a directory for the pins", error.to_string()));
        }
    }
    let done = attach(interface, role, pins).and_then(|()| fill());
    if done.is_err() {
        // This call made all of the pins. Report its own error, not one of the cleaning.
        let _ = clean(pins);
    }
    done
}

/// Number of an interface of this network namespace.
///
/// # Errors
/// The namespace has no interface of that name.
pub fn interface_index(interface: &str) -> Result<u32, Error> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    let index = socket.and_then(|socket| rustix::net::netdevice::name_to_index(socket, interface));
    index.map_err(|_| Error::NoInterface(interface.to_owned()))
}

/// Gives the pinned maps to a user, whose processes can then use them without privileges.
///
/// # Errors
/// This process may not change the owner of files.
pub fn give_to(pins: &Path, user: u32) -> Result<(), Error> {
    let maps =
        ROLES.into_iter().filter(|role| role.is_at(pins)).flat_map(|role| role.maps().iter());
    let paths: BTreeSet<_> = maps.map(|name| pins.join(name)).chain([pins.to_owned()]).collect();
    for path in paths {
        std::os::unix::fs::chown(&path, Some(user), None)
            .map_err(|_| Error::NotAllowed("give the pins to a user"))?;
    }
    Ok(())
}

/// Detaches the programs and removes their maps. `false` if there were none.
///
/// # Errors
/// A file could not be removed.
pub fn clean(pins: &Path) -> Result<bool, Error> {
    let mut found = false;
    let programs = ROLES.into_iter().flat_map(|role| role.programs()).map(|(name, _)| name);
    for name in programs.chain(&MAPS).chain(&gateway::MAPS).chain(&multiget::MAPS) {
        match fs::remove_file(pins.join(name)) {
            Ok(()) => found = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Error::NotAllowed("remove the pins"));
            }
            Err(error) => return Err(Error::Kernel("remove the pins", error.to_string())),
        }
    }
    match fs::remove_dir(pins) {
        Err(error) if found && error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Kernel("remove the pins' directory", error.to_string()))
        }
        _ => Ok(found),
    }
}

#[cfg(not(has_programs))]
fn attach(_: &str, _: Role, _: &Path) -> Result<(), Error> {
    Err(Error::NoPrograms)
}

#[cfg(has_programs)]
fn attach(interface: &str, role: Role, pins: &Path) -> Result<(), Error> {
    use aya::programs::links::FdLink;
    use aya::programs::tc::TcAttachOptions;
    use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};

    use crate::maps::chain;

    let object: &[u8] = match role {
        Role::Dispatcher | Role::Backend => {
            aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/handover.bpf.o"))
        }
        Role::Gateway => aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/gateway.bpf.o")),
        Role::MultigetClient | Role::MultigetGateway => {
            aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/multiget.bpf.o"))
        }
    };
    let mut programs = aya::Ebpf::load(object).map_err(|error| of_load(&error))?;
    for name in role.maps() {
        let map = programs.map(name).ok_or(Error::NoPrograms)?;
        map.pin(pins.join(name)).map_err(|error| match &error {
            aya::pin::PinError::SyscallError(call) if crate::maps::is_denied(&call.io_error) => {
                Error::NotAllowed("pin maps")
            }
            _ => Error::NoPins(pins.to_owned()),
        })?;
    }
    for (name, way) in role.programs() {
        let direction = match way {
            Way::In => TcAttachType::Ingress,
            Way::Out => TcAttachType::Egress,
        };
        let found = programs.program_mut(name).ok_or(Error::NoPrograms)?;
        let program: &mut SchedClassifier =
            found.try_into().map_err(|error| Error::Kernel("load the programs", chain(&error)))?;
        program.load().map_err(|error| Error::Kernel("load the programs", chain(&error)))?;
        let attached = program.attach_with_options(
            interface,
            direction,
            TcAttachOptions::TcxOrder(LinkOrder::default()),
        );
        let id = attached.map_err(|error| Error::OldKernel(chain(&error)))?;
        let link = program
            .take_link(id)
            .map_err(|error| Error::Kernel("attach the programs", chain(&error)))?;
        let link: FdLink = link.try_into().map_err(|error| Error::OldKernel(chain(&error)))?;
        link.pin(pins.join(name))
            .map_err(|error| Error::Kernel("pin the programs", chain(&error)))?;
    }
    Ok(())
}

#[cfg(has_programs)]
fn of_load(error: &aya::EbpfError) -> Error {
    let text = crate::maps::chain(error);
    match text.contains("Operation not permitted") || text.contains("Permission denied") {
        true => Error::NotAllowed("load programs into the kernel"),
        false => Error::Kernel("load the programs", text),
    }
}
