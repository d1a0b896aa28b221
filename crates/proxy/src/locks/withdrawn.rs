//! An OPTIONS of a client, which may be another proxy that withdraws a request:
//! [`crate::fleet::peers::withdraw`] says what that must never do.

use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::peers::withdraw;
use crate::ids::ClientRef;
use crate::locks::{ask, permission};

/// Takes back what the client asks to be taken back, of its own requests.
pub(crate) fn heard(core: &mut Core, io: &mut Io, slot: u32, flags: u8, body: &[u8]) {
    let Some(stream) = withdraw::read(flags, body) else { return };
    let Some(client) = core.clients.get(slot).map(|client| ClientRef { slot, id: client.id })
    else {
        return;
    };
    permission::withdraw(core, io, client, stream);
    ask::withdrawn(core, io, client, stream);
}
