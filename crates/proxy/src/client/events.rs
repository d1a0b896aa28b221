//! Events that clients asked for with REGISTER.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Event, SchemaChange, encode};

use crate::client::Phase;
use crate::core::Core;
use crate::reply;

/// Sends schema events to the clients that registered. They get no topology and status of the nodes
/// behind the proxy, because the only hosts they know are proxies ([`crate::client::announce`]).
pub(crate) fn schema_changed(core: &mut Core, io: &mut Io, body: &[u8]) {
    let listeners: Vec<u32> = core
        .clients
        .iter()
        .filter(|(_, client)| client.registered.schema && client.phase == Phase::Ready)
        .map(|(slot, _)| slot)
        .collect();
    // Version 3 knows neither functions nor aggregates: nodes report a change of the keyspace.
    let mut for_v3 = Vec::new();
    if let Ok(Event::SchemaChange(found)) = Event::decode(body)
        && found.arguments.is_some()
    {
        let of_keyspace = SchemaChange {
            change: "UPDATED",
            target: "KEYSPACE",
            name: None,
            arguments: None,
            ..found
        };
        encode::event(&mut for_v3, &Event::SchemaChange(of_keyspace));
    }
    for slot in listeners {
        let old = core.clients.get(slot).is_some_and(|client| client.version < 4);
        reply::message(
            core,
            io,
            slot,
            opcode::EVENT,
            -1,
            if old && !for_v3.is_empty() { &for_v3 } else { body },
        );
    }
}
