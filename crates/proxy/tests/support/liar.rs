//! An agent that has the key, does nothing, and says what the test wants.

use std::collections::HashMap;
use std::net::SocketAddr;

use shunt_handover::message::{Message, Read, Ticket};
use shunt_handover::session::{
    AgentHandshake, Established, Instance, OwnerId, Protocol, SharedKey,
};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

pub struct Liar {
    handshake: AgentHandshake,
    /// Connections; those with a message that is not a link's are for control.
    open: HashMap<ConnId, (Option<Box<Established>>, bool)>,
    /// Owners' messages on control connections, without their fields.
    pub heard: Vec<(OwnerId, Ticket, String)>,
}

impl Liar {
    pub fn new(key: SharedKey) -> Self {
        let handshake = AgentHandshake::new(key, Protocol::Cql, Instance(5), [9; 32]);
        Self { handshake, open: HashMap::new(), heard: Vec::new() }
    }

    fn control(&mut self, owner: OwnerId) -> Option<(ConnId, &mut Established)> {
        self.open.iter_mut().find_map(|(conn, state)| match state {
            (Some(open), true) if open.owner == owner => Some((*conn, &mut **open)),
            _ => None,
        })
    }

    pub fn has_control(&mut self, owner: OwnerId) -> bool {
        self.control(owner).is_some()
    }

    /// Claims to this owner that it has such a connection of an earlier process.
    pub fn hold(
        &mut self,
        io: &mut Io,
        owner: OwnerId,
        ticket: Ticket,
        (local, peer): (SocketAddr, SocketAddr),
    ) {
        let (conn, open) = self.control(owner).expect("it has connected");
        let held = Message::Held { local, peer, from: Instance(77) };
        open.encoder.message(ticket, &held, io.output(conn)).unwrap();
    }
}

impl Service for Liar {
    type Mail = ();

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _: &Accepted) {
        self.handshake.hello(io.output(conn));
        self.open.insert(conn, (None, false));
    }

    fn connected(&mut self, _: &mut Io, _: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Some((session, is_control)) = self.open.get_mut(&conn) else { return data.len() };
        let mut used = 0;
        if session.is_none() {
            let Some((read, established)) = self.handshake.read(data, io.output(conn)).unwrap()
            else {
                return 0;
            };
            (used, *session) = (read, Some(Box::new(established)));
        }
        let Some(session) = session else { return used };
        while let Ok(Some((read, what))) = session.decoder.next(&data[used..]) {
            used += read;
            match what {
                // From here on the bytes are CQL.
                Read::Message(_, Message::Request { .. }) if !*is_control => {
                    io.close(conn);
                    self.open.remove(&conn);
                    return data.len();
                }
                Read::Message(ticket, message) => {
                    *is_control = true;
                    let name = format!("{message:?}")
                        .split([' ', '{'])
                        .next()
                        .unwrap_or_default()
                        .to_owned();
                    self.heard.push((session.owner, ticket, name));
                }
                Read::Body(..) => {}
            }
        }
        used
    }

    fn closed(&mut self, _: &mut Io, conn: ConnId, _: CloseReason) {
        self.open.remove(&conn);
    }

    fn drained(&mut self, _: &mut Io, _: ConnId) {}
    fn timer(&mut self, _: &mut Io, _: u64) {}
    fn mail(&mut self, _: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _: &mut Io) {}
}
